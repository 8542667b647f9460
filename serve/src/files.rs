//! Files below a folder.

use crate::{Reply, Request};
use std::path::{Path, PathBuf};

/// Answers with the file below `root`, a canonical path, that is asked for.
pub fn folder(root: &Path, request: &Request) -> Reply {
    if !matches!(request.method(), "GET" | "HEAD") {
        return Reply::text(405, "GET and HEAD only").with("Allow", "GET, HEAD");
    }
    let found = locate(root, request.path());
    match found.and_then(|file| Some((content_type(&file), std::fs::read(file).ok()?))) {
        Some((kind, bytes)) => Reply::new(200, kind, bytes),
        None => Reply::text(404, "no such file"),
    }
}

/// The file a path names, or `None` when there is none below `root`.
fn locate(root: &Path, path: &str) -> Option<PathBuf> {
    let path = percent_decode(path)?;
    let mut file = root.to_path_buf();
    for part in path.strip_prefix('/')?.split('/') {
        match part {
            "" | "." => {}
            ".." => return None,
            name if name.contains(['\\', '\0']) => return None,
            name => file.push(name),
        }
    }
    if file.is_dir() {
        file.push("index.html");
    }
    // Canonical, so that a symbolic link cannot lead out of the folder either.
    let file = file.canonicalize().ok()?;
    (file.starts_with(root) && file.is_file()).then_some(file)
}

fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let hex = [bytes.next()?, bytes.next()?];
            out.push(u8::from_str_radix(std::str::from_utf8(&hex).ok()?, 16).ok()?);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok()
}

/// The type of a file, by its name. `application/wasm` is not cosmetic: streaming compilation refuses
/// any other type.
pub fn content_type(file: &Path) -> &'static str {
    match file.extension().and_then(|e| e.to_str()).unwrap_or("") {
        "html" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "json" => "application/json",
        "wasm" => "application/wasm",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "txt" | "md" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}
