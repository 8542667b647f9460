//! The lock of a run's folder: one job writes there at a time.
//!
//! The file system holds it for as long as the process lives, so nothing is left of one that was killed; on
//! folders that several hosts share it holds among them where the file system has such locks, as NFS does.

use serde::{Deserialize, Serialize};
use std::fs::{File, TryLockError};
use std::io::{self, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use thiserror::Error;

/// The file in the folder, there while a job writes, and after one that was killed.
pub const FILE: &str = ".lock";

/// Who holds a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The process.
    pub pid: u32,
    /// Its host.
    pub host: String,
    /// Milliseconds since 1970 when it began, by its host.
    pub since_unix_ms: u64,
    /// The elastic job, where it is one: its supervisors may be several.
    pub job: Option<String>,
}

/// Why a folder is not this process's.
#[derive(Debug, Error)]
pub enum LockError {
    /// Somebody writes there.
    #[error("{}: {}", folder.display(), told(holder))]
    Held {
        /// The folder.
        folder: PathBuf,
        /// Who.
        holder: Box<Holder>,
    },
    /// The file cannot be made.
    #[error("{}: {source}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

fn told(holder: &Holder) -> String {
    let minutes = now_ms().saturating_sub(holder.since_unix_ms) / 60_000;
    let since = match minutes {
        0 => "less than a minute ago".into(),
        1 => "a minute ago".into(),
        minutes @ 2..=119 => format!("{minutes} minutes ago"),
        minutes => format!("{} hours ago", minutes / 60),
    };
    let what = holder.job.as_ref().map_or("a run".into(), |job| format!("the elastic job `{job}`"));
    format!(
        "{what} writes here, process {} on {}, which began {since}; wait for its end, end it, or choose \
         another --out",
        holder.pid, holder.host
    )
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    now.as_millis() as u64
}

/// A folder that nobody else writes to; dropping it gives the folder up.
#[derive(Debug)]
pub struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    /// Takes a folder that is there, for an elastic job if one is named. `None`, with a warning, where the
    /// file system has no locks.
    ///
    /// # Errors
    /// When somebody holds it, or the file cannot be made.
    pub fn take(folder: &Path, job: Option<&str>) -> Result<Option<Self>, LockError> {
        let path = folder.join(FILE);
        let failed = |source| LockError::File { path: path.clone(), source };
        loop {
            let mut file = File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)
                .map_err(failed)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let holder = Box::new(holder(&path));
                    return Err(LockError::Held { folder: folder.into(), holder });
                }
                Err(TryLockError::Error(e)) => {
                    warn!("{}: {e}; nothing keeps another run out of it", path.display());
                    return Ok(None);
                }
            }
            if !is_at(&file, &path) {
                // Whoever held it gave it up, and the file with it, since it was opened.
                continue;
            }
            let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
            let since_unix_ms = now_ms();
            let mine =
                Holder { pid: std::process::id(), host, since_unix_ms, job: job.map(Into::into) };
            let text = serde_json::to_string(&mine).expect("plain data") + "\n";
            file.set_len(0).and_then(|()| file.rewind()).map_err(failed)?;
            // On a full disk nobody learns who holds it; it is held.
            let _ = file.write_all(text.as_bytes());
            return Ok(Some(Self { path, _file: file }));
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // While it is held: nobody else's is removed.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Who says to hold it.
fn holder(path: &Path) -> Holder {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let unknown =
        || Holder { host: "an unknown host".into(), since_unix_ms: now_ms(), ..Holder::default() };
    serde_json::from_str(&text).unwrap_or_else(|_| unknown())
}

/// Whether a path still leads to an open file.
fn is_at(file: &File, path: &Path) -> bool {
    let same =
        |(a, b): (std::fs::Metadata, std::fs::Metadata)| (a.dev(), a.ino()) == (b.dev(), b.ino());
    file.metadata().ok().zip(std::fs::metadata(path).ok()).is_some_and(same)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_it_at_a_time_and_says_who_that_is() {
        let folder = std::env::temp_dir().join(format!("lock-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let first = Lock::take(&folder, Some("j")).unwrap().unwrap();
        let LockError::Held { holder, .. } = Lock::take(&folder, None).unwrap_err() else {
            panic!()
        };
        assert_eq!((holder.pid, holder.job.as_deref()), (std::process::id(), Some("j")));
        let said = told(&holder);
        assert!(said.starts_with("the elastic job `j` writes here, process "), "{said}");
        assert!(said.contains("began less than a minute ago"), "{said}");
        drop(first);
        assert!(!folder.join(FILE).exists());
        // As a killed process leaves it.
        std::fs::write(folder.join(FILE), "{").unwrap();
        drop(Lock::take(&folder, None).unwrap().unwrap());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
