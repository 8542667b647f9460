//! A file of lines that grows, and what becomes of them where the disk takes none.

use super::ReportError;
use serde::Serialize;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;

/// Lines that wait for a disk, in bytes at most: those of some ten thousand steps.
const WAITING_MAX: usize = 16 << 20;

/// Lines on their way to a file; dropped, they are handed to the system as far as it takes them.
pub(super) struct Lines {
    path: PathBuf,
    file: File,
    /// What the system has not got, after what it has: it may have taken half a line.
    waiting: Vec<u8>,
    /// Whether a disk that takes nothing is a warning, and tried again.
    patient: bool,
    /// Whether that was said since it took something.
    warned: bool,
    /// Lines for which there was no room.
    lost: u64,
}

impl Lines {
    /// Lines to be written where `file` stands.
    pub fn new(path: PathBuf, file: File, patient: bool) -> Self {
        Self { path, file, waiting: vec![], patient, warned: false, lost: 0 }
    }

    /// Adds a line.
    pub fn push(&mut self, value: &impl Serialize) {
        if self.waiting.len() > WAITING_MAX {
            self.lost += 1;
            return;
        }
        let text = serde_json::to_string(value).expect("plain data");
        self.waiting.extend_from_slice(text.as_bytes());
        self.waiting.push(b'\n');
    }

    /// Hands all lines to the system. Those of the patient stay where it takes none.
    ///
    /// # Errors
    /// When the disk does not take them.
    pub fn flush(&mut self) -> Result<(), ReportError> {
        let path = self.path.display().to_string();
        match self.pour() {
            Ok(()) if self.warned => {
                let lost = self.lost;
                note!("{path}: the disk takes metrics again, {lost} steps had no room meanwhile");
                (self.warned, self.lost) = (false, 0);
                Ok(())
            }
            Ok(()) => Ok(()),
            Err(source) if self.patient => {
                if !self.warned {
                    warn!("{path}: {source}; training goes on, and metrics wait");
                    self.warned = true;
                }
                Ok(())
            }
            Err(source) => Err(ReportError::Write { path, source }),
        }
    }

    fn pour(&mut self) -> io::Result<()> {
        while !self.waiting.is_empty() {
            match self.file.write(&self.waiting) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(taken) => drop(self.waiting.drain(..taken)),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        // Whoever wants to hear of errors flushes before.
        if let Err(e) = self.pour()
            && self.patient
        {
            let lines =
                self.waiting.iter().filter(|byte| **byte == b'\n').count() as u64 + self.lost;
            warn!("{}: {e}; metrics of {lines} steps are lost", self.path.display());
        }
    }
}
