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
    // Somebody else's tab.
    browser.js("sessionStorage.clear(); location.hash = ''; location.reload()")?;
    browser.until("a first visit", |b| Ok(shown(b)? == "0.01 nothing"))?;
    browser.js(&format!("location.href = {link:?}; location.reload()"))?;
    browser.until("the link says all of it", |b| Ok(shown(b)? == state))?;

    browser
        .js(&format!("location.href = {address:?}; sessionStorage.clear(); location.reload()"))?;
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
