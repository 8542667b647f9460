//! The Run screen as a person uses it: a plan is exported, trained by the real runner, and what it
//! left is dropped back; drift, other steps, times to use, metrics. All of it by keyboard alone, too.

use pipewright::browser::Browser;
use pipewright::explorer::explorer;
use pipewright::{Outcome, tools};
use pipewright_core::plan::Plan;
use pipewright_core::predict::{Busy, Drift, predict};
use pipewright_core::timeline::{Trace, chrome};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A network that trains in a second, on a cluster that every machine can play.
const FRAGMENT: &str = "#v=1&model=digits-cnn&cluster=laptop&d=4&batch=96&mb=8&view=run";

/// Keys as WebDriver names them.
const TAB: &str = "\u{E004}";
const ENTER: &str = "\u{E007}";
const RIGHT: &str = "\u{E014}";

/// A trained run: its folder, its plan, its trace.
struct Trained {
    dir: PathBuf,
    plan: Plan,
    trace: Trace,
}

impl Trained {
    /// Trains what the page exports, ranks as threads.
    fn new(browser: &Browser, name: &str) -> Outcome<Self> {
        browser.click("#run-export")?;
        let file = browser.saved("plan.json")?;
        let dir = tools::scratch(name)?;
        std::fs::rename(&file, dir.join("plan.json"))?;
        let args = ["plan.json", "--steps", "24", "--out", "run"];
        let ran = Command::new(tools::runner()?).args(args).current_dir(&dir).output()?;
        assert!(ran.status.success(), "{ran:?}");
        let plan = Plan::from_json(&std::fs::read_to_string(dir.join("plan.json"))?)?;
        let trace = chrome::read(&std::fs::read_to_string(dir.join("run/trace.json"))?)?;
        Ok(Self { dir, plan, trace })
    }

    /// The paths of all that it left, as a file input takes them.
    fn files(&self) -> Outcome<String> {
        let ranks = (0..4).map(|rank| format!("run/rank-{rank:03}.jsonl"));
        let names = ["run/trace.json".to_owned()].into_iter().chain(ranks);
        names
            .map(|name| path(&self.dir.join(name)))
            .collect::<Outcome<Vec<_>>>()
            .map(|p| p.join("\n"))
    }
}

fn path(path: &Path) -> Outcome<String> {
    path.to_str().map(str::to_owned).ok_or_else(|| "a path that is not text".into())
}

/// A number that an element says unrounded.
fn exact(browser: &Browser, css: &str) -> Outcome<f64> {
    let script = format!("return document.querySelector(\"{css}\")?.dataset.value ?? '-1'");
    Ok(browser.js(&script)?.as_str().unwrap_or("-1").parse()?)
}

/// Waits until every part of the table has its share.
fn shares(browser: &Browser) -> Outcome<()> {
    browser.until("all shares are simulated", |b| {
        let open = "return document.querySelectorAll('#drift tr[data-share=\"\"]').length";
        Ok(b.count("#drift tr[data-share]")? > 0 && b.js(open)? == 0)
    })
}

/// Goes on with Tab until an element has the focus.
fn tab_to(browser: &Browser, id: &str) -> Outcome<()> {
    for _ in 0..80 {
        if browser.js("return document.activeElement?.id ?? ''")? == id {
            return Ok(());
        }
        browser.press(TAB)?;
    }
    Err(format!("Tab does not come to {id}").into())
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn a_run_is_dropped_explained_and_used() -> Outcome<()> {
    let Some(browser) = explorer("run", FRAGMENT)? else { return Ok(()) };
    browser.until("the three steps", |b| Ok(b.count("#run-command")? == 1))?;
    assert_eq!(browser.text("#run-command")?, "mpirun -n 4 runner plan.json --out run");
    let run = Trained::new(&browser, "run-screen")?;
    browser.keys("#import-run", &run.files()?)?;
    browser.until("the measured step", |b| Ok(exact(b, "#run-measured")? > 0.0))?;

    // The median step, its drift part by part: page and core agree.
    let median = run.trace.median().ok_or("a run has steps")?;
    assert_eq!(exact(&browser, "#run-measured")?, median.timeline.step.0 as f64);
    let prediction = predict(&run.plan)?;
    let predicted = prediction.timeline.step.0 as f64;
    assert_eq!(exact(&browser, "#run-predicted")?, predicted);
    shares(&browser)?;
    let drift = Drift::new(&run.plan, &prediction, &median.timeline)?;
    let parts = drift.parts();
    assert_eq!(browser.count("#drift tr[data-share]")?, parts.len() as u64);
    for times in &parts {
        let (stage, letter) = (times.part.stage, times.part.busy.letter());
        let script = format!(
            "return document.querySelector('[data-part=\"{stage}{letter}\"]').dataset.share"
        );
        assert_eq!(browser.js(&script)?, drift.share(times.part)?.to_string(), "{stage}{letter}");
    }
    assert!(parts.iter().any(|times| times.part.busy == Busy::Update));
    // What explains the difference depends on how busy this machine is; that something is said does not.
    let why = browser.text("#run-why")?;
    assert!(why.contains("step") || why.starts_with("No single part"), "{why}");

    used(&browser, &run, predicted)?;
    metrics(&browser)?;
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(std::fs::remove_dir_all(run.dir)?)
}

/// The trace's times go into the plan, into its export, and back.
fn used(browser: &Browser, run: &Trained, before: f64) -> Outcome<()> {
    browser.until("the preview", |b| Ok(exact(b, "#run-preview")? > 0.0))?;
    let preview = exact(browser, "#run-preview")?;
    let measured = run.trace.median().ok_or("a run has steps")?.timeline.step.0 as f64;
    let off = |step: f64| (step / measured - 1.0).abs();
    assert!(off(preview) < off(before), "{preview} is nearer to {measured} than {before}");
    browser.click("#use-times")?;
    browser.until("they are used", |b| Ok(exact(b, "#run-predicted")? == preview))?;
    assert!(browser.text("#note")?.contains("Ctrl+Z undoes it"));
    browser.click("#export")?;
    let file = browser.saved("plan.json")?;
    let plan = Plan::from_json(&std::fs::read_to_string(&file)?)?;
    assert!(plan.cluster.profile.is_some() && plan.cluster.name.ends_with("calibrated"));
    assert_eq!(predict(&plan)?.timeline.step.0 as f64, preview);
    browser.click("#undo")?;
    browser.until("undone", |b| Ok(exact(b, "#run-predicted")? == before))
}

/// One run of four ranks; what is read follows the slider, the table says the same.
fn metrics(browser: &Browser) -> Outcome<()> {
    assert!(browser.text(".names")?.contains("Run 1: 24 steps, 4 ranks"));
    assert_eq!(browser.count(".four svg")?, 4);
    assert_eq!(browser.count("[data-plot='Step time'] .as-planned")?, 1, "the predicted line");
    let last = browser.text("#metrics-said")?;
    assert!(last.contains("step 23: loss ") && last.contains("bubble"), "{last}");
    browser.js("const at = document.querySelector('#metrics-at'); at.value = 3;
         at.dispatchEvent(new Event('input', { bubbles: true }));")?;
    browser.until("another step is read", |b| Ok(b.text("#metrics-said")?.contains("step 3:")))?;
    browser.click(".mtab summary")?;
    browser.until("the table", |b| Ok(b.count("#metrics-table tbody tr")? == 24))?;
    browser.click("#metrics-save")?;
    let file = browser.saved("metrics.svg")?;
    assert_eq!(std::fs::read_to_string(&file)?.matches("class='ml m0'").count(), 4);
    browser.click("#metrics-remove")?;
    browser.until("they go", |b| Ok(b.count(".four")? == 0))
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn all_of_it_goes_by_keyboard() -> Outcome<()> {
    let Some(browser) = explorer("run-keys", &FRAGMENT.replace("&view=run", ""))? else {
        return Ok(());
    };
    browser.until("a prediction", |b| Ok(!b.text("#step-time")?.is_empty()))?;
    browser.press("4")?;
    browser.until("the screen", |b| Ok(b.count("#run-export")? == 1))?;
    let run = Trained::new(&browser, "run-keys")?;
    tab_to(&browser, "import-run")?;
    browser.keys("#import-run", &run.files()?)?;
    browser.until("the measured step", |b| Ok(exact(b, "#run-measured")? > 0.0))?;
    tab_to(&browser, "run-step-slider")?;
    let number = || browser.js("return document.querySelector('#run-step').value");
    let before = number()?;
    // One of both directions is open whatever step is the median.
    browser.press(RIGHT)?;
    if number()? == before {
        browser.press("\u{E012}")?;
    }
    browser.until("another step", |b| {
        Ok(b.js("return document.querySelector('#run-step').value")? != before)
    })?;
    tab_to(&browser, "run-timelines")?;
    let said = ".ran .tfoot .say";
    let first = browser.text(said)?;
    assert!(first.contains("Predicted: ") && first.contains("Measured: "), "{first}");
    browser.press(RIGHT)?;
    browser.until("the next action", |b| Ok(b.text(said)? != first))?;
    shares(&browser)?;
    browser.until("the preview", |b| Ok(exact(b, "#run-preview")? > 0.0))?;
    let preview = exact(&browser, "#run-preview")?;
    tab_to(&browser, "use-times")?;
    browser.press(ENTER)?;
    browser.until("they are used", |b| Ok(exact(b, "#run-predicted")? == preview))?;
    tab_to(&browser, "metrics-at")?;
    browser.press("\u{E012}")?;
    browser.until("an earlier step", |b| Ok(b.text("#metrics-said")?.contains("step 22:")))?;
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(std::fs::remove_dir_all(run.dir)?)
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn hostile_files_are_a_sentence_and_change_nothing() -> Outcome<()> {
    let Some(browser) = explorer("run-hostile", FRAGMENT)? else { return Ok(()) };
    browser.until("the three steps", |b| Ok(b.count("#run-command")? == 1))?;
    let run = Trained::new(&browser, "run-hostile")?;
    let good = run.dir.join("run/trace.json");
    browser.keys("#import", &path(&good)?)?;
    browser.until("the measured step", |b| Ok(exact(b, "#run-measured")? > 0.0))?;
    let measured = exact(&browser, "#run-measured")?;
    let text = std::fs::read_to_string(&good)?;
    let arena = text.find("\"arena\":[").ok_or("a header")? + 9;
    let end = arena + text[arena..].find(']').ok_or("a header")?;
    let no_lanes = text[..arena].to_owned() + &text[end..];
    let negative = text.replacen("\"ts\":", "\"ts\":-", 40);
    for (name, text, says) in [
        ("cut.json", &text[..text.len() / 2], "ends in the middle"),
        ("no-lanes.json", &no_lanes, "no lanes"),
        ("negative.json", &negative, "is no time of a run"),
        ("nan.json", &text.replacen("\"dur\":", "\"dur\":NaN,\"x\":", 1), "not JSON"),
        ("other.json", "{\"traceEvents\":[]}", "neither a field `pipewright`"),
        ("bad.jsonl", "{\"step\":0,\"step_ns\":1}\nnonsense\n", "line 2"),
    ] {
        let file = run.dir.join(name);
        std::fs::write(&file, text)?;
        browser.keys("#import", &path(&file)?)?;
        // Files chosen right after each other are not taken together.
        assert_eq!(browser.js("return document.querySelector('#import').files.length")?, 0);
        browser.until(&format!("{name} is refused"), |b| {
            let note = b.text("#note")?;
            Ok(note.contains(name) && note.contains(says))
        })?;
        assert_eq!(exact(&browser, "#run-measured")?, measured, "{name}");
    }
    assert_eq!(browser.count(".four, .crash")?, 0);

    // A plan of other lanes: both steps stay on the screen, and why they cannot be compared is said.
    browser
        .js("location.hash = '#v=1&model=digits-cnn&cluster=laptop&d=2&batch=96&mb=8&view=run'")?;
    browser.until("why not", |b| Ok(b.text("#run-why")?.contains("4 lanes, the plan 2")))?;
    assert_eq!(exact(&browser, "#run-measured")?, measured);
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(std::fs::remove_dir_all(run.dir)?)
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn a_large_trace_does_not_freeze_the_page() -> Outcome<()> {
    let Some(browser) = explorer("run-large", FRAGMENT)? else { return Ok(()) };
    browser.until("the three steps", |b| Ok(b.count("#run-command")? == 1))?;
    let run = Trained::new(&browser, "run-large")?;
    // The run's last step, again and again.
    let last = run.trace.steps.last().ok_or("a run has steps")?.clone();
    let again = |number: u64| {
        let start = last.start + (last.timeline.step + last.timeline.step) * (number - last.number);
        pipewright_core::timeline::Step { number, start, ..last.clone() }
    };
    let steps = (last.number..last.number + 360).map(again).collect();
    let file = run.dir.join("large.json");
    std::fs::write(&file, chrome::write(&Trace { steps, ..run.trace.clone() }))?;
    assert!(std::fs::metadata(&file)?.len() > 18_000_000);
    browser.js("window.longest = 0; window.begun = performance.now(); let before = begun;
         const look = (now) => { longest = Math.max(longest, now - before); before = now; requestAnimationFrame(look); };
         requestAnimationFrame((now) => { before = now; look(now); });")?;
    browser.keys("#import", &path(&file)?)?;
    browser.until("the measured step", |b| Ok(exact(b, "#run-measured")? > 0.0))?;
    browser.until("all that is asked", |b| Ok(exact(b, "#run-preview")? > 0.0))?;
    let longest = browser.js("return longest")?.as_f64().unwrap_or(f64::NAN);
    let whole = browser.js("return performance.now() - begun")?.as_f64().unwrap_or(f64::NAN);
    println!("20 MB: the page answers after {longest:.0} ms at most of {whole:.0}");
    // A page that reads it itself has no picture until it is read, however busy the machine is.
    assert!(longest < whole / 2.0, "{longest} of {whole} ms without a picture");
    Ok(std::fs::remove_dir_all(run.dir)?)
}
