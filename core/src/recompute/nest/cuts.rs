//! Cuts of the forward pass: places across which little lives.

use super::super::{Problem, memory, without_recomputation};

/// The nodes `from..to`: everything above a cut. Those of the block between two cuts are in the
/// larger and not in the smaller one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub from: usize,
    pub to: usize,
}

/// The cuts for blocks of about `size` nodes, from the whole problem to the head.
/// O(nodes + edges), and a sort of the forward pass.
pub(super) fn find(problem: &Problem, size: usize) -> Vec<Cut> {
    let needed = problem.needed();
    let reads = |node: usize| {
        let readers = problem.readers(node as u32).iter();
        readers.map(|r| *r as usize).filter(|r| needed[*r])
    };
    let middle = middle(problem);
    // Above cut `c` is everything up to the last reader of what the forward pass makes from there.
    let mut to = vec![middle; middle + 1];
    for c in (0..middle).rev() {
        to[c] = to[c + 1].max(reads(c).next_back().map_or(0, |last| last + 1));
    }
    // Bytes that each cut's upper part reads of the lower one, and the reverse at its end.
    let (mut down, mut up) = (vec![0i64; middle + 2], vec![0i64; problem.len() + 2]);
    for node in 0..problem.len() {
        let bytes = problem.node(node as u32).bytes as i64;
        let forward = reads(node).take_while(|r| *r < middle).last().unwrap_or(node);
        let backward = reads(node).find(|r| *r >= middle);
        if node < middle {
            // `to` descends: cuts up to this one are left after the first backward reader.
            let above = backward.map_or(0, |r| to.partition_point(|end| *end > r));
            let last = forward.max(above.saturating_sub(1)).min(middle);
            if last > node {
                down[node + 1] += bytes;
                down[last + 1] -= bytes;
            }
        } else if let Some(last) = reads(node).next_back() {
            up[node + 1] += bytes;
            up[last + 1] -= bytes;
        }
    }
    running(&mut down);
    running(&mut up);
    let mut candidates: Vec<(i64, usize)> =
        (1..=middle).map(|c| (down[c] + up[to[c]], c)).collect();
    candidates.sort_unstable();
    let chosen = choose(problem, &candidates, middle, size);
    let whole = Cut { from: 0, to: problem.len() };
    let cut = |c: usize| Cut { from: c, to: to[c] };
    [whole].into_iter().chain(chosen.into_iter().map(cut)).collect()
}

/// Where most memory is in use as the problem stands: the end of the forward pass.
fn middle(problem: &Problem) -> usize {
    let sequence = without_recomputation(problem);
    let memory = memory(problem, &sequence);
    let peak = memory.iter().max();
    memory.iter().position(|m| Some(m) == peak).map_or(0, |at| sequence[at] as usize)
}

fn running(changes: &mut [i64]) {
    let mut sum = 0;
    for change in changes {
        sum += *change;
        *change = sum;
    }
}

/// The best candidates that are far enough apart in time.
fn choose(
    problem: &Problem,
    candidates: &[(i64, usize)],
    middle: usize,
    size: usize,
) -> Vec<usize> {
    /// Of the time of a block.
    const APART: f64 = 0.6;
    let mut time = vec![0.0; middle + 1];
    for c in 0..middle {
        time[c + 1] = time[c] + problem.node(c as u32).time;
    }
    let apart = APART * time[middle] * size as f64 / problem.len() as f64;
    let mut chosen: Vec<usize> = vec![];
    for &(_, c) in candidates {
        // Those before and after it that were chosen.
        let at = chosen.partition_point(|d| *d < c);
        let after = chosen.get(at).map_or(f64::INFINITY, |d| time[*d] - time[c]);
        let before = at.checked_sub(1).map_or(2.0 * time[c], |i| time[c] - time[chosen[i]]);
        if before >= apart && after >= apart {
            chosen.insert(at, c);
        }
    }
    chosen
}
