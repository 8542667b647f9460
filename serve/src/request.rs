//! Requests of clients.

use crate::{Reply, Timed};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

/// Longest head that is read; a browser's is about 1 KiB.
const HEAD_MAX: usize = 32 * 1024;

/// Most lines of a head.
const HEADERS_MAX: usize = 64;

/// Headers that decide who asks and where the body ends: twice one of them is two readings of one
/// request.
const ONCE: [&str; 5] = ["host", "origin", "content-length", "transfer-encoding", "content-type"];

/// A request whose head has been read.
pub struct Request<'a> {
    method: String,
    target: String,
    /// Names in lower case.
    headers: Vec<(String, String)>,
    stream: Timed<'a>,
    /// What came of the body together with the head.
    begun: Vec<u8>,
}

impl<'a> Request<'a> {
    /// Reads a head; the inner error is the answer to one that is refused.
    pub(crate) fn read(
        stream: &'a TcpStream,
        until: Instant,
    ) -> io::Result<Result<Request<'a>, Reply>> {
        let mut stream = Timed { stream, until };
        let (mut bytes, mut part) = (vec![], [0; 4096]);
        loop {
            let count = stream.read(&mut part)?;
            if count == 0 {
                // Browsers open connections in advance and may not need them.
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            bytes.extend(&part[..count]);
            match parse(&bytes) {
                Ok(Some((length, method, target, headers))) => {
                    let begun = bytes.split_off(length);
                    return Ok(Ok(Request { method, target, headers, stream, begun }));
                }
                Ok(None) if bytes.len() > HEAD_MAX => {
                    return Ok(Err(Reply::text(431, "the request's head is too long")));
                }
                Ok(None) => {}
                Err(why) => return Ok(Err(Reply::text(400, why))),
            }
        }
    }

    /// Its method.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// What it asks for, without the query.
    pub fn path(&self) -> &str {
        self.target.split(['?', '#']).next().unwrap_or_default()
    }

    /// The value of a header, its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The body, read now.
    ///
    /// # Errors
    /// The answer to one that is longer than `max` bytes, of unknown length or cut off.
    pub fn body(&mut self, max: u64) -> Result<Vec<u8>, Reply> {
        if self.header("transfer-encoding").is_some() {
            return Err(Reply::text(411, "a body needs a Content-Length"));
        }
        let length = match self.header("content-length") {
            None => 0,
            Some(text) if text.bytes().all(|b| b.is_ascii_digit()) => {
                text.parse::<u64>().unwrap_or(u64::MAX)
            }
            Some(_) => return Err(Reply::text(400, "Content-Length is no number")),
        };
        if length > max {
            return Err(Reply::text(413, "the body is too long"));
        }
        if self.header("expect").is_some_and(|e| e.eq_ignore_ascii_case("100-continue")) {
            let mut stream = self.stream.stream;
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").ok();
        }
        let mut body = std::mem::take(&mut self.begun);
        body.truncate(length as usize);
        let missing = length - body.len() as u64;
        let read = (&mut self.stream).take(missing).read_to_end(&mut body);
        match read {
            Ok(count) if count as u64 == missing => Ok(body),
            _ => Err(Reply::text(408, "the body did not come to its end")),
        }
    }
}

/// Length of the head, method, target, headers.
type Head = (usize, String, String, Vec<(String, String)>);

/// The head, once it is complete.
fn parse(bytes: &[u8]) -> Result<Option<Head>, &'static str> {
    let mut room = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut room);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err("this is no request of HTTP/1.1"),
    };
    let lower = |header: &httparse::Header| {
        let value = String::from_utf8_lossy(header.value).into_owned();
        (header.name.to_ascii_lowercase(), value)
    };
    let headers: Vec<(String, String)> = request.headers.iter().map(lower).collect();
    let count = |name: &str| headers.iter().filter(|(key, _)| key == name).count();
    if ONCE.iter().any(|name| count(name) > 1) {
        return Err("a header stands there twice");
    }
    if count("host") == 0 && request.version == Some(1) {
        return Err("the header Host is missing");
    }
    if count("content-length") + count("transfer-encoding") > 1 {
        return Err("the body has two lengths");
    }
    let (method, target) = (request.method.unwrap_or(""), request.path.unwrap_or(""));
    Ok(Some((length, method.into(), target.into(), headers)))
}
