//! Losses.
//!
//! A loss is two words for the whole micro-batch: the sum over its samples of each sample's loss
//! (f32), itself a mean over the sample's positions or elements, and the number of correct
//! predictions (u32; 0 where nothing is classified). Micro-batches of one step can thus be added
//! up; the gradient carries the division by the mini-batch in `loss_scale`.

pub mod sigmoid;
pub mod softmax;
pub mod squared;
pub mod vocabulary;

/// Target of a sample that only fills up a micro-batch: no loss, no prediction, no gradient. As a
/// float it is one of the numbers that are none, and not the one that arithmetic gives.
const PADDING: u32 = u32::MAX;

/// Parts in which rows are summed: so many whatever the number of threads.
const PARTS: usize = 32;

/// Sum of losses and number of correct predictions.
type Tally = (f64, u32);

/// Adds up `row(index)` over so many rows of `words` words: the same bits whatever the number of threads.
fn tally(threads: usize, count: usize, words: usize, row: impl Fn(usize) -> Tally + Sync) -> Tally {
    let rows = count.div_ceil(PARTS).max(1);
    let mut tallies = [(0.0, 0); PARTS];
    let threads = super::chunks::worth(threads, count * words);
    super::chunks::for_each(threads, &mut tallies, 1, |at, tally| {
        let rows = at * rows..count.min((at + 1) * rows);
        tally[0] = rows.map(&row).fold((0.0, 0), add);
    });
    tallies.into_iter().fold((0.0, 0), add)
}

/// As [`tally`] over rows of which each keeps `WIDTH` numbers: `row(index, what is kept)`.
fn tally_and_keep<const WIDTH: usize>(
    threads: usize,
    words: usize,
    kept: &mut [f32],
    row: impl Fn(usize, &mut [f32; WIDTH]) -> Tally + Sync,
) -> Tally {
    let (kept, _) = kept.as_chunks_mut::<WIDTH>();
    let rows = kept.len().div_ceil(PARTS).max(1);
    let mut tallies = [(0.0, 0); PARTS];
    let threads = super::chunks::worth(threads, kept.len() * words);
    super::chunks::for_each_pair(threads, (&mut tallies, kept), (1, rows), |at, tally, kept| {
        let rows = (at * rows..).zip(kept);
        tally[0] = rows.map(|(index, kept)| row(index, kept)).fold((0.0, 0), add);
    });
    tallies.into_iter().fold((0.0, 0), add)
}

fn add(a: Tally, b: Tally) -> Tally {
    (a.0 + b.0, a.1 + b.1)
}

/// Writes the two words of a loss.
fn write(loss: &mut [f32], (sum, correct): Tally) {
    loss[0] = sum as f32;
    bytemuck::cast_slice_mut::<f32, u32>(loss)[1] = correct;
}

/// Brings a part of what the loss judged, from element `start` on, to where its gradient will lie. Where the gradient is
/// written over it, it is there, and `judged` is empty.
fn bring(judged: &[f32], start: usize, g: &mut [f32]) {
    if !judged.is_empty() {
        g.copy_from_slice(&judged[start..][..g.len()]);
    }
}
