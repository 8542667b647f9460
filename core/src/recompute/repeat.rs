//! Layers that repeat: what was found for one is tried on the others.

use super::Problem;
use super::cut::without_waste;
use super::sequence::append;

/// Shortest block that counts as a layer, fewest repetitions, and nodes that must be alike at first
/// sight.
const SHORTEST: usize = 2;
const FEWEST: usize = 3;
const GLANCE: usize = 4;

/// Nodes `start + block * period + place` that are alike for all blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Repetition {
    start: usize,
    period: usize,
    blocks: usize,
}

impl Repetition {
    fn end(&self) -> usize {
        self.start + self.period * self.blocks
    }

    /// Block and place of a node.
    fn place(&self, node: usize) -> Option<(usize, usize)> {
        let at = node.checked_sub(self.start).filter(|at| *at < self.period * self.blocks)?;
        Some((at / self.period, at % self.period))
    }
}

/// Layers that are alike: layer `k` is the `period` nodes from `first + k * period` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layers {
    /// First node of the first layer.
    pub first: u32,
    /// Nodes of a layer.
    pub period: u32,
    /// How many layers there are.
    pub count: u32,
}

/// The runs of equal layers that cover most nodes, in the order of the nodes; forward and backward
/// passes are runs of their own. O(nodes x periods tried).
pub fn layers(problem: &Problem) -> Vec<Layers> {
    let layers = |run: &Repetition| Layers {
        first: run.start as u32,
        period: run.period as u32,
        count: run.blocks as u32,
    };
    Repeats::find(problem).runs.iter().map(layers).collect()
}

/// The repetitions of a problem: runs of equal blocks, such as the forward passes of all layers and
/// their backward passes.
#[derive(Clone, Debug, Default)]
pub(super) struct Repeats {
    runs: Vec<Repetition>,
}

impl Repeats {
    /// Finds the runs that cover most nodes. O(nodes x periods tried).
    pub fn find(problem: &Problem) -> Self {
        let kinds = kinds(problem);
        let mut runs: Vec<Repetition> = vec![];
        let mut from = 0;
        while from + GLANCE * FEWEST <= kinds.len() {
            match longest(&kinds, from) {
                Some(run) => {
                    from = run.end();
                    runs.push(run);
                }
                None => from += GLANCE,
            }
        }
        Self { runs }
    }

    /// What `node` becomes when the blocks of run `run` move by `by`: runs before it, which are the
    /// forward passes when it is the backward passes, are passed the other way. `None`: it would
    /// leave its run.
    fn moved(&self, node: u32, run: usize, by: i64) -> Option<u32> {
        // The first or last layer is often a bit different.
        const UNLIKE: usize = 2;
        let places = self.runs.iter().map(|r| r.place(node as usize));
        let found = places.enumerate().find_map(|(home, place)| Some((home, place?)));
        let Some((home, (block, place))) = found else { return Some(node) };
        let own = &self.runs[home];
        if own.blocks.abs_diff(self.runs[run].blocks) > UNLIKE {
            return Some(node);
        }
        let block = block as i64 + if home < run { -by } else { by };
        let inside = (0..own.blocks as i64).contains(&block);
        inside.then(|| (own.start + block as usize * own.period + place) as u32)
    }

    /// The sequence in which all blocks of run `run` are done as the `width` blocks from `source` on
    /// are. `None` where there are not so many. O(items x their inputs).
    pub fn spread(
        &self,
        problem: &Problem,
        sequence: &[u32],
        run: usize,
        source: usize,
        width: usize,
    ) -> Option<Vec<u32>> {
        let blocks = self.runs[run].blocks;
        if source + width > blocks {
            return None;
        }
        let parts = self.parts(problem, sequence, run);
        let mut spread: Vec<u32> = sequence[..parts[0]].to_vec();
        for block in 0..blocks {
            // The model blocks, again and again in both directions.
            let model = source + (block + blocks * width - source) % width;
            let by = block as i64 - model as i64;
            let part = &sequence[parts[model]..parts[model + 1]];
            spread.extend(part.iter().filter_map(|node| self.moved(*node, run, by)));
        }
        spread.extend(&sequence[parts[blocks]..]);
        Some(without_waste(problem, &mended(problem, &spread)))
    }

    /// Blocks of a run.
    pub fn blocks(&self, run: usize) -> usize {
        self.runs[run].blocks
    }

    /// Number of runs.
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Where each block of a run begins in a sequence: after the last first computation of the block
    /// before. The last entry is the end of the last block.
    fn parts(&self, problem: &Problem, sequence: &[u32], run: usize) -> Vec<usize> {
        let run = &self.runs[run];
        let mut done = vec![false; problem.len()];
        let mut ends = vec![0; run.blocks + 1];
        let mut start = sequence.len();
        for (at, &node) in sequence.iter().enumerate() {
            if std::mem::replace(&mut done[node as usize], true) {
                continue;
            }
            if let Some((block, _)) = run.place(node as usize) {
                ends[block + 1] = at + 1;
                start = start.min(at);
            }
        }
        ends[0] = start;
        // A block that is done early leaves nothing for its part.
        for block in 0..run.blocks {
            ends[block + 1] = ends[block + 1].max(ends[block]);
        }
        ends
    }
}

/// What a node is like: equal numbers for nodes of equal size and time.
fn kinds(problem: &Problem) -> Vec<u64> {
    let mix =
        |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let kind = |node: u32| {
        let n = problem.node(node);
        let flags = u64::from(n.output) | u64::from(n.once) << 1;
        let size = mix(mix(flags, n.bytes), n.scratch);
        mix(mix(size, n.time.to_bits()), n.inputs.len() as u64)
    };
    (0..problem.len() as u32).map(kind).collect()
}

/// The run of most nodes that begins at `from`.
fn longest(kinds: &[u64], from: usize) -> Option<Repetition> {
    let rest = &kinds[from..];
    let mut best: Option<Repetition> = None;
    for period in SHORTEST..=(rest.len() - GLANCE) / (FEWEST - 1) {
        if rest[..GLANCE] != rest[period..period + GLANCE] {
            continue;
        }
        let equal = rest.iter().zip(&rest[period..]).take_while(|(a, b)| a == b).count();
        let blocks = equal / period + 1;
        let run = Repetition { start: from, period, blocks };
        let size = |run: &Repetition| run.period * run.blocks;
        // Of equally many nodes the shortest period.
        if blocks >= FEWEST
            && period * blocks >= GLANCE * FEWEST
            && best.is_none_or(|b| size(&run) > size(&b))
        {
            best = Some(run);
        }
    }
    best
}

/// The sequence with what is missing computed before its first reader, and nothing computed again
/// that must not be.
fn mended(problem: &Problem, sequence: &[u32]) -> Vec<u32> {
    let mut done = vec![false; problem.len()];
    let mut mended = Vec::with_capacity(sequence.len());
    let outputs = (0..problem.len() as u32).filter(|node| problem.node(*node).output);
    let asked = sequence.iter().map(|node| (*node, true)).chain(outputs.map(|node| (node, false)));
    for (node, again) in asked {
        if done[node as usize] && again && !problem.node(node).once {
            mended.push(node);
        } else {
            append(problem, node, &mut done, &mut mended);
        }
    }
    mended
}
