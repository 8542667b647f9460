//! The server, asked over a real socket.

use super::*;
use std::io::Read;

/// A folder `site/` with an `index.html`, and a file beside it that nobody may read.
fn site(name: &str) -> PathBuf {
    let base = std::env::temp_dir().join(format!("pipewright-web-{name}-{}", std::process::id()));
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
    assert!(!page.contains("Content-Security-Policy"), "the page has its own: {page}");
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
