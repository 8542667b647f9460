//! A workload as a network of opaque nodes with measured times, so that it can be planned, cut,
//! lowered and simulated like any other; executing it is refused.

use super::{Item, Keeps, Workload};
use crate::cost::{MeasuredNode, Profile, Sample};
use crate::graph::{Graph, GraphBuilder, GraphError, Kept, Op};
use crate::ids::NodeId;
use crate::units::Nanos;
use thiserror::Error;

/// Why a workload is no network.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum NetworkError {
    /// The backward pass of a network is derived, never given.
    #[error(
        "`{item}` is a backward operation with a place of its own: this profile can be divided \
         among devices, but not planned as a pipeline of stages; use the profile for inference"
    )]
    Backward {
        /// The operation.
        item: String,
    },
    /// Sizes beyond what a network has.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

impl Workload {
    /// The network and the times of its nodes, for the cluster that runs it. An item is one node
    /// and one layer; a sample, an end that reads what nobody else does, a target and a loss are
    /// added without cost. Sizes are those of one of [`Self::samples`] samples, rounded up; ways
    /// other than the first, rules and links are not part of a network. O(items + edges).
    ///
    /// # Errors
    /// For a profile with backward operations as items, and for sizes that no network has.
    pub fn network(&self) -> Result<(Graph, Profile), NetworkError> {
        if let Some(item) = self.items.iter().find(|item| item.rules.backward) {
            return Err(NetworkError::Backward { item: item.name.clone() });
        }
        let mut inputs: Vec<Vec<u32>> = vec![vec![]; self.items.len()];
        let mut read = vec![false; self.items.len()];
        for edge in &self.edges {
            inputs[edge.to as usize].push(edge.from);
            read[edge.from as usize] = true;
        }
        let mut g = GraphBuilder::new(self.name.clone());
        let mut nodes = vec![];
        // Whether gradients flow to each item's readers.
        let mut trained: Vec<bool> = vec![];
        let mut sample = None;
        for (item, from) in self.items.iter().zip(&inputs) {
            g.layer(item.name.clone());
            let sample =
                *sample.get_or_insert_with(|| g.add("(input)", Op::Input { shape: vec![1] }, &[]));
            let flows_on = from.iter().any(|i| trained[*i as usize]);
            let mut parameters = item.parameters.0;
            if item.backward() > Nanos::ZERO && !flows_on {
                // Its measured backward pass can only be the gradient of parameters.
                parameters = parameters.max(4);
            }
            let output = item.output.0.div_ceil(self.samples.max(1));
            let mut reads: Vec<NodeId> = from.iter().map(|i| NodeId(*i + 1)).collect();
            if reads.is_empty() {
                reads.push(sample);
            }
            let kept = item.keeps.as_ref().map(|keeps| self.kept(keeps, from, nodes.len() as u32));
            g.add(item.name.clone(), measured(output, parameters, kept), &reads);
            nodes.push(self.measured(item, flows_on, parameters > 0));
            trained.push(flows_on || parameters > 0);
        }
        let ends = (1..).zip(&read).filter(|(_, read)| !**read).map(|(i, _)| NodeId(i));
        let ends: Vec<NodeId> = ends.collect();
        // What a loss keeps is known where it is of all others.
        let known = self.items.iter().all(|item| item.keeps.is_some());
        let end = g.add("(end)", measured(4, 0, known.then(Kept::default)), &ends);
        let target = g.add("(target)", Op::Target { classes: 1 }, &[]);
        g.add("(loss)", Op::SoftmaxCrossEntropy { label_smoothing: 0.0 }, &[end, target]);
        for name in ["(end)", "(loss)"] {
            nodes.push(self.measured(&Item { name: name.into(), ..Item::default() }, true, false));
        }
        Ok((g.finish()?, Profile { model: self.name.clone(), nodes }))
    }

    /// What the node of an item keeps, which reads `inputs` and is item `own`.
    fn kept(&self, keeps: &Keeps, inputs: &[u32], own: u32) -> Kept {
        let place = |value: &u32| inputs.binary_search(value).ok().map(|place| place as u32);
        Kept {
            inputs: keeps.values.iter().filter_map(place).collect(),
            output: keeps.values.contains(&own),
            saved: keeps.saved.0.div_ceil(self.samples.max(1)),
        }
    }

    /// The times of an item under the computations that its node has.
    fn measured(&self, item: &Item, flows_on: bool, trained: bool) -> MeasuredNode {
        let (input_gradient_ns, weight_gradient_ns) = match (flows_on, trained) {
            (true, true) => (item.backward_input, item.backward_weight),
            (true, false) => (item.backward(), Nanos::ZERO),
            (false, _) => (Nanos::ZERO, item.backward()),
        };
        let sample = Sample {
            samples: self.samples.max(1),
            forward_ns: item.forward,
            input_gradient_ns,
            weight_gradient_ns,
            sum_gradients_ns: Nanos::ZERO,
            update_ns: Nanos::ZERO,
            split: None,
        };
        MeasuredNode { node: item.name.clone(), samples: vec![sample] }
    }
}

/// An operation whose times the profile has.
fn measured(output: u64, parameters: u64, kept: Option<Kept>) -> Op {
    Op::Opaque { output, parameters, flops: 0, unpriced: false, kept }
}
