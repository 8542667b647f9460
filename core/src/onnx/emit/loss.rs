//! The loss that training makes small.

use super::{Emit, Why};
use crate::graph::Op;
use crate::ids::NodeId;
use crate::onnx::ir::Node;
use crate::onnx::{Loss, OnnxError};

impl Emit<'_> {
    /// The file's own loss, or one on its first output.
    pub(super) fn loss(&mut self, loss: Loss) -> Result<(), OnnxError> {
        if self.parts.nodes.iter().any(|node| node.op.is_loss()) {
            return Ok(());
        }
        let outputs = self.ir.outputs.clone();
        let Some(output) =
            outputs.iter().find(|o| self.at.get(o).is_some_and(|n| self.is_float(*n)))
        else {
            let names: Vec<&str> =
                outputs.iter().map(|o| self.ir.values[*o].name.as_str()).collect();
            let why = "nothing in it follows from the sample".into();
            return Err(OnnxError::Output { name: names.join(", "), why });
        };
        if outputs.len() > 1 {
            let used = &self.ir.values[*output].name;
            self.ir.warnings.push(format!("of {} outputs the loss is on `{used}`", outputs.len()));
        }
        let name = self.ir.values[*output].name.clone();
        let logits = self.at[output];
        let attached = match loss {
            Loss::CrossEntropy => self.cross_entropy(logits),
            Loss::MeanSquaredError => self.mean_squared(logits),
        };
        attached.map(drop).map_err(|why| OnnxError::Output { name, why })
    }

    fn mean_squared(&mut self, prediction: NodeId) -> Result<NodeId, Why> {
        let shape = self.shape_of(prediction);
        let target = self.unique("target");
        let target = self.add(target, Op::TargetValues { shape }, &[], &[])?;
        let name = self.unique("loss");
        self.add(name, Op::MeanSquaredError, &[prediction, target], &[])
    }

    /// Logits `[classes]`, `[positions, classes]` or, of an image, `[classes, rows, columns]`.
    fn cross_entropy(&mut self, logits: NodeId) -> Result<NodeId, Why> {
        let mut logits = logits;
        if let [classes, h, w] = self.shape_of(logits)[..] {
            logits = self.put(Op::Permute { axes: vec![1, 2, 0] }, &[logits], &[])?;
            logits = self.put(Op::Reshape { shape: vec![h * w, classes] }, &[logits], &[])?;
        }
        let op = match self.shape_of(logits)[..] {
            [classes] => Op::Target { classes },
            [count, classes] => Op::Targets { count, classes },
            ref shape => {
                return Err(format!("{shape:?} are no logits; the last axis must be classes"));
            }
        };
        let target = self.unique("target");
        let target = self.add(target, op, &[], &[])?;
        let name = self.unique("loss");
        let op = Op::SoftmaxCrossEntropy { label_smoothing: 0.0 };
        self.add(name, op, &[logits, target], &[])
    }

    /// A loss that the file has itself.
    pub(super) fn own_loss(&mut self, node: &Node) -> Result<NodeId, Why> {
        let mean = node.attributes.text("reduction").unwrap_or("mean") == "mean";
        if !mean || node.inputs.get(2).copied().flatten().is_some() {
            return Err("with class weights, or not the mean".into());
        }
        if node.op != "SoftmaxCrossEntropyLoss" {
            return Err("of something else than a log softmax".into());
        }
        let scores = node.inputs.first().copied().flatten();
        let ignored = node.attributes.int("ignore_index").unwrap_or(-1);
        // Classes are axis 1, and all of them count.
        match scores.and_then(|scores| self.ir.shape(scores)) {
            Some([_, classes] | [_, classes, _, _]) if !(0..*classes).contains(&ignored) => {}
            _ => return Err("with a class left out, or axes of neither rows nor images".into()),
        }
        let logits = self.input(scores)?;
        self.cross_entropy(logits)
    }
}
