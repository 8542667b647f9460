//! NCCL itself, as far as it goes without a GPU: it loads, makes ids, and refuses to connect with a
//! sentence.

use crate::common::{runner_in, scratch, small_plan, write};
use pipewright::tools;
use pipewright_core::plan::{Precision, Region};
use pipewright_core::units::Bytes;
use pipewright_runner::device::Rooted;
use pipewright_runner::device::cuda::nccl::{Api, Broken, Cuda, Seat, Stream, Wires};
use pipewright_runner::device::cuda::{Backend, Driver, gpus};
use pipewright_runner::transport::Collective;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::mpsc;
use std::time::Duration;

/// The library that `make setup` fetched; `None` where it is not there, which has been said.
fn library() -> Option<&'static Api> {
    static LOADED: OnceLock<Option<Api>> = OnceLock::new();
    let load = || {
        let versions = std::fs::read_dir(tools::root().join(".cache/nccl/lib")).ok()?;
        let file = |version: PathBuf| version.join("site-packages/nvidia/nccl/lib/libnccl.so.2");
        let mut files = versions.flatten().map(|version| file(version.path()));
        files.find(|file| file.exists()).map(|file| Api::load(&file).unwrap())
    };
    let library = LOADED.get_or_init(load).as_ref();
    if library.is_none() {
        // Where pip cannot download it nothing that could be installed would help.
        tools::refused("NCCL is not in .cache/nccl, where `make setup` puts it by pip");
    }
    library
}

#[test]
fn it_is_loaded() {
    let Some(api) = library() else { return };
    assert!(api.version >= Api::OLDEST, "{}", api.version());
    assert!(api.version().starts_with("2."), "{}", api.version());
}

#[test]
fn what_is_no_library_is_refused() {
    let error = Api::load(&tools::root().join("Cargo.toml")).err().unwrap();
    assert!(!error.is_empty());
    // A library, but another one.
    assert!(Api::load(&PathBuf::from("libc.so.6")).err().unwrap().contains("nccl"));
}

#[test]
fn ids_differ() {
    let Some(api) = library() else { return };
    match (api.id(), api.id()) {
        (Ok(one), Ok(other)) => assert_ne!(one, other),
        // Without a network that it can use it says so.
        (Err(Broken { why, .. }), _) | (_, Err(Broken { why, .. })) => {
            assert!(why.starts_with("NCCL cannot make an id: "), "{why}");
        }
    }
}

/// Two ranks that wait for each other without a GPU: neither a crash nor a wait.
#[test]
fn without_a_gpu_nobody_connects() {
    if gpus().is_ok() {
        return tools::refused("this machine has a GPU");
    }
    let Some(api) = library() else { return };
    let Ok(id) = api.id() else { return tools::refused("NCCL finds no network here") };
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let refused = api.begin(&id, 0, 2).and_then(|comm| {
            loop {
                if api.is_ready(comm)? {
                    return Ok(());
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let _ = tell.send(refused);
    });
    let refused = told.recv_timeout(Duration::from_secs(300)).expect("it says something");
    let Broken { why, .. } = refused.expect_err("there is no GPU");
    assert!(why.starts_with("NCCL cannot ") && why.len() > 20, "{why}");
}

/// A communicator of one rank: every call but those of two ranks, with the bytes that they leave. Sums of one
/// are what they were.
#[test]
fn a_rank_alone_on_a_gpu() {
    let Ok(gpus) = gpus() else { return tools::refused("this machine has no GPU") };
    let Some(api) = Api::of_system() else { panic!("NCCL is not on this machine") };
    let mut driver = Driver::open(&gpus[0]).unwrap();
    let arena = driver.allocate(1 << 20, "an arena").unwrap();
    let values: Vec<u8> = (0..1_u32 << 18).flat_map(|i| (i as f32).to_ne_bytes()).collect();
    driver.upload(arena, &values).unwrap();
    let mut wires = Cuda::new(api, driver.stream(), (arena, driver.marks()));
    let id = wires.id().unwrap();
    let comm = wires.begin(Seat { id: &id, line: 0, place: 0, ranks: &[0] }).unwrap();
    let ready = |wires: &mut Cuda, comm| while !wires.is_ready(comm).unwrap() {};
    ready(&mut wires, comm);
    let line = wires.stream().unwrap();
    let [before, after] = [(); 2].map(|()| wires.event().unwrap());
    wires.record(before, Stream::COMPUTES).unwrap();
    wires.wait(before, line).unwrap();
    let part = |at: u64| Region { offset: Bytes(at << 18), bytes: Bytes(1 << 18) };
    for call in [Collective::AllReduce, Collective::Reduce, Collective::Broadcast] {
        for precision in [Precision::F32, Precision::Bf16, Precision::F16] {
            let values = |parts: &[u64]| -> Vec<Rooted> {
                parts.iter().map(|at| Rooted { root: 0, region: part(*at) }).collect()
            };
            wires.join(comm, call, &values(&[0]), precision, line).unwrap();
            ready(&mut wires, comm);
            wires.join(comm, call, &values(&[1, 2]), precision, line).unwrap();
            ready(&mut wires, comm);
        }
    }
    wires.join_shards(comm, Collective::Reduce, &[part(1)], line).unwrap();
    ready(&mut wires, comm);
    wires.record(after, line).unwrap();
    wires.wait(after, Stream::COMPUTES).unwrap();
    let mut found = vec![0; values.len()];
    driver.download(arena, &mut found).unwrap();
    assert!(found == values && wires.is_idle(line).unwrap());
    wires.end(comm).unwrap();
    ready(&mut wires, comm);
    wires.free(comm);
    // Another one is given up.
    let id = wires.id().unwrap();
    let comm = wires.begin(Seat { id: &id, line: 1, place: 0, ranks: &[0] }).unwrap();
    ready(&mut wires, comm);
    wires.abort()();
}

#[test]
fn nccl_is_between_gpus() {
    let dir = scratch("nccl-refused");
    let plan = write(&dir, "plan.json", small_plan().to_json());
    let refused = runner_in(&dir, &[plan, "--transport", "nccl"]);
    refused.refused(2, "--transport nccl is between GPUs: add --device cuda");
    let refused = runner_in(&dir, &["plan.json", "--transport", "ipc"]);
    refused.refused(2, "--transport ipc is between ranks that share a GPU: add --device cuda");
    std::fs::remove_dir_all(dir).ok();
}
