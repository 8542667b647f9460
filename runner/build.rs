//! With the feature `explorer`: the page of `dist/` becomes a table of packed files in the program.
//! Without it the table is empty and `dist/` need not be there.

use flate2::Compression;
use flate2::write::GzEncoder;
use std::env;
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let mut table = String::new();
    if env::var_os("CARGO_FEATURE_EXPLORER").is_some() {
        let dist = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../dist");
        // What the bundler wrote, below the fingerprint of its sources: `dist/` may hold other things.
        let list = dist.join(".bundle");
        println!("cargo::rerun-if-changed={}", list.display());
        let list = fs::read_to_string(&list).map_err(|e| {
            format!("{}: {e}; the feature `explorer` needs the page: make web", list.display())
        })?;
        for (number, path) in list.lines().skip(1).enumerate() {
            let bytes = fs::read(dist.join(path)).map_err(|e| format!("dist/{path}: {e}"))?;
            let packed = out.join(format!("{number}.gz"));
            let mut gzip = GzEncoder::new(fs::File::create(&packed)?, Compression::best());
            gzip.write_all(&bytes)?;
            gzip.finish()?;
            writeln!(table, "Packed {{ path: {path:?}, bytes: include_bytes!({packed:?}) }},")?;
        }
    }
    fs::write(out.join("site.rs"), format!("static SITE: &[Packed] = &[{table}];"))?;
    Ok(())
}
