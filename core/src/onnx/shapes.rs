//! The shapes that operations give, with [`super::tensor::BATCH`] for the batch.

use super::fold::{permutation, reshaped};
use super::ir::{Ir, join};
use super::node::{Attributes, ValueId, axes, axis, range};
use super::tensor::{BATCH, count, is_batch};
use super::window::Frame;

/// What an operation is told about.
pub(super) struct Call<'a> {
    pub ir: &'a Ir<'a>,
    pub op: &'a str,
    pub attributes: &'a Attributes,
    pub inputs: &'a [Option<ValueId>],
}

impl Call<'_> {
    pub fn shape(&self, at: usize) -> Option<&[i64]> {
        self.ir.shape((*self.inputs.get(at)?)?)
    }

    /// Whole numbers that are an attribute, or a known input.
    pub fn ints(&self, at: usize, name: &str) -> Option<Vec<i64>> {
        match self.attributes.ints(name) {
            Some(ints) => Some(ints.to_vec()),
            None => self.ir.values[(*self.inputs.get(at)?)?].constant.as_ref()?.to_ints(),
        }
    }

    /// The shapes of the first outputs; none when they cannot be told.
    pub fn infer(&self) -> Option<Vec<Vec<i64>>> {
        let x = || self.shape(0).map(<[i64]>::to_vec);
        let one = match self.op {
            "Add" | "Sub" | "Mul" | "Div" | "Pow" | "Max" | "Min" | "PRelu" | "Equal" | "Less"
            | "Greater" | "LessOrEqual" | "GreaterOrEqual" | "And" | "Or" | "Where" | "Mod" => {
                self.elementwise()
            }
            "MatMul" => self.matmul(),
            "Gemm" => self.gemm(),
            "Conv" | "ConvTranspose" | "MaxPool" | "AveragePool" => self.image(),
            "GlobalAveragePool" | "GlobalMaxPool" => {
                let mut shape = x()?;
                shape.get_mut(2..)?.fill(1);
                Some(shape)
            }
            "Flatten" => {
                let (shape, at) = (self.shape(0)?, self.attributes.int("axis").unwrap_or(1));
                let at =
                    if at == shape.len() as i64 { shape.len() } else { axis(at, shape.len())? };
                Some(vec![count(&shape[..at])?, count(&shape[at..])?])
            }
            "Reshape" => self.reshape(),
            "Transpose" => {
                let shape = self.shape(0)?;
                Some(self.perm()?.into_iter().map(|i| shape[i]).collect())
            }
            "Squeeze" | "Unsqueeze" => self.squeeze(),
            "Concat" => self.concat(),
            "Split" => return self.split(),
            "Slice" => self.slice(),
            "Gather" => {
                let (shape, indexes) = (self.shape(0)?, self.shape(1)?);
                let at = axis(self.attributes.int("axis").unwrap_or(0), shape.len())?;
                Some([&shape[..at], indexes, &shape[at + 1..]].concat())
            }
            "Tile" => {
                let (shape, times) = (self.shape(0)?, self.ints(1, "repeats")?);
                let fits = times.len() == shape.len() && times.iter().all(|n| *n > 0);
                let sizes = shape.iter().zip(&times).map(|(size, n)| size.checked_mul(*n));
                if fits { sizes.collect() } else { None }
            }
            "Expand" => join(self.shape(0)?, &self.ints(1, "shape")?, self.ir.fixed),
            "Resize" | "Upsample" => self.resize(),
            "Pad" => {
                let (shape, pads) = (self.shape(0)?, self.ints(1, "pads")?);
                let rank = shape.len();
                let ends = pads.get(rank..).filter(|ends| ends.len() == rank)?;
                let sums = (0..rank).map(|i| shape[i].checked_add(pads[i])?.checked_add(ends[i]));
                sums.collect::<Option<Vec<i64>>>().filter(|s| s.iter().all(|n| *n > 0))
            }
            "SoftmaxCrossEntropyLoss" | "NegativeLogLikelihoodLoss" => Some(vec![]),
            _ if self.op.starts_with("Reduce") || self.op.starts_with("Arg") => self.reduce(),
            _ if same(self.op) => x(),
            _ => None,
        };
        one.filter(|shape| count(shape).is_some()).map(|shape| vec![shape])
    }

    fn elementwise(&self) -> Option<Vec<i64>> {
        (1..self.inputs.len()).try_fold(self.shape(0)?.to_vec(), |shape, i| {
            join(&shape, self.shape(i)?, self.ir.fixed)
        })
    }

    fn matmul(&self) -> Option<Vec<i64>> {
        let ([before @ .., m, k], [others @ .., rows, n]) = (self.shape(0)?, self.shape(1)?) else {
            return None;
        };
        let mut shape = join(before, others, self.ir.fixed)?;
        shape.extend([*m, *n]);
        (k == rows).then_some(shape)
    }

    fn gemm(&self) -> Option<Vec<i64>> {
        let ([a, b], [c, d]) = (self.shape(0)?, self.shape(1)?) else { return None };
        let turned = |name: &str| self.attributes.int(name).unwrap_or(0) != 0;
        let (m, k) = if turned("transA") { (b, a) } else { (a, b) };
        let (rows, n) = if turned("transB") { (d, c) } else { (c, d) };
        (k == rows).then(|| vec![*m, *n])
    }

    fn image(&self) -> Option<Vec<i64>> {
        let [n, c, h, w] = *self.shape(0)? else { return None };
        let weight = if self.op.starts_with("Conv") { Some(self.shape(1)?) } else { None };
        if weight.is_some_and(|weight| weight.len() != 4) {
            return None;
        }
        let kernel = weight.and_then(|w| w.get(2..)).and_then(|k| <[i64; 2]>::try_from(k).ok());
        let frame = |extra| Frame::read(self.attributes, kernel, [h, w], extra).ok();
        let (channels, [h, w]) = match (self.op, weight) {
            ("Conv", Some(weight)) => (weight[0], frame(None)?.output([h, w])?),
            ("ConvTranspose", Some(weight)) => {
                let extra = self.attributes.ints("output_padding").unwrap_or(&[0, 0]);
                let extra = super::window::pair("output_padding", extra).ok()?;
                let groups = self.attributes.int("group").unwrap_or(1);
                (weight[1].checked_mul(groups)?, frame(Some(extra))?.enlarged([h, w], extra)?)
            }
            _ => (c, frame(None)?.output([h, w])?),
        };
        Some(vec![n, channels, h, w])
    }

    fn reshape(&self) -> Option<Vec<i64>> {
        let (shape, target) = (self.shape(0)?, self.ints(1, "shape")?);
        let zero = self.attributes.int("allowzero").unwrap_or(0) != 0;
        let total = count(shape)?;
        let plain = || reshaped(shape, &target, zero).filter(|result| count(result) == Some(total));
        let at = shape.iter().position(|size| is_batch(*size));
        match (self.ir.fixed, at) {
            // The file has a number for the batch: it must stand where the batch is.
            (Some(n), Some(at)) if !target.iter().any(|size| is_batch(*size)) => {
                fixed_reshape(shape, &target, zero, at, n).or_else(plain)
            }
            _ => plain(),
        }
    }

    /// The permutation of a `Transpose`.
    pub fn perm(&self) -> Option<Vec<usize>> {
        let rank = self.shape(0)?.len();
        match self.attributes.ints("perm") {
            Some(perm) => permutation(perm, rank),
            None => Some((0..rank).rev().collect()),
        }
    }

    fn squeeze(&self) -> Option<Vec<i64>> {
        let mut shape = self.shape(0)?.to_vec();
        if self.op == "Unsqueeze" {
            let new = self.ints(1, "axes")?;
            for at in axes(&new, shape.len() + new.len())? {
                shape.insert(at.min(shape.len()), 1);
            }
            return Some(shape);
        }
        let gone = match self.ints(1, "axes") {
            Some(given) => axes(&given, shape.len())?,
            None => (0..shape.len()).filter(|i| shape[*i] == 1).collect(),
        };
        for at in gone.iter().rev() {
            (shape.remove(*at) == 1).then_some(())?;
        }
        Some(shape)
    }

    fn concat(&self) -> Option<Vec<i64>> {
        let mut shape = self.shape(0)?.to_vec();
        let at = axis(self.attributes.int("axis")?, shape.len())?;
        for i in 1..self.inputs.len() {
            let mut part = self.shape(i)?.to_vec();
            let size = *part.get(at)?;
            let sum = shape[at].checked_add(size)?;
            (shape[at], part[at]) = (1, 1);
            // Here an axis of size 1 must not stretch, but where the batch meets a constant.
            let joined = join(&shape, &part, self.ir.fixed)?;
            let stretched = |s: &[i64]| s.iter().zip(&joined).any(|(a, b)| a != b && !is_batch(*b));
            if stretched(&shape) || stretched(&part) || part.len() != shape.len() {
                return None;
            }
            shape = joined;
            shape[at] = sum;
        }
        Some(shape)
    }

    /// Axis and sizes of the parts of a `Split`.
    pub fn parts(&self, outputs: usize) -> Option<(usize, Vec<i64>)> {
        let shape = self.shape(0)?;
        let at = axis(self.attributes.int("axis").unwrap_or(0), shape.len())?;
        let sizes = self.ints(1, "split").unwrap_or_else(|| {
            let count = self.attributes.int("num_outputs").unwrap_or(outputs as i64).clamp(1, 4096);
            let part = shape[at].div_euclid(count) + i64::from(shape[at] % count != 0);
            (0..count).map(|i| part.min(shape[at] - i * part)).collect()
        });
        let sum = sizes.iter().try_fold(0i64, |sum, n| sum.checked_add(*n).filter(|_| *n > 0));
        let whole = sum == Some(shape[at]);
        whole.then_some((at, sizes))
    }

    fn split(&self) -> Option<Vec<Vec<i64>>> {
        // Without sizes, parts are told by the number of outputs: see `num_outputs`.
        let (at, sizes) = self.parts(1)?;
        let shape = self.shape(0)?;
        let part = |size: &i64| [&shape[..at], &[*size], &shape[at + 1..]].concat();
        Some(sizes.iter().map(part).collect())
    }

    /// Start, end and step along each axis.
    pub fn ranges(&self) -> Option<Vec<(i64, i64, i64)>> {
        let shape = self.shape(0)?;
        let (starts, ends) = (self.ints(1, "starts")?, self.ints(2, "ends")?);
        let along = self.ints(3, "axes").unwrap_or_else(|| (0..starts.len() as i64).collect());
        let steps = self.ints(4, "steps").unwrap_or_else(|| vec![1; starts.len()]);
        let mut ranges: Vec<(i64, i64, i64)> = shape.iter().map(|n| (0, *n, 1)).collect();
        for (i, start) in starts.iter().enumerate() {
            let at = axis(*along.get(i)?, shape.len())?;
            let (end, step) = (*ends.get(i)?, *steps.get(i)?);
            let whole = *start == 0 && step == 1 && Some(end) == self.ir.fixed;
            ranges[at] = match is_batch(shape[at]) && whole {
                true => (0, shape[at], 1),
                false => range(*start, end, step, shape[at])?,
            };
        }
        Some(ranges)
    }

    fn slice(&self) -> Option<Vec<i64>> {
        let sizes = self.ranges()?.into_iter().map(|(start, end, step)| {
            let size = end - start;
            size / step + i64::from(size % step != 0)
        });
        Some(sizes.collect())
    }

    fn resize(&self) -> Option<Vec<i64>> {
        let shape = self.shape(0)?;
        let known = |at: usize| {
            let value = self.ir.values[(*self.inputs.get(at)?)?].constant.as_ref()?.values()?;
            (value.len() == shape.len()).then_some(value)
        };
        let (scales, sizes) = match self.op {
            "Upsample" => (known(1), None),
            _ => (known(2), known(3)),
        };
        let size = |i: usize| match (&scales, &sizes) {
            (_, Some(sizes)) if !is_batch(shape[i]) => Some(sizes[i] as i64),
            (Some(scales), None) if !is_batch(shape[i]) => {
                Some((shape[i] as f64 * scales[i]) as i64)
            }
            (None, None) => None,
            _ => Some(shape[i]),
        };
        (0..shape.len()).map(size).collect()
    }

    fn reduce(&self) -> Option<Vec<i64>> {
        let mut shape = self.shape(0)?.to_vec();
        let along = self.along()?;
        let keep = self.attributes.int("keepdims").unwrap_or(1) != 0;
        for at in along.iter().rev() {
            match keep {
                true => shape[*at] = 1,
                false => drop(shape.remove(*at)),
            }
        }
        Some(shape)
    }

    /// The axes that a reduction is over, ascending.
    pub fn along(&self) -> Option<Vec<usize>> {
        let rank = self.shape(0)?.len();
        if self.op.starts_with("Arg") {
            return Some(vec![axis(self.attributes.int("axis").unwrap_or(0), rank)?]);
        }
        match self.ints(1, "axes") {
            Some(given) if !given.is_empty() => axes(&given, rank),
            _ if self.attributes.int("noop_with_empty_axes").unwrap_or(0) != 0 => Some(vec![]),
            _ => Some((0..rank).collect()),
        }
    }
}

/// The shape that a `Reshape` gives when the target has the number `n` for the batch, which is in
/// axis `at`.
fn fixed_reshape(shape: &[i64], target: &[i64], zero: bool, at: usize, n: i64) -> Option<Vec<i64>> {
    let mut known = shape.to_vec();
    known[at] = known[at] / BATCH * n;
    let mut result = reshaped(&known, target, zero)?;
    if count(&result) != count(&known) {
        return None;
    }
    let before = count(&known[..at])?;
    let start = |j: usize| count(&result[..j]);
    let own = |j: &usize| result[*j] % n == 0 && start(*j) == Some(before);
    // Else an axis that joins what is before the batch with it.
    let joined = |j: &usize| {
        let end = start(*j + 1).unwrap_or(0);
        result[*j] % n == 0 && start(*j).is_some_and(|s| s <= before) && end % (before * n) == 0
    };
    // Else one that parts what was joined.
    let parted = |j: &usize| {
        let end = start(*j + 1).filter(|end| *end > 0);
        let inside = |end: i64| (before * known[at]) % end == 0;
        result[*j] % n == 0 && start(*j).is_some_and(|s| s >= before) && end.is_some_and(inside)
    };
    let axes = || 0..result.len();
    // A batch of one divides everything: rows for a product are positions, features stay alone.
    let rows = || match (result.len(), n) {
        (2, 1) => axes().find(|j| own(j) && result[*j] == 1).or_else(|| axes().find(joined)),
        _ => None,
    };
    let place = rows()
        .or_else(|| axes().find(own))
        .or_else(|| axes().find(joined))
        .or_else(|| axes().find(parted))?;
    result[place] = (result[place] / n).checked_mul(BATCH)?;
    (count(&result) == count(shape)).then_some(result)
}

/// Operations whose output has the shape of their first input.
fn same(op: &str) -> bool {
    const SAME: [&str; 57] = [
        "Abs",
        "Acos",
        "Acosh",
        "Asin",
        "Asinh",
        "Atan",
        "Atanh",
        "BatchNormalization",
        "Cast",
        "Ceil",
        "Celu",
        "Clip",
        "Cos",
        "Cosh",
        "CumSum",
        "Dropout",
        "Elu",
        "Erf",
        "Exp",
        "Floor",
        "Gelu",
        "GroupNormalization",
        "HardSigmoid",
        "HardSwish",
        "Hardmax",
        "Identity",
        "InstanceNormalization",
        "IsNaN",
        "LRN",
        "LayerNormalization",
        "LeakyRelu",
        "Log",
        "LogSoftmax",
        "LpNormalization",
        "MeanVarianceNormalization",
        "Mish",
        "Neg",
        "Not",
        "RMSNormalization",
        "Reciprocal",
        "Relu",
        "Round",
        "Selu",
        "Shrink",
        "Sigmoid",
        "Sign",
        "Sin",
        "Sinh",
        "Softmax",
        "Softplus",
        "Softsign",
        "Sqrt",
        "Swish",
        "Tan",
        "Tanh",
        "ThresholdedRelu",
        "Trilu",
    ];
    SAME.contains(&op)
}
