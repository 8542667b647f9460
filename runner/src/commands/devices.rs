//! `runner devices`: what this machine computes with, and why not with the rest.

use crate::args::DevicesArgs;
use crate::device::cuda::{Gpu, Library, gpus};
use crate::execute::available_memory;
use crate::failure::{Code, Failure};
use pipewright_core::units::Bytes;
use serde::Serialize;

/// What was found.
#[derive(Debug, Serialize)]
struct Found {
    cpu: Cpu,
    gpus: Vec<Gpu>,
    /// Why there are no GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    no_gpu: Option<String>,
    libraries: Vec<LibraryFound>,
}

#[derive(Debug, Serialize)]
struct Cpu {
    name: String,
    cores: usize,
    instructions: &'static str,
    /// Memory that is left.
    free: Option<Bytes>,
}

#[derive(Debug, Serialize)]
struct LibraryFound {
    name: String,
    file: &'static str,
    version: Option<String>,
    /// Why it is not used although it is here.
    #[serde(skip_serializing_if = "Option::is_none")]
    unusable: Option<String>,
}

/// Runs the command.
pub fn devices(args: &DevicesArgs) -> Result<(), Failure> {
    let found = find();
    if args.json {
        say!("{}", serde_json::to_string_pretty(&found).expect("plain data"));
        return Ok(());
    }
    let Found { cpu, gpus, no_gpu, libraries } = &found;
    let free = cpu.free.map_or(String::new(), |free| format!(", {free} of memory left"));
    say!("cpu     {}: {} cores, {}{free}", cpu.name, cpu.cores, cpu.instructions);
    for gpu in gpus {
        let Gpu { index, name, architecture, memory, multiprocessors, .. } = gpu;
        let speed = match gpu.memory_bytes_per_sec {
            0.0 => String::new(),
            speed => format!(" at {:.0} GB/s", speed / 1e9),
        };
        let fp8 = if gpu.fp8 { ", products of fp8" } else { "" };
        say!(
            "cuda:{index}  {name}: {architecture}, {multiprocessors} multiprocessors, {memory}{speed}{fp8}"
        );
        if let Some(why) = &gpu.unusable {
            say!("        not usable: {why}");
        }
    }
    if let Some(why) = no_gpu {
        say!("cuda    none: {why}");
    }
    say!("");
    for LibraryFound { name, file, version, unusable } in libraries {
        let version = version.as_ref().map_or(format!("not found ({file})"), Clone::clone);
        let why = unusable.as_ref().map_or(String::new(), |why| format!(", not used: {why}"));
        say!("{name:<9} {version}{why}");
    }
    Ok(())
}

fn find() -> Found {
    let (gpus, no_gpu) = match gpus() {
        Ok(gpus) => (gpus, None),
        Err(why) => (vec![], Some(why.to_string())),
    };
    let library = |library: Library| LibraryFound {
        name: library.to_string(),
        file: library.file(),
        version: library.version(),
        unusable: library.unusable(),
    };
    Found { cpu: cpu(), gpus, no_gpu, libraries: Library::ALL.map(library).into() }
}

fn cpu() -> Cpu {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find(|line| line.starts_with("model name"));
    let name = name.and_then(|line| line.split_once(": ")).map_or("processor", |(_, name)| name);
    Cpu {
        name: name.trim().into(),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        instructions: instructions(),
        free: available_memory(),
    }
}

/// The widest that kernels are compiled for.
fn instructions() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        if std::arch::is_x86_feature_detected!("avx512f") {
            return "AVX-512";
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            return "AVX2";
        }
    }
    std::env::consts::ARCH
}

/// Refuses `--device cuda` where no GPU can be used.
///
/// # Errors
/// With the reason.
pub(super) fn usable_gpus() -> Result<Vec<Gpu>, Failure> {
    let refused = |why: &str| {
        let message = format!(
            "--device cuda: {why}. Leave it out to train on the processors; `runner devices` says \
             what was found"
        );
        Failure::new(Code::Hardware, message)
    };
    let all = gpus().map_err(|why| refused(&why.to_string()))?;
    let why = all.iter().find_map(|gpu| gpu.unusable.clone().map(|why| (gpu.name.clone(), why)));
    let usable: Vec<Gpu> = all.into_iter().filter(|gpu| gpu.unusable.is_none()).collect();
    match why.filter(|_| usable.is_empty()) {
        Some((name, why)) => Err(refused(&format!("{name}: {why}"))),
        None => Ok(usable),
    }
}
