//! From a compiled wasm to a folder that a page can load.
//!
//! Functions marked `#[wasm_split]` become files of their own, **chunks**, that are fetched when one
//! of them is first called. Three tools follow each other:
//!
//! ```text
//! app.wasm --split--> main wasm --wasm-bindgen--> app_bg.wasm, app.js --\
//!             |                                                          wasm-opt --> the folder
//!             \----> chunks, __wasm_split.js (fetches and links them) --/
//! ```
//!
//! Glue, wasm, chunks and `__wasm_split.js` name each other, in a circle, so they keep their names
//! and it is the folder whose name changes with what is in it.

use crate::Failure;
use crate::compile::Target;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use wasm_bindgen_cli_support::Bindgen;
use wasm_split_cli_support::Options;

/// Writes everything that belongs to `wasm` into a folder beside it and returns the folder.
pub fn bind(wasm: &Path, target: &Target, optimiser: Option<&Path>) -> Result<PathBuf, Failure> {
    let folder = wasm.with_extension("bindgen");
    fs::remove_dir_all(&folder).ok();
    fs::create_dir_all(&folder)?;
    let stem = wasm.file_stem().ok_or("a wasm file without name")?.to_string_lossy();
    let split = target.splits.then(|| split(wasm, &stem, &folder)).transpose()?;
    let mut bindgen = Bindgen::new();
    bindgen.input_path(split.as_deref().unwrap_or(wasm)).out_name(&stem).typescript(false);
    // Chunks import the table of functions, which is one of the linker's exports.
    bindgen.web(true)?.keep_lld_exports(target.splits);
    // The glue finds its wasm beside itself.
    bindgen.omit_default_module_path(false);
    // The name section alone is half of the raw file.
    bindgen.remove_name_section(true).remove_producers_section(true).generate(&folder)?;
    for file in files_below(&folder)?.iter().filter(|f| f.extension().is_some_and(|e| e == "wasm"))
    {
        if let Some(program) = optimiser {
            optimise(program, target.optimise, file)?;
        }
        fs::write(file, without_custom_sections(&fs::read(file)?)?)?;
    }
    Ok(folder)
}

/// Writes the chunks into `folder` and the rest of `wasm` beside it; returns the path of that.
fn split(wasm: &Path, stem: &str, folder: &Path) -> Result<PathBuf, Failure> {
    let bytes = fs::read(wasm)?;
    let main = wasm.with_extension("main.wasm");
    let glue = format!("./{stem}.js");
    let mut options = Options::new(&bytes);
    options.output_dir = folder;
    options.main_out_path = &main;
    options.main_module = &glue;
    wasm_split_cli_support::transform(options).map_err(|e| format!("{}: {e:#}", wasm.display()))?;
    Ok(main)
}

/// wasm-opt gains 2 to 4 %: used where present. Never with `--all-features`: it would write imports
/// in a form that released browsers refuse. Without flags it reads what the file itself declares.
fn optimise(program: &Path, level: &str, wasm: &Path) -> Result<(), Failure> {
    let status = Command::new(program).arg(level).arg(wasm).arg("-o").arg(wasm).status()?;
    if status.success() { Ok(()) } else { Err(format!("wasm-opt: {status}").into()) }
}

/// The module without names, producers and the like: browsers ignore them, visitors download them.
fn without_custom_sections(wasm: &[u8]) -> Result<Vec<u8>, Failure> {
    let (header, mut rest) = wasm.split_at_checked(8).ok_or("a wasm file without header")?;
    let mut out = header.to_vec();
    while let Some(&id) = rest.first() {
        // A section is its number, its length in LEB128, its content.
        let (mut length, mut at) = (0_usize, 1);
        loop {
            let byte = *rest.get(at).filter(|_| at < 6).ok_or("a section without length")?;
            length |= usize::from(byte & 0x7f) << (7 * (at - 1));
            at += 1;
            if byte < 0x80 {
                break;
            }
        }
        let section = rest.split_at_checked(at + length).ok_or("a section that is cut off")?;
        if id != 0 {
            out.extend(section.0);
        }
        rest = section.1;
    }
    Ok(out)
}

/// All files of a folder and those in it, in the order of their paths.
pub fn files_below(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() { files.extend(files_below(&path)?) } else { files.push(path) }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

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
