//! Turns the root `index.html` into the page of `dist/`.
//!
//! What is to be bundled stands there as links in the syntax of trunk. We understand the four that
//! the page uses and refuse any other: nothing is dropped silently.

use crate::Failure;
use base64::Engine as _;
use sha2::{Digest as _, Sha256};

/// What a `data-trunk` link asks for.
#[derive(Debug, PartialEq)]
pub enum Link {
    /// The application: its glue and wasm go here.
    App,
    /// The worker: the page finds its script's address in a `meta` of this name here.
    Worker,
    /// A style sheet, path relative to `index.html`.
    Css(String),
    /// A file for later, and the name of the `meta` in which the page finds its address.
    File { path: String, name: String },
}

impl Link {
    /// The file that is bundled as it is.
    pub fn file(&self) -> Option<&str> {
        match self {
            Link::Css(path) | Link::File { path, .. } => Some(path),
            Link::App | Link::Worker => None,
        }
    }
}

/// Names of the bundled folders, relative to `dist/`.
pub struct Names<'a> {
    pub app: &'a str,
    pub worker: &'a str,
}

/// The links in reading order, each with the line it stands on.
pub fn links(page: &str) -> Result<Vec<(usize, Link)>, Failure> {
    let mut found = Vec::new();
    for (index, line) in page.lines().enumerate() {
        if line.contains("data-trunk") {
            let link = parse(line).map_err(|e| format!("index.html:{}: {e}", index + 1))?;
            found.push((index, link));
        }
    }
    for (what, wanted) in [("the application", Link::App), ("the worker", Link::Worker)] {
        let count = found.iter().filter(|(_, link)| *link == wanted).count();
        if count != 1 {
            return Err(format!("index.html has {count} links to {what}, expected one").into());
        }
    }
    Ok(found)
}

fn parse(line: &str) -> Result<Link, String> {
    let href = attribute(line, "href").ok_or("a data-trunk link without href")?;
    match (attribute(line, "rel"), attribute(line, "data-type")) {
        (Some("rust"), None) => Ok(Link::App),
        (Some("rust"), Some("worker")) => Ok(Link::Worker),
        (Some("css"), _) => Ok(Link::Css(href.to_string())),
        (Some("copy-file"), _) => {
            let name = attribute(line, "data-name").ok_or("a file without data-name")?.to_string();
            Ok(Link::File { path: href.to_string(), name })
        }
        _ => Err("only links of rust, css and copy-file are bundled, one a line".to_string()),
    }
}

fn attribute<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(&format!(" {name}=\""))?;
    Some(rest.split_once('"')?.0)
}

/// The page with every link replaced; `files` gives the bundled name of each [`Link::file`], in order, but
/// one for all style sheets, which stands at the first of them.
pub fn render(page: &str, links: &[(usize, Link)], files: &[String], names: &Names) -> String {
    let mut files = files.iter().map(String::as_str);
    let mut file = || files.next().unwrap_or_default();
    let mut styled = false;
    let mut out = String::with_capacity(page.len() + 512);
    for (index, line) in page.lines().enumerate() {
        match links.iter().find(|(at, _)| *at == index) {
            None => out.push_str(line),
            Some((_, Link::App)) => out.push_str(&start_script(names)),
            Some((_, Link::Worker)) => {
                let script = format!("./{}/worker.js", names.worker);
                out.push_str(&format!("<meta name=\"pipewright-worker\" content=\"{script}\">"));
            }
            Some((_, Link::Css(_))) if styled => continue,
            Some((_, Link::Css(_))) => {
                styled = true;
                out.push_str(&format!("<link rel=\"stylesheet\" href=\"./{}\">", file()));
            }
            Some((_, Link::File { name, .. })) => {
                out.push_str(&format!("<meta name=\"{name}\" content=\"./{}\">", file()));
            }
        }
        out.push('\n');
    }
    out
}

/// Where the page's policy allows scripts; hashes of its own follow.
const SCRIPTS: &str = "script-src 'self' 'wasm-unsafe-eval'";

/// The page with the hashes of its inline scripts in its Content-Security-Policy: no other inline script
/// runs.
///
/// # Errors
/// When the page has no such policy.
pub fn allow_own_scripts(page: &str) -> Result<String, Failure> {
    if !page.contains(SCRIPTS) {
        return Err(format!("index.html has no Content-Security-Policy with {SCRIPTS}").into());
    }
    let hash = |script: &str| {
        let hash = base64::engine::general_purpose::STANDARD.encode(Sha256::digest(script));
        format!(" 'sha256-{hash}'")
    };
    let hashes: String = inline_scripts(page).into_iter().map(hash).collect();
    Ok(page.replacen(SCRIPTS, &format!("{SCRIPTS}{hashes}"), 1))
}

/// What stands between the tags of scripts without a file.
fn inline_scripts(page: &str) -> Vec<&str> {
    let parts = page.split("<script").skip(1).filter_map(|part| part.split_once('>'));
    let inline = parts.filter(|(tag, _)| !tag.contains("src="));
    inline.filter_map(|(_, rest)| rest.split_once("</script>")).map(|(body, _)| body).collect()
}

/// Fetches wasm and glue side by side, then starts; the event is the one that trunk sends.
fn start_script(Names { app, .. }: &Names) -> String {
    format!(
        "<link rel=\"modulepreload\" href=\"./{app}/app.js\">\n\
         <link rel=\"modulepreload\" href=\"./{app}/__wasm_split.js\">\n\
         <link rel=\"preload\" href=\"./{app}/app_bg.wasm\" as=\"fetch\" type=\"application/wasm\" crossorigin>\n\
         <script type=\"module\">\n\
         import init from './{app}/app.js';\n\
         const wasm = await init();\n\
         dispatchEvent(new CustomEvent(\"TrunkApplicationStarted\", {{ detail: {{ wasm }} }}));\n\
         </script>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUST: &str = r#"<link data-trunk rel="rust" href="app/Cargo.toml" data-bin="app">"#;
    const WORKER: &str =
        r#"<link data-trunk rel="rust" href="app/worker/Cargo.toml" data-type="worker">"#;
    const CSS: &str = r#"<link data-trunk rel="css" href="app/style.css">"#;

    #[test]
    fn links_are_replaced_and_the_rest_is_kept() {
        let text = r#"<link data-trunk rel="copy-file" href="t/ja.json" data-name="ja">"#;
        let page = format!("<title>x</title>\n{CSS}\n{CSS}\n{text}\n{RUST}\n{WORKER}\n<p>y</p>");
        let links = links(&page).unwrap();
        assert_eq!(links[0], (1, Link::Css("app/style.css".into())));
        let names = Names { app: "app-1", worker: "worker-2" };
        let out = render(&page, &links, &["style-3.css".into(), "ja-4.json".into()], &names);
        assert!(out.contains("<meta name=\"ja\" content=\"./ja-4.json\">"), "{out}");
        assert!(
            out.starts_with("<title>x</title>\n<link rel=\"stylesheet\" href=\"./style-3.css\">")
        );
        assert!(out.contains("import init from './app-1/app.js';"), "{out}");
        assert!(
            out.contains("<meta name=\"pipewright-worker\" content=\"./worker-2/worker.js\">"),
            "{out}"
        );
        assert_eq!(out.matches("stylesheet").count(), 1, "{out}");
        assert!(out.ends_with("<p>y</p>\n") && !out.contains("data-trunk"), "{out}");
    }

    #[test]
    fn own_scripts_are_allowed_and_no_others() {
        let page = format!(
            "<meta content=\"{SCRIPTS}; x\"><script>alert(1)</script><script src=\"a\"></script>"
        );
        // openssl's answer for `alert(1)`.
        let hash = "'sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI='";
        let allowed = format!("<meta content=\"{SCRIPTS} {hash}; x\">");
        assert!(allow_own_scripts(&page).unwrap().starts_with(&allowed));
        let error = allow_own_scripts("<script></script>").unwrap_err().to_string();
        assert!(error.contains("has no Content-Security-Policy"), "{error}");
    }

    #[test]
    fn an_unknown_link_is_refused_with_its_line() {
        let page = format!("{RUST}\n<link data-trunk rel=\"copy-dir\" href=\"x\">");
        let error = links(&page).unwrap_err().to_string();
        assert!(error.starts_with("index.html:2:"), "{error}");
        for (page, missing) in [(WORKER, "the application"), (RUST, "the worker")] {
            let error = links(page).unwrap_err().to_string();
            assert_eq!(error, format!("index.html has 0 links to {missing}, expected one"));
        }
    }
}
