//! Costs of the explorer in Chromium, against its budgets. Prints figures and asserts none of them, as
//! machines differ: `cargo test --test browser budgets:: -- --ignored --nocapture` after `make web`.

use pipewright::Outcome;
use pipewright::browser::Browser;
use pipewright::explorer::explorer;
use serde_json::Value;

/// 64 lanes, each with a device of its own, and 512 micro-batches: 65,536 actions.
const LARGE: &str = "#v=1&model=gpt3-175b&cluster=dgx-2&d=64&mb=512&batch=2048";

/// Presses an arrow on a cut that has room again and again, and notes what each change cost.
const CHANGES: &str = "
    const frame = () => new Promise((done) => requestAnimationFrame(done));
    const press = (cut, key) => cut.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
    return (async () => {
        const cost = [];
        for (const cut of document.querySelectorAll('[data-cut]')) {
            const place = cut.ariaValueNow;
            press(cut, 'ArrowUp');
            await frame(); await frame(); await frame();
            if (cut.ariaValueNow !== place) { window.cut = cut; break; }
        }
        for (let at = 0; at < 60; at++) {
            const key = at % 2 ? 'ArrowUp' : 'ArrowDown';
            press(window.cut, key);
            await frame(); await frame(); await frame();
            cost.push(window.__pipewright_frame_ms);
            (window.parts ??= []).push([window.__pipewright_solve_ms, window.__pipewright_compute_ms, window.__pipewright_draw_ms]);
        }
        return cost;
    })();";

/// Drags a cut up and down for two seconds, a move a frame; the times between frames.
const DRAG: &str = "
    const cut = window.cut;
    const box = cut.getBoundingClientRect();
    const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
    const send = (type, dy) => cut.dispatchEvent(new PointerEvent(type, { bubbles: true, button: 0,
        buttons: 1, pointerId: 1, clientX: x, clientY: y + dy }));
    // A script's pointer cannot be captured.
    cut.setPointerCapture = () => {};
    cut.hasPointerCapture = () => true;
    const frame = () => new Promise((done) => requestAnimationFrame(done));
    return (async () => {
        send('pointerdown', 0);
        const times = [];
        let before = await frame();
        for (let at = 0; at < 120; at++) {
            send('pointermove', 6 * Math.sin(at / 6));
            const now = await frame();
            times.push(now - before);
            before = now;
        }
        send('pointerup', 0);
        return times;
    })();";

/// Bytes of the page: what scripts hold, and the memory of its wasm.
const MEMORY: &str = "
    const module = document.querySelector('link[rel=modulepreload]').href;
    return import(module).then(async (page) => {
        const wasm = await page.default();
        return performance.memory.usedJSHeapSize + wasm.memory.buffer.byteLength;
    });";

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

fn numbers(value: Value) -> Outcome<Vec<f64>> {
    let mut list: Vec<f64> = serde_json::from_value(value)?;
    list.sort_by(f64::total_cmp);
    Ok(list)
}

/// The value below which so many percent lie.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn pictures_come_within_their_budgets() -> Outcome<()> {
    let Some(browser) = explorer("budgets", "")? else { return Ok(()) };
    let first = "return window.__pipewright_first_ms ?? null";
    browser.until("the first picture", |b| Ok(b.js(first)?.is_number()))?;
    println!(
        "first picture, cold: {:.0} ms (budget 1000)",
        browser.js(first)?.as_f64().unwrap_or(0.0)
    );
    let page = browser.js("return location.origin + location.pathname")?;
    browser.open("about:blank")?;
    browser.open(&format!("{}{LARGE}", page.as_str().unwrap_or_default()))?;
    browser.until("64 lanes", |b| Ok(b.count(".blocks button")? == 4))?;
    let cost = numbers(browser.js(CHANGES)?)?;
    println!(
        "64 lanes x 512 micro-batches, change to picture: median {:.1} ms, p95 {:.1} ms (budget 16)",
        percentile(&cost, 50),
        percentile(&cost, 95)
    );
    let parts: Vec<[f64; 3]> = serde_json::from_value(browser.js("return window.parts")?)?;
    for (at, name) in ["solve", "compute", "draw"].iter().enumerate() {
        let mut list: Vec<f64> = parts.iter().map(|p| p[at]).collect();
        list.sort_by(f64::total_cmp);
        println!("  {name}: median {:.1} p95 {:.1}", percentile(&list, 50), percentile(&list, 95));
    }
    let drag = numbers(browser.js(DRAG)?)?;
    println!(
        "drag there, between frames: median {:.1} ms, p95 {:.1} ms, longest {:.1} ms (budget 33)",
        percentile(&drag, 50),
        percentile(&drag, 95),
        drag[drag.len() - 1]
    );
    let bytes = browser.js(MEMORY)?.as_f64().unwrap_or(f64::NAN);
    println!("memory of the page: {:.0} MB (budget 150)", bytes / 1e6);
    assert!(cost.iter().chain(&drag).all(|ms| ms.is_finite()) && bytes > 0.0);
    Ok(())
}

/// A field of a protocol buffer that has a length.
fn field(number: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = body.len();
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend(body);
    out
}

/// A chain of so many activations as an ONNX file.
fn chain(nodes: usize) -> Vec<u8> {
    let dimension = |size: u8| field(1, &[1 << 3, size]);
    let shape = field(2, &[dimension(1), dimension(64)].concat());
    let tensor = field(1, &[vec![1 << 3, 1], shape].concat());
    let value = |name: String| [field(1, name.as_bytes()), field(2, &tensor)].concat();
    let mut graph = vec![];
    for at in 0..nodes {
        let names =
            [field(1, format!("v{at}").as_bytes()), field(2, format!("v{}", at + 1).as_bytes())];
        let node = [names.concat(), field(3, format!("n{at}").as_bytes()), field(4, b"Relu")];
        graph.extend(field(1, &node.concat()));
    }
    graph.extend(field(2, b"chain"));
    graph.extend(field(11, &value("v0".into())));
    graph.extend(field(12, &value(format!("v{nodes}"))));
    [vec![1 << 3, 8], field(8, &[2 << 3, 17]), field(7, &graph)].concat()
}

fn opens(browser: &Browser, nodes: usize) -> Outcome<()> {
    let file = browser.downloads.join(format!("chain-{nodes}.onnx"));
    std::fs::write(&file, chain(nodes))?;
    browser.js(WATCH)?;
    browser.keys("#import", &file.display().to_string())?;
    // The note that says so may be gone again before a busy machine answers.
    let title = format!("chain-{nodes} (from a file)");
    let shown = "return document.getElementById('model')?.selectedOptions[0]?.textContent ?? ''";
    browser.until("the network", |b| Ok(b.js(shown)?.as_str() == Some(&title)))?;
    let longest = browser.js("return window.longest")?.as_f64().unwrap_or(f64::NAN);
    println!("ONNX of {nodes} nodes: longest time without a frame {longest:.0} ms");
    Ok(())
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn large_networks_open() -> Outcome<()> {
    let Some(browser) = explorer("large", "")? else { return Ok(()) };
    opens(&browser, 10_000)?;
    opens(&browser, 100_000)
}
