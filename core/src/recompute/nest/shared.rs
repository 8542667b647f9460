//! Values that several blocks read: who keeps one keeps it for the others too.

use super::super::Problem;
use super::block::Choice;
use super::plan::Block;
use std::rc::Rc;

/// A value that a block keeps and a later one reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub node: u32,
    /// Bytes, and how many of them the block counts.
    bytes: i64,
    counted: i64,
}

/// Values that are kept so far and read later, ascending.
pub(super) type Values = Rc<Vec<u32>>;

/// What the choices for a block hold.
#[derive(Clone, Debug, Default)]
pub(super) struct Holdings {
    /// The different lists.
    pub lists: Vec<Vec<Held>>,
    /// Which one each choice has.
    pub list: Vec<usize>,
    /// By number of blocks: what a segment from this block reads of what is below.
    pub segments: Vec<Vec<Held>>,
}

/// The last block that reads each node.
pub(super) fn last_readers(problem: &Problem, owner: &[usize]) -> Vec<usize> {
    let last = |v: usize| {
        let readers = problem.readers(v as u32).iter();
        readers.map(|r| owner[*r as usize]).max().unwrap_or(owner[v])
    };
    (0..problem.len()).map(last).collect()
}

impl Holdings {
    /// Of block `index` with these choices, and the segments of up to `longest` blocks.
    pub fn new(
        problem: &Problem,
        blocks: &[Block],
        last: &[usize],
        index: usize,
        choices: &[Choice],
        longest: usize,
    ) -> Self {
        let side = &blocks[index].sides[0];
        let mut holdings = Self::default();
        let bytes = |node: u32| problem.node(node).bytes as i64;
        for choice in choices {
            let held = choice.held.iter().filter_map(|local| {
                let node = side.of[*local as usize];
                let later = last.get(node as usize).is_some_and(|last| *last > index);
                // What is below counts in any case.
                let counts = later || !side.own[*local as usize];
                let counted = side.bytes(*local);
                counts.then(|| Held { node, bytes: bytes(node), counted })
            });
            let mut held: Vec<Held> = held.collect();
            held.sort_unstable_by_key(|h| h.node);
            let found = holdings.lists.iter().position(|list| *list == held);
            holdings.list.push(found.unwrap_or(holdings.lists.len()));
            if found.is_none() {
                holdings.lists.push(held);
            }
        }
        let mut needs: Vec<Held> = vec![];
        holdings.segments.push(vec![]);
        for block in &blocks[index..blocks.len().min(index + longest)] {
            let side = &block.sides[1];
            for (local, node) in side.of.iter().enumerate() {
                if *node < blocks[index].from && !side.own[local] {
                    needs.push(Held { node: *node, bytes: bytes(*node), counted: 0 });
                }
            }
            needs.sort_unstable_by_key(|h| h.node);
            needs.dedup();
            holdings.segments.push(needs.clone());
        }
        holdings
    }
}

/// Bytes to add to what a block counts of `held`, when `kept` is kept already.
pub(super) fn correction(kept: &[u32], held: &[Held]) -> i64 {
    let own = |h: &Held| match kept.binary_search(&h.node) {
        Ok(_) => -h.counted,
        Err(_) => h.bytes - h.counted,
    };
    held.iter().map(own).sum()
}

/// Both, as far as blocks from `next` on read them.
pub(super) fn united(kept: &Values, held: &[Held], last: &[usize], next: usize) -> Values {
    let open = |node: &u32| last[*node as usize] >= next;
    if held.is_empty() && kept.iter().all(open) {
        return kept.clone();
    }
    let mut all: Vec<u32> = kept.iter().copied().chain(held.iter().map(|h| h.node)).collect();
    all.retain(open);
    all.sort_unstable();
    all.dedup();
    Rc::new(all)
}
