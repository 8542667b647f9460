//! Inputs and weights of operations.

use super::{Emit, Given, Why};
use crate::graph::Op;
use crate::ids::NodeId;
use crate::onnx::ir::batch_axis;
use crate::onnx::names;
use crate::onnx::node::ValueId;
use crate::onnx::tensor::count;
use crate::onnx::weights::{self, Source, Weight};

/// Elements of a constant that is kept as a parameter.
const CONSTANT_MAX: u64 = 1 << 24;

impl Weight {
    /// The same number everywhere.
    pub(super) fn fill(number: f32) -> Self {
        Self { source: Source::Fill(number), shape: vec![], axes: vec![] }
    }

    /// Unknown.
    pub(super) fn none() -> Self {
        Self { source: Source::None, shape: vec![], axes: vec![] }
    }
}

impl Emit<'_> {
    /// The node of a value that an operation reads.
    pub(super) fn input(&mut self, value: Option<ValueId>) -> Result<NodeId, Why> {
        let value = value.ok_or("an input is left out")?;
        match self.at.get(&value) {
            Some(node) => Ok(*node),
            None => self.parameter(value),
        }
    }

    /// As [`Self::input`], with the axes that it has beside the axes of `like`: a weight has none for
    /// the batch.
    pub(super) fn input_like(&mut self, value: ValueId, like: &[i64]) -> Result<NodeId, Why> {
        let node = self.input(Some(value))?;
        if self.has_batch(value) {
            return Ok(node);
        }
        let own = self.shape_of(node);
        let Some((batch, times)) = batch_axis(like)? else { return Ok(node) };
        let missing = like.len().checked_sub(own.len()).ok_or("has more axes than the result")?;
        let Some(at) = batch.checked_sub(missing).filter(|_| times == 1) else { return Ok(node) };
        if own[at] != 1 {
            return Err(format!("a constant has {} samples of its own", own[at]));
        }
        let mut shape = own;
        shape.remove(at);
        self.put(Op::Reshape { shape }, &[node], &[])
    }

    /// A weight or a constant as a node.
    fn parameter(&mut self, value: ValueId) -> Result<NodeId, Why> {
        let known = &self.ir.values[value];
        let trainable = known.param.is_some();
        if !trainable && known.constant.is_none() {
            return Err(format!("`{}` is not known", known.name));
        }
        let mut shape = known.shape.clone().ok_or("a weight's shape is not known")?;
        // The file's fixed batch in a weight: equal copies, of which one is taken.
        let copies = self.ir.fixed.is_some_and(|n| n > 1 && shape.first() == Some(&n));
        if copies && shape.len() > 1 && self.equal_copies(value) {
            shape[0] = 1;
        }
        if batch_axis(&shape)?.is_some() {
            shape.iter_mut().filter(|n| crate::onnx::tensor::is_batch(**n)).for_each(|n| *n = 1);
        }
        let sizes: Vec<u64> = shape.iter().map(|n| n.unsigned_abs()).collect();
        let op = Op::Parameter { shape: sizes, trainable };
        let scope = self.scope.clone();
        let name = self.ir.values[value].name.clone();
        let base = match (names::is_made_up(&name), scope.is_empty()) {
            (false, _) => name,
            (true, false) => format!("{scope}.parameter"),
            (true, true) => "parameter".into(),
        };
        // The parameter takes the file's name, so the node needs another one.
        let base = base.strip_suffix(".weight").map_or(base.clone(), str::to_string);
        let node_name = self.unique(&format!("{base}.value"));
        let node = self.add(node_name, op, &[], &[Given::Value(value, false)])?;
        self.at.insert(value, node);
        Ok(node)
    }

    /// Whether all parts along the first axis are equal, as far as they can be read.
    fn equal_copies(&self, value: ValueId) -> bool {
        let Some(tensor) = self.ir.constant(value) else { return true };
        let (Some(values), Some(n)) = (tensor.values(), tensor.shape.first()) else { return true };
        let size = (values.len() / (n.unsigned_abs() as usize).max(1)).max(1);
        values.chunks(size).all(|part| part == &values[..size])
    }

    /// Where the values of a parameter of shape `wanted` are, its name in the file, and whether it
    /// is trained.
    pub(super) fn weight(
        &self,
        value: ValueId,
        turned: bool,
        wanted: &[u64],
    ) -> Result<(Weight, Option<String>, bool), Why> {
        let known = &self.ir.values[value];
        let elements: u64 = wanted.iter().product();
        if known.param.is_none() && elements > CONSTANT_MAX {
            return Err("a constant is too large".into());
        }
        let Some(param) = &known.param else {
            let tensor = known.constant.as_ref().ok_or("a weight is computed from the sample")?;
            let tensor = match (turned, tensor.shape.len()) {
                (true, 2) => tensor.transpose(&[1, 0]).ok_or("a constant is too large")?,
                _ => (**tensor).clone(),
            };
            let values =
                tensor.of_sample().or_else(|| tensor.scalar().map(|x| vec![x; elements as usize]));
            let mut values =
                values.filter(|v| v.len() as u64 >= elements).ok_or("a constant is too large")?;
            values.truncate(elements as usize);
            let source = Source::Values(values.into_iter().map(|x| x as f32).collect());
            let (shape, axes) = (wanted.to_vec(), (0..wanted.len()).collect());
            return Ok((Weight { source, shape, axes }, None, false));
        };
        let mut axes = param.axes.clone();
        if turned {
            axes.reverse();
        }
        let mut shape: Vec<u64> = param.shape.iter().map(|n| n.unsigned_abs()).collect();
        let whole: u64 = shape.iter().product();
        let initializer = &self.ir.initializers[param.initializer];
        let straight = axes.iter().copied().eq(0..axes.len());
        let mut source = weights::source(initializer, whole).map_err(|e| e.to_string())?;
        if whole != elements {
            // One of several equal copies: the first bytes.
            let copies = straight && elements > 0 && whole.is_multiple_of(elements);
            if !copies {
                return Err(format!("a weight of {shape:?} where {wanted:?} is needed"));
            }
            source = source.first(whole / elements);
            shape = wanted.to_vec();
            axes = (0..wanted.len()).collect();
        }
        let sizes: Vec<u64> = axes.iter().map(|axis| shape[*axis]).collect();
        let squeezed = |s: &[u64]| s.iter().copied().filter(|n| *n != 1).collect::<Vec<u64>>();
        if squeezed(&sizes) != squeezed(wanted) && !straight {
            return Err(format!("a weight of {sizes:?} where {wanted:?} is needed"));
        }
        let own = (!names::is_made_up(&known.name)).then(|| known.name.clone());
        let trained = !self.ir.origins.buffers.contains(&initializer.name);
        Ok((Weight { source, shape, axes }, own, trained))
    }

    /// Elements of a value.
    pub(super) fn elements(&self, value: ValueId) -> Option<u64> {
        count(self.ir.shape(value)?).map(i64::unsigned_abs)
    }
}

impl Source {
    /// The first of `parts` equal parts.
    fn first(self, parts: u64) -> Self {
        match self {
            Source::Bytes { kind, data } => {
                let length = data.len() / parts as usize;
                Source::Bytes { kind, data: data.slice(..length) }
            }
            Source::External { kind, mut place } => {
                place.length /= parts;
                Source::External { kind, place }
            }
            other => other,
        }
    }
}
