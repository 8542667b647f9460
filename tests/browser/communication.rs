//! The Communication view as a person uses it: a codec is looked at, tried on a slower link, taken into
//! the plan, undone; link and exported plan say the same.

use pipewright::Outcome;
use pipewright::browser::Browser;
use pipewright::explorer::explorer;
use pipewright_core::plan::Plan;
use pipewright_core::predict::predict;

const VIEW: &str =
    "#v=1&model=alexnet&cluster=reedbush-l&d=1&batch=128&mb=1&replicas=4&view=communication";

/// What a codec's row says of itself.
fn row(browser: &Browser, codec: &str, what: &str) -> Outcome<f64> {
    let script = format!(
        "return document.querySelector('#codecs tr[data-codec=\"{codec}\"]')?.dataset.{what} ?? '0'"
    );
    Ok(browser.js(&script)?.as_str().unwrap_or("0").parse()?)
}

fn says(browser: &Browser, codec: &str) -> Outcome<String> {
    browser.text(&format!("#codecs tr[data-codec='{codec}'] .say"))
}

/// Moves the slider of the bandwidth; 100 steps a decade from 1 MB/s.
fn slide(browser: &Browser, step: u32) -> Outcome<()> {
    browser.js(&format!(
        "const slider = document.querySelector('#bandwidth'); slider.value = {step};
         slider.dispatchEvent(new Event('input', {{ bubbles: true }}));"
    ))?;
    Ok(())
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn a_codec_is_judged_and_taken() -> Outcome<()> {
    let Some(browser) = explorer("communication", VIEW)? else { return Ok(()) };
    browser.until("the codecs are there", |b| Ok(row(b, "fp8-e5m2", "step")? > 0.0))?;
    assert_eq!(browser.count("#codecs tbody tr")?, 9);
    assert_eq!(browser.count("#over-bandwidth path.cv")?, 9, "a line each");
    let quarter = row(&browser, "fp32", "sent")? / row(&browser, "fp8-e5m2", "sent")?;
    assert!((quarter - 4.0).abs() < 0.01, "{quarter}");

    // 10 MB/s, where all of them pay, and 1 TB/s, where none does.
    slide(&browser, 100)?;
    browser.until("it pays", |b| Ok(says(b, "fp8-e5m2")?.starts_with("pays")))?;
    slide(&browser, 600)?;
    browser.until("it does not", |b| {
        let text = says(b, "fp8-e5m2")?;
        Ok(text.contains("slower here") || text.starts_with("does not pay"))
    })?;
    browser.click("#own-link")?;
    browser.until("the cluster's own link", |b| Ok(b.count("#own-link")? == 0))?;

    // Into the plan, with feedback.
    browser.click("#feedback")?;
    let codec = "fp8-e5m2+feedback";
    browser.until("with feedback", |b| Ok(row(b, codec, "step")? > 0.0))?;
    let step = row(&browser, codec, "step")?;
    browser.click(&format!("#codecs tr[data-codec='{codec}'] .pick"))?;
    let taken =
        format!("return document.querySelector('#codecs tr.me')?.dataset.codec === '{codec}'");
    browser.until("taken", |b| Ok(b.js(&taken)? == true))?;
    browser.until("the link says so", |b| {
        Ok(b.js("return location.hash.includes('codec=fp8-e5m2+feedback')")? == true)
    })?;
    browser.click("#export")?;
    let file = browser.saved("plan.json")?;
    let plan = Plan::from_json(&std::fs::read_to_string(&file)?)?;
    assert_eq!(plan.communication.gradients.to_string(), codec);
    assert_eq!(plan.data_parallel.replicas, 4);
    assert_eq!(predict(&plan)?.timeline.step.0 as f64, step, "page and core agree");

    browser.click("#undo")?;
    browser.until("undone", |b| {
        Ok(b.js("return document.querySelector('#codecs tr.me')?.dataset.codec === 'fp32'")?
            == true)
    })?;
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn one_replica_is_told_what_is_missing() -> Outcome<()> {
    let view = "#v=1&view=communication";
    let Some(browser) = explorer("communication-alone", view)? else { return Ok(()) };
    browser.until("it is said", |b| Ok(b.count(".comtab .rfail")? == 1))?;
    assert!(browser.text(".comtab .rfail")?.contains("Set Replicas to 2 or more"));
    browser.js("const box = document.querySelector('#replicas'); box.value = 2;
         box.dispatchEvent(new Event('change', { bubbles: true }));")?;
    browser.until("codecs are compared", |b| Ok(b.count("#codecs tbody tr")? == 9))?;
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}

/// Half the bytes and, on a device that multiplies so, less time: at once, in the link and in the plan.
#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn a_precision_is_chosen() -> Outcome<()> {
    let fragment = "#v=1&model=resnet50&cluster=dgx-a100&d=4&batch=256&mb=8";
    let Some(browser) = explorer("precision", fragment)? else { return Ok(()) };
    let number = |b: &Browser, id: &str| -> Outcome<f64> {
        let script = format!("return document.querySelector('{id}').dataset.value");
        Ok(b.js(&script)?.as_str().unwrap_or_default().parse()?)
    };
    let shown = |b: &Browser| -> Outcome<(f64, f64)> {
        Ok((number(b, "#step-time")?, number(b, "#peak-memory")?))
    };
    let (step, peak) = shown(&browser)?;
    browser.keys("#precision", "bf16")?;
    browser.until("the prediction follows", |b| {
        let (faster, smaller) = shown(b)?;
        Ok(faster < 0.7 * step && smaller < 0.7 * peak)
    })?;
    let (faster, _) = shown(&browser)?;
    let link = "return location.hash.includes('precision=bf16')";
    browser.until("the link follows", |b| Ok(b.js(link)? == true))?;
    browser.click("#export")?;
    let plan = Plan::from_json(&std::fs::read_to_string(browser.saved("plan.json")?)?)?;
    assert!(plan.training.precision.is_half());
    assert_eq!(predict(&plan)?.timeline.step.0 as f64, faster, "page and core agree");
    browser.click("#undo")?;
    browser.until("undone", |b| Ok(shown(b)? == (step, peak)))?;
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}

/// All forms on one clock: it goes on by keys, by hand and by itself, and stops at the end.
#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn forms_are_played_side_by_side() -> Outcome<()> {
    let Some(browser) = explorer("forms", "#v=1&view=communication")? else { return Ok(()) };
    browser.until("eight forms", |b| {
        Ok(b.count(".form svg")? == 8 && b.count(".colls tbody tr")? == 8)
    })?;
    let steps =
        "return [...document.querySelectorAll('[data-form-step]')].map(b => +b.dataset.formStep)";
    let steps: Vec<u64> = serde_json::from_value(browser.js(steps)?)?;
    assert_eq!(steps.len(), 8);
    assert!(steps[5] > steps[6], "micro-batches keep devices at work: {steps:?}");
    let said = "return [...document.querySelectorAll('.form .say')].map(p => p.textContent)";
    assert_eq!(browser.js(said)?[0], "scatter samples");
    browser.keys("#form-next", "\u{e007}")?;
    browser.until("the clock goes on", |b| {
        Ok(b.js("return document.querySelector('#form-at').value")? != "0")
    })?;
    browser.keys("#form-at", "\u{e010}")?;
    browser.until("the end", |b| {
        Ok(b.js(said)?.as_array().is_some_and(|all| all.iter().any(|s| s == "step done")))
    })?;
    browser.click("#form-play")?;
    browser.until("it begins anew and moves", |b| {
        let at = b.js("return +document.querySelector('#form-at').value")?.as_f64();
        Ok(at.is_some_and(|at| at > 0.0 && at < 900.0))
    })?;
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}
