//! A `runner explore` of the test's own, and a client that sends what it likes.

use crate::common::{RUNNER, scratch};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// No answer takes longer.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The program, serving a page of two files from a folder of its own.
pub struct Explorer {
    program: Child,
    said: Mutex<BufReader<ChildStdout>>,
    address: String,
    pub port: u16,
    /// Where it was started.
    pub dir: PathBuf,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Explorer {
    pub fn start(name: &str, args: &[&str]) -> Self {
        let dir = scratch(name);
        std::fs::create_dir_all(dir.join("dist/app-1")).unwrap();
        std::fs::write(dir.join("dist/index.html"), "<html><head><title>x</title>").unwrap();
        std::fs::write(dir.join("dist/app-1/app.js"), "").unwrap();
        std::fs::write(dir.join("secret.txt"), "secret").unwrap();
        let mut program = Command::new(RUNNER)
            .args(["explore", "--no-open", "--dir", "dist"])
            .args(args)
            .current_dir(&dir)
            .envs(pipewright::mpirun::environment())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(program.stdout.take().unwrap());
        let address = address(&mut said, "The explorer is on ");
        let port = address.split(['/', ':']).nth(4).unwrap().parse().unwrap();
        Self { program, said: Mutex::new(said), address, port, dir }
    }

    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn origin(&self) -> String {
        format!("http://{}", self.host())
    }

    /// The token of the address that was printed first.
    pub fn token(&self) -> &str {
        self.address.split_once("#here=").unwrap().1
    }

    /// The token of the address that is printed when one has been used.
    pub fn next_token(&self) -> String {
        let said = &mut *self.said.lock().unwrap();
        address(said, "Opened. For another window: ").split_once("#here=").unwrap().1.to_owned()
    }

    /// A session for the first token.
    pub fn open(&self) -> String {
        let answer = self.post("", "session", &json!({ "token": self.token() }).to_string());
        assert_eq!(answer.status, 200, "{answer:?}");
        let answer: Value = serde_json::from_str(&answer.body).unwrap();
        answer["session"].as_str().unwrap().to_owned()
    }

    pub fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], "")
    }

    pub fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let lines: String = headers.iter().map(|(k, v)| format!("{k}: {v}\r\n")).collect();
        let length = body.len();
        let host = self.host();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{lines}");
        raw(self.port, &format!("{head}Content-Length: {length}\r\n\r\n{body}"))
    }

    /// What the page sends.
    pub fn post(&self, session: &str, name: &str, body: &str) -> Answer {
        let origin = self.origin();
        let headers = [
            ("Origin", origin.as_str()),
            ("Content-Type", "application/json"),
            ("X-Pipewright-Session", session),
        ];
        self.ask("POST", &format!("/api/{name}"), &headers, body)
    }

    /// All that is told of the newest run, once it is over.
    pub fn lines(&self, session: &str) -> Vec<Value> {
        let answer = self.post(session, "watch", "{}");
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// What is told of the newest run, as it comes.
    pub fn watch(&self, session: &str) -> Watch {
        let mut stream = connect(self.port);
        let (host, origin) = (self.host(), self.origin());
        write!(
            stream,
            "POST /api/watch HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\n\
             Content-Type: application/json\r\nX-Pipewright-Session: {session}\r\n\
             Content-Length: 2\r\n\r\n{{}}"
        )
        .unwrap();
        Watch(BufReader::new(stream))
    }

    /// The processes of that run: those whose command line names its folder.
    pub fn ranks(&self, run: &Value) -> Vec<u32> {
        let plan = format!("explore-runs/{run}/plan.json");
        let mut found = vec![];
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
            let here = std::fs::read_link(entry.path().join("cwd")).is_ok_and(|at| at == self.dir);
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            if here && String::from_utf8_lossy(&line).contains(&plan) {
                found.push(pid);
            }
        }
        found
    }

    /// Ctrl-C; its exit code.
    pub fn interrupt(&mut self) -> Option<i32> {
        let pid = Pid::from_raw(self.program.id() as i32).unwrap();
        kill_process(pid, Signal::INT).unwrap();
        let begin = Instant::now();
        loop {
            if let Some(status) = self.program.try_wait().unwrap() {
                return status.code();
            }
            assert!(begin.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Explorer {
    fn drop(&mut self) {
        if let Ok(None) = self.program.try_wait() {
            self.interrupt();
        }
    }
}

/// The lines of a run.
pub struct Watch(BufReader<TcpStream>);

impl Watch {
    /// The next line about that.
    #[track_caller]
    pub fn until(&mut self, event: &str) -> Value {
        let mut line = String::new();
        while self.0.read_line(&mut line).unwrap() > 0 {
            if let Ok(found) = serde_json::from_str::<Value>(&line)
                && found["event"] == event
            {
                return found;
            }
            line.clear();
        }
        panic!("the stream ended without `{event}`");
    }
}

fn address(said: &mut impl BufRead, before: &str) -> String {
    for line in said.lines() {
        let line = line.unwrap();
        if let Some(address) = line.strip_prefix(before) {
            return address.to_owned();
        }
    }
    panic!("it did not say `{before}`");
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends bytes as they are; the whole answer.
pub fn raw(port: u16, request: &str) -> Answer {
    let mut stream = connect(port);
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = vec![];
    stream.read_to_end(&mut text).unwrap();
    let text = String::from_utf8_lossy(&text);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}
