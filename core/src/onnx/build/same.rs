//! Nodes that give what is there already: another name, another shape, the sizes of a value.

use super::Walk;
use crate::onnx::ir::{Param, Value};
use crate::onnx::node::{Attributes, ValueId};
use crate::onnx::proto;
use crate::onnx::shapes::Call;
use crate::onnx::tensor::{BATCH, Elem, Tensor, count, is_batch};
use std::rc::Rc;

impl<'a> Walk<'a> {
    /// Another name for a value. Exporters join equal weights by such nodes: there they are weights
    /// of their own that begin with the same numbers.
    pub(super) fn rename(&mut self, same: ValueId, outputs: &'a [String]) {
        let Some(name) = outputs.first() else { return };
        let value = &self.ir.values[same];
        if value.param.is_some() && value.name != *name {
            let copy = Value { name: name.clone(), ..value.clone() };
            self.add(name, copy);
        } else {
            self.named.insert(name, same);
        }
    }

    /// The input that an operation hands on as it is.
    pub(super) fn alias(
        &self,
        op: &str,
        attributes: &Attributes,
        inputs: &[Option<ValueId>],
    ) -> Option<ValueId> {
        let x = (*inputs.first()?)?;
        let value = &self.ir.values[x];
        let number = |at: usize| self.ir.scalar((*inputs.get(at)?)?);
        let same = match op {
            "Identity" => true,
            "Cast" => {
                let to = attributes.int("to").and_then(|to| i32::try_from(to).ok());
                to.and_then(Elem::of) == Some(value.elem)
            }
            "CastLike" => value.elem == self.ir.values[(*inputs.get(1)?)?].elem,
            "Pad" => {
                let pads = match attributes.ints("pads") {
                    Some(pads) => Some(pads.to_vec()),
                    None => self.ir.values[(*inputs.get(1)?)?].constant.as_ref()?.to_ints(),
                };
                pads?.iter().all(|n| *n == 0)
            }
            "Dropout" => {
                let training = number(2).unwrap_or(0.0) != 0.0;
                let ratio = number(1).or(attributes.float("ratio").map(f64::from)).unwrap_or(0.5);
                !training || ratio == 0.0
            }
            _ => false,
        };
        same.then_some(x)
    }

    /// The newer exporter writes some reshapes as a flat list of all elements that is looked up with
    /// their numbers in order; the shape that this gives.
    pub(super) fn strided(&self, op: &str, inputs: &[Option<ValueId>]) -> Option<Vec<i64>> {
        let [Some(list), Some(places)] = inputs else { return None };
        let ([size], "Gather") = (self.ir.shape(*list)?, op) else { return None };
        let n = self.ir.fixed.filter(|_| is_batch(*size))?;
        let places = self.ir.values[*places].constant.as_ref()?;
        let all = places.values()?;
        let in_order = all.iter().enumerate().all(|(i, at)| *at == i as f64);
        let whole = i64::try_from(all.len()) == Ok(size / BATCH * n);
        (in_order && whole).then(|| places.shape.clone())
    }

    /// `Shape` and `Size`, whose value follows from a shape.
    pub(super) fn known_shape(
        &mut self,
        op: &str,
        attributes: &Attributes,
        inputs: &[Option<ValueId>],
        proto: &'a proto::Node,
    ) -> bool {
        let shape = inputs.first().copied().flatten().and_then(|x| self.ir.shape(x));
        let (Some(shape), Some(output)) = (shape, proto.output.first()) else { return false };
        let tensor = match op {
            "Shape" => {
                let rank = shape.len() as i64;
                let clamp =
                    |n: i64| (if n < 0 { n.saturating_add(rank) } else { n }).clamp(0, rank);
                let start = clamp(attributes.int("start").unwrap_or(0)) as usize;
                let end = clamp(attributes.int("end").unwrap_or(rank)) as usize;
                Tensor::ints(shape[start..end.max(start)].to_vec())
            }
            "Size" => {
                match count(shape).and_then(|n| Tensor::new(Elem::Int, vec![], vec![n as f64])) {
                    Some(tensor) => tensor,
                    None => return false,
                }
            }
            _ => return false,
        };
        self.constant(output, tensor);
        true
    }

    /// A weight under another shape, or turned, is still a weight.
    pub(super) fn view(
        &mut self,
        op: &str,
        attributes: &Attributes,
        inputs: &[Option<ValueId>],
        proto: &'a proto::Node,
    ) -> bool {
        let Some(x) = inputs.first().copied().flatten() else { return false };
        let (Some(param), Some(output)) = (self.ir.values[x].param.clone(), proto.output.first())
        else {
            return false;
        };
        let call = Call { ir: &self.ir, op, attributes, inputs };
        let straight = param.axes.iter().copied().eq(0..param.axes.len());
        let (shape, axes, source) = match op {
            "Transpose" => {
                let (Some(perm), Some(shape)) = (call.perm(), self.ir.shape(x)) else {
                    return false;
                };
                let turned: Vec<i64> = perm.iter().map(|i| shape[*i]).collect();
                (turned, perm.iter().map(|i| param.axes[*i]).collect(), param.shape)
            }
            "Reshape" | "Squeeze" | "Unsqueeze" | "Flatten" if straight => {
                let Some(shape) = call.infer().and_then(|s| s.into_iter().next()) else {
                    return false;
                };
                (shape.clone(), (0..shape.len()).collect(), shape)
            }
            "Expand" | "Slice" | "Concat" => {
                // Parts that are the whole.
                let Some(shape) = call.infer().and_then(|s| s.into_iter().next()) else {
                    return false;
                };
                if self.ir.shape(x) != Some(&shape) {
                    return false;
                }
                (shape, param.axes, param.shape)
            }
            _ => return false,
        };
        let constant = self.fold(op, attributes, inputs).and_then(|t| t.into_iter().next());
        let param = Param { initializer: param.initializer, shape: source, axes };
        let value = Value {
            name: self.ir.values[x].name.clone(),
            shape: Some(shape),
            elem: Elem::Float,
            constant: constant.map(Rc::new),
            param: Some(param),
            producer: None,
        };
        self.add(output, value);
        true
    }
}
