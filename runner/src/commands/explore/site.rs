//! The page's files: in this program, or in a folder.

use crate::failure::{Code, Failure};
use pipewright_page::Page;
use pipewright_serve::{Reply, Request, content_type, folder};
use std::path::{Path, PathBuf};

/// Where the page comes from.
pub enum Site {
    /// This program.
    Packed(Page),
    /// A folder, as a canonical path.
    Folder(PathBuf),
}

impl Site {
    /// The folder that is named, else what is in this program, else `dist/` beside it or where an
    /// installation has it: `share/pipewright/explorer` beside `bin`.
    pub fn find(named: Option<&Path>) -> Result<Self, Failure> {
        if let Some(dir) = named {
            return Self::folder(dir).ok_or_else(|| {
                let dir = dir.display();
                Failure::usage(format!("{dir} has no index.html; `make web` writes it into dist/"))
            });
        }
        let program = std::env::current_exe().ok();
        let failed =
            |path: &Path, e| Failure::new(Code::Failed, format!("{}: {e}", path.display()));
        let page = program.as_deref().map(|path| Page::of(path).map_err(|e| failed(path, e)));
        if let Some(page) = page.transpose()?.flatten() {
            return Ok(Site::Packed(page));
        }
        let beside = program.as_deref().and_then(Path::parent);
        let places = ["dist", "../share/pipewright/explorer"];
        let found = |dir: &Path| places.iter().find_map(|place| Self::folder(&dir.join(place)));
        beside.and_then(found).ok_or_else(|| {
            Failure::usage(
                "the explorer is not in this program: build it with `make runner`, or run \
                 `make web` first and then runner explore --dir dist",
            )
        })
    }

    fn folder(dir: &Path) -> Option<Self> {
        let dir = dir.canonicalize().ok()?;
        dir.join("index.html").is_file().then_some(Site::Folder(dir))
    }

    /// The file that is asked for.
    pub fn answer(&self, request: &Request) -> Reply {
        if !matches!(request.method(), "GET" | "HEAD") {
            return Reply::text(405, "GET and HEAD only").with("Allow", "GET, HEAD");
        }
        if let "/" | "/index.html" = request.path() {
            return self.page();
        }
        match self {
            Site::Packed(page) => packed(page, request),
            Site::Folder(root) => folder(root, request),
        }
    }

    /// The page says that it comes from here: elsewhere it never asks for what only this server has.
    fn page(&self) -> Reply {
        let text = match self {
            Site::Packed(page) => page.unpacked("index.html").and_then(Result::ok),
            Site::Folder(root) => std::fs::read(root.join("index.html")).ok(),
        };
        let Some(text) = text else { return Reply::text(404, "no such file") };
        let text = String::from_utf8_lossy(&text).replacen(
            "<head>",
            "<head>\n<meta name=\"pipewright-here\" content=\"1\">",
            1,
        );
        Reply::new(200, "text/html; charset=utf-8", text.into_bytes())
    }
}

fn packed(page: &Page, request: &Request) -> Reply {
    let path = request.path().strip_prefix('/').unwrap_or_default();
    let Some(packed) = page.packed(path) else { return Reply::text(404, "no such file") };
    let kind = content_type(Path::new(path));
    let takes_gzip = |list: &str| list.split(',').any(|word| word.trim() == "gzip");
    if request.header("accept-encoding").is_some_and(takes_gzip) {
        let packed = Reply::new(200, kind, packed.to_vec());
        return packed.with("Content-Encoding", "gzip").with("Vary", "Accept-Encoding");
    }
    match page.unpacked(path) {
        Some(Ok(bytes)) => Reply::new(200, kind, bytes).with("Vary", "Accept-Encoding"),
        _ => Reply::text(500, "the file in this program is broken"),
    }
}
