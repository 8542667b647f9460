//! The factor of the loss in half precision: found by steps that change nothing, the same whatever the split,
//! kept in checkpoints, and without a trace in what is learned.

use crate::common::{draft_of, losses, runner_in, scratch, tensors, write};
use pipewright_core::graph::{Graph, GraphBuilder, Op};
use pipewright_core::plan::{Draft, Plan, Precision};
use pipewright_core::schedule::ScheduleKind;
use serde_json::Value;
use std::path::Path;

/// A network whose gradients are steep: with the factor that training begins with they overflow.
fn steep() -> Graph {
    let mut g = GraphBuilder::new("steep");
    g.layer("one");
    let x = g.input(vec![1, 4, 4]);
    let x = g.add("flatten", Op::Flatten, &[x]);
    let x = g.linear("one.fc", x, 12);
    let x = g.relu("one.relu", x);
    g.layer("two");
    let x = g.linear("two.fc", x, 10);
    let x = g.add("two.steep", Op::Affine { scale: 64.0, shift: 0.0 }, &[x]);
    let target = g.add("target", Op::Target { classes: 10 }, &[]);
    g.add("loss", Op::SoftmaxCrossEntropy { label_smoothing: 0.0 }, &[x, target]);
    g.finish().expect("a network")
}

fn draft(precision: Precision, stages: u32) -> Draft {
    let mut draft = draft_of(steep(), stages);
    (draft.mini_batch, draft.micro_batches, draft.steps) = (8, 2, 12);
    draft.optimizer = "sgd:lr=0.0001,momentum=0.9".parse().unwrap();
    draft.training.precision = precision;
    draft
}

fn plan(precision: Precision, stages: u32) -> Plan {
    draft(precision, stages).plan().unwrap().0
}

/// What the metrics say of each step: the factor, and whether it was skipped.
fn factors(out: &Path) -> Vec<(f64, bool)> {
    let text = std::fs::read_to_string(out.join("rank-000.jsonl")).unwrap();
    let step = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        (line["loss_scale"].as_f64().unwrap(), line["skipped"] == true)
    };
    text.lines().map(step).collect()
}

#[test]
fn found_by_all_ranks_and_kept_in_checkpoints() {
    let dir = scratch("loss-scaling");
    write(&dir, "one.json", plan(Precision::F16, 1).to_json());
    write(&dir, "two.json", plan(Precision::F16, 2).to_json());
    let run = |plan: &str, out: &str, more: &[&str]| {
        let args = [&[plan, "--out", out, "--save-every", "0"][..], more].concat();
        runner_in(&dir, &args).done();
        dir.join(out)
    };
    let whole = run("one.json", "whole", &[]);
    let found = factors(&whole);
    let tried = found.iter().take_while(|(_, skipped)| *skipped).count();
    assert!((2..8).contains(&tried), "{found:?}");
    for (step, (factor, skipped)) in found.iter().enumerate() {
        assert_eq!(*factor, 65536.0 / f64::from(1 << step.min(tried)), "step {step}: {found:?}");
        assert_eq!(*skipped, step < tried, "step {step}: {found:?}");
    }
    let last = |out: &Path| tensors(&out.join("checkpoints/step-12"));
    let two = run("two.json", "two", &[]);
    assert_eq!((factors(&two), losses(&two)), (found.clone(), losses(&whole)));
    assert!(last(&two) == last(&whole), "the same weights on two ranks");
    // Between two steps that are skipped, and after them.
    for (out, steps) in [("early", "1"), ("late", "9")] {
        run("two.json", out, &["--steps", steps]);
        let cut = run("two.json", out, &["--resume"]);
        assert_eq!((factors(&cut), losses(&cut)), (found.clone(), losses(&whole)));
        assert!(last(&cut) == last(&whole), "cut after {steps} steps");
    }
    std::fs::remove_dir_all(dir).ok();
}

/// Gradients are those of the loss without its factor: about as long as in single precision.
#[test]
fn lengths_of_gradients_are_without_it() {
    let dir = scratch("loss-scaling-norm");
    let norms = |precision: Precision| -> Vec<f64> {
        let mut draft = draft(precision, 1);
        draft.training.clip_norm = Some(1e6);
        // Weights stay as they are, so that all steps can be compared.
        draft.optimizer = "sgd:lr=0".parse().unwrap();
        write(&dir, "plan.json", draft.plan().unwrap().0.to_json());
        runner_in(&dir, &["plan.json", "--out", "run", "--overwrite"]).done();
        let text = std::fs::read_to_string(dir.join("run/rank-000.jsonl")).unwrap();
        let norm = |line: &str| {
            let line: Value = serde_json::from_str(line).unwrap();
            line["gradient_norm"].as_f64().filter(|_| line["skipped"] != true).unwrap_or(f64::NAN)
        };
        text.lines().map(norm).collect()
    };
    let (single, half) = (norms(Precision::F32), norms(Precision::F16));
    let compared: Vec<f64> = half.iter().zip(&single).map(|(half, single)| half / single).collect();
    assert!(compared.iter().filter(|ratio| ratio.is_finite()).count() >= 4, "{compared:?}");
    let finite = compared.iter().filter(|ratio| ratio.is_finite());
    assert!(finite.clone().all(|ratio| (ratio - 1.0).abs() < 0.02), "{compared:?}");
    std::fs::remove_dir_all(dir).ok();
}

#[test]
fn what_it_does_not_go_together_with() {
    let mut encoded = draft(Precision::F16, 2);
    encoded.communication.gradients = "fp8-e5m2+feedback".parse().unwrap();
    let error = encoded.plan().unwrap_err().to_string();
    assert!(
        error.starts_with("communication.gradients is fp8-e5m2+feedback, must be fp32"),
        "{error}"
    );
    let mut asynchronous = draft(Precision::F16, 2);
    asynchronous.schedule = ScheduleKind::PipeDream;
    let error = asynchronous.plan().unwrap_err().to_string();
    assert!(error.contains("scaling the loss"), "{error}");
}
