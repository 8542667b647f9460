//! Axes of tensors as kernels walk them: sizes, and each tensor's strides.

use super::MOST_AXES;

/// Axes with strides of `N` tensors, outermost first; neighbours that all tensors run through in one
/// go are one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Axes<const N: usize> {
    pub rank: usize,
    pub sizes: [u32; MOST_AXES],
    pub strides: [[u64; MOST_AXES]; N],
}

impl<const N: usize> Axes<N> {
    /// No axis: one element.
    pub fn new() -> Self {
        Self { rank: 0, sizes: [0; MOST_AXES], strides: [[0; MOST_AXES]; N] }
    }

    /// Appends an axis, to the last one where it goes on. Axes before `from` stay as they are.
    ///
    /// # Panics
    /// With more than [`MOST_AXES`] axes that are not one.
    pub fn push(&mut self, from: usize, size: u64, strides: [u64; N]) {
        if size == 1 {
            return;
        }
        let last = self.rank.wrapping_sub(1);
        let goes_on = self.rank > from
            && (0..N).all(|i| self.strides[i][last] == strides[i] * size)
            && u64::from(self.sizes[last]) * size <= u64::from(u32::MAX);
        let at = if goes_on { last } else { self.rank };
        assert!(at < MOST_AXES, "a tensor of more than {MOST_AXES} axes");
        let before = if goes_on { u64::from(self.sizes[at]) } else { 1 };
        self.sizes[at] =
            u32::try_from(before * size).expect("an axis has fewer than 2^32 elements");
        (0..N).for_each(|i| self.strides[i][at] = strides[i]);
        self.rank = at + 1;
    }
}

/// Elements of a shape.
pub fn elements(shape: &[u64]) -> u64 {
    shape.iter().product()
}

/// Strides along `rank` axes and, before them, along samples; 0 where the tensor repeats.
pub fn strides(shape: &[u64], rank: usize) -> Vec<u64> {
    let mut strides = vec![0; rank + 1];
    strides[0] = elements(shape);
    let mut next = 1;
    for (place, size) in strides[1..].iter_mut().rev().zip(shape.iter().rev()) {
        *place = if *size == 1 { 0 } else { next };
        next *= size;
    }
    strides
}
