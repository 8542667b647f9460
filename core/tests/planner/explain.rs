//! Terms of a predicted step add up to it, and advice is true when followed.

use pipewright_core::cost::{Cluster, Link};
use pipewright_core::graph::presets::Preset;
use pipewright_core::partition::uniform;
use pipewright_core::plan::{Draft, Model, Plan};
use pipewright_core::predict::{Prediction, What, best_micro_batches, best_move, explain, predict};
use pipewright_core::schedule::ScheduleKind;
use pipewright_core::units::Nanos;

fn draft(preset: Preset, cluster: &str, stages: u32) -> Draft {
    let cuts = uniform(&preset.graph().unwrap(), stages).unwrap();
    Draft::new(Model::Preset(preset), Cluster::preset(cluster).unwrap(), cuts)
}

fn plan(draft: Draft) -> (Plan, Prediction) {
    draft.plan().unwrap()
}

#[test]
fn the_terms_add_up_to_the_step() {
    for (preset, stages) in [(Preset::Vgg16, 8), (Preset::Resnet50, 4), (Preset::Mlp4, 1)] {
        for kind in [ScheduleKind::GPipe, ScheduleKind::OneFOneB] {
            for cluster in ["reedbush-l", "dgx-a100"] {
                let mut draft = draft(preset, cluster, stages);
                draft.schedule = kind;
                let (plan, prediction) = plan(draft);
                let why = explain(&plan, &prediction);
                let sum: Nanos = why.terms.iter().map(|t| t.time).sum();
                assert_eq!(sum, prediction.timeline.step, "{preset} {kind} {cluster}");
                assert!(why.constant <= sum);
            }
        }
    }
}

#[test]
fn a_slow_link_and_a_heavy_stage_are_named() {
    let mut slow = draft(Preset::Vgg16, "dgx-a100", 2);
    slow.cluster.local = Link { latency_ns: Nanos(1), bytes_per_sec: 1e8 };
    let (p, prediction) = plan(slow);
    let what = explain(&p, &prediction).bound().unwrap().what;
    assert!(matches!(what, What::Transfer(..)), "{what}");

    let mut far = draft(Preset::Mlp4, "dgx-a100", 2);
    far.cluster.local = Link { latency_ns: Nanos(50_000_000), bytes_per_sec: 1e11 };
    let (p, prediction) = plan(far);
    let what = explain(&p, &prediction).bound().unwrap().what;
    assert!(matches!(what, What::StartUp(..)), "{what}");

    // Uniform VGG16: the first stage has the large images, and many micro-batches wait for it.
    let mut uneven = draft(Preset::Vgg16, "dgx-a100", 4);
    (uneven.mini_batch, uneven.micro_batches) = (256, 32);
    let (p, prediction) = plan(uneven);
    let heavy = (0..4)
        .max_by_key(|s| prediction.stages[*s].forward + prediction.stages[*s].backward())
        .unwrap();
    assert_eq!(
        explain(&p, &prediction).bound().unwrap().what.to_string(),
        format!("stage {heavy} computes")
    );
}

#[test]
fn the_best_number_of_micro_batches_is_the_shortest_step() {
    let mut draft = draft(Preset::Fc32 { width: 5000 }, "reedbush-l", 8);
    (draft.schedule, draft.mini_batch, draft.micro_batches) = (ScheduleKind::GPipe, 1200, 5);
    let (p, prediction) = plan(draft.clone());
    let best = best_micro_batches(&p).unwrap().unwrap();
    assert!(best.step <= prediction.timeline.step);
    assert!(best.flat.0 <= best.best && best.best <= best.flat.1);
    draft.micro_batches = best.best;
    assert_eq!(plan(draft.clone()).1.timeline.step, best.step);
    for (m, step) in &best.tried {
        assert!(*step >= best.step);
        let inside = (best.flat.0..=best.flat.1).contains(m);
        assert!(!inside || step.0 * 100 <= best.step.0 * 101, "m = {m}");
    }
}

#[test]
fn the_best_move_repairs_a_cut_that_was_pushed_away() {
    let graph = Preset::Vgg16.graph().unwrap();
    let mut pushed = draft(Preset::Vgg16, "dgx-a100", 4);
    pushed.cuts = vec![4, 10, 20];
    let (mut p, prediction) = plan(pushed);
    let found = best_move(&p, &prediction).unwrap().expect("the cuts are far from even");
    p.cuts[found.cut] = found.node;
    let moved = predict(&p).unwrap().timeline.step;
    assert_eq!(moved, found.step);
    assert!(moved < prediction.timeline.step);
    assert!(graph.layers().iter().any(|l| l.name == found.after));
}
