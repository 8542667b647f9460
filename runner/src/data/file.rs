//! Memory-mapped files.
//!
//! A mapping costs no memory of its own, and the ranks of a machine share the pages. What it does
//! cost is care: a page of a file that was cut short meanwhile kills the process (SIGBUS). So the
//! length is asked for anew before each sample is read ([`Mapped::check_whole`], about 0.2 µs),
//! which turns such a file into an error. What remains is a file that is cut short in the
//! microsecond between the question and the copy; then the process ends by the signal, and mpirun
//! names it. Bytes that change in place are only other values: whoever reads indexes checks them.

use super::DataError;
use memmap2::Mmap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file as bytes.
#[derive(Debug)]
pub(super) struct Mapped {
    path: PathBuf,
    file: File,
    map: Mmap,
}

impl Mapped {
    /// Maps a whole file. `expected` completes "not found; expected ..".
    pub(super) fn open(path: &Path, expected: &str) -> Result<Arc<Self>, DataError> {
        let io = |source| DataError::Io { path: path.into(), source };
        let file = File::open(path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => missing(path, expected),
            _ => io(source),
        })?;
        if !file.metadata().map_err(io)?.is_file() {
            let why = format!("is no file; expected {expected}");
            return Err(DataError::Damaged { path: path.into(), why });
        }
        // SAFETY: nothing of this process writes to the file. What others do to it is read as
        // bytes, of which any are valid, after `check_whole`; see above for what remains.
        let map = unsafe { Mmap::map(&file) }.map_err(io)?;
        Ok(Arc::new(Self { path: path.into(), file, map }))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// All bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Length when it was opened.
    pub(super) fn len(&self) -> u64 {
        self.map.len() as u64
    }

    /// Whether the file is still as long as it was.
    pub(super) fn check_whole(&self) -> Result<(), DataError> {
        let path = || self.path.clone();
        match self.file.metadata() {
            Ok(now) if now.len() >= self.len() => Ok(()),
            Ok(now) => Err(DataError::Shrunk { path: path(), opened: self.len(), now: now.len() }),
            Err(source) => Err(DataError::Io { path: path(), source }),
        }
    }
}

/// The error for a file that is not there; tells a missing folder and a packed file apart.
fn missing(path: &Path, expected: &str) -> DataError {
    if let Some(dir) = path.parent()
        && !dir.as_os_str().is_empty()
        && !dir.exists()
    {
        return DataError::Missing { path: dir.into(), expected: "a folder".into() };
    }
    let mut packed = path.as_os_str().to_owned();
    packed.push(".gz");
    let hint =
        if Path::new(&packed).exists() { "; unpack the .gz beside it: gunzip -k" } else { "" };
    DataError::Missing { path: path.into(), expected: format!("{expected}{hint}") }
}
