//! Shapes of operations on axes, and of several tensors.

use crate::graph::op::Op;
use crate::graph::tensor::{DType, TensorSpec};

impl Op {
    /// The output of an operation that takes elements, or their order, apart.
    pub(super) fn infer_layout(&self, input: &TensorSpec) -> Result<TensorSpec, String> {
        let mut shape = input.shape.clone();
        let size_of = |axis: u64| {
            let size = usize::try_from(axis).ok().and_then(|axis| input.shape.get(axis));
            size.copied().ok_or_else(|| format!("{input} has no axis {axis}"))
        };
        match self {
            Op::Slice { axis, start, end, step } => {
                let size = size_of(*axis)?;
                if *step == 0 || start >= end || *end > size {
                    return Err(format!("no elements from {start} to {end} by {step} of {size}"));
                }
                shape[*axis as usize] = (end - start).div_ceil(*step);
            }
            Op::Permute { axes } => {
                let mut sorted = axes.clone();
                sorted.sort_unstable();
                if !sorted.iter().copied().eq(0..input.shape.len() as u64) {
                    return Err(format!("{axes:?} is no order of the axes of {input}"));
                }
                shape = axes.iter().map(|axis| input.shape[*axis as usize]).collect();
            }
            Op::Reshape { shape: wanted } => {
                let elements = wanted.iter().try_fold(1u64, |n, size| n.checked_mul(*size));
                if elements != Some(input.elements()) {
                    return Err(format!("{input} has not the elements of {wanted:?}"));
                }
                shape.clone_from(wanted);
            }
            Op::ReduceMean { axes, keep } => {
                if axes.is_empty() || axes.windows(2).any(|pair| pair[0] >= pair[1]) {
                    return Err(format!("axes {axes:?} are not ascending"));
                }
                for axis in axes.iter().rev() {
                    size_of(*axis)?;
                    match keep {
                        true => shape[*axis as usize] = 1,
                        false => drop(shape.remove(*axis as usize)),
                    }
                }
            }
            _ => return Err(format!("{} is no operation on axes", self.name())),
        }
        Ok(TensorSpec { shape, dtype: input.dtype })
    }
}

/// Numbers, not indexes.
pub(super) fn floats(spec: &TensorSpec) -> Result<&TensorSpec, String> {
    match spec.dtype {
        DType::U32 => Err(format!("needs numbers, got {spec}")),
        DType::F32 => Ok(spec),
    }
}

/// Joined along `axis`.
pub(super) fn concat(inputs: &[&TensorSpec], axis: usize) -> Result<TensorSpec, String> {
    const MOST: usize = 64;
    let (first, rest) = inputs.split_first().ok_or("concat needs at least one input")?;
    if axis >= first.shape.len() || inputs.len() > MOST {
        let count = inputs.len();
        return Err(format!("joins up to {MOST} tensors along an axis, not {count} of {first}"));
    }
    let mut shape = first.shape.clone();
    for input in rest {
        let mut other = input.shape.clone();
        let size = other.get(axis).copied().and_then(|n| shape[axis].checked_add(n));
        if let Some(mine) = other.get_mut(axis) {
            *mine = shape[axis];
        }
        match size {
            Some(sum) if other == shape && input.dtype == first.dtype => shape[axis] = sum,
            _ => return Err(format!("concat cannot join {input} to {first}")),
        }
    }
    Ok(TensorSpec { shape, dtype: first.dtype })
}

/// NumPy's rule: shapes are aligned at the last axis, and a size of 1 fits every size.
pub(super) fn broadcast(name: &str, a: &TensorSpec, b: &TensorSpec) -> Result<TensorSpec, String> {
    floats(a).and(floats(b))?;
    let axes = a.shape.len().max(b.shape.len());
    let size = |spec: &TensorSpec, axis: usize| {
        let missing = axes - spec.shape.len();
        axis.checked_sub(missing).map_or(1, |axis| spec.shape[axis])
    };
    let joined = (0..axes).map(|axis| match (size(a, axis), size(b, axis)) {
        (a, b) if a == b || b == 1 => Some(a),
        (1, b) => Some(b),
        _ => None,
    });
    match joined.collect() {
        Some(shape) => Ok(TensorSpec::f32(shape)),
        None => Err(format!("{name} needs shapes that broadcast, got {a} and {b}")),
    }
}

/// A product over the last two axes.
pub(super) fn matmul(
    a: &TensorSpec,
    b: &TensorSpec,
    transpose_b: bool,
) -> Result<TensorSpec, String> {
    floats(a).and(floats(b))?;
    let refuse = || format!("matmul needs [.., m, k] and [.., k, n], got {a} and {b}");
    let ([before @ .., m, k], [others @ .., rows, columns]) = (&a.shape[..], &b.shape[..]) else {
        return Err(refuse());
    };
    let (inner, n) = if transpose_b { (columns, rows) } else { (rows, columns) };
    if before != others || k != inner {
        return Err(refuse());
    }
    Ok(TensorSpec::f32([before, &[*m, *n]].concat()))
}

/// Attention of separate tensors.
pub(super) fn scaled_dot_product(
    q: &TensorSpec,
    k: &TensorSpec,
    v: &TensorSpec,
) -> Result<TensorSpec, String> {
    let scores = matmul(q, k, true)?;
    matmul(&scores, v, false)
}
