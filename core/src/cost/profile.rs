//! Node times measured on a machine, by name, at one or several micro-batch sizes.

use super::Costs;
use crate::graph::Graph;
use crate::ids::NodeId;
use crate::units::Nanos;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Measured times of a model's nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The model that was measured; other models do not use these times.
    pub model: String,
    /// By node.
    pub nodes: Vec<MeasuredNode>,
}

/// The measurements of one node, ascending in the micro-batch size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MeasuredNode {
    /// Name of the node.
    pub node: String,
    /// One or more sizes.
    pub samples: Vec<Sample>,
}

/// Times at one micro-batch size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// Samples of the micro-batch.
    pub samples: u64,
    /// Forward pass.
    pub forward_ns: Nanos,
    /// Gradient of the inputs.
    pub input_gradient_ns: Nanos,
    /// Gradient of the parameters.
    pub weight_gradient_ns: Nanos,
    /// Sum of several readers' gradients.
    pub sum_gradients_ns: Nanos,
    /// Optimizer update.
    pub update_ns: Nanos,
    /// The gradients' times in a backward pass that is split; open: the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<SplitSample>,
}

/// Times of gradients where all those of the inputs come first and those of the parameters later,
/// when what they read has left the caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SplitSample {
    /// Gradient of the inputs.
    pub input_gradient_ns: Nanos,
    /// Gradient of the parameters.
    pub weight_gradient_ns: Nanos,
}

/// Why a profile cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("profile of `{model}`, node `{node}`: {why}")]
pub struct ProfileError {
    /// The model.
    pub model: String,
    /// The node.
    pub node: String,
    /// What does not fit.
    pub why: &'static str,
}

impl Profile {
    /// Checks that sizes ascend and that each node has some.
    ///
    /// # Errors
    /// The first node that does not fit.
    pub fn check(&self) -> Result<(), ProfileError> {
        for node in &self.nodes {
            let refuse =
                |why| Err(ProfileError { model: self.model.clone(), node: node.node.clone(), why });
            if node.samples.is_empty() {
                return refuse("has no measurement");
            }
            if node.samples[0].samples == 0 {
                return refuse("was measured with 0 samples");
            }
            if node.samples.windows(2).any(|pair| pair[0].samples >= pair[1].samples) {
                return refuse("its micro-batch sizes do not ascend");
            }
        }
        Ok(())
    }

    /// Replaces the times of the nodes that were measured. Between two sizes times are
    /// interpolated; outside they are extended along the nearest two, downwards not below their
    /// proportion, or in proportion to the size where there is only one.
    pub fn apply(&self, graph: &Graph, costs: &mut Costs) {
        if self.model != graph.name() {
            return;
        }
        // Profiles have the order of the graph: the next node's place is most often the next one.
        let mut next = 0;
        for (id, cost) in (0..).map(NodeId).zip(&mut costs.nodes) {
            let node = graph.node(id);
            let is_this = |at: &usize| self.nodes[*at].node == node.name;
            let Some(at) = (next..self.nodes.len()).chain(0..next).find(is_this) else { continue };
            next = at + 1;
            let measured = &self.nodes[at];
            let at = |of: fn(&Sample) -> Nanos| interpolate(&measured.samples, costs.samples, of);
            cost.forward = at(|s| s.forward_ns);
            cost.input_gradient = at(|s| s.input_gradient_ns);
            cost.weight_gradient = at(|s| s.weight_gradient_ns);
            cost.sum_gradients = at(|s| s.sum_gradients_ns);
            let split = |of: fn(&SplitSample) -> Nanos, whole: fn(&Sample) -> Nanos| {
                let time = |s: &Sample| s.split.as_ref().map_or_else(|| whole(s), of);
                interpolate(&measured.samples, costs.samples, time)
            };
            cost.split_input_gradient = split(|s| s.input_gradient_ns, |s| s.input_gradient_ns);
            cost.split_weight_gradient = split(|s| s.weight_gradient_ns, |s| s.weight_gradient_ns);
            // The update is once a step, whatever the size.
            cost.update = measured.samples[measured.samples.len() - 1].update_ns;
            cost.divide(graph.parts(id));
        }
    }
}

fn interpolate(points: &[Sample], samples: u64, of: impl Fn(&Sample) -> Nanos) -> Nanos {
    if let [only] = points {
        return Nanos(
            (u128::from(of(only).0) * u128::from(samples) / u128::from(only.samples)) as u64,
        );
    }
    let right = points.partition_point(|p| p.samples < samples).clamp(1, points.len() - 1);
    let (a, b) = (&points[right - 1], &points[right]);
    let slope = (of(b).0 as f64 - of(a).0 as f64) / (b.samples - a.samples) as f64;
    let nanos = of(a).0 as f64 + slope * (samples as f64 - a.samples as f64);
    // What does not grow with the size is not negative: below the smallest measured one no time is less
    // than its share, whatever noise does to the slope.
    let share = of(a).0 as f64 * samples as f64 / a.samples as f64;
    let least = if samples < a.samples { share } else { 0.0 };
    Nanos(nanos.max(least) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(samples: u64, ns: u64) -> Sample {
        let t = Nanos(ns);
        Sample {
            samples,
            forward_ns: t,
            input_gradient_ns: t,
            weight_gradient_ns: t,
            sum_gradients_ns: t,
            update_ns: t,
            split: None,
        }
    }

    #[test]
    fn times_between_and_beyond_the_measured_sizes() {
        let points = [sample(2, 200), sample(4, 300), sample(8, 700)];
        let at = |n| interpolate(&points, n, |s| s.forward_ns).0;
        assert_eq!((at(2), at(3), at(4), at(6), at(8)), (200, 250, 300, 500, 700));
        assert_eq!((at(1), at(16)), (150, 1500));
        assert_eq!(interpolate(&points[..1], 6, |s| s.forward_ns).0, 600);
        let steep = [sample(4, 400), sample(8, 1600)];
        assert_eq!(interpolate(&steep, 1, |s| s.forward_ns).0, 100, "not below 0, nor its share");
    }

    #[test]
    fn sizes_must_ascend() {
        let nodes =
            vec![MeasuredNode { node: "a".into(), samples: vec![sample(4, 1), sample(4, 1)] }];
        let profile = Profile { model: "m".into(), nodes };
        assert!(profile.check().is_err());
    }
}
