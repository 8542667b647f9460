//! Samples of full length, which are taken for granted.

use super::Walk;
use crate::onnx::node::ValueId;
use crate::onnx::proto;
use crate::onnx::tensor::{Elem, Tensor};

/// What inputs besides the sample hold when a network is trained on samples of full length.
pub(super) fn full_length(name: &str, elem: Elem, shape: &[i64]) -> Option<Tensor> {
    let last = *shape.last()?;
    match name.rsplit(['.', '/']).next()? {
        "attention_mask" => Tensor::full(elem, shape.to_vec(), 1.0),
        "token_type_ids" => Tensor::full(elem, shape.to_vec(), 0.0),
        "position_ids" if shape.len() == 2 => {
            let order = (0..last).map(|i| i as f64).collect();
            Tensor::new(elem, vec![1, last], order)?.expand(shape)
        }
        _ => None,
    }
}

impl<'a> Walk<'a> {
    /// Tokens compared with a number, of which only `Not` is read: where the sample goes on, not
    /// padding. Samples of full length have no padding.
    pub(super) fn padding(
        &mut self,
        op: &str,
        inputs: &[Option<ValueId>],
        proto: &'a proto::Node,
    ) -> bool {
        let ("Equal", [Some(a), Some(b)], Some(output)) = (op, inputs, proto.output.first()) else {
            return false;
        };
        let fed = |v: &ValueId| self.ir.inputs.contains(v) && self.ir.values[*v].elem == Elem::Int;
        let (tokens, padding) = if fed(a) { (*a, *b) } else { (*b, *a) };
        let (Some(number), Some(shape)) = (self.ir.scalar(padding), self.ir.shape(tokens)) else {
            return false;
        };
        let only = |reader: &&str| *reader == "Not";
        let readers = self.readers.get(output.as_str());
        if !fed(&tokens) || !readers.is_some_and(|r| !r.is_empty() && r.iter().all(only)) {
            return false;
        }
        let Some(none) = Tensor::full(Elem::Bool, shape.to_vec(), 0.0) else { return false };
        self.ir.warnings.push(format!(
            "token {number} is taken as padding, which samples of full length do not have"
        ));
        self.constant(output, none);
        true
    }
}
