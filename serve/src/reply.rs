//! Replies of the server.

use std::borrow::Cow;
use std::io::{self, Write};
use std::net::TcpStream;

/// Writes lines as they come.
type Stream = dyn FnOnce(&mut dyn Write) -> io::Result<()> + Send;

enum Body {
    Bytes(Cow<'static, [u8]>),
    Stream(Box<Stream>),
}

/// An answer.
pub struct Reply {
    status: u16,
    kind: &'static str,
    headers: Vec<(&'static str, String)>,
    body: Body,
}

impl Reply {
    /// An answer of some bytes.
    pub fn new(status: u16, kind: &'static str, body: impl Into<Cow<'static, [u8]>>) -> Self {
        Self { status, kind, headers: vec![], body: Body::Bytes(body.into()) }
    }

    /// A line of text.
    pub fn text(status: u16, line: &str) -> Self {
        Self::new(status, "text/plain; charset=utf-8", format!("{line}\n").into_bytes())
    }

    /// An answer whose end is not known yet; it ends with the connection.
    pub fn stream(
        kind: &'static str,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'static,
    ) -> Self {
        Self { status: 200, kind, headers: vec![], body: Body::Stream(Box::new(write)) }
    }

    /// With another header.
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn write(self, mut stream: &TcpStream, head_only: bool) -> io::Result<()> {
        let Self { status, kind, headers, body } = self;
        let mut head = format!("HTTP/1.1 {status} {}\r\nContent-Type: {kind}\r\n", reason(status));
        if let Body::Bytes(bytes) = &body {
            head += &format!("Content-Length: {}\r\n", bytes.len());
        }
        for (name, value) in ALWAYS.iter().copied().chain(policy(kind)) {
            head += &format!("{name}: {value}\r\n");
        }
        for (name, value) in &headers {
            head += &format!("{name}: {value}\r\n");
        }
        stream.write_all((head + "\r\n").as_bytes())?;
        match body {
            _ if head_only => Ok(()),
            Body::Bytes(bytes) => stream.write_all(&bytes),
            Body::Stream(write) => write(&mut stream),
        }
    }
}

/// Headers of every answer. no-cache: after a rebuild a reload must show the new page, also for files
/// without a hash.
const ALWAYS: [(&str, &str); 5] = [
    ("Cache-Control", "no-cache"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Connection", "close"),
];

/// A page has a policy of its own in its head, but there it cannot say that nobody may frame it. A
/// worker has that of its script's answer. Nothing else runs.
fn policy(kind: &str) -> Option<(&'static str, &'static str)> {
    let text = match kind.split(';').next().unwrap_or_default() {
        "text/html" => "frame-ancestors 'none'; object-src 'none'; base-uri 'none'",
        "text/javascript" => "default-src 'self' 'wasm-unsafe-eval'",
        _ => "default-src 'none'",
    };
    Some(("Content-Security-Policy", text))
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        411 => "Length Required",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        421 => "Misdirected Request",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        _ => "",
    }
}
