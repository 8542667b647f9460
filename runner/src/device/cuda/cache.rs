//! Machine code on the disk: to compile all kernels takes seconds, to read them no time. And what was measured once.
//!
//! A file's name is the hash of all that its contents follow from: the source, the
//! options, the architecture, NVRTC's version. What is there and whole is right; what is broken is made
//! anew. Nobody cleans up: a version of the program leaves some megabytes.

use super::compile::{CompileError, compile, version};
use super::gpu::Architecture;
use super::kernels::Source;
use crate::hash::fnv1a;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A folder of what is made once: compiled kernels, or choices of algorithms.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: Option<PathBuf>,
}

impl Cache {
    /// This user's kernels: `$XDG_CACHE_HOME/pipewright/kernels`, or `~/.cache/pipewright/kernels`.
    pub fn of_user() -> Self {
        Self::of_user_in("kernels")
    }

    /// The same beside them.
    pub fn of_user_in(name: &str) -> Self {
        let absolute = |name| {
            let path = std::env::var_os(name).map(PathBuf::from);
            path.filter(|path| path.is_absolute())
        };
        let folder =
            absolute("XDG_CACHE_HOME").or(absolute("HOME").map(|home| home.join(".cache")));
        Self { folder: folder.map(|folder| folder.join("pipewright").join(name)) }
    }

    /// A folder of one's own.
    pub fn at(folder: &Path) -> Self {
        Self { folder: Some(folder.into()) }
    }

    /// Machine code of `source` for `architecture`: from the disk, or compiled now and kept. A disk that
    /// takes nothing costs the time to compile, no more.
    ///
    /// # Errors
    /// Those of the compiler.
    pub fn get(&self, source: Source, architecture: Architecture) -> Result<Vec<u8>, CompileError> {
        let version = version()?;
        let Some(folder) = &self.folder else { return compile(source, architecture) };
        let path = folder.join(name(source, &source.text(), (architecture, version)));
        if let Some(code) = read(&path) {
            return Ok(code);
        }
        let code = compile(source, architecture)?;
        if let Err(e) = write(&path, &code) {
            warn!("{}: {e}; kernels are compiled again next time", folder.display());
        }
        Ok(code)
    }

    /// What was kept of `key`, which all that it follows from is in.
    pub fn kept(&self, key: &str) -> Option<Vec<u8>> {
        read(&self.folder.as_ref()?.join(hash(key)))
    }

    /// Keeps bytes. On a disk that takes nothing they are made again next time.
    pub fn keep(&self, key: &str, bytes: &[u8]) {
        let Some(folder) = &self.folder else { return };
        if let Err(e) = write(&folder.join(hash(key)), bytes) {
            warn!("{}: {e}; it is measured again next time", folder.display());
        }
    }
}

/// Two hashes of 64 bits, of different beginnings.
fn hash(key: &str) -> String {
    let first = fnv1a(key.as_bytes());
    let second = fnv1a(format!("{first:016x}{key}").as_bytes());
    format!("{first:016x}{second:016x}")
}

/// That of a kernel's machine code.
fn name(
    source: Source,
    text: &str,
    (architecture, (major, minor)): (Architecture, (i32, i32)),
) -> String {
    let key = format!("{architecture} {major}.{minor} {:?}\n{text}", source.options());
    let file = source.file().trim_end_matches(".cu");
    format!("{file}-{architecture}-{}.cubin", hash(&key))
}

/// What a file holds: machine code, and behind it its CRC-32C.
fn read(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = std::fs::read(path).ok()?;
    let sum = bytes.split_off(bytes.len().checked_sub(4)?);
    (crc32c::crc32c(&bytes).to_le_bytes() == sum[..]).then_some(bytes)
}

/// Whoever reads finds the whole file or none; whoever writes at the same time writes the same.
fn write(path: &Path, code: &[u8]) -> io::Result<()> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let folder = path.parent().expect("files of the cache lie in its folder");
    std::fs::create_dir_all(folder)?;
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let beside = folder.join(format!(".{}-{number}", std::process::id()));
    let bytes = [code, &crc32c::crc32c(code).to_le_bytes()].concat();
    let written = std::fs::write(&beside, bytes).and_then(|()| std::fs::rename(&beside, path));
    written.inspect_err(|_| {
        // It may not even be there.
        let _ = std::fs::remove_file(&beside);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SM_90: Architecture = Architecture { major: 9, minor: 0 };
    #[test]
    fn whatever_the_code_follows_from_changes_its_name() {
        let sm_80 = Architecture { major: 8, minor: 0 };
        let (rows, attention) = (Source::Rows, Source::AttentionBf16);
        assert_ne!(rows.options(), attention.options());
        let names = [
            name(rows, "x", (SM_90, (12, 9))),
            name(rows, "x", (SM_90, (13, 0))),
            name(rows, "x", (sm_80, (12, 9))),
            name(rows, "y", (SM_90, (12, 9))),
            name(attention, "x", (SM_90, (12, 9))),
        ];
        let mut different = names.to_vec();
        different.sort();
        different.dedup();
        assert_eq!(different.len(), names.len());
        assert!(names[0].starts_with("rows-sm_90-") && names[0].ends_with(".cubin"));
    }

    #[test]
    fn broken_files_are_none() {
        let folder = std::env::temp_dir().join(format!("kernels-{}", std::process::id()));
        let path = folder.join("deep").join("a.cubin");
        assert_eq!(read(&path), None);
        write(&path, b"machine code").unwrap();
        assert_eq!(read(&path).as_deref(), Some(&b"machine code"[..]));
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 16;
            std::fs::write(&path, changed).unwrap();
            assert_eq!(read(&path), None, "byte {at}");
            std::fs::write(&path, &whole[..at]).unwrap();
            assert_eq!(read(&path), None, "{at} bytes");
        }
        // Where a file lies there can be no folder.
        assert!(write(&path.join("below"), b"").is_err());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
