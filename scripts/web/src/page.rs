//! Turns the root `index.html`, written for trunk, into the page of `dist/`.
//!
//! Trunk and this bundler read the same file, so there is one source of truth. We understand the
//! two links that the page uses and refuse any other: dropping one silently would give two
//! different pages.

use crate::Failure;

/// What a `data-trunk` link asks for.
#[derive(Debug, PartialEq)]
pub enum Link {
    /// The application: its glue and wasm go here.
    App,
    /// A style sheet, path relative to `index.html`.
    Css(String),
}

/// Names of the bundled files, relative to `dist/`.
pub struct Names<'a> {
    pub glue: &'a str,
    pub wasm: &'a str,
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
    match found.iter().filter(|(_, link)| *link == Link::App).count() {
        1 => Ok(found),
        n => Err(format!("index.html has {n} links rel=\"rust\", expected one").into()),
    }
}

fn parse(line: &str) -> Result<Link, String> {
    let href = attribute(line, "href").ok_or("a data-trunk link without href")?;
    match attribute(line, "rel") {
        Some("rust") if attribute(line, "data-type").is_none() => Ok(Link::App),
        Some("css") => Ok(Link::Css(href.to_string())),
        _ => Err("only rel=\"rust\" and rel=\"css\" links are bundled, one a line".to_string()),
    }
}

fn attribute<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(&format!(" {name}=\""))?;
    Some(rest.split_once('"')?.0)
}

/// The page with every link replaced; `css` gives the bundled name of each style sheet, in order.
pub fn render(page: &str, links: &[(usize, Link)], css: &[String], names: &Names) -> String {
    let mut css = css.iter();
    let mut out = String::with_capacity(page.len() + 512);
    for (index, line) in page.lines().enumerate() {
        match links.iter().find(|(at, _)| *at == index) {
            None => out.push_str(line),
            Some((_, Link::App)) => out.push_str(&start_script(names)),
            Some((_, Link::Css(_))) => {
                let name = css.next().map(String::as_str).unwrap_or_default();
                out.push_str(&format!("<link rel=\"stylesheet\" href=\"./{name}\">"));
            }
        }
        out.push('\n');
    }
    out
}

/// Fetches wasm and glue side by side, then starts; the event is the one that trunk sends.
fn start_script(Names { glue, wasm }: &Names) -> String {
    format!(
        "<link rel=\"modulepreload\" href=\"./{glue}\">\n\
         <link rel=\"preload\" href=\"./{wasm}\" as=\"fetch\" type=\"application/wasm\" crossorigin>\n\
         <script type=\"module\">\n\
         import init from './{glue}';\n\
         const wasm = await init({{ module_or_path: './{wasm}' }});\n\
         dispatchEvent(new CustomEvent(\"TrunkApplicationStarted\", {{ detail: {{ wasm }} }}));\n\
         </script>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUST: &str = r#"<link data-trunk rel="rust" href="app/Cargo.toml" data-bin="app">"#;
    const CSS: &str = r#"<link data-trunk rel="css" href="app/style.css">"#;

    #[test]
    fn links_are_replaced_and_the_rest_is_kept() {
        let page = format!("<title>x</title>\n{CSS}\n{RUST}\n<p>y</p>");
        let links = links(&page).unwrap();
        assert_eq!(links[0], (1, Link::Css("app/style.css".into())));
        let names = Names { glue: "app-1.js", wasm: "app-2.wasm" };
        let out = render(&page, &links, &["style-3.css".into()], &names);
        assert!(
            out.starts_with("<title>x</title>\n<link rel=\"stylesheet\" href=\"./style-3.css\">")
        );
        assert!(out.contains("init({ module_or_path: './app-2.wasm' })"), "{out}");
        assert!(out.ends_with("<p>y</p>\n") && !out.contains("data-trunk"), "{out}");
    }

    #[test]
    fn an_unknown_link_is_refused_with_its_line() {
        let page = format!("{RUST}\n<link data-trunk rel=\"copy-dir\" href=\"x\">");
        let error = links(&page).unwrap_err().to_string();
        assert!(error.starts_with("index.html:2:"), "{error}");
        assert!(links(CSS).is_err(), "a page without the application");
    }
}
