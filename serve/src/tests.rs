//! The server, asked over a real socket.

use super::*;
use std::io::Write;
use std::path::PathBuf;

/// A folder `site/` with an `index.html`, and a file beside it that nobody may read.
fn site(name: &str) -> PathBuf {
    let base = std::env::temp_dir().join(format!("pipewright-serve-{name}-{}", std::process::id()));
    std::fs::create_dir_all(base.join("site/demo")).unwrap();
    std::fs::write(base.join("secret.txt"), "secret").unwrap();
    std::fs::write(base.join("site/index.html"), "<h1>page</h1>").unwrap();
    std::fs::write(base.join("site/a b.wasm"), b"\0asm").unwrap();
    std::fs::write(base.join("site/worker.js"), "").unwrap();
    std::fs::write(base.join("site/demo/plan.json"), "{}").unwrap();
    base
}

/// Sends one raw request line and returns the whole reply.
fn ask(address: &str, line: &str) -> String {
    let host = address.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "{line} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn files_come_with_their_type_and_are_revalidated() {
    let base = site("types");
    let address = Server::bind(&base.join("site"), 0).unwrap().spawn().unwrap();
    let page = ask(&address, "GET /?x=1");
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    assert!(page.contains("Content-Type: text/html"), "{page}");
    assert!(page.contains("Cache-Control: no-cache"), "{page}");
    assert!(page.ends_with("<h1>page</h1>"), "{page}");
    assert!(ask(&address, "GET /a%20b.wasm").contains("application/wasm"));
    assert!(ask(&address, "GET /demo/plan.json").contains("application/json"));
    let worker = ask(&address, "GET /worker.js");
    assert!(worker.contains("Content-Security-Policy: default-src 'self'"), "{worker}");
    assert!(page.contains("Content-Security-Policy: frame-ancestors 'none'"), "{page}");
    let head = ask(&address, "HEAD /index.html");
    assert!(head.contains("Content-Length: 13") && head.ends_with("\r\n\r\n"), "{head}");
    std::fs::remove_dir_all(base).unwrap();
}

#[test]
fn nothing_outside_the_folder_is_served() {
    let base = site("outside");
    std::os::unix::fs::symlink(base.join("secret.txt"), base.join("site/link.txt")).unwrap();
    let address = Server::bind(&base.join("site"), 0).unwrap().spawn().unwrap();
    for target in [
        "/../secret.txt",
        "/demo/../../secret.txt",
        "/%2e%2e/secret.txt",
        "/..%2fsecret.txt",
        "/link.txt",
        "//etc/passwd",
        "/demo",
        "/nothing",
        "/%zz",
        "secret.txt",
    ] {
        let text = ask(&address, &format!("GET {target}"));
        assert!(text.starts_with("HTTP/1.1 404"), "{target}: {text}");
        assert!(!text.contains("\r\n\r\nsecret"), "{target}: {text}");
    }
    assert!(ask(&address, "POST /").starts_with("HTTP/1.1 405"));
    std::fs::remove_dir_all(base).unwrap();
}

/// Sends bytes as they are and returns the whole reply.
fn raw(address: &str, bytes: &[u8]) -> String {
    let mut stream = connect(address);
    stream.write_all(bytes).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn connect(address: &str) -> TcpStream {
    TcpStream::connect(address.trim_start_matches("http://").trim_end_matches('/')).unwrap()
}

/// A server that answers with the body it got, of ten bytes at most.
fn echo(patience: Duration) -> String {
    let handler = |request: &mut Request| match request.body(10) {
        Ok(body) => Reply::new(200, "text/plain", body),
        Err(refusal) => refusal,
    };
    Server { patience, ..Server::new(listen(0).unwrap(), handler) }.spawn().unwrap()
}

#[test]
fn bodies_are_read_to_their_length() {
    let address = echo(PATIENCE);
    let post =
        |rest: &str| raw(&address, format!("POST / HTTP/1.1\r\nHost: x\r\n{rest}").as_bytes());
    assert!(post("Content-Length: 5\r\n\r\nhello, and more").ends_with("\r\n\r\nhello"));
    assert!(post("\r\n").ends_with("\r\n\r\n"));
    let waiting = post("Expect: 100-continue\r\nContent-Length: 2\r\n\r\nab");
    assert!(waiting.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200"), "{waiting}");
    for (rest, status) in [
        ("Content-Length: 11\r\n\r\n", 413),
        ("Content-Length: 99999999999999999999999\r\n\r\n", 413),
        ("Content-Length: -1\r\n\r\n", 400),
        ("Content-Length: +1\r\n\r\na", 400),
        ("Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
        ("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\na", 400),
        ("Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", 411),
    ] {
        let text = post(rest);
        assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{rest}: {text}");
    }
}

#[test]
fn a_long_body_that_is_refused_does_not_hide_the_refusal() {
    let address = echo(PATIENCE);
    let mut request = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4000000\r\n\r\n".to_vec();
    request.resize(request.len() + 4_000_000, b'x');
    let text = raw(&address, &request);
    assert!(text.starts_with("HTTP/1.1 413 "), "{text}");
}

#[test]
fn heads_that_contradict_themselves_are_refused() {
    let address = echo(PATIENCE);
    for (head, status) in [
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nOrigin: a\r\norigin: b\r\n\r\n".to_owned(), 400),
        ("\0\0\0\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/9\r\nHost: a\r\n\r\n".to_owned(), 400),
        (format!("GET / HTTP/1.1\r\nHost: {}", "x".repeat(40_000)), 431),
        (format!("GET / HTTP/1.1\r\n{}", "A: b\r\n".repeat(100)), 400),
    ] {
        let text = raw(&address, head.as_bytes());
        assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{head:.60}: {text}");
    }
}

#[test]
fn who_says_nothing_makes_room_for_others() {
    let address = echo(Duration::from_millis(300));
    let mut silent: Vec<TcpStream> = (0..CONNECTIONS_MAX).map(|_| connect(&address)).collect();
    // A head that drips is given no more time than one that does not come.
    silent[0].write_all(b"GET / HTT").unwrap();
    let begin = Instant::now();
    assert!(raw(&address, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").starts_with("HTTP/1.1 200"));
    assert!(begin.elapsed() >= Duration::from_millis(100), "all places were taken");
    assert_eq!(silent[0].read(&mut [0; 16]).unwrap_or(0), 0, "closed without an answer");
}

#[test]
fn streams_are_sent_line_by_line() {
    let (send, lines) = std::sync::mpsc::channel::<&str>();
    let lines = Mutex::new(Some(lines));
    let handler = move |_: &mut Request| {
        let lines = lines.lock().unwrap().take().unwrap();
        Reply::stream("application/jsonl", move |out| {
            lines.into_iter().try_for_each(|line| out.write_all(line.as_bytes()))
        })
    };
    let address = Server::new(listen(0).unwrap(), handler).spawn().unwrap();
    let mut stream = connect(&address);
    stream.write_all(b"POST / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut text = String::new();
    for line in ["one\n", "two\n"] {
        send.send(line).unwrap();
        // The next line is only sent when this one has come.
        while !text.ends_with(line) {
            let mut part = [0; 4096];
            let count = stream.read(&mut part).unwrap();
            text.push_str(std::str::from_utf8(&part[..count]).unwrap());
        }
    }
    drop(send);
    assert_eq!(stream.read(&mut [0; 16]).unwrap(), 0);
    assert!(!text.contains("Content-Length"), "{text}");
}
