//! Element-wise operations.

use super::{
    Buffers, Curve, DevicePtr, Dropout, Elementwise, Launch, MOST_TERMS, Map, Plan, Source,
    Storage, SumTerms, Tail,
};
use pipewright_core::graph::{Function, Op};
use pipewright_kernels::{Call, Mask, Phase};

fn curve(function: Function) -> u32 {
    let curve = match function {
        Function::Gelu => Curve::Gelu,
        Function::Silu => Curve::Silu,
        Function::Tanh => Curve::Tanh,
        Function::LeakyRelu => Curve::LeakyRelu,
        Function::GeluTanh => Curve::GeluTanh,
        Function::Sigmoid => Curve::Sigmoid,
        Function::Exp => Curve::Exp,
        Function::Log => Curve::Log,
        Function::HardSwish => Curve::HardSwish,
        Function::HardSigmoid => Curve::HardSigmoid,
        Function::Erf => Curve::Erf,
        Function::Square => Curve::Square,
        Function::Sqrt => Curve::Sqrt,
        Function::Reciprocal => Curve::Reciprocal,
    };
    curve as u32
}

/// One pass from the tensors of `reads` to `out`.
fn pass(plan: &mut Plan, kernel: &str, reads: &[DevicePtr], args: Elementwise) {
    let at = |i: usize| reads.get(i).copied().unwrap_or_default();
    let args = Elementwise { x: at(0), y: at(1), z: at(2), ..args };
    plan.over(Source::Elementwise, kernel, args.count.div_ceil(16 / plan.bytes()), args);
}

/// Writes f32 at `x` in the storage type to `out`.
pub fn narrow(storage: Storage, x: DevicePtr, out: DevicePtr, count: u64) -> Launch {
    conversion(format!("narrow_{}", storage.suffix()), x, out, count)
}

/// Writes the storage type's numbers at `x` as f32 to `out`.
pub fn widen(storage: Storage, x: DevicePtr, out: DevicePtr, count: u64) -> Launch {
    conversion(format!("widen_{}", storage.suffix()), x, out, count)
}

fn conversion(kernel: String, x: DevicePtr, out: DevicePtr, count: u64) -> Launch {
    let args = Elementwise { x, out, count, ..Elementwise::default() };
    Launch::over(Source::Elementwise, kernel, count, &args)
}

/// `out = map(x, y, z)`, of `count` elements.
pub fn map(plan: &mut Plan, op: Map, reads: &[DevicePtr], out: DevicePtr, count: u64) {
    pass(plan, "map", reads, Elementwise { out, count, op: op as u32, ..Elementwise::default() });
}

/// Writes `value` to all elements.
pub fn fill(plan: &mut Plan, out: DevicePtr, count: u64, value: f32) {
    let args = Elementwise { out, count, p: value, ..Elementwise::default() };
    plan.over(Source::Elementwise, "fill", count, args);
}

pub fn forward(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let count = call.samples * call.output.elements();
    let base = Elementwise { out: buffers.writes[0], count, ..Elementwise::default() };
    let op = |op: Map| Elementwise { op: op as u32, ..base };
    match *call.op {
        Op::Relu => pass(plan, "map", buffers.reads, op(Map::Relu)),
        Op::Activation { function } => {
            let args = Elementwise { op: curve(function), ..base };
            pass(plan, "activation", buffers.reads, args);
        }
        Op::Clip { min, max } => {
            pass(plan, "map", buffers.reads, Elementwise { p: min, q: max, ..op(Map::Clip) });
        }
        Op::Affine { scale, shift } => {
            pass(plan, "map", buffers.reads, Elementwise { p: scale, q: shift, ..op(Map::Affine) });
        }
        Op::SwiGlu => pass(plan, "map", buffers.reads, op(Map::SwiGlu)),
        Op::Dropout { probability } => dropout(call, probability, buffers, plan),
        ref other => unreachable!("{} is no element-wise operation", other.name()),
    }
}

pub fn input_gradient(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let count = call.samples * call.output.elements();
    let base = Elementwise { out: buffers.writes[0], count, ..Elementwise::default() };
    let op = |op: Map| Elementwise { op: op as u32, ..base };
    match *call.op {
        Op::Relu => pass(plan, "map", buffers.reads, op(Map::ReluGradient)),
        Op::Activation { function } => {
            let args = Elementwise { op: curve(function), ..base };
            pass(plan, "activation_gradient", buffers.reads, args);
        }
        Op::Clip { min, max } => {
            let args = Elementwise { p: min, q: max, ..op(Map::ClipGradient) };
            pass(plan, "map", buffers.reads, args);
        }
        Op::Affine { scale, .. } => {
            pass(plan, "map", buffers.reads, Elementwise { p: scale, ..op(Map::Affine) });
        }
        Op::SwiGlu => swiglu_gradient(call, buffers, plan),
        Op::Dropout { probability } => dropout(call, probability, buffers, plan),
        ref other => unreachable!("{} is no element-wise operation", other.name()),
    }
}

fn swiglu_gradient(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let [gate, up, gy] = *buffers.reads else {
        unreachable!("a gated product's gradient reads gate, up and gy");
    };
    let count = call.samples * call.output.elements();
    let mut writes = buffers.writes.iter();
    if let Some(out) = writes.next_if(call.wanted & 1 != 0) {
        map(plan, Map::SwiGluGate, &[gate, up, gy], out, count);
    }
    if let Some(out) = writes.next_if(call.wanted & 2 != 0) {
        map(plan, Map::SwiGlu, &[gate, gy], out, count);
    }
}

/// The next write, where it is wanted.
pub trait Wanted {
    fn next_if(&mut self, wanted: bool) -> Option<DevicePtr>;
}

impl Wanted for std::slice::Iter<'_, DevicePtr> {
    fn next_if(&mut self, wanted: bool) -> Option<DevicePtr> {
        if wanted { self.next().copied() } else { None }
    }
}

fn dropout(call: &Call, probability: f32, buffers: &Buffers, plan: &mut Plan) {
    let (elements, samples) = (call.output.elements(), call.samples);
    let (x, out) = (buffers.reads[0], buffers.writes[0]);
    if call.phase == Phase::Evaluate || probability == 0.0 {
        return map(plan, Map::Copy, &[x], out, elements * samples);
    }
    let Mask { key, limit, scale } = Mask::new(&call.draw, probability);
    // A mini-batch has at most 2^32 samples.
    let first_sample = call.draw.first_sample as u32;
    let step = buffers.step;
    // A rank with a slice of the positions draws what the whole sample does.
    let first = u64::from(call.shard.tensor_rank) * elements;
    let args = Dropout { x, out, step, first, elements, samples, key, first_sample, limit, scale };
    let groups = (first + elements).div_ceil(256) - first / 256;
    plan.over(Source::Elementwise, "dropout", samples * groups * 32, args);
}

/// A sum of at most [`MOST_TERMS`] tensors, and what is done with it.
pub fn sum_and(call: &Call, reads: &[DevicePtr], out: DevicePtr, tail: Tail, plan: &mut Plan) {
    let mut terms = [DevicePtr::NULL; MOST_TERMS];
    terms[..reads.len()].copy_from_slice(reads);
    let (count, number) = (call.samples * call.output.elements(), reads.len() as u32);
    let args = SumTerms { terms, out, tail, count, number };
    plan.over(Source::Elementwise, "sum_terms", count.div_ceil(16 / plan.bytes()), args);
}

/// Sums of gradients, first to last.
pub fn sum(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let count = call.samples * call.output.elements();
    sum_of(plan, buffers.reads, buffers.writes[0], count);
}

/// `((first + second) + third) + ..`
pub fn sum_of(plan: &mut Plan, reads: &[DevicePtr], out: DevicePtr, count: u64) {
    let mut done = 0;
    while done < reads.len() {
        // After the first launch the sum so far is the first term.
        let before = usize::from(done > 0);
        let take = (reads.len() - done).min(MOST_TERMS - before);
        let mut terms = [DevicePtr::NULL; MOST_TERMS];
        terms[0] = out;
        terms[before..before + take].copy_from_slice(&reads[done..done + take]);
        let (number, tail) = ((before + take) as u32, Tail::default());
        let args = SumTerms { terms, out, tail, count, number };
        let items = count.div_ceil(16 / plan.bytes());
        plan.over(Source::Elementwise, "sum_terms", items, args);
        done += take;
    }
}
