//! What things take: clusters and links, roofline and measured node times, the closed-form
//! equations of the pipeline.

mod cluster;
pub mod import;
mod profile;
mod roofline;
pub mod takisawa;
mod workload;

pub use cluster::{CLUSTERS, Cluster, ClusterError, Device, Link};
pub use profile::{MeasuredNode, Profile, ProfileError, Sample};
pub use roofline::roofline;
pub use workload::{Edge, Item, Rules, Shard, Sync, Workload};

use crate::graph::Graph;
use crate::graph::autodiff::ComputationKind;
use crate::ids::NodeId;
use crate::units::Nanos;

/// Times of one node for one micro-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCost {
    /// Forward pass.
    pub forward: Nanos,
    /// Gradient of the inputs.
    pub input_gradient: Nanos,
    /// Gradient of the parameters, with accumulation.
    pub weight_gradient: Nanos,
    /// Sum of the gradients of several readers.
    pub sum_gradients: Nanos,
    /// Optimizer update of the node's parameters, once a step.
    pub update: Nanos,
}

impl NodeCost {
    /// The time of one computation.
    pub fn of(&self, kind: ComputationKind) -> Nanos {
        match kind {
            ComputationKind::Forward => self.forward,
            ComputationKind::InputGradient => self.input_gradient,
            ComputationKind::WeightGradient => self.weight_gradient,
            ComputationKind::SumGradients => self.sum_gradients,
        }
    }
}

/// Times of all nodes for micro-batches of one size, computed or measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    /// Samples of a micro-batch.
    pub samples: u64,
    /// By node.
    pub nodes: Vec<NodeCost>,
}

impl Costs {
    /// The costs of `graph` on `cluster`: measured ones where its profile has the node, the
    /// roofline's elsewhere.
    pub fn new(graph: &Graph, cluster: &Cluster, samples: u64) -> Self {
        let mut costs = roofline(graph, &cluster.device, samples);
        if let Some(profile) = &cluster.profile {
            profile.apply(graph, &mut costs);
        }
        costs
    }

    /// One node's.
    pub fn node(&self, id: NodeId) -> &NodeCost {
        &self.nodes[id.index()]
    }
}
