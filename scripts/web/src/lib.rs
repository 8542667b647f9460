//! The static file server of `make demo` and of the browser tests.
//!
//! It only listens on the loopback address and only reads below one folder. One thread per
//! connection and no keep-alive: the explorer is ten files.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A client that says nothing for this long is dropped; otherwise idle sockets pile up as threads.
const PATIENCE: Duration = Duration::from_secs(10);

/// Longest request head we read; a browser's is about 1 KiB.
const MAX_HEAD_BYTES: u64 = 64 * 1024;

/// A bound, not yet answering server.
pub struct Server {
    listener: TcpListener,
    root: PathBuf,
}

impl Server {
    /// Binds `127.0.0.1:port`; port 0 asks the system for a free one.
    pub fn bind(root: &Path, port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port))?;
        Ok(Self { listener, root: root.canonicalize()? })
    }

    /// The address with a trailing slash.
    pub fn address(&self) -> io::Result<String> {
        Ok(format!("http://127.0.0.1:{}/", self.listener.local_addr()?.port()))
    }

    /// Answers until the process ends.
    pub fn run(self) {
        for stream in self.listener.incoming().flatten() {
            let root = self.root.clone();
            // A failed connection concerns its client only: it sees the socket close.
            std::thread::spawn(move || answer(stream, &root).ok());
        }
    }

    /// Answers on a thread of its own and returns the address.
    pub fn spawn(self) -> io::Result<String> {
        let address = self.address()?;
        std::thread::spawn(move || self.run());
        Ok(address)
    }
}

fn answer(mut stream: TcpStream, root: &Path) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new(io::Read::take(&stream, MAX_HEAD_BYTES)).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    // Read the head to its end: closing a socket with unread bytes resets it, and a reset may
    // overtake the reply.
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let mut words = request.split_whitespace();
    let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    if !matches!(method, "GET" | "HEAD") {
        return reply(&mut stream, "405 Method Not Allowed", "text/plain", b"GET and HEAD only\n");
    }
    let Some(file) = locate(root, target) else {
        return reply(&mut stream, "404 Not Found", "text/plain", b"no such file\n");
    };
    let body = std::fs::read(&file)?;
    let shown: &[u8] = if method == "HEAD" { b"" } else { &body };
    head(&mut stream, "200 OK", content_type(&file), body.len())?;
    stream.write_all(shown)
}

fn reply(stream: &mut TcpStream, status: &str, kind: &str, body: &[u8]) -> io::Result<()> {
    head(stream, status, kind, body.len())?;
    stream.write_all(body)
}

fn head(stream: &mut TcpStream, status: &str, kind: &str, length: usize) -> io::Result<()> {
    // A worker has the policy of its script's answer; pages have one in `index.html`.
    let policy = match kind.starts_with("text/javascript") {
        true => "Content-Security-Policy: default-src 'self' 'wasm-unsafe-eval'\r\n",
        false => "",
    };
    // no-cache: after a rebuild a reload must show the new page, also for files without a hash.
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{policy}\
         Cache-Control: no-cache\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    )
}

/// The file a request target names, or `None` when there is none below `root`.
fn locate(root: &Path, target: &str) -> Option<PathBuf> {
    let path = percent_decode(target.split(['?', '#']).next()?)?;
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

/// `application/wasm` is not cosmetic: streaming compilation refuses any other type.
fn content_type(file: &Path) -> &'static str {
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

#[cfg(test)]
mod tests;
