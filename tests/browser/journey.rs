//! The whole job, as a person does it: open the page, drag a cut, watch the prediction, export,
//! run the exported file under mpirun, drop the trace back, see both timelines.

use pipewright::browser::Browser;
use pipewright::explorer::dist;
use pipewright::mpirun::mpirun;
use pipewright::{Outcome, Server, tools};
use pipewright_core::plan::Plan;
use std::path::Path;

/// A network that trains in a second, on a cluster that every machine can play.
const FRAGMENT: &str = "#v=1&model=digits-cnn&cluster=laptop&d=4&batch=96&mb=8";

/// Pixels of the timeline that differ from its ground: a drawn chart has many.
const PAINTED: &str = "
    const canvas = document.querySelector('#timeline canvas, canvas#timeline');
    const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
    let painted = 0;
    for (let i = 0; i < data.length; i += 4) {
        const differs = data[i] !== data[0] || data[i + 1] !== data[1] || data[i + 2] !== data[2];
        if (differs) painted += 1;
    }
    return painted;";

#[test]
#[ignore = "needs dist/, a browser and MPI: make test"]
fn tune_export_run_compare() -> Outcome<()> {
    let Some(dist) = dist() else { return Ok(()) };
    let Some(browser) = Browser::start("journey")? else { return Ok(()) };
    browser.resize(1440, 900)?;
    let address = Server::bind(&dist, 0)?.spawn()?;
    browser.open(&format!("{address}{FRAGMENT}"))?;
    browser.until("a prediction", |b| Ok(!b.text("#step-time")?.is_empty()))?;

    let before = browser.text("#step-time")?;
    browser.drag("[data-cut='2']", 0, 100)?;
    browser.until("the step time follows the cut", |b| Ok(b.text("#step-time")? != before))?;
    let cuts = "return location.hash.includes('cuts=')";
    browser.until("the link follows", |b| Ok(b.js(cuts)? == true))?;

    browser.click("#export")?;
    let plan = browser.saved("plan.json")?;
    same_bytes_natively(&plan)?;

    let work = tools::scratch("journey")?;
    let args = [path(&plan)?, "--steps", "20", "--out", "run"];
    let Some(run) = mpirun(4, &tools::runner()?, &args, &work, 300)? else { return Ok(()) };
    assert!(run.stdout.contains("done: 20 steps"), "{run:#?}");
    assert!(run.stdout.contains("to the byte"), "{run:#?}");

    let predicted = browser.js(PAINTED)?.as_u64();
    browser.keys("#import", path(&work.join("run/trace.json"))?)?;
    browser.until("the measured step", |b| Ok(!b.text("#measured-step")?.is_empty()))?;
    assert_eq!(browser.js("return document.querySelector('#measured').checked")?, true);
    browser.until("both timelines are drawn", |b| Ok(b.js(PAINTED)?.as_u64() != predicted))?;
    browser.screenshot(&work.join("both.png"))?;
    assert_eq!(browser.console_errors()?, Vec::<String>::new());

    let step = browser.text("#step-time")?;
    served_beside_the_page(&browser, &dist, &plan, &work, &step)?;
    Ok(std::fs::remove_dir_all(work)?)
}

/// What `make demo` shows: plan and trace are files beside the page, and the link names them.
fn served_beside_the_page(
    browser: &Browser,
    dist: &Path,
    plan: &Path,
    work: &Path,
    step: &str,
) -> Outcome<()> {
    let site = work.join("site");
    tools::copy(dist, &site, &|name| name != "demo")?;
    std::fs::create_dir_all(site.join("demo"))?;
    std::fs::copy(plan, site.join("demo/plan.json"))?;
    std::fs::copy(work.join("run/trace.json"), site.join("demo/trace.json"))?;
    let address = Server::bind(&site, 0)?.spawn()?;
    browser.open(&format!("{address}#plan=demo/plan.json&trace=demo/trace.json"))?;
    browser.until("the plan's step time", |b| Ok(b.text("#step-time")? == step))?;
    browser.until("its measured step", |b| Ok(!b.text("#measured-step")?.is_empty()))?;
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}

/// The page's plan is the plan that native code makes of the same choices, byte for byte: also its
/// prediction.
fn same_bytes_natively(file: &Path) -> Outcome<()> {
    let text = std::fs::read_to_string(file)?;
    let mut plan = Plan::from_json(&text)?;
    plan.prediction = pipewright_core::predict::predict(&plan)?.expectation();
    assert_eq!(plan.to_json(), text);
    Ok(())
}

fn path(path: &Path) -> Outcome<&str> {
    path.to_str().ok_or_else(|| "a path that is not text".into())
}
