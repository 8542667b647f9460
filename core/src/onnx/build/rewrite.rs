//! Operations that are others in disguise.

use super::Walk;
use crate::onnx::node::{Attributes, ValueId, axis};
use crate::onnx::proto;

impl<'a> Walk<'a> {
    /// Writes an operation as the one that it is; `true` when nothing of it is left.
    pub(super) fn rewrite(
        &mut self,
        op: &mut String,
        attributes: &mut Attributes,
        inputs: &mut Vec<Option<ValueId>>,
        proto: &'a proto::Node,
    ) -> bool {
        if let Some(shape) = self.strided(op, inputs) {
            *op = "Reshape".into();
            attributes.set_ints("shape", shape);
            inputs.truncate(1);
        }
        let rank =
            inputs.first().copied().flatten().and_then(|x| self.ir.shape(x)).map(<[i64]>::len);
        if let ("GlobalAveragePool", Some(rank)) = (op.as_str(), rank.filter(|rank| *rank != 4)) {
            *op = "ReduceMean".into();
            attributes.set_ints("axes", (2..rank as i64).collect());
        }
        self.parts(op, attributes, inputs, proto)
    }

    /// A list of parts that is made to be taken apart: `SequenceAt` becomes the part itself.
    fn parts(
        &mut self,
        op: &mut String,
        attributes: &mut Attributes,
        inputs: &mut Vec<Option<ValueId>>,
        proto: &'a proto::Node,
    ) -> bool {
        match op.as_str() {
            "SplitToSequence" => {
                let (Some(list), Some(Some(x))) = (proto.output.first(), inputs.first()) else {
                    return false;
                };
                let Some(cuts) = self.cuts(attributes, *x, inputs.get(1).copied().flatten()) else {
                    return false;
                };
                self.lists.insert(list, (*x, cuts));
                true
            }
            "SequenceAt" => {
                let list = proto.input.first().and_then(|name| self.lists.get(name.as_str()));
                let at = inputs.get(1).copied().flatten().and_then(|at| self.ir.scalar(at));
                let (Some((x, (along, ends))), Some(at)) = (list, at) else { return false };
                let at = if at < 0.0 { at + ends.len() as f64 } else { at };
                let Some(end) = ends.get(at as usize).copied() else { return false };
                let start = (at as usize).checked_sub(1).map_or(0, |before| ends[before]);
                *op = "Slice".into();
                *inputs = vec![Some(*x)];
                attributes.set_ints("starts", vec![start]);
                attributes.set_ints("ends", vec![end]);
                attributes.set_ints("axes", vec![*along]);
                false
            }
            _ => false,
        }
    }

    /// The axis of a `SplitToSequence` and where its parts end.
    fn cuts(
        &self,
        attributes: &Attributes,
        x: ValueId,
        sizes: Option<ValueId>,
    ) -> Option<(i64, Vec<i64>)> {
        let shape = self.ir.shape(x)?;
        let along = axis(attributes.int("axis").unwrap_or(0), shape.len())?;
        let sizes = self.ir.values[sizes?].constant.as_ref()?;
        let whole = shape[along];
        let sizes = match sizes.shape.is_empty() {
            true => {
                let part = (sizes.scalar()? as i64).max(1);
                let count = (whole / part + i64::from(whole % part != 0)).min(1 << 16);
                (0..count).map(|i| part.min(whole - i * part)).collect()
            }
            false => sizes.to_ints()?,
        };
        let mut end = 0i64;
        let mut ends = vec![];
        for size in sizes {
            end = end.checked_add(size).filter(|_| size >= 0)?;
            ends.push(end);
        }
        (end == whole).then_some((along as i64, ends))
    }
}
