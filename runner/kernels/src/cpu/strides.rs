//! Walking several tensors along the axes of one of them, some of which repeat or are summed.
//!
//! A tensor that lacks an axis, or has it with size 1, has stride 0 along it: its elements are
//! read again and again, or added to. Neighbouring axes that every tensor runs through in one go
//! are walked as one, so that the innermost loop is as long as possible.

use smallvec::SmallVec;

/// One axis: its size and each tensor's stride.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Axis<const N: usize> {
    size: usize,
    strides: [usize; N],
}

/// The axes of a walk, outermost first; at least one. More than a tensor of today has, so that
/// none of them allocates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walk<const N: usize> {
    axes: SmallVec<[Axis<N>; 8]>,
}

impl<const N: usize> Walk<N> {
    /// A walk along sizes, with strides for every tensor.
    pub fn new(sizes: impl Iterator<Item = (usize, [usize; N])>) -> Self {
        let mut axes: SmallVec<[Axis<N>; 8]> = SmallVec::new();
        for (size, strides) in sizes.filter(|(size, _)| *size != 1) {
            if let Some(last) = axes.last_mut()
                && (0..N).all(|i| last.strides[i] == strides[i] * size)
            {
                *last = Axis { size: last.size * size, strides };
                continue;
            }
            axes.push(Axis { size, strides });
        }
        if axes.is_empty() {
            axes.push(Axis { size: 1, strides: [0; N] });
        }
        Self { axes }
    }

    /// Elements of the innermost axis.
    pub fn inner_len(&self) -> usize {
        self.axes[self.axes.len() - 1].size
    }

    /// Strides of the innermost axis.
    pub fn inner_strides(&self) -> [usize; N] {
        self.axes[self.axes.len() - 1].strides
    }

    /// Calls `visit` with every tensor's offset for each pass along the innermost axis.
    pub fn for_each(&self, mut visit: impl FnMut([usize; N])) {
        let outer = &self.axes[..self.axes.len() - 1];
        let mut at: Sizes = SmallVec::from_elem(0, outer.len());
        let mut offsets = [0; N];
        loop {
            visit(offsets);
            let mut axis = outer.len();
            loop {
                if axis == 0 {
                    return;
                }
                axis -= 1;
                let Axis { size, strides } = outer[axis];
                at[axis] += 1;
                if at[axis] < size {
                    (0..N).for_each(|i| offsets[i] += strides[i]);
                    break;
                }
                at[axis] = 0;
                (0..N).for_each(|i| offsets[i] -= (size - 1) * strides[i]);
            }
        }
    }
}

/// Sizes or strides, one per axis.
pub type Sizes = SmallVec<[usize; 8]>;

/// A shape as indexes.
pub fn sizes(shape: &[u64]) -> Sizes {
    shape.iter().map(|n| *n as usize).collect()
}

/// Strides of a contiguous tensor along its own axes.
pub fn contiguous(shape: &[u64]) -> Sizes {
    let mut strides = sizes(shape);
    let mut next = 1;
    for stride in strides.iter_mut().rev() {
        next *= std::mem::replace(stride, next);
    }
    strides
}

/// Strides along `rank` axes, aligned at the last: 0 where the tensor repeats.
pub fn broadcast(shape: &[u64], rank: usize) -> Sizes {
    let mut strides = SmallVec::from_elem(0, rank - shape.len());
    let own = contiguous(shape).into_iter().zip(shape);
    strides.extend(own.map(|(stride, size)| if *size == 1 { 0 } else { stride }));
    strides
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_axes_are_walked_as_one() {
        // [2, 3, 4] and the same transposed in its first two axes.
        let (a, b) = (contiguous(&[2, 3, 4]), [4, 8, 1]);
        let walk =
            Walk::new([2, 3, 4].into_iter().zip(a.iter().zip(b)).map(|(n, (a, b))| (n, [*a, b])));
        assert_eq!((walk.inner_len(), walk.inner_strides()), (4, [1, 1]));
        let mut seen = vec![];
        walk.for_each(|offsets| seen.push(offsets));
        assert_eq!(seen, [[0, 0], [4, 8], [8, 16], [12, 4], [16, 12], [20, 20]]);
        let same = Walk::new([2, 3, 4].into_iter().zip(a.iter()).map(|(n, a)| (n, [*a, *a])));
        assert_eq!(same.inner_len(), 24);
    }

    #[test]
    fn what_a_tensor_lacks_repeats() {
        assert_eq!(broadcast(&[3, 1], 3)[..], [0, 1, 0]);
        assert_eq!(broadcast(&[], 2)[..], [0, 0]);
    }
}
