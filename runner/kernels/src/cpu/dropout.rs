//! Dropout (Srivastava et al. 2014): `y = x / (1 - probability)` where an element is kept, else 0.
//!
//! Which elements are kept follows from seed, step, node, the sample's index in the mini-batch and
//! the element's index in the sample alone: nothing is saved for the backward pass, and no split,
//! number of micro-batches or order of actions changes it.

use super::chunks;
use super::philox::{LANES, WORDS, blocks};
use crate::{Call, Mask, Operands, Phase};

/// Elements of a group: each word of random numbers decides on two, its lower half on one in the
/// first half of the group and its upper half on one in the second.
const GROUP: usize = 2 * WORDS;

// A chunk begins with a new group.
const _: () = assert!(chunks::ELEMENTWISE.is_multiple_of(GROUP));

/// Forward pass; the input gradient is the same function of the output's gradient.
pub fn apply(call: &Call, probability: f32, operands: Operands) {
    let Operands { reads: [x], writes: [y], .. } = operands else {
        unreachable!("dropout has one input and one output");
    };
    if call.phase == Phase::Evaluate || probability == 0.0 {
        y.copy_from_slice(x);
        return;
    }
    let Mask { key, limit, scale } = Mask::new(&call.draw, probability);
    let elements = call.output.elements() as usize;
    // A rank with a slice of the positions draws what the whole sample does.
    let before = call.shard.tensor_rank as usize * elements;
    let threads = chunks::worth(call.threads, x.len());
    let samples = x.chunks_exact(elements).zip(y.chunks_exact_mut(elements));
    for (index, (x, y)) in (0..).zip(samples) {
        let sample = Sample::new(key, call.draw.step, call.draw.first_sample + index);
        chunks::for_each(threads, y, chunks::ELEMENTWISE, |chunk, y| {
            let start = chunk * chunks::ELEMENTWISE;
            let x = &x[start..][..y.len()];
            if !before.is_multiple_of(GROUP) {
                let draw = Draw { limit, scale, first: before + start };
                draw.one_by_one(&sample, x, y);
                return;
            }
            let groups = x.chunks(GROUP).zip(y.chunks_mut(GROUP));
            for (group, (x, y)) in ((before + start) / GROUP..).zip(groups) {
                let words = sample.words(group);
                let halves = x.chunks(WORDS).zip(y.chunks_mut(WORDS)).zip([0, 16]);
                for ((x, y), shift) in halves {
                    for ((y, x), word) in y.iter_mut().zip(x).zip(words) {
                        *y = if (word >> shift) & 0xffff < limit { 0.0 } else { x * scale };
                    }
                }
            }
        });
    }
}

/// Elements that begin within a group.
struct Draw {
    limit: u32,
    scale: f32,
    /// Place of the first in the sample.
    first: usize,
}

impl Draw {
    fn one_by_one(&self, sample: &Sample, x: &[f32], y: &mut [f32]) {
        let mut done = 0;
        while done < x.len() {
            let (group, within) = ((self.first + done) / GROUP, (self.first + done) % GROUP);
            let words = sample.words(group);
            let end = (done + GROUP - within).min(x.len());
            for (place, (x, y)) in (within..).zip(x[done..end].iter().zip(&mut y[done..end])) {
                let word = words[place % WORDS] >> (16 * (place / WORDS));
                *y = if word & 0xffff < self.limit { 0.0 } else { x * self.scale };
            }
            done = end;
        }
    }
}

/// The random numbers of one sample.
struct Sample {
    key: [u32; 2],
    counter: [u32; 3],
}

impl Sample {
    fn new(key: [u32; 2], step: u64, sample: u64) -> Self {
        // A mini-batch has at most 2^32 samples.
        Self { key, counter: [sample as u32, step as u32, (step >> 32) as u32] }
    }

    /// Numbers for the elements from `group * GROUP` on.
    fn words(&self, group: usize) -> [u32; WORDS] {
        blocks(self.key, (group * LANES) as u32, self.counter)
    }
}
