//! Times of the nodes of a network with attention, by the [`TransformerRates`] of its device.
//!
//! A computation takes the device `flops / (products x peak) + bytes / (memory x bandwidth)` seconds:
//! arithmetic and traffic add up, so small and thin products reach less of the peak than large ones. Hosts
//! launch ahead, so what a layer takes the device and what it takes the host pass beside each other;
//! where they are alike some of both shows: `(device³ + host³)^(1/3)` for each layer and pass. Of that
//! every node has its share: the times of a layer's nodes sum up to the layer's.
//!
//! TensorRates among t devices (Shoeybi et al. 2019, Megatron-LM): products lead into a divided part and,
//! where a residual is added, out of it; there the results are summed, in both passes. Heads, the
//! values between and the logits are divided, norms and residuals are not. The sums keep hosts and devices
//! together, so of a layer the longer of both counts.

use super::{TensorRates, TransformerRates};
use crate::cost::collective::{Algorithm, all_reduce};
use crate::cost::roofline::Numbers;
use crate::cost::{Costs, Device, NodeCost};
use crate::graph::autodiff::ComputationKind;
use crate::graph::{Graph, Node, Op, Precision};
use crate::ids::NodeId;
use crate::units::Nanos;
use std::ops::Range;

/// Bytes that move for each score of an attention, of two bytes: the product writes it, softmax reads and
/// writes 2, dropout reads 2, writes 2 and a mask of 1, the next product reads it.
const SCORE_BYTES: f64 = 13.0;

/// Whether a network is priced so.
pub(in crate::cost) fn has_attention(graph: &Graph) -> bool {
    let attends = |op: &Op| matches!(op, Op::Attention { .. } | Op::ScaledDotProduct { .. });
    graph.nodes().iter().any(|node| attends(&node.op))
}

/// Seconds of the device and of the host.
#[derive(Clone, Copy, Default)]
struct Work {
    device: f64,
    host: f64,
}

impl Work {
    fn sum(parts: impl Iterator<Item = Self>) -> Self {
        let add = |a: Self, b: Self| Self { device: a.device + b.device, host: a.host + b.host };
        parts.fold(Self::default(), add)
    }
}

/// Work of a node's computations.
#[derive(Clone, Copy, Default)]
struct NodeWork {
    forward: Work,
    input: Work,
    weight: Work,
    sum: Work,
    update: f64,
}

/// A network on a device, or on as many as divide its layers.
pub(in crate::cost) struct Priced<'a> {
    pub graph: &'a Graph,
    pub device: &'a Device,
    pub rates: &'a TransformerRates,
    pub samples: u64,
    pub precision: Precision,
    pub divided: Option<&'a TensorRates>,
}

impl Priced<'_> {
    /// The costs of every node. Linear in the nodes.
    pub fn costs(&self) -> Costs {
        let divided = divided_values(self.graph);
        let readers = readers(self.graph);
        let work: Vec<NodeWork> = (0..self.graph.nodes().len())
            .map(|at| self.node(NodeId(at as u32), &divided, readers[at]))
            .collect();
        let mut nodes = vec![NodeCost::default(); work.len()];
        for layer in 0..self.graph.layers().len() {
            let range = self.graph.layer_nodes(layer);
            let range = range.start as usize..range.end as usize;
            let own = &work[range.clone()];
            let factor = self.factor(range.clone(), &divided);
            let forward = self.shares(Work::sum(own.iter().map(|node| node.forward)), factor);
            let backward = own.iter().flat_map(|node| [node.input, node.weight, node.sum]);
            let backward = self.shares(Work::sum(backward), factor);
            for at in range {
                nodes[at] = cost(&work[at], forward, backward);
            }
        }
        Costs { samples: self.samples, nodes }
    }

    /// What the layer of these nodes takes, in what the rates say: 1 but for sizes that were measured.
    fn factor(&self, mut nodes: Range<usize>, divided: &[bool]) -> f64 {
        let Some(of) = self.divided else { return 1.0 };
        let sums = |at: &usize| {
            let node = &self.graph.nodes()[*at];
            multiplies(&node.op) && !divided[*at] && leads_out(node, divided)
        };
        let Some(at) = nodes.find(sums) else { return 1.0 };
        let output = &self.graph.nodes()[at].output;
        let hidden = output.shape.last().copied().unwrap_or(1);
        let positions = output.elements() / hidden.max(1) * self.samples;
        let mut measured = of.layers.iter();
        let same = measured.find(|layer| (layer.hidden, layer.positions) == (hidden, positions));
        same.map_or(1.0, |layer| layer.factor)
    }

    /// Which share of its device and host time each part of a pass takes, times `factor`.
    fn shares(&self, Work { device, host }: Work, factor: f64) -> Work {
        if device <= 0.0 && host <= 0.0 {
            return Work::default();
        }
        if self.divided.is_some() {
            let longer = |is: bool| if is { factor } else { 0.0 };
            return Work { device: longer(device >= host), host: longer(device < host) };
        }
        // With T³ = D³ + H³, T is D (D / T)² + H (H / T)².
        let total = libm::cbrt(device * device * device + host * host * host);
        let share = |part: f64| factor * (part / total) * (part / total);
        Work { device: share(device), host: share(host) }
    }

    fn node(&self, id: NodeId, divided: &[bool], readers: u32) -> NodeWork {
        let node = self.graph.node(id);
        if node.op.is_source() || node.op.is_view() {
            return NodeWork::default();
        }
        let own = Own::new(self, id, divided);
        let launch = self.divided.map_or(self.rates.launch_ns, |divided| divided.launch_ns).secs();
        let mut host = launch;
        if !self.fuses(node) {
            host += self.rates.unfused_ns.secs();
        }
        let bytes = own.inputs + own.outputs + own.parameters * own.width;
        let two = match node.op {
            Op::Attention { .. } | Op::ScaledDotProduct { .. } | Op::MatMul { .. } => 2.0,
            _ => 1.0,
        };
        let device = self.time(&own, own.flops, bytes + own.scores);
        let more = self.more(node);
        let mut forward = Work { device: device + more, host };
        let mut input = Work { device: two * device + more, host };
        if let Op::SoftmaxCrossEntropy { .. } = node.op {
            let third = own.moved(self.logit_bytes() / 3.0);
            forward.device = self.time(&own, 0.0, third);
            input.device = self.time(&own, 0.0, 2.0 * third);
        }
        if matches!(node.op, Op::Add) {
            input = Work::default();
        }
        forward.device += own.collective;
        input.device += own.collective;
        let trains = own.parameters > 0.0;
        let gradient = own.inputs + own.outputs + 2.0 * own.parameters;
        let weight = Work { device: self.time(&own, own.flops, gradient), host: launch };
        let sum = Work { device: self.time(&own, 0.0, 3.0 * own.outputs), host: launch };
        NodeWork {
            forward,
            input,
            weight: if trains { weight } else { Work::default() },
            sum: if readers > 1 { sum } else { Work::default() },
            // As in the roofline.
            update: self.time(&own, 0.0, 6.0 * own.parameters),
        }
    }

    fn time(&self, own: &Own, flops: f64, bytes: f64) -> f64 {
        let peak = self.rates.products * own.flops_per_sec;
        flops / peak + bytes / (self.rates.memory * self.device.memory_bytes_per_sec)
    }

    fn fuses(&self, node: &Node) -> bool {
        self.matrices(node).is_none_or(|matrices| matrices.is_multiple_of(4))
    }

    fn logit_bytes(&self) -> f64 {
        let whole = self.rates.logit_bytes;
        self.divided.map_or(whole, |_| self.rates.divided_logit_bytes.unwrap_or(whole))
    }

    /// What the device takes more for a pass of a divided attention of so many matrices.
    fn more(&self, node: &Node) -> f64 {
        if self.divided.is_none() {
            return 0.0;
        }
        let matrices = self.matrices(node);
        let mut measured = self.rates.attention.iter();
        let same = measured.find(|attention| Some(attention.matrices) == matrices);
        same.map_or(0.0, |attention| attention.more_ns.secs())
    }

    /// Matrices of an attention on one device: as many as it has heads times samples.
    fn matrices(&self, node: &Node) -> Option<u64> {
        let Op::Attention { heads, .. } = node.op else { return None };
        Some(heads * self.samples / u64::from(self.degree()))
    }

    fn degree(&self) -> u32 {
        self.divided.map_or(1, |divided| divided.degree)
    }
}

/// What one device has of a node, for a micro-batch.
struct Own {
    flops_per_sec: f64,
    /// Of single precision's bytes.
    width: f64,
    flops: f64,
    inputs: f64,
    outputs: f64,
    /// Bytes in single precision of what is trained.
    parameters: f64,
    scores: f64,
    /// Values of the first input.
    values: f64,
    /// Seconds of the sum over the devices, in each pass.
    collective: f64,
}

impl Own {
    fn new(of: &Priced<'_>, id: NodeId, divided: &[bool]) -> Self {
        let (graph, node) = (of.graph, of.graph.node(id));
        let precision = of.precision.of(id, &node.op, ComputationKind::Forward, graph.head());
        let Numbers { flops_per_sec, width } = Numbers::of(of.device, precision);
        let samples = of.samples as f64;
        let degree = f64::from(of.degree());
        let share = |divides: bool| if divides { 1.0 / degree } else { 1.0 };
        let specs = graph.operands(id);
        let input = |(id, spec): (&NodeId, &&crate::graph::TensorSpec)| {
            spec.bytes().0 as f64 * share(divided[id.index()])
        };
        let inputs: f64 = node.inputs.iter().zip(&specs).map(input).sum();
        let result = divided[id.index()];
        let own = share(result || multiplies(&node.op));
        let given = graph.result(id);
        let output = given.bytes().0 as f64;
        let trained = node.params.iter().map(|id| graph.param(*id)).filter(|p| p.trainable);
        let heads = match node.op {
            Op::Attention { heads, .. } => heads as f64,
            _ => 0.0,
        };
        let length = node.output.shape.first().copied().unwrap_or(1) as f64;
        let sums =
            of.divided.filter(|_| !result && multiplies(&node.op) && leads_out(node, divided));
        let message = output * width * samples;
        let sum = |divided: &TensorRates| {
            all_reduce(Algorithm::Ring, divided.degree, message, &divided.link)
        };
        Self {
            flops_per_sec,
            width,
            flops: node.op.forward_flops(&specs, given) as f64 * samples * own,
            inputs: inputs * samples * width,
            outputs: output * samples * width * share(result),
            parameters: 4.0 * trained.map(|p| p.elements()).sum::<u64>() as f64 * own,
            scores: SCORE_BYTES * 2.0 * width * heads * length * length * samples * own,
            values: node.inputs.first().map_or(0.0, |id| {
                graph.node(*id).output.elements() as f64 * samples * share(divided[id.index()])
            }),
            collective: sums.map_or(0.0, sum),
        }
    }

    /// So many bytes for each value of the first input.
    fn moved(&self, bytes: f64) -> f64 {
        bytes * self.values
    }
}

/// Whether a product with parameters, or a table of them, is divided.
pub(super) fn multiplies(op: &Op) -> bool {
    matches!(op, Op::Linear { .. } | Op::TiedLinear { .. } | Op::Embedding { .. })
}

/// Whether a product reads a divided value: what it gives is a part of the sum.
fn leads_out(node: &Node, divided: &[bool]) -> bool {
    node.inputs.iter().any(|id| divided[id.index()])
}

/// By node: whether tensor-parallel devices have a part each of its result.
pub(super) fn divided_values(graph: &Graph) -> Vec<bool> {
    let mut found: Vec<bool> = vec![];
    for node in graph.nodes() {
        let divided = node.inputs.iter().any(|id| found[id.index()]);
        found.push(match node.op {
            // Into the divided part, or out of it.
            Op::Linear { .. } | Op::TiedLinear { .. } => !divided,
            _ if graph.loss() == Some(NodeId(found.len() as u32)) => false,
            _ => divided,
        });
    }
    found
}

fn readers(graph: &Graph) -> Vec<u32> {
    let mut count = vec![0; graph.nodes().len()];
    for id in graph.nodes().iter().flat_map(|node| &node.inputs) {
        count[id.index()] += 1;
    }
    count
}

fn cost(work: &NodeWork, forward: Work, backward: Work) -> NodeCost {
    let time = |work: Work, share: Work| {
        Nanos::from_secs(work.device * share.device + work.host * share.host)
    };
    let input_gradient = time(work.input, backward);
    let weight_gradient = time(work.weight, backward);
    NodeCost {
        forward: time(work.forward, forward),
        input_gradient,
        weight_gradient,
        sum_gradients: time(work.sum, backward),
        update: Nanos::from_secs(work.update),
        split_input_gradient: input_gradient,
        split_weight_gradient: weight_gradient,
        tensor_sum: Nanos::ZERO,
        tensor_gradient_sum: Nanos::ZERO,
        tensor_gather: Nanos::ZERO,
        expert_exchange: Nanos::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Cluster;
    use crate::cost::transformer::{MeasuredAttention, MeasuredLayer};
    use crate::graph::presets::Preset;

    fn priced(
        graph: &Graph,
        change: &dyn Fn(&mut TransformerRates),
        degree: Option<u32>,
    ) -> (Vec<NodeCost>, TransformerRates) {
        let device = Cluster::preset("dgx-a100").unwrap().device;
        let mut rates = device.transformers.clone().unwrap();
        change(&mut rates);
        let (samples, precision) = (4, Precision::Bf16);
        let divided = rates.tensor.iter().find(|divided| Some(divided.degree) == degree);
        let all = Priced { graph, device: &device, rates: &rates, samples, precision, divided };
        let nodes = all.costs().nodes;
        (nodes, rates)
    }

    /// Forward time of a block of the network.
    fn block(graph: &Graph, nodes: &[NodeCost]) -> f64 {
        graph.layer_nodes(1).map(|at| nodes[at as usize].forward.secs()).sum()
    }

    #[test]
    fn a_layer_takes_the_longer_of_device_and_host_and_a_little_of_the_other() {
        let graph = Preset::Gpt2Medium.graph().unwrap();
        let launches = |ns| move |rates: &mut TransformerRates| rates.launch_ns = Nanos(ns);
        let block = |ns| block(&graph, &priced(&graph, &launches(ns), None).0);
        let device = block(0);
        // Ten computations of a block are launched.
        let host = |ns: u64| 10.0 * Nanos(ns).secs();
        assert!((block(100_000_000) / host(100_000_000) - 1.0).abs() < 1e-6);
        let alike = (device / 10.0 * 1e9) as u64;
        assert!((block(alike) / (device * libm::cbrt(2.0)) - 1.0).abs() < 1e-4);
    }

    #[test]
    fn small_products_reach_less_of_the_peak() {
        let rate = |hidden: u64| {
            let text = format!(
                "transformer:layers=1,hidden={hidden},heads=4,sequence=512,vocabulary=1000"
            );
            let graph = text.parse::<Preset>().unwrap().graph().unwrap();
            let (nodes, _) = priced(&graph, &|rates| rates.launch_ns = Nanos::ZERO, None);
            let at = graph.nodes().iter().position(|node| node.name == "h.0.mlp.fc").unwrap();
            let node = &graph.nodes()[at];
            let flops = 4 * node.op.forward_flops(&graph.input_specs(node), &node.output);
            flops as f64 / nodes[at].forward.secs() / 312e12
        };
        assert!(rate(64) < rate(512) && rate(512) < rate(4096));
        assert!(rate(4096) < 0.7313 && rate(4096) > 0.6, "{}", rate(4096));
    }

    #[test]
    fn residuals_are_whole_and_what_lies_between_products_is_divided() {
        let graph = Preset::Gpt2.graph().unwrap();
        let divided = divided_values(&graph);
        let named =
            |name: &str| divided[graph.nodes().iter().position(|node| node.name == name).unwrap()];
        for name in ["h.3.attn.qkv", "h.3.attn", "h.3.mlp.fc", "h.3.mlp.gelu", "head"] {
            assert!(named(name), "{name}");
        }
        for name in ["embedding", "h.3.ln_1", "h.3.attn.proj", "h.3.add_1", "h.3.mlp.proj", "ln_f"]
        {
            assert!(!named(name), "{name}");
        }
    }

    #[test]
    fn measured_attentions_take_longer_where_they_are_divided() {
        let graph = Preset::Gpt2Medium.graph().unwrap();
        // 16 heads and 4 samples: 32 matrices on each of two devices, 64 on one.
        let with = |degree, matrices| {
            let more_ns = Nanos::from_secs(1.0);
            let change = move |rates: &mut TransformerRates| {
                rates.tensor[0].layers.clear();
                rates.attention = vec![MeasuredAttention { matrices, more_ns }];
            };
            block(&graph, &priced(&graph, &change, degree).0)
        };
        assert!((with(Some(2), 32) - with(Some(2), 8) - 1.0).abs() < 0.01);
        assert_eq!(with(None, 64), with(None, 8));
    }

    #[test]
    fn measured_layers_take_what_was_measured() {
        let graph = Preset::Gpt2Medium.graph().unwrap();
        let layer = MeasuredLayer { hidden: 1024, positions: 4096, factor: 3.0 };
        let with = |layers: Vec<MeasuredLayer>| {
            let change =
                move |rates: &mut TransformerRates| rates.tensor[0].layers = layers.clone();
            block(&graph, &priced(&graph, &change, Some(2)).0)
        };
        let other = MeasuredLayer { positions: 2048, ..layer };
        assert!((with(vec![layer]) / with(vec![]) - 3.0).abs() < 1e-6);
        assert_eq!(with(vec![other]), with(vec![]));
    }
}
