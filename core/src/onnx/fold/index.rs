//! Elements taken, put and summed by position.

use crate::onnx::node::{Attributes, axis};
use crate::onnx::tensor::{Tensor, is_batch};

/// No result has more elements.
const ELEMENTS_MAX: usize = 1 << 24;

pub(super) fn fold(
    op: &str,
    attributes: &Attributes,
    inputs: &[Option<&Tensor>],
) -> Option<Tensor> {
    let x = (*inputs.first()?)?;
    let second = || inputs.get(1).copied().flatten();
    match op {
        "CumSum" => running_sum(x, attributes, second()?),
        "GatherND" => gather_nd(x, second()?, attributes),
        "ScatterND" => scatter_nd(x, second()?, (*inputs.get(2)?)?, attributes),
        "GatherElements" => gather_elements(x, second()?, attributes.int("axis").unwrap_or(0)),
        "Tile" => tile(x, &second()?.to_ints()?),
        _ => None,
    }
}

/// Sizes of a shape without batch.
fn sizes(x: &Tensor) -> Option<Vec<usize>> {
    x.shape.iter().map(|n| usize::try_from(*n).ok().filter(|_| !is_batch(*n))).collect()
}

fn strides(sizes: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; sizes.len()];
    for i in (1..sizes.len()).rev() {
        strides[i - 1] = strides[i] * sizes[i];
    }
    strides
}

/// A position that may be counted from the end.
fn place(i: f64, size: usize) -> Option<usize> {
    let at = if i < 0.0 { i + size as f64 } else { i };
    (at >= 0.0 && at < size as f64).then_some(at as usize)
}

fn running_sum(x: &Tensor, attributes: &Attributes, along: &Tensor) -> Option<Tensor> {
    let flag = |name: &str| attributes.int(name).unwrap_or(0) != 0;
    let along = axis(along.uniform()? as i64, x.shape.len())?;
    let size = usize::try_from(x.shape[along]).ok().filter(|n| !is_batch(*n as i64))?;
    if size > 1 << 16 {
        return None;
    }
    // Parts along the axis, each the sum of those before it.
    let mut sum: Option<Tensor> = None;
    let mut parts = vec![];
    let order: Vec<usize> =
        if flag("reverse") { (0..size).rev().collect() } else { (0..size).collect() };
    for at in order {
        let part = x.select(along, &[at])?;
        let next = match &sum {
            Some(sum) => sum.zip(&part, x.elem, |a, b| a + b)?,
            None => part.clone(),
        };
        let before = sum.unwrap_or_else(|| part.map(x.elem, |_| 0.0));
        parts.push(if flag("exclusive") { before } else { next.clone() });
        sum = Some(next);
    }
    if flag("reverse") {
        parts.reverse();
    }
    Tensor::concat(&parts.iter().collect::<Vec<_>>(), along)
}

fn gather_nd(x: &Tensor, indexes: &Tensor, attributes: &Attributes) -> Option<Tensor> {
    let (width, rows) = indexes.shape.split_last()?;
    let width = usize::try_from(*width).ok().filter(|k| (1..=x.shape.len()).contains(k))?;
    if attributes.int("batch_dims").unwrap_or(0) != 0 {
        return None;
    }
    let shape = [rows, &x.shape[width..]].concat();
    if let Some(value) = x.uniform() {
        return Tensor::full(x.elem, shape, value);
    }
    let (sizes, data, indexes) = (sizes(x)?, x.values()?, indexes.values()?);
    let strides = strides(&sizes);
    let inner: usize = sizes[width..].iter().product();
    let mut result = vec![];
    for index in indexes.chunks_exact(width) {
        let start = start(index, &sizes, &strides)?;
        result.extend_from_slice(data.get(start..start + inner)?);
        if result.len() > ELEMENTS_MAX {
            return None;
        }
    }
    Tensor::new(x.elem, shape, result)
}

/// The offset of an index of the first axes.
fn start(index: &[f64], sizes: &[usize], strides: &[usize]) -> Option<usize> {
    let axes = index.iter().zip(sizes.iter().zip(strides));
    axes.map(|(i, (size, stride))| Some(place(*i, *size)? * stride)).sum()
}

fn scatter_nd(
    x: &Tensor,
    indexes: &Tensor,
    updates: &Tensor,
    attributes: &Attributes,
) -> Option<Tensor> {
    let width = usize::try_from(*indexes.shape.last()?).ok()?;
    let replaces = attributes.text("reduction").is_none_or(|how| how == "none");
    if !replaces || !(1..=x.shape.len()).contains(&width) {
        return None;
    }
    let (sizes, mut data) = (sizes(x)?, x.values()?);
    let strides = strides(&sizes);
    let inner: usize = sizes[width..].iter().product();
    let (indexes, updates) = (indexes.values()?, updates.values()?);
    if inner == 0 || updates.len() != indexes.len() / width * inner {
        return None;
    }
    for (index, update) in indexes.chunks_exact(width).zip(updates.chunks_exact(inner)) {
        let start = start(index, &sizes, &strides)?;
        data.get_mut(start..start + inner)?.copy_from_slice(update);
    }
    Tensor::new(x.elem, x.shape.clone(), data)
}

fn gather_elements(x: &Tensor, indexes: &Tensor, along: i64) -> Option<Tensor> {
    // Of equal elements, whatever the indexes.
    if let Some(value) = x.uniform() {
        return Tensor::full(x.elem, indexes.shape.clone(), value);
    }
    let along = axis(along, x.shape.len())?;
    let (own, wanted) = (sizes(x)?, sizes(indexes)?);
    let (data, places) = (x.values()?, indexes.values()?);
    if own.len() != wanted.len() {
        return None;
    }
    let (from, to) = (strides(&own), strides(&wanted));
    let element = |(at, i): (usize, &f64)| {
        let offset: Option<usize> = (0..own.len())
            .map(|a| {
                let index = at / to[a] % wanted[a];
                let index = if a == along { place(*i, own[a])? } else { index };
                (index < own[a]).then_some(index * from[a])
            })
            .sum();
        data.get(offset?).copied()
    };
    let values = places.iter().enumerate().map(element).collect::<Option<_>>()?;
    Tensor::new(x.elem, indexes.shape.clone(), values)
}

fn tile(x: &Tensor, times: &[i64]) -> Option<Tensor> {
    if times.len() != x.shape.len() {
        return None;
    }
    let shape: Vec<i64> =
        x.shape.iter().zip(times).map(|(n, times)| n.checked_mul(*times)).collect::<Option<_>>()?;
    if let Some(value) = x.uniform() {
        return Tensor::full(x.elem, shape, value);
    }
    let mut result = x.clone();
    for (at, times) in times.iter().enumerate().filter(|(_, times)| **times != 1) {
        let times = usize::try_from(*times).ok().filter(|n| (1..1 << 16).contains(n))?;
        result = Tensor::concat(&vec![&result; times], at)?;
    }
    Some(result)
}
