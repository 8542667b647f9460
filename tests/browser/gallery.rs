//! Stories open where they are told, and a link may show the timeline alone.

use pipewright::Outcome;
use pipewright::explorer::explorer;

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn stories_open_with_their_sentences() -> Outcome<()> {
    let Some(browser) = explorer("gallery", "")? else { return Ok(()) };
    browser.click("#stories")?;
    browser.until("the gallery", |b| Ok(b.count(".gallery li")? == 10))?;
    browser.click(".gallery [data-story=dualpipe]")?;
    browser.until("the story", |b| Ok(b.count(".story b")? == 1))?;
    assert!(browser.text(".story p")?.contains("DualPipe runs two directions"));
    let schedule = "return document.getElementById('schedule').value";
    browser.until("its plan", |b| Ok(b.js(schedule)? == "dualpipe"))?;
    browser.click("#next-story")?;
    browser
        .until("the next one", |b| Ok(b.text(".story b")? == "Equal layers are not equal time"))?;
    browser.until("its plan", |b| Ok(b.js(schedule)? == "1f1b"))?;
    browser.click(".story .ib")?;
    browser.until("nothing is told", |b| Ok(b.count(".story")? == 0))?;
    browser.js("location.href = '#v=1&story=none'")?;
    browser
        .until("a name that is none", |b| Ok(b.text("#note")?.starts_with("There is no story")))?;
    assert_eq!(browser.count(".story")?, 0);
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn a_frame_shows_the_timeline_alone() -> Outcome<()> {
    let Some(browser) = explorer("embed", "#v=1&embed=1&model=resnet50&d=4")? else {
        return Ok(());
    };
    let seen = browser.js(
        "const shown = (css) => document.querySelector(css).getClientRects().length > 0;
         return [shown('.bar'), shown('.inp'), shown('.tray'), shown('#timeline'),
             document.getElementById('timeline').clientWidth > 1300,
             document.documentElement.scrollHeight <= innerHeight];",
    )?;
    assert_eq!(seen, serde_json::json!([false, false, false, true, true, true]));
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}
