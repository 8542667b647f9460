//! Mixtures of experts: what PyTorch makes of the same network, with any number of micro-batches; the same bits
//! whatever the stages; the same losses with experts divided among tensor groups.

use super::sequence_parallel::sliced;
use super::tensor_parallel::{alone, base, close, numbers, run, with};
use crate::common::bits::Trained;
use crate::common::recompute::{at_random, recomputing};
use crate::common::{draft_of, networks, runner_in, scratch};
use pipewright_core::graph::{Graph, GraphBuilder, Op};
use pipewright_core::plan::{Draft, Precision};
use pipewright_core::schedule::ScheduleKind;
use pipewright_runner::tensor_file::TensorFile;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Of PyTorch's numbers.
const GOLDEN: f64 = 1e-4;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/golden/moe").join(name)
}

fn tensor(path: &Path, name: &str) -> Vec<f32> {
    let file = TensorFile::open(path).unwrap();
    let elements = file.shape(name).unwrap().iter().product::<u64>();
    let mut values = vec![0.0; elements as usize];
    file.read(name, &mut values).unwrap();
    values
}

/// Every element within a part of the largest.
#[track_caller]
fn near(what: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let most = expected.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    for (found, expected) in found.iter().zip(expected) {
        let off = f64::from((found - expected).abs());
        assert!(off <= GOLDEN * f64::from(most), "{what}: {found} instead of {expected}");
    }
}

/// One of the networks that `scripts/moe_fixture.py` wrote.
struct Golden {
    folder: PathBuf,
    told: Value,
}

impl Golden {
    fn open(name: &str) -> Self {
        let folder = fixture(name);
        let told = std::fs::read_to_string(folder.join("expected.json")).unwrap();
        Self { folder, told: serde_json::from_str(&told).unwrap() }
    }

    fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// Plans, and runs from PyTorch's weights; the arguments say how.
    fn train(&self, dir: &Path, [stages, micro_batches, rate, steps]: [&str; 4]) -> Vec<f64> {
        let (data, optimizer) = (
            format!("safetensors:{}", self.file("data.safetensors")),
            format!("sgd:lr={rate},momentum=0"),
        );
        let model = self.told["model"].as_str().unwrap();
        let args = [
            "plan",
            "--model",
            model,
            "--stages",
            stages,
            "--replicas",
            "1",
            "--split",
            "balanced",
        ];
        let schedule =
            ["--schedule", "1f1b", "--micro-batches", micro_batches, "--mini-batch", "8"];
        let more =
            ["--steps", steps, "--optimizer", &optimizer, "--data", &data, "-o", "plan.json"];
        runner_in(dir, &[&args[..], &schedule, &more].concat()).done();
        let weights = self.file("weights.safetensors");
        let out = ["--out", "run", "--overwrite", "--save-every", "0", "--no-eval"];
        runner_in(dir, &[&["plan.json", "--weights", &weights][..], &out].concat()).done();
        numbers(&dir.join("run"))
    }
}

#[test]
fn losses_logits_and_all_gradients_are_pytorchs() {
    let dir = scratch("experts-golden");
    for name in ["mixtral", "switch"] {
        let golden = Golden::open(name);
        assert!(golden.told["dropped"].as_u64().unwrap() > 0, "some tokens find no row");
        let expected: Vec<f64> = serde_json::from_value(golden.told["losses"].clone()).unwrap();
        let rate = golden.told["rate"].to_string();
        for how in [["1", "1"], ["1", "4"], ["3", "8"], ["2", "2"]] {
            let losses = golden.train(&dir, [how[0], how[1], &rate, &expected.len().to_string()]);
            assert_eq!(losses.len(), expected.len());
            for (found, expected) in losses.iter().zip(&expected) {
                let off = (found / expected - 1.0).abs();
                assert!(off < GOLDEN / 10.0, "{name}, {how:?}: {found} instead of {expected}");
            }
        }
        let weights = golden.file("weights.safetensors");
        let data = format!("safetensors:{}", golden.file("data.safetensors"));
        let args = ["predict", "plan.json", "--weights", &weights, "--data", &data];
        runner_in(&dir, &[&args[..], &["-o", "y.safetensors"]].concat()).done();
        let theirs = tensor(&golden.folder.join("logits.safetensors"), "y");
        near(&format!("{name}, logits"), &tensor(&dir.join("y.safetensors"), "y"), &theirs);
        // What a step takes away of a weight is its gradient so many times.
        golden.train(&dir, ["2", "2", "16", "1"]);
        let trained =
            ["export", "--weights", "run", "trained.safetensors", "--format", "pipewright"];
        runner_in(&dir, &trained).done();
        let theirs = golden.folder.join("gradients.safetensors");
        let names = TensorFile::open(&theirs).unwrap().names();
        assert!(names.iter().any(|name| name.ends_with("router.weight")), "{names:?}");
        for name in names {
            let (before, after) = (
                tensor(&golden.folder.join("weights.safetensors"), &name),
                tensor(&dir.join("trained.safetensors"), &name),
            );
            let steps = before.iter().zip(&after).map(|(before, after)| (before - after) / 16.0);
            near(&name, &steps.collect::<Vec<_>>(), &tensor(&theirs, &name));
        }
    }
    std::fs::remove_dir_all(dir).ok();
}

/// Checkpoints as the hub has them, with a matrix for each expert: weights there and back, and the logits that a module
/// after the published one gives.
#[test]
fn networks_of_config_json_with_experts() {
    let dir = scratch("experts-hf");
    for name in ["hf/mixtral", "hf/qwen3_moe"] {
        let folder = fixture(name);
        let file = |name: &str| folder.join(name).display().to_string();
        let (model, weights) = (format!("hf:{}", file("config.json")), file("model.safetensors"));
        let args =
            ["plan", "--model", &model, "--size", "sequence=6", "--stages", "2", "--replicas", "1"];
        let steps =
            ["--schedule", "gpipe", "--micro-batches", "2", "--mini-batch", "4", "--steps", "1"];
        let more =
            ["--split", "balanced", "--optimizer", "sgd:lr=1e-30,momentum=0", "-o", "plan.json"];
        runner_in(&dir, &[&args[..], &steps, &more].concat()).done();
        let theirs = tensor(&folder.join("logits.safetensors"), "y");
        let data = format!("safetensors:{}", file("logits.safetensors"));
        let logits = |weights: &str| {
            let args = ["predict", "plan.json", "--weights", weights, "--data", &data];
            runner_in(&dir, &[&args[..], &["-o", "y.safetensors"]].concat()).done();
            tensor(&dir.join("y.safetensors"), "y")
        };
        near(name, &logits(&weights), &theirs);
        let out = ["--out", "run", "--overwrite", "--save-every", "0", "--no-eval"];
        runner_in(&dir, &[&["plan.json", "--weights", &weights][..], &out].concat()).done();
        runner_in(&dir, &["export", "--weights", "run", "back.safetensors", "--format", "hf"])
            .done();
        let back = dir.join("back.safetensors");
        let names = TensorFile::open(&folder.join("model.safetensors")).unwrap().names();
        let sorted = |mut names: Vec<String>| {
            names.sort();
            names
        };
        let given = TensorFile::open(&back).unwrap().names();
        assert_eq!(sorted(given), sorted(names.clone()), "{name}");
        for tensor_name in names {
            let own = tensor(&folder.join("model.safetensors"), &tensor_name);
            assert_eq!(tensor(&back, &tensor_name), own, "{name}: {tensor_name}");
        }
        near(name, &logits("back.safetensors"), &theirs);
    }
    std::fs::remove_dir_all(dir).ok();
}

#[test]
fn pipelines_have_the_bits_of_one_stage() {
    let dir = scratch("experts-bits");
    for precision in [Precision::F32, Precision::Bf16] {
        let plan = |stages, kind, cuts: Option<u32>| {
            let mut draft = draft_of(networks::experts(), stages);
            (draft.schedule, draft.steps) = (kind, 6);
            (draft.mini_batch, draft.micro_batches) = (16, 4);
            draft.optimizer = "adamw:lr=0.003".parse().unwrap();
            draft.training.precision = precision;
            draft.cuts = cuts.map_or(draft.cuts, |cut| vec![cut]);
            draft.plan().unwrap().0
        };
        let whole = plan(1, ScheduleKind::OneFOneB, None);
        let expected = Trained::over_threads(&dir, &whole);
        let again = recomputing(&whole, at_random(5));
        Trained::over_threads(&dir, &again).is("with repetitions", &expected);
        for kind in
            [ScheduleKind::OneFOneB, ScheduleKind::ZbH1, ScheduleKind::Interleaved { chunks: 2 }]
        {
            let found = Trained::over_threads(&dir, &plan(4, kind, None));
            found.is(&format!("{kind}, {precision:?}"), &expected);
        }
        if precision == Precision::F32 {
            let by_mpi = Trained::over_mpi(&dir, &plan(4, ScheduleKind::ZbH1, None));
            by_mpi.inspect(|found| found.is("mpirun", &expected));
            // Shares and rows sent apart, between all operations of a mixture.
            let shares = named(&networks::experts(), "two.moe.shares");
            for cut in shares..shares + 8 {
                let found = Trained::over_threads(&dir, &plan(2, ScheduleKind::ZbH1, Some(cut)));
                found.is(&format!("cut at {cut}"), &expected);
            }
        }
    }
    std::fs::remove_dir_all(dir).ok();
}

fn named(graph: &Graph, name: &str) -> u32 {
    graph.nodes().iter().position(|node| node.name == name).unwrap() as u32
}

const GATED: &str = "transformer:layers=2,hidden=64,heads=8,kv=4,ffn=96,sequence=16,vocabulary=97,gated,\
                     experts=8,top_k=2,capacity=1.25";
const PLAIN: &str = "transformer:layers=2,hidden=64,heads=8,sequence=16,vocabulary=97,tied,\
                     experts=4,top_k=1,capacity=1";

#[test]
fn divided_experts_train_what_one_rank_trains() {
    for (name, preset) in [("gated", GATED), ("plain", PLAIN)] {
        let dir = scratch(&format!("experts-{name}"));
        // Under others two experts may be alike but for rounding, and a token go to another one.
        let seeded = |draft| Draft { seed: 2, ..draft };
        let lone = alone(&dir, "lone", seeded(base(preset, 1)));
        let one = ScheduleKind::OneFOneB;
        for (what, draft) in [
            ("t2", with(preset, 1, 2, 1, one)),
            ("t4", with(preset, 1, 4, 1, one)),
            ("s2", sliced(preset, 1, 2, 1, one)),
            ("s4", sliced(preset, 1, 4, 1, one)),
            ("mesh", with(preset, 2, 2, 2, ScheduleKind::ZbH1)),
            ("mesh-sliced", sliced(preset, 2, 2, 2, ScheduleKind::OneFOneB)),
        ] {
            let plan = seeded(draft).plan().unwrap().0;
            close(&format!("{name}, {what}"), &run(&dir, what, &plan), &lone);
        }
        std::fs::remove_dir_all(dir).ok();
    }
}

/// Cuts between all operations of a mixture, whose shares and rows go to another stage of the same groups.
#[test]
fn pipelines_of_divided_experts_have_the_bits_of_one_stage() {
    let dir = scratch("experts-divided-bits");
    let drafts: [fn() -> Draft; 2] = [
        || with(GATED, 1, 2, 1, ScheduleKind::OneFOneB),
        || sliced(GATED, 1, 2, 1, ScheduleKind::ZbH1),
    ];
    for draft in drafts {
        let of = |cuts: Vec<u32>| {
            let mut draft = draft();
            (draft.cuts, draft.steps) = (cuts, 5);
            draft.plan().unwrap()
        };
        let (whole, prediction) = of(vec![]);
        let expected = Trained::over_threads(&dir, &whole);
        let again = recomputing(&whole, at_random(2));
        Trained::over_threads(&dir, &again).is("with repetitions", &expected);
        let router = named(&prediction.graph, "h.1.moe.router");
        for cut in router..router + 9 {
            let found = Trained::over_threads(&dir, &of(vec![cut]).0);
            found.is(&format!("cut at {cut}"), &expected);
        }
    }
    std::fs::remove_dir_all(dir).ok();
}

/// Six experts for groups of four.
#[test]
fn experts_that_do_not_divide_are_refused() {
    let six = GATED.replace("experts=8", "experts=6");
    let refused = with(&six, 1, 4, 1, ScheduleKind::OneFOneB).plan().unwrap_err().to_string();
    let words = "`h.0.moe.dispatch`: 6 experts do not divide among 4 tensor-parallel ranks";
    assert!(refused.contains(words), "{refused}");
    // Someone who has rows of some experts only.
    let mut g = GraphBuilder::new("some");
    g.layer("all");
    let x = g.input(vec![4, 8]);
    let logits = g.linear("router", x, 4);
    let shares = g.add("shares", Op::TopKSoftmax { k: 1, normalize: false }, &[logits]);
    g.add("rows", Op::Dispatch { experts: 2, capacity: 2 }, &[x, shares]);
    let refused = g.finish().unwrap_err().to_string();
    assert!(refused.contains("2 experts of shares f32[4, 4]"), "{refused}");
}
