//! Whole files: written so that the old one or the new one is there at every moment, and read up to a limit.

use std::ffi::OsString;
use std::fs::{File, FileType};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Longest text that is read, in bytes; plans, clusters, profiles and graphs that are accepted are shorter.
pub const TEXT_MAX: u64 = 512 << 20;

/// A file that is written beside another one and takes its name when it is whole. Dropped before, it leaves
/// nothing: a disk that is full, or an end at any moment, leaves the other one as it was.
#[derive(Debug)]
pub struct Beside {
    replaces: PathBuf,
    path: PathBuf,
    done: bool,
}

impl Beside {
    /// For the file at `path`; folders on the way are made.
    ///
    /// # Errors
    /// When they cannot be, or `path` is a folder.
    pub fn new(path: &Path) -> io::Result<Self> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).map_err(|e| match e.kind() {
                io::ErrorKind::AlreadyExists => {
                    let why = format!("{} is a file, not a folder", folder.display());
                    io::Error::new(io::ErrorKind::NotADirectory, why)
                }
                _ => e,
            })?;
        }
        // A link stays one: what it leads to is replaced.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if path.is_dir() {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, "a folder, not a file"));
        }
        if std::fs::metadata(&path).is_ok_and(|there| there.permissions().readonly()) {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it may not be written"));
        }
        Ok(Self { path: beside(&path)?, replaces: path, done: false })
    }

    /// Where it is written.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives what was written the name, and the rights of the file that had it.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn commit(mut self) -> io::Result<()> {
        if let Ok(there) = std::fs::metadata(&self.replaces) {
            std::fs::set_permissions(&self.path, there.permissions())?;
        }
        std::fs::rename(&self.path, &self.replaces)?;
        self.done = true;
        Ok(())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if !self.done {
            // It may not even be there.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Replaces the contents of a file as a whole, see [`Beside`]. What is there and no file (a terminal, a
/// pipe) is written to as it stands.
///
/// # Errors
/// When the disk does not take it; nothing is left beside then.
pub fn replace(path: &Path, contents: impl AsRef<[u8]>) -> io::Result<()> {
    if std::fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir()) {
        return std::fs::write(path, contents);
    }
    let beside = Beside::new(path)?;
    let mut file = File::create(beside.path())?;
    file.write_all(contents.as_ref())?;
    // File systems of a network may say only now that they are full.
    file.sync_all()?;
    beside.commit()
}

/// A name in the same folder that no other thread and no other process takes.
fn beside(path: &Path) -> io::Result<PathBuf> {
    static WRITES: AtomicU64 = AtomicU64::new(0);
    let no_file = || io::Error::new(io::ErrorKind::InvalidInput, "not the name of a file");
    let mut name = OsString::from(".");
    name.push(path.file_name().ok_or_else(no_file)?);
    name.push(format!("-{}-{}", std::process::id(), WRITES.fetch_add(1, Relaxed)));
    Ok(path.with_file_name(name))
}

/// Reads a text of at most [`TEXT_MAX`] bytes.
///
/// # Errors
/// When it cannot be read, is longer, is a device without an end, or is no UTF-8
/// ([`io::ErrorKind::InvalidData`]).
pub fn read_text(path: &Path) -> io::Result<String> {
    let endless = |kind: FileType| kind.is_char_device() || kind.is_block_device();
    let file = File::open(path)?;
    let about = file.metadata()?;
    if endless(about.file_type()) {
        return Err(io::Error::other("a device, not a file"));
    }
    let long =
        format!("longer than {} MiB; no such file that is accepted is that long", TEXT_MAX >> 20);
    let long = || io::Error::new(io::ErrorKind::FileTooLarge, long.clone());
    if about.len() > TEXT_MAX {
        return Err(long());
    }
    let mut bytes = Vec::with_capacity(about.len() as usize);
    file.take(TEXT_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > TEXT_MAX {
        return Err(long());
    }
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not text"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A folder that goes with the test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("files-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_file_is_replaced_and_stays_what_it_was() {
        let folder = Folder::new("replace");
        let (file, link) = (folder.0.join("below/a.json"), folder.0.join("link.json"));
        replace(&file, "old").unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        replace(&link, "new").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(replace(&folder.0, "x").is_err());
        assert!(replace(&file.join("x"), "x").is_err());
        replace(Path::new("/dev/null"), "x").unwrap();
        let left: Vec<_> = std::fs::read_dir(file.parent().unwrap()).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn what_has_no_end_is_not_read() {
        let folder = Folder::new("read");
        let long = folder.0.join("long");
        File::create(&long).unwrap().set_len(TEXT_MAX + 1).unwrap();
        let why = |path: &Path| read_text(path).unwrap_err().to_string();
        assert!(why(&long).contains("longer than 512 MiB"), "{}", why(&long));
        assert!(why(Path::new("/dev/zero")).contains("a device"));
        std::fs::write(&long, [0xff, 0xfe]).unwrap();
        assert_eq!(read_text(&long).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
