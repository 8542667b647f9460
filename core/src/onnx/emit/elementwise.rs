//! Functions of single elements.

use super::{Emit, Why};
use crate::graph::{Function, Op};
use crate::ids::NodeId;
use crate::onnx::ir::Node;
use crate::onnx::node::ValueId;

impl Emit<'_> {
    pub(super) fn elementwise(&mut self, node: &Node) -> Result<NodeId, Why> {
        let number = |emit: &Self, at: usize| {
            let value = node.inputs.get(at).copied().flatten()?;
            emit.ir.scalar(value)
        };
        let alpha = |absent: f32| node.attributes.float("alpha").unwrap_or(absent);
        let op = match node.op.as_str() {
            "Add" | "Sub" | "Mul" | "Div" => return self.arithmetic(node),
            "Pow" => return self.power(node),
            "Relu" => Op::Relu,
            "Tanh" => activation(Function::Tanh),
            "Sigmoid" => activation(Function::Sigmoid),
            "Exp" => activation(Function::Exp),
            "Log" => activation(Function::Log),
            "Erf" => activation(Function::Erf),
            "Sqrt" => activation(Function::Sqrt),
            "Reciprocal" => activation(Function::Reciprocal),
            "HardSwish" => activation(Function::HardSwish),
            "Silu" => activation(Function::Silu),
            "GeluTanh" => activation(Function::GeluTanh),
            "Gelu" => match node.attributes.text("approximate").unwrap_or("none") {
                "tanh" => activation(Function::GeluTanh),
                _ => activation(Function::Gelu),
            },
            "LeakyRelu" if alpha(0.01) == 0.01 => activation(Function::LeakyRelu),
            "LeakyRelu" => return Err(format!("alpha is {}, only 0.01 is known", alpha(0.01))),
            "Neg" => Op::Affine { scale: -1.0, shift: 0.0 },
            "HardSigmoid" => return self.hard_sigmoid(node),
            "Softmax" | "LogSoftmax" => return self.softmax(node),
            "Clip" => {
                let old = |name: &str| node.attributes.float(name).map(f64::from);
                let bound = |at: usize, name: &str| match node.inputs.get(at).copied().flatten() {
                    Some(_) => number(self, at).map(Some).ok_or("its bounds are not known"),
                    None => Ok(old(name)),
                };
                let (min, max) = (bound(1, "min")?, bound(2, "max")?);
                let finite = |x: f64| (x as f32).clamp(f32::MIN, f32::MAX);
                Op::Clip {
                    min: finite(min.unwrap_or(f64::MIN)),
                    max: finite(max.unwrap_or(f64::MAX)),
                }
            }
            "Max" | "Min" => match (&node.inputs[..], number(self, 1)) {
                ([_, _], Some(bound)) if node.op == "Max" => {
                    Op::Clip { min: bound as f32, max: f32::MAX }
                }
                ([_, _], Some(bound)) => Op::Clip { min: f32::MIN, max: bound as f32 },
                _ => return Err("of two values that both are computed".into()),
            },
            "Dropout" => {
                let ratio = number(self, 1).or(node.attributes.float("ratio").map(f64::from));
                let probability = ratio.unwrap_or(0.5) as f32;
                if !(0.0..1.0).contains(&probability) {
                    return Err(format!("ratio {probability} is not below 1"));
                }
                Op::Dropout { probability }
            }
            _ => return Err("there is no such operation here".into()),
        };
        let x = self.input(node.inputs.first().copied().flatten())?;
        self.put(op, &[x], &[])
    }

    fn arithmetic(&mut self, node: &Node) -> Result<NodeId, Why> {
        let [Some(a), Some(b)] = node.inputs[..] else { return Err("needs two inputs".into()) };
        if let Some(number) = self.ir.scalar(b).filter(|_| self.keeps_shape(node, a)) {
            let number = number as f32;
            let (scale, shift) = match node.op.as_str() {
                "Add" => (1.0, number),
                "Sub" => (1.0, -number),
                "Mul" => (number, 0.0),
                _ => (1.0 / number, 0.0),
            };
            return self.affine(a, scale, shift);
        }
        if let Some(number) = self.ir.scalar(a).filter(|_| self.keeps_shape(node, b)) {
            let number = number as f32;
            return match node.op.as_str() {
                "Add" => self.affine(b, 1.0, number),
                "Sub" => self.affine(b, -1.0, number),
                "Mul" => self.affine(b, number, 0.0),
                _ => {
                    let x = self.input(Some(b))?;
                    let x = self.put(activation(Function::Reciprocal), &[x], &[])?;
                    match number == 1.0 {
                        true => Ok(x),
                        false => self.put(Op::Affine { scale: number, shift: 0.0 }, &[x], &[]),
                    }
                }
            };
        }
        let op = match node.op.as_str() {
            "Add" => Op::Add,
            "Sub" => Op::Subtract,
            "Mul" => Op::Multiply,
            _ => Op::Divide,
        };
        let like = self.ir.shape(node.outputs[0]).ok_or("its shape is not known")?.to_vec();
        let (a, b) = (self.input_like(a, &like)?, self.input_like(b, &like)?);
        self.put(op, &[a, b], &[])
    }

    /// Whether the output has the shape of `value`, so that the other operand only adds its number.
    fn keeps_shape(&self, node: &Node, value: ValueId) -> bool {
        self.ir.shape(value).is_some() && self.ir.shape(value) == self.ir.shape(node.outputs[0])
    }

    fn affine(&mut self, value: ValueId, scale: f32, shift: f32) -> Result<NodeId, Why> {
        if !scale.is_finite() || !shift.is_finite() {
            return Err(format!("with the number {scale} or {shift}"));
        }
        let x = self.input(Some(value))?;
        self.put(Op::Affine { scale, shift }, &[x], &[])
    }

    fn power(&mut self, node: &Node) -> Result<NodeId, Why> {
        let power = node.inputs.get(1).copied().flatten().and_then(|p| self.ir.scalar(p));
        let x = self.input(node.inputs.first().copied().flatten())?;
        let chain: &[Function] = match power.ok_or("its power is not known")? {
            2.0 => &[Function::Square],
            4.0 => &[Function::Square, Function::Square],
            0.5 => &[Function::Sqrt],
            -0.5 => &[Function::Sqrt, Function::Reciprocal],
            -1.0 => &[Function::Reciprocal],
            -2.0 => &[Function::Square, Function::Reciprocal],
            3.0 => {
                let square = self.put(activation(Function::Square), &[x], &[])?;
                return self.put(Op::Multiply, &[square, x], &[]);
            }
            other => return Err(format!("power {other}")),
        };
        chain.iter().try_fold(x, |x, function| self.put(activation(*function), &[x], &[]))
    }

    fn hard_sigmoid(&mut self, node: &Node) -> Result<NodeId, Why> {
        let number = |name: &str, absent: f32| node.attributes.float(name).unwrap_or(absent);
        let (scale, shift) = (number("alpha", 0.2), number("beta", 0.5));
        let x = self.input(node.inputs.first().copied().flatten())?;
        if (scale - 1.0 / 6.0).abs() < 1e-4 && shift == 0.5 {
            return self.put(activation(Function::HardSigmoid), &[x], &[]);
        }
        let x = self.put(Op::Affine { scale, shift }, &[x], &[])?;
        self.put(Op::Clip { min: 0.0, max: 1.0 }, &[x], &[])
    }

    /// Over the last axis; another one is brought there and back.
    fn softmax(&mut self, node: &Node) -> Result<NodeId, Why> {
        let value = node.inputs.first().copied().flatten().ok_or("an input is left out")?;
        let rank = self.ir.shape(value).ok_or("its shape is not known")?.len();
        let given = node.attributes.int("axis").unwrap_or(-1);
        let axis = crate::onnx::node::axis(given, rank).ok_or("it has no such axis")?;
        let at = self.axis(value, axis)?;
        let x = self.input(Some(value))?;
        let op = if node.op == "Softmax" { Op::Softmax } else { Op::LogSoftmax };
        let last = self.shape_of(x).len() as u64 - 1;
        if at == last {
            return self.put(op, &[x], &[]);
        }
        let behind = &self.shape_of(x)[at as usize + 1..];
        if node.attributes.int(crate::onnx::FLAT).is_some() && behind.iter().any(|axis| *axis != 1)
        {
            return Err("over several axes, as before operator set 13".into());
        }
        let mut axes: Vec<u64> = (0..=last).collect();
        axes.swap(at as usize, last as usize);
        let there = self.put(Op::Permute { axes: axes.clone() }, &[x], &[])?;
        let done = self.put(op, &[there], &[])?;
        self.put(Op::Permute { axes }, &[done], &[])
    }
}

fn activation(function: Function) -> Op {
    Op::Activation { function }
}
