//! Logits whose gradient is written over them: of a large vocabulary they are the stage's largest values.

use super::stage::Life;
use crate::graph::Graph;
use crate::graph::autodiff::{Computation, ComputationKind, TrainingGraph};
use crate::ids::ValueId;
use crate::units::Bytes;

/// What a loss judges, and its gradient, which has no place of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::plan) struct InPlace {
    /// The computation that writes the gradient.
    pub at: usize,
    /// What it reads last.
    pub logits: ValueId,
    pub gradient: ValueId,
}

impl InPlace {
    /// None where a message takes either, the logits are read later, or the two have not one size. Logits that came by
    /// a message have a gradient that goes by one.
    pub(super) fn of(
        network: &Graph,
        graph: &TrainingGraph,
        sizes: &[Bytes],
        lives: &[Life],
    ) -> Option<Self> {
        let loss = network.loss()?;
        let is_gradient =
            |c: &Computation| c.node == loss && c.kind == ComputationKind::InputGradient;
        let at = graph.computations.iter().position(is_gradient)?;
        let Computation { reads, writes, .. } = &graph.computations[at];
        let (logits, gradient) = (*reads.first()?, *writes.first()?);
        let mut sends = graph.sends.iter().chain(&graph.gradient_sends);
        let travels = sends.any(|port| port.value == logits || port.value == gradient);
        let is_last = lives[logits.index()].last == at as u32;
        let fits = sizes[logits.index()] == sizes[gradient.index()];
        (!travels && is_last && fits).then_some(Self { at, logits, gradient })
    }

    /// Whether computation `at` finds `value` unpacked where it finds the logits.
    pub fn shares(self, at: usize, value: ValueId) -> bool {
        (self.at, self.gradient) == (at, value)
    }
}
