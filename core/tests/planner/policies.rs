//! The scripts of `docs/policies`: each decides as its first lines say, and scripts that mean harm end
//! the job with a reason.

use pipewright_core::elastic::{
    Facts, Member, Occasion, ScalePolicy, Script, Size, Verdict, decide,
};
use pipewright_core::units::Nanos;
use std::thread;

const HOUR: Nanos = Nanos(3_600_000_000_000);

/// A job of 1000 steps that ran with `before` ranks and has `now` slots. Every even number of ranks
/// is a size with 256 samples a rank; with 32 ranks the whole work takes 48 hours.
fn facts(before: u32, now: u32) -> Facts {
    let mut facts = Facts::initial(32, 1000, 8192);
    facts.initial = before == 0;
    facts.running_ranks = before;
    facts.members = (0..now).map(|i| Member::new(format!("node{i}"), 1)).collect();
    let step = Nanos(48 * HOUR.0 / 1000);
    let size =
        |ranks: u32| Size { step_ns: Some(step), ..Size::ranks(ranks, 256 * u64::from(ranks)) };
    facts.sizes = (1..=now / 2).map(|i| size(2 * i)).collect();
    facts
}

/// The same with a share of the work done, at the pace of 32 ranks.
fn after(before: u32, now: u32, percent: u64) -> Facts {
    let mut facts = facts(before, now);
    facts.progress.samples = facts.progress.samples_total * percent / 100;
    facts.elapsed_ns = Nanos(48 * HOUR.0 / 100 * percent);
    facts
}

fn script(text: &str) -> Script {
    Script::compile("test", text).unwrap_or_else(|e| panic!("{e}"))
}

/// The verdict in short, which a hundred more questions do not change.
fn verdict(policy: &Script, facts: &Facts) -> String {
    let verdict = decide(policy, facts);
    (0..100).for_each(|_| assert_eq!(decide(policy, facts), verdict));
    match verdict {
        Verdict::Run { ranks } => format!("run {ranks}"),
        Verdict::Wait { why } => format!("wait: {why}"),
        Verdict::Fail { why } => format!("fail: {why}"),
    }
}

#[track_caller]
fn check(text: &str, cases: &[(Facts, &str)]) {
    let policy = script(text);
    for (facts, expected) in cases {
        let found = verdict(&policy, facts);
        assert!(found.starts_with(expected), "{} slots: {found}, not {expected}", facts.slots());
    }
}

#[test]
fn fail_stop() {
    check(
        include_str!("../../../docs/policies/fail_stop.rhai"),
        &[
            (facts(0, 2), "wait: ok2run waits with 2 hosts"),
            (facts(0, 4), "run 4"),
            (facts(4, 3), "fail: ok2run fails with 3 hosts"),
            (facts(4, 5), "fail"),
        ],
    );
}

#[test]
fn min_max() {
    check(
        include_str!("../../../docs/policies/min_max.rhai"),
        &[
            (facts(0, 1), "wait: 0 ranks of at least 2"),
            (facts(0, 2), "run 2"),
            (facts(2, 7), "run 6"),
            (facts(6, 32), "run 8"),
            (facts(8, 0), "wait"),
        ],
    );
}

#[test]
fn deadline() {
    let mut unknown = after(32, 16, 50);
    unknown.sizes.iter_mut().for_each(|size| size.step_ns = None);
    check(
        include_str!("../../../docs/policies/deadline.rhai"),
        &[
            (facts(0, 32), "run 32"),
            (facts(0, 16), "wait: with 16 ranks it would take 96"),
            (after(32, 24, 10), "fail: it would end after 62"),
            (after(32, 24, 50), "run 24"),
            (after(32, 16, 50), "fail: it would end after 72 hours"),
            (after(32, 2, 95), "run 2"),
            (unknown, "run 16"),
            (after(32, 1, 50), "wait: no rank fits"),
        ],
    );
}

#[test]
fn batch_size() {
    check(
        include_str!("../../../docs/policies/batch_size.rhai"),
        &[
            (facts(0, 7), "wait: no size"),
            (facts(0, 8), "run 8"),
            (facts(8, 124), "run 124"),
            (facts(124, 200), "run 124"),
        ],
    );
}

#[test]
fn burst() {
    let text = include_str!("../../../docs/policies/burst.rhai");
    check(text, &[(facts(0, 7), "wait: 6 of 8 ranks are there")]);
    let policy = script(text);
    let grown: Vec<String> = (8..=16).map(|now| verdict(&policy, &facts(8, now))).collect();
    assert_eq!(grown[..8], ["run 8"; 8], "nothing changes while they come");
    assert_eq!(grown[8], "run 16", "one change when all are there");
}

#[test]
fn patient() {
    let text = include_str!("../../../docs/policies/patient.rhai");
    let on = |occasion, before, now| Facts { occasion, ..facts(before, now) };
    let cases = [
        (on(Occasion::Started, 0, 4), "run 4"),
        (on(Occasion::Joined, 4, 8), "run 4"),
        (on(Occasion::Left, 4, 7), "run 4"),
        (on(Occasion::Left, 8, 6), "run 6"),
        (on(Occasion::Lost, 8, 6), "run 6"),
    ];
    check(text, &cases);
}

#[test]
fn exact_size() {
    let mut often = facts(32, 31);
    often.restarts = 21;
    check(
        include_str!("../../../docs/policies/exact_size.rhai"),
        &[
            (facts(0, 31), "wait: 30 of 32 ranks are there"),
            (facts(32, 31), "wait"),
            (facts(32, 32), "run 32"),
            (facts(32, 40), "run 32"),
            (often, "fail: 21 losses"),
        ],
    );
}

#[test]
fn progress() {
    check(
        include_str!("../../../docs/policies/progress.rhai"),
        &[
            (facts(0, 4), "run 4"),
            (after(32, 2, 81), "run 2"),
            (after(32, 30, 49), "fail: too few ranks, and less than half"),
            (after(32, 24, 60), "run 24"),
            (after(32, 22, 60), "fail: 22 of 32 ranks are left"),
            (after(8, 32, 10), "run 32"),
            (after(8, 0, 99), "wait: no rank fits"),
        ],
    );
}

#[test]
fn constants_are_what_they_say() {
    let mut facts = after(4, 6, 50);
    (facts.step_ns, facts.left_ns) = (Some(Nanos(2_500_000_000)), Some(HOUR));
    (facts.progress.step, facts.progress.samples_epoch) = (500, 8192 * 100);
    facts.running = vec![Member::new("old", 4)];
    (facts.generation, facts.restarts) = (3, 2);
    for truth in [
        "occasion == \"started\" && !initial",
        "members.len() == 6 && members[5].name == \"node5\" && members[0].slots == 1",
        "running[0].slots == 4 && running_ranks == 4",
        "slots == 6 && ranks == 6 && least == 1 && most == 32 && asked == 32",
        "sizes.len() == 3 && sizes[-1].ranks == 6 && sizes[1].replicas == 4",
        "sizes[0].mini_batch == 512 && sizes[0].step_time > 172.0",
        "progress == 0.5 && step == 500 && epoch == 5 && samples == 4096000",
        "samples_total == 2 * samples && step_time == 2.5",
        "sizes[1].time_left == 2.5 * 4000.0 && time_left > sizes[1].time_left",
        "elapsed == hours(24) && time_limit == minutes(60) && generation == 3 && restarts == 2",
    ] {
        let text = format!("if {truth} {{ run() }} else {{ fail(\"no\") }}");
        assert_eq!(decide(&script(&text), &facts), Verdict::Run { ranks: 6 }, "{truth}");
    }
    let names: Vec<&str> = Script::NAMES.iter().map(|(name, _)| *name).collect();
    let all = format!("let all = [{}]; run()", names.join(", "));
    assert_eq!(
        decide(&script(&all), &Facts::initial(4, 10, 8)),
        decide(&script("run()"), &Facts::initial(4, 10, 8))
    );
    // What nobody knows is neither more nor less than anything.
    let unknown = "if time_limit > 0.0 || time_limit <= 0.0 { fail(\"\") } else { run() }";
    assert_eq!(verdict(&script(unknown), &self::facts(0, 4)), "run 4");
}

#[test]
fn texts_that_are_no_policies_are_refused_with_their_line() {
    for (text, what) in [
        ("run(\n", "line 2"),
        ("let x = 1;\nif slotz > 3 { run() }", "slotz"),
        ("eval(\"run()\")", "eval"),
        ("import \"x\" as y; run()", "import"),
        ("ranks ** 2", "**"),
    ] {
        let error = Script::compile("my.rhai", text).unwrap_err().to_string();
        assert!(error.starts_with("policy `my.rhai`: ") && error.contains(what), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
    let long = Script::compile("long", &" ".repeat(70_000)).unwrap_err().to_string();
    assert!(long.contains("70000 bytes of text, 65536 at most"), "{long}");
    let deep = format!("{}1{}", "(".repeat(30_000), ")".repeat(30_000));
    assert!(Script::compile("deep", &deep).unwrap_err().to_string().contains("complex"));
    let deep = "if initial { ".repeat(5000);
    assert!(Script::compile("deep", &deep).is_err());
}

#[test]
fn scripts_that_mean_harm_end_the_job_with_a_reason() {
    let facts = facts(4, 8);
    for (text, what) in [
        ("loop {}", "Too many operations"),
        ("let i = 0; while true { i += 1; }", "Too many operations"),
        ("fn f(n) { f(n + 1) } f(0)", "Stack overflow"),
        ("fn f(n) { g(n) } fn g(n) { f(n) } f(0)", "Stack overflow"),
        ("let s = \"x\"; loop { s += s; }", "too large"),
        ("let a = []; loop { a += [a]; }", "too large"),
        ("let a = []; loop { a.push(1); }", "too large"),
        ("let a = [0]; a.pad(1000000000, 0); run()", "too large"),
        ("let s = \"\"; s.pad(1000000000, \"x\"); run()", "too large"),
        ("let m = #{}; let i = 0; loop { m[`k${i}`] = i; i += 1; }", "oo"),
        ("for i in 0..9223372036854775807 {}", "Too many operations"),
        ("let x = 9223372036854775807; run(x + 1)", "overflow"),
        ("run(1 / (ranks - 8))", "zero"),
        ("run(-1)", "no such number of ranks"),
        ("members[99].slots", "out of bounds"),
        ("members[0].slotz", "slotz"),
        ("ranks = 9; run(9)", "constant"),
        ("members.push(1); run()", "constant"),
        ("fn f() { ranks } run(f())", "Variable not found: ranks"),
        ("round(0.0 / 0.0)", "no whole number"),
        ("sleep(10)", "sleep"),
        ("open(\"x\")", "open"),
        ("timestamp()", "timestamp"),
        ("throw \"enough\"", "enough"),
        ("42", "it must end with run(), run(ranks), wait(why) or fail(why), not with i64"),
        ("", "it must end with run()"),
        ("fn ok2run(hosts, initial) { 3 }", "ok2run must return"),
        ("fn ok2run(hosts, initial) { loop {} }", "Too many operations"),
        ("wait(\"a\" + 1 / 0)", "zero"),
    ] {
        let found = match Script::compile("test", text) {
            Ok(policy) => verdict(&policy, &facts),
            Err(error) => format!("fail: {error}"),
        };
        assert!(found.starts_with("fail: ") && found.contains(what), "{text}: {found}");
    }
    let long = verdict(&script("let s = \"\"; s.pad(4000, \"y\\n\"); wait(s)"), &facts);
    assert!(long.len() < 500 && !long.contains('\n'), "{long}");
}

/// The stack of a browser's worker is 1 MiB.
#[test]
fn the_deepest_script_fits_a_small_stack() {
    let nested = (0..6).fold("f(n + 1)".to_string(), |inner, _| format!("(1 + {inner})"));
    let text = format!("fn f(n) {{ if n > 9 {{ loop {{}} }} else {{ {nested} }} }} f(0)");
    let run = move || verdict(&script(&text), &facts(0, 4));
    let found = thread::Builder::new().stack_size(1 << 20).spawn(run).unwrap().join().unwrap();
    assert!(found.contains("Too many operations") || found.contains("overflow"), "{found}");
}

#[test]
fn a_script_may_be_asked_from_several_threads() {
    let policy = script("if ranks >= 4 { run() } else { wait(\"more\") }");
    assert_eq!(policy.name(), "test");
    thread::scope(|scope| {
        for now in 1..8u32 {
            let policy = &policy;
            scope.spawn(move || {
                let expected =
                    if now >= 4 { format!("run {}", now / 2 * 2) } else { "wait: more".into() };
                assert_eq!(verdict(policy, &facts(0, now)), expected);
            });
        }
    });
}
