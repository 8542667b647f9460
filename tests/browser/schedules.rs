//! The strip of schedules: each is simulated, hovering shows one, a click takes it.

use pipewright::Outcome;
use pipewright::browser::Browser;
use pipewright::explorer::explorer;

/// The exact step of the plan that is shown.
fn step(browser: &Browser) -> Outcome<String> {
    let value = browser.js("return document.getElementById('step-time').dataset.value")?;
    Ok(value.as_str().unwrap_or_default().to_owned())
}

/// The exact step that the strip says of a schedule.
fn promised(browser: &Browser, schedule: &str) -> Outcome<String> {
    let script =
        "return document.querySelector('#schedules [data-schedule=\"NAME\"]')?.dataset.step ?? ''";
    let value = browser.js(&script.replace("NAME", schedule))?;
    Ok(value.as_str().unwrap_or_default().to_owned())
}

/// Moves the mouse onto a schedule's picture.
fn point(browser: &Browser, schedule: &str) -> Outcome<()> {
    let tile = format!("#schedules [data-schedule=\"{schedule}\"]");
    browser
        .js(&format!("document.querySelector('{tile}').scrollIntoView({{ block: 'nearest' }})"))?;
    browser.hover(&tile, 0, 0)
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn each_schedule_is_simulated_shown_and_taken() -> Outcome<()> {
    let Some(browser) = explorer("schedules", "#v=1&model=resnet50&d=4&mb=8&batch=512")? else {
        return Ok(());
    };
    let all = "#schedules button[data-step]";
    browser.until("all schedules are simulated", |b| Ok(b.count(all)? == 18))?;
    assert!(browser.count("#schedules .thumb path[d]")? > 36);
    let before = step(&browser)?;
    assert_eq!(promised(&browser, "1f1b")?, before);
    let none = "return document.getElementById('undo').disabled";
    for schedule in ["zb-v", "chimera", "pipedream"] {
        let expected = promised(&browser, schedule)?;
        point(&browser, schedule)?;
        browser.until("the hovered schedule is shown", |b| Ok(step(b)? == expected))?;
        assert_eq!(promised(&browser, "1f1b")?, before, "the strip stays while one is hovered");
        browser.hover("#step-time", 0, 0)?;
        browser.until("the plan is back", |b| Ok(step(b)? == before))?;
        assert_eq!(browser.js(none)?, true, "looking is no step of undo");
    }
    let expected = promised(&browser, "chimera")?;
    browser.click("#schedules [data-schedule=chimera]")?;
    browser.until("it is taken", |b| Ok(step(b)? == expected))?;
    assert_eq!(browser.js("return document.getElementById('schedule').value")?, "chimera");
    browser.click("#undo")?;
    browser.until("one undo brings the plan back", |b| Ok(step(b)? == before))?;
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}

/// What a control cannot have is said, and the control shows what holds.
#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn refused_choices_do_not_stay_in_their_controls() -> Outcome<()> {
    let link = "#v=1&model=gpt3-175b&cluster=dgx-h100&d=64&mb=64&batch=64";
    let Some(browser) = explorer("refused", link)? else { return Ok(()) };
    browser.until("a prediction", |b| Ok(!step(b)?.is_empty()))?;
    let type_into = |css: &str, value: &str| {
        browser.js(&format!(
            "const control = document.querySelector('{css}'); control.value = '{value}';
            control.dispatchEvent(new Event('change', {{ bubbles: true }}));"
        ))
    };
    let value = |css: &str| {
        let found = browser.js(&format!("return document.querySelector('{css}').value"))?;
        Ok::<_, Box<dyn std::error::Error>>(found.as_str().unwrap_or_default().to_owned())
    };
    let before = step(&browser)?;
    type_into("#schedule", "zb-v")?;
    browser.until("it is refused", |b| Ok(b.text("#note")?.contains("at most")))?;
    assert_eq!(value("#schedule")?, "1f1b");
    type_into("#stages-n", "1000")?;
    assert_eq!(value("#stages-n")?, "64");
    assert_eq!(step(&browser)?, before);
    // What is no number of lanes, or no place for a cut, is said as well.
    for (css, wrong) in [("#stages-n", "0"), ("#micro-batches-n", "-3"), ("#cut-0", "99999")] {
        let kept = value(css)?;
        browser.click("[aria-label='Close the message']")?;
        type_into(css, wrong)?;
        browser.until("it is refused", |b| {
            Ok(b.text("#note")?.contains(": a whole number from 1 to "))
        })?;
        assert_eq!(value(css)?, kept);
    }
    assert_eq!(step(&browser)?, before);
    // Digit by digit, 1000 lanes are 1, 10 and 100 before: none of them stays.
    for (css, wrong) in
        [("#stages-n", "1000"), ("#micro-batches-n", "99999"), ("#plan-replicas", "0")]
    {
        let kept = value(css)?;
        browser.click("[aria-label='Close the message']")?;
        browser.keys(css, &format!("\u{E009}a\u{E000}{wrong}\u{E007}"))?;
        browser.until("it is said", |b| Ok(!b.text("#note")?.is_empty()))?;
        assert_eq!(value(css)?, kept);
        browser.until("the plan as before", |b| Ok(step(b)? == before))?;
    }
    // A refused schedule comes with lanes that it can have.
    type_into("#schedule", "zb-v")?;
    browser.until("lanes are offered", |b| Ok(b.text("#instead")?.starts_with("Use ")))?;
    browser.click("#instead")?;
    browser.until("the schedule", |_| Ok(value("#schedule")? == "zb-v"))?;
    let lanes: u32 = value("#stages-n")?.parse()?;
    assert!((2..64).contains(&lanes), "{lanes}");
    browser.until("it is shown", |b| Ok(step(b)? != before))?;
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}
