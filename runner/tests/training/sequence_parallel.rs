//! Tensor groups whose ranks have slices of the sequence between what they divide train what one rank trains.

use super::tensor_parallel::{
    GPT, LLAMA, STEPS, alone, base, close, encoder, in_half_precision, numbers, run, with,
};
use crate::common::recompute::{at_random, recomputing};
use crate::common::{draft_of, losses, mpirun_in, runner_in, scratch, write};
use pipewright_core::graph::{Function, Graph, GraphBuilder, Op};
use pipewright_core::plan::{Draft, Plan};
use pipewright_core::schedule::ScheduleKind;

pub(super) fn sliced(
    preset: &str,
    stages: u32,
    tensor: u32,
    replicas: u32,
    kind: ScheduleKind,
) -> Draft {
    Draft { sequence_parallel: true, ..with(preset, stages, tensor, replicas, kind) }
}

#[test]
fn slices_train_what_one_rank_trains() {
    for (name, preset) in [("gpt", GPT), ("llama", LLAMA)] {
        let dir = scratch(&format!("sequence-{name}"));
        let lone = alone(&dir, "lone", base(preset, 1));
        for degree in [2, 4] {
            let plan = sliced(preset, 1, degree, 1, ScheduleKind::OneFOneB).plan().unwrap().0;
            let what = format!("t{degree}");
            close(&format!("{name}, {what}"), &run(&dir, &what, &plan), &lone);
        }
        std::fs::remove_dir_all(dir).ok();
    }
}

/// Eight ranks: two stages, two replicas, groups of two.
#[test]
fn slices_go_with_stages_replicas_and_schedules() {
    let dir = scratch("sequence-mesh");
    let rows = [
        (GPT, ScheduleKind::OneFOneB, 2),
        (LLAMA, ScheduleKind::OneFOneB, 2),
        (LLAMA, ScheduleKind::ZbH1, 2),
        (LLAMA, ScheduleKind::Interleaved { chunks: 2 }, 4),
        (LLAMA, ScheduleKind::Chimera, 2),
    ];
    let lone = [GPT, LLAMA].map(|preset| {
        let name = if preset == GPT { "gpt" } else { "llama" };
        alone(&dir, &format!("{name}-lone"), base(preset, 1))
    });
    for (at, (preset, kind, stages)) in rows.into_iter().enumerate() {
        let plan = sliced(preset, stages, 2, 2, kind).plan().unwrap().0;
        let what = format!("{at}-{kind}").replace(':', "-");
        close(&what, &run(&dir, &what, &plan), &lone[usize::from(preset == LLAMA)]);
    }
    std::fs::remove_dir_all(dir).ok();
}

/// Cuts anywhere and repetitions: the bits of one stage of the same group.
#[test]
fn pipelines_of_slices_have_the_bits_of_one_stage() {
    let dir = scratch("sequence-bits");
    let text = |name: &str, plan: &Plan| {
        write(&dir, name, plan.to_json());
        runner_in(&dir, &[name, "--out", "run", "--overwrite"]).done();
        losses(&dir.join("run"))
    };
    let whole = sliced(GPT, 1, 2, 1, ScheduleKind::OneFOneB).plan().unwrap();
    let expected = text("whole.json", &whole.0);
    let again = recomputing(&whole.0, at_random(3));
    assert_eq!(text("again.json", &again), expected, "with repetitions");
    for cut in 2..whole.1.graph.nodes().len() as u32 - 2 {
        if cut % 5 == 0 {
            let mut draft = sliced(GPT, 1, 2, 1, ScheduleKind::OneFOneB);
            draft.cuts = vec![cut];
            assert_eq!(text("cut.json", &draft.plan().unwrap().0), expected, "cut at {cut}");
        }
    }
    std::fs::remove_dir_all(dir).ok();
}

/// Masks are those of whole samples, and slices need not begin where random numbers do. What comes from
/// elsewhere is cut, what the head reads is gathered.
fn dropping() -> Graph {
    let mut g = GraphBuilder::new("dropping");
    g.layer("all");
    let x = g.add("tokens", Op::Tokens { length: 12, vocabulary: 31 }, &[]);
    let table = Op::Embedding { entries: 31, features: 10, positions: 0, kinds: 0 };
    let x = g.add("table", table, &[x]);
    let positions = g.add("positions", Op::Parameter { shape: vec![12, 10], trainable: true }, &[]);
    let x = g.add("placed", Op::Add, &[x, positions]);
    let x = g.add("drop", Op::Dropout { probability: 0.2 }, &[x]);
    let scale = g.add("scale", Op::Parameter { shape: vec![12, 10], trainable: true }, &[]);
    let x = g.add("scaled", Op::Multiply, &[x, scale]);
    let y = g.linear("up", x, 32);
    let y = g.activation("gelu", Function::Gelu, y);
    let y = g.linear("down", y, 10);
    let y = g.add("drop_2", Op::Dropout { probability: 0.1 }, &[y]);
    let y = g.add("add", Op::Add, &[x, y]);
    let x = g.add("norm", Op::LayerNorm { eps: 1e-5 }, &[y]);
    let x = g.add("all_of_it", Op::ReduceMean { axes: vec![0], keep: false }, &[x]);
    let x = g.linear("classifier", x, 3);
    g.loss(x, 3);
    g.finish().unwrap()
}

#[test]
fn encoders_and_dropout_go_with_slices() {
    let dir = scratch("sequence-encoder");
    for (name, graph) in [("encoder", encoder()), ("dropping", dropping())] {
        let sized = |tensor: u32, stages: u32| {
            let mut draft = draft_of(graph.clone(), stages);
            (draft.mini_batch, draft.micro_batches, draft.steps) = (16, 4, STEPS);
            (draft.tensor, draft.sequence_parallel) = (tensor, tensor > 1);
            draft
        };
        let lone = alone(&dir, &format!("{name}-lone"), sized(1, 1));
        for (what, tensor, stages) in [("t2", 2, 1), ("t4", 4, 1)] {
            let plan = sized(tensor, stages).plan().unwrap().0;
            let what = format!("{name}-{what}");
            close(&what, &run(&dir, &what, &plan), &lone);
        }
    }
    std::fs::remove_dir_all(dir).ok();
}

/// BERT, GPT-2 and LLaMA as PyTorch exports them.
#[test]
fn exported_transformers_go_with_slices() {
    let dir = scratch("sequence-exported");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/transformers");
    let losses = |model: &str, tensor: &str, stages: &str| {
        let file = &format!("{folder}/{model}-dynamo.onnx");
        let name = format!("{model}-{tensor}-{stages}");
        let plan = format!("{name}.json");
        let args = ["plan", "--model", file, "--cluster", "laptop", "--tensor", tensor];
        let order = ["--stages", stages, "--schedule", "1f1b", "--micro-batches", "2"];
        let rest = ["--mini-batch", "8", "--split", "balanced", "--steps", "20", "-o", &plan];
        let slices: &[&str] = if tensor == "1" { &[] } else { &["--sequence-parallel"] };
        runner_in(&dir, &[&args[..], &order, &rest, slices].concat()).done();
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

/// Clipped gradients of sliced norms are counted once and whole, half precision sums in single.
#[test]
fn clipping_and_half_precision_go_with_slices() {
    let dir = scratch("sequence-features");
    let clipped = |draft: Draft| {
        let mut draft = draft;
        draft.training.clip_norm = Some(0.25);
        draft
    };
    let lone = alone(&dir, "lone", clipped(base(LLAMA, 1)));
    let (plan, _) = clipped(sliced(LLAMA, 2, 2, 2, ScheduleKind::ZbH1)).plan().unwrap();
    close("clipped", &run(&dir, "clipped", &plan), &lone);
    in_half_precision(&dir, sliced(LLAMA, 1, 2, 1, ScheduleKind::OneFOneB));
    std::fs::remove_dir_all(dir).ok();
}

/// Any division goes on from one with slices, and it from any.
#[test]
fn checkpoints_go_between_slices_and_others() {
    let dir = scratch("sequence-checkpoint");
    let lone = alone(&dir, "lone", base(LLAMA, 1));
    let file = |name: &str, draft: Draft| {
        let name = format!("{name}.json");
        write(&dir, &name, draft.plan().unwrap().0.to_json());
        name
    };
    let t4 = file("t4", sliced(LLAMA, 1, 4, 1, ScheduleKind::OneFOneB));
    let p2 = file("p2", with(LLAMA, 2, 1, 1, ScheduleKind::OneFOneB));
    let t2 = file("t2", sliced(LLAMA, 1, 2, 2, ScheduleKind::OneFOneB));
    for (name, until, resume) in [(&t4, "8", false), (&p2, "14", true), (&t2, "20", true)] {
        let args = [name.as_str(), "--steps", until, "--save-every", "20", "--out", "run"];
        let resume: &[&str] = if resume { &["--resume", "latest"] } else { &[] };
        runner_in(&dir, &[&args[..], resume].concat()).done();
    }
    close("resumed", &numbers(&dir.join("run")), &lone);
    let args = [&t2, "--steps", "8", "--save-every", "20", "--check-replicas", "3", "--out", "mpi"];
    if let Some(ended) = mpirun_in(&dir, 4, &args) {
        ended.done();
        runner_in(&dir, &[&p2, "--save-every", "20", "--out", "mpi", "--resume", "latest"]).done();
        close("from processes", &numbers(&dir.join("mpi")), &lone);
    }
    std::fs::remove_dir_all(dir).ok();
}

#[test]
fn slices_stand_in_plans_and_are_refused_where_they_cannot_be() {
    let dir = scratch("sequence-refused");
    let plan = sliced(LLAMA, 2, 2, 1, ScheduleKind::OneFOneB).plan().unwrap().0;
    assert!(plan.to_json().contains("\"sequence_parallel\": true"));
    let without = with(LLAMA, 2, 2, 1, ScheduleKind::OneFOneB).plan().unwrap().0;
    assert!(!without.to_json().contains("sequence_parallel"));
    write(&dir, "plan.json", plan.to_json());
    let shown = runner_in(&dir, &["show", "plan.json"]);
    let words = "slices of the sequence gathered or scattered";
    assert!(shown.done().stdout.contains(words), "{shown:?}");
    let refused = |model: &str, tensor: &str, words: &str| {
        let args = ["plan", "--model", model, "--cluster", "laptop", "--tensor", tensor];
        let order = ["--stages", "1", "--schedule", "1f1b", "--micro-batches", "2"];
        let rest = ["--mini-batch", "8", "--sequence-parallel", "-o", "other.json"];
        runner_in(&dir, &[&args[..], &order, &rest].concat()).refused(2, words);
    };
    refused(LLAMA, "1", "sequence_parallel is true, must be false without tensor groups");
    let odd = "transformer:layers=1,hidden=32,heads=8,sequence=9,vocabulary=50";
    refused(odd, "2", "9 positions do not divide among 2 tensor-parallel ranks");
    std::fs::remove_dir_all(dir).ok();
}
