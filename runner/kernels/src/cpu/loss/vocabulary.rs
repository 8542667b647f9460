//! Softmax cross entropy of logits that a tensor group has divided by classes (Shoeybi et al. 2019), with label
//! smoothing as in [`super::softmax`].
//!
//! Each rank gives five numbers a position of its own classes: the largest logit m, the sum of exp(x - m), the
//! target's logit, the class of the largest, the sum of x - m. All ranks see those of all, in one order, and so
//! come to one loss:
//!
//! ```text
//! M = max m    S = Σ exp(m - M) sum    loss = log S - (1 - e) (x[target] - M) - e / classes Σ (x - M)
//! ```

use super::super::chunks;
use super::super::softmax::{row_exp_in_place, row_exp_sum, row_max};
use super::softmax::row_gradient;
use super::{PADDING, bring, tally_and_keep, write};
use crate::{Call, Operands};
use pipewright_core::graph::autodiff::PARTIAL_LOSS_WORDS;

const WORDS: usize = PARTIAL_LOSS_WORDS as usize;

/// Exponentials that are added up at a time.
const PART: usize = 256;

/// This rank's classes, and the sizes of a sample.
#[derive(Clone, Copy)]
struct Classes {
    /// Columns of the logits here.
    columns: usize,
    /// Those of them that are classes.
    own: usize,
    first: usize,
    /// Of all ranks.
    all: usize,
    positions: usize,
}

impl Classes {
    fn new(call: &Call) -> Self {
        let logits = call.inputs[0];
        let columns = *logits.shape.last().expect("logits have classes") as usize;
        let (all, first) =
            (call.shard.vocabulary as usize, call.shard.tensor_rank as usize * columns);
        let own = all.saturating_sub(first).min(columns);
        Self { columns, own, first, all, positions: logits.elements() as usize / columns }
    }

    /// The column of a class; none where another rank has it.
    fn column(&self, class: u32) -> Option<usize> {
        (class as usize).checked_sub(self.first).filter(|column| *column < self.own)
    }
}

/// What this rank knows of each position, at its place among all ranks; zero at theirs.
pub fn partial(call: &Call, operands: Operands) {
    let classes = Classes::new(call);
    let [logits, targets] = operands.reads else {
        unreachable!("a loss reads logits and targets");
    };
    let targets: &[u32] = bytemuck::cast_slice(targets);
    let numbers = &mut *operands.writes[0];
    numbers.fill(0.0);
    let rows = classes.positions * call.samples as usize;
    let own = &mut numbers[call.shard.tensor_rank as usize * rows * WORDS..][..rows * WORDS];
    let threads = chunks::worth(call.threads, logits.len());
    chunks::for_each(threads, own, WORDS, |row, numbers| {
        let logits = &logits[row * classes.columns..][..classes.own];
        numbers.copy_from_slice(&of_row(&classes, logits, targets[row]));
    });
}

fn of_row(classes: &Classes, logits: &[f32], target: u32) -> [f32; WORDS] {
    if logits.is_empty() {
        return [f32::NEG_INFINITY, 0.0, 0.0, 0.0, 0.0];
    }
    let max = row_max(logits);
    let (mut total, mut distance) = (0.0f64, 0.0f64);
    for part in logits.chunks(PART) {
        total += f64::from(row_exp_sum(part, max));
        distance += part.iter().map(|logit| f64::from(logit - max)).sum::<f64>();
    }
    let largest = logits.iter().position(|logit| *logit == max).unwrap_or(0);
    let expected = classes.column(target).map_or(0.0, |column| logits[column]);
    [max, total as f32, expected, (classes.first + largest) as f32, distance as f32]
}

/// All of a position, from what the ranks tell.
struct Judged {
    max: f32,
    total: f64,
    prediction: usize,
    /// The sum of all logits less the largest.
    distance: f64,
}

impl Judged {
    fn new<'a>(classes: &Classes, ranks: impl Iterator<Item = &'a [f32]> + Clone) -> Self {
        let max = ranks.clone().fold(f32::NEG_INFINITY, |max, numbers| max.max(numbers[0]));
        let mut all = Self { max, total: 0.0, prediction: 0, distance: 0.0 };
        let mut found = false;
        for (rank, numbers) in ranks.enumerate() {
            let own = classes.all.saturating_sub(rank * classes.columns).min(classes.columns);
            if own == 0 {
                break;
            }
            let below = f64::from(numbers[0] - max);
            all.total += f64::from(numbers[1]) * below.exp();
            all.distance += f64::from(numbers[4]) + own as f64 * below;
            if numbers[0] == max && !found {
                (all.prediction, found) = (numbers[3] as usize, true);
            }
        }
        all
    }
}

pub fn forward(call: &Call, smoothing: f32, operands: Operands) {
    let classes = Classes::new(call);
    let [_, targets, numbers] = operands.reads else {
        unreachable!("a divided loss reads logits, targets and what ranks tell");
    };
    let targets: &[u32] = bytemuck::cast_slice(targets);
    let [loss, statistics] = operands.writes else {
        unreachable!("a loss writes itself and statistics");
    };
    let of_rank = numbers.len() / call.shard.degree as usize;
    let smoothing = f64::from(smoothing);
    let (sum, correct) = tally_and_keep(call.threads, WORDS, statistics, |row, statistics| {
        let ranks = numbers.chunks_exact(of_rank).map(|rank| &rank[row * WORDS..][..WORDS]);
        let judged = Judged::new(&classes, ranks);
        *statistics = [judged.max, (1.0 / judged.total) as f32];
        let target = targets[row];
        if target == PADDING {
            return (0.0, 0);
        }
        let owner = target as usize / classes.columns;
        let logit = numbers[owner * of_rank + row * WORDS + 2];
        let mut expected = f64::from(logit - judged.max);
        if smoothing > 0.0 {
            let all = judged.distance / classes.all as f64;
            expected = (1.0 - smoothing) * expected + smoothing * all;
        }
        (judged.total.ln() - expected, u32::from(judged.prediction == target as usize))
    });
    write(loss, (sum / classes.positions as f64, correct));
}

pub fn input_gradient(call: &Call, smoothing: f32, operands: Operands) {
    let classes = Classes::new(call);
    let [logits, targets, statistics] = operands.reads else {
        unreachable!("a loss's gradient reads logits, targets and statistics");
    };
    let targets: &[u32] = bytemuck::cast_slice(targets);
    let (statistics, _) = statistics.as_chunks::<2>();
    let scale = call.loss_scale / classes.positions as f32;
    let (spread, on_target) = (smoothing / classes.all as f32, 1.0 - smoothing);
    let g = &mut *operands.writes[0];
    let threads = chunks::worth(call.threads, g.len());
    chunks::for_each(threads, g, classes.columns, |row, g| {
        if targets[row] == PADDING {
            g.fill(0.0);
            return;
        }
        let (g, beyond) = g.split_at_mut(classes.own);
        bring(logits, row * classes.columns, g);
        beyond.fill(0.0);
        let [max, factor] = statistics[row];
        row_exp_in_place(g, 1.0, max);
        let column = classes.column(targets[row]);
        let probability = column.map(|column| g[column] * factor);
        row_gradient(g, factor, spread, scale);
        if let (Some(column), Some(probability)) = (column, probability) {
            g[column] = (probability - on_target - spread) * scale;
        }
    });
}
