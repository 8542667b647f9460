//! Times of layers that a person typed over. They act as measured times of nodes, so that the planner
//! and an exported plan's cluster have them without knowing that they were typed; [`crate::screens::model::anatomy::edit`]
//! makes them.

use super::choices::ModelChoice;
use pipewright_core::cost::{Cluster, MeasuredNode, Profile};
use pipewright_core::units::Nanos;
use serde::{Deserialize, Serialize};

/// All that was typed over.
#[derive(Clone, Debug, PartialEq)]
pub struct Times {
    /// The model that they are of.
    pub model: ModelChoice,
    /// Ascending in the layer.
    pub layers: Vec<TypedLayer>,
}

/// A layer with a typed time.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct TypedLayer {
    /// Its index.
    pub layer: u32,
    pub forward: Option<Typed>,
    pub backward: Option<Typed>,
    /// Its nodes with times that add up to the typed ones.
    pub nodes: Vec<MeasuredNode>,
}

/// What was typed.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Typed {
    pub time: Nanos,
    /// Samples of a micro-batch at that moment; other sizes follow in proportion.
    pub samples: u64,
}

impl Times {
    /// What was typed over a layer.
    pub fn of(&self, layer: u32) -> Option<&TypedLayer> {
        self.layers.iter().find(|typed| typed.layer == layer)
    }

    /// `base` with these times; what it measured itself of other layers stays.
    pub fn over(&self, base: &Cluster) -> Cluster {
        let typed = || self.layers.iter().flat_map(|layer| &layer.nodes);
        let is_other = |node: &&MeasuredNode| !typed().any(|t| t.node == node.node);
        let model = self.model.name();
        let measured = base.profile.iter().filter(|profile| profile.model == model);
        let others = measured.flat_map(|p| &p.nodes).filter(is_other);
        let nodes = others.chain(typed()).cloned().collect();
        Cluster { profile: Some(Profile { model, nodes }), ..base.clone() }
    }
}
