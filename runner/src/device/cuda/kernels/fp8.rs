//! Products whose factors are codes of eight bits: what makes codes of a tensor, and what takes their place
//! where nobody multiplies them.
//!
//! ```text
//! largest of each part ──> largest of all, scale ──> codes, rows along which the product sums
//! ```
//! Libraries multiply codes where both factors lie so, and only so; hence those that a product sums along
//! their columns are turned on the way. Scales stay on the device. Codes of a weight may be kept, see
//! [`WeightCodes`].

use super::{DevicePtr, Eight, Float8, Launch, Plan, Product, ProductStep, Source, padding};
use pipewright_core::graph::Op;
use pipewright_core::graph::autodiff::ComputationKind;
use pipewright_core::plan::Precision;
use pipewright_kernels::Call;

/// Activations and weights.
pub(super) const VALUES: Float8 = Float8::E4m3;

/// Gradients, which need range more than digits. What is infinite stays so, all else is finite.
pub(super) const GRADIENTS: Float8 = Float8::Saturating;

/// Most parts in which the largest magnitude of a tensor is found: some for each multiprocessor.
const PARTS: u64 = 512;

/// Elements that are worth a part.
const PART: u64 = 1 << 13;

/// Rows of codes are filled up with zeros to multiples of so many: libraries ask for it, and zeros add nothing.
const PITCH: u64 = 16;

/// Factors in eight bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Factors {
    /// Of `a` and of `b`.
    pub formats: [Float8; 2],
    /// Where the f32 is that the codes of each are to be multiplied by.
    pub backs: [DevicePtr; 2],
    /// Room for the numbers of both in bf16.
    pub wide: [DevicePtr; 2],
}

/// A matrix of bf16 whose `rows` a product sums along, `k` elements each.
#[derive(Clone, Copy)]
struct Matrix {
    data: DevicePtr,
    rows: u64,
    k: u64,
    /// Whether columns lie one behind the other.
    turned: bool,
    format: Float8,
}

/// Where a factor's codes are, and what belongs to them.
#[derive(Clone, Copy)]
struct Places {
    parts: DevicePtr,
    back: DevicePtr,
    codes: DevicePtr,
    wide: DevicePtr,
}

impl Matrix {
    fn pitch(&self) -> u64 {
        self.k.next_multiple_of(PITCH)
    }

    /// Where, in scratch, what belongs to them ends each: the largest of parts, the scale's inverse, codes,
    /// their numbers.
    fn ends(&self) -> [u64; 4] {
        let codes = self.rows * self.pitch();
        let mut end = 0;
        [4 * PARTS, 4, codes, 2 * codes].map(|bytes| {
            end += bytes.next_multiple_of(256);
            end
        })
    }

    /// In scratch from `base` on.
    fn places(&self, base: DevicePtr) -> Places {
        let [parts, back, codes, _] = self.ends().map(|end| base.after(end));
        Places { parts: base, back: parts, codes: back, wide: codes }
    }

    /// What makes its codes.
    fn encode(&self, places: &Places) -> [Launch; 2] {
        let Self { data: x, rows, k, turned, format } = *self;
        let number = (rows * k).div_ceil(PART).min(PARTS);
        let (pitch, format) = (self.pitch(), format as u32);
        let Places { parts, back, codes: out, .. } = *places;
        let (rows_there, columns) = if turned { (k, rows) } else { (rows, k) };
        let number = number as u32;
        let args = Eight { x, parts, back, out, rows: rows_there, columns, pitch, number, format };
        let largest = "eight_largest".into();
        let codes = match turned {
            // A block takes a tile, or some.
            true => {
                let tiles = rows.div_ceil(64) * pitch.div_ceil(64);
                Launch::blocks(Source::Eight, "eight_columns".into(), tiles.min(1 << 12), &args)
            }
            false => Launch::over(Source::Eight, "eight_rows".into(), rows * pitch / 8, &args),
        };
        [Launch::blocks(Source::Eight, largest, number.into(), &args), codes]
    }
}

/// A linear layer's weight as one of its products takes it, whose codes are made once and multiplied by every
/// micro-batch until it changes.
#[derive(Clone, Copy)]
pub struct WeightCodes(Matrix);

impl WeightCodes {
    /// Of the weight at `data`; none of a call that multiplies no weight in eight bits.
    pub fn of(call: &Call, data: DevicePtr) -> Option<Self> {
        let Op::Linear { .. } = call.op else { return None };
        let (inputs, outputs) = (*call.inputs[0].shape.last()?, *call.output.shape.last()?);
        let turned = match call.kind {
            ComputationKind::Forward => false,
            ComputationKind::InputGradient => true,
            _ => return None,
        };
        let (rows, k) = if turned { (inputs, outputs) } else { (outputs, inputs) };
        let matrix = Matrix { data, rows, k, turned, format: VALUES };
        (call.precision == Precision::Fp8).then_some(Self(matrix))
    }

    /// Whether they are those of its columns, which gradients are multiplied by.
    pub fn are_turned(&self) -> bool {
        self.0.turned
    }

    /// Bytes that they take, with their scale.
    pub fn bytes(&self) -> u64 {
        let [.., codes, _] = self.0.ends();
        codes
    }

    /// What makes them at `base`.
    pub fn launches(&self, base: DevicePtr) -> [Launch; 2] {
        self.0.encode(&self.0.places(base))
    }
}

/// Adds a linear layer's product to a plan; where the call is in eight bits, of codes of these formats. `kept` is where
/// those of `b` are, if somewhere.
pub(super) fn multiply(
    call: &Call,
    plan: &mut Plan,
    (args, bias): (Product, DevicePtr),
    to_f32: bool,
    formats: [Float8; 2],
    kept: DevicePtr,
) {
    if call.precision != Precision::Fp8 {
        return padding::multiply(plan, args, bias, to_f32);
    }
    let (m, n, k) = (args.m.into(), args.n.into(), args.k.into());
    let [of_a, of_b] = formats;
    let a = Matrix { data: args.a, rows: m, k, turned: args.a_strides[1] != 1, format: of_a };
    let b = Matrix { data: args.b, rows: n, k, turned: args.b_strides[0] != 1, format: of_b };
    let [.., end_of_a] = a.ends();
    let [.., end_of_b] = b.ends();
    let base = plan.scratch(end_of_a + end_of_b);
    let (at_a, mut at_b) = (a.places(base), b.places(base.after(end_of_a)));
    a.encode(&at_a).into_iter().for_each(|launch| plan.plain(launch));
    if kept == DevicePtr::NULL {
        b.encode(&at_b).into_iter().for_each(|launch| plan.plain(launch));
    } else {
        at_b = Places { wide: at_b.wide, ..b.places(kept) };
    }
    let pitch = a.pitch();
    let args = Product {
        a: at_a.codes,
        b: at_b.codes,
        a_strides: [pitch, 1],
        b_strides: [1, pitch],
        k: pitch as u32,
        ..args
    };
    let factors = Factors { formats, backs: [at_a.back, at_b.back], wide: [at_a.wide, at_b.wide] };
    plan.multiply(args, bias, to_f32, Some(factors));
}

/// The same product of the same factors in bf16, which has all numbers of eight bits: what has to be launched
/// before it.
pub(super) fn widened(product: &ProductStep, factors: &Factors) -> ([Launch; 2], ProductStep) {
    let args = product.args;
    let pitch = args.k.into();
    let places = [(args.a, args.m), (args.b, args.n)];
    let launches = [0, 1].map(|i| {
        let (x, rows) = (places[i].0, u64::from(places[i].1));
        let (back, out, format) = (factors.backs[i], factors.wide[i], factors.formats[i] as u32);
        let args = Eight { x, back, out, rows, columns: pitch, pitch, format, ..Eight::default() };
        Launch::over(Source::Eight, "eight_widen".into(), rows * pitch / 8, &args)
    });
    let [a, b] = factors.wide;
    (launches, ProductStep { args: Product { a, b, ..args }, fp8: None, ..*product })
}
