//! The page's files: in this program, or in a folder.

use crate::failure::Failure;
use flate2::read::GzDecoder;
use pipewright_serve::{Reply, Request, content_type, folder};
use std::io::Read;
use std::path::{Path, PathBuf};

/// A file of the page inside this program.
struct Packed {
    /// Its path below the page's folder, with slashes.
    path: &'static str,
    /// Its content, packed by gzip.
    bytes: &'static [u8],
}

// `SITE`, the files that were in `dist/` when this program was compiled with the feature `explorer`.
include!(concat!(env!("OUT_DIR"), "/site.rs"));

/// Where the page comes from.
pub enum Site {
    /// This program.
    Packed,
    /// A folder, as a canonical path.
    Folder(PathBuf),
}

impl Site {
    /// The folder that is named, else what is in this program, else `dist/` beside it.
    pub fn find(named: Option<&Path>) -> Result<Self, Failure> {
        let program = std::env::current_exe().ok();
        let beside = program.as_deref().and_then(Path::parent).map(|dir| dir.join("dist"));
        match (named, beside) {
            (Some(dir), _) => Self::folder(dir).ok_or_else(|| {
                let dir = dir.display();
                Failure::usage(format!("{dir} has no index.html; `make web` writes it into dist/"))
            }),
            (None, _) if !SITE.is_empty() => Ok(Site::Packed),
            (None, beside) => beside.as_deref().and_then(Self::folder).ok_or_else(|| {
                Failure::usage(
                    "the explorer is not in this program: build it with `make runner`, or run \
                     `make web` first and then runner explore --dir dist",
                )
            }),
        }
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
        let Site::Folder(root) = self else { return packed(request) };
        folder(root, request)
    }

    /// The page says that it comes from here: elsewhere it never asks for what only this server has.
    fn page(&self) -> Reply {
        let text = match self {
            Site::Packed => SITE.iter().find(|f| f.path == "index.html").and_then(unpacked),
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

fn packed(request: &Request) -> Reply {
    let path = request.path().strip_prefix('/');
    let Some(file) = SITE.iter().find(|file| Some(file.path) == path) else {
        return Reply::text(404, "no such file");
    };
    let kind = content_type(Path::new(file.path));
    let takes_gzip = |list: &str| list.split(',').any(|word| word.trim() == "gzip");
    if request.header("accept-encoding").is_some_and(takes_gzip) {
        let packed = Reply::new(200, kind, file.bytes);
        return packed.with("Content-Encoding", "gzip").with("Vary", "Accept-Encoding");
    }
    match unpacked(file) {
        Some(bytes) => Reply::new(200, kind, bytes).with("Vary", "Accept-Encoding"),
        None => Reply::text(500, "the file in this program is broken"),
    }
}

fn unpacked(file: &Packed) -> Option<Vec<u8>> {
    let mut bytes = vec![];
    GzDecoder::new(file.bytes).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
