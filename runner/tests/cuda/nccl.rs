//! NCCL itself, as far as it goes without a GPU: it loads, makes ids, and refuses to connect with a
//! sentence.

use crate::common::{runner_in, scratch, small_plan, write};
use pipewright::tools;
use pipewright_runner::device::cuda::gpus;
use pipewright_runner::device::cuda::nccl::{Api, Broken};
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

#[test]
fn nccl_is_between_gpus() {
    let dir = scratch("nccl-refused");
    let plan = write(&dir, "plan.json", small_plan().to_json());
    let refused = runner_in(&dir, &[plan, "--transport", "nccl"]);
    refused.refused(2, "--transport nccl is between GPUs: add --device cuda");
    std::fs::remove_dir_all(dir).ok();
}
