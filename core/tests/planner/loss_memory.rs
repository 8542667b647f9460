//! Memory of a loss: of a large vocabulary the logits are a stage's largest values.

use pipewright_core::cost::Cluster;
use pipewright_core::graph::Precision;
use pipewright_core::graph::autodiff::ComputationKind;
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::{Area, Draft, Kernel, Model, StageProgram};
use pipewright_core::schedule::ScheduleKind;

const POSITIONS: u64 = 32;
const VOCABULARY: u64 = 4096;

/// The last stage of a small language model whose logits outweigh all else.
fn last_stage(change: impl FnOnce(&mut Draft)) -> (StageProgram, Kernel) {
    let text = format!(
        "transformer:layers=2,hidden=16,heads=2,sequence={POSITIONS},vocabulary={VOCABULARY}"
    );
    let preset: Preset = text.parse().unwrap();
    let mut draft = Draft::new(Model::Preset(preset), Cluster::preset("laptop").unwrap(), vec![]);
    (draft.mini_batch, draft.micro_batches) = (4, 2);
    change(&mut draft);
    let (plan, prediction) = draft.plan().unwrap();
    let graph = plan.model.graph().unwrap();
    let stages = prediction.programs.into_iter().flat_map(|program| program.stages);
    let stage = stages.max_by_key(|stage| stage.stage).unwrap();
    let of_loss = |kernel: &&Kernel| {
        kernel.kind == ComputationKind::InputGradient && graph.node(kernel.node).op.is_loss()
    };
    let kernel = stage.kernels.iter().find(of_loss).unwrap().clone();
    (stage, kernel)
}

fn logits(bytes_of_one: u64) -> u64 {
    2 * POSITIONS * VOCABULARY * bytes_of_one
}

#[test]
fn a_gradient_of_logits_lies_where_they_did() {
    for kind in [ScheduleKind::OneFOneB, ScheduleKind::ZbH1] {
        let (stage, kernel) = last_stage(|draft| draft.schedule = kind);
        assert_eq!(kernel.reads[0], kernel.writes[0], "{kind}");
        assert_eq!(kernel.reads[0].area, Area::Slot, "{kind}");
        assert_eq!(kernel.reads[0].bytes.0, logits(4), "{kind}");
        // In all that a micro-batch needs they are there once.
        assert!(stage.slots.bytes.0 < 3 * logits(4) / 2, "{kind}");
        assert!(
            stage.transient_forward.0.max(stage.transient_backward.0) < logits(4) / 2,
            "{kind}"
        );
    }
}

/// Processors unpack what they compute with; what is stored lies in one place.
#[test]
fn the_same_in_two_bytes() {
    let (stage, kernel) = last_stage(|draft| draft.training.precision = Precision::Bf16);
    let ([stored], [packed]) = (&kernel.unpack[..1], &kernel.pack[..]) else {
        panic!("logits and their gradient are packed: {kernel:?}");
    };
    assert_eq!(stored.0, packed.1);
    assert_eq!(kernel.reads[0], kernel.writes[0], "unpacked they lie in one place, too");
    assert_eq!(stored.0.bytes.0, logits(2));
    assert!(stage.slots.bytes.0 < 3 * logits(2) / 2);
}

/// A loss that is a stage of its own sends the gradient to where the logits are.
#[test]
fn what_is_sent_lies_apart() {
    let (_, kernel) = last_stage(|draft| {
        let graph = draft.model.graph().unwrap();
        let loss = graph.nodes().iter().position(|node| node.op.is_loss()).unwrap();
        draft.cuts = vec![loss as u32];
    });
    assert_ne!(kernel.reads[0], kernel.writes[0]);
}
