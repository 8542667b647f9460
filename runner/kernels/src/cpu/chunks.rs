//! Splitting work over threads without changing a bit of the result.
//!
//! A chunk is computed by one thread from start to end and the size of a chunk never depends on
//! the number of threads, so neither does any number that comes out.

use super::thread_pool::both;
use std::ops::Range;

/// Below this many words the cost of handing them over exceeds what another thread saves.
const WORTH_SPLITTING: usize = 1 << 13;

/// How many threads to use for a kernel that touches `words` words.
pub fn worth(threads: usize, words: usize) -> usize {
    if words < WORTH_SPLITTING { 1 } else { threads }
}

/// Elements of a chunk of an element-wise kernel: 64 KiB, small enough to stay in L1 or L2.
pub const ELEMENTWISE: usize = 1 << 14;

/// Runs `work(index, chunk)` for every chunk of `len` elements of `data`; the last may be shorter.
pub fn for_each<T: Send>(
    threads: usize,
    data: &mut [T],
    len: usize,
    work: impl Fn(usize, &mut [T]) + Sync,
) {
    let work = |i, [chunk]: [&mut [T]; 1], _: &mut [f32]| work(i, chunk);
    let items = data.len().div_ceil(len);
    run_items(threads, 0..items, ([data], [len]), (&mut [], 0), &work);
}

/// Runs `work(index)` for so many indices.
pub fn for_each_index(threads: usize, items: usize, work: impl Fn(usize) + Sync) {
    let work = |i, []: [&mut [f32]; 0], _: &mut [f32]| work(i);
    run_items(threads, 0..items, ([], []), (&mut [], 0), &work);
}

/// Runs `work(index, chunk, other chunk)` for chunks of two tensors that belong together: of
/// `len.0` elements of the first and `len.1` of the second.
pub fn for_each_pair<T: Send, U: Send>(
    threads: usize,
    data: (&mut [T], &mut [U]),
    len: (usize, usize),
    work: impl Fn(usize, &mut [T], &mut [U]) + Sync,
) {
    let items = data.0.len().div_ceil(len.0).min(data.1.len().div_ceil(len.1));
    run_pairs(threads, 0..items, data, len, &work);
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
    let work = |i, [chunk]: [&mut [f32]; 1], scratch: &mut [f32]| work(i, chunk, scratch);
    let items = data.len().div_ceil(len.0);
    for_each_item(lanes, items, [(data, len.0)], (scratch, len.1), work);
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

fn run_items<T: Send, const N: usize>(
    lanes: usize,
    items: Range<usize>,
    (mut data, lens): ([&mut [T]; N], [usize; N]),
    scratch: (&mut [f32], usize),
    work: &(impl Fn(usize, [&mut [T]; N], &mut [f32]) + Sync),
) {
    if lanes <= 1 || items.len() <= 1 {
        for item in items.clone() {
            let mut at = 0;
            let parts = data.each_mut().map(|data| {
                let len = lens[at];
                at += 1;
                part(data, item - items.start, len)
            });
            work(item, parts, &mut scratch.0[..scratch.1]);
        }
        return;
    }
    let (left_lanes, middle) = halves(lanes, &items);
    let mut at = 0;
    let mut right = [(); N].map(|()| &mut [][..]);
    let left = data.map(|data| {
        let (left, rest) = split(data, middle - items.start, lens[at]);
        right[at] = rest;
        at += 1;
        left
    });
    let (scratch_left, scratch_right) = scratch.0.split_at_mut(left_lanes * scratch.1);
    let scratches = [(scratch_left, scratch.1), (scratch_right, scratch.1)];
    let [left_scratch, right_scratch] = scratches;
    both(
        || run_items(left_lanes, items.start..middle, (left, lens), left_scratch, work),
        || run_items(lanes - left_lanes, middle..items.end, (right, lens), right_scratch, work),
    );
}

fn run_pairs<T: Send, U: Send>(
    lanes: usize,
    items: Range<usize>,
    data: (&mut [T], &mut [U]),
    len: (usize, usize),
    work: &(impl Fn(usize, &mut [T], &mut [U]) + Sync),
) {
    if lanes <= 1 || items.len() <= 1 {
        for item in items.clone() {
            let at = item - items.start;
            work(item, part(data.0, at, len.0), part(data.1, at, len.1));
        }
        return;
    }
    let (left_lanes, middle) = halves(lanes, &items);
    let (a_left, a_right) = split(data.0, middle - items.start, len.0);
    let (b_left, b_right) = split(data.1, middle - items.start, len.1);
    both(
        || run_pairs(left_lanes, items.start..middle, (a_left, b_left), len, work),
        || run_pairs(lanes - left_lanes, middle..items.end, (a_right, b_right), len, work),
    );
}

/// Half of the lanes, and the item before which their part ends.
fn halves(lanes: usize, items: &Range<usize>) -> (usize, usize) {
    (lanes / 2, items.start + items.len() * (lanes / 2) / lanes)
}

/// Chunk `at` of `len` elements.
fn part<T>(data: &mut [T], at: usize, len: usize) -> &mut [T] {
    let end = (at * len + len).min(data.len());
    &mut data[at * len..end]
}

/// The first `items` chunks of `len` elements, and the others.
fn split<T>(data: &mut [T], items: usize, len: usize) -> (&mut [T], &mut [T]) {
    let at = (items * len).min(data.len());
    data.split_at_mut(at)
}
