//! Splitting work over threads without changing a bit of the result.
//!
//! A chunk is computed by one thread from start to end and the size of a chunk never depends on
//! the number of threads, so neither does any number that comes out.

use rayon::prelude::*;
use std::ops::Range;

/// Below this many words the cost of waking threads exceeds what they save.
const WORTH_SPLITTING: usize = 1 << 15;

/// How many threads to use for a kernel that touches `words` words.
pub fn worth(threads: usize, words: usize) -> usize {
    if words < WORTH_SPLITTING { 1 } else { threads }
}

/// Elements of a chunk of an element-wise kernel: 64 KiB, small enough to stay in L1 or L2.
pub const ELEMENTWISE: usize = 1 << 14;

/// Runs `work(index, chunk)` for every chunk of `len` elements of `data`.
pub fn for_each(
    threads: usize,
    data: &mut [f32],
    len: usize,
    work: impl Fn(usize, &mut [f32]) + Sync,
) {
    if threads <= 1 {
        data.chunks_mut(len).enumerate().for_each(|(i, chunk)| work(i, chunk));
        return;
    }
    let per_thread = data.len().div_ceil(len).div_ceil(threads);
    data.par_chunks_mut(per_thread * len).enumerate().for_each(|(group, part)| {
        for (i, chunk) in part.chunks_mut(len).enumerate() {
            work(group * per_thread + i, chunk);
        }
    });
}

/// Runs `work(index, chunk, other chunk)` for chunks of two tensors that belong together: of
/// `len.0` elements of the first and `len.1` of the second.
pub fn for_each_pair<T: Send>(
    threads: usize,
    data: (&mut [f32], &mut [T]),
    len: (usize, usize),
    work: impl Fn(usize, &mut [f32], &mut [T]) + Sync,
) {
    if threads <= 1 {
        let chunks = data.0.chunks_mut(len.0).zip(data.1.chunks_mut(len.1));
        chunks.enumerate().for_each(|(i, (a, b))| work(i, a, b));
        return;
    }
    let per_thread = data.0.len().div_ceil(len.0).div_ceil(threads);
    let first = data.0.par_chunks_mut(per_thread * len.0);
    let second = data.1.par_chunks_mut(per_thread * len.1);
    first.zip(second).enumerate().for_each(|(group, (a, b))| {
        for (i, (a, b)) in a.chunks_mut(len.0).zip(b.chunks_mut(len.1)).enumerate() {
            work(group * per_thread + i, a, b);
        }
    });
}

/// As [`for_each`], for work that needs scratch: `len.1` words of it for each of `lanes` threads.
///
/// # Panics
/// When there is less scratch than that.
pub fn for_each_with_scratch(
    lanes: usize,
    (data, scratch): (&mut [f32], &mut [f32]),
    len: (usize, usize),
    work: impl Fn(usize, &mut [f32], &mut [f32]) + Sync,
) {
    assert!(scratch.len() >= lanes * len.1, "scratch for {lanes} threads");
    if lanes <= 1 {
        let chunks = data.chunks_mut(len.0).enumerate();
        chunks.for_each(|(i, chunk)| work(i, chunk, &mut scratch[..len.1]));
        return;
    }
    let per_lane = data.len().div_ceil(len.0).div_ceil(lanes);
    let pieces = scratch.par_chunks_exact_mut(len.1);
    let parts = data.par_chunks_mut(per_lane * len.0).zip(pieces).enumerate();
    parts.for_each(|(lane, (part, piece))| {
        for (i, chunk) in part.chunks_mut(len.0).enumerate() {
            work(lane * per_lane + i, chunk, piece);
        }
    });
}

/// Runs `work(item, its part of every tensor, scratch)` for `items` items; tensor `i` has
/// `parts[i].1` words of each. Lanes take equal runs of items, and each has `scratch.1` words.
///
/// # Panics
/// When there is less scratch than that.
pub fn for_each_item<const N: usize>(
    lanes: usize,
    items: usize,
    parts: [(&mut [f32], usize); N],
    scratch: (&mut [f32], usize),
    work: impl Fn(usize, [&mut [f32]; N], &mut [f32]) + Sync,
) {
    let lanes = lanes.max(1);
    assert!(scratch.0.len() >= lanes * scratch.1, "scratch for {lanes} threads");
    let lens = parts.each_ref().map(|(_, len)| *len);
    let data = parts.map(|(data, _)| data);
    run_items(lanes, 0..items, (data, lens), scratch, &work);
}

fn run_items<const N: usize>(
    lanes: usize,
    items: Range<usize>,
    (mut data, lens): ([&mut [f32]; N], [usize; N]),
    scratch: (&mut [f32], usize),
    work: &(impl Fn(usize, [&mut [f32]; N], &mut [f32]) + Sync),
) {
    if lanes <= 1 {
        for item in items.clone() {
            let mut at = 0;
            let parts = data.each_mut().map(|data| {
                let start = (item - items.start) * lens[at];
                at += 1;
                &mut data[start..start + lens[at - 1]]
            });
            work(item, parts, &mut scratch.0[..scratch.1]);
        }
        return;
    }
    let left_lanes = lanes / 2;
    let middle = items.start + items.len() * left_lanes / lanes;
    let mut at = 0;
    let mut right = [(); N].map(|()| &mut [][..]);
    let left = data.map(|data| {
        let (left, rest) = data.split_at_mut((middle - items.start) * lens[at]);
        right[at] = rest;
        at += 1;
        left
    });
    let (scratch_left, scratch_right) = scratch.0.split_at_mut(left_lanes * scratch.1);
    rayon::join(
        || {
            run_items(
                left_lanes,
                items.start..middle,
                (left, lens),
                (scratch_left, scratch.1),
                work,
            )
        },
        || {
            let scratch = (scratch_right, scratch.1);
            run_items(lanes - left_lanes, middle..items.end, (right, lens), scratch, work);
        },
    );
}
