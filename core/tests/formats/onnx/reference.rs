//! A slow, plain evaluation of graphs: one sample, double precision, every operation as its
//! documentation says.

use pipewright_core::graph::{Function, Graph, Interpolation, Node, Op, Window};

/// A value of one sample.
#[derive(Clone)]
pub struct Value {
    pub shape: Vec<usize>,
    pub data: Vec<f64>,
}

impl Value {
    fn map(&self, f: impl Fn(f64) -> f64) -> Self {
        Self { shape: self.shape.clone(), data: self.data.iter().map(|x| f(*x)).collect() }
    }

    /// Rows of the last axis.
    fn rows(&self) -> std::slice::ChunksExact<'_, f64> {
        self.data.chunks_exact(*self.shape.last().unwrap())
    }

    fn by_rows(&self, f: impl Fn(&[f64]) -> Vec<f64>) -> Self {
        let data: Vec<f64> = self.rows().flat_map(f).collect();
        let mut shape = self.shape.clone();
        *shape.last_mut().unwrap() = data.len() / self.rows().count();
        Self { shape, data }
    }
}

/// The value of the node before the loss, for a sample and the values of the parameters.
pub fn logits(graph: &Graph, sample: &[f64], parameters: &[Vec<f64>]) -> Vec<f64> {
    let mut values: Vec<Value> = vec![];
    for node in graph.nodes() {
        let inputs: Vec<&Value> = node.inputs.iter().map(|id| &values[id.index()]).collect();
        let weights: Vec<&[f64]> =
            node.params.iter().map(|id| parameters[id.index()].as_slice()).collect();
        if node.op.is_loss() {
            return inputs[0].data.clone();
        }
        let shape: Vec<usize> = node.output.shape.iter().map(|n| *n as usize).collect();
        let value = match &node.op {
            Op::Input { .. } | Op::Tokens { .. } => {
                Value { shape: shape.clone(), data: sample.to_vec() }
            }
            op if op.is_target() => Value { shape: vec![0], data: vec![] },
            _ => evaluate(node, &inputs, &weights, &shape),
        };
        assert!(node.op.is_target() || value.shape == shape, "{}: {:?}", node.name, value.shape);
        values.push(value);
    }
    panic!("no loss");
}

fn evaluate(node: &Node, x: &[&Value], w: &[&[f64]], shape: &[usize]) -> Value {
    let with = |data: Vec<f64>| Value { shape: shape.to_vec(), data };
    match &node.op {
        Op::Parameter { .. } => with(w[0].to_vec()),
        Op::Reshape { .. } | Op::Flatten => with(x[0].data.clone()),
        Op::Relu => x[0].map(|v| v.max(0.0)),
        Op::Activation { function } => x[0].map(|v| activation(*function, v)),
        Op::Clip { min, max } => x[0].map(|v| v.clamp((*min).into(), (*max).into())),
        Op::Affine { scale, shift } => x[0].map(|v| v * f64::from(*scale) + f64::from(*shift)),
        Op::Add => elementwise(x, shape, |a, b| a + b),
        Op::Subtract => elementwise(x, shape, |a, b| a - b),
        Op::Multiply => elementwise(x, shape, |a, b| a * b),
        Op::Divide => elementwise(x, shape, |a, b| a / b),
        Op::SwiGlu => elementwise(x, shape, |g, u| g / (1.0 + (-g).exp()) * u),
        Op::Linear { .. } | Op::TiedLinear { .. } => {
            let inner = *x[0].shape.last().unwrap();
            x[0].by_rows(|row| {
                w[0].chunks_exact(inner)
                    .enumerate()
                    .map(|(i, column)| dot(column, row) + w.get(1).map_or(0.0, |b| b[i]))
                    .collect()
            })
        }
        Op::Embedding { features, .. } => {
            let size = *features as usize;
            let row = |token: &f64| w[0][*token as usize * size..][..size].to_vec();
            with(x[0].data.iter().flat_map(row).collect())
        }
        Op::TokenPosition { token } => {
            let largest = x[1].data.iter().copied().fold(0.0, f64::max);
            let wanted = token.map_or(largest, f64::from);
            let place = x[1].data.iter().position(|at| *at == wanted).unwrap_or(0);
            with(x[0].rows().nth(place).unwrap().to_vec())
        }
        Op::LayerNorm { eps } => x[0].by_rows(|row| normal(row, *eps, true, w)),
        Op::RmsNorm { eps } => x[0].by_rows(|row| normal(row, *eps, false, w)),
        Op::Softmax => x[0].by_rows(softmax),
        Op::Slice { axis, start, step, .. } => pick(x[0], shape, |index| {
            index[*axis as usize] = (*start + index[*axis as usize] as u64 * *step) as usize;
        }),
        Op::Permute { axes } => pick(x[0], shape, |index| {
            let given = index.to_vec();
            axes.iter().enumerate().for_each(|(to, from)| index[*from as usize] = given[to]);
        }),
        Op::Concat { axis } => concat(x, *axis as usize, shape),
        Op::ReduceMean { axes, .. } => with(reduce_mean(x[0], axes)),
        Op::GlobalAvgPool => with(reduce_mean(x[0], &[1, 2])),
        Op::MatMul { transpose_b } => matmul(x[0], x[1], *transpose_b, shape),
        Op::ScaledDotProduct { scale, causal } => attention(x, (*scale).into(), *causal, shape),
        Op::Attention { heads, kv_heads, causal } if heads == kv_heads => {
            side_by_side(x[0], *heads as usize, *causal)
        }
        Op::Rope { base, scaling: None } => rope(x[0], (*base).into()),
        Op::Conv2d { .. } => conv(node, x[0], w, shape),
        Op::BatchNorm2d { eps, .. } => channels(x[0], |c, v| {
            (v - w[2][c]) / (w[3][c] + f64::from(*eps)).sqrt() * w[0][c] + w[1][c]
        }),
        Op::GroupNorm { groups, eps } => group_norm(x[0], *groups as usize, *eps, w),
        Op::MaxPool2d { window } => {
            pool(x[0], window, shape, |v| v.iter().copied().fold(f64::NEG_INFINITY, f64::max))
        }
        Op::AvgPool2d { window, .. } => {
            pool(x[0], window, shape, |v| v.iter().sum::<f64>() / v.len() as f64)
        }
        Op::Upsample { factor, mode: Interpolation::Bilinear } => {
            bilinear(x[0], *factor as usize, shape)
        }
        op => panic!("the reference has no {}", op.name()),
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn activation(function: Function, x: f64) -> f64 {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    match function {
        Function::Gelu => 0.5 * x * (1.0 + erf(x / 2f64.sqrt())),
        Function::GeluTanh => {
            0.5 * x
                * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
        }
        Function::Silu => x * sigmoid(x),
        Function::Sigmoid => sigmoid(x),
        Function::Tanh => x.tanh(),
        Function::HardSwish => x * (x + 3.0).clamp(0.0, 6.0) / 6.0,
        Function::HardSigmoid => (x / 6.0 + 0.5).clamp(0.0, 1.0),
        Function::Square => x * x,
        other => panic!("the reference has no {other:?}"),
    }
}

/// Series for small arguments, continued fraction for large ones: good to 1e-12.
fn erf(x: f64) -> f64 {
    if x.abs() > 5.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

/// Strides of a row-major shape.
fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i];
    }
    strides
}

fn index_of(mut at: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for i in (0..shape.len()).rev() {
        index[i] = at % shape[i];
        at /= shape[i];
    }
    index
}

/// Each output element from the input's at the changed index.
fn pick(x: &Value, shape: &[usize], change: impl Fn(&mut [usize])) -> Value {
    let strides = strides(&x.shape);
    let total: usize = shape.iter().product();
    let data = (0..total).map(|at| {
        let mut index = index_of(at, shape);
        change(&mut index);
        x.data[index.iter().zip(&strides).map(|(i, s)| i * s).sum::<usize>()]
    });
    Value { shape: shape.to_vec(), data: data.collect() }
}

fn elementwise(x: &[&Value], shape: &[usize], f: impl Fn(f64, f64) -> f64) -> Value {
    let stretched = |v: &Value| {
        let missing = shape.len() - v.shape.len();
        let aligned =
            Value { shape: [&vec![1; missing], &v.shape[..]].concat(), data: v.data.clone() };
        pick(&aligned, shape, |index| {
            index
                .iter_mut()
                .zip(&aligned.shape)
                .filter(|(_, n)| **n == 1)
                .for_each(|(i, _)| *i = 0);
        })
    };
    let (a, b) = (stretched(x[0]), stretched(x[1]));
    let data = a.data.iter().zip(&b.data).map(|(a, b)| f(*a, *b)).collect();
    Value { shape: shape.to_vec(), data }
}

fn concat(x: &[&Value], axis: usize, shape: &[usize]) -> Value {
    let outer: usize = shape[..axis].iter().product();
    let part = |v: &Value, i: usize| {
        let size = v.data.len() / outer;
        v.data[i * size..(i + 1) * size].to_vec()
    };
    let data = (0..outer).flat_map(|i| x.iter().flat_map(move |v| part(v, i))).collect();
    Value { shape: shape.to_vec(), data }
}

fn reduce_mean(x: &Value, axes: &[u64]) -> Vec<f64> {
    let gone = |i: usize| axes.contains(&(i as u64));
    let kept: Vec<usize> =
        (0..x.shape.len()).map(|i| if gone(i) { 1 } else { x.shape[i] }).collect();
    let strides = strides(&kept);
    let mut sums = vec![0.0; kept.iter().product()];
    for (at, value) in x.data.iter().enumerate() {
        let index = index_of(at, &x.shape);
        let to: usize = (0..kept.len()).filter(|i| !gone(*i)).map(|i| index[i] * strides[i]).sum();
        sums[to] += value;
    }
    let count = x.data.len() / sums.len();
    sums.iter().map(|sum| sum / count as f64).collect()
}

fn normal(row: &[f64], eps: f32, centred: bool, w: &[&[f64]]) -> Vec<f64> {
    let n = row.len() as f64;
    let mean = if centred { row.iter().sum::<f64>() / n } else { 0.0 };
    let square = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
    let scale = 1.0 / (square + f64::from(eps)).sqrt();
    let shift = |i: usize| w.get(1).map_or(0.0, |b| b[i]);
    row.iter().enumerate().map(|(i, x)| (x - mean) * scale * w[0][i] + shift(i)).collect()
}

fn softmax(row: &[f64]) -> Vec<f64> {
    let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<f64> = row.iter().map(|x| (x - most).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.iter().map(|p| p / sum).collect()
}

fn matmul(a: &Value, b: &Value, turned: bool, shape: &[usize]) -> Value {
    let [m, n] = shape[shape.len() - 2..] else { panic!() };
    let k = *a.shape.last().unwrap();
    let data = (0..shape.iter().product()).map(|at: usize| {
        let (matrix, i, j) = (at / (m * n), at / n % m, at % n);
        let b_at = |l: usize| if turned { j * k + l } else { l * n + j };
        (0..k).map(|l| a.data[(matrix * m + i) * k + l] * b.data[matrix * k * n + b_at(l)]).sum()
    });
    Value { shape: shape.to_vec(), data: data.collect() }
}

fn attention(x: &[&Value], scale: f64, causal: bool, shape: &[usize]) -> Value {
    let [q, k, v] = x else { panic!("three inputs") };
    let mut scores_shape = q.shape.clone();
    let keys = k.shape[k.shape.len() - 2];
    *scores_shape.last_mut().unwrap() = keys;
    let mut scores = matmul(q, k, true, &scores_shape).map(|s| s * scale);
    let queries = q.shape[q.shape.len() - 2];
    for (at, score) in scores.data.iter_mut().enumerate() {
        if causal && at % keys > at / keys % queries {
            *score = f64::NEG_INFINITY;
        }
    }
    matmul(&scores.by_rows(softmax), v, false, shape)
}

/// Queries, keys and values in the last axis, attended head by head.
fn side_by_side(x: &Value, heads: usize, causal: bool) -> Value {
    let (length, width) = (x.shape[0], x.shape[1] / 3);
    let d = width / heads;
    let mut joined = Value { shape: vec![length, width], data: vec![0.0; length * width] };
    for head in 0..heads {
        let [q, k, v] = [0, 1, 2].map(|which| {
            let part = |row: &[f64]| row[which * width + head * d..][..d].to_vec();
            Value { shape: vec![length, d], data: x.rows().flat_map(part).collect() }
        });
        let scale = 1.0 / (d as f64).sqrt();
        let attended = attention(&[&q, &k, &v], scale, causal, &[length, d]);
        for (row, values) in attended.rows().enumerate() {
            joined.data[row * width + head * d..][..d].copy_from_slice(values);
        }
    }
    joined
}

fn rope(x: &Value, base: f64) -> Value {
    let (length, d) = (x.shape[x.shape.len() - 2], *x.shape.last().unwrap());
    let mut y = x.clone();
    for (row, values) in x.data.chunks_exact(d).enumerate() {
        for i in 0..d / 2 {
            let angle = (row % length) as f64 * base.powf(-2.0 * i as f64 / d as f64);
            let (a, b) = (values[i], values[i + d / 2]);
            y.data[row * d + i] = a * angle.cos() - b * angle.sin();
            y.data[row * d + i + d / 2] = b * angle.cos() + a * angle.sin();
        }
    }
    y
}

fn conv(node: &Node, x: &Value, w: &[&[f64]], shape: &[usize]) -> Value {
    let Op::Conv2d { kernel, stride, padding, dilation, groups, .. } = &node.op else { panic!() };
    let (c, rows, columns) = (x.shape[0], x.shape[1] as i64, x.shape[2] as i64);
    let (inner, outer) = (c / *groups as usize, shape[0] / *groups as usize);
    let [kh, kw] = [kernel[0] as usize, kernel[1] as usize];
    let data = (0..shape.iter().product()).map(|at: usize| {
        let index = index_of(at, shape);
        let mut sum = w.get(1).map_or(0.0, |b| b[index[0]]);
        for (ci, i, j) in (0..inner * kh * kw).map(|n| (n / (kh * kw), n / kw % kh, n % kw)) {
            let place = |a: usize, i: usize| {
                (index[a + 1] as u64 * stride[a] + i as u64 * dilation[a]) as i64
                    - padding[a] as i64
            };
            let (r, s) = (place(0, i), place(1, j));
            if (0..rows).contains(&r) && (0..columns).contains(&s) {
                let from = index[0] / outer * inner + ci;
                let pixel = x.data[(from as i64 * rows * columns + r * columns + s) as usize];
                sum += pixel * w[0][((index[0] * inner + ci) * kh + i) * kw + j];
            }
        }
        sum
    });
    Value { shape: shape.to_vec(), data: data.collect() }
}

fn channels(x: &Value, f: impl Fn(usize, f64) -> f64) -> Value {
    let size = x.data.len() / x.shape[0];
    let data = x.data.iter().enumerate().map(|(at, v)| f(at / size, *v)).collect();
    Value { shape: x.shape.clone(), data }
}

fn group_norm(x: &Value, groups: usize, eps: f32, w: &[&[f64]]) -> Value {
    let size = x.data.len() / groups;
    let ones = vec![1.0; size];
    let data =
        x.data.chunks_exact(size).flat_map(|part| normal(part, eps, true, &[&ones])).collect();
    channels(&Value { shape: x.shape.clone(), data }, |c, v| v * w[0][c] + w[1][c])
}

fn pool(x: &Value, window: &Window, shape: &[usize], f: impl Fn(&[f64]) -> f64) -> Value {
    let (rows, columns) = (x.shape[1] as i64, x.shape[2] as i64);
    let data = (0..shape.iter().product()).map(|at: usize| {
        let index = index_of(at, shape);
        let reach = |a: usize, size: i64| {
            let start = (index[a + 1] as u64 * window.stride[a]) as i64 - window.padding[a] as i64;
            start.max(0)..(start + window.kernel[a] as i64).min(size)
        };
        let pixels: Vec<f64> = reach(0, rows)
            .flat_map(|r| reach(1, columns).map(move |s| (r, s)))
            .map(|(r, s)| x.data[(index[0] as i64 * rows * columns + r * columns + s) as usize])
            .collect();
        f(&pixels)
    });
    Value { shape: shape.to_vec(), data: data.collect() }
}

fn bilinear(x: &Value, factor: usize, shape: &[usize]) -> Value {
    let (rows, columns) = (x.shape[1], x.shape[2]);
    let place = |i: usize, size: usize| {
        let at = ((i as f64 + 0.5) / factor as f64 - 0.5).max(0.0);
        let low = (at as usize).min(size - 1);
        (low, (low + 1).min(size - 1), at - low as f64)
    };
    let data = (0..shape.iter().product()).map(|at: usize| {
        let index = index_of(at, shape);
        let ((r0, r1, v), (s0, s1, u)) = (place(index[1], rows), place(index[2], columns));
        let pixel = |r: usize, s: usize| x.data[(index[0] * rows + r) * columns + s];
        (1.0 - v) * ((1.0 - u) * pixel(r0, s0) + u * pixel(r0, s1))
            + v * ((1.0 - u) * pixel(r1, s0) + u * pixel(r1, s1))
    });
    Value { shape: shape.to_vec(), data: data.collect() }
}
