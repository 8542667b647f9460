//! Expert parallelism: replicas that divide experts train what replicas with all of them train, whatever else divides the
//! work.

use super::tensor_parallel::{base, close, run, with};
use crate::common::bits::Trained;
use crate::common::recompute::{at_random, recomputing};
use crate::common::{mpirun_in, runner_in, scratch, write};
use pipewright_core::plan::{Draft, Precision};
use pipewright_core::schedule::ScheduleKind;
use pipewright_core::units::Bytes;
use std::path::Path;

const GATED: &str = "transformer:layers=2,hidden=64,heads=8,kv=4,ffn=96,sequence=16,vocabulary=97,gated,\
                     experts=8,top_k=2,capacity=1.25";
const PLAIN: &str = "transformer:layers=2,hidden=64,heads=8,sequence=16,vocabulary=97,tied,\
                     experts=4,top_k=1,capacity=1";

/// Under other seeds two experts may be alike but for rounding, and a token go to another one.
fn seeded(draft: Draft) -> Draft {
    Draft { seed: 2, ..draft }
}

fn dividing(draft: Draft, experts: u32) -> Draft {
    Draft { data_parallel: draft.data_parallel.with_experts(experts), ..seeded(draft) }
}

/// Losses of replicas that divide experts, by threads and processes, against those of a draft with all of them.
fn same(dir: &Path, name: &str, draft: Draft, experts: u32) {
    let [whole, part] =
        [1, experts].map(|experts| dividing(draft.clone(), experts).plan().unwrap().0);
    let pairs = whole.prediction.arena.iter().zip(&part.prediction.arena);
    assert!(pairs.clone().any(|(whole, part)| part < whole), "{name}: less memory");
    let expected = run(dir, &format!("{name}-whole"), &whole);
    close(name, &run(dir, name, &part), &expected);
}

#[test]
fn replicas_that_divide_experts_train_what_whole_ones_train() {
    for (name, preset) in [("gated", GATED), ("plain", PLAIN)] {
        let dir = scratch(&format!("expert-parallel-{name}"));
        let one = ScheduleKind::OneFOneB;
        for (what, draft, experts) in [
            ("d2", with(preset, 1, 1, 2, one), 2),
            ("d4", with(preset, 1, 1, 4, one), 4),
            ("d4-groups", with(preset, 1, 1, 4, one), 2),
            ("p2d2", with(preset, 2, 1, 2, ScheduleKind::ZbH1), 2),
            ("t2p1d4", with(preset, 1, 2, 4, one), 2),
            ("t2p2d2", with(preset, 2, 2, 2, ScheduleKind::Interleaved { chunks: 1 }), 2),
        ] {
            same(&dir, what, draft, experts);
        }
        std::fs::remove_dir_all(dir).ok();
    }
}

#[test]
fn schedules_and_training_features_go_with_divided_experts() {
    let dir = scratch("expert-parallel-features");
    for (kind, stages) in [
        (ScheduleKind::GPipe, 2),
        (ScheduleKind::Interleaved { chunks: 2 }, 4),
        (ScheduleKind::ZbV, 4),
        (ScheduleKind::Chimera, 2),
        (ScheduleKind::PipeDream2Bw, 2),
    ] {
        same(&dir, &kind.to_string().replace(':', "-"), with(GATED, stages, 1, 2, kind), 2);
    }
    // Norms of all gradients, small buckets, divided optimizers, what is computed again.
    let mut draft = with(GATED, 2, 1, 4, ScheduleKind::ZbH1);
    draft.optimizer = "adamw:lr=0.003".parse().unwrap();
    draft.data_parallel.bucket = Bytes(6000);
    draft.training.clip_norm = Some(0.05);
    draft.training.skip_nonfinite = Some(3);
    same(&dir, "clipped", draft.clone(), 2);
    draft.data_parallel.zero = 1;
    same(&dir, "zero", draft.clone(), 2);
    same(&dir, "zero-alone", draft.clone(), 4);
    let plan = dividing(draft, 2).plan().unwrap().0;
    let expected = run(&dir, "once", &plan);
    let again = recomputing(&plan, at_random(3));
    assert_eq!(run(&dir, "again", &again), expected, "what is computed again has the same bits");
    std::fs::remove_dir_all(dir).ok();
}

/// Cuts between all operations of a mixture: rows cross stages as replicas have them.
#[test]
fn pipelines_of_divided_experts_have_the_bits_of_one_stage() {
    let dir = scratch("expert-parallel-bits");
    for precision in [Precision::F32, Precision::Bf16] {
        let of = |cuts: Vec<u32>| {
            let mut draft = dividing(with(GATED, 1, 1, 2, ScheduleKind::ZbH1), 2);
            (draft.cuts, draft.steps) = (cuts, 4);
            draft.training.precision = precision;
            draft.plan().unwrap()
        };
        let (whole, prediction) = of(vec![]);
        let expected = Trained::over_threads(&dir, &whole);
        let nodes = prediction.graph.nodes();
        let router = nodes.iter().position(|n| n.name == "h.1.moe.router").unwrap() as u32;
        for cut in router..router + 9 {
            let found = Trained::over_threads(&dir, &of(vec![cut]).0);
            found.is(&format!("{precision:?}, cut at {cut}"), &expected);
        }
    }
    std::fs::remove_dir_all(dir).ok();
}

/// What expert groups save is whole, and any division goes on from it.
#[test]
fn checkpoints_are_of_all_experts() {
    let dir = scratch("expert-parallel-saved");
    let file = |name: &str, draft: Draft| {
        let plan = seeded(draft).plan().unwrap().0;
        write(&dir, &format!("{name}.json"), plan.to_json());
        plan
    };
    let adamw = |mut draft: Draft| {
        draft.optimizer = "adamw:lr=0.003".parse().unwrap();
        draft
    };
    file("lone", adamw(base(GATED, 1)));
    let ranks =
        file("experts", dividing(adamw(with(GATED, 2, 2, 2, ScheduleKind::ZbH1)), 2)).ranks();
    let mut zero = dividing(adamw(with(GATED, 1, 1, 4, ScheduleKind::OneFOneB)), 2);
    zero.data_parallel.zero = 1;
    file("zero", zero);
    let numbers = |out: &str| super::tensor_parallel::numbers(&dir.join(out));
    runner_in(&dir, &["lone.json", "--out", "expected"]).done();
    let expected = numbers("expected");
    for (first, then) in [("experts", "lone"), ("lone", "zero"), ("zero", "experts")] {
        let out = format!("{first}-{then}");
        let [first, then] = [first, then].map(|name| format!("{name}.json"));
        let args = ["--save-every", "100", "--check-replicas", "2", "--out", &out];
        runner_in(&dir, &[&[first.as_str(), "--steps", "7"][..], &args].concat()).done();
        runner_in(&dir, &[&[then.as_str(), "--resume", "latest"][..], &args].concat()).done();
        close(&out, &numbers(&out), &expected);
    }
    let args = ["experts.json", "--check-replicas", "1", "--out", "mpi"];
    if let Some(ended) = mpirun_in(&dir, ranks, &args) {
        ended.done();
        close("mpirun", &numbers("mpi"), &expected);
    }
    std::fs::remove_dir_all(dir).ok();
}
