//! Run here, as a person uses it: a real Chromium, the real `runner explore`, real ranks.

use pipewright::axe::{axe, violations};
use pipewright::browser::Browser;
use pipewright::explorer::dist;
use pipewright::mpirun::environment;
use pipewright::{Outcome, tools};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const CTRL: &str = "\u{E009}";
const ENTER: &str = "\u{E007}";
const ESCAPE: &str = "\u{E00C}";

/// `runner explore` in a folder of its own; dropped, it is told to end, and ends its run.
struct Explore {
    program: Child,
    /// Closed, the next line would end it.
    _said: BufReader<std::process::ChildStdout>,
    address: String,
}

impl Explore {
    fn start(runner: &Path, dir: &Path, args: &[&str]) -> Outcome<Self> {
        let mut command = Command::new(runner);
        command.args(["explore", "--no-open"]).args(args).current_dir(dir).envs(environment());
        let mut program = command.stdout(Stdio::piped()).spawn()?;
        let mut said = BufReader::new(program.stdout.take().ok_or("no output")?);
        let mut line = String::new();
        said.read_line(&mut line)?;
        let address = line.trim().strip_prefix("The explorer is on ").ok_or(line.clone())?;
        Ok(Self { program, _said: said, address: address.to_owned() })
    }
}

impl Drop for Explore {
    fn drop(&mut self) {
        // SIGTERM, as std can only kill, which would leave the run alone.
        let id = self.program.id().to_string();
        Command::new("kill").arg(id).status().ok();
        self.program.wait().ok();
    }
}

/// A small plan in `dir`, of as many steps.
fn plan(runner: &Path, dir: &Path, data: &str, steps: &str) -> Outcome<()> {
    let made = Command::new(runner)
        .args(["plan", "--model", "digits-cnn", "--stages", "2", "--schedule", "1f1b"])
        .args(["--micro-batches", "4", "--mini-batch", "64", "--data", data, "--steps", steps])
        .args(["-o", "plan.json"])
        .current_dir(dir)
        .output()?;
    match made.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&made.stderr).into()),
    }
}

fn status(browser: &Browser) -> Outcome<String> {
    browser.text("#here-status")
}

fn offered(browser: &Browser) -> Outcome<()> {
    browser.until("runs are offered", |b| Ok(b.count("#run-here:not([hidden])")? == 1))
}

#[test]
#[ignore = "needs dist/, a browser and MPI: make test"]
fn a_plan_is_run_from_the_page() -> Outcome<()> {
    let Some(dist) = dist() else { return Ok(()) };
    let Some(browser) = Browser::start("explore")? else { return Ok(()) };
    browser.resize(1440, 900)?;
    let (runner, dir) = (tools::runner()?, tools::scratch("explore-page")?);
    let digits = format!("idx:{}", tools::root().join("tests/data/digits").display());
    plan(&runner, &dir, &digits, "1000000")?;
    let dist = dist.display().to_string();
    let explore = Explore::start(&runner, &dir, &["--dir", &dist, "plan.json"])?;
    browser.open(&explore.address)?;
    offered(&browser)?;
    browser.until("the plan is shown", |b| Ok(b.text("#note")?.contains("Opened plan.json")))?;
    assert_eq!(browser.js("return location.href.includes('here=')")?, false, "the token is gone");

    // The Run screen has no run yet: it offers one here.
    browser.press("4")?;
    browser.until("the offer", |b| Ok(b.count("#run-start")? == 1))?;
    browser.click("#run-start")?;
    browser.until("the panel", |b| Ok(b.count("#here-start")? == 1))?;
    browser.press(ESCAPE)?;
    browser.until("it is closed", |b| Ok(b.count("#here-start")? == 0))?;

    // By keyboard: the palette opens the panel, Enter starts.
    browser.press(&format!("{CTRL}k"))?;
    browser.until("the palette", |b| Ok(b.count("#palette:focus")? == 1))?;
    browser.keys("#palette", "run this")?;
    browser.press(ENTER)?;
    browser.until("the panel has the focus", |b| Ok(b.count("#here :focus")? == 1))?;
    browser.js("document.querySelector('#here-start').focus()")?;
    browser.press(ENTER)?;
    let stepped = |b: &Browser| Ok(!matches!(b.text("#here-time")?.as_str(), "" | "–"));
    browser.until("steps are made", stepped)?;
    assert_eq!(status(&browser)?, "Running.");
    browser.until("the focus is on what stops it", |b| Ok(b.count("#here-stop:focus")? == 1))?;

    // The page goes and comes back: the run is still the same.
    browser.js("location.reload()")?;
    let progress = "return document.querySelector('#run-here small')?.textContent ?? ''";
    browser.until("the run is found again", |b| {
        Ok(b.js(progress)?.as_str().is_some_and(|text| text.ends_with("/1000000")))
    })?;
    browser.click("#run-here")?;
    browser.until("it can be stopped", |b| Ok(b.count("#here-stop")? == 1))?;
    browser.click("#here-stop")?;
    browser.until("it has stopped", |b| Ok(status(b)?.starts_with("Stopped after step")))?;

    // To the end: the measured step lies over the prediction.
    browser.js("document.querySelector('#here-steps').value = 25")?;
    browser.click("#here-start")?;
    browser.until("the run is over", |b| Ok(status(b)?.starts_with("Done: 25 steps.")))?;
    browser.until("its trace is shown", |b| {
        Ok(b.text("#note")?.contains("trace.json: 2 lanes; the median step of 8"))
    })?;
    assert_eq!(browser.text("#here-step")?, "25 of 25");
    assert!(dir.join("explore-runs/2/trace.json").is_file());
    if let Some(axe) = axe()? {
        for theme in ["light", "dark"] {
            browser.emulate("prefers-color-scheme", theme)?;
            assert_eq!(violations(&browser, &axe)?, Vec::<String>::new(), "{theme}");
        }
    }
    browser.press(ESCAPE)?;
    browser.until("closed, the focus is back", |b| Ok(b.count("#run-here:focus")? == 1))?;
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}

#[test]
#[ignore = "needs dist/, a browser and MPI: make test"]
fn the_runner_s_own_sentence_is_shown() -> Outcome<()> {
    let Some(dist) = dist() else { return Ok(()) };
    let Some(browser) = Browser::start("explore-wrong")? else { return Ok(()) };
    browser.resize(1440, 900)?;
    let (runner, dir) = (tools::runner()?, tools::scratch("explore-wrong")?);
    plan(&runner, &dir, "idx:nowhere", "20")?;
    let dist = dist.display().to_string();
    let explore = Explore::start(&runner, &dir, &["--dir", &dist, "plan.json"])?;
    browser.open(&explore.address)?;
    offered(&browser)?;
    browser.until("the plan is shown", |b| Ok(b.text("#note")?.contains("Opened plan.json")))?;
    browser.click("#run-here")?;
    browser.until("the form", |b| Ok(b.count("#here-start")? == 1))?;
    browser.js("document.querySelector('#here-threads').value = '5000'")?;
    browser.click("#here-start")?;
    browser.until("a number is refused", |b| Ok(b.text("#here-refused")?.contains("5000")))?;
    browser.js("document.querySelector('#here-threads').value = ''")?;
    browser.click("#here-start")?;
    browser.until("the run has failed", |b| Ok(status(b)?.starts_with("The run failed:")))?;
    assert!(status(&browser)?.contains("nowhere"), "{}", status(&browser)?);
    assert_eq!(browser.count("#here .log")?, 1, "with its last lines");
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn one_file_is_enough() -> Outcome<()> {
    let Some(dist) = dist() else { return Ok(()) };
    let dir = tools::scratch("explore-alone")?;
    let alone = dir.join("runner");
    std::fs::copy(tools::runner()?, &alone)?;
    // As `make runner` does it.
    pipewright_page::embed(&alone, &dist)?;
    let explore = Explore::start(&alone, &dir, &[])?;
    let Some(browser) = Browser::start("explore-alone")? else { return Ok(()) };
    browser.open(&explore.address)?;
    browser.until("a prediction", |b| Ok(!b.text("#step-time")?.is_empty()))?;
    offered(&browser)?;
    // Chunks and worker come from there too.
    browser.press("3")?;
    browser.until("another screen", |b| Ok(b.count("#differences tbody tr")? > 0))?;
    let address = explore.address.split('#').next().unwrap_or_default();
    drop(browser);
    // Without the token the page is there, and nothing is offered.
    let Some(browser) = Browser::start("explore-guest")? else { return Ok(()) };
    browser.open(address)?;
    browser.until("a prediction", |b| Ok(!b.text("#step-time")?.is_empty()))?;
    assert_eq!(browser.count("#run-here:not([hidden])")?, 0);
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}
