//! Ranks that sum together, and what they share.

use crate::cost::{Cluster, Level};
use crate::ids::LaneId;

/// Where the ranks of a group are. Ranks fill one node after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Group {
    /// All of them.
    pub ranks: u32,
    /// Nodes that they are on.
    pub nodes: u32,
    /// Most of them on one node.
    pub most: u32,
    /// Fewest of them on one of the nodes.
    pub least: u32,
    /// How near the first and the last on one node are.
    pub level: Level,
    /// Share of a device that a rank has for itself: less than 1 where ranks outnumber devices.
    pub share: f64,
}

impl Group {
    /// `ranks`, ascending, of a run of `all` ranks.
    pub fn new(cluster: &Cluster, ranks: &[LaneId], all: u32) -> Self {
        let per_node = ranks.chunk_by(|a, b| cluster.node_of(*a) == cluster.node_of(*b));
        let fullest = per_node.clone().max_by_key(|node| node.len()).unwrap_or(&[]);
        let level = match fullest {
            [first, .., last] => cluster.level(*first, *last),
            _ => Level::Node,
        };
        let crowd = all.min(cluster.ranks_per_node).max(1);
        Self {
            ranks: ranks.len() as u32,
            nodes: per_node.clone().count() as u32,
            most: fullest.len() as u32,
            least: per_node.map(<[LaneId]>::len).min().unwrap_or(0) as u32,
            level,
            share: (f64::from(cluster.devices_per_node) / f64::from(crowd)).min(1.0),
        }
    }

    /// `ranks` ranks, `per_node` of them on a node, each with a device of its own.
    pub fn even(ranks: u32, per_node: u32) -> Self {
        let most = per_node.clamp(1, ranks.max(1));
        let nodes = ranks.div_ceil(most);
        let least = ranks - most * (nodes.max(1) - 1);
        Self { ranks, nodes, most, least, level: Level::Node, share: 1.0 }
    }
}
