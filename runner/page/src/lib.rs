//! Page of the explorer inside a program: the files of `dist/`, packed, behind the end of the
//! program's own file.
//!
//! A program does not care what follows its last byte, so nothing is compiled or linked again for the
//! page. `pipewright-web embed` writes it there, `runner explore` reads it:
//!
//! ```text
//! program | file | file | ... | bytes of all files: u64 | MARK
//!           \-- length of path: u32 | path | length of content: u32 | content, packed by gzip
//! ```
//!
//! Numbers are little-endian. Tools that write a program anew, such as `strip`, drop the page.

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Error, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// Lists the files of `dist/`, one a line, below a line with the fingerprint of what they were
/// written from: the folder may hold others.
pub const LIST: &str = ".bundle";

/// The last bytes of a program with a page.
const MARK: [u8; 16] = *b"pipewright page\n";

/// The mark and the length before it.
const TRAILER: u64 = MARK.len() as u64 + 8;

/// The files of a page, packed by gzip.
pub struct Page {
    files: BTreeMap<String, Vec<u8>>,
}

impl Page {
    /// The page in the file of a program; `None` where it has none.
    ///
    /// # Errors
    /// When the file cannot be read, or its page is broken.
    pub fn of(program: &Path) -> io::Result<Option<Self>> {
        let mut file = File::open(program)?;
        let Some(length) = length(&mut file)? else { return Ok(None) };
        let mut bytes = vec![];
        file.seek(SeekFrom::End(-((length + TRAILER) as i64)))?;
        file.take(length).read_to_end(&mut bytes)?;
        let (mut rest, mut files) = (bytes.as_slice(), BTreeMap::new());
        while !rest.is_empty() {
            let path = String::from_utf8(part(&mut rest)?.to_vec());
            files.insert(path.map_err(|_| broken())?, part(&mut rest)?.to_vec());
        }
        Ok(Some(Self { files }))
    }

    /// A file as gzip packed it, by its path below the page's folder, with slashes.
    pub fn packed(&self, path: &str) -> Option<&[u8]> {
        self.files.get(path).map(Vec::as_slice)
    }

    /// A file as it was.
    ///
    /// # Errors
    /// When it is not what gzip wrote.
    pub fn unpacked(&self, path: &str) -> Option<io::Result<Vec<u8>>> {
        let mut bytes = vec![];
        let packed = self.packed(path)?;
        Some(GzDecoder::new(packed).read_to_end(&mut bytes).map(|_| bytes))
    }
}

/// Puts the files of `dist` that its [`LIST`] names into a program, in place of the page that it has.
///
/// # Errors
/// When `dist` was not built, or a file cannot be read or written.
pub fn embed(program: &Path, dist: &Path) -> io::Result<()> {
    let mut source = File::open(program)?;
    let page = length(&mut source)?.map_or(0, |length| length + TRAILER);
    let own = source.metadata()?.len() - page;
    // A file beside it takes its place: cargo's own copy shares the old one's bytes, and a program
    // that runs cannot be written to.
    let new = program.with_extension("with-page");
    let mut out = File::create(&new)?;
    source.rewind()?;
    io::copy(&mut source.take(own), &mut out)?;
    let files = files(dist)?;
    out.write_all(&files)?;
    out.write_all(&(files.len() as u64).to_le_bytes())?;
    out.write_all(&MARK)?;
    fs::set_permissions(&new, fs::metadata(program)?.permissions())?;
    fs::rename(new, program)
}

/// The files of `dist`, packed, one behind the other.
fn files(dist: &Path) -> io::Result<Vec<u8>> {
    let read = |path: &str| {
        let file = dist.join(path);
        fs::read(&file).map_err(|e| Error::new(e.kind(), format!("{}: {e}", file.display())))
    };
    let list = String::from_utf8(read(LIST)?).map_err(|_| broken())?;
    let mut all = vec![];
    for path in list.lines().skip(1) {
        let mut gzip = GzEncoder::new(vec![], Compression::best());
        gzip.write_all(&read(path)?)?;
        for bytes in [path.as_bytes(), &gzip.finish()?] {
            let length = u32::try_from(bytes.len()).map_err(|_| broken())?;
            all.extend(length.to_le_bytes());
            all.extend(bytes);
        }
    }
    Ok(all)
}

/// How many bytes the files of the page have; `None` where there is no page.
fn length(program: &mut File) -> io::Result<Option<u64>> {
    let bytes = program.metadata()?.len();
    if bytes < TRAILER {
        return Ok(None);
    }
    let mut trailer = [0; TRAILER as usize];
    program.seek(SeekFrom::End(-(TRAILER as i64)))?;
    program.read_exact(&mut trailer)?;
    let Some(length) = trailer.strip_suffix(&MARK) else { return Ok(None) };
    let length = u64::from_le_bytes(length.try_into().map_err(|_| broken())?);
    if length > bytes - TRAILER { Err(broken()) } else { Ok(Some(length)) }
}

/// Takes a length and as many bytes off the front.
fn part<'a>(rest: &mut &'a [u8]) -> io::Result<&'a [u8]> {
    let (length, behind) = rest.split_first_chunk().ok_or_else(broken)?;
    let length = u32::from_le_bytes(*length) as usize;
    let (part, behind) = behind.split_at_checked(length).ok_or_else(broken)?;
    *rest = behind;
    Ok(part)
}

fn broken() -> Error {
    Error::new(ErrorKind::InvalidData, "the page in this program is broken; build it anew")
}

#[cfg(test)]
mod tests;
