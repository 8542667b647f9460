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
//! Chunks that several others share are then packed together, see `pack`.
//!
//! Glue, wasm, chunks and `__wasm_split.js` name each other, in a circle, so they keep their names
//! and it is the folder whose name changes with what is in it.

use crate::Failure;
use crate::compile::Target;
use crate::optimise::{Optimiser, without_custom_sections};
use crate::pack::pack;
use crate::script::stripped;
use crate::unused::without_unused;
use std::fs;
use std::path::{Path, PathBuf};
use wasm_bindgen_cli_support::Bindgen;
use wasm_split_cli_support::Options;

/// Writes everything that belongs to `wasm` into a folder beside it and returns the folder.
pub fn bind(
    wasm: &Path,
    target: &Target,
    optimiser: Option<&Optimiser>,
) -> Result<PathBuf, Failure> {
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
        if let Some(optimiser) = optimiser {
            optimiser.run(target.optimise, file)?;
        }
        fs::write(file, without_custom_sections(&fs::read(file)?)?)?;
    }
    if target.splits {
        pack(&folder)?;
    }
    for file in files_below(&folder)?.iter().filter(|f| f.extension().is_some_and(|e| e == "js")) {
        fs::write(file, stripped(&fs::read_to_string(file)?))?;
    }
    Ok(folder)
}

/// Writes the chunks into `folder` and the rest of `wasm` beside it; returns the path of that.
fn split(wasm: &Path, stem: &str, folder: &Path) -> Result<PathBuf, Failure> {
    let bytes = without_unused(&fs::read(wasm)?)?;
    let main = wasm.with_extension("main.wasm");
    let glue = format!("./{stem}.js");
    let mut options = Options::new(&bytes);
    options.output_dir = folder;
    options.main_out_path = &main;
    options.main_module = &glue;
    wasm_split_cli_support::transform(options).map_err(|e| {
        let advice = "If lld 14 linked it: remove .cache/web-toolchain and run `make setup`";
        format!("{} cannot be split: {e:#}. {advice}", wasm.display())
    })?;
    Ok(main)
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
