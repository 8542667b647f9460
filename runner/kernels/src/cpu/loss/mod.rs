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

/// Adds up `row(index, saved row)` over the rows of `saved`, each of `width` words: the same bits
/// whatever the number of threads.
fn tally(
    threads: usize,
    saved: &mut [f32],
    width: usize,
    row: impl Fn(usize, &mut [f32]) -> Tally + Sync,
) -> Tally {
    let rows = (saved.len() / width).div_ceil(PARTS).max(1);
    let part = |at: usize, saved: &mut [f32]| {
        let rows = (at * rows..).zip(saved.chunks_exact_mut(width));
        rows.map(|(index, saved)| row(index, saved)).fold((0.0, 0), add)
    };
    let mut tallies = [(0.0, 0); PARTS];
    let threads = super::chunks::worth(threads, saved.len());
    super::chunks::for_each_pair(threads, (&mut tallies, saved), (1, rows * width), |at, t, s| {
        t[0] = part(at, s);
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
