//! Times of nodes from the device's peak numbers.
//!
//! Williams et al. 2009: a computation takes the longer of its arithmetic at the device's peak and
//! its memory traffic at the device's bandwidth. A constant per computation is added (launch and
//! dispatch): without it the time of small micro-batches comes out far too low.
//!
//! Limits: efficiencies differ by kind of operation, not by shape; caches are not modelled. Where a device
//! has rates for networks with attention, those are priced by `transformer/nodes.rs`.

use super::transformer::has_attention;
use super::{Costs, Device, NodeCost};
use crate::graph::autodiff::ComputationKind;
use crate::graph::{Graph, Node, Op, Precision};
use crate::ids::NodeId;
use crate::units::Nanos;

impl Device {
    /// Share of the arithmetic peak that an operation reaches.
    pub fn efficiency_of(&self, op: &Op) -> f64 {
        let by_kind = self.efficiencies.unwrap_or_default();
        let own = match op {
            Op::Conv2d { .. } => by_kind.convolution,
            Op::Linear { .. } | Op::GroupedLinear { .. } => by_kind.linear,
            _ => None,
        };
        own.unwrap_or(self.efficiency)
    }

    /// The constant in the time of each computation of `graph`: none where launches pass beside what the
    /// device does, as they do for networks that are priced by [`Device::transformers`].
    pub fn constant(&self, graph: &Graph) -> Nanos {
        match &self.transformers {
            Some(_) if has_attention(graph) => Nanos::ZERO,
            _ => self.overhead_ns,
        }
    }
}

/// The costs of every node for micro-batches of `samples` samples. Linear in the nodes.
pub fn roofline(graph: &Graph, device: &Device, samples: u64, precision: Precision) -> Costs {
    let head = graph.head();
    let cost = |(id, node): (u32, &Node)| {
        let precision = precision.of(NodeId(id), &node.op, ComputationKind::Forward, head);
        node_cost(graph, NodeId(id), device, samples, Numbers::of(device, precision))
    };
    let nodes = (0..).zip(graph.nodes()).map(cost).collect();
    Costs { samples, nodes }
}

/// What a precision changes.
#[derive(Clone, Copy)]
pub(super) struct Numbers {
    pub flops_per_sec: f64,
    /// Share of its bytes in f32 that an activation has, and what is read of a parameter.
    pub width: f64,
}

impl Numbers {
    /// A device that cannot multiply in two bytes unpacks what is stored so: no faster than in four.
    pub fn of(device: &Device, precision: Precision) -> Self {
        let is_half = precision.is_half() && device.half_flops_per_sec.is_some();
        Self { flops_per_sec: device.peak(precision), width: if is_half { 0.5 } else { 1.0 } }
    }
}

fn node_cost(
    graph: &Graph,
    id: NodeId,
    device: &Device,
    samples: u64,
    numbers: Numbers,
) -> NodeCost {
    let node = graph.node(id);
    if node.op.is_source() || node.op.is_view() {
        return NodeCost::default();
    }
    let (inputs, output) = (graph.operands(id), graph.result(id));
    let b = samples as f64;
    let flops = node.op.forward_flops(&inputs, output) as f64 * b;
    let values = b * numbers.width;
    let input_bytes = inputs.iter().map(|i| i.bytes().0).sum::<u64>() as f64 * values;
    let output_bytes = output.bytes().0 as f64 * values;
    let trained = |id: &&crate::ids::ParamId| graph.param(**id).trainable;
    let param_bytes = 4.0
        * node.params.iter().filter(trained).map(|id| graph.param(*id).elements()).sum::<u64>()
            as f64;
    let read_bytes = param_bytes * numbers.width;
    let time = |flops: f64, bytes: f64| {
        let arithmetic = flops / (numbers.flops_per_sec * device.efficiency_of(&node.op));
        let traffic = bytes / (device.memory_bytes_per_sec * device.memory_efficiency());
        device.overhead_ns + Nanos::from_secs(arithmetic.max(traffic))
    };
    let is_add = matches!(node.op, Op::Add);
    // An addition hands its gradient on as it is.
    let input_gradient = match is_add {
        true => Nanos::ZERO,
        false => time(flops, input_bytes + output_bytes + read_bytes),
    };
    // Reads both sides, reads and writes the accumulated gradient.
    let weight_gradient = match param_bytes > 0.0 {
        true => time(flops, input_bytes + output_bytes + 2.0 * param_bytes),
        false => Nanos::ZERO,
    };
    NodeCost {
        forward: time(flops, input_bytes + output_bytes + read_bytes),
        input_gradient,
        weight_gradient,
        split_input_gradient: input_gradient,
        split_weight_gradient: weight_gradient,
        sum_gradients: time(0.0, 3.0 * output_bytes),
        // Momentum SGD reads weight, gradient and momentum and writes all three.
        update: if param_bytes > 0.0 { time(0.0, 6.0 * param_bytes) } else { Nanos::ZERO },
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
    use crate::graph::presets::Preset;

    #[test]
    fn a_large_product_runs_at_the_peak_and_a_small_one_at_the_bandwidth() {
        let device = Cluster::preset("dgx-a100").unwrap().device;
        let graph = Preset::Fc32 { width: 4096 }.graph().unwrap();
        let first_linear = 1;
        let large = roofline(&graph, &device, 8192, Precision::F32).nodes[first_linear].forward;
        let flops = 2.0 * 4096.0 * 4096.0 * 8192.0;
        let peak = flops / (device.flops_per_sec * device.efficiency);
        assert_eq!(large - device.overhead_ns, Nanos::from_secs(peak));
        let small = roofline(&graph, &device, 1, Precision::F32).nodes[first_linear].forward;
        let bytes = 4.0 * (4096.0 * 4096.0 + 4096.0 + 2.0 * 4096.0);
        let traffic = Nanos::from_secs(bytes / device.memory_bytes_per_sec);
        assert_eq!(small - device.overhead_ns, traffic);
    }

    #[test]
    fn kinds_of_operations_have_their_own_efficiency() {
        let mut device = Cluster::preset("dgx-a100").unwrap().device;
        let graph = Preset::Vgg16.graph().unwrap();
        let before = roofline(&graph, &device, 64, Precision::F32);
        let halves = crate::cost::Efficiencies {
            convolution: Some(device.efficiency / 2.0),
            ..Default::default()
        };
        device.efficiencies = Some(halves);
        let after = roofline(&graph, &device, 64, Precision::F32);
        for (node, (before, after)) in
            graph.nodes().iter().zip(before.nodes.iter().zip(after.nodes))
        {
            // The first convolution has three channels: its images' bytes bound it.
            let slower = matches!(node.op, Op::Conv2d { .. }) && node.name != "features.0";
            assert_eq!(slower, after.forward > before.forward, "{}", node.name);
        }
    }

    #[test]
    fn sources_and_views_are_free() {
        let device = Cluster::preset("laptop").unwrap().device;
        let graph = Preset::Mlp4.graph().unwrap();
        let costs = roofline(&graph, &device, 4, Precision::F32);
        assert_eq!(costs.nodes[0], NodeCost::default());
        assert_eq!(costs.nodes[1], NodeCost::default());
    }

    #[test]
    fn half_precision_takes_half_the_bytes_and_its_own_peak() {
        let mut device = Cluster::preset("dgx-a100").unwrap().device;
        device.overhead_ns = Nanos::ZERO;
        let graph = Preset::Fc32 { width: 4096 }.graph().unwrap();
        let cost = |device: &Device, samples, precision| {
            roofline(&graph, device, samples, precision).nodes[1]
        };
        for (samples, faster) in [(8192, 312.0 / 156.0), (1, 2.0)] {
            let single = cost(&device, samples, Precision::F32);
            assert_eq!(cost(&device, samples, Precision::Tf32), single);
            let half = cost(&device, samples, Precision::Bf16);
            let ratio = single.forward.0 as f64 / half.forward.0 as f64;
            assert!((ratio - faster).abs() < 1e-3, "{ratio} for {samples} samples");
            assert_eq!(half.update, single.update, "the optimizer's numbers stay");
        }
        // Eight bits where a device multiplies them, and not where the loss judges.
        device.fp8_flops_per_sec = Some(4.0 * device.flops_per_sec);
        let nodes = |precision| roofline(&graph, &device, 8192, precision).nodes;
        let (half, eight) = (nodes(Precision::Bf16), nodes(Precision::Fp8));
        let ratio = half[1].forward.0 as f64 / eight[1].forward.0 as f64;
        assert!((ratio - 2.0).abs() < 1e-3, "{ratio}");
        let head = graph.head().unwrap().index();
        assert_eq!(half[head], eight[head]);
        // One that only stores in two bytes is no faster.
        device.half_flops_per_sec = None;
        let both = [Precision::F32, Precision::F16].map(|p| cost(&device, 64, p));
        assert_eq!(both[0], both[1]);
    }
}
