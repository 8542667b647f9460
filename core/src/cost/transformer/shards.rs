//! Items of a network with attention as tensor-parallel devices divide them.

use super::nodes::{Priced, divided_values, multiplies};
use super::{TensorRates, TransformerRates};
use crate::cost::{Device, Shard, Workload};
use crate::graph::{Graph, Op, Precision};
use crate::units::Bytes;

impl Workload {
    /// The same items with further ways to compute them: divided among tensor-parallel devices, for each
    /// degree that the device's [`TransformerRates`] know and that divides all heads. Nothing is added for networks
    /// and devices without. `graph` and `precision` are those that the items were made of. O(items x
    /// degrees).
    #[must_use]
    pub fn divided(mut self, graph: &Graph, device: &Device, precision: Precision) -> Self {
        let Some(rates) = &device.transformers else { return self };
        let parts = divided_values(graph);
        for divided in rates.tensor.iter().filter(|divided| divides(graph, divided.degree)) {
            let costs = self.priced(graph, device, rates, (precision, divided)).costs();
            let times = Workload::of(graph, &costs);
            let share = |bytes: Bytes, is: bool| {
                if is { Bytes(bytes.0 / u64::from(divided.degree)) } else { bytes }
            };
            for (at, (item, timed)) in self.items.iter_mut().zip(&times.items).enumerate() {
                let own = multiplies(&graph.nodes()[at].op);
                item.shards.push(Shard {
                    degree: divided.degree,
                    forward: timed.forward,
                    backward: timed.backward(),
                    stash: share(item.stash, parts[at]),
                    state: share(item.state, own),
                    parameters: share(item.parameters, own),
                    ..Shard::default()
                });
            }
        }
        self
    }

    fn priced<'a>(
        &self,
        graph: &'a Graph,
        device: &'a Device,
        rates: &'a TransformerRates,
        (precision, divided): (Precision, &'a TensorRates),
    ) -> Priced<'a> {
        Priced { graph, device, rates, samples: self.samples, precision, divided: Some(divided) }
    }
}

/// Whether a network has heads and so many devices can have as many of them each.
fn divides(graph: &Graph, degree: u32) -> bool {
    let mut heads = graph.nodes().iter().filter_map(|node| match node.op {
        Op::Attention { heads, kv_heads, .. } => Some(heads.min(kv_heads)),
        Op::ScaledDotProduct { .. } => Some(1),
        _ => None,
    });
    let first = heads.next();
    // What divided experts take nobody measured.
    let mixes = graph.nodes().iter().any(|node| node.op == Op::Combine);
    !mixes
        && first.into_iter().chain(heads).all(|heads| heads.is_multiple_of(u64::from(degree)))
        && first.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::{Cluster, Costs};
    use crate::graph::presets::Preset;

    fn degrees(preset: Preset, cluster: &str) -> Vec<u32> {
        let (graph, cluster) = (preset.graph().unwrap(), Cluster::preset(cluster).unwrap());
        let costs = Costs::new(&graph, &cluster, 4, Precision::F16);
        let work = Workload::of_training(&graph, &costs, Precision::F16);
        let work = work.divided(&graph, &cluster.device, Precision::F16);
        let of = |item: &crate::cost::Item| item.shards.iter().map(|shard| shard.degree).collect();
        let all: Vec<Vec<u32>> = work.items.iter().map(of).collect();
        assert!(all.iter().all(|degrees| *degrees == all[0]));
        all[0].clone()
    }

    #[test]
    fn degrees_are_those_that_were_measured_and_divide_the_heads() {
        assert_eq!(degrees(Preset::Gpt2Medium, "dgx-a100"), [2, 4, 8]);
        assert_eq!(degrees(Preset::Gpt2, "dgx-a100"), [2, 4], "12 heads");
        assert_eq!(degrees(Preset::Gpt2Xl, "dgx-a100"), [0; 0], "25 heads");
        assert_eq!(degrees(Preset::Resnet18, "dgx-a100"), [0; 0], "no heads");
        assert_eq!(degrees(Preset::Gpt2Medium, "dgx-h100"), [0; 0], "nobody measured it");
    }
}
