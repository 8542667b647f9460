//! Nodes and edges as a file names them become items in topological order.

use super::ImportError;
use crate::cost::{Edge, Item};
use crate::units::Bytes;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// No profile has more nodes.
pub(super) const NODES_MAX: usize = 1 << 18;
/// No profile has more edges.
pub(super) const EDGES_MAX: usize = 1 << 21;

/// What a file says, by the file's own names.
#[derive(Default)]
pub(super) struct Parts {
    items: Vec<(u64, Item)>,
    /// By the file's name of the node.
    index: BTreeMap<String, u32>,
    edges: Vec<Edge>,
}

/// Items, edges between them, and the new number of each node.
pub(super) type Assembled = (Vec<Item>, Vec<Edge>, Vec<u32>);

impl Parts {
    /// A node. Among the nodes that could come next, the one of the lowest `rank` does.
    pub fn node(
        &mut self,
        id: &str,
        rank: u64,
        item: Item,
        at: impl Fn() -> String,
    ) -> Result<(), ImportError> {
        if self.items.len() == NODES_MAX {
            return Err(ImportError::TooMany { what: "nodes", limit: NODES_MAX });
        }
        let index = self.items.len() as u32;
        if self.index.insert(id.into(), index).is_some() {
            return Err(ImportError::Duplicate { at: at(), name: format!("node `{id}`") });
        }
        self.items.push((rank, item));
        Ok(())
    }

    /// The number of a node.
    pub fn find(&self, id: &str, at: impl Fn() -> String) -> Result<u32, ImportError> {
        let found = self.index.get(id).copied();
        found.ok_or_else(|| ImportError::NoNode { at: at(), name: id.into() })
    }

    /// An edge between two nodes that [`Self::find`] found.
    pub fn edge(&mut self, from: u32, to: u32, bytes: Option<Bytes>) -> Result<(), ImportError> {
        if self.edges.len() == EDGES_MAX {
            return Err(ImportError::TooMany { what: "edges", limit: EDGES_MAX });
        }
        let bytes = bytes.unwrap_or(self.items[from as usize].1.output);
        self.edges.push(Edge { to, from, bytes });
        Ok(())
    }

    /// The items in topological order, with edges between them, and the new number of each node.
    /// O((nodes + edges) log).
    pub fn assemble(self) -> Result<Assembled, ImportError> {
        if self.items.is_empty() {
            return Err(ImportError::Empty);
        }
        let count = self.items.len();
        let mut missing = vec![0u32; count];
        let mut readers = vec![vec![]; count];
        for edge in &self.edges {
            missing[edge.to as usize] += 1;
            readers[edge.from as usize].push(edge.to);
        }
        let key = |i: u32| Reverse((self.items[i as usize].0, i));
        let mut ready: BinaryHeap<_> =
            (0..count as u32).filter(|i| missing[*i as usize] == 0).map(key).collect();
        let mut place = vec![u32::MAX; count];
        let mut order = Vec::with_capacity(count);
        while let Some(Reverse((_, i))) = ready.pop() {
            place[i as usize] = order.len() as u32;
            order.push(i);
            for &reader in &readers[i as usize] {
                missing[reader as usize] -= 1;
                if missing[reader as usize] == 0 {
                    ready.push(key(reader));
                }
            }
        }
        if order.len() < count {
            return Err(self.cycle(&missing));
        }
        let mut items: Vec<Option<Item>> = self.items.into_iter().map(|(_, i)| Some(i)).collect();
        let items =
            order.iter().map(|i| items[*i as usize].take().expect("an order has each once"));
        let moved = |e: Edge| Edge { to: place[e.to as usize], from: place[e.from as usize], ..e };
        let mut edges: Vec<Edge> = self.edges.into_iter().map(moved).collect();
        edges.sort_unstable();
        edges.dedup_by_key(|e| (e.to, e.from));
        Ok((items.collect(), edges, place))
    }

    /// Walks back from a node that never became ready, through such nodes only, until one repeats.
    fn cycle(&self, missing: &[u32]) -> ImportError {
        let mut writer = vec![None; missing.len()];
        for edge in self.edges.iter().filter(|e| missing[e.from as usize] > 0) {
            writer[edge.to as usize] = Some(edge.from);
        }
        let stuck = |i: &usize| missing[*i] > 0 && writer[*i].is_some();
        let start = (0..missing.len()).find(stuck).expect("called when some node is stuck");
        let mut seen = vec![false; missing.len()];
        let mut at = start;
        while !seen[at] {
            seen[at] = true;
            at = writer[at].expect("a stuck node waits for a stuck one") as usize;
        }
        let name = |i: usize| self.items[i].1.name.clone();
        let mut names = vec![name(at)];
        let mut next = writer[at].expect("part of the circle") as usize;
        while next != at && names.len() < 8 {
            names.push(name(next));
            next = writer[next].expect("part of the circle") as usize;
        }
        names.push(if next == at { name(at) } else { "..".into() });
        names.reverse();
        ImportError::Cycle { names }
    }
}
