//! Progress of a run, as lines of JSON: `begin`, a `step` for each line of rank 0's metrics, `trace` when
//! there is a new one, at last `end`; `beat` where nothing happens. Each watcher reads the run's own
//! files from their beginning: a page that comes late misses nothing.

use super::jobs::Job;
use super::process::How;
use crate::report::{ResultRecord, Status};
use pipewright_serve::Reply;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// What lines of JSON are called.
pub const LINES: &str = "application/jsonl";

/// Files tell nobody that they grew: they are looked at so often.
const LOOK: Duration = Duration::from_millis(150);

/// A page that is gone is noticed when something is sent to it.
const BEAT: Duration = Duration::from_secs(2);

/// Last lines of the log that go with the end.
const SAID: usize = 12;

/// The answer that goes on until the run's end.
pub fn stream(job: Arc<Job>) -> Reply {
    Reply::stream(LINES, move |out| watch(&job, out))
}

fn watch(job: &Job, out: &mut dyn Write) -> io::Result<()> {
    let mut say = |event: &Value| out.write_all(format!("{event}\n").as_bytes());
    say(&begin(job))?;
    let mut metrics = Lines { path: job.folder.join("rank-000.jsonl"), file: None, begun: vec![] };
    let (mut traced, mut last) = (None, Instant::now());
    loop {
        // Asked before the files are read: after the end they do not grow, so nothing is missed.
        let exit = job.exit();
        let mut told = false;
        for line in metrics.read()? {
            if let Ok(record) = serde_json::from_slice::<Value>(&line) {
                say(&json!({ "event": "step", "record": record }))?;
                told = true;
            }
        }
        let newest = modified(job);
        if newest.is_some() && newest != traced {
            traced = newest;
            say(&json!({ "event": "trace" }))?;
            told = true;
        }
        if let Some(exit) = exit {
            return say(&end(job, exit));
        }
        if told {
            last = Instant::now();
        } else if last.elapsed() >= BEAT {
            last = Instant::now();
            say(&json!({ "event": "beat" }))?;
        }
        job.wait(LOOK);
    }
}

fn begin(job: &Job) -> Value {
    json!({
        "event": "begin",
        "run": job.number,
        "folder": job.folder.display().to_string(),
        "how": job.begun.how,
        "ranks": job.begun.ranks,
        "steps": job.begun.steps,
        "predicted_step_ns": job.begun.predicted,
    })
}

/// When the trace was written.
fn modified(job: &Job) -> Option<SystemTime> {
    std::fs::metadata(job.folder.join("trace.json")).and_then(|file| file.modified()).ok()
}

/// How the run ended. Its own record says so; mpirun's exit code does not always.
fn end(job: &Job, exit: ExitStatus) -> Value {
    let record = std::fs::read(job.folder.join("result.json")).unwrap_or_default();
    let record = serde_json::from_slice::<ResultRecord>(&record).ok();
    let log = std::fs::read(job.folder.join("log.txt")).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let status = match record.as_ref().map(|record| record.status) {
        Some(Status::Done) => "done",
        Some(Status::Interrupted) => "stopped",
        _ if job.stopped() => "stopped",
        _ => "failed",
    };
    let error = log.lines().find_map(|line| line.strip_prefix("error: "));
    let why = error.map(str::to_owned).or(record.and_then(|record| record.error));
    let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    json!({
        "event": "end",
        "status": status,
        "why": (status == "failed").then(|| why.unwrap_or_else(|| unexplained(job.begun.how, exit))),
        "said": &lines[lines.len().saturating_sub(SAID)..],
    })
}

/// What is known of an end that nobody explained.
fn unexplained(how: How, exit: ExitStatus) -> String {
    let what = match how {
        How::Mpirun => "mpirun",
        How::Threads => "the runner",
    };
    match (exit.code(), exit.signal()) {
        (None, Some(signal)) => format!("{what} was ended by signal {signal}"),
        (code, _) => format!("{what} ended with exit code {}", code.unwrap_or_default()),
    }
}

/// The lines of a file that another process writes.
struct Lines {
    path: PathBuf,
    file: Option<BufReader<File>>,
    /// A line whose end has not been written yet.
    begun: Vec<u8>,
}

impl Lines {
    /// The lines that are complete since it was last asked.
    fn read(&mut self) -> io::Result<Vec<Vec<u8>>> {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok().map(BufReader::new);
        }
        let mut lines = vec![];
        let Some(file) = &mut self.file else { return Ok(lines) };
        while file.read_until(b'\n', &mut self.begun)? > 0 {
            if self.begun.ends_with(b"\n") {
                lines.push(std::mem::take(&mut self.begun));
            }
        }
        Ok(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_comes_when_it_is_whole() {
        let name = format!("pipewright-lines-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut lines = Lines { path: path.clone(), file: None, begun: vec![] };
        assert!(lines.read().unwrap().is_empty(), "there is no file yet");
        let mut file = File::create(&path).unwrap();
        file.write_all(b"one\ntw").unwrap();
        assert_eq!(lines.read().unwrap(), [b"one\n"]);
        assert!(lines.read().unwrap().is_empty());
        file.write_all(b"o\nthree\n").unwrap();
        assert_eq!(lines.read().unwrap(), [&b"two\n"[..], b"three\n"]);
        std::fs::remove_file(path).unwrap();
    }
}
