//! The Elastic view as a person uses it: what a real job wrote is dropped and read, jobs are simulated by
//! keyboard and by hand, endless scripts end, and a link shows a colleague the same.

use pipewright::browser::Browser;
use pipewright::explorer::explorer;
use pipewright::{Outcome, tools};

/// Tab, Enter, Delete and arrows, as WebDriver writes them.
const TAB: &str = "\u{E004}";
const ENTER: &str = "\u{E007}";
const RIGHT: &str = "\u{E014}";
const DOWN: &str = "\u{E015}";
const DELETE: &str = "\u{E017}";

/// Presses Tab until the element is focused.
fn tab_to(browser: &Browser, id: &str) -> Outcome<()> {
    for _ in 0..90 {
        browser.press(TAB)?;
        if browser.js("return document.activeElement?.id")? == id {
            return Ok(());
        }
    }
    Err(format!("{id} is not reached by Tab").into())
}

/// A cell of the table of figures: of A (1), of B (2), or their difference (3).
fn figure(browser: &Browser, row: &str, column: usize) -> Outcome<String> {
    let text = format!(
        "return document.querySelector(`#el-totals [data-row='{row}']`)?.children[{column}]?.innerText ?? ''"
    );
    Ok(browser.js(&text)?.as_str().unwrap_or_default().to_owned())
}

/// All cells of a column of that table.
fn column(browser: &Browser, at: usize) -> Outcome<String> {
    let text = format!(
        "return [...document.querySelectorAll('#el-totals [data-row]')].map((row) => row.children[{at}]?.innerText).join()"
    );
    Ok(browser.js(&text)?.as_str().unwrap_or_default().to_owned())
}

fn hash(browser: &Browser) -> Outcome<String> {
    Ok(browser.js("return location.hash")?.as_str().unwrap_or_default().to_owned())
}

/// Waits until the link says something: it follows the page by some frames.
fn linked(browser: &Browser, part: &str) -> Outcome<()> {
    browser.until(part, |b| Ok(hash(b)?.contains(part)))
}

fn simulated(browser: &Browser) -> Outcome<()> {
    browser.until("both lives", |b| Ok(!figure(b, "goodput", 2)?.is_empty()))
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn what_a_job_wrote_is_shown() -> Outcome<()> {
    let Some(browser) = explorer("elastic-record", "")? else { return Ok(()) };
    let file = tools::root().join("tests/data/elastic/losses.jsonl");
    browser.keys("#import", &file.display().to_string())?;
    browser.until("the record", |b| Ok(b.count("#el-totals [data-row=losses]")? == 1))?;
    linked(&browser, "view=elastic")?;
    assert_eq!(figure(&browser, "outcome", 1)?, "done");
    assert_eq!(
        (figure(&browser, "generations", 1)?, figure(&browser, "losses", 1)?),
        ("5".into(), "2".into())
    );
    // Losses were known after 2 and 3 ms, and trained again after 393 and 534 ms.
    for (row, expected) in
        [("detect", "2 ms"), ("detect-99", "3 ms"), ("recover", "393 ms"), ("recover-99", "534 ms")]
    {
        assert_eq!(figure(&browser, row, 1)?, expected);
    }
    assert_eq!(browser.count("#el-pic-0 .gen")?, 5);
    assert_eq!(browser.count("#el-pic-0 .gone")?, 2);
    // From moment to moment by keyboard; what is said is in the list, too.
    tab_to(&browser, "el-frame-0")?;
    for _ in 0..3 {
        browser.press(RIGHT)?;
    }
    browser.until("the third moment", |b| Ok(b.count("#el-log [aria-current]")? == 1))?;
    let said = browser.js("return document.getElementById('el-say').textContent")?;
    assert!(said.as_str().unwrap_or_default().contains("generation 1: 4 ranks"), "{said}");
    browser.press("w")?;
    browser.press("w")?;
    browser.until("less is seen", |b| Ok(b.count("#el-pic-0 .gen")? < 5))?;
    browser.press("0")?;
    browser.until("all is seen", |b| Ok(b.count("#el-pic-0 .gen")? == 5))?;
    // What would another policy have made of it?
    browser.click("[data-do=adopt]")?;
    simulated(&browser)?;
    linked(&browser, "ev=vm:4@1s,spare:4@")?;
    // A file that is none is refused, and all stays.
    let bad = browser.downloads.join("bad.jsonl");
    std::fs::write(
        &bad,
        "{\"event\":\"progress\",\"generation\":1,\"step\":1,\"at_ms\":1,\"unix_ms\":1}\n",
    )?;
    browser.keys("#import", &bad.display().to_string())?;
    browser
        .until("it is refused", |b| Ok(b.text("#note")?.contains("no generation was launched")))?;
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn two_become_four_and_two_again_by_keyboard_alone() -> Outcome<()> {
    let Some(browser) = explorer("elastic-keys", "")? else { return Ok(()) };
    browser.press("8")?;
    simulated(&browser)?;
    assert_eq!(figure(&browser, "outcome", 1)?, "done");
    assert_eq!(figure(&browser, "generations", 1)?, "3");
    assert!(figure(&browser, "outcome", 2)?.starts_with("ended at"), "B is strict");
    assert_eq!(browser.count(".el-mark")?, 6);
    let before = figure(&browser, "end", 1)?;
    // A longer restart, typed.
    tab_to(&browser, "el-restart")?;
    browser.js("document.activeElement.select()")?;
    browser.press(&format!("10m{TAB}"))?;
    browser.until("it ends later", |b| Ok(figure(b, "end", 1)? != before))?;
    browser.until("the link", |b| Ok(hash(b)? == "#v=1&view=elastic&job=restart=10m"))?;
    browser.js("document.activeElement.blur()")?;
    browser.press("\u{E009}z")?;
    browser.until("undone", |b| Ok(figure(b, "end", 1)? == before))?;
    // To the marks, and along them; the third joins later, then not at all.
    tab_to(&browser, "el-frame-0")?;
    browser.press(ENTER)?;
    for _ in 0..2 {
        browser.press(DOWN)?;
    }
    assert_eq!(browser.js("return document.activeElement.id")?, "el-mark-2");
    browser.press(RIGHT)?;
    browser.until("it joins later", |b| Ok(hash(b)?.contains("job=ev=n1@0s,n2@0s,n3@2")))?;
    assert_eq!(browser.js("return document.activeElement.id")?, "el-mark-2", "it keeps the focus");
    browser.press(DELETE)?;
    browser.until("it is gone", |b| Ok(b.count(".el-mark")? == 5))?;
    // Its row in the table is gone, too; a cell of another is edited.
    assert_eq!(browser.count("#el-events tbody tr")?, 5);
    tab_to(&browser, "el-at-1")?;
    browser.js("document.activeElement.select()")?;
    browser.press(&format!("5m{TAB}"))?;
    browser.until("the cell counts", |b| Ok(hash(b)?.contains("n2@5m")))?;
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn policies_are_written_and_what_is_wrong_is_said_in_place() -> Outcome<()> {
    let link = "#v=1&view=elastic&job=a=min-max:9:2;b=rhai:loop%20%7B%7D;work=zero";
    let Some(browser) = explorer("elastic-policies", link)? else { return Ok(()) };
    browser.until("what the link could not", |b| Ok(b.text("#note")?.contains("`work=zero`")))?;
    browser.until("it is said", |b| {
        Ok(b.text("#el-wrong-a")?.contains("the least is more than the most"))
    })?;
    // An endless script ends the job, not the page.
    browser.until("the script has ended", |b| Ok(b.text("#el-end")?.contains("operations")))?;
    browser.js("const like = document.querySelector('#el-like-a'); like.value = 'min-max:4:16';
         like.dispatchEvent(new Event('change', { bubbles: true }));")?;
    browser.until("A is done", |b| Ok(figure(b, "outcome", 1)? == "done"))?;
    assert_eq!(browser.text("#el-wrong-a")?, "");
    let done = column(&browser, 1)?;
    // By arrow keys, from what is chosen to what follows it.
    browser.js("document.getElementById('el-like-a').focus()")?;
    browser.press(DOWN)?;
    browser.until("the next policy", |b| {
        Ok(b.js("return document.querySelector('#el-a').value")? == "fixed-size:8")
    })?;
    browser.until("its figures", |b| Ok(column(b, 1)? != done))?;
    browser.js("document.activeElement.blur()")?;
    browser.press("\u{E009}z")?;
    browser.until("A is as before", |b| Ok(column(b, 1)? == done))?;
    let endless = column(&browser, 2)?;
    // A script is typed: a line that cannot be read, then one that can.
    browser.js("document.querySelector('#el-b').value = 'let x = ;'; document.querySelector('#el-b').dispatchEvent(new Event('input', { bubbles: true }))")?;
    browser.until("its line is said", |b| Ok(b.text("#el-wrong-b")?.contains("line 1")))?;
    browser.js("document.querySelector('#el-b').value = 'if ranks < 16 { wait(`${ranks}; all?`) } else { run() }'; document.querySelector('#el-b').dispatchEvent(new Event('input', { bubbles: true })); document.querySelector('#el-b').dispatchEvent(new Event('change', { bubbles: true }))")?;
    // What is shown until then is what the last script did.
    browser.until("it waits", |b| {
        let refusals = figure(b, "refusals", 2)?.parse::<u64>();
        Ok(column(b, 2)? != endless && refusals.is_ok_and(|n| n > 0))
    })?;
    linked(&browser, "b=rhai:if%20ranks")?;
    let (link, figures) = (hash(&browser)?, browser.text("#el-totals")?);
    // Reloaded, and shown to somebody else.
    browser.js("window.old = true; location.reload()")?;
    browser.until("the same after a reload", |b| {
        let old = b.js("return window.old === true")? == true;
        Ok(!old && b.count("#el-totals")? == 1 && b.text("#el-totals")? == figures)
    })?;
    let Some(other) = explorer("elastic-other", &link)? else { return Ok(()) };
    let same = other.until("the same for others", |b| {
        Ok(b.count("#el-totals")? == 1 && b.text("#el-totals")? == figures)
    });
    same.map_err(|why| format!("{why}: {link}\n{figures}\nand\n{:?}", other.text("#el-totals")))?;
    assert_eq!(hash(&other)?, link);
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn events_are_drawn_by_hand_and_saved() -> Outcome<()> {
    let Some(browser) = explorer("elastic-hand", "#v=1&view=elastic")? else { return Ok(()) };
    simulated(&browser)?;
    let before = figure(&browser, "end", 1)?;
    browser.drag("#el-mark-2", 60, 0)?;
    browser.until("it joins later", |b| Ok(figure(b, "end", 1)? != before))?;
    browser.until("the link follows", |b| Ok(hash(b)?.contains("job=ev=")))?;
    browser.press("\u{E009}z")?;
    browser.until("one step of undo", |b| Ok(figure(b, "end", 1)? == before))?;
    // What is under the pointer is said.
    browser.js(
        "const frame = document.querySelector('#el-frame-0'), area = frame.getBoundingClientRect();
         frame.dispatchEvent(new PointerEvent('pointermove', { bubbles: true, clientX: area.left + 400, clientY: area.top + 120 }));",
    )?;
    browser.until("the state there", |b| {
        Ok(b.text("#el-tip-0")?.contains("nodes: 4, slots: 16; generation 2"))
    })?;
    // A click on the first lane: its node is lost there.
    browser.js(
        "const frame = document.querySelector('#el-frame-0'), area = frame.getBoundingClientRect();
         frame.dispatchEvent(new MouseEvent('click', { bubbles: true, clientX: area.left + 200, clientY: area.top + 16 }));",
    )?;
    browser.until("a seventh", |b| Ok(b.count(".el-mark")? == 7))?;
    linked(&browser, "!n1@")?;
    // A lane more, and a node on it.
    browser.click("#el-add")?;
    browser.press(ENTER)?;
    browser.until("a fifth node", |b| Ok(hash(b)?.contains("n5@")))?;
    // Another size of the window, another plan.
    browser.resize(360, 800)?;
    browser.until("it fits", |b| {
        Ok(b.js("return document.documentElement.scrollWidth")?.as_u64() <= Some(360))
    })?;
    browser.resize(1440, 900)?;
    browser.click("#el-csv")?;
    let csv = browser.saved("elastic.csv")?;
    let text = std::fs::read_to_string(&csv)?;
    assert!(text.starts_with("life,generation,ranks") && text.lines().count() > 4, "{text}");
    browser.click("#formats")?;
    browser.until("charts are offered", |b| {
        Ok(b.text("[role=menu], .formats, body")?.contains("as SVG"))
    })?;
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}

/// From now on the longest time between two frames is noted.
const WATCH: &str = "
    window.longest = 0;
    let before = performance.now();
    const look = (now) => {
        window.longest = Math.max(window.longest, now - before);
        before = now;
        requestAnimationFrame(look);
    };
    requestAnimationFrame(look);";

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn a_large_plan_is_predicted_at_every_size() -> Outcome<()> {
    let link = "#v=1&model=gpt3-175b&cluster=dgx-h100&d=64&mb=512&batch=2048";
    let Some(browser) = explorer("elastic-large", link)? else { return Ok(()) };
    browser.js(WATCH)?;
    browser.press("8")?;
    simulated(&browser)?;
    // For whoever reads the log: nothing here depends on the machine.
    println!("longest time without a frame: {} ms", browser.js("return window.longest")?);
    assert_eq!(figure(&browser, "outcome", 1)?, "done");
    assert!(browser.count("#el-sizes tbody tr")? > 0);
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}
