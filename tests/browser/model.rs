//! The Model screen as a person uses it: layers are folded, a cut is dragged and moved by keys, a time is
//! typed over and exported, all of it by keyboard too; a network of many layers scrolls.

use pipewright::Outcome;
use pipewright::browser::Browser;
use pipewright::explorer::explorer;
use pipewright_core::cost::Cluster;
use pipewright_core::graph::GraphBuilder;
use pipewright_core::plan::{Draft, Model, Plan};
use pipewright_core::predict::predict;

const VIEW: &str = "#v=1&model=resnet50&view=model";
const ROWS: &str = ".ch-rows .ch-row";
const DOWN: &str = "\u{e015}";
const ENTER: &str = "\u{e007}";
/// Everything in the box is replaced.
const ALL: &str = "\u{e009}a\u{e000}";

fn step(browser: &Browser) -> Outcome<u64> {
    let script = "return document.querySelector('#model-step')?.dataset.value ?? '0'";
    Ok(browser.js(script)?.as_str().unwrap_or("0").parse()?)
}

/// Waits until the step time is another one, and returns it.
fn changed(browser: &Browser, from: u64, what: &str) -> Outcome<u64> {
    browser.until(what, |b| Ok(step(b)? != from))?;
    step(browser)
}

/// The number of layers before a cut.
fn cut(browser: &Browser, index: usize) -> Outcome<u64> {
    let script =
        format!("return document.querySelector('.ch-all [data-cut=\"{index}\"]').ariaValueNow");
    Ok(browser.js(&script)?.as_str().unwrap_or("0").parse()?)
}

fn started(name: &str, fragment: &str) -> Outcome<Option<Browser>> {
    let Some(browser) = explorer(name, fragment)? else { return Ok(None) };
    browser.until("the layers are there", |b| Ok(b.count(ROWS)? > 1 && step(b)? > 0))?;
    Ok(Some(browser))
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn layers_fold_and_cuts_move() -> Outcome<()> {
    let Some(browser) = started("model", VIEW)? else { return Ok(()) };
    // A stem, four families of 3, 4, 6 and 3 blocks, a classifier.
    assert_eq!(browser.count(ROWS)?, 18 + 4);
    browser.click("#fold-all")?;
    browser.until("folded", |b| Ok(b.count(ROWS)? == 6))?;
    browser.click("[data-row='2']")?;
    browser.until("unfolded by a click", |b| Ok(b.count(ROWS)? == 6 + 4))?;
    assert_eq!(browser.text("#layer-name")?, "layer2");
    browser.click("#unfold-all")?;
    browser.until("all of them", |b| Ok(b.count(ROWS)? == 18 + 4))?;

    let (first, before) = (step(&browser)?, cut(&browser, 1)?);
    browser.drag(".ch-all [data-cut='1'] i", 0, 62)?;
    let dragged = changed(&browser, first, "a drag changes the step time")?;
    assert!(cut(&browser, 1)? > before);
    browser.click("#undo")?;
    browser.until("a drag is one step of undo", |b| Ok(step(b)? == first))?;
    assert_eq!(cut(&browser, 1)?, before);
    browser.keys(".ch-all [data-cut='1']", DOWN)?;
    browser.until("a key moves by a layer", |b| Ok(cut(b, 1)? == before + 1))?;
    changed(&browser, first, "a key changes the step time")?;
    assert!(browser.text(".ch-all [data-cut='1'] .says")?.contains("stage 2: "));
    browser.click("#undo")?;
    browser.until("undone", |b| Ok(step(b)? == first))?;
    assert_ne!(dragged, first);
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn a_time_is_typed_over_and_exported() -> Outcome<()> {
    let Some(browser) = started("model-times", VIEW)? else { return Ok(()) };
    let first = step(&browser)?;
    browser.keys("#find-layer", "LAYER3.4")?;
    browser.until("found", |b| Ok(b.text("#layer-name")? == "layer3.4"))?;
    browser.keys("#time-forward", &format!("{ALL}40{ENTER}"))?;
    let typed = changed(&browser, first, "a typed time changes the step")?;
    assert!(typed > first);
    browser.until("it is marked", |b| Ok(b.count(".ch-row.on b[title='overridden']")? == 1))?;

    browser.click("#export")?;
    let file = browser.saved("plan.json")?;
    let plan = Plan::from_json(&std::fs::read_to_string(&file)?)?;
    let profile = plan.cluster.profile.as_ref().ok_or("no measured times in the plan")?;
    let mine = |node: &str| node.starts_with("layer3.4.");
    assert!(!profile.nodes.is_empty() && profile.nodes.iter().all(|n| mine(&n.node)));
    assert_eq!(predict(&plan)?.timeline.step.0, typed, "page and core agree");

    browser.keys("#time-backward", &format!("{ALL}soon{ENTER}"))?;
    browser.until("nonsense is refused", |b| Ok(b.text("#note")?.contains("milliseconds")))?;
    assert_eq!(step(&browser)?, typed);
    browser.click("#undo")?;
    browser.until("undone", |b| Ok(step(b)? == first))?;
    browser.click("#redo")?;
    browser.until("redone", |b| Ok(step(b)? == typed))?;
    browser.click("#reset-layer")?;
    browser.until("reset", |b| Ok(step(b)? == first && b.count("#reset-all")? == 0))?;
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn the_keyboard_alone_suffices() -> Outcome<()> {
    let Some(browser) = explorer("model-keys", "#v=1&model=resnet50")? else { return Ok(()) };
    browser.press("2")?;
    browser.until("key 2 opens the screen", |b| Ok(b.count(ROWS)? > 1 && step(b)? > 0))?;
    let first = step(&browser)?;
    // From the header's last button on.
    browser.keys("#export", "\u{e004}")?;
    for _ in 0..20 {
        if browser.js("return document.activeElement.id === 'chain'")? == true {
            break;
        }
        browser.keys(":focus", "\u{e004}")?;
    }
    browser.keys("#chain:focus", &DOWN.repeat(3))?;
    browser.until("the third row", |b| Ok(b.text("#layer-name")? == "layer1.0"))?;
    browser.keys("#chain:focus", ENTER)?;
    browser.keys("#time-forward:focus", &format!("{ALL}55{ENTER}"))?;
    let typed = changed(&browser, first, "typed")?;
    browser.keys("#time-forward:focus", "\u{e00c}")?;
    // To the block, fold it, on to a cut and move it.
    browser.keys("#chain:focus", "\u{e012}\u{e012}")?;
    browser.until("folded", |b| Ok(b.count(ROWS)? == 18 + 4 - 3))?;
    browser.keys("#chain:focus", "\u{e010}\u{e011}]")?;
    let before = cut(&browser, 0)?;
    browser.keys(".ch-all [data-cut='0']:focus", DOWN)?;
    browser.until("moved", |b| Ok(cut(b, 0)? != before))?;
    browser.keys("[data-cut='0']:focus", "\u{e009}z\u{e000}\u{e009}z\u{e000}")?;
    browser.until("both undone", |b| Ok(step(b)? == first))?;
    assert_ne!(typed, first);
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}

/// A plan for a network of so many layers in blocks of two.
fn long(layers: u32) -> Outcome<String> {
    let mut graph = GraphBuilder::new("long");
    graph.layer("input");
    let mut x = graph.input(vec![8]);
    for i in 0..layers {
        let name = format!("h.{}.fc{}", i / 2, i % 2);
        graph.layer(name.clone());
        x = graph.linear(&name, x, 8);
    }
    graph.loss(x, 8);
    let cuts = (1..4).map(|stage| 1 + stage * layers / 4).collect();
    let draft = Draft::new(Model::Graph(graph.finish()?), Cluster::preset("dgx-a100")?, cuts);
    Ok(draft.plan()?.0.to_json())
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn many_layers_scroll() -> Outcome<()> {
    let Some(browser) = started("model-long", VIEW)? else { return Ok(()) };
    let file = browser.downloads.join("long.json");
    std::fs::create_dir_all(&browser.downloads)?;
    std::fs::write(&file, long(12_000)?)?;
    browser.keys("#import", file.to_str().ok_or("path")?)?;
    browser.until("it is shown", |b| Ok(b.text("#row-count")?.starts_with("12001 layers")))?;
    browser.click("#unfold-all")?;
    browser.until("unfolded", |b| Ok(b.text("#row-count")?.ends_with("in 18002 rows")))?;
    assert!(browser.count(ROWS)? < 80, "only rows in sight exist");
    // Jumps by more than is in sight: every row is another one. What the page does for it, with
    // layout, and what a frame takes with painting.
    let times = browser.js(
        "const frame = document.querySelector('.ch-frame'), work = [], frames = [];
         const next = () => new Promise(requestAnimationFrame);
         const middle = (list) => {
           list.sort((a, b) => a - b);
           return [60, 114, 119].map((at) => list[at].toFixed(1)).join(', ');
         };
         return (async () => {
           for (let i = 0; i < 120; i++) {
             let from = await next();
             frame.scrollTop += 1500;
             const begin = performance.now();
             frame.dispatchEvent(new Event('scroll'));
             for (let turn = 0; turn < 9; turn++) await null;
             frame.querySelector('.ch-row').getBoundingClientRect();
             work.push(performance.now() - begin);
             frames.push(await next() - from);
           }
           return `work ${middle(work)}; frames ${middle(frames)}; a plan ${window.__pipewright_solve_ms}`;
         })();",
    )?;
    println!("12,000 layers, scrolling, ms (median, p95, longest): {times}");
    let seen = "return document.querySelector('.ch-rows .ch-row').dataset.layer > 4000";
    browser.until("what is drawn follows", |b| Ok(b.js(seen)? == true))?;
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}
