//! Common parts of the runner's integration tests: plans, and the program run with a time limit.

#![allow(dead_code, reason = "every test program uses a part of it")]

pub mod bits;
pub mod chains;
pub mod exchange_suite;
pub mod golden;
pub mod networks;
pub mod own_process;
pub mod ranks;
pub mod recompute;
pub mod tensor_groups;
pub mod transport_suite;

use pipewright_core::cost::Cluster;
use pipewright_core::graph::Graph;
use pipewright_core::graph::presets::Preset;
use pipewright_core::partition;
use pipewright_core::plan::{Data, Draft, Model, Plan};
use pipewright_core::schedule::ScheduleKind;
use pipewright_runner::checkpoint::Manifest;
use pipewright_runner::tensor_file::TensorFile;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The program under test.
pub const RUNNER: &str = env!("CARGO_BIN_EXE_runner");

/// No test waits longer; `timeout` then ends the program with 124.
pub const SECONDS_MAX: u32 = 1200;

/// The handwritten digits, wherever the program starts.
pub fn digits() -> Data {
    Data::Idx { dir: concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/digits").into() }
}

/// Few synthetic samples: what is tested does not depend on how many there are.
pub fn few_samples() -> Data {
    Data::Synthetic { train: 512, test: 8 }
}

/// A draft with as many layers in each stage.
pub fn draft(preset: Preset, stages: u32) -> Draft {
    let model = Model::Preset(preset);
    let cuts = partition::uniform(&model.graph().unwrap(), stages).unwrap();
    let mut draft = Draft::new(model, Cluster::preset("laptop").unwrap(), cuts);
    draft.data = few_samples();
    draft
}

/// A draft of any network with cuts anywhere: as many nodes in each stage.
pub fn draft_of(graph: Graph, stages: u32) -> Draft {
    let nodes = graph.nodes().len() as u32;
    let cuts = (1..stages).map(|i| (i * nodes / stages).max(i)).collect();
    let mut draft = Draft::new(Model::Graph(graph), Cluster::preset("laptop").unwrap(), cuts);
    draft.data = few_samples();
    draft
}

/// The smallest plan that trains: digits-cnn on the digits, two stages, a few steps.
pub fn small_plan() -> Plan {
    let mut draft = draft(Preset::DigitsCnn, 2);
    draft.data = digits();
    draft.steps = 5;
    draft.plan().unwrap().0
}

/// A run of the small plan on four ranks.
pub fn four_ranks(steps: u64) -> Plan {
    let mut draft = draft(Preset::DigitsCnn, 4);
    draft.schedule = ScheduleKind::GPipe;
    draft.data = digits();
    draft.steps = steps;
    draft.plan().unwrap().0
}

/// How the program ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// The lines with which the program says what is wrong.
    pub fn errors(&self) -> Vec<&str> {
        self.stderr.lines().filter(|line| line.starts_with("error: ")).collect()
    }

    /// It ended well.
    #[track_caller]
    pub fn done(&self) -> &Self {
        assert_eq!(self.code, Some(0), "{self:#?}");
        self
    }

    /// It ended with `code` and one error that contains `words`, and nothing panicked.
    #[track_caller]
    pub fn refused(&self, code: i32, words: &str) -> &Self {
        assert_eq!(self.code, Some(code), "wanted `{words}`: {self:#?}");
        assert!(!self.stderr.contains("panicked"), "{self:#?}");
        let [error] = self.errors()[..] else { panic!("one error is wanted: {self:#?}") };
        // clap spreads its errors over several lines.
        let text = if code == 2 { &self.stderr } else { error };
        assert!(text.contains(words), "wanted `{words}`: {self:#?}");
        self
    }
}

/// Runs the program in `dir`.
pub fn runner_in(dir: &Path, args: &[&str]) -> Ended {
    let output = Command::new("timeout")
        .args(["--kill-after=10", &SECONDS_MAX.to_string(), RUNNER])
        .args(args)
        .current_dir(dir)
        .stdin(Stdio::null())
        .output()
        .expect("`timeout` belongs to coreutils");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ended { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
}

/// Runs the program under mpirun in `dir`; `None` where there is no MPI, which has been said.
pub fn mpirun_in(dir: &Path, ranks: u32, args: &[&str]) -> Option<Ended> {
    let run = pipewright::mpirun::mpirun(ranks, Path::new(RUNNER), args, dir, SECONDS_MAX);
    let run = run.unwrap_or_else(|hang| panic!("{hang}"))?;
    Some(Ended { code: run.status.code(), stdout: run.stdout, stderr: run.stderr })
}

/// An empty folder for one test, whatever the names of others that run in this process.
pub fn scratch(name: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    pipewright::tools::scratch(&format!("{name}-{}", COUNT.fetch_add(1, Relaxed))).unwrap()
}

/// Writes a text into `dir` and returns its name there.
pub fn write<'a>(dir: &Path, name: &'a str, text: impl AsRef<[u8]>) -> &'a str {
    std::fs::write(dir.join(name), text).unwrap();
    name
}

/// `result.json` of a run.
pub fn result(out: &Path) -> serde_json::Value {
    let text = std::fs::read_to_string(out.join("result.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The losses of a run, as they are written: equal texts are equal bits.
pub fn losses(out: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(out.join("rank-000.jsonl")).unwrap();
    let loss = |line: &str| {
        let after = line.split_once("\"loss\":").expect("a loss in every line").1;
        after.split_once(',').expect("and something after it").0.to_owned()
    };
    text.lines().map(loss).collect()
}

/// Every tensor of a checkpoint by name, as bits.
pub fn tensors(folder: &Path) -> BTreeMap<String, Vec<u32>> {
    let mut all = BTreeMap::new();
    for file in Manifest::read(folder).unwrap().files {
        let file_of = TensorFile::open(&folder.join(&file.name)).unwrap();
        assert_eq!(file_of.names(), file.tensors, "{}", file.name);
        for name in file.tensors {
            let elements = file_of.shape(&name).unwrap().iter().product::<u64>();
            let mut values = vec![0.0; elements as usize];
            file_of.read(&name, &mut values).unwrap();
            let bits = values.iter().map(|value: &f32| value.to_bits()).collect();
            assert!(all.insert(name, bits).is_none(), "one tensor in two files");
        }
    }
    all
}
