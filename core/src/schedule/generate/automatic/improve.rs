//! Local search: first how deep lanes warm up, then single moves on the critical path.

use super::Code;
use super::fill::{Filled, Problem, Rule};
use super::orders::Order;
use std::ops::Range;

/// From how many candidates the search starts.
pub(super) const STARTS: usize = 3;

/// Passes that the whole search may execute: about a fifth of a second.
const PASSES: usize = 12_000_000;
/// Executions for problems so large that the above are few.
const EXECUTIONS: usize = 48;

/// How many executions are left.
pub(super) struct Budget(usize);

impl Budget {
    /// For a problem with so many passes.
    pub(super) fn new(passes: usize) -> Self {
        Self((PASSES / passes).max(EXECUTIONS))
    }

    fn take(&mut self) -> bool {
        let left = self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        left
    }
}

/// One forward more or less ahead of the first gradient, on the lanes up to one or from one on,
/// as long as that helps. Takes at most three quarters of the budget.
pub(super) fn warm_ups(
    problem: &Problem,
    mut order: Order,
    rule: Rule,
    bound: u64,
    budget: &mut Budget,
) -> Option<Filled> {
    let reserve = budget.0 / 2;
    let mut best = problem.fill(&order, rule)?;
    let lanes = order.len();
    let mut ranges: Vec<Range<usize>> = vec![];
    for lane in 0..lanes {
        ranges.extend([lane..lane + 1, 0..lane + 1, lane..lanes]);
    }
    ranges.dedup();
    // Goes on from the move that helped: its like often helps again.
    let (mut at, mut since) = (0, 0);
    while since < 2 * ranges.len() && best.step > bound && budget.0 > reserve {
        let (range, deeper) = (ranges[at / 2].clone(), at % 2 == 0);
        let mut other = order.clone();
        // All of them are shifted, also after the first that could be.
        let shifted = other[range].iter_mut().filter_map(|lane| shift(lane, deeper).then_some(()));
        let changed = shifted.count() > 0;
        let filled = if changed && budget.take() { problem.fill(&other, rule) } else { None };
        match filled {
            Some(filled) if filled.score() < best.score() => {
                (best, order, since) = (filled, other, 0);
            }
            _ => {
                since += 1;
                at = (at + 1) % (2 * ranges.len());
            }
        }
    }
    Some(best)
}

/// Moves all forwards one place ahead of the gradients, or back.
fn shift(lane: &mut Vec<Code>, deeper: bool) -> bool {
    let is_forward = |code: &Code| code.is_multiple_of(3);
    let forwards: Vec<Code> = lane.iter().copied().filter(is_forward).collect();
    let backwards: Vec<Code> = lane.iter().copied().filter(|code| !is_forward(code)).collect();
    let mut word: Vec<bool> = lane.iter().map(is_forward).collect();
    let (Some(first), Some(last)) = (word.iter().position(|f| !f), word.iter().rposition(|f| *f))
    else {
        return false;
    };
    if deeper {
        if last < first {
            return false;
        }
        word.remove(last);
        word.insert(first, true);
    } else {
        if first < 2 {
            return false;
        }
        // Behind the gradient that follows the last forward.
        word.insert((last + 2).min(word.len()), true);
        word.remove(first - 1);
    }
    let (mut forwards, mut backwards) = (forwards.into_iter(), backwards.into_iter());
    *lane = word
        .into_iter()
        .filter_map(|forward| if forward { forwards.next() } else { backwards.next() })
        .collect();
    true
}

/// Moves of passes to the ends of their blocks on the critical path (Nowicki and Smutnicki 1996,
/// "A Fast Taboo Search Algorithm for the Job Shop Problem": no other move can shorten it), and by
/// one place, as long as that helps.
pub(super) fn critical(
    problem: &Problem,
    mut best: Filled,
    bound: u64,
    budget: &mut Budget,
) -> Filled {
    'again: while best.step > bound {
        for (lane, block) in blocks(problem, &best) {
            for (from, to) in moves(&block, best.lanes[lane].len()) {
                if best.lanes[lane][from] == best.lanes[lane][to] {
                    continue;
                }
                if !budget.take() {
                    return best;
                }
                let mut lanes = best.lanes.clone();
                let code = lanes[lane].remove(from);
                lanes[lane].insert(to, code);
                if let Some(filled) = problem.fill(&lanes, Rule::Given)
                    && filled.score() < best.score()
                {
                    best = filled;
                    continue 'again;
                }
            }
        }
        break;
    }
    best
}

/// Where the passes of a block may go.
fn moves(block: &Range<usize>, end: usize) -> Vec<(usize, usize)> {
    let mut moves = vec![];
    for from in block.clone() {
        let near = [from.wrapping_sub(1), from + 1];
        for to in
            [block.start, block.end - 1, block.start.wrapping_sub(1), block.end].iter().chain(&near)
        {
            if *to < end && *to != from && !moves.contains(&(from, *to)) {
                moves.push((from, *to));
            }
        }
    }
    moves
}

/// The critical path backwards: lanes, and positions that follow each other without a pause.
fn blocks(problem: &Problem, filled: &Filled) -> Vec<(usize, Range<usize>)> {
    let times = Times::new(problem, &filled.lanes);
    let mut blocks = vec![];
    let last = |lane: &usize| times.ends[*lane].last() == Some(&filled.step);
    let mut at =
        (0..filled.lanes.len()).find(last).map(|lane| (lane, filled.lanes[lane].len() - 1));
    while let Some((lane, end)) = at {
        let mut start = end;
        at = loop {
            let begin = times.ends[lane][start] - problem.time(filled.lanes[lane][start]);
            if start > 0 && times.ends[lane][start - 1] == begin {
                start -= 1;
                continue;
            }
            break times.needs[lane][start];
        };
        blocks.push((lane, start..end + 1));
    }
    blocks
}

/// When passes end, by lane and position, and where what they need from elsewhere is.
struct Times {
    ends: Vec<Vec<u64>>,
    needs: Vec<Vec<Option<(usize, usize)>>>,
}

impl Times {
    /// Executes a complete order that is known to work.
    fn new(problem: &Problem, lanes: &[Vec<Code>]) -> Self {
        let m = problem.micro_batches;
        let mut place = vec![None; 3 * problem.stages.len() * m];
        let mut turns = vec![0; 3 * problem.stages.len()];
        let row = |code: Code, turn: usize| code as usize * m + turn;
        let mut turn_at: Vec<Vec<usize>> = vec![];
        for (lane, codes) in lanes.iter().enumerate() {
            turn_at.push(vec![]);
            for (at, code) in codes.iter().enumerate() {
                place[row(*code, turns[*code as usize])] = Some((lane, at));
                turn_at[lane].push(turns[*code as usize]);
                turns[*code as usize] += 1;
            }
        }
        let last = problem.stages.len() as Code - 1;
        let needed = |lane: usize, at: usize| {
            let code = lanes[lane][at];
            let needs = match (code / 3, code % 3) {
                (0, 0) => return None,
                (_, 0) => code - 3,
                (stage, 1) if stage < last => code + 3,
                _ => code - 1,
            };
            place[row(needs, turn_at[lane][at])]
        };
        let needs: Vec<Vec<Option<(usize, usize)>>> = (0..lanes.len())
            .map(|lane| (0..lanes[lane].len()).map(|at| needed(lane, at)).collect())
            .collect();
        let mut ends: Vec<Vec<u64>> = vec![vec![]; lanes.len()];
        let mut moved = true;
        while std::mem::take(&mut moved) {
            for lane in 0..lanes.len() {
                while let Some(code) = lanes[lane].get(ends[lane].len()) {
                    let from = needs[lane][ends[lane].len()];
                    let arrival = match from {
                        None => Some(0),
                        Some((other, at)) => ends[other].get(at).map(|end| {
                            let stage = (*code / 3) as usize;
                            let before = if code % 3 == 0 { stage.wrapping_sub(1) } else { stage };
                            end.saturating_add(if other == lane { 0 } else { problem.hop(before) })
                        }),
                    };
                    let Some(arrival) = arrival else { break };
                    let free = ends[lane].last().copied().unwrap_or(0);
                    ends[lane].push(free.max(arrival).saturating_add(problem.time(*code)));
                    moved = true;
                }
            }
        }
        Self { ends, needs }
    }
}
