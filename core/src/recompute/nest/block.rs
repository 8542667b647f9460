//! A block as a problem of its own.

use super::super::{Node, Problem, Search, cost, last_uses, without_recomputation};
use super::EFFORT;
use super::cuts::Cut;

/// A way to run a block around its hole.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    /// Bytes kept across the hole.
    pub kept: i64,
    /// Bytes that the block needs at most.
    pub peak: i64,
    /// Time beyond that of every node once.
    pub again: f64,
    /// Items before and after the hole.
    pub before: Vec<u32>,
    pub after: Vec<u32>,
    /// What is kept across the hole, ascending.
    pub held: Vec<u32>,
}

/// A way to run a block without a hole.
#[derive(Clone, Debug)]
pub(super) struct BlockRun {
    pub peak: i64,
    /// Time beyond that of the backward pass.
    pub again: f64,
    pub items: Vec<u32>,
}

/// The problems of a block, and their solutions, in numbers of their nodes.
#[derive(Clone, Debug)]
pub(super) struct Local {
    /// With the hole, and without; equal for the head, which has none.
    around: Side,
    alone: Side,
    /// The node that stands for the hole.
    hole: usize,
    /// Bytes that it reads of what is below, and time of its passes.
    pub inputs: i64,
    pub forward: f64,
    backward: f64,
    /// Most bytes in its forward pass.
    pub passing: i64,
    is_head: bool,
    /// Copies of what is kept, for the next search.
    copies: u32,
    pub choices: Vec<Choice>,
    pub runs: Vec<BlockRun>,
}

/// No node of the whole problem.
pub(super) const NONE: u32 = u32::MAX;

/// Nodes of a local problem.
#[derive(Clone, Debug, Default)]
pub(super) struct Side {
    nodes: Vec<Node>,
    /// Which ones of the whole problem they are, or [`NONE`].
    pub of: Vec<u32>,
    /// Whether the block computes them: the others are there.
    pub own: Vec<bool>,
}

impl Side {
    /// Bytes of a node, as they are counted in this block.
    pub fn bytes(&self, node: u32) -> i64 {
        self.nodes[node as usize].bytes as i64
    }
}

/// The block of every node.
pub(super) fn owners(problem: &Problem, cuts: &[Cut]) -> Vec<usize> {
    let mut owner = vec![0; problem.len()];
    for (index, cut) in cuts.iter().enumerate() {
        owner[cut.from..cut.to].fill(index);
    }
    owner
}

/// Makes the nodes of one side.
struct Builder<'a> {
    problem: &'a Problem,
    needed: &'a [bool],
    /// Local numbers.
    number: Vec<u32>,
    side: Side,
}

impl Builder<'_> {
    fn push(&mut self, node: Node, of: u32, own: bool) -> u32 {
        self.side.nodes.push(node);
        self.side.of.push(of);
        self.side.own.push(own);
        self.side.nodes.len() as u32 - 1
    }

    /// A value that is there, or comes with `inputs`.
    fn given(&mut self, node: usize, bytes: u64, inputs: Vec<u32>) {
        let given = Node { bytes, inputs, once: true, ..Node::default() };
        self.number[node] = self.push(given, node as u32, false);
    }

    fn add(&mut self, node: usize, output: bool) {
        if self.needed[node] {
            let own = self.problem.node(node as u32);
            let inputs = own.inputs.iter().map(|i| self.number[*i as usize]).collect();
            self.number[node] =
                self.push(Node { inputs, output, ..own.clone() }, node as u32, true);
        }
    }

    /// Something without size that reads what is needed later.
    fn collect(&mut self, inputs: Vec<u32>) -> u32 {
        self.push(Node { inputs, output: true, once: true, ..Node::default() }, NONE, false)
    }
}

impl Local {
    /// The problems of block `index`.
    pub fn new(problem: &Problem, cuts: &[Cut], owner: &[usize], index: usize) -> Self {
        let needed = problem.needed();
        let is_head = index + 1 == cuts.len();
        let (around, hole, inputs) = side(problem, &needed, cuts, owner, index, true);
        let (alone, ..) = side(problem, &needed, cuts, owner, index, false);
        let time = |from: usize, to: usize| -> f64 {
            (from..to).filter(|v| needed[*v]).map(|v| problem.node(v as u32).time).sum()
        };
        let (lower, upper) = (cuts[index], cuts.get(index + 1).copied());
        let upper = upper.unwrap_or(Cut { from: lower.from, to: lower.from });
        let passing = match is_head {
            true => 0,
            false => {
                let nodes = around.nodes[..hole].to_vec();
                let pass = Problem::new(nodes).expect("nodes in order, with an output");
                cost(&pass, &without_recomputation(&pass)).peak as i64
            }
        };
        Self {
            around,
            alone,
            hole,
            inputs,
            forward: time(lower.from, upper.from),
            backward: time(upper.to, lower.to),
            passing,
            is_head,
            copies: 0,
            choices: vec![],
            runs: vec![],
        }
    }

    /// Whether solutions of one are solutions of the other.
    pub fn equals(&self, other: &Self) -> bool {
        self.around.nodes == other.around.nodes && self.alone.nodes == other.alone.nodes
    }

    /// Does the next search, up to `most` copies; returns its moves, `None` if all were done.
    pub fn solve(&mut self, most: u32) -> Option<u64> {
        if self.copies > most || self.is_head && self.copies > 0 {
            return None;
        }
        let moves = if self.copies == 0 { self.solve_alone() } else { self.solve_around() };
        // Twos: what is kept counts less, as much, or far more than what is needed in between.
        self.copies = (3 * self.copies).max(1);
        Some(moves)
    }

    fn solve_alone(&mut self) -> u64 {
        let problem = Problem::new(self.alone.nodes.clone()).expect("nodes in order");
        let search = searched(&problem);
        let run = |answer: &super::super::Answer| BlockRun {
            peak: answer.cost.peak as i64,
            again: answer.cost.time - self.backward,
            items: answer.sequence.clone(),
        };
        self.runs = search.front().iter().map(run).collect();
        search.moves()
    }

    fn solve_around(&mut self) -> u64 {
        let around = &self.around;
        let nodes = &around.nodes;
        let flat = Problem::new(nodes.clone()).expect("nodes in order");
        let problem = Problem::with_marks(nodes.clone(), vec![self.hole as u32], self.copies);
        // So many copies may be more than can be counted.
        let Ok(problem) = problem else { return 1 };
        let search = searched(&problem);
        for answer in search.front() {
            let items = &answer.sequence;
            let cost = cost(&flat, items);
            let hole = items.iter().position(|v| *v as usize == self.hole).expect("an output");
            let last = last_uses(&flat, items);
            let held = (0..hole).filter(|i| last[*i] as usize > hole).map(|i| items[i]);
            let mut held: Vec<u32> = held.collect();
            held.sort_unstable();
            let kept = held.iter().map(|v| around.bytes(*v)).sum();
            let (peak, again) = (cost.peak as i64, cost.time - self.forward - self.backward);
            let better = |o: &Choice, than: (i64, i64, f64)| {
                o.kept <= than.0 && o.peak <= than.1 && o.again <= than.2
            };
            if self.choices.iter().any(|o| better(o, (kept, peak, again))) {
                continue;
            }
            let (before, after) = (items[..hole].to_vec(), items[hole..].to_vec());
            let choice = Choice { kept, peak, again, before, after, held };
            self.choices.retain(|o| !better(&choice, (o.kept, o.peak, o.again)));
            self.choices.push(choice);
        }
        search.moves()
    }

    /// The problems of another block with the same numbers: with its hole and without.
    pub fn sides(problem: &Problem, cuts: &[Cut], owner: &[usize], index: usize) -> [Side; 2] {
        let needed = problem.needed();
        [true, false].map(|hole| side(problem, &needed, cuts, owner, index, hole).0)
    }
}

fn searched(problem: &Problem) -> Search<'_> {
    const SEED: u64 = 7;
    let mut search = Search::of_block(problem, SEED);
    while search.moves() < EFFORT && search.advance(EFFORT / 8) {}
    search
}

/// The nodes of a block, with or without its hole; the node of the hole; and the bytes that are
/// read from below.
fn side(
    problem: &Problem,
    needed: &[bool],
    cuts: &[Cut],
    owner: &[usize],
    index: usize,
    hole: bool,
) -> (Side, usize, i64) {
    let lower = cuts[index];
    // The head is one backward pass, so to speak.
    let upper = cuts.get(index + 1).copied().unwrap_or(Cut { from: lower.from, to: lower.from });
    let has_hole = hole && index + 1 < cuts.len();
    let readers =
        |v: usize| problem.readers(v as u32).iter().map(|r| *r as usize).filter(|r| needed[*r]);
    let number = vec![0; problem.len()];
    let mut builder = Builder { problem, needed, number, side: Side::default() };
    let mut inputs = 0;
    for v in 0..lower.from {
        if readers(v).any(|r| owner[r] == index) {
            // What a lower block reads too is counted there.
            let counted = readers(v).any(|r| (owner[v] + 1..index).contains(&owner[r]));
            let bytes = if counted { 0 } else { problem.node(v as u32).bytes };
            inputs += bytes as i64;
            builder.given(v, bytes, vec![]);
        }
    }
    for v in lower.from..upper.from {
        match problem.node(v as u32) {
            node if node.once && !hole => builder.given(v, node.bytes, vec![]),
            node => builder.add(v, node.output && hole),
        }
    }
    let mut mark = vec![];
    if has_hole {
        let above = |v: &usize| needed[*v] && readers(*v).any(|r| owner[r] > index);
        let read = (lower.from..upper.from).filter(above).map(|v| builder.number[v]).collect();
        let read = builder.collect(read);
        mark = vec![builder.collect(vec![read])];
    }
    let passed = |v: &usize| needed[*v] && readers(*v).any(|r| r >= lower.to);
    for v in upper.from..upper.to {
        if readers(v).any(|r| owner[r] == index) || passed(&v) {
            builder.given(v, problem.node(v as u32).bytes, mark.clone());
        }
    }
    (upper.to..lower.to).for_each(|v| builder.add(v, problem.node(v as u32).output));
    let passed = (lower.from..lower.to).filter(passed).map(|v| builder.number[v]).collect();
    builder.collect(passed);
    (builder.side, mark.first().map_or(0, |m| *m as usize), inputs)
}
