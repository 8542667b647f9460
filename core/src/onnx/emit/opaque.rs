//! Operations without a counterpart: sizes, arithmetic, and who reads whom.
//!
//! Where shapes are known the arithmetic follows from them, so that such a network can be planned as
//! well as one that trains. Where they are not, the node says that it has no price.

use super::super::ir::Node;
use super::super::node::ValueId;
use super::super::tensor::{count, is_batch};
use super::super::{OnnxError, Unsupported};
use super::Emit;
use super::Why;
use crate::graph::{OPAQUE_FLOPS_MAX, Op};

/// More elements are no value of a network.
const ELEMENTS_MAX: u64 = 1 << 36;

impl Emit<'_> {
    /// A node for each output that is read.
    pub(super) fn opaque(&mut self, i: usize, why: Why) -> Result<(), OnnxError> {
        let node = self.ir.nodes[i].clone();
        // What is behind an operation of unknown shape has none either: only the first is named.
        let behind = |id: &ValueId| self.ir.shape(*id).is_none();
        if self.unsupported.is_empty() || !node.inputs.iter().flatten().any(behind) {
            let unsupported = Unsupported { node: node.name.clone(), op: node.op.clone(), why };
            self.unsupported.push(unsupported);
        } else {
            self.behind += 1;
        }
        let mut inputs = vec![];
        let mut parameters = 0u64;
        for id in node.inputs.iter().flatten() {
            if let Some(param) = &self.ir.values[*id].param {
                let elements = count(&param.shape).unwrap_or(0);
                parameters = parameters.saturating_add(4 * elements.unsigned_abs());
            } else if let Some(node) = self.at.get(id)
                && !inputs.contains(node)
            {
                inputs.push(*node);
            }
        }
        let flops = self.operations(&node).filter(|flops| *flops <= OPAQUE_FLOPS_MAX);
        // Parameters and arithmetic are the first output's.
        let (mut flops, mut unpriced) = (flops.unwrap_or(0), flops.is_none());
        for output in &node.outputs {
            if self.ir.uses[*output] == 0 {
                continue;
            }
            let shape = self.sample(*output).unwrap_or_default();
            let elements = self.elements_of(*output).unwrap_or(1).max(1);
            let op = Op::Opaque {
                output: 4 * elements,
                parameters: std::mem::take(&mut parameters),
                flops: std::mem::take(&mut flops),
                unpriced: std::mem::take(&mut unpriced),
                kept: None,
            };
            let refuse = |why| OnnxError::Output { name: node.name.clone(), why };
            let name = node.name.trim_matches('/').replace('/', ".");
            let name = self.unique(&format!("{name}.{}", node.op));
            let mut done = self.add(name.clone(), op, &inputs, &[]).map_err(refuse)?;
            if shape.len() != 1 && shape.iter().product::<u64>() == elements && !shape.is_empty() {
                let view = self.unique(&format!("{name}.view"));
                done = self.add(view, Op::Reshape { shape }, &[done], &[]).map_err(refuse)?;
            }
            self.at.insert(*output, done);
        }
        Ok(())
    }

    /// Elements of one sample of a value; of a weight or a constant, its elements.
    fn elements_of(&self, value: ValueId) -> Option<u64> {
        let shape = self.sample(value).ok()?;
        let elements = shape.iter().try_fold(1u64, |n, size| n.checked_mul(*size));
        elements.filter(|n| *n < ELEMENTS_MAX)
    }

    /// Operations of the forward pass of one sample; none where shapes do not tell, and for what has
    /// a body of its own or belongs to nobody's standard.
    fn operations(&self, node: &Node) -> Option<u64> {
        let read = node.outputs.iter().filter(|output| self.ir.uses[**output] > 0);
        let outputs: Vec<u64> = read.map(|id| self.elements_of(*id)).collect::<Option<_>>()?;
        let output = outputs.iter().sum::<u64>();
        let inputs: Vec<u64> =
            node.inputs.iter().flatten().map(|id| self.elements_of(*id)).collect::<Option<_>>()?;
        let larger = output.max(inputs.iter().copied().max().unwrap_or(0));
        let product = |factor: Option<u64>| Some((2 * output).saturating_mul(factor?));
        match node.op.as_str() {
            "Linear" | "MatMul" | "MatMulInteger" | "QLinearMatMul" | "FusedMatMul" => {
                product(self.size_of(node, 0, -1))
            }
            "Gemm" => {
                let turned = node.attributes.int("transA").unwrap_or(0) != 0;
                product(self.size_of(node, 0, if turned { 0 } else { -1 }))
            }
            // An output sums over the elements of its own filter, an input reaches those of its own.
            "Conv" => product(self.filter(node)),
            "ConvTranspose" => Some((2 * *inputs.first()?).saturating_mul(self.filter(node)?)),
            // Every position meets all weights of input and state.
            "LSTM" | "GRU" | "RNN" => {
                let weights = inputs.get(1)?.saturating_add(*inputs.get(2)?);
                Some(self.size_of(node, 0, 0)?.saturating_mul(2 * weights))
            }
            "MaxPool" | "AveragePool" | "LpPool" => {
                let kernel = node.attributes.ints("kernel_shape")?;
                Some(output.saturating_mul(count(kernel)?.unsigned_abs()))
            }
            "ScaledDotProduct" | "Attention" => {
                let queries = *inputs.first()? + output;
                product(Some(1))
                    .and(self.size_of(node, 1, -2))
                    .map(|keys| (2 * queries).saturating_mul(keys))
            }
            "Einsum" | "If" | "Loop" | "Scan" | "SequenceMap" | "DFT" | "STFT" => None,
            // Moves and views: their price is their traffic.
            "Cast" | "CastLike" | "Concat" | "DepthToSpace" | "Expand" | "Flatten" | "Gather"
            | "GatherElements" | "GatherND" | "Identity" | "Pad" | "Reshape" | "Scatter"
            | "ScatterElements" | "ScatterND" | "Shape" | "Slice" | "SpaceToDepth" | "Split"
            | "Squeeze" | "Tile" | "Transpose" | "Unsqueeze" => Some(0),
            other if other.contains('.') => None,
            _ => Some(larger),
        }
    }

    /// A size of an input, counted from the end where `axis` is below zero; never the batch.
    fn size_of(&self, node: &Node, at: usize, axis: i64) -> Option<u64> {
        let shape = self.ir.shape(node.input(at)?)?;
        let axis = super::super::node::axis(axis, shape.len())?;
        u64::try_from(shape[axis]).ok().filter(|_| !is_batch(shape[axis]))
    }

    /// Elements of one filter: those of the weight but for its first axis.
    fn filter(&self, node: &Node) -> Option<u64> {
        let weight = self.ir.shape(node.input(1)?)?;
        Some(count(weight.get(1..)?)?.unsigned_abs())
    }
}
