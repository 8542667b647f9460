//! Convolutions, poolings and norms of images.

use super::{Emit, Given, Why};
use crate::graph::{Interpolation, Op, Window};
use crate::ids::NodeId;
use crate::onnx::ir::Node;
use crate::onnx::node::ValueId;
use crate::onnx::window::{Frame, pair};

impl Emit<'_> {
    pub(super) fn image(&mut self, node: &Node) -> Result<NodeId, Why> {
        let x = node.inputs.first().copied().flatten().ok_or("an input is left out")?;
        match node.op.as_str() {
            "Conv" => self.conv(node, x),
            "ConvTranspose" => self.conv_transpose(node, x),
            "MaxPool" | "AveragePool" => self.pool(node, x),
            "BatchNormalization" => self.batch_norm(node, x),
            "InstanceNormalization" | "GroupNormalization" => self.group_norm(node, x),
            "Resize" | "Upsample" => self.resize(node, x),
            "LRN" => {
                let number =
                    |name: &str, absent: f32| node.attributes.float(name).unwrap_or(absent);
                let size = node.attributes.int("size").filter(|n| (1..=1 << 12).contains(n));
                let op = Op::LocalResponseNorm {
                    size: size.ok_or("its size is missing")?.unsigned_abs(),
                    alpha: number("alpha", 1e-4),
                    beta: number("beta", 0.75),
                    k: number("bias", 1.0),
                };
                let x = self.pixels(x)?;
                self.put(op, &[x], &[])
            }
            _ => {
                let x = self.pixels(x)?;
                self.put(Op::GlobalAvgPool, &[x], &[])
            }
        }
    }

    /// An image whose batch is in front.
    fn pixels(&mut self, value: ValueId) -> Result<NodeId, Why> {
        self.size(value)?;
        self.input(Some(value))
    }

    /// Rows and columns.
    fn size(&self, value: ValueId) -> Result<[i64; 2], Why> {
        let shape = self.ir.shape(value).ok_or("its shape is not known")?;
        match *shape {
            [n, _, h, w] if n == super::BATCH => Ok([h, w]),
            _ => Err(format!("of {} axes, not [batch, channels, rows, columns]", shape.len())),
        }
    }

    fn conv(&mut self, node: &Node, x: ValueId) -> Result<NodeId, Why> {
        let (weight, bias, kernel) = self.kernel(node)?;
        let frame = Frame::read(&node.attributes, Some(kernel), self.size(x)?, None)?;
        let shape = self.ir.shape(weight).ok_or("its shape is not known")?;
        let op = Op::Conv2d {
            out_channels: shape[0].unsigned_abs(),
            kernel: frame.kernel,
            stride: frame.stride,
            padding: frame.padding()?,
            dilation: frame.dilation,
            groups: self.groups(node)?,
            bias: bias.is_some(),
        };
        let x = self.pixels(x)?;
        let mut given = vec![Given::Value(weight, false)];
        given.extend(bias.map(|b| Given::Value(b, false)));
        self.put(op, &[x], &given)
    }

    /// Weight, bias and kernel of a convolution.
    fn kernel(&self, node: &Node) -> Result<(ValueId, Option<ValueId>, [i64; 2]), Why> {
        let weight = node.inputs.get(1).copied().flatten().ok_or("has no weight")?;
        if self.ir.is_live(weight) {
            return Err("its weight is computed".into());
        }
        match *self.ir.shape(weight).ok_or("its shape is not known")? {
            [_, _, h, w] => {
                // Exporters write zeros for a bias that the module has not.
                let zeros = |b: &ValueId| {
                    let value = &self.ir.values[*b];
                    let constant = value.constant.as_ref().filter(|_| value.param.is_none());
                    constant.is_some_and(|c| c.uniform() == Some(0.0))
                };
                let bias = node.inputs.get(2).copied().flatten().filter(|b| !zeros(b));
                Ok((weight, bias, [h, w]))
            }
            _ => Err("its weight is not that of an image".into()),
        }
    }

    fn groups(&self, node: &Node) -> Result<u64, Why> {
        let groups = node.attributes.int("group").unwrap_or(1);
        u64::try_from(groups).ok().filter(|g| *g > 0).ok_or_else(|| format!("{groups} groups"))
    }

    fn conv_transpose(&mut self, node: &Node, x: ValueId) -> Result<NodeId, Why> {
        let (weight, bias, kernel) = self.kernel(node)?;
        let extra = node.attributes.ints("output_padding").unwrap_or(&[0, 0]);
        let extra = pair("output_padding", extra)?;
        let frame = Frame::read(&node.attributes, Some(kernel), self.size(x)?, Some(extra))?;
        if frame.dilation != [1, 1] || node.attributes.ints("output_shape").is_some() {
            return Err("with dilation or output_shape".into());
        }
        let groups = self.groups(node)?;
        let shape = self.ir.shape(weight).ok_or("its shape is not known")?;
        let op = Op::ConvTranspose2d {
            out_channels: shape[1].unsigned_abs().checked_mul(groups).ok_or("too many channels")?,
            kernel: frame.kernel,
            stride: frame.stride,
            padding: frame.padding()?,
            output_padding: extra,
            groups,
            bias: bias.is_some(),
        };
        let x = self.pixels(x)?;
        let mut given = vec![Given::Value(weight, false)];
        given.extend(bias.map(|b| Given::Value(b, false)));
        self.put(op, &[x], &given)
    }

    fn pool(&mut self, node: &Node, x: ValueId) -> Result<NodeId, Why> {
        let frame = Frame::read(&node.attributes, None, self.size(x)?, None)?;
        if frame.dilation != [1, 1] {
            return Err("with dilation".into());
        }
        let Frame { kernel, stride, ceil, .. } = frame;
        let window = Window { kernel, stride, padding: frame.padding()?, ceil_mode: ceil };
        let x = self.pixels(x)?;
        let op = match node.op.as_str() {
            "MaxPool" => Op::MaxPool2d { window },
            _ => {
                let count_padding = node.attributes.int("count_include_pad").unwrap_or(0) != 0;
                // Without padding there is nothing to count.
                let count_padding = count_padding || window.padding == [0, 0] && !ceil;
                Op::AvgPool2d { window, count_padding }
            }
        };
        self.put(op, &[x], &[])
    }

    fn batch_norm(&mut self, node: &Node, value: ValueId) -> Result<NodeId, Why> {
        let mut x = self.input(Some(value))?;
        let shape = self.shape_of(x);
        let flat = shape.len() == 1;
        if flat {
            x = self.put(Op::Reshape { shape: vec![shape[0], 1, 1] }, &[x], &[])?;
        } else {
            self.size(value)?;
        }
        let number = |name: &str, absent: f32| node.attributes.float(name).unwrap_or(absent);
        // ONNX's momentum is the share of the old statistics; digits beyond the sixth are rounding.
        let momentum = ((1.0 - f64::from(number("momentum", 0.9))) * 1e6).round() / 1e6;
        let op = Op::BatchNorm2d { eps: number("epsilon", 1e-5), momentum: momentum as f32 };
        let mut given = vec![];
        for at in 1..5 {
            let weight = node.inputs.get(at).copied().flatten().ok_or("a weight is left out")?;
            given.push(Given::Value(weight, false));
        }
        let done = self.put(op, &[x], &given)?;
        match flat {
            true => self.put(Op::Reshape { shape }, &[done], &[]),
            false => Ok(done),
        }
    }

    /// Instance norm with weights is group norm with a group per channel.
    fn group_norm(&mut self, node: &Node, value: ValueId) -> Result<NodeId, Why> {
        let eps = node.attributes.float("epsilon").unwrap_or(1e-5);
        let x = self.input(Some(value))?;
        let channels = *self.shape_of(x).first().ok_or("has no channels")?;
        let weight =
            |at: usize| node.inputs.get(at).copied().flatten().ok_or("a weight is left out");
        let (scale, shift) = (weight(1)?, weight(2)?);
        let groups = match node.op.as_str() {
            "InstanceNormalization" => channels,
            _ => node.attributes.int("num_groups").unwrap_or(0).unsigned_abs(),
        };
        if self.elements(scale) != Some(channels) || self.elements(shift) != Some(channels) {
            return Err("with a weight per group, not per channel".into());
        }
        let all = |emit: &Self, value: ValueId, number: f64| {
            let constant =
                emit.ir.constant(value).filter(|_| emit.ir.values[value].param.is_none());
            constant.and_then(|t| t.values()).is_some_and(|v| v.iter().all(|x| *x == number))
        };
        let plain = groups == channels && all(self, scale, 1.0) && all(self, shift, 0.0);
        if plain && self.size(value).is_ok() {
            return self.put(Op::InstanceNorm2d { eps }, &[x], &[]);
        }
        let given = [Given::Value(scale, false), Given::Value(shift, false)];
        self.put(Op::GroupNorm { groups, eps }, &[x], &given)
    }

    fn resize(&mut self, node: &Node, value: ValueId) -> Result<NodeId, Why> {
        let [h, w] = self.size(value)?;
        let [high, wide] = self.size(node.outputs[0])?;
        let factor = high / h.max(1);
        if factor < 1 || high != factor * h || wide != factor * w {
            return Err(format!("{h} x {w} pixels to {high} x {wide}: no whole factor"));
        }
        let text = |name: &str, absent: &'static str| {
            node.attributes.text(name).map_or(absent.to_string(), str::to_string)
        };
        let place = match node.op.as_str() {
            "Upsample" => "asymmetric".into(),
            _ => text("coordinate_transformation_mode", "half_pixel"),
        };
        let nearest = text("nearest_mode", "round_prefer_floor");
        let mode = match (text("mode", "nearest").as_str(), place.as_str()) {
            ("nearest", "asymmetric") if nearest == "floor" || node.op == "Upsample" => {
                Interpolation::Nearest
            }
            ("nearest", "half_pixel") if nearest.starts_with("round") => Interpolation::Nearest,
            ("linear", "half_pixel" | "pytorch_half_pixel") => Interpolation::Bilinear,
            (mode, place) => return Err(format!("mode {mode}, {place}, {nearest}")),
        };
        let x = self.pixels(value)?;
        match factor {
            1 => Ok(x),
            _ => self.put(Op::Upsample { factor: factor.unsigned_abs(), mode }, &[x], &[]),
        }
    }
}
