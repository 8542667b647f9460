//! Codecs on the emulator: the processor's messages, values and residuals, to the bit.

use crate::case::Noise;
use crate::emulator;
use crate::memory::Tensor;
use pipewright_core::compress::{CodecKind, Rounding, Scale, e5m2_sum, feedback};
use pipewright_runner::device::cuda::kernels::bulk::{
    Bucket, Piece, PieceTables, add_codes, decode, encode,
};

const ROUNDINGS: [Rounding; 3] = [Rounding::Truncate, Rounding::NearestEven, Rounding::Saturating];

fn kinds() -> Vec<CodecKind> {
    let scales = [
        Scale::None,
        Scale::PowerOfTwo,
        Scale::Percentile,
        Scale::Block(100),
        Scale::Block(10_000),
    ];
    let mut kinds = vec![CodecKind::OneBit { threshold: Default::default() }];
    kinds.extend([1, 2, 4, 8].map(|bits| CodecKind::Table { bits }));
    for scale in scales {
        kinds.push(CodecKind::Fp8E4m3 { scale });
        kinds.extend(ROUNDINGS.map(|rounding| CodecKind::Fp8E5m2 { rounding, scale }));
    }
    kinds
}

/// Pieces of these sizes, one after another.
const SIZES: [usize; 6] = [1, 31, 1000, 4099, 17, 20_000];

/// Gradients of many sizes, with zeros; those of `broken` pieces have numbers that are none.
fn values(seed: u64, broken: bool) -> Vec<f32> {
    let mut noise = Noise(seed);
    let mut values: Vec<f32> = noise.vec(SIZES.iter().sum());
    for (i, value) in values.iter_mut().enumerate() {
        *value *= [1e-5, 1.0, 3e-39, 0.0, 300.0, -1e-3, 7e4][i % 7];
    }
    if broken {
        (values[5], values[1040], values[9000]) = (f32::NAN, f32::NEG_INFINITY, f32::NAN);
    }
    values
}

fn bits(values: &[f32]) -> Vec<u32> {
    let one = |v: &f32| if v.is_nan() { f32::NAN.to_bits() } else { v.to_bits() };
    values.iter().map(one).collect()
}

fn check(kind: CodecKind, with_feedback: bool, broken: bool) {
    let what = format!("{kind:?}, feedback {with_feedback}, broken {broken}");
    let mut table = vec![];
    let (mut at, mut wire_at) = (0, 0);
    for size in SIZES {
        table.push(Piece { values: at, count: size as u64, wire: wire_at });
        at += size as u64;
        wire_at += kind
            .wire_bytes(size as u64)
            .next_multiple_of(1 + 3 * u64::from(matches!(kind, CodecKind::OneBit { .. })));
    }
    let inputs = values(3, broken);
    let before: Vec<f32> = values(4, false).iter().map(|v| v * 0.01).collect();
    let cast = |x: &[f32]| -> Tensor { Tensor::from(bytemuck::cast_slice(x)) };
    let (mut on_device, mut residual) = (cast(&inputs), cast(&before));
    let mut wire = Tensor::from(&vec![0; wire_at as usize]);
    let (mut seen, mut decoded) = (cast(&inputs), cast(&inputs));
    let tables = PieceTables::new(kind, &table);
    let (mut list, mut chunks) = (Tensor::from(&tables.pieces), Tensor::from(&tables.chunks));
    let mut scratch = Tensor::from(&vec![0xff; tables.scratch() as usize]);
    let mut bucket = Bucket {
        pieces: list.at(),
        count: tables.count,
        chunks: chunks.at(),
        chunk_count: tables.chunk_count,
        scratch: scratch.at(),
        values: on_device.at(),
        wire: wire.at(),
        decoded: seen.at(),
        ..Bucket::default()
    };
    if with_feedback {
        bucket.residual = residual.at();
    }
    encode(kind, &bucket).expect("it has kernels").iter().for_each(emulator::run);
    bucket.decoded = decoded.at();
    emulator::run(&decode(kind, &bucket, true).expect("it has a kernel"));
    let floats = |tensor: &Tensor| -> Vec<f32> { bytemuck::pod_collect_to_vec(tensor.bytes()) };
    for piece in table {
        let place = piece.values as usize..(piece.values + piece.count) as usize;
        let own = &inputs[place.clone()];
        let mut codec = kind.build(own.len()).expect("a codec");
        let mut message = vec![0; kind.wire_bytes(piece.count) as usize];
        let mut received = vec![0.0; own.len()];
        let mut left = before[place.clone()].to_vec();
        if with_feedback {
            feedback::encode(&mut *codec, own, &mut left, &mut message, &mut received)
        } else {
            codec.encode(own, &mut message)
        }
        .expect("it is encoded");
        codec.decode(&message, &mut received).expect("it is decoded");
        let got = &wire.bytes()[piece.wire as usize..][..message.len()];
        assert_eq!(got, message, "{what}: {piece:?}");
        assert_eq!(bits(&floats(&seen)[place.clone()]), bits(&received), "{what}: {piece:?}");
        let sum: Vec<f32> = own.iter().zip(&received).map(|(a, b)| a + b).collect();
        assert_eq!(bits(&floats(&decoded)[place.clone()]), bits(&sum), "{what}: {piece:?}");
        assert_eq!(bits(&floats(&residual)[place]), bits(&left), "{what}: {piece:?}");
    }
}

#[test]
fn messages_to_the_bit() {
    if !emulator::is_there() {
        return;
    }
    for kind in kinds() {
        for (with_feedback, broken) in [(false, false), (true, false), (true, true)] {
            check(kind, with_feedback, broken);
        }
    }
}

#[test]
fn sums_of_all_codes() {
    if !emulator::is_there() {
        return;
    }
    let all =
        |pick: fn(usize) -> usize| -> Vec<u8> { (0..1 << 16).map(|i| pick(i) as u8).collect() };
    let (codes, totals) = (all(|i| i >> 8), all(|i| i & 0xff));
    for rounding in ROUNDINGS {
        let kind = CodecKind::Fp8E5m2 { rounding, scale: Scale::None };
        let tables = PieceTables::new(kind, &[Piece { values: 0, count: 1 << 16, wire: 0 }]);
        let (mut list, mut chunks) = (Tensor::from(&tables.pieces), Tensor::from(&tables.chunks));
        let (mut wire, mut sums) = (Tensor::from(&codes), Tensor::from(&totals));
        let bucket = Bucket {
            pieces: list.at(),
            count: tables.count,
            chunks: chunks.at(),
            chunk_count: tables.chunk_count,
            wire: wire.at(),
            decoded: sums.at(),
            ..Bucket::default()
        };
        emulator::run(&add_codes(rounding, &bucket));
        let mut expected = totals.clone();
        e5m2_sum::add(&codes, &mut expected, rounding);
        assert_eq!(sums.bytes(), expected, "{rounding:?}");
    }
}
