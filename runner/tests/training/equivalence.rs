//! The oracle above all others: a pipelined run trains exactly what one stage trains.
//!
//! With the same micro-batches the losses of all steps are the same text, whatever the number of
//! stages, the schedule and the transport. Between numbers of micro-batches sums are rounded in
//! another order; there every loss agrees within [`TOLERANCE`].
//!
//! What is proved here and nowhere else: presets train alike with 1, 4 and 8 micro-batches, and go
//! on to do so while they learn. That other schedules and the weights themselves agree is shown by
//! `every_schedule.rs`, in fewer steps of smaller networks; so processes have a go at one number of
//! micro-batches only.

use crate::common::{digits, draft, few_samples, losses, mpirun_in, runner_in, scratch, write};
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::{Data, Optimizer};
use pipewright_core::schedule::ScheduleKind;
use std::path::Path;

const MICRO_BATCHES: [u32; 3] = [1, 4, 8];

/// With so many, pipelines run as processes too.
const OVER_MPI: u32 = 4;

/// Largest relative difference to one micro-batch.
const TOLERANCE: f64 = 1e-4;

/// One way to split the work.
#[derive(Clone, Copy, Debug)]
struct Split {
    stages: u32,
    schedule: ScheduleKind,
    micro_batches: u32,
}

/// What is trained.
struct Case {
    preset: Preset,
    mini_batch: u64,
    steps: usize,
    learning_rate: f32,
    data: Data,
}

impl Case {
    /// Writes the plan of a split; returns its file.
    fn plan(&self, dir: &Path, split: Split) -> String {
        let mut draft = draft(self.preset, split.stages);
        draft.schedule = split.schedule;
        draft.micro_batches = split.micro_batches;
        draft.mini_batch = self.mini_batch;
        draft.data = self.data.clone();
        draft.steps = self.steps as u64;
        let learning_rate = self.learning_rate;
        draft.optimizer =
            Optimizer::Sgd { learning_rate, momentum: 0.9, weight_decay: 0.0, nesterov: false };
        let (plan, _) = draft.plan().unwrap();
        let Split { stages, schedule, micro_batches } = split;
        let name = format!("{stages}-{schedule}-{micro_batches}.json");
        write(dir, &name, plan.to_json());
        name
    }

    /// The losses of a split over threads.
    fn over_threads(&self, dir: &Path, split: Split) -> Vec<String> {
        let plan = self.plan(dir, split);
        runner_in(dir, &[&plan, "--out", "threads", "--overwrite"]).done();
        losses(&dir.join("threads"))
    }

    /// The same over processes, where there is MPI.
    fn over_mpi(&self, dir: &Path, split: Split) -> Option<Vec<String>> {
        let plan = self.plan(dir, split);
        mpirun_in(dir, split.stages, &[&plan, "--out", "mpi", "--overwrite"])?.done();
        Some(losses(&dir.join("mpi")))
    }

    /// All splits against one stage; returns the losses of one stage by micro-batches.
    fn compare(&self, dir: &Path) -> Vec<Vec<String>> {
        let mut of_one_stage = vec![];
        for micro_batches in MICRO_BATCHES {
            let lone = Split { stages: 1, schedule: ScheduleKind::GPipe, micro_batches };
            let expected = self.over_threads(dir, lone);
            assert_eq!(expected.len(), self.steps);
            for stages in [2, 4] {
                for schedule in ScheduleKind::STRAIGHT {
                    let split = Split { stages, schedule, micro_batches };
                    let found = self.over_threads(dir, split);
                    assert_eq!(found, expected, "{} {split:?}, threads", self.preset);
                    if micro_batches == OVER_MPI
                        && let Some(found) = self.over_mpi(dir, split)
                    {
                        assert_eq!(found, expected, "{} {split:?}, mpirun", self.preset);
                    }
                }
            }
            of_one_stage.push(expected);
        }
        of_one_stage
    }
}

/// Splits agree, micro-batches agree, and there was something to agree about.
fn check(name: &str, case: &Case) {
    let dir = scratch(name);
    let runs = case.compare(&dir);
    let numbers =
        |run: &Vec<String>| -> Vec<f64> { run.iter().map(|text| text.parse().unwrap()).collect() };
    let runs: Vec<Vec<f64>> = runs.iter().map(numbers).collect();
    for (run, micro_batches) in runs.iter().zip(MICRO_BATCHES) {
        for (step, (loss, of_one)) in run.iter().zip(&runs[0]).enumerate() {
            let difference = (loss - of_one).abs() / of_one.abs();
            assert!(
                difference <= TOLERANCE,
                "{}, {micro_batches} micro-batches, step {step}: {loss} instead of {of_one}",
                case.preset
            );
        }
    }
    for run in &runs {
        let difference = (run[0] - runs[0][0]).abs() / runs[0][0];
        assert!(difference <= 1e-6, "{name}, before the first update: {difference}");
    }
    let (first, last) = (runs[0][0], runs[0][case.steps - 1]);
    assert!((first - last).abs() > 0.01 * first, "{name} learns: {first} .. {last}");
    std::fs::remove_dir_all(dir).ok();
}

#[test]
fn digits_cnn() {
    check(
        "equivalence-digits",
        &Case {
            preset: Preset::DigitsCnn,
            mini_batch: 32,
            steps: 50,
            // At 0.01 rounding grows a thousandfold in 40 steps.
            learning_rate: 0.003,
            data: digits(),
        },
    );
}

#[test]
fn fc32() {
    check(
        "equivalence-fc32",
        &Case {
            preset: Preset::Fc32 { width: 32 },
            mini_batch: 16,
            steps: 50,
            learning_rate: 0.002,
            data: few_samples(),
        },
    );
}

#[test]
fn mlp4() {
    check(
        "equivalence-mlp4",
        &Case {
            preset: Preset::Mlp4,
            mini_batch: 8,
            // 28 million parameters: most of the time goes into updating them.
            steps: 5,
            // Ten times as fast, at some step a rectifier's input rounds to the other side of zero,
            // and the losses differ by 1e-5 from there on, later by more; they never do before.
            learning_rate: 0.000_02,
            data: few_samples(),
        },
    );
}
