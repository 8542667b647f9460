//! From a compiled wasm to glue and the wasm that it loads.

use crate::Failure;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use wasm_bindgen_cli_support::Bindgen;

/// A folder of what wasm-bindgen wrote.
pub struct Bound {
    folder: PathBuf,
    stem: String,
}

/// Runs wasm-bindgen beside `wasm`, and the optimiser, if any, with its level.
pub fn bind(wasm: &Path, optimiser: Option<(&Path, &str)>) -> Result<Bound, Failure> {
    let stem = wasm.file_stem().ok_or("a wasm file without name")?.to_string_lossy();
    let bound = Bound { folder: wasm.with_extension("bindgen"), stem: stem.into_owned() };
    fs::remove_dir_all(&bound.folder).ok();
    let mut bindgen = Bindgen::new();
    bindgen.input_path(wasm).typescript(false).web(true)?;
    // The name section alone is half of the raw file.
    bindgen.remove_name_section(true).remove_producers_section(true).generate(&bound.folder)?;
    if let Some((program, level)) = optimiser {
        optimise(program, level, &bound.wasm())?;
    }
    Ok(bound)
}

impl Bound {
    pub fn wasm(&self) -> PathBuf {
        self.folder.join(format!("{}_bg.wasm", self.stem))
    }

    pub fn glue(&self) -> PathBuf {
        self.folder.join(format!("{}.js", self.stem))
    }

    /// Inline JavaScript of dependencies, with the paths by which the glue imports it.
    pub fn snippets(&self) -> Result<Vec<(PathBuf, Vec<u8>)>, Failure> {
        let files = files_below(&self.folder.join("snippets"))?;
        let read = |file: PathBuf| -> Result<_, Failure> {
            Ok((file.strip_prefix(&self.folder)?.to_path_buf(), fs::read(&file)?))
        };
        files.into_iter().map(read).collect()
    }
}

/// wasm-opt gains 2 to 4 %: used where present. Never with `--all-features`: it would write imports
/// in a form that released browsers refuse. Without flags it reads what the file itself declares.
fn optimise(program: &Path, level: &str, wasm: &Path) -> Result<(), Failure> {
    let status = Command::new(program).arg(level).arg(wasm).arg("-o").arg(wasm).status()?;
    if status.success() { Ok(()) } else { Err(format!("wasm-opt: {status}").into()) }
}

fn files_below(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    if dir.is_dir() {
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            if path.is_dir() { files.extend(files_below(&path)?) } else { files.push(path) }
        }
    }
    files.sort();
    Ok(files)
}
