//! Kernels compiled for the processor: one library a source, loaded once.

use pipewright::tools;
use pipewright_runner::device::cuda::kernels::{Launch, Source};
use std::ffi::{CStr, c_char};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Compilers, the first of which that is there is taken.
const COMPILERS: [&str; 3] = ["clang++", "g++", "c++"];

const FLAGS: [&str; 9] = [
    "-std=c++17",
    "-O2",
    "-shared",
    "-fPIC",
    "-w",
    "-DEMULATOR",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-U_FORTIFY_SOURCE", // its longjmp refuses to go to another stack
];

#[repr(C)]
#[derive(Clone, Copy)]
struct Dim(u32, u32, u32);

type Entry = unsafe extern "C" fn(Dim, Dim, u32, *const u8) -> *const c_char;

fn compiler() -> Option<&'static str> {
    static FOUND: OnceLock<Option<&str>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let runs = |name: &&str| Command::new(name).arg("--version").output().is_ok();
        COMPILERS.into_iter().find(runs)
    })
}

/// Whether kernels can be compiled here; says so if not.
pub fn is_there() -> bool {
    if compiler().is_none() {
        tools::skip("compiler of C++");
    }
    compiler().is_some()
}

/// The library of a source.
pub fn library(source: Source) -> &'static libloading::Library {
    static LIBRARIES: [OnceLock<libloading::Library>; Source::ALL.len()] =
        [const { OnceLock::new() }; Source::ALL.len()];
    LIBRARIES[source as usize].get_or_init(|| {
        let path = compiled(source);
        // SAFETY: the library has no code that runs when it is loaded but constructors of containers.
        unsafe { libloading::Library::new(&path) }.expect("the library loads")
    })
}

fn compiled(source: Source) -> PathBuf {
    let text = format!("#include \"emulator.h\"\n{}", source.text());
    build(&source.file().replace(".cu", ""), &text, &[])
}

/// Compiles a library unless the same one was compiled before. Several processes may do so at a time: the
/// file is complete when it has its name.
pub fn build(stem: &str, text: &str, more: &[&str]) -> PathBuf {
    let header = include_str!("emulator.h");
    let mut hasher = DefaultHasher::new();
    (compiler(), FLAGS, more, header, text).hash(&mut hasher);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cuda_emulator");
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join(format!("{stem}-{:016x}.so", hasher.finish()));
    if path.exists() {
        return path;
    }
    let own = |end: &str| folder.join(format!("{stem}-{}.{end}", std::process::id()));
    let (code, made) = (own("cpp"), own("so"));
    std::fs::write(&code, text).expect("the source is written");
    let output = Command::new(compiler().expect("a compiler"))
        .args(FLAGS)
        .args(more)
        .args(["-I", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cuda"), "-o"])
        .args([&made, &code])
        .output()
        .expect("the compiler starts");
    std::fs::remove_file(&code).ok();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::rename(&made, &path).expect("the library gets its name");
    path
}

/// Runs a launch to its end.
///
/// # Panics
/// When the kernel waits for what never comes.
pub fn run(launch: &Launch) {
    let library = library(launch.source);
    let [x, y, z] = launch.grid;
    // SAFETY: entry points have this type, by the macro that makes them, and `args` the struct that
    // they expect, which `arguments` checks.
    let error = unsafe {
        let entry = library.get::<Entry>(launch.kernel.as_bytes()).expect("the kernel exists");
        entry(Dim(x, y, z), Dim(launch.block, 1, 1), launch.shared, launch.args.as_ptr())
    };
    if !error.is_null() {
        // SAFETY: errors are constant strings.
        let error = unsafe { CStr::from_ptr(error) };
        panic!("{}: {}", launch.kernel, error.to_string_lossy());
    }
}

/// The size of a kernel's argument in C.
pub fn size(source: Source, kernel: &str) -> usize {
    // SAFETY: the macro that makes an entry point makes this constant too.
    let size = unsafe { library(source).get::<*const u32>(format!("{kernel}_size").as_bytes()) };
    // SAFETY: it lives as long as the library.
    unsafe { **size.expect("the kernel exists") as usize }
}
