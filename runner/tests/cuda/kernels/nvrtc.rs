//! NVRTC compiles every source for every architecture that is promised, with no GPU at hand. Its library stays
//! loaded, so that these tests have a process of their own.

use crate::common::own_process;
use pipewright::tools;
use pipewright_runner::device::cuda::Architecture;
use pipewright_runner::device::cuda::cache::Cache;
use pipewright_runner::device::cuda::compile::{CompileError, compile};
use pipewright_runner::device::cuda::kernels::Source;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// V100, A100, H100 and H200.
const ARCHITECTURES: [(u32, u32); 3] = [(7, 0), (8, 0), (9, 0)];

/// Where setup.sh put the libraries.
fn folder() -> Option<PathBuf> {
    let versions = std::fs::read_dir(tools::root().join(".cache/nvrtc/lib")).ok()?;
    let places = versions
        .flatten()
        .map(|version| version.path().join("site-packages/nvidia/cuda_nvrtc/lib"));
    places.into_iter().find(|place| place.join("libnvrtc.so.12").exists())
}

/// Loads the libraries for as long as the process lives, so that they are found by their names from then
/// on; whether they are there, which is said if not.
fn is_there() -> bool {
    use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
    static LOADED: OnceLock<Option<[Library; 2]>> = OnceLock::new();
    let load = || {
        let folder = folder()?;
        let open = |name: &str| {
            // SAFETY: NVIDIA's libraries do nothing when they are loaded but set themselves up.
            unsafe { Library::open(Some(folder.join(name)), RTLD_NOW | RTLD_GLOBAL) }.ok()
        };
        // The second looks for the first by its name alone.
        Some([open("libnvrtc-builtins.so.12.9")?, open("libnvrtc.so.12")?])
    };
    let is_there = LOADED.get_or_init(load).is_some();
    if !is_there {
        // Where pip cannot download it nothing that could be installed would help.
        tools::refused("NVRTC is not in .cache/nvrtc, where `make setup` puts it by pip");
    }
    is_there
}

/// What was compiled before is found again: a minute is saved.
#[test]
fn every_source_for_every_architecture() {
    if !own_process::is_own([]) || !is_there() {
        return;
    }
    let cache = Cache::at(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("cuda_cubins"));
    std::thread::scope(|scope| {
        for (major, minor) in ARCHITECTURES {
            let cache = &cache;
            scope.spawn(move || {
                for source in Source::ALL {
                    let architecture = Architecture { major, minor };
                    let code = cache.get(source, architecture).unwrap_or_else(|e| panic!("{e}"));
                    assert!(code.starts_with(b"\x7fELF"), "{source:?} for {architecture}");
                    for kernel in source.kernels() {
                        let name = kernel.as_bytes();
                        let is_in = code.windows(name.len()).any(|window| window == name);
                        assert!(is_in, "no {kernel} in {source:?} for {architecture}");
                    }
                }
            });
        }
    });
}

#[test]
fn what_cannot_be_compiled_for() {
    if own_process::is_own([]) && is_there() {
        let old = Architecture { major: 1, minor: 3 };
        let refused = compile(Source::Product, old).unwrap_err();
        assert!(matches!(refused, CompileError::Architecture { .. }), "{refused}");
        assert!(refused.to_string().starts_with("NVRTC 12.9 compiles for sm_50, "), "{refused}");
    }
}
