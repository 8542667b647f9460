//! A real Chromium, driven through chromedriver.
//!
//! Only what the tests use: pages, scripts, clicks, keys, drags, pictures, errors. Input goes
//! through the browser's own event path, so that a button under another element is not clickable.

use crate::{Outcome, tools, webdriver};
use base64::Engine;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// How long [`Browser::until`] waits: generous, because other work may load the machine.
const PATIENCE: Duration = Duration::from_secs(240);

/// How long a script may take before the browser gives it up.
const SCRIPT: Duration = Duration::from_secs(480);

/// How often a browser is started that does not come up.
const STARTS: u32 = 3;

/// The key under which WebDriver hides an element's name (W3C WebDriver, section 12).
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// One browser with one page. Dropping it closes both.
///
/// Every test has its own, at 0.8 s of processor time for a start. In a shared one tests would share
/// storage, downloads and console: chromedriver's sessions may not make contexts that are apart
/// (`Target.createBrowserContext`: "Not allowed").
pub struct Browser {
    driver: Child,
    /// What the driver says: closed, the next line would end it.
    _said: BufReader<ChildStdout>,
    port: u16,
    session: String,
    /// Where files land that the page saves.
    pub downloads: PathBuf,
    scratch: PathBuf,
}

/// The port that chromedriver says it listens on.
fn port_of(said: &mut impl BufRead) -> Outcome<u16> {
    let mut all = String::new();
    for line in said.lines() {
        let line = line?;
        if let Some((_, port)) = line.split_once("successfully on port ") {
            return Ok(port.trim_end_matches('.').parse()?);
        }
        all.push_str(&line);
    }
    Err(format!("chromedriver ended without a port: {all}").into())
}

/// Whether a browser that did not start may do so when it is asked again.
fn is_for_another_try(why: &str) -> bool {
    ["session not created", "port not available"].iter().any(|words| why.contains(words))
}

/// Whether the page wrote an element anew between two questions.
fn is_gone(why: &str) -> bool {
    ["stale element", "no such element"].iter().any(|words| why.contains(words))
}

impl Browser {
    /// Starts a headless browser of 1280 x 800; `name` tells the folders of several tests apart.
    ///
    /// `None` when browser or driver is not installed (the skip has been reported).
    pub fn start(name: &str) -> Outcome<Option<Self>> {
        let browsers = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
        let binary = tools::find("CHROMIUM", &browsers);
        let driver = tools::find("CHROMEDRIVER", &["chromedriver", "chromium.chromedriver"]);
        let (Some(binary), Some(driver)) = (binary, driver) else {
            tools::skip("chromium and chromedriver");
            return Ok(None);
        };
        // A machine that is busy with other tests may be too slow for the driver's patience. No page was
        // opened by then, so nothing that is tested is tried twice. And the driver takes a port that is free for one
        // family of addresses, to end when another program has it for the other.
        let mut left = STARTS;
        loop {
            left -= 1;
            match Self::begin(name, &binary, &driver) {
                Err(why) if left > 0 && is_for_another_try(&why.to_string()) => {}
                began => return began.map(Some),
            }
        }
    }

    fn begin(name: &str, binary: &Path, driver: &Path) -> Outcome<Self> {
        let scratch = tools::scratch(&format!("browser-{name}"))?;
        let downloads = scratch.join("downloads");
        std::fs::create_dir_all(&downloads)?;
        // It chooses its port: one that we found free could be another's by the time it asks.
        let mut driver = Command::new(driver)
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut said = BufReader::new(driver.stdout.take().ok_or("chromedriver has no output")?);
        let port = port_of(&mut said);
        let mut browser = Self {
            driver,
            _said: said,
            port: *port.as_ref().unwrap_or(&0),
            session: String::new(),
            downloads,
            scratch,
        };
        let port = port?;
        let wanted = capabilities(binary, &browser.scratch, &browser.downloads);
        let session = webdriver::call(port, "POST", "/session", Some(&wanted))?;
        browser.session = session["sessionId"].as_str().ok_or("no session")?.to_string();
        Ok(browser)
    }

    fn get(&self, command: &str) -> Outcome<Value> {
        let path = format!("/session/{}{command}", self.session);
        webdriver::call(self.port, "GET", &path, None)
    }

    fn post(&self, command: &str, body: Value) -> Outcome<Value> {
        let path = format!("/session/{}{command}", self.session);
        webdriver::call(self.port, "POST", &path, Some(&body))
    }

    /// Opens an address and waits for the page's `load`.
    pub fn open(&self, url: &str) -> Outcome<()> {
        self.post("/url", json!({ "url": url })).map(drop)
    }

    /// Runs JavaScript as the body of a function; what it returns must be JSON.
    pub fn js(&self, script: &str) -> Outcome<Value> {
        self.post("/execute/sync", json!({ "script": script, "args": [] }))
    }

    /// The rendered text of the first match; empty where nothing matches, as before a page starts.
    pub fn text(&self, css: &str) -> Outcome<String> {
        loop {
            if self.count(css)? == 0 {
                return Ok(String::new());
            }
            let read = self.element(css).and_then(|e| self.get(&format!("/element/{e}/text")));
            match read {
                Err(why) if is_gone(&why.to_string()) => {}
                read => return Ok(read?.as_str().unwrap_or_default().to_string()),
            }
        }
    }

    /// Waits for a file that the page saves, until all of it is there: some browsers make it empty at first.
    pub fn saved(&self, name: &str) -> Outcome<PathBuf> {
        let file = self.downloads.join(name);
        let partial = self.downloads.join(format!("{name}.crdownload"));
        self.until(&format!("{name} is saved"), |_| {
            let whole = std::fs::metadata(&file).is_ok_and(|found| found.len() > 0);
            Ok(whole && !partial.exists())
        })?;
        Ok(file)
    }

    /// How many elements match.
    pub fn count(&self, css: &str) -> Outcome<u64> {
        let script = format!("return document.querySelectorAll({}).length", json!(css));
        Ok(self.js(&script)?.as_u64().unwrap_or(0))
    }

    /// Clicks the middle of the first match; an error when something covers it.
    pub fn click(&self, css: &str) -> Outcome<()> {
        self.with(css, |element| self.post(&format!("/element/{element}/click"), json!({})))
    }

    /// Types into the first match; special keys are WebDriver's code points, `\u{E014}` is arrow
    /// right. For a file input, `text` is the path of the file.
    pub fn keys(&self, css: &str, text: &str) -> Outcome<()> {
        let element = self.element(css)?;
        self.post(&format!("/element/{element}/value"), json!({ "text": text })).map(drop)
    }

    /// Presses keys together, wherever the focus is: `"\u{E009}k"` is Ctrl K.
    pub fn press(&self, keys: &str) -> Outcome<()> {
        let event = |kind: &str, key: char| json!({ "type": kind, "value": key.to_string() });
        let down = keys.chars().map(|key| event("keyDown", key));
        let up = keys.chars().rev().map(|key| event("keyUp", key));
        let actions: Vec<Value> = down.chain(up).collect();
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": actions });
        self.post("/actions", json!({ "actions": [keyboard] })).map(drop)
    }

    /// Drags with the mouse from the middle of the first match by (`dx`, `dy`) CSS pixels.
    ///
    /// In two moves: code that waits for a first movement before it starts a drag sees one.
    pub fn drag(&self, css: &str, dx: i64, dy: i64) -> Outcome<()> {
        let element = json!({ ELEMENT: self.element(css)? });
        let by = |x: i64, y: i64| {
            let origin = "pointer"; // relative to where the pointer is
            json!({ "type": "pointerMove", "duration": 50, "origin": origin, "x": x, "y": y })
        };
        let (half_x, half_y) = (dx / 2, dy / 2);
        let actions = json!([
            { "type": "pointerMove", "duration": 0, "origin": element, "x": 0, "y": 0 },
            { "type": "pointerDown", "button": 0 },
            by(half_x, half_y),
            by(dx - half_x, dy - half_y),
            { "type": "pointerUp", "button": 0 },
        ]);
        let mouse = json!({ "type": "pointer", "id": "mouse", "actions": actions });
        self.post("/actions", json!({ "actions": [mouse] })).map(drop)
    }

    /// Moves the mouse to (`dx`, `dy`) CSS pixels from the middle of the first match. In two moves, as a hand's
    /// are many: the second one has a way.
    pub fn hover(&self, css: &str, dx: i64, dy: i64) -> Outcome<()> {
        self.with(css, |element| {
            let element = json!({ ELEMENT: element });
            let to = json!([
                { "type": "pointerMove", "duration": 0, "origin": element, "x": dx - 1, "y": dy },
                { "type": "pointerMove", "duration": 50, "origin": element, "x": dx, "y": dy },
            ]);
            let mouse = json!({ "type": "pointer", "id": "mouse", "actions": to });
            self.post("/actions", json!({ "actions": [mouse] }))
        })
    }

    /// Sets the size of the page's viewport, in CSS pixels; the window's is a little larger.
    pub fn resize(&self, width: u32, height: u32) -> Outcome<()> {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1,
            "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", size).map(drop)
    }

    /// Sets a media feature for the page: `("prefers-color-scheme", "dark")`,
    /// `("prefers-reduced-motion", "reduce")`. Not by a command-line argument, so that one test
    /// can look at the same page both ways.
    pub fn emulate(&self, feature: &str, value: &str) -> Outcome<()> {
        let features = json!({ "features": [{ "name": feature, "value": value }] });
        self.devtools("Emulation.setEmulatedMedia", features).map(drop)
    }

    fn devtools(&self, command: &str, params: Value) -> Outcome<Value> {
        self.post("/goog/cdp/execute", json!({ "cmd": command, "params": params }))
    }

    /// Saves the window as a small WebP, `scale` as large as it is.
    pub fn small_picture(
        &self,
        file: &Path,
        (width, height): (u32, u32),
        scale: f64,
    ) -> Outcome<()> {
        let clip = json!({ "x": 0, "y": 0, "width": width, "height": height, "scale": scale });
        let asked = json!({ "format": "webp", "quality": 72, "clip": clip });
        let made = self.devtools("Page.captureScreenshot", asked)?;
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(made["data"].as_str().unwrap_or_default())?;
        Ok(std::fs::write(file, bytes)?)
    }

    /// Writes the viewport as PNG.
    pub fn screenshot(&self, file: &Path) -> Outcome<()> {
        let text = self.get("/screenshot")?;
        let text = text.as_str().ok_or("a screenshot that is not text")?;
        let bytes = base64::engine::general_purpose::STANDARD.decode(text)?;
        Ok(std::fs::write(file, bytes)?)
    }

    /// The errors on the page's console (exceptions, failed requests) since the last call.
    pub fn console_errors(&self) -> Outcome<Vec<String>> {
        let entries = self.post("/se/log", json!({ "type": "browser" }))?;
        let entries = entries.as_array().ok_or("a log that is not a list")?;
        let severe = entries.iter().filter(|entry| entry["level"] == "SEVERE");
        Ok(severe.map(|entry| entry["message"].to_string()).collect())
    }

    /// Asks until the answer is yes; `what` names the wish in the error.
    pub fn until(&self, what: &str, ask: impl Fn(&Self) -> Outcome<bool>) -> Outcome<()> {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if ask(self)? {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(format!("waited {} s in vain: {what}", PATIENCE.as_secs()).into())
    }

    /// Does something with the first match, again where the page wrote it anew before anything came of it.
    fn with(&self, css: &str, act: impl Fn(&str) -> Outcome<Value>) -> Outcome<()> {
        loop {
            match act(&self.element(css)?) {
                Err(why) if is_gone(&why.to_string()) => {}
                done => return done.map(drop),
            }
        }
    }

    fn element(&self, css: &str) -> Outcome<String> {
        let found = self.post("/element", json!({ "using": "css selector", "value": css }))?;
        Ok(found[ELEMENT].as_str().ok_or("an element without name")?.to_string())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Nothing to report to: a browser that is already gone is as good as closed.
        let path = format!("/session/{}", self.session);
        webdriver::call(self.port, "DELETE", &path, None).ok();
        self.driver.kill().ok();
        self.driver.wait().ok();
        std::fs::remove_dir_all(&self.scratch).ok();
    }
}

fn capabilities(binary: &Path, scratch: &Path, downloads: &Path) -> Value {
    let profile = format!("--user-data-dir={}", scratch.join("profile").display());
    // --no-sandbox: containers run as root, which Chromium's sandbox refuses; it only ever sees
    // our own page. --disable-dev-shm-usage: a container's /dev/shm has 64 MiB.
    let args = [
        "--headless",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--hide-scrollbars",
        "--window-size=1280,800",
        &profile,
    ];
    let prefs = json!({
        "download.default_directory": downloads,
        "download.prompt_for_download": false,
    });
    json!({ "capabilities": { "alwaysMatch": {
        "browserName": "chrome",
        "goog:loggingPrefs": { "browser": "ALL" },
        // However busy the machine is: a script that ends late has measured all the same.
        "timeouts": { "script": SCRIPT.as_millis() as u64 },
        "goog:chromeOptions": { "binary": binary, "args": args, "prefs": prefs },
    } } })
}
