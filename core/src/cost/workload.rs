//! The input of partitioners, search and closed forms: a graph of items with times and bytes.
//!
//! A network of ours becomes one by [`Workload::of`], others' profile files by [`super::import`].
//! Times and bytes are those of one batch of [`Workload::samples`] samples on one device.

mod network;

pub use network::NetworkError;

use super::forms::FormError;
use super::{Cluster, Costs, Link};
use crate::graph::autodiff::{BackwardStyle, ComputationKind, training_graph};
use crate::graph::{DType, Graph, Node, Precision};
use crate::ids::StageId;
use crate::units::{Bytes, Nanos};

/// A graph of items to place on devices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workload {
    /// For people.
    pub name: String,
    /// Samples that times, outputs and stashes stand for.
    pub samples: u64,
    /// In topological order.
    pub items: Vec<Item>,
    /// Ascending by reader, then by producer; each pair once.
    pub edges: Vec<Edge>,
    /// Memory of a device, where the file says it.
    pub memory: Option<Bytes>,
    /// Devices, where the file says it.
    pub devices: Option<u32>,
    /// Host processors beside the devices, for items that may stand there.
    pub hosts: u32,
    /// Micro-batches of a step, where the file says it; one is [`Self::samples`] samples.
    pub micro_batches: Option<u32>,
    /// The link between devices, where the file says it.
    pub link: Option<Link>,
}

/// One thing that a device computes: a layer, or one operation of a layer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Item {
    /// Unique in the workload; an imported one is the file's own name of the node, a space, and
    /// what kind of node it is.
    pub name: String,
    /// Forward pass.
    pub forward: Nanos,
    /// Gradient of the inputs; the whole backward pass where the profile does not split it.
    pub backward_input: Nanos,
    /// Gradient of the parameters.
    pub backward_weight: Nanos,
    /// The value that it hands to its readers.
    pub output: Bytes,
    /// What is kept from the forward to the backward pass, once per micro-batch in flight.
    pub stash: Bytes,
    /// What it holds all the time, whatever is in flight: what the profile says, else the
    /// parameters and their gradients.
    pub state: Bytes,
    /// Parameters, without gradients and optimizer state.
    pub parameters: Bytes,
    /// Bytes that its collectives add to edges which leave its stage, as in [`Shard::syncs`].
    pub syncs: Vec<Sync>,
    /// Other ways to compute the item: divided among devices, with recomputation. Ascending by
    /// degree, those that do not recompute first.
    pub shards: Vec<Shard>,
    /// Restrictions of where it may stand.
    pub rules: Rules,
    /// The stage that the file puts it on, where it says one.
    pub stage: Option<u32>,
    /// What its backward pass reads, where the profile says it.
    pub keeps: Option<Keeps>,
}

/// What the backward pass of an item reads beside the gradient of its value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Keeps {
    /// Items whose values it reads: its inputs, or itself. Ascending.
    pub values: Vec<u32>,
    /// What the forward pass makes for it besides.
    pub saved: Bytes,
}

/// An item computed another way: divided among `degree` devices (tensor parallelism), with or
/// without recomputation of activations. Times and bytes per device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shard {
    /// Devices.
    pub degree: u32,
    /// Whether activations are computed again in the backward pass.
    pub recompute: bool,
    /// Forward pass, with its collectives.
    pub forward: Nanos,
    /// Whole backward pass, with its collectives.
    pub backward: Nanos,
    /// What is kept from the forward to the backward pass, once per micro-batch in flight.
    pub stash: Bytes,
    /// What it holds all the time, whatever is in flight.
    pub state: Bytes,
    /// Parameters.
    pub parameters: Bytes,
    /// Bytes that its collectives add to edges which leave its stage; ascending.
    pub syncs: Vec<Sync>,
}

/// Bytes to add to the edge to or from `other` when it leaves the stage: the tensor-parallel group
/// has to gather or scatter what it hands over. Like the edge's own bytes they travel once in each
/// direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sync {
    /// The item at the other end of the edge.
    pub other: u32,
    /// Bytes.
    pub bytes: Bytes,
}

/// Where an item may stand.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    /// Time on a host processor, where it can run there.
    pub host: Option<Nanos>,
    /// Cannot run on an accelerator.
    pub host_only: bool,
    /// Items of one group stand on one device: a backward operation with its forward one.
    pub group: Option<u32>,
    /// A backward operation that is an item of its own, as in training graphs.
    pub backward: bool,
}

/// A reader of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    /// The item that reads.
    pub to: u32,
    /// The item that computes.
    pub from: u32,
    /// What travels when they stand on different devices; forward, and once more back as gradient.
    pub bytes: Bytes,
}

impl Item {
    /// Forward and backward pass.
    pub fn time(&self) -> Nanos {
        self.forward + self.backward()
    }

    /// The whole backward pass.
    pub fn backward(&self) -> Nanos {
        self.backward_input + self.backward_weight
    }
}

impl Workload {
    /// The nodes of `graph` for a mini-batch whose passes are of `parts` equal parts each: times are those of all
    /// parts one after the other.
    ///
    /// # Errors
    /// [`FormError::Parts`] where they are not equal.
    pub fn in_parts(
        graph: &Graph,
        cluster: &Cluster,
        precision: Precision,
        samples: u64,
        parts: u64,
    ) -> Result<Self, FormError> {
        if parts == 0 || !samples.is_multiple_of(parts) {
            return Err(FormError::Parts { samples, parts });
        }
        let of = |samples| Self::of(graph, &Costs::new(graph, cluster, samples, precision));
        let mut whole = of(samples);
        if parts > 1 {
            for (item, part) in whole.items.iter_mut().zip(of(samples / parts).items) {
                item.forward = part.forward * parts;
                item.backward_input = part.backward_input * parts;
                item.backward_weight = part.backward_weight * parts;
            }
        }
        Ok(whole)
    }

    /// The nodes of `graph` as items, with `costs`. Sources and views are items without work.
    pub fn of(graph: &Graph, costs: &Costs) -> Self {
        let training =
            training_graph(graph, &graph.division(&[]), StageId(0), BackwardStyle::Split);
        let parameters = |node: &Node| {
            Bytes(4) * node.params.iter().map(|id| graph.param(*id).elements()).sum::<u64>()
        };
        let item = |node: &Node| Item {
            name: node.name.clone(),
            output: node.output.bytes() * costs.samples,
            stash: if node.op.is_view() { Bytes(0) } else { node.output.bytes() * costs.samples },
            parameters: parameters(node),
            state: parameters(node) * 2,
            ..Item::default()
        };
        let mut items: Vec<Item> = graph.nodes().iter().map(item).collect();
        for computation in &training.computations {
            let time = costs.time(computation);
            let item = &mut items[computation.node.index()];
            match computation.kind {
                ComputationKind::Forward | ComputationKind::PartialLoss => item.forward += time,
                ComputationKind::WeightGradient => item.backward_weight += time,
                _ => item.backward_input += time,
            }
        }
        let mut edges = vec![];
        for (to, node) in (0..).zip(graph.nodes()) {
            let read =
                |id: &crate::ids::NodeId| Edge { to, from: id.0, bytes: items[id.index()].output };
            edges.extend(node.inputs.iter().map(read));
        }
        edges.sort_unstable();
        edges.dedup();
        Self { name: graph.name().into(), samples: costs.samples, items, edges, ..Self::default() }
    }

    /// The same as training in `precision` keeps and sends it: with activations in two bytes an element
    /// half of the bytes of all but samples, targets and indexes. Parameters are kept in four.
    pub fn of_training(graph: &Graph, costs: &Costs, precision: Precision) -> Self {
        let mut work = Self::of(graph, costs);
        if !precision.is_half() {
            return work;
        }
        let mut packed: Vec<bool> = vec![];
        for (item, node) in work.items.iter_mut().zip(graph.nodes()) {
            let half = match node.inputs.first() {
                Some(shown) if node.op.is_view() => packed[shown.index()],
                _ => !node.op.is_source() && node.output.dtype == DType::F32,
            };
            if half {
                (item.output, item.stash) = (Bytes(item.output.0 / 2), Bytes(item.stash.0 / 2));
            }
            packed.push(half);
        }
        for edge in &mut work.edges {
            edge.bytes = work.items[edge.from as usize].output;
        }
        work
    }

    /// Forward and backward time of everything.
    pub fn time(&self) -> Nanos {
        self.items.iter().map(Item::time).sum()
    }

    /// All parameters.
    pub fn parameters(&self) -> Bytes {
        self.items.iter().map(|item| item.parameters).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Cluster;
    use crate::graph::presets::Preset;

    #[test]
    fn a_network_is_all_there() {
        let graph = Preset::Resnet50.graph().unwrap();
        let cluster = Cluster::preset("dgx-a100").unwrap();
        let work = Workload::of(&graph, &Costs::new(&graph, &cluster, 8, Precision::F32));
        assert_eq!(work.items.len(), graph.nodes().len());
        assert!(work.parameters().0 >= 4 * graph.trainable_elements());
        assert!(work.edges.iter().all(|e| e.from < e.to));
        // What is computed does not depend on when gradients are handed on.
        let whole = graph.division(&[]);
        let fused = training_graph(&graph, &whole, StageId(0), BackwardStyle::Fused);
        let costs = Costs::new(&graph, &cluster, 8, Precision::F32);
        let each = fused.computations.iter().map(|c| costs.node(c.node).of(c.kind));
        assert_eq!(work.time(), each.sum());
    }

    #[test]
    fn half_precision_halves_what_is_kept_and_sent() {
        let graph = Preset::DigitsCnn.graph().unwrap();
        let cluster = Cluster::preset("dgx-a100").unwrap();
        let costs = Costs::new(&graph, &cluster, 8, Precision::Bf16);
        let [whole, half] = [Precision::F32, Precision::Bf16]
            .map(|precision| Workload::of_training(&graph, &costs, precision));
        assert_eq!(whole, Workload::of(&graph, &costs));
        let sources = graph.nodes().iter().map(|node| node.op.is_source());
        for ((a, b), source) in whole.items.iter().zip(&half.items).zip(sources) {
            let (kept, sent) = if source || a.output == b.output { (1, 1) } else { (2, 2) };
            assert_eq!((b.stash * kept, b.output * sent), (a.stash, a.output), "{}", a.name);
            assert_eq!((a.time(), a.parameters), (b.time(), b.parameters));
        }
        let sent = |work: &Workload| work.edges.iter().map(|edge| edge.bytes).sum::<Bytes>();
        assert!(sent(&half).0 < sent(&whole).0 * 6 / 10, "all but the samples");
    }
}
