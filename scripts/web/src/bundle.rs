//! Compiles the explorer and writes `dist/`.

use crate::bind::{bind, files_below};
use crate::compile::{APP, Care, METER, WORKER, compile};
use crate::optimise::Optimiser;
use crate::page::{self, Link, Names};
use crate::script::stripped;
use crate::{Failure, sizes};
use std::fs;
use std::path::{Path, PathBuf};

/// Lists what the last build wrote, below the fingerprint of what it was written from. It makes an
/// unchanged build a no-op, and lets a new one remove its own old files and nothing else
/// (`dist/demo/` belongs to `make demo`).
const MANIFEST: &str = pipewright_page::LIST;

/// The worker's script; it imports its glue from beside it.
const WORKER_SCRIPT: &str = "app/worker/worker.js";

/// The script that keeps the page for offline use.
const OFFLINE_SCRIPT: &str = "app/offline.js";
/// Its name beside the page, which is its scope.
const OFFLINE: &str = "sw.js";

/// What `dist/` is written from.
struct Sources {
    page: String,
    links: Vec<(usize, Link)>,
    /// Path and content of each file that is bundled as it is, in the page's order.
    files: Vec<(String, Vec<u8>)>,
    app: PathBuf,
    worker: PathBuf,
    worker_script: String,
    offline_script: String,
    optimiser: Option<Optimiser>,
}

/// Builds and reports the sizes; writes nothing when nothing changed. Budgets are for the page that
/// is published.
pub fn build(root: &Path, care: Care) -> Result<(), Failure> {
    if care == Care::Quick {
        println!(
            "A quick page: crates are optimised a little, each by itself; `make web` publishes"
        );
    }
    let sources = Sources::read(root, care)?;
    let fingerprint = sources.fingerprint()?;
    let dist = root.join("dist");
    let (before, written) = read_manifest(&dist);
    if before == fingerprint && written.iter().all(|file| dist.join(file).is_file()) {
        println!("dist/ is up to date");
        return sizes::report(&dist, &written, care);
    }
    fs::create_dir_all(&dist)?;
    for file in &written {
        fs::remove_file(dist.join(file)).ok();
        // Folders go with their last file; those that have others in them stay.
        file.ancestors().skip(1).take_while(|dir| dir.parent().is_some()).for_each(|dir| {
            fs::remove_dir(dist.join(dir)).ok();
        });
    }
    let mut bundle = Bundle { dist: &dist, files: Vec::new() };
    bundle.write(&sources)?;
    let list: Vec<String> = bundle.files.iter().map(|f| f.display().to_string()).collect();
    fs::write(dist.join(MANIFEST), format!("{fingerprint}\n{}\n", list.join("\n")))?;
    sizes::report(&dist, &bundle.files, care)
}

/// The page of [`METER`], on which tests call its functions.
const METER_PAGE: &str = "<!DOCTYPE html><title>meter</title><link rel=\"icon\" href=\"data:,\">\n";

/// Builds what tests measure. It stays in cargo's folder: nothing of it is published.
pub fn meter(root: &Path) -> Result<(), Failure> {
    let folder =
        bind(&compile(root, &METER, Care::Published)?, &METER, Optimiser::find()?.as_ref())?;
    fs::write(folder.join("index.html"), METER_PAGE)?;
    println!("{}", folder.display());
    Ok(())
}

impl Sources {
    fn read(root: &Path, care: Care) -> Result<Self, Failure> {
        let (app, worker) = (compile(root, &APP, care)?, compile(root, &WORKER, care)?);
        let page = fs::read_to_string(root.join("index.html"))?;
        let links = page::links(&page)?;
        let read = |path: &str| fs::read(root.join(path)).map_err(|e| format!("{path}: {e}"));
        let files = links.iter().filter_map(|(_, link)| link.file());
        let files = files.map(|path| read(path).map(|bytes| (path.to_string(), bytes)));
        let files = joined(files.collect::<Result<Vec<_>, _>>()?);
        let worker_script = String::from_utf8(read(WORKER_SCRIPT)?)?;
        let offline_script = String::from_utf8(read(OFFLINE_SCRIPT)?)?;
        let optimiser = if care == Care::Published { Optimiser::find()? } else { None };
        Ok(Self { page, links, files, app, worker, worker_script, offline_script, optimiser })
    }

    fn fingerprint(&self) -> Result<String, Failure> {
        let optimiser = self.optimiser.as_ref().map(Optimiser::name);
        let text = format!("{}{}{optimiser:?}", env!("CARGO_PKG_VERSION"), self.page);
        let mut seed = format!("{text}{}{}", self.worker_script, self.offline_script).into_bytes();
        seed.extend(fs::read(&self.app)?);
        seed.extend(fs::read(&self.worker)?);
        self.files.iter().for_each(|(_, bytes)| seed.extend(bytes));
        // This program is an input too: a new bundler may write other files from the same sources.
        seed.extend(fs::read(std::env::current_exe()?)?);
        Ok(hash(&seed))
    }
}

/// The style sheets as one, under the name of the first: one request, and smaller than one by one.
fn joined(files: Vec<(String, Vec<u8>)>) -> Vec<(String, Vec<u8>)> {
    let mut joined: Vec<(String, Vec<u8>)> = Vec::new();
    for (path, bytes) in files {
        let style = |(path, _): &&mut (String, Vec<u8>)| path.ends_with(".css");
        match joined.iter_mut().find(style).filter(|_| path.ends_with(".css")) {
            Some((_, all)) => all.extend(bytes),
            None => joined.push((path, bytes)),
        }
    }
    joined
}

struct Bundle<'a> {
    dist: &'a Path,
    files: Vec<PathBuf>,
}

impl Bundle<'_> {
    fn write(&mut self, sources: &Sources) -> Result<(), Failure> {
        let optimiser = sources.optimiser.as_ref();
        let app = self.add_folder("app", &bind(&sources.app, &APP, optimiser)?)?;
        let worker = bind(&sources.worker, &WORKER, optimiser)?;
        fs::write(worker.join("worker.js"), stripped(&sources.worker_script))?;
        let worker = self.add_folder("worker", &worker)?;
        let mut files = Vec::new();
        for (path, bytes) in &sources.files {
            files.push(self.add_hashed(Path::new(path), bytes)?);
        }
        let names = Names { app: &app, worker: &worker };
        let page = page::render(&sources.page, &sources.links, &files, &names);
        self.add(Path::new("index.html"), page::allow_own_scripts(&page)?.as_bytes())?;
        let script = offline(&sources.offline_script, &self.files, &hash(page.as_bytes()))?;
        self.add(Path::new(OFFLINE), script.as_bytes())
    }

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

    /// Adds all files of a folder, under one whose name changes with them. Returns the name.
    fn add_folder(&mut self, stem: &str, folder: &Path) -> Result<String, Failure> {
        let (mut files, mut seed) = (Vec::new(), Vec::new());
        for file in files_below(folder)? {
            let name = file.strip_prefix(folder)?.to_path_buf();
            let bytes = fs::read(&file)?;
            seed.extend(name.as_os_str().as_encoded_bytes());
            seed.extend(&bytes);
            files.push((name, bytes));
        }
        let name = format!("{stem}-{}", hash(&seed));
        for (file, bytes) in files {
            self.add(&Path::new(&name).join(file), &bytes)?;
        }
        Ok(name)
    }
}

fn read_manifest(dist: &Path) -> (String, Vec<PathBuf>) {
    let text = fs::read_to_string(dist.join(MANIFEST)).unwrap_or_default();
    let mut lines = text.lines();
    let fingerprint = lines.next().unwrap_or_default().to_string();
    (fingerprint, lines.map(PathBuf::from).collect())
}

/// The script that keeps these files, under a name that changes with the page.
fn offline(script: &str, files: &[PathBuf], version: &str) -> Result<String, Failure> {
    let list: Vec<String> =
        files.iter().map(|file| format!("{:?}", file.display().to_string())).collect();
    if !script.contains("\"FILES\"") || !script.contains("HASH") {
        return Err(format!("{OFFLINE_SCRIPT} has no place for the files' names").into());
    }
    Ok(script.replacen("\"FILES\"", &list.join(","), 1).replacen("HASH", version, 1))
}

/// FNV-1a. Names files and detects changes; nobody gains by forging it.
fn hash(bytes: &[u8]) -> String {
    let mix = |h: u64, byte: &u8| (h ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    format!("{:016x}", bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offline_script_names_every_file() {
        let files = ["index.html", "app-1/app.js"].map(PathBuf::from);
        let script = offline("k = 'p-HASH'; f = [\"FILES\"];", &files, "9").unwrap();
        assert_eq!(script, "k = 'p-9'; f = [\"index.html\",\"app-1/app.js\"];");
        assert!(offline("", &files, "9").is_err());
    }

    #[test]
    fn style_sheets_are_one_in_their_order() {
        let file = |path: &str, text: &str| (path.to_string(), text.as_bytes().to_vec());
        let files = [file("a/s.css", "1\n"), file("ja.json", "{}"), file("b/s.css", "2\n")];
        assert_eq!(joined(files.into()), [file("a/s.css", "1\n2\n"), file("ja.json", "{}")]);
    }
}
