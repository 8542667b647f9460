//! Tensors whose values are known while a file is read: shapes, masks, tables of angles.
//!
//! The size of the batch is not known; [`BATCH`] stands for it, a prime that no axis has by chance,
//! so that arithmetic on shapes needs no rules of its own: `[batch · 12, 64]` is a size that the
//! prime divides. An axis along which all elements are equal is stored once.

use super::proto::{self, data_type};
use super::weights;

/// What stands for the size of the batch.
pub(super) const BATCH: i64 = 1_000_003;

/// No constant has more elements; larger ones are not computed.
const ELEMENTS_MAX: usize = 1 << 24;

/// Kind of the elements; all are computed with in double precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Elem {
    Float,
    Int,
    Bool,
}

impl Elem {
    /// The kind of an ONNX type; none for texts, complex and 4-bit numbers.
    pub fn of(kind: i32) -> Option<Self> {
        match kind {
            data_type::FLOAT | data_type::FLOAT16 | data_type::DOUBLE | data_type::BFLOAT16 => {
                Some(Elem::Float)
            }
            data_type::BOOL => Some(Elem::Bool),
            data_type::UINT8..=data_type::INT64 | data_type::UINT32 | data_type::UINT64 => {
                Some(Elem::Int)
            }
            _ => None,
        }
    }
}

/// A tensor of known values.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tensor {
    pub elem: Elem,
    pub shape: Vec<i64>,
    /// Size of each axis in `data`: that of `shape`, or 1 where all elements are equal.
    stored: Vec<usize>,
    data: Vec<f64>,
}

/// Elements of a shape, when its sizes are none below zero and any of them can be multiplied.
pub(super) fn count(shape: &[i64]) -> Option<i64> {
    let sizes = || shape.iter().copied();
    let bound = sizes().try_fold(1i64, |n, size| n.checked_mul(size.max(1)));
    let sound = bound.is_some_and(|n| n < 1 << 60) && sizes().all(|size| size >= 0);
    sound.then(|| sizes().product())
}

/// Whether the size contains the batch.
pub(super) fn is_batch(size: i64) -> bool {
    size != 0 && size % BATCH == 0
}

/// NumPy's rule; none when the shapes do not fit.
pub(super) fn broadcast(a: &[i64], b: &[i64]) -> Option<Vec<i64>> {
    let rank = a.len().max(b.len());
    let size = |s: &[i64], i: usize| (i + s.len()).checked_sub(rank).map_or(1, |i| s[i]);
    (0..rank)
        .map(|i| match (size(a, i), size(b, i)) {
            (a, b) if a == b || b == 1 => Some(a),
            (1, b) => Some(b),
            _ => None,
        })
        .collect()
}

impl Tensor {
    /// All values given; none when they do not fill the shape.
    pub fn new(elem: Elem, shape: Vec<i64>, data: Vec<f64>) -> Option<Self> {
        let stored = sizes(&shape)?;
        let fits = count(&shape)? == i64::try_from(data.len()).ok()?;
        (fits && data.len() <= ELEMENTS_MAX).then_some(Self { elem, shape, stored, data })
    }

    /// The same value everywhere.
    pub fn full(elem: Elem, shape: Vec<i64>, value: f64) -> Option<Self> {
        count(&shape)?;
        match shape.contains(&0) {
            true => Self::new(elem, shape, vec![]),
            false => Some(Self { elem, stored: vec![1; shape.len()], shape, data: vec![value] }),
        }
    }

    /// Whole numbers along one axis.
    pub fn ints(values: Vec<i64>) -> Self {
        let data: Vec<f64> = values.into_iter().map(|n| n as f64).collect();
        let length = data.len();
        Self { elem: Elem::Int, shape: vec![length as i64], stored: vec![length], data }
    }

    /// From a file, when the values are in it and are few enough.
    pub fn read(tensor: &proto::Tensor) -> Option<Self> {
        let elem = Elem::of(tensor.data_type)?;
        let elements = usize::try_from(count(&tensor.dims)?).ok()?;
        if elements > ELEMENTS_MAX || tensor.data_location == 1 {
            return None;
        }
        Self::new(elem, tensor.dims.clone(), weights::numbers(tensor, elements)?)
    }

    /// The value, when all are equal by construction.
    pub fn scalar(&self) -> Option<f64> {
        (self.data.len() == 1).then(|| self.data[0])
    }

    /// The value that all elements have.
    pub fn uniform(&self) -> Option<f64> {
        let first = *self.data.first()?;
        self.data.iter().all(|x| *x == first).then_some(first)
    }

    /// Whether the elements are `0, step, 2 step, ..` in order. Of a batch that is open the first one alone
    /// is known.
    pub fn counts(&self, step: i64) -> bool {
        let count = count(&self.shape).unwrap_or(0);
        let all = count == self.data.len() as i64 || is_batch(count) && self.data.len() == 1;
        all && self.data.iter().zip(0..).all(|(x, n)| *x == (n * step) as f64)
    }

    /// As whole numbers, of a tensor with at most one axis.
    pub fn to_ints(&self) -> Option<Vec<i64>> {
        if self.shape.len() > 1 {
            return None;
        }
        Some(self.dense()?.data.iter().map(|n| *n as i64).collect())
    }

    /// All elements in order. None when the batch is among the axes or there are too many.
    pub fn values(&self) -> Option<Vec<f64>> {
        let dense = self.dense()?;
        (dense.data.len() as i64 == count(&self.shape)?).then_some(dense.data)
    }

    /// All elements of one sample in order: none of them differs along the batch.
    pub fn of_sample(&self) -> Option<Vec<f64>> {
        Some(self.dense()?.data)
    }

    /// Rows and columns of the last two axes, when nothing differs along the others.
    pub fn matrix(&self) -> Option<(usize, usize, Vec<f64>)> {
        let [before @ .., rows, columns] = &self.shape[..] else { return None };
        let (rows, columns) = (usize::try_from(*rows).ok()?, usize::try_from(*columns).ok()?);
        let mut wanted = self.stored[..before.len()].to_vec();
        wanted.extend([rows, columns]);
        let mut data = self.expanded(&wanted)?;
        let size = rows.checked_mul(columns).filter(|size| *size > 0)?;
        if data.chunks_exact(size).any(|other| other != &data[..size]) {
            return None;
        }
        data.truncate(size);
        Some((rows, columns, data))
    }

    /// Stored in full but for axes that contain the batch.
    pub fn dense(&self) -> Option<Self> {
        let full = self
            .shape
            .iter()
            .map(|n| if is_batch(*n) { Some(1) } else { usize::try_from(*n).ok() });
        let wanted: Vec<usize> = full.collect::<Option<_>>()?;
        let stored: Vec<usize> =
            wanted.iter().zip(&self.stored).map(|(w, s)| (*w).max(*s)).collect();
        let data = self.expanded(&stored)?;
        Some(Self { elem: self.elem, shape: self.shape.clone(), stored, data })
    }

    /// The elements with axes stored once repeated to `wanted`.
    fn expanded(&self, wanted: &[usize]) -> Option<Vec<f64>> {
        if wanted == self.stored {
            return Some(self.data.clone());
        }
        self.pick(wanted, |axis, i| if self.stored[axis] == 1 { 0 } else { i })
    }

    /// Elements at `of(axis, index)` for all indexes below `sizes`, one size an axis.
    fn pick(&self, sizes: &[usize], of: impl Fn(usize, usize) -> usize) -> Option<Vec<f64>> {
        let total = sizes.iter().try_fold(1usize, |n, size| n.checked_mul(*size))?;
        if total == 0 || total > ELEMENTS_MAX {
            return (total == 0).then(Vec::new);
        }
        let mut offsets = vec![0usize];
        for (axis, size) in sizes.iter().enumerate() {
            let inner: usize = self.stored[axis + 1..].iter().product();
            offsets = offsets
                .iter()
                .flat_map(|base| (0..*size).map(move |i| (*base, i)))
                .map(|(base, i)| base + of(axis, i) * inner)
                .collect();
        }
        offsets.into_iter().map(|at| self.data.get(at).copied()).collect()
    }

    /// `f` of each element.
    pub fn map(&self, elem: Elem, f: impl Fn(f64) -> f64) -> Self {
        let data = self.data.iter().map(|x| f(*x)).collect();
        Self { elem, shape: self.shape.clone(), stored: self.stored.clone(), data }
    }

    /// `f` of the elements of two tensors whose shapes broadcast.
    pub fn zip(&self, other: &Self, elem: Elem, f: impl Fn(f64, f64) -> f64) -> Option<Self> {
        let shape = broadcast(&self.shape, &other.shape)?;
        let (a, b) = (self.aligned(shape.len()), other.aligned(shape.len()));
        let stored: Vec<usize> =
            a.stored.iter().zip(&b.stored).map(|(a, b)| if *a == 1 { *b } else { *a }).collect();
        let (left, right) = (a.expanded(&stored)?, b.expanded(&stored)?);
        let data = left.iter().zip(&right).map(|(a, b)| f(*a, *b)).collect();
        Some(Self { elem, shape, stored, data })
    }

    /// With the batch for a first axis of `n` equal parts; none when it has no such axis.
    pub fn opened(&self, n: i64) -> Option<Self> {
        let (first, stored) = (self.shape.first()?, self.stored.first()?);
        let part = (self.data.len() / stored.max(&1)).max(1);
        if *first != n || self.data.chunks(part).any(|other| other != &self.data[..part]) {
            return None;
        }
        let mut opened = Self { data: self.data[..part].to_vec(), ..self.clone() };
        (opened.shape[0], opened.stored[0]) = (BATCH, 1);
        Some(opened)
    }

    /// With `f` of the first of its elements, stored in full along one axis.
    pub fn map_first(&self, f: impl Fn(f64) -> f64) -> Option<Self> {
        let mut dense = self.dense().filter(|t| t.shape.len() == 1)?;
        let first = dense.data.first_mut()?;
        *first = f(*first);
        Some(dense)
    }

    /// With axes of size 1 in front.
    fn aligned(&self, rank: usize) -> Self {
        let missing = rank - self.shape.len();
        let mut aligned = self.clone();
        aligned.shape.splice(0..0, std::iter::repeat_n(1, missing));
        aligned.stored.splice(0..0, std::iter::repeat_n(1, missing));
        aligned
    }

    /// Repeated along axes of size 1, which costs nothing.
    pub fn expand(&self, target: &[i64]) -> Option<Self> {
        let shape = broadcast(&self.shape, target)?;
        count(&shape)?;
        if shape.contains(&0) {
            return Self::new(self.elem, shape, vec![]);
        }
        let aligned = self.aligned(shape.len());
        Some(Self { shape, ..aligned })
    }

    /// Another shape for the same elements.
    pub fn reshape(&self, shape: Vec<i64>) -> Option<Self> {
        if count(&shape)? != count(&self.shape)? {
            return None;
        }
        if let Some(value) = self.scalar() {
            return Self::full(self.elem, shape, value);
        }
        let dense = self.dense()?;
        // An axis of the batch must stay where it is.
        let batch = |s: &[i64]| {
            let at: Vec<usize> = (0..s.len()).filter(|i| is_batch(s[*i])).collect();
            let before = at.first().map(|i| s[..*i].iter().product::<i64>());
            (at.len(), before, at.first().map(|i| s[*i]))
        };
        if batch(&shape) != batch(&self.shape) || batch(&shape).0 > 1 {
            return None;
        }
        let stored = sizes(&shape)?;
        Some(Self { elem: self.elem, shape, stored, data: dense.data })
    }

    /// Axis `i` of the result is axis `axes[i]`, a permutation.
    pub fn transpose(&self, axes: &[usize]) -> Option<Self> {
        let stored: Vec<usize> = axes.iter().map(|axis| self.stored[*axis]).collect();
        let mut data = vec![0.0; self.data.len()];
        let mut strides = vec![1usize; stored.len()];
        for i in (1..stored.len()).rev() {
            strides[i - 1] = strides[i] * stored[i];
        }
        for (from, value) in self.data.iter().enumerate() {
            let (mut rest, mut to) = (from, 0);
            for axis in (0..self.stored.len()).rev() {
                let index = rest % self.stored[axis];
                rest /= self.stored[axis];
                to += index * strides[axes.iter().position(|a| *a == axis)?];
            }
            data[to] = *value;
        }
        let shape = axes.iter().map(|axis| self.shape[*axis]).collect();
        Some(Self { elem: self.elem, shape, stored, data })
    }

    /// Elements that it takes memory for.
    pub fn stored(&self) -> usize {
        self.data.len()
    }

    /// The elements `start, start + step, ..` below `end` along an axis; none for too many.
    pub fn part(&self, axis: usize, start: i64, end: i64, step: i64) -> Option<Self> {
        let size =
            usize::try_from((end - start).max(0)).ok()?.div_ceil(usize::try_from(step).ok()?);
        if size > ELEMENTS_MAX {
            return None;
        }
        let step = usize::try_from(step).ok()?;
        let places: Vec<usize> = (0..size)
            .map(|i| Some(usize::try_from(start).ok()? + i * step))
            .collect::<Option<_>>()?;
        self.select(axis, &places)
    }

    /// The elements at `indexes` along `axis`.
    pub fn select(&self, axis: usize, indexes: &[usize]) -> Option<Self> {
        let mut shape = self.shape.clone();
        *shape.get_mut(axis)? = indexes.len() as i64;
        let mut sizes = self.stored.clone();
        if self.stored[axis] == 1 {
            if indexes.is_empty() {
                return None;
            }
        } else {
            sizes[axis] = indexes.len();
        }
        let once = self.stored[axis] == 1;
        let data = self.pick(&sizes, |a, i| match a == axis {
            true if once => 0,
            true => indexes[i],
            false => i,
        })?;
        Some(Self { elem: self.elem, shape, stored: sizes, data })
    }

    /// Joined along `axis`.
    pub fn concat(parts: &[&Self], axis: usize) -> Option<Self> {
        let first = parts.first()?;
        let mut shape = first.shape.clone();
        let dense: Vec<Self> = parts.iter().map(|p| p.dense()).collect::<Option<_>>()?;
        let same = |p: &Self| {
            p.shape.len() == shape.len()
                && (0..shape.len()).all(|i| i == axis || p.shape[i] == shape[i])
        };
        if axis >= shape.len()
            || !dense.iter().all(same)
            || dense.iter().any(|p| is_batch(p.shape[axis]))
        {
            return None;
        }
        shape[axis] = dense.iter().try_fold(0i64, |n, p| n.checked_add(p.shape[axis]))?;
        count(&shape)?;
        let mut stored = dense[0].stored.clone();
        stored[axis] = usize::try_from(shape[axis]).ok()?;
        let outer: usize = stored[..axis].iter().product();
        let mut data = vec![];
        for i in 0..outer {
            for part in &dense {
                let chunk = part.data.len() / outer;
                data.extend_from_slice(&part.data[i * chunk..(i + 1) * chunk]);
            }
        }
        Some(Self { elem: first.elem, shape, stored, data })
    }

    /// `f` folded over one axis, which stays with size 1.
    pub fn fold_axis(&self, axis: usize, start: f64, f: impl Fn(f64, f64) -> f64) -> Option<Self> {
        let dense = self.dense()?;
        if is_batch(self.shape[axis]) {
            return None;
        }
        let (size, inner) =
            (dense.stored[axis], dense.stored[axis + 1..].iter().product::<usize>());
        let outer: usize = dense.stored[..axis].iter().product();
        let mut data = vec![start; outer * inner];
        for (i, value) in dense.data.iter().enumerate() {
            let at = i / (size * inner) * inner + i % inner;
            data[at] = f(data[at], *value);
        }
        let (mut shape, mut stored) = (dense.shape, dense.stored);
        (shape[axis], stored[axis]) = (1, 1);
        Some(Self { elem: self.elem, shape, stored, data })
    }
}

/// Sizes in memory of a tensor that is stored in full; the batch counts once.
fn sizes(shape: &[i64]) -> Option<Vec<usize>> {
    let size = |n: &i64| if is_batch(*n) { Some(1) } else { usize::try_from(*n).ok() };
    shape.iter().map(size).collect()
}
