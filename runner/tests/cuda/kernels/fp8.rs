//! Products of factors in eight bits: codes and scales to the bit, and what comes of them.

use super::memory::{on_the_emulator_by, run};
use crate::case::{Case, Noise};
use crate::emulator;
use half::bf16;
use pipewright_core::compress::narrow::{E4m3, E5m2, Format, narrow_finite, widen};
use pipewright_core::graph::autodiff::ComputationKind;
use pipewright_core::graph::{Op, TensorSpec};
use pipewright_core::plan::Precision;
use pipewright_kernels::cpu;
use pipewright_kernels::{Call, Operands};
use pipewright_runner::device::cuda::kernels::{DevicePtr, Float8, Step, Storage};

/// A linear layer over rows of a sequence.
fn linear([samples, rows, inputs, outputs]: [u64; 4], bias: bool) -> Case {
    let op = Op::Linear { out_features: outputs, bias };
    Case::new(op, vec![TensorSpec::f32(vec![rows, inputs])], samples)
}

/// Samples, rows of each, inputs and outputs: tiles that are whole and that are not, one of everything, sums of
/// one term, columns that begin anywhere.
const SIZES: [[u64; 4]; 6] =
    [[1, 1, 1, 1], [3, 5, 9, 7], [2, 32, 64, 96], [1, 67, 40, 136], [1, 1, 33, 8], [5, 27, 8, 1]];

/// What codes are made of.
#[derive(Clone, Copy)]
struct Factor<'a> {
    values: &'a [f32],
    /// Elements that stand together there.
    row: usize,
    /// Whether the product sums along columns.
    turned: bool,
    format: Float8,
}

impl Factor<'_> {
    fn bits<F: Format>(&self) -> (Vec<u8>, f32) {
        let values: Vec<f32> = self.values.iter().map(|v| bf16::from_f32(*v).to_f32()).collect();
        let largest = values.iter().fold(0.0_f64, |most, v| {
            if v.is_nan() { f64::NAN } else { most.max(f64::from(v.abs())) }
        });
        let mut scale = 1.0_f64;
        if largest.is_finite() && largest > 0.0 {
            let most = f64::from(widen::<F>(F::LARGEST));
            while largest * scale * 2.0 <= most {
                scale *= 2.0;
            }
            while largest * scale > most {
                scale /= 2.0;
            }
        }
        // Those of the smallest and largest tensors stay normal numbers.
        let scale = scale.clamp(f64::powi(2.0, -126), f64::powi(2.0, 126)) as f32;
        let (there, across) = (values.len() / self.row, self.row);
        let (rows, k) = if self.turned { (across, there) } else { (there, across) };
        let pitch = k.next_multiple_of(16);
        let mut codes = vec![0; rows * pitch];
        for (row, i) in (0..rows).flat_map(|row| (0..k).map(move |i| (row, i))) {
            let at = if self.turned { i * self.row + row } else { row * self.row + i };
            codes[row * pitch + i] = narrow_finite::<F>(values[at] * scale) as u8;
        }
        (codes, 1.0 / scale)
    }

    /// Looks at the codes and at the number that they are to be multiplied by.
    fn check(&self, what: &str, codes: DevicePtr, back: DevicePtr) {
        let (expected, expected_back) = match self.format {
            Float8::E4m3 => self.bits::<E4m3>(),
            _ => self.bits::<E5m2>(),
        };
        // SAFETY: memory of this process, which holds all rows.
        let (found, found_back) = unsafe {
            let codes = std::slice::from_raw_parts(codes.0 as *const u8, expected.len());
            (codes, *(back.0 as *const f32))
        };
        assert_eq!(found_back, expected_back, "{what}: scale");
        let wrong = found.iter().zip(&expected).position(|(found, expected)| found != expected);
        if let Some(at) = wrong {
            panic!("{what}: code {at} is {:#04x}, not {:#04x}", found[at], expected[at]);
        }
    }
}

/// A computation on the emulator, whose codes are looked at when its product is asked for.
fn checked(call: &Call, operands: Operands) {
    let call = Call { precision: Precision::Fp8, ..*call };
    let (inputs, outputs) = (call.inputs[0].shape[1] as usize, call.output.shape[1] as usize);
    let reads: Vec<Vec<f32>> = operands.reads.iter().map(|read| read.to_vec()).collect();
    let weight = operands.params[0].to_vec();
    let value = |values, row, turned| Factor { values, row, turned, format: Float8::E4m3 };
    let gradient =
        |values, turned| Factor { values, row: outputs, turned, format: Float8::Saturating };
    let [a, b] = match call.kind {
        ComputationKind::Forward => {
            [value(&reads[0], inputs, false), value(&weight, inputs, false)]
        }
        ComputationKind::InputGradient => {
            [gradient(&reads[0], false), value(&weight, inputs, true)]
        }
        _ => [gradient(&reads[1], true), value(&reads[0], inputs, true)],
    };
    let products = std::cell::Cell::new(0);
    let perform = |step: &Step| {
        if let Step::Product(product) = step {
            let factors = product.fp8.expect("a product in eight bits");
            assert_eq!(factors.formats, [a.format, b.format]);
            let what = format!("{:?} of {inputs} to {outputs}", call.kind);
            a.check(&format!("{what}, a"), product.args.a, factors.backs[0]);
            b.check(&format!("{what}, b"), product.args.b, factors.backs[1]);
            products.set(products.get() + 1);
        }
        run(step, Storage::Bf16);
    };
    on_the_emulator_by(Storage::Bf16, &call, operands, &perform);
    assert_eq!(products.get(), 1);
}

fn here(call: &Call, operands: Operands) {
    cpu::launch(&Call { precision: Precision::Fp8, ..*call }, operands);
}

fn round(values: &mut [f32]) {
    values.iter_mut().for_each(|value| *value = bf16::from_f32(*value).to_f32());
}

/// The same factors: results differ by the order of sums, and by how they are stored.
#[track_caller]
fn near(what: &str, tolerance: f32, found: &[f32], expected: &[f32]) {
    let largest = expected.iter().fold(1e-30_f32, |most, x| most.max(x.abs()));
    for (i, (a, b)) in found.iter().zip(expected).enumerate() {
        let same = a.is_nan() && b.is_nan() || a == b || (a - b).abs() <= tolerance * largest;
        assert!(same, "{what} [{i}]: {a}, not {b} (largest {largest})");
    }
}

fn compare(case: &mut Case, gradient: &[f32]) {
    // Biases are added as they are stored.
    case.params.iter_mut().skip(1).for_each(|bias| round(bias));
    let what = format!("{:?}, {:?}", case.op, case.specs[0].shape);
    let expected = case.forward(&mut |call, operands| here(call, operands));
    let found = case.forward(&mut |call, operands| checked(call, operands));
    near(&what, 4e-3, &found.output, &expected.output);
    let expected_back = case.backward(&mut |c, o| here(c, o), &expected, gradient);
    let found_back = case.backward(&mut |c, o| checked(c, o), &expected, gradient);
    near(&format!("{what}: gx"), 4e-3, &found_back.inputs[0], &expected_back.inputs[0]);
    for (i, (found, expected)) in found_back.params.iter().zip(&expected_back.params).enumerate() {
        near(&format!("{what}: gradient {i}"), 1e-5, found, expected);
    }
}

#[test]
fn linear_layers() {
    if !emulator::is_there() {
        return;
    }
    for (seed, sizes) in (1..).zip(SIZES) {
        let mut case = linear(sizes, seed % 2 == 1);
        case.fill(seed);
        // Tensors of other sizes than one, as gradients are.
        let mut gradient = Noise(seed + 7).vec((sizes[0] * sizes[1] * sizes[3]) as usize);
        gradient.iter_mut().for_each(|g| *g *= 3e-6);
        round(&mut gradient);
        case.inputs[0].iter_mut().for_each(|x| *x *= 700.0);
        round(&mut case.inputs[0]);
        compare(&mut case, &gradient);
    }
}

/// All finite numbers of a format and the middles between them, times a power of two.
fn numbers<F: Format>(power: f32) -> Vec<f32> {
    let numbers: Vec<f32> = (0..=F::LARGEST).map(widen::<F>).collect();
    let middles = numbers.windows(2).map(|pair| (pair[0] + pair[1]) / 2.0);
    let all: Vec<f32> = numbers.iter().copied().chain(middles).collect();
    all.iter().flat_map(|x| [x * power, -x * power]).collect()
}

/// All codes that numbers have, as activations, weights and gradients, at several scales.
#[test]
fn every_code() {
    if !emulator::is_there() {
        return;
    }
    for power in [1.0, f32::powi(2.0, -30), f32::powi(2.0, 50)] {
        let (values, gradients) = (numbers::<E4m3>(power), numbers::<E5m2>(1.0 / power));
        let mut case = linear([1, 8, 70, 70], false);
        for tensor in case.inputs.iter_mut().chain(&mut case.params) {
            tensor.iter_mut().zip(values.iter().cycle()).for_each(|(to, from)| *to = *from);
        }
        let gradient: Vec<f32> = gradients.iter().cycle().take(560).copied().collect();
        assert!(values.len() <= 560 && gradients.len() <= 560, "all have a place");
        compare(&mut case, &gradient);
    }
}

/// A scale of 1 where there is nothing, and where something is no number, which stays none.
#[test]
fn nothing_and_what_is_no_number() {
    if !emulator::is_there() {
        return;
    }
    for odd in [0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MIN_POSITIVE, f32::MAX] {
        let mut case = linear([1, 3, 20, 5], true);
        case.fill(3);
        case.inputs[0].fill(0.0);
        case.inputs[0][23] = odd;
        let gradient: Vec<f32> = (0..15).map(|i| if i == 4 { odd } else { 0.0 }).collect();
        let found = case.forward(&mut |call, operands| checked(call, operands));
        let back = case.backward(&mut |call, operands| checked(call, operands), &found, &gradient);
        let is_odd = bf16::from_f32(odd).to_f32();
        let row = |i: usize, width: usize, all: &[f32]| all[i * width..][..width].to_vec();
        let lost = !is_odd.is_finite();
        assert_eq!(row(1, 5, &found.output).iter().all(|y| !y.is_finite()), lost, "{odd}");
        assert_eq!(row(0, 20, &back.inputs[0]).iter().all(|g| !g.is_finite()), lost, "{odd}");
        assert!(row(0, 5, &found.output).iter().all(|y| y.is_finite()), "{odd}");
        assert!(row(1, 20, &back.inputs[0]).iter().all(|g| g.is_finite()), "{odd}");
    }
}
