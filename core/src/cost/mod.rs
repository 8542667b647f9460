//! Costs: clusters and links, roofline and measured node times; in closed form collectives,
//! training state, PyTorch's parallel forms and Takisawa's pipeline; and the fit of
//! all these numbers to measurements.
//!
//! ```
//! use pipewright_core::cost::{Cluster, Costs};
//! use pipewright_core::graph::Precision;
//! use pipewright_core::graph::presets::Preset;
//! use pipewright_core::ids::LaneId;
//! use pipewright_core::units::{Bytes, Nanos};
//!
//! let cluster = Cluster::preset("dgx-a100")?;
//! let graph = Preset::Vgg16.graph()?;
//! let costs = Costs::new(&graph, &cluster, 8, Precision::F32);
//! let loss = graph.loss().expect("presets have one");
//! assert!(costs.node(loss).forward > Nanos::ZERO);
//! assert!(cluster.link(LaneId(0), LaneId(1)).time(Bytes(1 << 30)) > Nanos(1_000_000));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod calibrate;
mod cluster;
mod codec_speed;
pub mod collective;
pub mod forms;
pub mod import;
pub mod memory;
mod presets;
mod profile;
mod roofline;
pub mod takisawa;
mod transformer;
mod workload;

pub use cluster::{Cluster, ClusterError, Device, Efficiencies, Halves, Level, Link};
pub use codec_speed::CodecSpeed;
pub use presets::CLUSTERS;
pub use profile::{MeasuredNode, Profile, ProfileError, Sample, SplitSample};
pub use transformer::{MeasuredAttention, MeasuredLayer, TensorRates, TransformerRates};
pub use workload::{Edge, Item, Keeps, NetworkError, Rules, Shard, Sync, Workload};

use crate::compress::Reduction;
use crate::graph::autodiff::{Computation, ComputationKind, partial_loss};
use crate::graph::{ExpertParallel, Graph, Op, ParallelLinear, Precision};
use crate::ids::{LaneId, NodeId};
use crate::units::{Bytes, Nanos};
use roofline::roofline;
use transformer::{Priced, has_attention};

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
    /// Gradient of the inputs in a split backward pass.
    pub split_input_gradient: Nanos,
    /// Gradient of the parameters in a split backward pass.
    pub split_weight_gradient: Nanos,
    /// Sum over the tensor group of the node's output, or for columns of the gradient of its input.
    /// Of a norm on a slice of the sequence that of its parameters' gradients, once a step.
    pub tensor_sum: Nanos,
    /// Sum over the tensor group in the pass of input gradients: as that, but of a sum over experts that of the gradient
    /// of their shares.
    pub tensor_gradient_sum: Nanos,
    /// What ranks with a slice of the sequence each take to have all of the node's output, or to sum and scatter it.
    pub tensor_gather: Nanos,
    /// What replicas of an expert group take to send each other the rows that the node gives.
    pub expert_exchange: Nanos,
}

impl NodeCost {
    /// A node was measured whole, and each rank computes one of so many parts.
    fn divide(&mut self, parts: u32) {
        let times = [
            &mut self.forward,
            &mut self.input_gradient,
            &mut self.weight_gradient,
            &mut self.sum_gradients,
            &mut self.update,
            &mut self.split_input_gradient,
            &mut self.split_weight_gradient,
        ];
        times.into_iter().for_each(|time| time.0 /= u64::from(parts));
    }

    /// The time of the tensor group's sum behind a computation that has one; of a weight gradient it is once a step.
    pub fn sum_of(&self, kind: ComputationKind) -> Nanos {
        match kind {
            ComputationKind::WeightGradient => Nanos::ZERO,
            ComputationKind::InputGradient => self.tensor_gradient_sum,
            _ => self.tensor_sum,
        }
    }

    /// The time of one computation.
    pub fn of(&self, kind: ComputationKind) -> Nanos {
        match kind {
            ComputationKind::Forward | ComputationKind::PartialLoss => self.forward,
            ComputationKind::InputGradient => self.input_gradient,
            ComputationKind::WeightGradient => self.weight_gradient,
            ComputationKind::SumGradients => self.sum_gradients,
            ComputationKind::AllGather | ComputationKind::ReduceScatter => self.tensor_gather,
            ComputationKind::RowsToExperts | ComputationKind::RowsToTokens => self.expert_exchange,
            // A copy of a part.
            ComputationKind::Scatter => Nanos::ZERO,
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
    /// The costs of `graph` on `cluster`: measured ones where its profile has the node; elsewhere those
    /// of the device's rates, which it may have for networks with attention, or the roofline's.
    pub fn new(graph: &Graph, cluster: &Cluster, samples: u64, precision: Precision) -> Self {
        let device = &cluster.device;
        let mut costs = match &device.transformers {
            Some(rates) if has_attention(graph) => {
                Priced { graph, device, rates, samples, precision, divided: None }.costs()
            }
            _ => roofline(graph, device, samples, precision),
        };
        if let Some(profile) = &cluster.profile {
            profile.apply(graph, &mut costs);
        }
        if let Some(tensor) = graph.tensor_parallel() {
            costs.add_tensor_sums(graph, cluster, tensor.degree, precision);
        }
        if let Some(experts) = graph.expert_groups() {
            costs.add_expert_exchanges(graph, cluster, experts, precision);
        }
        costs
    }

    /// Rows that replicas send each other: those of the first expert group.
    fn add_expert_exchanges(
        &mut self,
        graph: &Graph,
        cluster: &Cluster,
        experts: &ExpertParallel,
        precision: Precision,
    ) {
        let apart = graph.tensor_parallel().map_or(1, |tensor| tensor.degree);
        let ranks: Vec<LaneId> = (0..experts.degree).map(|place| LaneId(place * apart)).collect();
        let group = collective::Group::new(cluster, &ranks, cluster.ranks_per_node);
        for node in experts.exchanges() {
            let rows = graph.node(node).output.bytes() * self.samples;
            let rows = Bytes(rows.0 / if precision.is_half() { 2 } else { 1 });
            let seconds = collective::all_to_all(cluster, &group, rows.0 as f64).seconds;
            self.nodes[node.index()].expert_exchange = Nanos::from_secs(seconds);
        }
    }

    /// Sums over tensor groups of what is stored in two bytes travel so, as what is gathered does. Within a node where groups
    /// fill it; else as long as that of the first group on two nodes, for which others wait.
    fn add_tensor_sums(
        &mut self,
        graph: &Graph,
        cluster: &Cluster,
        degree: u32,
        precision: Precision,
    ) {
        let stored = |bytes: Bytes| Bytes(bytes.0 / if precision.is_half() { 2 } else { 1 });
        let within = cluster.ranks_per_node / degree * degree;
        let all_within = cluster.nodes == 1 || within == cluster.ranks_per_node;
        let first = if all_within { 0 } else { within };
        let ranks: Vec<LaneId> = (first..first + degree).map(LaneId).collect();
        let group = collective::Group::new(cluster, &ranks, cluster.ranks_per_node);
        for (node, cost) in (0..).map(NodeId).zip(&mut self.nodes) {
            let summed = match graph.parallel_linear(node) {
                Some(ParallelLinear::Column) => graph.node(node).inputs[0],
                _ => node,
            };
            let of_params = graph.node(node).params.iter().map(|id| graph.param(*id).elements());
            let of_params = graph.computes_slice(node).then(|| Bytes(4) * of_params.sum::<u64>());
            // Each of its two computations takes half of what a loss takes.
            let of_loss = partial_loss(graph, node);
            cost.forward.0 /= 1 + u64::from(of_loss.is_some());
            let activations = of_loss.unwrap_or(stored(graph.whole(summed).bytes())) * self.samples;
            let time = |bytes: Bytes| {
                let plain = Reduction::default();
                collective::price(cluster, &group, false, plain, bytes.0 as f64).seconds
            };
            cost.tensor_sum = Nanos::from_secs(time(of_params.unwrap_or(activations)));
            cost.tensor_gradient_sum = cost.tensor_sum;
            if let (Op::Combine, [shares, _]) = (&graph.node(node).op, &graph.node(node).inputs[..])
            {
                let shares = stored(graph.whole(*shares).bytes()) * self.samples;
                cost.tensor_gradient_sum = Nanos::from_secs(time(shares));
            }
            // One of the two halves of a sum around a ring.
            if graph.is_exchanged(node) {
                let whole = stored(graph.whole(node).bytes()) * self.samples;
                cost.tensor_gather = Nanos::from_secs(time(whole) / 2.0);
            }
        }
    }

    /// The costs of a schedule that splits backward passes, or of one that does not.
    pub fn with_backward(mut self, split: bool) -> Self {
        for node in self.nodes.iter_mut().filter(|_| split) {
            node.input_gradient = node.split_input_gradient;
            node.weight_gradient = node.split_weight_gradient;
        }
        self
    }

    /// The time of one computation, and of the tensor group's sum behind it: its ranks do the same at the same
    /// moments.
    pub fn time(&self, computation: &Computation) -> Nanos {
        let cost = self.node(computation.node);
        let sum = if computation.reduces { cost.sum_of(computation.kind) } else { Nanos::ZERO };
        cost.of(computation.kind) + sum
    }

    /// What of it the tensor group exchanges.
    pub fn exchange(&self, computation: &Computation) -> Nanos {
        match computation.kind {
            kind if kind.is_exchange() => self.time(computation),
            kind => self.time(computation).saturating_sub(self.node(computation.node).of(kind)),
        }
    }

    /// One node's.
    pub fn node(&self, id: NodeId) -> &NodeCost {
        &self.nodes[id.index()]
    }
}
