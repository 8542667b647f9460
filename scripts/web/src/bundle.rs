//! Compiles the explorer and writes `dist/`.

use crate::page::{self, Link, Names};
use crate::{Failure, sizes};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use wasm_bindgen_cli_support::Bindgen;

/// Lists what the last build wrote, below the fingerprint of what it was written from. It makes an
/// unchanged build a no-op, and lets a new one remove its own old files and nothing else
/// (`dist/demo/` belongs to `make demo`).
const MANIFEST: &str = ".bundle";

/// Builds and reports the sizes; writes nothing when nothing changed.
pub fn build(root: &Path) -> Result<(), Failure> {
    let compiled = compile(root)?;
    let text = fs::read_to_string(root.join("index.html"))?;
    let links = page::links(&text)?;
    let styles = links.iter().filter_map(|(_, link)| match link {
        Link::Css(path) => Some(path.as_str()),
        Link::App => None,
    });
    let styles = styles
        .map(|path| {
            fs::read(root.join(path)).map(|b| (path, b)).map_err(|e| format!("{path}: {e}"))
        })
        .collect::<Result<Vec<_>, _>>()?;

    let optimiser = find_on_path("wasm-opt");
    let mut seed = format!("{}{text}{optimiser:?}", env!("CARGO_PKG_VERSION")).into_bytes();
    seed.extend(fs::read(&compiled)?);
    styles.iter().for_each(|(_, bytes)| seed.extend(bytes));
    // This program is an input too: a new bundler may write other files from the same sources.
    seed.extend(fs::read(std::env::current_exe()?)?);
    let fingerprint = hash(&seed);

    let dist = root.join("dist");
    let (before, written) = read_manifest(&dist);
    if before == fingerprint && written.iter().all(|file| dist.join(file).is_file()) {
        println!("dist/ is up to date");
        return sizes::report(&dist, &written);
    }
    fs::create_dir_all(&dist)?;
    for file in &written {
        fs::remove_file(dist.join(file)).ok();
    }
    let mut bundle = Bundle { dist: &dist, files: Vec::new() };
    let (glue, wasm) = bundle.bind(&compiled, optimiser.as_deref())?;
    let mut css = Vec::new();
    for (path, bytes) in &styles {
        css.push(bundle.add_hashed(Path::new(path), bytes)?);
    }
    let page = page::render(&text, &links, &css, &Names { glue: &glue, wasm: &wasm });
    bundle.add(Path::new("index.html"), page.as_bytes())?;
    let list: Vec<String> = bundle.files.iter().map(|f| f.display().to_string()).collect();
    fs::write(dist.join(MANIFEST), format!("{fingerprint}\n{}\n", list.join("\n")))?;
    sizes::report(&dist, &bundle.files)
}

/// Runs cargo and returns the path of the compiled application.
fn compile(root: &Path) -> Result<PathBuf, Failure> {
    let cargo = std::env::var("PIPEWRIGHT_WEB_CARGO").unwrap_or_else(|_| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(root)
        .args(["build", "--locked", "-p", "pipewright-app", "--profile", "web"])
        .args(["--target", "wasm32-unknown-unknown", "--message-format=json-render-diagnostics"])
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err("the explorer does not compile".into());
    }
    // Ask cargo where the file is: the target folder may be configured anywhere.
    for line in String::from_utf8(output.stdout)?.lines() {
        let message: serde_json::Value = serde_json::from_str(line)?;
        let files = message["filenames"].as_array().into_iter().flatten();
        if let Some(file) = files.filter_map(|f| f.as_str()).find(|f| f.ends_with("/app.wasm")) {
            return Ok(PathBuf::from(file));
        }
    }
    Err("cargo built no app.wasm".into())
}

struct Bundle<'a> {
    dist: &'a Path,
    files: Vec<PathBuf>,
}

impl Bundle<'_> {
    fn add(&mut self, name: &Path, bytes: &[u8]) -> Result<(), Failure> {
        let path = self.dist.join(name);
        fs::create_dir_all(path.parent().ok_or("a file without folder")?)?;
        fs::write(path, bytes)?;
        self.files.push(name.to_path_buf());
        Ok(())
    }

    /// Adds a file under a name that changes with its content, so that no cache can serve an old
    /// one to a new page. Returns the name.
    fn add_hashed(&mut self, path: &Path, bytes: &[u8]) -> Result<String, Failure> {
        let (stem, extension) = (path.file_stem(), path.extension());
        let (Some(stem), Some(extension)) = (stem, extension) else {
            return Err(format!("{} has no extension", path.display()).into());
        };
        let (stem, extension) = (stem.to_string_lossy(), extension.to_string_lossy());
        let name = format!("{stem}-{}.{extension}", hash(bytes));
        self.add(Path::new(&name), bytes)?;
        Ok(name)
    }

    /// Runs wasm-bindgen (and wasm-opt where there is one); returns the names of glue and wasm.
    fn bind(&mut self, wasm: &Path, optimiser: Option<&Path>) -> Result<(String, String), Failure> {
        let work = wasm.with_extension("bindgen");
        fs::remove_dir_all(&work).ok();
        let mut bindgen = Bindgen::new();
        // The name section alone is half of the raw file.
        bindgen.input_path(wasm).typescript(false).web(true)?;
        bindgen.remove_name_section(true).remove_producers_section(true).generate(&work)?;
        let bound = work.join("app_bg.wasm");
        if let Some(optimiser) = optimiser {
            optimise(optimiser, &bound)?;
        }
        let wasm_name = self.add_hashed(&bound, &fs::read(&bound)?)?;
        let glue_name = self.add_hashed(Path::new("app.js"), &fs::read(work.join("app.js"))?)?;
        // The glue imports inline JavaScript of dependencies by this relative path.
        for file in files_below(&work.join("snippets"))? {
            let name = file.strip_prefix(&work)?.to_path_buf();
            self.add(&name, &fs::read(&file)?)?;
        }
        Ok((glue_name, wasm_name))
    }
}

/// wasm-opt gains 2 to 4 %: used where present. Never with `--all-features`: it would write imports
/// in a form that released browsers refuse. Without flags it reads what the file itself declares.
fn optimise(optimiser: &Path, wasm: &Path) -> Result<(), Failure> {
    let status = Command::new(optimiser).arg("-Oz").arg(wasm).arg("-o").arg(wasm).status()?;
    if status.success() { Ok(()) } else { Err(format!("wasm-opt: {status}").into()) }
}

fn find_on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
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

fn read_manifest(dist: &Path) -> (String, Vec<PathBuf>) {
    let text = fs::read_to_string(dist.join(MANIFEST)).unwrap_or_default();
    let mut lines = text.lines();
    let fingerprint = lines.next().unwrap_or_default().to_string();
    (fingerprint, lines.map(PathBuf::from).collect())
}

/// FNV-1a. Names files and detects changes; nobody gains by forging it.
fn hash(bytes: &[u8]) -> String {
    let mix = |h: u64, byte: &u8| (h ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    format!("{:016x}", bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix))
}
