//! `runner explore`, asked over real sockets: what it serves, whom it refuses, how runs begin and end.

use crate::common::{four_ranks, runner_in, scratch, small_plan, write};
use crate::explorer::{Explorer, PATIENCE, raw};
use pipewright_core::timeline::chrome;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::Instant;

/// Longer than any test lasts: a run that has to be stopped.
const ENDLESS: u64 = 1_000_000;

#[test]
fn without_a_page_it_says_how_to_get_one() {
    let dir = scratch("explore-none");
    runner_in(&dir, &["explore", "--no-open", "--dir", "."])
        .refused(2, ". has no index.html; `make web` writes it into dist/");
    write(&dir, "broken.json", "{}");
    runner_in(&dir, &["explore", "--no-open", "broken.json"]).refused(3, "missing field `version`");
}

#[test]
fn the_page_is_served_and_says_where_it_is_from() {
    let explorer = Explorer::start("explore-page", &[]);
    let page = explorer.get("/");
    assert_eq!(page.status, 200);
    assert!(
        page.body.contains("<head>\n<meta name=\"pipewright-here\" content=\"1\">"),
        "{page:?}"
    );
    assert!(page.head.contains("frame-ancestors 'none'"), "{page:?}");
    assert_eq!(explorer.get("/index.html?x=1").body, page.body);
    let script = explorer.get("/app-1/app.js");
    assert!(script.head.contains("Content-Type: text/javascript"), "{script:?}");
    for path in ["/secret.txt", "/../plan.json", "/%2e%2e/plan.json", "/api", "/explore-runs/1/"] {
        assert_eq!(explorer.get(path).status, 404, "{path}");
    }
    assert_eq!(explorer.ask("PUT", "/", &[], "").status, 405);
    let head = explorer.ask("HEAD", "/", &[], "");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
}

#[test]
fn only_the_page_that_was_opened_may_ask() {
    let explorer = Explorer::start("explore-access", &[]);
    let (host, origin) = (explorer.host(), explorer.origin());
    let other = format!("localhost:{}", explorer.port);
    // Pages whose name was pointed here, and wrong ports.
    for host in ["evil.example", other.as_str(), "127.0.0.1", "127.0.0.1:1"] {
        let page = raw(explorer.port, &format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(page.status, 421, "{host}: {page:?}");
    }
    let session = explorer.open();
    let ask = |headers: &[(&str, &str)]| {
        let lines: String = headers.iter().map(|(k, v)| format!("{k}: {v}\r\n")).collect();
        let head = format!("POST /api/facts HTTP/1.1\r\nHost: {host}\r\n{lines}");
        raw(explorer.port, &format!("{head}Content-Length: 2\r\n\r\n{{}}")).status
    };
    let json = ("Content-Type", "application/json");
    let key = ("X-Pipewright-Session", session.as_str());
    let own = ("Origin", origin.as_str());
    assert_eq!(ask(&[json, key, own]), 200);
    assert_eq!(ask(&[json, key, own, ("Sec-Fetch-Site", "same-origin")]), 200);
    // Other pages, and programs that are no page.
    for origin in ["http://evil.example", "null", "https://127.0.0.1", "http://127.0.0.1:1", ""] {
        assert_eq!(ask(&[json, key, ("Origin", origin)]), 403, "{origin}");
    }
    assert_eq!(ask(&[json, key]), 403);
    assert_eq!(ask(&[json, key, own, ("Sec-Fetch-Site", "cross-site")]), 403);
    // What a form could send.
    assert_eq!(ask(&[key, own]), 415);
    assert_eq!(ask(&[key, own, ("Content-Type", "text/plain")]), 415);
    assert_eq!(ask(&[json, own]), 401);
    let wrong = "0".repeat(32);
    assert_eq!(ask(&[json, own, ("X-Pipewright-Session", &wrong)]), 401);
    assert_eq!(explorer.ask("GET", "/api/facts", &[], "").status, 405);
    assert_eq!(explorer.ask("OPTIONS", "/api/run", &[], "").status, 405);
}

#[test]
fn every_question_needs_the_session() {
    let explorer = Explorer::start("explore-sessions", &[]);
    for name in ["facts", "run", "watch", "stop", "trace", "nothing"] {
        assert_eq!(explorer.post("", name, "{}").status, 401, "{name}");
    }
    let first = explorer.token();
    let wrong = json!({ "token": "0".repeat(32) }).to_string();
    assert_eq!(explorer.post("", "session", &wrong).status, 401);
    let session = explorer.open();
    let again = explorer.post("", "session", &json!({ "token": first }).to_string());
    assert_eq!(again.status, 401, "a token is good once");
    assert!(again.body.contains("opened before"), "{again:?}");
    assert_ne!(explorer.next_token(), first, "there is another one for another window");
    assert_eq!(explorer.post(&session, "nothing", "{}").status, 404);
    for (name, body, status) in [
        ("session", "{".to_owned(), 400),
        ("session", "x".repeat(5000), 413),
        ("run", "{}".to_owned(), 400),
        ("run", json!({ "plan": "{}", "args": ["--out", "/"] }).to_string(), 400),
        ("run", json!({ "plan": "{}", "steps": "1; true" }).to_string(), 400),
        ("run", json!({ "plan": "{}", "device": "cuda" }).to_string(), 400),
        ("run", json!({ "plan": small_plan().to_json(), "threads": 5000 }).to_string(), 400),
    ] {
        assert_eq!(explorer.post(&session, name, &body).status, status, "{name} {body:.60}");
    }
    let plan_max = 32 << 20;
    let long = format!(
        "POST /api/run HTTP/1.1\r\nHost: {}\r\nOrigin: {}\r\n\
        Content-Type: application/json\r\nX-Pipewright-Session: {session}\r\nContent-Length: {}\r\n\r\n",
        explorer.host(),
        explorer.origin(),
        plan_max + 1
    );
    assert_eq!(raw(explorer.port, &long).status, 413);
    assert!(!explorer.dir.join("explore-runs").exists(), "nothing was begun");
}

#[test]
fn a_run_is_told_from_its_begin_to_its_trace() {
    let explorer = Explorer::start("explore-run", &[]);
    let session = explorer.open();
    assert_eq!(explorer.lines(&session), [json!({ "event": "none" })]);
    assert_eq!(explorer.post(&session, "trace", "{}").status, 404);
    let asked = json!({ "plan": small_plan().to_json(), "steps": 7, "threads": 1 });
    let began = explorer.post(&session, "run", &asked.to_string());
    assert_eq!((began.status, began.body.as_str()), (200, "{\"run\":1}"));
    let lines = explorer.lines(&session);
    let (begin, end) = (&lines[0], &lines[lines.len() - 1]);
    assert_eq!((&begin["ranks"], &begin["steps"]), (&json!(2), &json!(7)));
    assert_eq!((&end["event"], &end["status"]), (&json!("end"), &json!("done")), "{end}");
    let steps: Vec<&Value> = lines.iter().filter(|line| line["event"] == "step").collect();
    let numbers: Vec<u64> =
        steps.iter().map(|step| step["record"]["step"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6]);
    assert!(steps.iter().all(|step| step["record"]["loss"].as_f64().is_some()));
    assert!(lines.iter().any(|line| line["event"] == "trace"));
    let trace = explorer.post(&session, "trace", "{}");
    assert_eq!(chrome::read(&trace.body).unwrap().steps.len(), 7);
    // Who comes late misses nothing, and the next run has a folder of its own.
    let again = explorer.lines(&session);
    assert_eq!(again.iter().filter(|line| line["event"] == "step").count(), 7);
    let modelled = json!({ "plan": small_plan().to_json(), "steps": 3, "device": "model" });
    assert_eq!(explorer.post(&session, "run", &modelled.to_string()).body, "{\"run\":2}");
    let lines = explorer.lines(&session);
    assert_eq!(lines[lines.len() - 1]["status"], "done", "{lines:?}");
    assert!(explorer.dir.join("explore-runs/2/result.json").is_file());
}

#[test]
fn what_is_wrong_with_a_plan_is_said() {
    let explorer = Explorer::start("explore-wrong", &[]);
    let session = explorer.open();
    let run = |plan: &str| explorer.post(&session, "run", &json!({ "plan": plan }).to_string());
    let broken = run("{\"version\": 1}");
    assert_eq!(broken.status, 400);
    assert!(broken.body.contains("missing field"), "{broken:?}");
    assert!(run("{\"version\": 99}").body.contains("99"));
    // Whole, but what it names is not there.
    let mut plan = small_plan();
    plan.data = pipewright_core::plan::Data::Idx { dir: "nowhere".into() };
    assert_eq!(run(&plan.to_json()).status, 200);
    let lines = explorer.lines(&session);
    let end = &lines[lines.len() - 1];
    assert_eq!(end["status"], "failed", "{end}");
    assert!(end["why"].as_str().unwrap().contains("nowhere"), "the runner's own sentence: {end}");
    assert!(!end["said"].as_array().unwrap().is_empty());
}

#[test]
fn a_run_goes_on_without_the_page_until_it_is_stopped() {
    let explorer = Explorer::start("explore-stop", &[]);
    let session = explorer.open();
    let asked = json!({ "plan": four_ranks(ENDLESS).to_json(), "save": true }).to_string();
    assert_eq!(explorer.post(&session, "run", &asked).status, 200);
    let busy = explorer.post(&session, "run", &asked);
    assert_eq!((busy.status, busy.body.trim()), (409, "a run goes on; stop it first"));
    let mut watch = explorer.watch(&session);
    watch.until("step");
    drop(watch);
    // The page is gone; another look finds the run, from its first step.
    let mut watch = explorer.watch(&session);
    let begin = watch.until("begin");
    let pids = explorer.ranks(&begin["run"]);
    assert!(!pids.is_empty());
    assert_eq!(watch.until("step")["record"]["step"], 0);
    assert_eq!(explorer.post(&session, "stop", "{}").status, 200);
    let end = watch.until("end");
    assert_eq!(end["status"], "stopped", "{end}");
    let folder = explorer.dir.join("explore-runs/1");
    assert_eq!(crate::common::result(&folder)["status"], "interrupted");
    assert!(folder.join("trace.json").is_file() && folder.join("checkpoints").is_dir());
    assert_eq!(explorer.ranks(&begin["run"]), Vec::<u32>::new(), "nobody is left");
}

/// Whether a moment in the life of that run has come.
type HasCome = fn(&Explorer, u32) -> bool;

#[test]
fn a_run_can_be_stopped_while_it_starts() {
    let explorer = Explorer::start("explore-at-once", &[]);
    let session = explorer.open();
    let asked = json!({ "plan": four_ranks(ENDLESS).to_json() }).to_string();
    // Before mpirun listens, before there are ranks, before they listen, when the first of them does.
    let moments: [(&str, HasCome); 4] = [
        ("at once", |_, _| true),
        ("when mpirun is there", |explorer, run| !explorer.ranks(&run.into()).is_empty()),
        ("when a rank is there", |explorer, run| !only_ranks(explorer, run).is_empty()),
        ("when a rank listens", |explorer, run| only_ranks(explorer, run).into_iter().any(listens)),
    ];
    for (run, (moment, has_come)) in (1..).zip(moments) {
        assert_eq!(explorer.post(&session, "run", &asked).status, 200);
        let begin = Instant::now();
        while !has_come(&explorer, run) {
            assert!(begin.elapsed() < PATIENCE, "never {moment}");
            std::thread::yield_now();
        }
        assert_eq!(explorer.post(&session, "stop", "{}").status, 200);
        let mut watch = explorer.watch(&session);
        assert_eq!(watch.until("begin")["run"], run);
        let end = watch.until("end");
        assert_eq!(end["status"], "stopped", "{moment}: {end}");
        // A rank that mpirun has ended may outlive mpirun by a moment.
        let begin = Instant::now();
        while !explorer.ranks(&run.into()).is_empty() {
            assert!(begin.elapsed() < PATIENCE, "{moment}: ranks are left");
            std::thread::yield_now();
        }
    }
}

/// The ranks among the processes of a run.
fn only_ranks(explorer: &Explorer, run: u32) -> Vec<u32> {
    let is_rank = |id: &u32| {
        let variables = std::fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        variables.split(|byte| *byte == 0).any(|one| one.starts_with(b"OMPI_COMM_WORLD_RANK="))
    };
    explorer.ranks(&run.into()).into_iter().filter(is_rank).collect()
}

/// Whether a process catches SIGUSR1, by which runs are stopped.
fn listens(id: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| (mask >> (Signal::USR1.as_raw() - 1)) & 1 == 1)
}

#[test]
fn closing_it_ends_the_run() {
    let mut explorer = Explorer::start("explore-close", &[]);
    let session = explorer.open();
    let asked = json!({ "plan": four_ranks(ENDLESS).to_json() }).to_string();
    assert_eq!(explorer.post(&session, "run", &asked).status, 200);
    let begin = explorer.watch(&session).until("begin");
    let mut watch = explorer.watch(&session);
    watch.until("step");
    assert!(!explorer.ranks(&begin["run"]).is_empty());
    assert_eq!(explorer.interrupt(), Some(0));
    assert_eq!(explorer.ranks(&begin["run"]), Vec::<u32>::new(), "nobody is left");
    assert_eq!(
        crate::common::result(&explorer.dir.join("explore-runs/1"))["status"],
        "interrupted"
    );
}
