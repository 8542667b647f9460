//! Fence: which generation of an elastic job may write.
//!
//! `OUT/generation` holds one number, and behind it `open` or `shut`. A supervisor shuts a generation
//! that it gives up before it does anything else about it, and opens the next; each rank looks whether
//! its own is open before it makes a checkpoint exist, writes metrics or a result. So a rank that was
//! stopped for dead and wakes up finds that it is not meant any more.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};

/// The file's name in a run's folder.
pub const FILE: &str = "generation";

/// Digits of the number: it is written over in place, so its length never changes.
const DIGITS: usize = 20;

/// What stands behind it.
const OPEN: &str = " open\n";
const SHUT: &str = " shut\n";
const LENGTH: usize = DIGITS + OPEN.len();

/// A rank's view of the file.
#[derive(Clone)]
pub struct Fence {
    file: Arc<File>,
    generation: u64,
}

/// A generation that was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fenced {
    /// The generation that wanted to write.
    pub mine: u64,
    /// The newest; `None` where the file cannot be read any more.
    pub now: Option<u64>,
}

impl Fence {
    /// For a rank of `generation` of the run in `out`.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(out: &Path, generation: u64) -> io::Result<Self> {
        Ok(Self { file: Arc::new(File::open(out.join(FILE))?), generation })
    }

    /// The rank's generation.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// For the same rank in another generation.
    pub fn of(&self, generation: u64) -> Self {
        Self { file: self.file.clone(), generation }
    }

    /// Whether the rank may write. Takes about a microsecond.
    ///
    /// # Errors
    /// When another generation is meant, or nobody knows.
    pub fn check(&self) -> Result<(), Fenced> {
        match read(&self.file) {
            Some((now, true)) if now == self.generation => Ok(()),
            found => Err(Fenced { mine: self.generation, now: found.map(|(now, _)| now) }),
        }
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Fence({})", self.generation)
    }
}

impl fmt::Display for Fenced {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.now {
            Some(now) if now == self.mine => {
                write!(f, "generation {now} was given up; this rank may not write")
            }
            Some(now) => {
                write!(f, "generation {} was replaced by {now}; this rank may not write", self.mine)
            }
            None => write!(f, "generation {}: `{FILE}` cannot be read", self.mine),
        }
    }
}

impl std::error::Error for Fenced {}

/// The number, and whether it is open.
fn read(file: &File) -> Option<(u64, bool)> {
    let mut text = [0; LENGTH];
    file.read_exact_at(&mut text, 0).ok()?;
    let (number, state) = std::str::from_utf8(&text).ok()?.split_at_checked(DIGITS)?;
    Some((number.parse().ok()?, state == OPEN))
}

fn write(out: &Path, generation: u64, state: &str) -> io::Result<()> {
    // In place: ranks keep the file open.
    let file = File::options().create(true).truncate(false).write(true).open(path(out))?;
    file.write_all_at(format!("{generation:0DIGITS$}{state}").as_bytes(), 0)
}

fn path(out: &Path) -> PathBuf {
    out.join(FILE)
}

/// The newest generation that wrote in `out`; 0 where none ever did.
///
/// # Errors
/// When the file is there and cannot be read.
pub fn newest(out: &Path) -> io::Result<u64> {
    let file = match File::open(path(out)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(0),
        file => file?,
    };
    let broken = || io::Error::new(io::ErrorKind::InvalidData, format!("`{FILE}`: no generation"));
    read(&file).map(|(number, _)| number).ok_or_else(broken)
}

/// From now on `generation` may write in `out`, and no other.
///
/// # Errors
/// When the file cannot be written.
pub fn open(out: &Path, generation: u64) -> io::Result<()> {
    write(out, generation, OPEN)
}

/// From now on nobody may write in `out` who belongs to `generation`. Whether it was the newest: one
/// that another supervisor has begun meanwhile is left alone.
///
/// # Errors
/// When the file cannot be read or written.
pub fn shut(out: &Path, generation: u64) -> io::Result<bool> {
    let newest = is_newest(out, generation)?;
    if newest {
        write(out, generation, SHUT)?;
    }
    Ok(newest)
}

/// Whether no generation after `generation` has begun. A file that cannot be understood tells of none.
///
/// # Errors
/// When it cannot be read.
pub fn is_newest(out: &Path, generation: u64) -> io::Result<bool> {
    match newest(out) {
        Ok(found) => Ok(found <= generation),
        Err(e) if e.kind() == io::ErrorKind::InvalidData => Ok(true),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_generation_writes() {
        let out = std::env::temp_dir().join(format!("fence-{}", std::process::id()));
        std::fs::create_dir_all(&out).unwrap();
        assert_eq!(newest(&out).unwrap(), 0);
        open(&out, 7).unwrap();
        let (old, other) = (Fence::open(&out, 7).unwrap(), Fence::open(&out, 6).unwrap());
        assert_eq!((old.check(), newest(&out).unwrap()), (Ok(()), 7));
        assert_eq!(other.check(), Err(Fenced { mine: 6, now: Some(7) }));
        assert!(shut(&out, 7).unwrap());
        assert!(old.check().unwrap_err().to_string().contains("7 was given up"));
        open(&out, u64::MAX).unwrap();
        assert!(!shut(&out, 8).unwrap(), "another one is open, and stays so");
        assert_eq!(newest(&out).unwrap(), u64::MAX);
        let fenced = old.check().unwrap_err();
        assert_eq!(fenced, Fenced { mine: 7, now: Some(u64::MAX) });
        assert!(fenced.to_string().starts_with("generation 7 was replaced by 1844674407"));
        std::fs::write(out.join(FILE), "x").unwrap();
        assert_eq!(old.check(), Err(Fenced { mine: 7, now: None }));
        assert!(newest(&out).is_err());
        std::fs::remove_dir_all(&out).unwrap();
    }
}
