//! A table that two stages hold stays one: a language model with tied embeddings trains the same,
//! to the bit, with table and output layer on one stage, on neighbours and with a stage between.

use crate::common::{draft, losses, mpirun_in, runner_in, scratch, write};
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::DataParallel;
use pipewright_core::schedule::ScheduleKind;

const MODEL: &str = "transformer:layers=2,hidden=32,heads=2,sequence=16,vocabulary=64,tied";

#[test]
fn copies_of_a_table_change_alike() {
    let dir = scratch("tied");
    let preset: Preset = MODEL.parse().unwrap();
    let mut expected = None;
    for (stages, clip) in [(1, None), (2, None), (3, None), (1, Some(0.5)), (3, Some(0.5))] {
        let mut draft = draft(preset, stages);
        draft.schedule = ScheduleKind::OneFOneB;
        (draft.mini_batch, draft.micro_batches, draft.steps) = (8, 4, 6);
        draft.training.clip_norm = clip;
        let plan = draft.plan().unwrap().0;
        write(&dir, "plan.json", plan.to_json());
        runner_in(&dir, &["plan.json", "--out", "threads", "--overwrite"]).done();
        let found = losses(&dir.join("threads"));
        let (of, wanted) = expected.get_or_insert_with(|| (clip, found.clone()));
        if *of == clip {
            assert_eq!(found, *wanted, "{stages} stages, clipped to {clip:?}");
        } else {
            assert_ne!(found, *wanted, "clipping changes something");
            expected = Some((clip, found.clone()));
        }
        let args = ["plan.json", "--out", "mpirun", "--overwrite"];
        if let Some(ended) = mpirun_in(&dir, plan.ranks(), &args) {
            ended.done();
            assert_eq!(losses(&dir.join("mpirun")), found, "{stages} stages, mpirun");
        }
    }
    std::fs::remove_dir_all(dir).ok();
}

/// Two replicas of a pipeline whose ends share the table: a group of four ranks.
#[test]
fn copies_in_replicas_change_alike() {
    let dir = scratch("tied-replicas");
    let preset: Preset = MODEL.parse().unwrap();
    let run = |name: &str, stages, m, replicas| -> Vec<f64> {
        let mut draft = draft(preset, stages);
        draft.schedule = ScheduleKind::OneFOneB;
        (draft.mini_batch, draft.micro_batches, draft.steps) = (8, m, 6);
        draft.data_parallel = DataParallel::ddp(replicas);
        let file = format!("{name}.json");
        write(&dir, &file, draft.plan().unwrap().0.to_json());
        runner_in(&dir, &[&file, "--out", name]).done();
        losses(&dir.join(name)).iter().map(|loss| loss.parse().unwrap()).collect()
    };
    let expected = run("one", 1, 4, 1);
    for (found, expected) in run("four", 2, 2, 2).iter().zip(&expected) {
        assert!((found / expected - 1.0).abs() < 1e-5, "{found} instead of {expected}");
    }
    std::fs::remove_dir_all(dir).ok();
}
