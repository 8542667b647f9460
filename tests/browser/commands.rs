//! Everything by keyboard: screens, palette, menu of formats; and what the menu saves.

use pipewright::Outcome;
use pipewright::browser::Browser;
use pipewright::explorer::explorer;
use pipewright_core::timeline::chrome;

const CTRL: &str = "\u{E009}";
const ENTER: &str = "\u{E007}";
const ESCAPE: &str = "\u{E00C}";
const DOWN: &str = "\u{E015}";

/// The id of what has the focus.
fn focused(browser: &Browser) -> Outcome<String> {
    let id = browser.js("return document.activeElement?.id ?? ''")?;
    Ok(id.as_str().unwrap_or_default().to_owned())
}

/// The tab that is shown.
fn screen(browser: &Browser) -> Outcome<String> {
    browser.text(".tab[aria-current=page]")
}

fn palette(browser: &Browser, query: &str) -> Outcome<()> {
    browser.press(&format!("{CTRL}k"))?;
    browser.until("the palette has the focus", |b| Ok(focused(b)? == "palette"))?;
    for letter in query.chars() {
        browser.press(&letter.to_string())?;
    }
    Ok(())
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn number_keys_change_the_screen_until_they_are_turned_off() -> Outcome<()> {
    let Some(browser) = explorer("number-keys", "")? else { return Ok(()) };
    browser.press("2")?;
    browser.until("the second screen", |b| Ok(screen(b)? == "Model"))?;
    browser.press("1")?;
    browser.until("the first screen", |b| Ok(screen(b)? == "Plan"))?;
    browser.press("?")?;
    browser.until("the help is there", |b| Ok(b.count("#number-keys")? == 1))?;
    browser.click("#number-keys")?;
    browser.press(ESCAPE)?;
    browser.press("2")?;
    browser.press("z")?;
    assert_eq!(screen(&browser)?, "Plan");
    Ok(())
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn the_palette_does_what_is_typed() -> Outcome<()> {
    let Some(browser) = explorer("palette", "")? else { return Ok(()) };
    palette(&browser, "gpipe")?;
    browser.until("one entry is left", |b| Ok(b.count("#acts li")? == 1))?;
    browser.press(ENTER)?;
    let schedule = "return document.querySelector('#schedule').value";
    browser.until("the schedule is GPipe", |b| Ok(b.js(schedule)? == "gpipe"))?;
    assert_eq!(browser.count(".pal")?, 0);
    palette(&browser, "undo")?;
    browser.press(ENTER)?;
    browser.until("and was not", |b| Ok(b.js(schedule)? == "1f1b"))?;
    palette(&browser, "no such thing")?;
    browser.until("nothing is found", |b| Ok(b.count("#acts li")? == 0))?;
    browser.press(ESCAPE)?;
    browser.until("it is closed", |b| Ok(b.count(".pal")? == 0))?;
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}

/// Numbers, actions, the suggestion and the language are a few letters away, too.
#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn the_palette_sets_numbers_and_finds_actions() -> Outcome<()> {
    let Some(browser) = explorer("palette-numbers", "")? else { return Ok(()) };
    let value = |id: &str| browser.js(&format!("return document.getElementById('{id}').value"));
    let enter = |query: &str| -> Outcome<()> {
        palette(&browser, query)?;
        browser.until("an entry", |b| Ok(b.count("#acts li")? >= 1))?;
        browser.press(ENTER)
    };
    enter("lanes 6")?;
    browser.until("six lanes", |_| Ok(value("stages-n")? == "6"))?;
    enter("micro-b 16")?;
    browser.until("more micro-batches", |_| Ok(value("micro-batches-n")? == "16"))?;
    enter("lanes 400")?;
    browser.until("too many", |b| {
        Ok(b.text("#note")?.starts_with("Lanes: a whole number from 1 to "))
    })?;
    assert_eq!(value("stages-n")?, "6");
    enter("2f5")?;
    browser.until("the action is selected", |b| {
        Ok(b.text(".selsec .card")?.contains("Forward of micro-batch 5"))
    })?;
    let step = "return document.getElementById('step-time').dataset.value";
    browser.until("advice", |b| Ok(b.count("#apply")? == 1))?;
    let before = browser.js(step)?;
    enter("apply the sugg")?;
    browser.until("the suggestion is applied", |b| Ok(b.js(step)? != before))?;
    enter("switch lang")?;
    let language = "return document.documentElement.lang";
    browser.until("the other language", |b| Ok(b.js(language)? == "ja"))?;
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn formats_are_saved_by_keyboard() -> Outcome<()> {
    let Some(browser) = explorer("formats", "")? else { return Ok(()) };
    let saved =
        |name: &str| -> Outcome<String> { Ok(std::fs::read_to_string(browser.saved(name)?)?) };
    let item = |steps: usize| -> Outcome<()> {
        browser.js("document.querySelector('#formats').focus()")?;
        browser.press(ENTER)?;
        browser.until("the menu has the focus", |b| Ok(focused(b)? == "format-0"))?;
        (0..steps).try_for_each(|_| browser.press(DOWN))?;
        browser.press(ENTER)
    };
    item(0)?;
    let trace = chrome::read(&saved("predicted.json")?)?;
    assert_eq!(trace.steps[0].timeline.lanes.len(), 4);
    item(2)?;
    assert!(saved("timeline.svg")?.starts_with("<svg"));
    item(3)?;
    assert!(saved("schedule.csv")?.starts_with("0F0,"));
    item(5)?;
    browser.until("it is refused in a sentence", |b| {
        Ok(b.text("#note")?.contains("layout.txt was not saved: "))
    })?;
    assert_eq!(focused(&browser)?, "formats", "the focus is where it was");
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}

/// Every chart of every screen that has one, as a drawing that opens by itself, and the first as PNG.
#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn any_chart_is_saved() -> Outcome<()> {
    for (screen, least) in [("", 1), ("compare", 1), ("communication", 2), ("playground", 3)] {
        let name = format!("charts-{screen}");
        let Some(browser) = explorer(&name, &format!("#v=1&view={screen}"))? else { return Ok(()) };
        let drawings = "[...document.querySelectorAll('svg[role=img]')]
            .filter((e) => e.getBoundingClientRect().width >= 1).length";
        let count = |b: &Browser| -> Outcome<u64> {
            Ok(b.js(&format!("return {drawings}"))?.as_u64().unwrap_or(0))
        };
        browser.until("its charts", |b| Ok(count(b)? >= least))?;
        browser.click("#formats")?;
        browser.until("the menu", |b| Ok(b.count("#format-9")? == 1))?;
        let files = "return [...document.querySelectorAll('.menu small')].map((e) => e.textContent)
            .slice(9)";
        let files: Vec<String> = serde_json::from_value(browser.js(files)?)?;
        let svgs: Vec<&String> = files.iter().filter(|name| name.ends_with(".svg")).collect();
        assert_eq!(svgs.len() as u64, count(&browser)?, "{screen}: {files:?}");
        browser.press(ESCAPE)?;
        for (at, file) in files.iter().enumerate() {
            if !file.ends_with(".svg") && at > 1 {
                continue;
            }
            browser.click("#formats")?;
            let item = format!("#format-{}", at + 9);
            browser.until("the menu", |b| Ok(b.count(&item)? == 1))?;
            browser.click(&item)?;
            let path = browser.downloads.join(file);
            browser.until(&format!("{screen}: {file}"), |_| {
                Ok(std::fs::metadata(&path).is_ok_and(|known| known.len() > 200))
            })?;
            let bytes = std::fs::read(&path)?;
            match file.ends_with(".svg") {
                true => {
                    let text = String::from_utf8(bytes)?;
                    assert!(text.starts_with("<svg") && text.contains("viewBox"), "{text:.200}");
                    assert!(!text.contains("class=") && text.contains("fill="), "{text:.200}");
                }
                false => assert!(bytes.starts_with(b"\x89PNG"), "{file}"),
            }
        }
        assert_eq!(browser.console_errors()?, Vec::<String>::new());
    }
    Ok(())
}
