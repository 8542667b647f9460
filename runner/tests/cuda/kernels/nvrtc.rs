//! NVRTC compiles every source for every architecture that is promised, with no GPU at hand. Its library stays
//! loaded, so that these tests have a process of their own. A pair of version and architecture takes a minute or
//! two of processor time: `make test` compiles by both versions, for the oldest architecture and for the newest, which
//! have every branch of the sources between them; `make gpu-check` all pairs.

use crate::common::own_process;
use pipewright::tools;
use pipewright_runner::device::cuda::Architecture;
use pipewright_runner::device::cuda::cache::Cache;
use pipewright_runner::device::cuda::compile::{CompileError, compile};
use pipewright_runner::device::cuda::kernels::Source;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A version of the library, where setup.sh put it, and what it is to compile for.
struct Nvrtc {
    cache: &'static str,
    package: &'static str,
    /// What looks for the other, which is looked for by its name alone.
    files: [&'static str; 2],
    architectures: &'static [(u32, u32)],
    /// The rest of what it is promised for, which takes `make gpu-check`.
    others: &'static [(u32, u32)],
}

/// The last that knows V100. A100 is 8.0, H100 and H200 9.0, B200 10.0.
const TWELVE: Nvrtc = Nvrtc {
    cache: "nvrtc",
    package: "cuda_nvrtc",
    files: ["libnvrtc.so.12", "libnvrtc-builtins.so.12.9"],
    architectures: &[(7, 0)],
    others: &[(8, 0), (9, 0), (10, 0)],
};

const THIRTEEN: Nvrtc = Nvrtc {
    cache: "nvrtc13",
    package: "cu13",
    files: ["libnvrtc.so.13", "libnvrtc-builtins.so.13.0"],
    architectures: &[(10, 0)],
    others: &[(7, 5), (8, 0), (9, 0)],
};

/// Where setup.sh put the libraries.
fn folder(nvrtc: &Nvrtc) -> Option<PathBuf> {
    let cache = tools::root().join(".cache").join(nvrtc.cache).join("lib");
    let versions = std::fs::read_dir(cache).ok()?;
    let below = Path::new("site-packages/nvidia").join(nvrtc.package).join("lib");
    let mut places = versions.flatten().map(|version| version.path().join(&below));
    places.find(|place| place.join(nvrtc.files[0]).exists())
}

/// Loads the libraries for as long as the process lives, so that they are found by their names from then
/// on; whether they are there, which is said if not.
fn is_there(nvrtc: &Nvrtc) -> bool {
    use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
    static LOADED: OnceLock<Option<[Library; 2]>> = OnceLock::new();
    let load = || {
        let folder = folder(nvrtc)?;
        let open = |name: &str| {
            // SAFETY: NVIDIA's libraries do nothing when they are loaded but set themselves up.
            unsafe { Library::open(Some(folder.join(name)), RTLD_NOW | RTLD_GLOBAL) }.ok()
        };
        let [library, builtins] = nvrtc.files;
        Some([open(builtins)?, open(library)?])
    };
    let is_there = LOADED.get_or_init(load).is_some();
    if !is_there {
        // Where pip cannot download it nothing that could be installed would help.
        let cache = nvrtc.cache;
        tools::refused(&format!(
            "NVRTC is not in .cache/{cache}, where `make setup` puts it by pip"
        ));
    }
    is_there
}

/// What was compiled before is found again: a minute is saved.
fn compile_all(nvrtc: &Nvrtc, architectures: &[(u32, u32)]) {
    if !own_process::is_own([]) || !is_there(nvrtc) {
        return;
    }
    let cache = Cache::at(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("cuda_cubins"));
    std::thread::scope(|scope| {
        for (major, minor) in architectures.iter().copied() {
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
fn every_source_by_version_12() {
    compile_all(&TWELVE, TWELVE.architectures);
}

#[test]
fn every_source_by_version_13() {
    compile_all(&THIRTEEN, THIRTEEN.architectures);
}

#[test]
#[ignore = "takes minutes; make gpu-check"]
fn other_architectures_by_version_12() {
    compile_all(&TWELVE, TWELVE.others);
}

#[test]
#[ignore = "takes minutes; make gpu-check"]
fn other_architectures_by_version_13() {
    compile_all(&THIRTEEN, THIRTEEN.others);
}

/// No source has more than one border between architectures, so that the oldest and the newest have every branch.
#[test]
fn sources_tell_two_kinds_of_architecture_apart() {
    let known = ["__CUDA_ARCH__ < 800", "__CUDA_ARCH__ >= 890"];
    let mut found = vec![];
    for source in Source::ALL {
        let text = source.text();
        let conditions: Vec<&str> = text.lines().filter(|l| l.contains("__CUDA_ARCH__")).collect();
        assert!(conditions.len() <= 1, "{source:?}: {conditions:?}");
        found.extend(conditions.iter().map(|line| line.replace("#if !defined(EMULATOR) && ", "")));
    }
    found.sort();
    found.dedup();
    assert_eq!(found, known);
}

/// Volta needs CUDA 12: version 13 says so.
#[test]
fn version_13_knows_no_volta() {
    if own_process::is_own([]) && is_there(&THIRTEEN) {
        let volta = Architecture { major: 7, minor: 0 };
        let refused = compile(Source::Product, volta).unwrap_err().to_string();
        assert!(refused.starts_with("NVRTC 13.0 compiles for sm_75, "), "{refused}");
        assert!(refused.ends_with("not for sm_70"), "{refused}");
    }
}

#[test]
fn what_cannot_be_compiled_for() {
    if own_process::is_own([]) && is_there(&TWELVE) {
        let old = Architecture { major: 1, minor: 3 };
        let refused = compile(Source::Product, old).unwrap_err();
        assert!(matches!(refused, CompileError::Architecture { .. }), "{refused}");
        assert!(refused.to_string().starts_with("NVRTC 12.9 compiles for sm_50, "), "{refused}");
    }
}
