//! The network between file and graph: nodes over values, of which some are known.

use super::node::{Attributes, ValueId};
use super::tensor::{BATCH, Elem, Tensor, broadcast, is_batch};
use super::{Beside, origin::Origins, proto, weights};
use std::rc::Rc;

/// A value.
#[derive(Clone, Debug)]
pub(super) struct Value {
    pub name: String,
    /// Sizes with [`BATCH`]; none when they cannot be told.
    pub shape: Option<Vec<i64>>,
    pub elem: Elem,
    /// Its elements, when they are known.
    pub constant: Option<Rc<Tensor>>,
    /// The initialiser that it is.
    pub param: Option<Param>,
    /// The node that computes it.
    pub producer: Option<usize>,
}

/// A weight: an initialiser, turned.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Param {
    /// Index of the initialiser.
    pub initializer: usize,
    /// Sizes at the source.
    pub shape: Vec<i64>,
    /// Axis `i` of the value is axis `axes[i]` of `shape`.
    pub axes: Vec<usize>,
}

/// An operation.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub name: String,
    pub op: String,
    pub attributes: Attributes,
    pub inputs: Vec<Option<ValueId>>,
    pub outputs: Vec<ValueId>,
    /// Path of the module: `encoder.layer.0.output`. Empty when unknown.
    pub scope: String,
}

impl Node {
    /// An input, if the node has it. A file may have any operation without inputs.
    pub fn input(&self, at: usize) -> Option<ValueId> {
        self.inputs.get(at).copied().flatten()
    }
}

/// The network.
pub(super) struct Ir<'a> {
    pub initializers: &'a [proto::Tensor],
    /// What the initialisers were in the exported module.
    pub origins: &'a Origins,
    /// What lies in other files.
    pub beside: Beside<'a>,
    pub values: Vec<Value>,
    /// In topological order. Those that nobody reads stay, unread.
    pub nodes: Vec<Node>,
    /// What is fed in.
    pub inputs: Vec<ValueId>,
    /// What comes out.
    pub outputs: Vec<ValueId>,
    /// Readers of each value; outputs count. See [`Ir::count_uses`].
    pub uses: Vec<u32>,
    /// The number that the file has for the batch.
    pub fixed: Option<i64>,
    pub warnings: Vec<String>,
}

impl Ir<'_> {
    /// Counts how often each value is read by nodes that matter.
    pub fn count_uses(&mut self) {
        self.uses = vec![0; self.values.len()];
        for output in &self.outputs {
            self.uses[*output] += 1;
        }
        for node in self.nodes.iter().rev() {
            if node.outputs.iter().any(|o| self.uses[*o] > 0) {
                for input in node.inputs.iter().flatten() {
                    self.uses[*input] += 1;
                }
            }
        }
    }

    /// Whether somebody reads the node.
    pub fn matters(&self, node: usize) -> bool {
        self.nodes[node].outputs.iter().any(|o| self.uses[*o] > 0)
    }

    /// The node that computes a value, when it is an `op`.
    pub fn made_by(&self, value: ValueId, op: &str) -> Option<&Node> {
        let node = &self.nodes[self.values[value].producer?];
        (node.op == op && node.outputs.first() == Some(&value)).then_some(node)
    }

    /// The only input of the `op` that computes a value.
    pub fn under(&self, value: ValueId, op: &str) -> Option<ValueId> {
        self.made_by(value, op)?.inputs.first().copied().flatten()
    }

    /// Both inputs of the `op` that computes a value.
    pub fn pair_under(&self, value: ValueId, op: &str) -> Option<[ValueId; 2]> {
        match self.made_by(value, op)?.inputs[..] {
            [Some(a), Some(b)] => Some([a, b]),
            _ => None,
        }
    }

    /// Whether only one node reads it.
    pub fn once(&self, value: ValueId) -> bool {
        self.uses[value] == 1
    }

    /// The number that a value is, when it is one.
    pub fn scalar(&self, value: ValueId) -> Option<f64> {
        let value = &self.values[value];
        value.constant.as_ref().filter(|_| value.param.is_none())?.scalar()
    }

    /// The elements of an initialiser, when they can be had and are few enough.
    pub fn initial(&self, initializer: usize) -> Option<Tensor> {
        Tensor::read(weights::fetched(&self.initializers[initializer], self.beside)?.as_ref())
    }

    /// A value's elements, computed or read from the file.
    pub fn constant(&self, value: ValueId) -> Option<Rc<Tensor>> {
        let value = &self.values[value];
        if let Some(known) = &value.constant {
            return Some(known.clone());
        }
        let param = value.param.as_ref()?;
        let tensor = self.initial(param.initializer)?;
        Some(Rc::new(tensor.transpose(&param.axes)?.reshape(value.shape.clone()?)?))
    }

    /// A constant that the file has not.
    pub fn add_constant(&mut self, name: String, tensor: Tensor) -> ValueId {
        let (shape, elem) = (Some(tensor.shape.clone()), tensor.elem);
        let constant = Some(Rc::new(tensor));
        self.values.push(Value { name, shape, elem, constant, param: None, producer: None });
        self.uses.push(1);
        self.values.len() - 1
    }

    /// The shape of a value, when known.
    pub fn shape(&self, value: ValueId) -> Option<&[i64]> {
        self.values[value].shape.as_deref()
    }

    /// Whether a value is a weight or a constant, not computed from weights.
    pub fn is_given(&self, value: ValueId) -> bool {
        let value = &self.values[value];
        value.param.is_some() || value.constant.is_some() && value.producer.is_none()
    }

    /// Whether a value differs from sample to sample.
    pub fn is_live(&self, value: ValueId) -> bool {
        let value = &self.values[value];
        value.constant.is_none() && value.param.is_none()
    }
}

/// NumPy's rule, where a batch of the file's fixed size meets the batch.
pub(super) fn join(a: &[i64], b: &[i64], fixed: Option<i64>) -> Option<Vec<i64>> {
    let Some(n) = fixed.filter(|n| *n > 1) else { return broadcast(a, b) };
    let rank = a.len().max(b.len());
    let open = |own: &[i64], other: &[i64]| -> Vec<i64> {
        let size = |s: &[i64], i: usize| (i + s.len()).checked_sub(rank).map_or(1, |i| s[i]);
        let swap = |i: usize| match (size(own, i), size(other, i)) {
            (mine, theirs) if mine == n && theirs == BATCH => BATCH,
            (mine, _) => mine,
        };
        (rank - own.len()..rank).map(swap).collect()
    };
    broadcast(&open(a, b), &open(b, a))
}

/// Where the batch is in a shape: the axis, and how often it counts there (heads joined with it).
pub(super) fn batch_axis(shape: &[i64]) -> Result<Option<(usize, i64)>, String> {
    let mut found = shape.iter().enumerate().filter(|(_, size)| is_batch(**size));
    let first = found.next().map(|(i, size)| (i, size / BATCH));
    match (first, found.next()) {
        (Some((_, times)), None) if is_batch(times) => Err("the batch counts twice".into()),
        (_, Some(_)) => Err("the batch is in two axes".into()),
        (first, None) => Ok(first),
    }
}
