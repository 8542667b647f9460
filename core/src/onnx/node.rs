//! The network as the file has it, made plain: nodes in order with attributes at hand.

use super::proto;
use super::tensor::Tensor;
use std::collections::BTreeMap;

/// Index of a value.
pub(super) type ValueId = usize;

/// Attributes by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Attributes(BTreeMap<String, proto::Attribute>);

impl Attributes {
    pub fn new(attributes: Vec<proto::Attribute>) -> Self {
        Self(attributes.into_iter().map(|a| (a.name.clone(), a)).collect())
    }

    pub fn int(&self, name: &str) -> Option<i64> {
        self.0.get(name).map(|a| a.i)
    }

    pub fn float(&self, name: &str) -> Option<f32> {
        self.0.get(name).map(|a| a.f)
    }

    pub fn ints(&self, name: &str) -> Option<&[i64]> {
        self.0.get(name).map(|a| a.ints.as_slice())
    }

    pub fn floats(&self, name: &str) -> Option<&[f32]> {
        self.0.get(name).map(|a| a.floats.as_slice())
    }

    /// A text; anything that is none counts as empty.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|a| std::str::from_utf8(&a.s).unwrap_or(""))
    }

    pub fn tensor(&self, name: &str) -> Option<Tensor> {
        self.0.get(name)?.t.as_ref().and_then(Tensor::read)
    }

    pub fn set_int(&mut self, name: &str, value: i64) {
        let attribute = proto::Attribute { name: name.into(), i: value, ..Default::default() };
        self.0.insert(name.into(), attribute);
    }

    pub fn set_float(&mut self, name: &str, value: f32) {
        let attribute = proto::Attribute { name: name.into(), f: value, ..Default::default() };
        self.0.insert(name.into(), attribute);
    }

    pub fn set_ints(&mut self, name: &str, values: Vec<i64>) {
        let attribute = proto::Attribute { name: name.into(), ints: values, ..Default::default() };
        self.0.insert(name.into(), attribute);
    }
}

/// Index of an axis that may be counted from the end.
pub(super) fn axis(axis: i64, rank: usize) -> Option<usize> {
    let rank_signed = i64::try_from(rank).ok()?;
    let axis = if axis < 0 { axis.checked_add(rank_signed)? } else { axis };
    usize::try_from(axis).ok().filter(|axis| *axis < rank)
}

/// Indexes of axes that may be counted from the end, ascending; none for one that is not there.
pub(super) fn axes(given: &[i64], rank: usize) -> Option<Vec<usize>> {
    let mut axes: Vec<usize> = given.iter().map(|a| axis(*a, rank)).collect::<Option<_>>()?;
    axes.sort_unstable();
    axes.dedup();
    Some(axes)
}

/// The elements that ONNX's `Slice` takes of an axis of `size` elements: start, end, step, for a
/// step of at least 1.
pub(super) fn range(start: i64, end: i64, step: i64, size: i64) -> Option<(i64, i64, i64)> {
    if step < 1 {
        return None;
    }
    let clamp = |n: i64| if n < 0 { n.saturating_add(size).max(0) } else { n.min(size) };
    Some((clamp(start), clamp(end).max(clamp(start)), step))
}
