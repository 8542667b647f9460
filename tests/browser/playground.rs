//! The Playground as a person uses it, by keyboard alone: networks learn while one looks, a codec is
//! changed, pipelining changes no bit, and a link shows a colleague the same.

use pipewright::Outcome;
use pipewright::browser::Browser;
use pipewright::explorer::explorer;

/// Tab, Enter, space and arrows, as WebDriver writes them.
const TAB: &str = "\u{E004}";
const ENTER: &str = "\u{E007}";
const DOWN: &str = "\u{E015}";
const RIGHT: &str = "\u{E014}";

/// Presses Tab until the element is focused.
fn tab_to(browser: &Browser, id: &str) -> Outcome<()> {
    for _ in 0..80 {
        browser.press(TAB)?;
        if browser.js("return document.activeElement?.id")? == id {
            return Ok(());
        }
    }
    Err(format!("{id} is not reached by Tab").into())
}

/// Steps so far.
fn steps(browser: &Browser) -> Outcome<u64> {
    let text = browser.text("#pg-steps")?;
    Ok(text.rsplit(' ').next().unwrap_or_default().parse().unwrap_or(0))
}

/// What the table says of a training, as shown.
fn row(browser: &Browser, way: &str) -> Outcome<String> {
    // In one call: the row is written anew while it is read.
    let text =
        format!("return document.querySelector(`#pg-rows tr[data-run='{way}']`)?.innerText ?? ''");
    Ok(browser.js(&text)?.as_str().unwrap_or_default().to_owned())
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn networks_learn_by_keyboard_alone() -> Outcome<()> {
    let Some(browser) = explorer("playground", "")? else { return Ok(()) };
    browser.press("7")?;
    browser.until("they run by themselves", |b| Ok(steps(b)? > 5))?;
    assert_eq!(browser.count("canvas.plane")?, 3);
    tab_to(&browser, "pg-play")?;
    assert_eq!(browser.text("#pg-play")?, "Pause");
    browser.press(ENTER)?;
    browser.until("paused", |b| Ok(b.text("#pg-play")? == "Train"))?;
    let (step, before) = (steps(&browser)?, row(&browser, "fp32")?);
    browser.press(ENTER)?;
    browser.until("it learns on", |b| Ok(steps(b)? > step + 20))?;
    assert_ne!(row(&browser, "fp32")?, before);
    // How long a frame of it took, for whoever reads the log: nothing here depends on the machine.
    println!("a frame: {} ms", browser.js("return window.__pipewright_play_ms")?);

    // Another codec: its training is another one.
    let before = row(&browser, "one-bit")?;
    tab_to(&browser, "pg-codec-1")?;
    browser.press(DOWN)?;
    browser.until("the codec behind one-bit", |b| {
        Ok(b.count("#pg-rows tr[data-run='one-bit:mean']")? == 1)
    })?;
    browser.until("it trains", |b| Ok(steps(b)? > 20))?;
    assert_ne!(row(&browser, "one-bit:mean")?, before);
    let link = browser.js("return location.hash")?;
    assert_eq!(link, "#v=1&view=playground&play=runs=fp32,one-bit:mean,one-bit+feedback");
    tab_to(&browser, "pg-feedback-1")?;
    browser.press(" ")?;
    browser.until("with feedback", |b| {
        Ok(b.count("#pg-rows tr[data-run='one-bit:mean+feedback']")? == 1)
    })?;
    tab_to(&browser, "pg-add")?;
    browser.press(ENTER)?;
    browser.until("a fourth", |b| Ok(b.count("canvas.plane")? == 4))?;
    assert_eq!(browser.js("return document.querySelector('#pg-add').disabled")?, true);
    // The browser's own back takes the fourth away.
    browser.js("history.back()")?;
    browser.until("three again", |b| Ok(b.count("canvas.plane")? == 3))?;
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn pipelining_changes_no_bit_and_bits_are_those_of_native_code() -> Outcome<()> {
    let link = "#v=1&view=playground&play=data=circles;layers=3;rate=0.1;momentum=0.9;ranks=2;\
                stages=4;mb=8;runs=fp32,fp8-e5m2,one-bit+feedback";
    let Some(browser) = explorer("playground-bits", link)? else { return Ok(()) };
    browser.until("they are there", |b| Ok(b.count("#pg-bits li")? == 3))?;
    assert!(browser.text("#pg-look")?.starts_with("Four stages"), "it is the preset");
    // From the first weights, ten steps by hand.
    browser.js(
        "document.querySelector('#pg-step').click(); document.querySelector('#pg-reset').click();
         for (let i = 0; i < 10; i++) document.querySelector('#pg-step').click();",
    )?;
    browser.until("ten steps", |b| Ok(steps(b)? == 10))?;
    let bits = browser.text("#pg-bits")?;
    assert_eq!(bits.matches("bit-identical").count(), 3, "{bits}");
    // What `race_tests.rs` finds natively.
    assert!(bits.contains("bit-identical: 5e3a4886"), "{bits}");
    assert_eq!(browser.count("#pg-lanes rect")?, 64);

    // Another schedule, by keyboard: every kind of flush keeps the bits; PipeDream has none.
    tab_to(&browser, "pg-s")?;
    browser.press("p")?;
    browser.until("PipeDream", |b| {
        Ok(b.js("return location.hash.includes(';s=pipedream;')")? == true)
    })?;
    browser.js("for (let i = 0; i < 5; i++) document.querySelector('#pg-step').click();")?;
    browser
        .until("other weights", |b| Ok(b.text("#pg-bits")?.matches("differ by").count() == 3))?;
    assert!(browser.text("#pg-bits")?.contains("up to 3 updates late"));
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn a_link_shows_the_same_and_says_what_it_cannot_use() -> Outcome<()> {
    let link = "#v=1&view=playground&play=data=moons;noise=10;seed=7;width=12;ranks=4;rate=0.025;\
                runs=table:1,int8:256+feedback;s=nope";
    let Some(browser) = explorer("playground-link", link)? else { return Ok(()) };
    browser
        .until("it is said", |b| Ok(b.text("#note")?.contains("no schedule is called `nope`")))?;
    let value = |id: &str| browser.js(&format!("return document.getElementById('{id}').value"));
    for (id, expected) in [
        ("pg-noise-n", "10"),
        ("pg-seed", "7"),
        ("pg-width-n", "12"),
        ("pg-rate", "0.025"),
        ("pg-codec-0", "table:1"),
        ("pg-codec-1", "int8:256"),
        ("pg-ranks", "2"),
    ] {
        assert_eq!(value(id)?, expected, "{id}");
    }
    assert_eq!(browser.js("return document.querySelector('#pg-feedback-1').checked")?, true);
    let pressed = "return document.querySelector('.play [data-do=\"data=moons\"]').ariaPressed";
    assert_eq!(browser.js(pressed)?, "true");

    // More than fits: it is said where it belongs, the trainings stay, and one button mends it.
    browser.js("document.getElementById('pg-ranks').focus()")?;
    for _ in 0..2 {
        browser.press(RIGHT)?;
    }
    browser.until("16 ranks", |b| {
        Ok(b.js("return document.getElementById('pg-ranks-n').value")? == "16")
    })?;
    browser.js("document.getElementById('pg-mb').focus()")?;
    for _ in 0..3 {
        browser.press(RIGHT)?;
    }
    browser.until("too many", |b| {
        Ok(b.text("#pg-wrong-batch")?.contains("not enough for 16 ranks"))
    })?;
    assert_eq!(browser.js("return document.getElementById('pg-play').disabled")?, true);
    assert_eq!(browser.count("canvas.plane")?, 2);
    tab_to(&browser, "pg-fix")?;
    browser.press(ENTER)?;
    browser.until("it fits", |b| Ok(b.count("#pg-fix")? == 0))?;
    assert_eq!(value("pg-batch-n")?, "128");
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn nothing_runs_unasked_where_motion_is_unwelcome_or_unseen() -> Outcome<()> {
    let Some(browser) = explorer("playground-calm", "")? else { return Ok(()) };
    browser.emulate("prefers-reduced-motion", "reduce")?;
    browser.press("7")?;
    browser.until("it is there", |b| Ok(b.count("canvas.plane")? == 3))?;
    assert_eq!((browser.text("#pg-play")?, steps(&browser)?), ("Train".into(), 0));
    browser.click("#pg-play")?;
    browser.until("it runs when asked", |b| Ok(steps(b)? > 3))?;
    // On another screen it stands still: frames pass, steps do not.
    browser.press("1")?;
    let frames = "return new Promise((done) => { let n = 0; const next = () => n++ < 40 ? \
                  requestAnimationFrame(next) : done(document.querySelector('#pg-steps').textContent); next(); })";
    let first = browser.js(frames)?;
    assert_eq!(browser.js(frames)?, first);
    browser.press("7")?;
    let before = steps(&browser)?;
    browser.until("and goes on", |b| Ok(steps(b)? > before))?;
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}
