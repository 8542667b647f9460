//! Optimisation of a finished wasm: wasm-opt where there is one, and dropping what only tools read.

use crate::Failure;
use crate::sections::{put, sections};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The oldest wasm-opt that leaves the page running: version 108, which Debian 12 and Ubuntu 24.04
/// have, mixes up the page's two tables.
const OLDEST: u32 = 111;

/// A wasm-opt that can be trusted.
pub struct Optimiser {
    program: PathBuf,
    version: u32,
}

impl Optimiser {
    /// The one on PATH, unless it is too old.
    pub fn find() -> Result<Option<Self>, Failure> {
        let Some(program) = find_on_path("wasm-opt") else { return Ok(None) };
        let said = Command::new(&program).arg("--version").output()?.stdout;
        let said = String::from_utf8_lossy(&said);
        let version = version(&said).ok_or_else(|| format!("wasm-opt --version says {said:?}"))?;
        if version < OLDEST {
            println!(
                "wasm-opt {version} is not used: {OLDEST} is the oldest that is known to work"
            );
            return Ok(None);
        }
        Ok(Some(Self { program, version }))
    }

    /// All that its output depends on.
    pub fn name(&self) -> String {
        format!("{} {}", self.program.display(), self.version)
    }

    /// Gains 1 to 4 %. Never with `--all-features`: it would write imports in a form that released
    /// browsers refuse. Without flags it reads what the file itself declares.
    pub fn run(&self, level: &str, wasm: &Path) -> Result<(), Failure> {
        let status =
            Command::new(&self.program).arg(level).arg(wasm).arg("-o").arg(wasm).status()?;
        if status.success() { Ok(()) } else { Err(format!("wasm-opt: {status}").into()) }
    }
}

/// The number in `wasm-opt version 108 (version_108)`.
fn version(said: &str) -> Option<u32> {
    said.split_whitespace().find_map(|word| word.parse().ok())
}

fn find_on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// The module without names, producers and the like: browsers ignore them, visitors download them.
pub fn without_custom_sections(wasm: &[u8]) -> Result<Vec<u8>, Failure> {
    let (header, found) = sections(wasm)?;
    let mut out = header.to_vec();
    found
        .into_iter()
        .filter(|(id, _)| *id != 0)
        .for_each(|(id, content)| put(&mut out, id, content));
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read() {
        assert_eq!(version("wasm-opt version 108\n"), Some(108));
        assert_eq!(version("wasm-opt version 132 (version_132)\n"), Some(132));
        assert_eq!(version("usage: wasm-opt"), None);
    }

    #[test]
    fn custom_sections_are_dropped_and_others_kept_to_the_byte() {
        let header = b"\0asm\x01\0\0\0";
        let long = [&[10, 0x81, 0x01][..], &[7; 129]].concat();
        let wasm = [header, &[1, 2, 8, 9][..], &[0, 3, 1, b'n', 5], &long, &[0, 1, 0]].concat();
        let kept = [header, &[1, 2, 8, 9][..], &long].concat();
        assert_eq!(without_custom_sections(&wasm).unwrap(), kept);
        for end in [4, 9, 11] {
            assert!(without_custom_sections(&wasm[..end]).is_err(), "cut off at {end}");
        }
        assert!(
            without_custom_sections(&[header, &[1, 0xff, 0xff, 0xff, 0xff, 0xff][..]].concat())
                .is_err()
        );
    }
}
