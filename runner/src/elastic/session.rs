//! A job's folder in memory: what its supervisor and its ranks of one machine share.
//!
//! ```text
//! /dev/shm/pipewright-NAME/lock        held by the supervisor while it lives
//!                          socket      the embedded coordinator
//!                          beats/      a file a rank: see `beat`
//!                          state/HOST  a checkpoint of the last step, see `checkpoint`
//!                          mpi/        what MPI wants to put somewhere
//!                          plan.json   the plan of the generation
//!                          out         whose state this is: the run's folder
//! ```
//!
//! It ends with the job, and is its user's alone. Where a supervisor was killed, the next one of the
//! same job takes it over, with the state in it if that is of the same run.

use rustix::process::geteuid;
use rustix::system::uname;
use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Where memory files lie. Systems without it have a disk below the same name or no elastic jobs.
const MEMORY: &str = "/dev/shm";

/// What the folders of jobs begin with.
const PREFIX: &str = "pipewright-";

/// The folder.
#[derive(Clone, Debug)]
pub struct Session {
    folder: PathBuf,
}

/// A folder that is this process's own; dropping it removes the folder.
#[derive(Debug)]
pub struct Owned {
    /// The folder.
    pub session: Session,
    _lock: File,
    /// Whether the folder stays for the next one.
    stays: bool,
}

impl Session {
    /// The folder of the job called `job`.
    pub fn of(job: &str) -> Self {
        Self { folder: Path::new(MEMORY).join(format!("{PREFIX}{job}")) }
    }

    /// A folder by its path, as ranks are told.
    pub fn at(folder: &Path) -> Self {
        Self { folder: folder.into() }
    }

    /// The jobs whose supervisors are alive.
    pub fn running() -> Vec<String> {
        let entries = std::fs::read_dir(MEMORY).into_iter().flatten();
        let name = |entry: io::Result<std::fs::DirEntry>| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            let job = name.strip_prefix(PREFIX)?.to_owned();
            let lock = File::open(Self::of(&job).lock()).ok()?;
            matches!(lock.try_lock(), Err(TryLockError::WouldBlock)).then_some(job)
        };
        let mut jobs: Vec<String> = entries.filter_map(name).collect();
        jobs.sort();
        jobs
    }

    /// Makes the folder for the run in `out`, or takes over what a supervisor left that was killed. Its
    /// state stays if it is of that run and wanted. `None` where another supervisor has the folder.
    ///
    /// # Errors
    /// When the folder cannot be made or is somebody else's.
    pub fn own(self, out: &Path, state_wanted: bool) -> io::Result<Option<Owned>> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let found = std::fs::symlink_metadata(&self.folder)?;
        let mine = found.is_dir() && found.uid() == geteuid().as_raw();
        if !mine || found.mode() & 0o077 != 0 {
            return Err(io::Error::other("it is there already and open to others"));
        }
        let lock = File::options().create(true).append(true).open(self.lock())?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(e)) => return Err(e),
        }
        let out = std::path::absolute(out)?;
        let whose = self.folder.join("out");
        let same = std::fs::read(&whose).is_ok_and(|bytes| bytes == out.as_os_str().as_bytes());
        if !(same && state_wanted) && self.states().exists() {
            std::fs::remove_dir_all(self.states())?;
        }
        std::fs::write(&whose, out.as_os_str().as_bytes())?;
        Ok(Some(Owned { session: self, _lock: lock, stays: false }))
    }

    /// Empties what belongs to one generation alone: ranks that are killed remove nothing.
    ///
    /// # Errors
    /// When the folders cannot be made anew.
    pub fn renew(&self) -> io::Result<()> {
        for folder in [self.beats(), self.mpi()] {
            match std::fs::remove_dir_all(&folder) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => std::fs::create_dir(&folder)?,
            }
        }
        Ok(())
    }

    /// The folder itself.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn lock(&self) -> PathBuf {
        self.folder.join("lock")
    }

    /// Where the embedded coordinator listens.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    /// Heartbeats.
    pub fn beats(&self) -> PathBuf {
        self.folder.join("beats")
    }

    fn states(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// The state of the last step, as far as it is on this host: hosts that share the folder have one each.
    pub fn state(&self) -> PathBuf {
        self.states().join(OsStr::from_bytes(uname().nodename().to_bytes()))
    }

    /// MPI's own files.
    pub fn mpi(&self) -> PathBuf {
        self.folder.join("mpi")
    }

    /// The plan of the generation that runs.
    pub fn plan(&self) -> PathBuf {
        self.folder.join("plan.json")
    }
}

impl Owned {
    /// Ends this process's ownership and leaves the folder to the next supervisor of the job.
    pub fn leave(mut self) {
        self.stays = true;
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        // Nobody is left to hear of an error; the next job of this name takes the folder over.
        let _ = std::fs::remove_dir_all(self.session.folder());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_supervisor_has_the_folder_and_the_next_finds_the_state_of_its_run() {
        let session = Session::of(&format!("unit-test-{}", std::process::id()));
        let own = |out: &str, wanted| session.clone().own(Path::new(out), wanted).unwrap();
        let first = own("run", true).unwrap();
        assert!(own("run", true).is_none(), "it has an owner");
        let job = session.folder().file_name().unwrap().to_str().unwrap();
        assert!(Session::running().contains(&job[PREFIX.len()..].to_owned()));
        let state = session.state();
        // As if it had been killed: the folder stays, and nobody holds a lock in it.
        let killed = |owned: Owned| {
            std::fs::create_dir_all(&state).unwrap();
            std::mem::forget(owned);
            std::fs::remove_file(session.lock()).unwrap();
        };
        killed(first);
        let second = own("run", true).unwrap();
        assert!(state.exists(), "the same run");
        std::fs::create_dir_all(session.mpi().join("left")).unwrap();
        session.renew().unwrap();
        assert!(session.mpi().exists() && !session.mpi().join("left").exists());
        killed(second);
        let third = own("other", true).unwrap();
        assert!(!state.exists(), "another run's");
        killed(third);
        let fourth = own("other", false).unwrap();
        assert!(!state.exists(), "not wanted");
        drop(fourth);
        assert!(!session.folder().exists());
    }
}
