//! Nothing is lost: reloading keeps what a link does not carry, a link carries the whole plan, and the browser's
//! states can be opened again and deleted.

use pipewright::browser::Browser;
use pipewright::explorer::explorer;
use pipewright::{Outcome, tools};

/// What a plan says that the words of a link do not.
fn shown(browser: &Browser) -> Outcome<String> {
    let script = "return (document.getElementById('plan-rate')?.value ?? '') + ' '
        + (document.querySelector('#plan-recompute span')?.textContent ?? '')";
    Ok(browser.js(script)?.as_str().unwrap_or_default().to_owned())
}

/// Links of the states that the browser keeps.
fn kept(browser: &Browser) -> Outcome<usize> {
    let count = browser.js(
        "return new Promise(async (done) => {
            // Opening it would make it, without its store.
            if (!(await indexedDB.databases()).some((one) => one.name === 'pipewright')) return done(0);
            const request = indexedDB.open('pipewright');
            request.onerror = () => done(0);
            request.onsuccess = () => {
                const base = request.result;
                if (!base.objectStoreNames.contains('states')) { base.close(); return done(0); }
                const all = base.transaction('states').objectStore('states').getAll();
                all.onsuccess = () => { base.close(); done(all.result.filter((s) => s.plan).length); };
            };
        });",
    )?;
    Ok(count.as_u64().unwrap_or(0) as usize)
}

#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn reloading_and_links_lose_nothing() -> Outcome<()> {
    let Some(browser) = explorer("keeping", "#v=1&model=digits-cnn&cluster=laptop&d=2&batch=64")?
    else {
        return Ok(());
    };
    browser.until("the rest of the plan", |b| Ok(b.count("#plan-rate")? == 1))?;
    browser.js("const rate = document.getElementById('plan-rate');
        rate.value = '0.25'; rate.dispatchEvent(new Event('change', { bubbles: true }));")?;
    browser.click("#plan-recompute-all")?;
    let state = "0.25 2 of 2 stages";
    browser.until("it is chosen", |b| Ok(shown(b)? == state))?;
    browser.until("it is kept", |b| Ok(kept(b)? == 1))?;
    let address = browser.js("return location.href")?;
    let address = address.as_str().unwrap_or_default().to_owned();
    browser.js("location.reload()")?;
    browser.until("what was chosen is back", |b| Ok(shown(b)? == state))?;

    browser.js("navigator.clipboard.writeText = (text) => {
            window.copied = text; return Promise.resolve(); };")?;
    browser.click("#link")?;
    browser.until("a link is copied", |b| Ok(b.js("return window.copied ?? null")?.is_string()))?;
    let link = browser.js("return window.copied")?;
    let link = link.as_str().unwrap_or_default();
    assert!(link.contains("&p=") && link.len() < 8192, "{link}");
    assert_eq!(browser.text("#note")?, "Link copied: it shows exactly this state.");
    // Somebody else's tab: nothing of this one is in it, not even what it is left with.
    let other = "Storage.prototype.setItem = () => {}; sessionStorage.clear();";
    browser.js(&format!("{other} location.hash = ''; location.reload()"))?;
    browser.until("a first visit", |b| Ok(shown(b)? == "0.01 nothing"))?;
    browser.js(&format!("location.href = {link:?}; location.reload()"))?;
    browser.until("the link says all of it", |b| Ok(shown(b)? == state))?;

    browser.js(&format!("location.href = {address:?}; {other} location.reload()"))?;
    browser.until("the short link", |b| Ok(shown(b)? == "0.01 nothing"))?;
    browser.click("#recent")?;
    browser.until("the kept states", |b| Ok(b.count(".recent .line")? > 0))?;
    browser.js("document.querySelector('.recent .line:last-of-type .state').click()")?;
    browser.until("the kept state is open", |b| Ok(shown(b)? == state))?;
    browser.click("#recent")?;
    browser.until("the list", |b| Ok(b.count(".recent > .btn")? == 1))?;
    browser.click(".recent > .btn")?;
    browser.until("nothing is kept", |b| Ok(kept(b)? == 0))?;
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}

/// Who hides the page, on a phone by leaving it, has the state kept at once.
#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn hiding_the_page_keeps_what_was_just_changed() -> Outcome<()> {
    let Some(browser) =
        explorer("keeping-hidden", "#v=1&model=digits-cnn&cluster=laptop&d=2&batch=64")?
    else {
        return Ok(());
    };
    browser.until("the rest of the plan", |b| Ok(b.count("#plan-rate")? == 1))?;
    // From here on no time passes for the page: what waits until the hand rests never comes.
    browser.js("window.setTimeout = () => 0;
        const rate = document.getElementById('plan-rate');
        rate.value = '0.125'; rate.dispatchEvent(new Event('change', { bubbles: true }));")?;
    browser.until("it is chosen", |b| Ok(shown(b)?.starts_with("0.125")))?;
    assert_eq!(kept(&browser)?, 0);
    browser.js("document.dispatchEvent(new Event('visibilitychange', { bubbles: true }))")?;
    browser.until("it is kept", |b| Ok(kept(b)? == 1))?;
    browser.js("location.reload()")?;
    browser.until("what was chosen is back", |b| Ok(shown(b)?.starts_with("0.125")))?;
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}

/// A link says what it has not: a graph of Recompute is a file.
#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn a_link_says_what_is_not_in_it() -> Outcome<()> {
    let Some(browser) = explorer("keeping-graph", "#v=1&view=recompute&keep=45")? else {
        return Ok(());
    };
    let graph = tools::root().join("tests/data/recompute/transformer3.json.gz");
    browser.keys("#import", graph.to_str().unwrap_or_default())?;
    browser.until("its facts", |b| Ok(!b.text("#graph-facts")?.is_empty()))?;
    browser.js("navigator.clipboard.writeText = () => Promise.resolve()")?;
    browser.click("#link")?;
    let said = "Link copied. The graph of Recompute is not in it.";
    browser.until("the link is copied", |b| Ok(b.text("#note")? == said))?;
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}

/// What a page shows of files: the network, whether a time is typed, the trace, runs, tried plans, the job, the graph.
fn of_files(browser: &Browser) -> Outcome<String> {
    let script = "const text = (css) => document.querySelector(css)?.textContent.trim() ?? '';
        const model = document.getElementById('model');
        return [model?.selectedOptions[0].textContent, text('#step-time'), text('#run-remove'), text('#metrics-remove'),
            text('#tuned-remove')].join(' | ')";
    Ok(browser.js(script)?.as_str().unwrap_or_default().to_owned())
}

/// The names of the files that the browser keeps with the newest state.
fn files(browser: &Browser) -> Outcome<String> {
    let names = browser.js(
        "return new Promise(async (done) => {
            if (!(await indexedDB.databases()).some((one) => one.name === 'pipewright')) return done('');
            const request = indexedDB.open('pipewright');
            request.onerror = () => done('');
            request.onsuccess = () => {
                const base = request.result;
                if (!base.objectStoreNames.contains('states')) { base.close(); return done(''); }
                const all = base.transaction('states').objectStore('states').getAll();
                all.onsuccess = () => {
                    base.close();
                    const newest = all.result.sort((a, b) => b.when - a.when)[0];
                    done((newest?.files ?? []).map((file) => file.name).sort().join(' '));
                };
            };
        });",
    )?;
    Ok(names.as_str().unwrap_or_default().to_owned())
}

/// A run with its trace and metrics, what a tuning tried, an elastic job and a graph are there again after the page was
/// loaded again, on the screen that was seen.
#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn reloading_opens_the_files_of_runs_again() -> Outcome<()> {
    let Some(browser) = explorer("keeping-runs", "#v=1&view=run")? else { return Ok(()) };
    let scratch = tools::scratch("keeping-runs-files")?;
    let tried = scratch.join("tune.jsonl");
    std::fs::write(
        &tried,
        r#"{"trial":1,"run":1,"lanes":2,"replicas":1,"stages":2,"cuts":["relu2"],"micro_batches":4,"micro_batch_samples":16,"schedule":"gpipe","recomputing_stages":0,"predicted_step_ns":12,"expected_step_ns":13,"measured_step_ns":14,"steps":79,"memory_bytes":[1,2],"why":"the given plan","seconds":1.5}"#,
    )?;
    let data = tools::root().join("tests/data");
    let open =
        |path: std::path::PathBuf| browser.keys("#import", path.to_str().unwrap_or_default());
    browser.until("the screen", |b| Ok(b.count("#run-example")? == 1))?;
    browser.click("#run-example")?;
    browser.until("trace and loss", |b| {
        Ok(b.count("#run-remove")? == 1 && b.count("#metrics-remove")? == 1)
    })?;
    open(tried)?;
    browser.until("what was tried", |b| Ok(b.count("#tuned-remove")? == 1))?;
    open(data.join("elastic/run.jsonl"))?;
    browser.until("the job", |b| Ok(b.text("#note")?.contains("an elastic job")))?;
    open(data.join("recompute/transformer3.json.gz"))?;
    browser.until("its facts", |b| Ok(!b.text("#graph-facts")?.is_empty()))?;
    let (before, facts) = (of_files(&browser)?, browser.text("#graph-facts")?);
    assert!(before.contains("Digits") && before.ends_with("| Remove"), "{before}");
    browser.until("all files are kept", |b| Ok(files(b)?.split(' ').count() >= 5))?;
    let kept = files(&browser)?;
    for name in ["trace.json", "tune.jsonl", "run.jsonl", "transformer3.json.gz"] {
        assert!(kept.contains(name), "{kept}");
    }
    browser.js("location.reload()")?;
    browser
        .until("the graph is back", |b| Ok(b.text("#graph-facts").unwrap_or_default() == facts))?;
    browser.press("4")?;
    browser.until("so is the run", |b| Ok(of_files(b)? == before))?;
    browser.press("8")?;
    browser.until("and the job", |b| Ok(b.count("#el-src:not([hidden])")? == 1))?;
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(std::fs::remove_dir_all(scratch)?)
}

/// A network of one's own with a time that was typed over.
#[test]
#[ignore = "needs dist/ and a browser: make test"]
fn reloading_keeps_a_network_and_typed_times() -> Outcome<()> {
    let Some(browser) = explorer("keeping-network", "#v=1&view=model")? else { return Ok(()) };
    let onnx = tools::root().join("tests/data/onnx/resnet.onnx");
    browser.keys("#import", onnx.to_str().unwrap_or_default())?;
    browser.until("the network", |b| Ok(b.text("#note")?.starts_with("resnet.onnx: ")))?;
    browser.press("2")?;
    browser.until("its layers", |b| Ok(b.count(".ch-rows .ch-row")? > 1))?;
    browser.click("[data-row='1']")?;
    browser.keys("#time-forward", "\u{e009}a\u{e000}40\u{e007}")?;
    browser.until("the time is typed", |b| Ok(b.count(".ch-row b[title='overridden']")? == 1))?;
    let before = of_files(&browser)?;
    assert!(before.contains("resnet (from a file)"), "{before}");
    // At once: what was just typed is kept while the page goes.
    browser.js("location.reload()")?;
    browser.until("all of it is back", |b| {
        Ok(of_files(b)? == before && b.count(".ch-row b[title='overridden']")? == 1)
    })?;
    assert_eq!(browser.console_errors()?, Vec::<String>::new());
    Ok(())
}
