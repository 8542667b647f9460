//! Shapes, parts, sums along axes.

use crate::onnx::node::{Attributes, axes, axis, range};
use crate::onnx::tensor::{Elem, Tensor, is_batch};

pub(super) fn fold(
    op: &str,
    attributes: &Attributes,
    inputs: &[Option<&Tensor>],
) -> Option<Tensor> {
    let ints = |at: usize, name: &str| given(attributes, inputs, at, name);
    match (op, inputs.first().copied().flatten()) {
        ("Constant", _) => constant(attributes),
        ("ConstantOfShape", Some(shape)) => {
            let value = attributes.tensor("value");
            let elem = value.as_ref().map_or(Elem::Float, |v| v.elem);
            let number = value.map_or(Some(0.0), |v| v.scalar())?;
            Tensor::full(elem, shape.to_ints()?, number)
        }
        ("Range", Some(start)) => arange(start, (*inputs.get(1)?)?, (*inputs.get(2)?)?),
        ("Gather", Some(x)) => gather(x, (*inputs.get(1)?)?, attributes.int("axis").unwrap_or(0)),
        ("Concat", Some(_)) => {
            let parts: Vec<&Tensor> = inputs.iter().copied().collect::<Option<_>>()?;
            let along = axis(attributes.int("axis")?, parts[0].shape.len())?;
            Tensor::concat(&parts, along)
        }
        ("Unsqueeze", Some(x)) => {
            let new = ints(1, "axes")?;
            let rank = x.shape.len() + new.len();
            let mut shape = x.shape.clone();
            for at in axes(&new, rank)? {
                shape.insert(at.min(shape.len()), 1);
            }
            x.reshape(shape)
        }
        ("Squeeze", Some(x)) => {
            let gone = match ints(1, "axes") {
                Some(given) => axes(&given, x.shape.len())?,
                None => (0..x.shape.len()).filter(|i| x.shape[*i] == 1).collect(),
            };
            let kept = (0..x.shape.len()).filter(|i| !gone.contains(i));
            x.reshape(kept.map(|i| x.shape[i]).collect())
        }
        ("Reshape", Some(x)) => {
            let zero = attributes.int("allowzero").unwrap_or(0) != 0;
            x.reshape(reshaped(&x.shape, &ints(1, "shape")?, zero)?)
        }
        ("Expand", Some(x)) => x.expand(&(*inputs.get(1)?)?.to_ints()?),
        ("Transpose", Some(x)) => {
            let reversed: Vec<i64> = (0..x.shape.len() as i64).rev().collect();
            let perm = attributes.ints("perm").unwrap_or(&reversed);
            x.transpose(&permutation(perm, x.shape.len())?)
        }
        ("Slice", Some(x)) => slice(x, attributes, inputs),
        ("Trilu", Some(x)) => trilu(x, attributes, inputs),
        ("MatMul", Some(a)) => matmul(a, (*inputs.get(1)?)?),
        _ if op.starts_with("Reduce") => reduce(op, attributes, inputs),
        _ => None,
    }
}

/// Numbers that are an attribute in old operator sets and an input in new ones.
fn given(
    attributes: &Attributes,
    inputs: &[Option<&Tensor>],
    at: usize,
    name: &str,
) -> Option<Vec<i64>> {
    match attributes.ints(name) {
        Some(ints) => Some(ints.to_vec()),
        None => (*inputs.get(at)?)?.to_ints(),
    }
}

/// Evenly spaced numbers.
fn arange(start: &Tensor, end: &Tensor, step: &Tensor) -> Option<Tensor> {
    let elem = start.elem;
    let (start, end, step) = (start.scalar()?, end.scalar()?, step.scalar()?);
    let count = ((end - start) / step).ceil().max(0.0);
    if count > 1e7 {
        return None;
    }
    let data: Vec<f64> = (0..count as i64).map(|i| start + i as f64 * step).collect();
    Tensor::new(elem, vec![data.len() as i64], data)
}

fn constant(attributes: &Attributes) -> Option<Tensor> {
    if let Some(tensor) = attributes.tensor("value") {
        return Some(tensor);
    }
    if let Some(value) = attributes.float("value_float") {
        return Tensor::new(Elem::Float, vec![], vec![value.into()]);
    }
    if let Some(value) = attributes.int("value_int") {
        return Tensor::new(Elem::Int, vec![], vec![value as f64]);
    }
    if let Some(values) = attributes.floats("value_floats") {
        let data = values.iter().map(|x| f64::from(*x)).collect();
        return Tensor::new(Elem::Float, vec![values.len() as i64], data);
    }
    attributes.ints("value_ints").map(|ints| Tensor::ints(ints.to_vec()))
}

fn gather(x: &Tensor, indexes: &Tensor, along: i64) -> Option<Tensor> {
    let along = axis(along, x.shape.len())?;
    let size = x.shape[along];
    if is_batch(size) {
        return None;
    }
    // Equal indexes along an axis, such as the batch, stay stored once.
    let dense = indexes.dense()?;
    let flat = dense.values().or_else(|| dense.scalar().map(|i| vec![i]))?;
    let place = |i: &f64| {
        let i = if *i < 0.0 { *i as i64 + size } else { *i as i64 };
        usize::try_from(i).ok().filter(|i| (*i as i64) < size)
    };
    let places: Vec<usize> = flat.iter().map(place).collect::<Option<_>>()?;
    let picked = x.select(along, &places)?;
    let mut shape = x.shape.clone();
    let once: Vec<i64> = match dense.values() {
        Some(_) => indexes.shape.clone(),
        None => vec![1; indexes.shape.len()],
    };
    shape.splice(along..=along, once);
    let mut full = x.shape.clone();
    full.splice(along..=along, indexes.shape.iter().copied());
    picked.reshape(shape)?.expand(&full)
}

/// The shape that `Reshape` asks for: 0 keeps an axis, -1 is what remains.
pub(in crate::onnx) fn reshaped(shape: &[i64], target: &[i64], zero: bool) -> Option<Vec<i64>> {
    let total = crate::onnx::tensor::count(shape)?;
    let mut result: Vec<i64> = vec![];
    for (i, size) in target.iter().enumerate() {
        result.push(match size {
            0 if !zero => *shape.get(i)?,
            _ => *size,
        });
    }
    if let Some(open) = result.iter().position(|size| *size == -1) {
        result[open] = 1;
        let rest = crate::onnx::tensor::count(&result).filter(|rest| *rest > 0)?;
        result[open] = (total % rest == 0).then_some(total / rest)?;
    }
    (result.iter().all(|size| *size >= 0)).then_some(result)
}

/// A permutation of the axes, checked.
pub(in crate::onnx) fn permutation(perm: &[i64], rank: usize) -> Option<Vec<usize>> {
    let whole = axes(perm, rank)?.len() == rank && perm.len() == rank;
    let order = || perm.iter().map(|a| axis(*a, rank)).collect::<Option<Vec<usize>>>();
    if whole { order() } else { None }
}

fn slice(x: &Tensor, attributes: &Attributes, inputs: &[Option<&Tensor>]) -> Option<Tensor> {
    let ints = |at: usize, name: &str| given(attributes, inputs, at, name);
    let (starts, ends) = (ints(1, "starts")?, ints(2, "ends")?);
    let along = ints(3, "axes").unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = ints(4, "steps").unwrap_or_else(|| vec![1; starts.len()]);
    let mut result = x.clone();
    for (i, start) in starts.iter().enumerate() {
        let along = axis(*along.get(i)?, x.shape.len())?;
        if *steps.get(i)? < 0 {
            result = backwards(&result, along, *start, *ends.get(i)?, steps[i])?;
            continue;
        }
        let (start, end, step) = range(*start, *ends.get(i)?, *steps.get(i)?, x.shape[along])?;
        if (start, end, step) == (0, x.shape[along], 1) {
            continue;
        }
        if is_batch(x.shape[along]) {
            return None;
        }
        result = result.part(along, start, end, step)?;
    }
    Some(result)
}

/// The elements from `start` down to the one behind `end`.
fn backwards(x: &Tensor, along: usize, start: i64, end: i64, step: i64) -> Option<Tensor> {
    let size = x.shape[along];
    let bound = |n: i64| if n < 0 { n.saturating_add(size) } else { n };
    let first = bound(start).min(size - 1);
    let last = bound(end).max(-1);
    if is_batch(size) || size > 1 << 20 {
        return None;
    }
    let stride = usize::try_from(step.checked_neg()?).ok()?;
    let places: Vec<usize> =
        (last + 1..=first).rev().step_by(stride).filter_map(|i| usize::try_from(i).ok()).collect();
    x.select(along, &places)
}

fn trilu(x: &Tensor, attributes: &Attributes, inputs: &[Option<&Tensor>]) -> Option<Tensor> {
    let upper = attributes.int("upper").unwrap_or(1) != 0;
    let k = match inputs.get(1).copied().flatten() {
        Some(k) => k.scalar()? as i64,
        None => 0,
    };
    let [.., rows, columns] = x.shape[..] else { return None };
    // What is kept, as ones and zeros, broadcasts over the axes before.
    let kept = |i: i64, j: i64| if upper { j - i >= k } else { j - i <= k };
    if rows * columns > 1 << 24 || is_batch(rows) || is_batch(columns) {
        return None;
    }
    let data = (0..rows).flat_map(|i| (0..columns).map(move |j| f64::from(kept(i, j)))).collect();
    let mask = Tensor::new(Elem::Float, vec![rows, columns], data)?;
    x.zip(&mask, x.elem, |x, kept| if kept != 0.0 { x } else { 0.0 })
}

/// The product of small tables, such as positions by frequencies; axes before the last two must
/// hold one matrix each.
fn matmul(a: &Tensor, b: &Tensor) -> Option<Tensor> {
    let ((m, k, left), (rows, n, right)) = (a.matrix()?, b.matrix()?);
    if k != rows || m.checked_mul(n)?.checked_mul(k)? > 1 << 26 {
        return None;
    }
    let mut data = vec![0.0; m * n];
    for i in 0..m {
        for (j, row) in right.chunks_exact(n.max(1)).enumerate() {
            let factor = left[i * k + j];
            data[i * n..(i + 1) * n].iter_mut().zip(row).for_each(|(sum, x)| *sum += factor * x);
        }
    }
    let product = Tensor::new(a.elem, vec![m as i64, n as i64], data)?;
    let before = |t: &Tensor| t.shape[..t.shape.len() - 2].to_vec();
    let mut shape = crate::onnx::tensor::broadcast(&before(a), &before(b))?;
    shape.extend([m as i64, n as i64]);
    product.expand(&shape)
}

fn reduce(op: &str, attributes: &Attributes, inputs: &[Option<&Tensor>]) -> Option<Tensor> {
    let x = inputs.first().copied().flatten()?;
    let along = match given(attributes, inputs, 1, "axes") {
        Some(given) if !given.is_empty() => axes(&given, x.shape.len())?,
        _ => (0..x.shape.len()).collect(),
    };
    let mut result = x.clone();
    let mut elements = 1;
    for at in &along {
        elements *= x.shape[*at];
        result = match op {
            "ReduceProd" => result.fold_axis(*at, 1.0, |a, b| a * b),
            "ReduceSum" | "ReduceMean" => result.fold_axis(*at, 0.0, |a, b| a + b),
            "ReduceMax" => result.fold_axis(*at, f64::NEG_INFINITY, f64::max),
            "ReduceMin" => result.fold_axis(*at, f64::INFINITY, f64::min),
            _ => None,
        }?;
    }
    if op == "ReduceMean" {
        result = result.map(x.elem, |sum| sum / elements as f64);
    }
    match attributes.int("keepdims") {
        Some(0) => {
            let kept = (0..x.shape.len()).filter(|i| !along.contains(i));
            let shape = kept.map(|i| result.shape[i]).collect();
            result.reshape(shape)
        }
        _ => Some(result),
    }
}

pub(super) fn split(attributes: &Attributes, inputs: &[Option<&Tensor>]) -> Option<Vec<Tensor>> {
    let x = inputs.first().copied().flatten()?;
    let along = axis(attributes.int("axis").unwrap_or(0), x.shape.len())?;
    let sizes = given(attributes, inputs, 1, "split")?;
    let sum = sizes.iter().try_fold(0i64, |sum, n| sum.checked_add(*n).filter(|_| *n >= 0));
    if sum != Some(x.shape[along]) {
        return None;
    }
    let mut start = 0;
    let part = |size: &i64| {
        start += size;
        x.part(along, start - size, start, 1)
    };
    sizes.iter().map(part).collect()
}
