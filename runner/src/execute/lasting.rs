//! The tensors of a rank that outlive a step: what a checkpoint keeps.

use super::Rank;
use pipewright_core::graph::Graph;
use pipewright_core::ids::StageId;
use pipewright_core::plan::{Program, Region};

/// One of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Lasting {
    /// The parameter's name; for the optimizer's state followed by `@` and PyTorch's name of it,
    /// `fc1.weight@momentum_buffer`.
    pub name: String,
    /// The parameter's shape, which its state shares.
    pub shape: Vec<u64>,
    /// The stage that has it.
    pub stage: StageId,
    /// Whether it is a parameter (a weight or a running statistic), not the optimizer's.
    pub parameter: bool,
    region: Region,
}

impl<T> Rank<'_, T> {
    /// Every tensor of this rank that outlives a step, stage by stage, in the graph's order.
    pub fn lasting(&self) -> Vec<Lasting> {
        lasting(self.graph, self.program, self.plan.optimizer.state_names())
    }

    /// The values of one of [`Rank::lasting`].
    pub fn values(&self, tensor: &Lasting) -> &[f32] {
        bytemuck::cast_slice(self.arena.raw(tensor.region))
    }

    /// The same, to set them.
    pub fn values_mut(&mut self, tensor: &Lasting) -> &mut [f32] {
        self.arena.floats(tensor.region)
    }
}

fn lasting(graph: &Graph, program: &Program, states: &[&str]) -> Vec<Lasting> {
    let mut all = vec![];
    for stage in &program.stages {
        for place in &stage.params {
            let param = graph.param(place.param);
            let mut add = |name: String, region: Region, parameter: bool| {
                let (shape, stage) = (param.shape.clone(), stage.stage);
                all.push(Lasting { name, shape, stage, parameter, region });
            };
            add(param.name.clone(), place.weight, true);
            // What deferred statistics keep is zero between steps.
            for (state, region) in states.iter().zip(place.state.into_iter().flatten()) {
                if param.trainable {
                    add(format!("{}@{state}", param.name), region, false);
                }
            }
        }
    }
    all
}
