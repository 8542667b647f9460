//! HTTP to a local chromedriver: one request a connection, JSON both ways.

use crate::Outcome;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Longer than a script may take: the browser is who says that it took too long.
const PATIENCE: Duration = Duration::from_secs(600);

/// Sends a request and returns the `value` of the reply, or WebDriver's own error message.
pub fn call(port: u16, method: &str, path: &str, body: Option<&Value>) -> Outcome<Value> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let body = body.map(Value::to_string).unwrap_or_default();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut reply = BufReader::new(stream);
    let mut length = None;
    loop {
        let mut line = String::new();
        if reply.read_line(&mut line)? == 0 {
            return Err(format!("{method} {path}: chromedriver closed the connection").into());
        }
        if line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = Some(value.trim().parse::<usize>()?);
        }
    }
    // The length decides: chromedriver may keep the socket open although we asked it not to.
    let mut bytes = vec![0; length.ok_or("a reply without Content-Length")?];
    reply.read_exact(&mut bytes)?;
    let mut reply: Value = serde_json::from_slice(&bytes)?;
    if let Some(error) = reply["value"]["error"].as_str() {
        let message = reply["value"]["message"].as_str().unwrap_or("");
        return Err(format!("{method} {path}: {error}: {message}").into());
    }
    Ok(reply["value"].take())
}
