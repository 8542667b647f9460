//! `run.jsonl` in a run's folder: what became of an elastic job, a JSON object a line.

use super::membership::Node;
use pipewright_core::elastic::Member;
pub use pipewright_core::elastic::life::{Cause, Event, Line};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Instant, SystemTime};

/// The file's name.
pub const FILE: &str = "run.jsonl";

/// The file, to be written on.
#[derive(Debug)]
pub struct Journal {
    file: File,
    start: Instant,
    /// Another supervisor tells what happens.
    mute: bool,
}

impl Journal {
    /// Begins the file in `out`, or goes on with it. Nothing is written before it is
    /// [given leave](Self::speak).
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(out: &Path) -> io::Result<Self> {
        let file = File::options().create(true).append(true).open(out.join(FILE))?;
        Ok(Self { file, start: Instant::now(), mute: true })
    }

    /// Whether lines are written: one supervisor of a job tells what happens, the one that leads.
    pub fn speak(&mut self, leads: bool) {
        self.mute = !leads;
    }

    /// Adds a line. A disk that takes none any more does not end the job: it is said, once a line.
    pub fn write(&mut self, event: Event) {
        if self.mute {
            return;
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let at_ms = self.start.elapsed().as_millis() as u64;
        let line = Line { event, at_ms, unix_ms: now.as_millis() as u64 };
        let text = serde_json::to_string(&line).expect("plain data") + "\n";
        if let Err(e) = self.file.write_all(text.as_bytes()) {
            warn!("{FILE}: {e}");
        }
    }

    /// Time since the supervisor began.
    pub fn elapsed(&self) -> std::time::Duration {
        self.start.elapsed()
    }
}

/// Nodes as policies and the journal know them: those that are to have ranks.
pub fn members(nodes: &[Node]) -> Vec<Member> {
    let stay = nodes.iter().filter(|node| !node.leaving);
    stay.map(|node| Member::new(node.name.clone(), node.slots)).collect()
}
