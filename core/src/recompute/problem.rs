//! The problem: values with sizes and times, and their dependencies.

use thiserror::Error;

/// Most nodes that a problem may have.
pub const MOST_NODES: usize = 1_000_000;

/// Most inputs of all nodes together.
pub const MOST_EDGES: usize = 16_000_000;

/// Largest sum of bytes, or of a value's bytes times its copies: far beyond any machine, and small
/// enough that sums of sums never overflow.
pub const MOST_BYTES: u64 = 1 << 56;

/// A computation and the value that it makes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// Bytes of the value while it is kept.
    pub bytes: u64,
    /// Bytes that only computing it needs, besides the value and what it reads.
    pub scratch: u64,
    /// What computing it costs, in any unit, at least 0 and finite.
    pub time: f64,
    /// Nodes whose values it reads, each of them before it.
    pub inputs: Vec<u32>,
    /// Whether it must be computed at least once.
    pub output: bool,
    /// Whether it can be computed once only: something received, or added to what is there.
    pub once: bool,
}

/// A computation graph to find a sequence for. Made by [`Problem::new`], which checks it.
///
/// Sources (parameters, inputs that stay) are always there and are no nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    nodes: Vec<Node>,
    /// Nodes whose computation divides the sequence.
    marks: Vec<u32>,
    /// How many times a value counts that lives across a mark.
    copies: u32,
    /// Readers of each node, ascending.
    readers: Lists,
    /// Inputs of each node, as given without repetitions.
    inputs: Lists,
}

/// Why a graph is no problem to solve.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ProblemError {
    /// Nothing to compute.
    #[error("the graph has no nodes; give it at least one output")]
    Empty,
    /// Too large.
    #[error("the graph has {count} {what}, more than the {most} that are accepted; contract it")]
    TooLarge {
        /// Nodes or edges.
        what: &'static str,
        /// There are.
        count: usize,
        /// Accepted.
        most: usize,
    },
    /// An input that is not there, or not before its reader: a cycle, or nodes out of order.
    #[error(
        "node {node} reads node {input}, which does not come before it; \
         list the nodes in an order in which they can be computed"
    )]
    Input {
        /// The reader.
        node: usize,
        /// What it reads.
        input: u32,
    },
    /// A time that is no time.
    #[error("node {node} takes the time {time}; times must be finite and at least 0")]
    Time {
        /// The node.
        node: usize,
        /// Its time.
        time: f64,
    },
    /// Sizes beyond reason.
    #[error("the values up to node {node} have more than {MOST_BYTES} bytes; check their sizes")]
    Bytes {
        /// The node at which the sum becomes too large.
        node: usize,
    },
    /// Nothing needs to be computed.
    #[error("no node is an output, so nothing needs to be computed; mark the graph's results")]
    NoOutput,
    /// A mark that is not a node, or can be computed again.
    #[error("mark {mark} is not a node that is computed once")]
    Mark {
        /// The mark.
        mark: u32,
    },
}

impl Problem {
    /// A problem without marks.
    ///
    /// # Errors
    /// What is wrong with which node.
    pub fn new(nodes: Vec<Node>) -> Result<Self, ProblemError> {
        Self::with_marks(nodes, vec![], 1)
    }

    /// A problem whose values count `copies` times (at least once) when they live across one of
    /// `marks`: `copies` micro-batches hold them at a time. Marks are nodes that are computed once.
    ///
    /// # Errors
    /// What is wrong with which node.
    pub fn with_marks(
        nodes: Vec<Node>,
        marks: Vec<u32>,
        copies: u32,
    ) -> Result<Self, ProblemError> {
        let edges = check(&nodes, copies)?;
        let once = |mark: &&u32| !nodes.get(**mark as usize).is_some_and(|n| n.once && n.output);
        if let Some(mark) = marks.iter().find(once) {
            return Err(ProblemError::Mark { mark: *mark });
        }
        let mut inputs = Lists::with_capacity(nodes.len(), edges);
        let mut own = vec![];
        for node in &nodes {
            own.clear();
            own.extend_from_slice(&node.inputs);
            own.sort_unstable();
            own.dedup();
            inputs.push(&own);
        }
        let readers = inputs.inverse();
        Ok(Self { nodes, marks, copies: copies.max(1), readers, inputs })
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Never: a problem has an output.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// All nodes; the inputs of each come before it.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// A node.
    pub fn node(&self, node: u32) -> &Node {
        &self.nodes[node as usize]
    }

    /// Nodes that divide the sequence.
    pub fn marks(&self) -> &[u32] {
        &self.marks
    }

    /// How many times values count that live across a mark.
    pub fn copies(&self) -> u32 {
        self.copies
    }

    /// What a node reads, ascending, each once.
    pub fn inputs(&self, node: u32) -> &[u32] {
        self.inputs.get(node)
    }

    /// Who reads a node, ascending.
    pub fn readers(&self, node: u32) -> &[u32] {
        self.readers.get(node)
    }

    /// Time with every node computed once.
    pub fn time(&self) -> f64 {
        self.nodes.iter().map(|n| n.time).sum()
    }

    /// Nodes that an output needs, or that are one.
    pub fn needed(&self) -> Vec<bool> {
        let mut needed: Vec<bool> = self.nodes.iter().map(|n| n.output).collect();
        for node in (0..self.len()).rev() {
            if needed[node] {
                self.inputs(node as u32).iter().for_each(|i| needed[*i as usize] = true);
            }
        }
        needed
    }
}

/// Checks what does not depend on marks; returns the number of edges.
fn check(nodes: &[Node], copies: u32) -> Result<usize, ProblemError> {
    let too_large = |what, count, most| Err(ProblemError::TooLarge { what, count, most });
    if nodes.is_empty() {
        return Err(ProblemError::Empty);
    }
    if nodes.len() > MOST_NODES {
        return too_large("nodes", nodes.len(), MOST_NODES);
    }
    let (mut edges, mut bytes) = (0, 0u64);
    for (i, node) in nodes.iter().enumerate() {
        if let Some(input) = node.inputs.iter().find(|input| **input as usize >= i) {
            return Err(ProblemError::Input { node: i, input: *input });
        }
        if !(node.time.is_finite() && node.time >= 0.0) {
            return Err(ProblemError::Time { node: i, time: node.time });
        }
        edges += node.inputs.len();
        bytes = node
            .bytes
            .checked_mul(u64::from(copies.max(1)))
            .and_then(|own| own.checked_add(node.scratch)?.checked_add(bytes))
            .filter(|sum| *sum <= MOST_BYTES)
            .ok_or(ProblemError::Bytes { node: i })?;
    }
    if edges > MOST_EDGES {
        return too_large("edges", edges, MOST_EDGES);
    }
    if !nodes.iter().any(|n| n.output) {
        return Err(ProblemError::NoOutput);
    }
    Ok(edges)
}

/// Many short lists in one piece of memory.
#[derive(Clone, Debug, PartialEq)]
struct Lists {
    starts: Vec<u32>,
    items: Vec<u32>,
}

impl Lists {
    fn with_capacity(lists: usize, items: usize) -> Self {
        let mut starts = Vec::with_capacity(lists + 1);
        starts.push(0);
        Self { starts, items: Vec::with_capacity(items) }
    }

    fn push(&mut self, list: &[u32]) {
        self.items.extend_from_slice(list);
        self.starts.push(self.items.len() as u32);
    }

    fn get(&self, list: u32) -> &[u32] {
        let [start, end] = [0, 1].map(|step| self.starts[list as usize + step] as usize);
        &self.items[start..end]
    }

    /// In which lists each number is; all numbers are below the number of lists.
    fn inverse(&self) -> Self {
        let lists = self.starts.len() - 1;
        let mut starts = vec![0u32; lists + 1];
        self.items.iter().for_each(|item| starts[*item as usize + 1] += 1);
        for i in 0..lists {
            starts[i + 1] += starts[i];
        }
        let mut next = starts.clone();
        let mut items = vec![0; self.items.len()];
        for list in 0..lists as u32 {
            for item in self.get(list) {
                let at = &mut next[*item as usize];
                items[*at as usize] = list;
                *at += 1;
            }
        }
        Self { starts, items }
    }
}
