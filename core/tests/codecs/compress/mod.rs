//! Codecs: reference vectors bit for bit, rounding depth over ranks, laws that hold for all inputs.

mod blocks;
mod depth;
mod floats;
mod golden;
mod laws;
mod one_bit;
mod sparse;
mod wire;

use pipewright_core::compress::{Codec, CodecKind};

/// What a fresh codec makes of `values`, and the bytes it used.
fn pass(kind: CodecKind, values: &[f32]) -> (Vec<f32>, Vec<u8>) {
    let mut codec = kind.build(values.len()).unwrap();
    encode(&mut *codec, values)
}

fn encode(codec: &mut dyn Codec, values: &[f32]) -> (Vec<f32>, Vec<u8>) {
    let mut wire = vec![0xa5; codec.wire_bytes(values.len() as u64) as usize];
    let used = codec.encode(values, &mut wire).unwrap();
    wire.truncate(used);
    let mut decoded = vec![7.0; values.len()];
    codec.decode(&wire, &mut decoded).unwrap();
    (decoded, wire)
}

/// ‖a - b‖₂ / ‖b‖₂.
fn relative_error(a: &[f32], b: &[f32]) -> f64 {
    let square = |x: f64| x * x;
    let off: f64 = a.iter().zip(b).map(|(a, b)| square(f64::from(*a) - f64::from(*b))).sum();
    (off / b.iter().map(|b| square(f64::from(*b))).sum::<f64>()).sqrt()
}

/// Every kind, with settings that differ.
fn kinds() -> Vec<CodecKind> {
    use pipewright_core::compress::{Rounding::*, Scale, Threshold};
    let mut kinds = vec![CodecKind::Fp32, CodecKind::Fp16, CodecKind::Bf16, CodecKind::SignNorm];
    let scales = [Scale::None, Scale::PowerOfTwo, Scale::Percentile, Scale::Block(32)];
    for scale in scales {
        kinds.push(CodecKind::Fp8E4m3 { scale });
        for rounding in [Truncate, NearestEven, Saturating] {
            kinds.push(CodecKind::Fp8E5m2 { rounding, scale });
        }
    }
    for bits in [1, 2, 4, 8] {
        kinds.extend([CodecKind::Table { bits }, CodecKind::TableMean { bits }]);
    }
    kinds.extend([2, 4, 8].map(|bits| CodecKind::CntkBits { bits }));
    let thresholds = [Threshold::Zero, Threshold::Mean];
    kinds.extend(thresholds.map(|threshold| CodecKind::OneBit { threshold }));
    kinds.extend([None, Some(64)].map(|block| CodecKind::Int8 { block }));
    kinds.extend([None, Some(0.9)].map(|momentum| CodecKind::TopK { one_in: 10, momentum }));
    kinds.extend([1, 4].map(|rank| CodecKind::PowerSgd { rank }));
    kinds
}
