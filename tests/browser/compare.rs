//! The Compare screen as a person uses it: B is pinned as A, edited, swapped, undone; the link brings
//! both back; a search runs, and a plan that it found is taken; the same by keyboard alone.

use pipewright::Outcome;
use pipewright::browser::Browser;
use pipewright::explorer::explorer;
use pipewright_core::plan::Plan;
use pipewright_core::predict::predict;

const VIEW: &str = "#v=1&model=alexnet&cluster=dgx-a100&batch=512&view=compare";

/// A cell of the table of differences: 1 is A, 2 is B, 3 what differs.
fn cell(browser: &Browser, row: &str, column: u32) -> Outcome<String> {
    let css = format!("#differences tr[data-row='{row}'] td:nth-of-type({column})");
    let script = format!("return document.querySelector(\"{css}\")?.textContent ?? ''");
    Ok(browser.js(&script)?.as_str().unwrap_or_default().to_owned())
}

/// What the row of a found plan says of itself.
fn exact(browser: &Browser, row: &str, what: &str) -> Outcome<u64> {
    let script = format!("return document.querySelector('{row}')?.dataset.{what} ?? '0'");
    Ok(browser.js(&script)?.as_str().unwrap_or("0").parse()?)
}

/// The screen with both plans on it.
fn view(name: &str) -> Outcome<Option<Browser>> {
    let Some(browser) = explorer(name, VIEW)? else { return Ok(None) };
    browser.until("both are compared", |b| Ok(b.count("#differences tbody tr")? >= 9))?;
    Ok(Some(browser))
}

/// Types a number into a control's box.
fn type_in(browser: &Browser, id: &str, number: u32) -> Outcome<()> {
    browser.js(&format!(
        "const box = document.querySelector('#{id}'); box.value = {number};
         box.dispatchEvent(new Event('change', {{ bubbles: true }}));"
    ))?;
    Ok(())
}

fn is(browser: &Browser, what: &str, row: &str, column: u32, text: &str) -> Outcome<()> {
    browser.until(what, |b| Ok(cell(b, row, column)? == text))
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn b_is_pinned_edited_swapped_and_linked() -> Outcome<()> {
    let Some(browser) = view("compare")? else { return Ok(()) };
    // Unpinned, A is B split by layer count: only the cuts differ.
    assert_eq!(browser.count("#differences tr.diff")?, 1);
    assert_eq!(cell(&browser, "cuts", 3)?, "≠ differs");
    browser.click("#pin")?;
    browser.until("A and B are the same", |b| Ok(b.count("#differences tr.diff")? == 0))?;
    assert!(browser.text("#difference-why")?.starts_with("B takes as long as A."));

    type_in(&browser, "b-micro-batches-n", 16)?;
    is(&browser, "B has 16", "micro-batches", 2, "16")?;
    assert_eq!(cell(&browser, "micro-batches", 1)?, "8");
    assert_eq!(cell(&browser, "micro-batches", 3)?, "▲ 8 more");
    let (a, b) = (cell(&browser, "step", 1)?, cell(&browser, "step", 2)?);
    assert_ne!(a, b);
    let why = browser.text("#difference-why")?;
    assert!(why.contains("than A:") && why.contains("lane"), "{why}");

    // The Plan screen compares with the same A, and its change is this table's.
    browser.keys("body", "1")?;
    browser.until("the Plan screen", |b| Ok(b.text(".against span")?.contains("m 8, 1F1B")))?;
    assert!(browser.text(".doc")?.contains("compared with A, AlexNet"));
    browser.keys("body", "3")?;
    browser.click("#swap")?;
    is(&browser, "swapped", "micro-batches", 2, "8")?;
    assert_eq!(cell(&browser, "micro-batches", 1)?, "16");
    assert_eq!((cell(&browser, "step", 2)?, cell(&browser, "step", 1)?), (a, b));
    browser.click("#undo")?;
    is(&browser, "swapped back", "micro-batches", 2, "16")?;
    assert_eq!(cell(&browser, "micro-batches", 1)?, "8");

    // The link brings both to another page.
    let asked = "return location.hash.includes('mb=16') && location.hash.includes('&a=')";
    browser.until("the link has both", |b| Ok(b.js(asked)? == true))?;
    browser.js("location.reload()")?;
    is(&browser, "both are back", "micro-batches", 3, "▲ 8 more")?;
    browser.click("#unpin")?;
    is(&browser, "A follows B again", "micro-batches", 1, "16")?;
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn a_plan_is_searched_for_and_taken() -> Outcome<()> {
    let Some(browser) = view("compare-search")? else { return Ok(()) };
    browser.click("#pin")?;
    browser.click("#search")?;
    browser.until("plans are found", |b| Ok(b.count("#plans tbody tr")? >= 3))?;
    browser.until("the search has rested", |b| Ok(b.text("#search")? == "Search"))?;
    let points = browser.count("#pareto circle.fp")?;
    assert_eq!(points, browser.count("#plans tbody tr")?, "the chart's plans are the list's");
    assert_eq!(points, browser.count(".disc")?);
    let first = "#plans tbody tr:first-child";
    let step = exact(&browser, first, "step")?;
    let (peak, sent) = (exact(&browser, first, "peak")?, exact(&browser, first, "traffic")?);
    browser.click(&format!("{first} .pick"))?;
    browser.until("it is B", |b| Ok(b.count("#plans tbody tr.me")? == 1))?;
    assert!(browser.text("#difference-why")?.contains("faster than A:"));
    // What is exported is what the point said.
    browser.click("#export")?;
    let file = browser.saved("plan.json")?;
    let timeline = predict(&Plan::from_json(&std::fs::read_to_string(&file)?)?)?.timeline;
    let bytes = timeline.peak().ok_or("no lanes")?.1;
    assert_eq!((timeline.step.0, bytes.0, timeline.traffic().0), (step, peak, sent));
    browser.click("#undo")?;
    is(&browser, "undone", "stages", 2, "4")?;

    // That plan as A.
    let path = file.to_str().ok_or("a path that is not text")?;
    browser.keys("#import-a", path)?;
    browser.until("it is A", |b| Ok(cell(b, "step", 3)?.ends_with("slower")))?;
    // Another question has no answers yet.
    type_in(&browser, "devices", 2)?;
    browser.until("the old answers are gone", |b| Ok(b.count("#plans tbody tr")? == 0))?;
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn everything_goes_by_keyboard() -> Outcome<()> {
    const ENTER: &str = "\u{E007}";
    const RIGHT: &str = "\u{E014}";
    let Some(browser) = view("compare-keys")? else { return Ok(()) };
    browser.keys("#pin", ENTER)?;
    browser.until("pinned", |b| Ok(b.count("#differences tr.diff")? == 0))?;
    browser.keys("#b-stages", RIGHT)?;
    is(&browser, "one stage more", "stages", 3, "▲ 1 more")?;
    // The timelines: the selected action is said in both plans.
    browser.keys("#compare-timelines", &format!("w{RIGHT}"))?;
    let said = "return document.querySelector('.cmp .time .sr').textContent";
    browser.until("both are said", |b| {
        let text = b.js(said)?;
        let text = text.as_str().unwrap_or_default();
        Ok(text.contains("A: ") && text.contains("B: "))
    })?;
    browser.keys("#search", ENTER)?;
    browser.until("plans are found", |b| Ok(b.count(".disc")? >= 3))?;
    browser.until("the search has rested", |b| Ok(b.text("#search")? == "Search"))?;
    // One tab stop; arrows go on from there, Enter takes the plan.
    assert_eq!(browser.count(".disc[tabindex='0']")?, 1);
    browser.keys(".disc[tabindex='0']", RIGHT)?;
    let at = "return [...document.querySelectorAll('#plans tbody tr')].findIndex(r => r.classList.contains('near'))";
    browser.until("the second is pointed at", |b| Ok(b.js(at)? == 1))?;
    assert_eq!(browser.js("return document.activeElement.className")?, "disc");
    browser.keys(".disc[tabindex='0']", ENTER)?;
    browser.until("it is B", |b| Ok(b.count("#plans tbody tr:nth-child(2).me")? == 1))?;
    browser.keys("body", "\u{E009}z\u{E000}")?;
    is(&browser, "undone", "stages", 3, "▲ 1 more")?;
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn more_devices_have_plans_of_their_own_and_one_is_taken() -> Outcome<()> {
    let Some(browser) = view("compare-sizes")? else { return Ok(()) };
    browser.click("#more-devices")?;
    for (id, text) in [("sizes", "4,64"), ("work", "115.2e6"), ("price", "2.5")] {
        browser.js(&format!(
            "const box = document.querySelector('#{id}'); box.value = '{text}';
             box.dispatchEvent(new Event('change', {{ bubbles: true }}));"
        ))?;
    }
    browser.click("#search-sizes")?;
    browser.until("both sizes are searched", |b| Ok(b.count("#by-size tbody .pick")? == 2))?;
    browser.until("the search has rested", |b| Ok(b.text("#search-sizes")? == "Search"))?;
    let cell = |row: u32, column: u32| {
        browser.text(&format!("#by-size tbody tr:nth-child({row}) td:nth-child({column})"))
    };
    assert_eq!((cell(1, 1)?, cell(2, 1)?), ("4".into(), "64".into()));
    assert_eq!(cell(1, 4)?, "100.0 %", "the smallest size is what others are compared with");
    assert!(!cell(1, 6)?.contains('–') && !cell(2, 7)?.contains('–'), "days and cost");
    assert_eq!(browser.count("#speed-by-size circle")?, 2);
    // The cluster has four hosts of 8 devices; 64 come with four more, and the plan is what the row said.
    let step = exact(&browser, "#by-size tbody tr:nth-child(2) .pick", "step")?;
    browser.click("#by-size tbody tr:nth-child(2) .pick")?;
    browser.click("#export")?;
    let plan = Plan::from_json(&std::fs::read_to_string(browser.saved("plan.json")?)?)?;
    assert_eq!((plan.ranks(), plan.cluster.nodes), (64, 8));
    assert_eq!(predict(&plan)?.timeline.step.0, step);
    assert_eq!(browser.count("#by-size tbody .pick")?, 2, "what was found stays");
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}
