//! A pipeline whose stages do not fit the memory of their devices trains within it: planned on the
//! command line, run by processes, bit for bit the training of the plan with all the memory in the
//! world.

use crate::common::{Ended, few_samples, mpirun_in, result, runner_in, scratch, write};
use pipewright_core::ids::StageId;
use pipewright_core::plan::Plan;
use pipewright_core::predict::{Prediction, predict};
use std::path::Path;

/// Lanes of the pipelines, under 1F1B with 8 micro-batches.
const LANES: usize = 4;

/// A network, how it is cut, and the memory of a device: less than some lanes take, more than the
/// last one takes, of which a micro-batch is in flight.
struct RecomputeCase {
    name: &'static str,
    model: &'static str,
    cuts: &'static str,
    mini_batch: &'static str,
    momentum: &'static str,
    memory: &'static str,
}

impl RecomputeCase {
    /// Plans on the command line, with more arguments.
    fn plans(&self, dir: &Path, more: &[&str]) -> Ended {
        let network = ["plan", "--model", self.model, "--cuts", self.cuts, "--schedule", "1f1b"];
        let sizes = ["--micro-batches", "8", "--mini-batch", self.mini_batch, "--steps", "2"];
        let training = ["--momentum", self.momentum];
        runner_in(dir, &[&network[..], &sizes, &training, more].concat())
    }

    /// A plan file, written again with few samples to test.
    fn plan(&self, dir: &Path, more: &[&str], file: &str) -> Plan {
        self.plans(dir, &[&["-o", file], more].concat()).done();
        let text = std::fs::read_to_string(dir.join(file)).unwrap();
        let plan = Plan { data: few_samples(), ..Plan::from_json(&text).unwrap() };
        write(dir, file, plan.to_json());
        plan
    }

    /// Trains both plans; what the one that recomputes predicts, for more questions.
    fn trains_the_same(&self) -> Prediction {
        let dir = scratch(&format!("in-memory-{}", self.name));
        let roomy = self.plan(&dir, &[], "roomy.json");
        let memory = ["--memory", self.memory];
        let without = self.plans(&dir, &[&memory[..], &["--recompute", "none"]].concat());
        without.refused(4, "lane 0 needs ");
        let tight = self.plan(&dir, &memory, "tight.json");
        assert!(roomy.recompute.is_empty() && tight.recompute.len() == LANES);
        let prediction = predict(&tight).unwrap();
        for (lane, program) in prediction.programs.iter().enumerate() {
            let most = tight.cluster.device.memory;
            assert!(program.arena <= most, "lane {lane}: {} of {most}", program.arena);
            // Of 1F1B: the first lane holds as many micro-batches as there are lanes, the last one.
            assert_eq!(program.stages[0].slots.count as usize, LANES - lane);
        }
        for file in ["roomy", "tight"] {
            let plan = format!("{file}.json");
            let args = [&plan, "--out", file, "--save-every", "0"];
            let Some(ended) = mpirun_in(&dir, LANES as u32, &args) else { return prediction };
            ended.done();
        }
        // What ranks report that they allocated is what was planned, hence within the memory.
        let planned: Vec<u64> = prediction.programs.iter().map(|program| program.arena.0).collect();
        assert_eq!(result(&dir.join("tight"))["arena"], serde_json::json!(planned));
        same_files(&dir.join("roomy/checkpoints/step-2"), &dir.join("tight/checkpoints/step-2"));
        std::fs::remove_dir_all(dir).ok();
        prediction
    }
}

/// Two folders hold files of the same names and bytes.
fn same_files(a: &Path, b: &Path) {
    let names = |folder: &Path| {
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name());
        let mut names: Vec<_> = files.collect();
        names.sort();
        names
    };
    assert_eq!(names(a), names(b));
    // A file a stage, and the manifest.
    assert_eq!(names(a).len(), LANES + 1);
    for name in names(a) {
        let bytes = |folder: &Path| std::fs::read(folder.join(&name)).unwrap();
        assert!(bytes(a) == bytes(b), "{name:?} differs");
    }
}

/// Equal stages: what each can keep of a micro-batch follows from how many of them it holds, and so
/// does what it computes again.
#[test]
fn a_transformer() {
    let case = RecomputeCase {
        name: "transformer",
        model: "transformer:layers=8,hidden=64,heads=4,sequence=64,vocabulary=99",
        cuts: "h.2,h.4,h.6",
        mini_batch: "32",
        momentum: "0.9",
        memory: "4700KiB",
    };
    let prediction = case.trains_the_same();
    let again = |lane: u32| prediction.again(StageId(lane)).1;
    let again = [0, 1, 2, 3].map(again);
    assert!(again[0] > again[1] && again[1] > again[2] && again[2] > again[3], "{again:?}");
    assert_eq!(again[3].0, 0, "the last one fits");
    let kept = |lane: usize| prediction.programs[lane].stages[0].slots.bytes;
    let kept = [0, 1, 2, 3].map(kept);
    assert!(kept[0] < kept[1] && kept[1] < kept[2] && kept[2] < kept[3], "{kept:?}");
}

/// Unequal stages, batch normalisation: running statistics are part of the checkpoint.
#[test]
fn resnet50() {
    let case = RecomputeCase {
        name: "resnet50",
        model: "resnet50:64",
        cuts: "layer2.1,layer3.2,layer4.1",
        mini_batch: "64",
        // Most of the last lane's memory are its parameters.
        momentum: "0",
        memory: "94MiB",
    };
    let prediction = case.trains_the_same();
    let again = [0, 1, 2, 3].map(|stage| prediction.again(StageId(stage)).0);
    assert!(again[0] > 0 && again[1] == 0 && again[2] > 0 && again[3] == 0, "{again:?}");
}
