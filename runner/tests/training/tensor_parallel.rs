//! Tensor groups train what one rank trains: whatever the degree, the replicas, the stages and the
//! schedule, as threads and as processes.
//!
//! Sums over a group are in another order than one rank's, so losses are compared within [`TOLERANCE`];
//! pipelines of the same groups have equal bits.

use crate::common::recompute::{at_random, recomputing};
use crate::common::{Ended, draft, draft_of, losses, mpirun_in, result, runner_in, scratch, write};
use pipewright_core::graph::presets::Preset;
use pipewright_core::graph::{Function, Graph, GraphBuilder, Op};
use pipewright_core::plan::{DataParallel, Draft, Plan, Precision};
use pipewright_core::predict::predict;
use pipewright_core::schedule::ScheduleKind;
use std::path::Path;

/// Largest relative difference of a loss.
const TOLERANCE: f64 = 1e-5;

/// GPT-2's blocks with tied embeddings.
pub(super) const GPT: &str =
    "transformer:layers=4,hidden=64,heads=8,sequence=16,vocabulary=97,tied";

/// LLaMA's, with heads of keys and values that two of queries share.
pub(super) const LLAMA: &str =
    "transformer:layers=4,hidden=64,heads=8,kv=4,ffn=96,sequence=16,vocabulary=97,gated";

pub(super) const STEPS: u64 = 20;

pub(super) fn base(preset: &str, stages: u32) -> Draft {
    let mut draft = draft(preset.parse().unwrap(), stages);
    (draft.mini_batch, draft.micro_batches, draft.steps) = (16, 4, STEPS);
    draft
}

pub(super) fn with(
    preset: &str,
    stages: u32,
    tensor: u32,
    replicas: u32,
    schedule: ScheduleKind,
) -> Draft {
    let mut draft = base(preset, stages);
    (draft.tensor, draft.schedule) = (tensor, schedule);
    draft.data_parallel = DataParallel::ddp(replicas);
    draft.micro_batches /= replicas;
    draft
}

pub(super) fn numbers(out: &Path) -> Vec<f64> {
    losses(out).iter().map(|loss| loss.parse().unwrap()).collect()
}

/// Trains as threads and, where there is MPI, as processes, whose arenas are as planned.
pub(super) fn run(dir: &Path, name: &str, plan: &Plan) -> Vec<f64> {
    let file = format!("{name}.json");
    write(dir, &file, plan.to_json());
    let arenas: Vec<u64> = (0..plan.ranks())
        .map(|rank| plan.prediction.arena[plan.mesh().lane(rank).index()].0)
        .collect();
    let done = |ended: Ended, out: &str| {
        ended.done();
        assert_eq!(result(&dir.join(out))["arena"], serde_json::json!(arenas), "{name}");
        numbers(&dir.join(out))
    };
    let threads = done(runner_in(dir, &[&file, "--out", name]), name);
    let out = format!("{name}-mpi");
    if let Some(ended) = mpirun_in(dir, plan.ranks(), &[&file, "--out", &out]) {
        close(&format!("{name}, mpirun"), &done(ended, &out), &threads);
    }
    threads
}

pub(super) fn close(what: &str, found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (step, (found, expected)) in found.iter().zip(expected).enumerate() {
        let off = (found / expected - 1.0).abs();
        assert!(off < TOLERANCE, "{what}, step {step}: {found} instead of {expected}");
    }
}

/// The losses of one rank, which learns.
pub(super) fn alone(dir: &Path, name: &str, draft: Draft) -> Vec<f64> {
    let losses = run(dir, name, &draft.plan().unwrap().0);
    let (first, last) = (losses[0], losses[losses.len() - 1]);
    assert!((first - last).abs() > 1e-3 * first, "{name} learns: {first} .. {last}");
    losses
}

#[test]
fn groups_train_what_one_rank_trains() {
    for (name, preset) in [("gpt", GPT), ("llama", LLAMA)] {
        let dir = scratch(&format!("tensor-{name}"));
        let lone = alone(&dir, "lone", base(preset, 1));
        for degree in [2, 4] {
            let plan = with(preset, 1, degree, 1, ScheduleKind::OneFOneB).plan().unwrap().0;
            let what = format!("t{degree}");
            close(&format!("{name}, {what}"), &run(&dir, &what, &plan), &lone);
        }
        std::fs::remove_dir_all(dir).ok();
    }
}

/// Eight ranks: two stages, two replicas, groups of two.
#[test]
fn groups_go_with_stages_replicas_and_schedules() {
    for (name, preset) in [("gpt", GPT), ("llama", LLAMA)] {
        let dir = scratch(&format!("tensor-mesh-{name}"));
        let lone = alone(&dir, "lone", base(preset, 1));
        for (kind, stages) in [
            (ScheduleKind::OneFOneB, 2),
            (ScheduleKind::ZbH1, 2),
            (ScheduleKind::Interleaved { chunks: 2 }, 4),
            (ScheduleKind::Chimera, 2),
        ] {
            let plan = with(preset, stages, 2, 2, kind).plan().unwrap().0;
            assert_eq!(plan.ranks(), 8);
            let what = kind.to_string().replace(':', "-");
            close(&format!("{name}, {what}"), &run(&dir, &what, &plan), &lone);
        }
        std::fs::remove_dir_all(dir).ok();
    }
}

/// Cuts anywhere, between gate and product too, and repetitions: the bits of one stage of the same group.
#[test]
fn pipelines_of_groups_have_the_bits_of_one_stage() {
    let dir = scratch("tensor-bits");
    let text = |name: &str, plan: &Plan| {
        write(&dir, name, plan.to_json());
        runner_in(&dir, &[name, "--out", "run", "--overwrite"]).done();
        losses(&dir.join("run"))
    };
    let whole = with(GPT, 1, 2, 1, ScheduleKind::OneFOneB).plan().unwrap().0;
    let expected = text("whole.json", &whole);
    let again = recomputing(&whole, at_random(3));
    assert_eq!(text("again.json", &again), expected, "with repetitions");
    let graph = GPT.parse::<Preset>().unwrap().graph().unwrap();
    for cut in 2..graph.nodes().len() as u32 - 2 {
        if cut % 5 == 0 {
            let mut draft = with(GPT, 1, 2, 1, ScheduleKind::OneFOneB);
            draft.cuts = vec![cut];
            assert_eq!(text("cut.json", &draft.plan().unwrap().0), expected, "cut at {cut}");
        }
    }
    std::fs::remove_dir_all(dir).ok();
}

/// Two gates of one value, one of them behind a cut: both halves of its gradient are summed.
#[test]
fn columns_on_several_stages_sum_their_own() {
    let dir = scratch("tensor-gates");
    let lone = alone(&dir, "lone", base(LLAMA, 1));
    let graph = LLAMA.parse::<Preset>().unwrap().graph().unwrap();
    let at = graph.nodes().iter().position(|node| node.name == "h.1.mlp.up").unwrap();
    let mut draft = with(LLAMA, 1, 2, 1, ScheduleKind::OneFOneB);
    draft.cuts = vec![at as u32];
    close("cut", &run(&dir, "cut", &draft.plan().unwrap().0), &lone);
    std::fs::remove_dir_all(dir).ok();
}

/// An encoder as exporters write it: heads are permuted out of separate products.
pub(super) fn encoder() -> Graph {
    let mut g = GraphBuilder::new("encoder");
    g.layer("embedding");
    let x = g.add("tokens", Op::Tokens { length: 12, vocabulary: 31 }, &[]);
    let table = Op::Embedding { entries: 31, features: 32, positions: 12, kinds: 0 };
    let mut x = g.add("embedding", table, &[x]);
    for i in 0..2 {
        let part = |end: &str| format!("layer.{i}.{end}");
        g.layer(format!("layer.{i}"));
        let heads = |g: &mut GraphBuilder, name: &str| {
            let y = g.linear(&part(name), x, 32);
            let shape = vec![12, 4, 8];
            let y = g.add(part(&format!("{name}.split")), Op::Reshape { shape }, &[y]);
            g.add(part(&format!("{name}.heads")), Op::Permute { axes: vec![1, 0, 2] }, &[y])
        };
        let [q, k, v] = ["q", "k", "v"].map(|name| heads(&mut g, name));
        let op = Op::ScaledDotProduct { scale: 8f32.sqrt().recip(), causal: false };
        let y = g.add(part("attention"), op, &[q, k, v]);
        let y = g.add(part("back"), Op::Permute { axes: vec![1, 0, 2] }, &[y]);
        let y = g.add(part("join"), Op::Reshape { shape: vec![12, 32] }, &[y]);
        let y = g.linear(&part("out"), y, 32);
        let y = g.add(part("add"), Op::Add, &[x, y]);
        let norm = Op::LayerNorm { eps: 1e-5 };
        let x1 = g.add(part("norm"), norm.clone(), &[y]);
        let y = g.linear(&part("up"), x1, 64);
        let y = g.activation(&part("gelu"), Function::Gelu, y);
        let y = g.linear(&part("down"), y, 32);
        let y = g.add(part("add_2"), Op::Add, &[x1, y]);
        x = g.add(part("norm_2"), norm, &[y]);
    }
    g.layer("head");
    let x = g.add("first", Op::FirstPosition, &[x]);
    let x = g.linear("classifier", x, 3);
    g.loss(x, 3);
    g.finish().unwrap()
}

#[test]
fn an_exported_encoder_is_divided_by_its_heads() {
    let dir = scratch("tensor-encoder");
    let sized = |tensor: u32, stages: u32| {
        let mut draft = draft_of(encoder(), stages);
        (draft.mini_batch, draft.micro_batches, draft.steps) = (16, 4, STEPS);
        draft.tensor = tensor;
        draft
    };
    let lone = alone(&dir, "lone", sized(1, 1));
    close("t2", &run(&dir, "t2", &sized(2, 1).plan().unwrap().0), &lone);
    close("t4p2", &run(&dir, "t4p2", &sized(4, 2).plan().unwrap().0), &lone);
    std::fs::remove_dir_all(dir).ok();
}

/// BERT, GPT-2 and LLaMA as PyTorch exports them, with their weights: a classifier, a tied head and one of its own.
#[test]
fn exported_transformers_are_divided() {
    let dir = scratch("tensor-exported");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/transformers");
    let losses = |model: &str, tensor: &str, stages: &str| {
        let file = &format!("{folder}/{model}-dynamo.onnx");
        let name = format!("{model}-{tensor}-{stages}");
        let plan = format!("{name}.json");
        let args = ["plan", "--model", file, "--cluster", "laptop", "--tensor", tensor];
        let order = ["--stages", stages, "--schedule", "1f1b", "--micro-batches", "2"];
        let rest = ["--mini-batch", "8", "--split", "balanced", "--steps", "20", "-o", &plan];
        runner_in(&dir, &[&args[..], &order, &rest].concat()).done();
        runner_in(&dir, &[&plan, "--out", &name]).done();
        numbers(&dir.join(name))
    };
    for (model, most) in [("bert", "4"), ("gpt2", "2"), ("llama", "2")] {
        let lone = losses(model, "1", "1");
        close(model, &losses(model, "2", "1"), &lone);
        close(model, &losses(model, most, "2"), &lone);
    }
    std::fs::remove_dir_all(dir).ok();
}

/// With smoothed labels, and a vocabulary of which the last rank has nothing.
#[test]
fn losses_of_divided_logits_are_those_of_whole_ones() {
    let dir = scratch("tensor-smoothed");
    let smoothed = |tensor: u32| {
        let mut g = GraphBuilder::new("smoothed");
        g.layer("all");
        let x = g.add("tokens", Op::Tokens { length: 6, vocabulary: 5 }, &[]);
        let table = Op::Embedding { entries: 5, features: 16, positions: 6, kinds: 2 };
        let x = g.add("table", table, &[x]);
        let y = g.linear("up", x, 32);
        let y = g.activation("gelu", Function::Gelu, y);
        let y = g.linear("down", y, 16);
        let x = g.add("add", Op::Add, &[x, y]);
        let x = g.linear("head", x, 5);
        let targets = g.add("targets", Op::Targets { count: 6, classes: 5 }, &[]);
        g.add("loss", Op::SoftmaxCrossEntropy { label_smoothing: 0.1 }, &[x, targets]);
        let mut draft = draft_of(g.finish().unwrap(), 1);
        (draft.mini_batch, draft.micro_batches, draft.steps) = (16, 4, STEPS);
        draft.tensor = tensor;
        draft
    };
    let lone = alone(&dir, "lone", smoothed(1));
    let (plan, prediction) = smoothed(4).plan().unwrap();
    assert!(prediction.graph.vocabulary(prediction.graph.loss().unwrap()).is_some());
    close("t4", &run(&dir, "t4", &plan), &lone);
    std::fs::remove_dir_all(dir).ok();
}

/// A norm counts a parameter that every rank has once, and shards of the others together.
#[test]
fn clipping_skipping_and_half_precision_go_with_groups() {
    let dir = scratch("tensor-features");
    let clipped = |tensor, stages, replicas| {
        let mut draft = with(LLAMA, stages, tensor, replicas, ScheduleKind::OneFOneB);
        draft.training.clip_norm = Some(0.25);
        draft.training.skip_nonfinite = Some(3);
        draft
    };
    let lone = alone(&dir, "lone", clipped(1, 1, 1));
    let free = numbers(&{
        run(&dir, "free", &base(LLAMA, 1).plan().unwrap().0);
        dir.join("free")
    });
    assert!((free[19] / lone[19] - 1.0).abs() > 1e-3, "clipping changes something");
    let (plan, _) = clipped(2, 2, 2).plan().unwrap();
    close("clipped", &run(&dir, "clipped", &plan), &lone);
    let norms = |out: &str| -> Vec<f64> {
        let text = std::fs::read_to_string(dir.join(out).join("rank-000.jsonl")).unwrap();
        let norm = |line: &str| -> f64 {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            line["gradient_norm"].as_f64().unwrap()
        };
        text.lines().map(norm).collect()
    };
    close("norms", &norms("clipped"), &norms("lone"));
    in_half_precision(&dir, with(LLAMA, 1, 2, 1, ScheduleKind::OneFOneB));
    std::fs::remove_dir_all(dir).ok();
}

/// In bf16 a group's losses are those of one rank but for what is rounded elsewhere.
#[track_caller]
pub(super) fn in_half_precision(dir: &Path, group: Draft) {
    let half = |name: &str, mut draft: Draft| {
        draft.training.precision = Precision::Bf16;
        run(dir, name, &draft.plan().unwrap().0)
    };
    let lone = half("bf16-lone", with(LLAMA, 1, 1, 1, ScheduleKind::OneFOneB));
    for (step, (found, expected)) in half("bf16", group).iter().zip(lone).enumerate() {
        // Eight bits of a mantissa.
        assert!((found / expected - 1.0).abs() < 2e-3, "step {step}: {found} and {expected}");
    }
}

/// Checkpoints are of whole parameters: any division goes on from any other, and they are weights.
#[test]
fn checkpoints_of_groups_are_of_whole_parameters() {
    let dir = scratch("tensor-checkpoint");
    let lone = alone(&dir, "lone", base(LLAMA, 1));
    let file = |name: &str, draft: Draft| {
        let name = format!("{name}.json");
        write(&dir, &name, draft.plan().unwrap().0.to_json());
        name
    };
    let t4 = file("t4", with(LLAMA, 1, 4, 1, ScheduleKind::OneFOneB));
    let t2 = file("t2", with(LLAMA, 1, 2, 2, ScheduleKind::OneFOneB));
    let p2 = file("p2", with(LLAMA, 2, 1, 1, ScheduleKind::OneFOneB));
    let mut step = 0;
    let stops = ["8", "14", "20"];
    for (name, until) in [&t4, &p2, &t2].into_iter().zip(stops) {
        let args = [name, "--steps", until, "--save-every", "20", "--out", "run"];
        let resume = if step == 0 { vec![] } else { vec!["--resume", "latest"] };
        runner_in(&dir, &[&args[..], &resume].concat()).done();
        step = until.parse().unwrap();
    }
    close("resumed", &numbers(&dir.join("run")), &lone);
    // The same for processes, and with the replicas looked at.
    let args = ["--steps", "8", "--save-every", "20", "--check-replicas", "3", "--out", "mpi"];
    if let Some(ended) = mpirun_in(&dir, 4, &[&[t2.as_str()][..], &args].concat()) {
        ended.done();
        let args = [&p2, "--save-every", "20", "--out", "mpi", "--resume", "latest"];
        runner_in(&dir, &args).done();
        close("from processes", &numbers(&dir.join("mpi")), &lone);
    }
    let eval = |plan: &str| {
        let ended = runner_in(&dir, &["eval", plan, "--weights", "run", "--json"]);
        serde_json::from_str::<serde_json::Value>(&ended.done().stdout).unwrap()["loss"].clone()
    };
    assert_eq!(eval(&t4), eval(&p2), "a group's plan infers with whole parameters");
    let more = ["--weights", "run", "--steps", "1", "--overwrite", "--out"];
    for (plan, out) in [(&t4, "w4"), (&p2, "w1")] {
        runner_in(&dir, &[&[plan.as_str()][..], &more, &[out]].concat()).done();
    }
    close("weights", &numbers(&dir.join("w4")), &numbers(&dir.join("w1")));
    std::fs::remove_dir_all(dir).ok();
}

#[test]
fn what_groups_cannot_do_is_refused() {
    let dir = scratch("tensor-refused");
    let plan = with(LLAMA, 2, 2, 1, ScheduleKind::OneFOneB).plan().unwrap().0;
    assert!(plan.to_json().contains("\"tensor\": 2"));
    assert!(!base(LLAMA, 2).plan().unwrap().0.to_json().contains("\n  \"tensor\""));
    write(&dir, "plan.json", plan.to_json());
    let shown = runner_in(&dir, &["show", "plan.json"]);
    for words in ["2 lanes x 2 tensor-parallel = 4 ranks", "groups of 2: ", "sums within passes"] {
        assert!(shown.done().stdout.contains(words), "{words}: {shown:?}");
    }
    runner_in(&dir, &["check", "plan.json", "--ranks", "3"])
        .refused(4, "needs 2 lanes x 2 tensor-parallel = 4 ranks, --ranks gave 3");
    let refused = |args: &[&str], words: &str| {
        runner_in(&dir, args).refused(2, words);
    };
    let planned = |tensor: &str, model: &str, rest: &[&str], words: &str| {
        let args = ["plan", "--model", model, "--cluster", "laptop", "--tensor", tensor];
        let more = ["--mini-batch", "16", "--data", "synthetic", "-o", "other.json"];
        refused(&[&args[..], &more, rest].concat(), words);
    };
    let whole = ["--stages", "2", "--schedule", "1f1b", "--micro-batches", "2"];
    planned("8", LLAMA, &whole, "4 heads of keys and values do not divide among 8");
    planned("2", "resnet18:32", &whole, "tensor: `resnet18:32` has no two linear layers");
    let encoded = [&whole[..], &["--codec", "int8", "--replicas", "2"]].concat();
    planned("2", LLAMA, &encoded, "does not go together with encoded gradients");
    let lone = ["--stages", "1", "--schedule", "1f1b", "--micro-batches", "2"];
    let first = [&lone[..], &["--replicas", "2", "--data-parallel", "dp"]].concat();
    planned("2", LLAMA, &first, "does not go together with data-parallel mode `dp`");
    let ranks = [&whole[..], &["--ranks", "6"]].concat();
    planned("2", LLAMA, &ranks, "2 lanes x 2 tensor-parallel do not make 6 ranks");
    std::fs::remove_dir_all(dir).ok();
}

#[test]
fn a_plan_of_groups_is_made_by_the_command_line() {
    let dir = scratch("tensor-planned");
    let args = ["plan", "--model", LLAMA, "--cluster", "laptop", "--tensor", "2", "--ranks", "8"];
    let more =
        ["--mini-batch", "16", "--micro-batches", "2", "--split", "balanced", "--stages", "2"];
    let out = ["--steps", "2", "-o", "plan.json"];
    runner_in(&dir, &[&args[..], &more, &out].concat()).done();
    let plan = Plan::from_json(&std::fs::read_to_string(dir.join("plan.json")).unwrap()).unwrap();
    assert_eq!((plan.tensor, plan.data_parallel.replicas, plan.ranks()), (2, 2, 8));
    let prediction = predict(&plan).unwrap();
    assert_eq!(prediction.expectation(), plan.prediction);
    runner_in(&dir, &["plan.json", "--out", "run"]).done();
    std::fs::remove_dir_all(dir).ok();
}
