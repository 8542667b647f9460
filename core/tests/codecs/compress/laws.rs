//! Laws of every codec, for every input.

use super::{encode, kinds, pass};
use pipewright_core::compress::feedback::ErrorFeedback;
use pipewright_core::compress::{Codec, CodecKind, Method, Threshold};
use proptest::collection::vec;
use proptest::prelude::*;

/// Gradients as they come: some zero, some tiny, a few large.
fn value() -> impl Strategy<Value = f32> {
    prop_oneof![
        8 => -1e-2f32..1e-2,
        2 => Just(0.0f32),
        1 => Just(-0.0f32),
        1 => -10.0f32..10.0,
        1 => -1e-9f32..1e-9,
    ]
}

fn kind() -> impl Strategy<Value = CodecKind> {
    proptest::sample::select(kinds())
}

/// One unit in the last place of `size`.
fn unit(size: f32) -> f64 {
    f64::from(size.next_up()) - f64::from(size)
}

fn residual_of(codec: &mut dyn Codec) -> Vec<f32> {
    let mut residual = Vec::new();
    codec.visit_state(&mut |name, tensor| {
        if name == "residual" {
            residual = tensor.to_vec();
        }
    });
    residual
}

/// Of an embedding's gradient hardly more than one value in a hundred may not be zero, so that the 99th
/// percentile says nothing of the others.
#[test]
fn scales_by_percentiles_let_nothing_overflow() {
    let sizes = [(0.5, 0.5), (6.2e-3, 8.5), (1e-12, 1e-3), (1e-30, 3e30), (1e-38, f32::MAX / 2.0)];
    for kind in kinds().into_iter().filter(|kind| kind.to_string().contains("percentile")) {
        for (small, large) in sizes {
            let mut values = vec![0f32; 100];
            (values[21], values[99]) = (small, -large);
            let (decoded, _) = pass(kind, &values);
            assert!(decoded.iter().all(|v| v.is_finite()), "{kind}: {small} beside {large}");
            assert!(decoded[99] < 0.0, "{kind}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn residual_and_decoded_make_the_input(
        kind in kind(),
        steps in vec(vec(value(), 150), 3),
    ) {
        let mut codec = Method { codec: kind, feedback: true }.build(150).unwrap();
        let mut before = vec![0f32; 150];
        for values in steps {
            let (decoded, _) = encode(&mut *codec, &values);
            let residual = residual_of(&mut *codec);
            for i in 0..150 {
                let input = values[i] + before[i];
                let off = (f64::from(residual[i]) + f64::from(decoded[i]) - f64::from(input)).abs();
                let size = input.abs().max(decoded[i].abs()).max(residual[i].abs());
                prop_assert!(off <= unit(size), "{kind}: {} + {} is not {input}", residual[i], decoded[i]);
            }
            before = residual;
        }
    }

    #[test]
    fn what_is_not_finite_stays_so(
        kind in kind(),
        mut values in vec(value(), 1..300),
        at in any::<prop::sample::Index>(),
        bad in prop::sample::select(vec![f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY]),
    ) {
        let at = at.index(values.len());
        let finite = values.clone();
        values[at] = bad;
        let (decoded, _) = pass(kind, &values);
        prop_assert!(!decoded[at].is_finite(), "{kind}: {bad} became {}", decoded[at]);

        let mut codec = Method { codec: kind, feedback: true }.build(values.len()).unwrap();
        encode(&mut *codec, &finite);
        let before = residual_of(&mut *codec);
        let (decoded, _) = encode(&mut *codec, &values);
        prop_assert!(!decoded[at].is_finite());
        prop_assert_eq!(residual_of(&mut *codec), before, "a bad step leaves the residual");
        let (decoded, _) = encode(&mut *codec, &finite);
        prop_assert!(decoded.iter().all(|v| v.is_finite()), "{}: one bad step is one step", kind);
    }

    #[test]
    fn sizes_are_known_beforehand(kind in kind(), values in vec(value(), 0..2000)) {
        let count = values.len() as u64;
        let known = kind.build(values.len()).unwrap().wire_bytes(count);
        let (_, wire) = pass(kind, &values);
        prop_assert_eq!(known, kind.wire_bytes(count));
        if let CodecKind::TopK { .. } = kind {
            prop_assert!(wire.len() as u64 <= known);
        } else {
            prop_assert_eq!(wire.len() as u64, known);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        kind in kind(),
        mut bytes in vec(any::<u8>(), 0..700),
        count in 0usize..300,
        fit in any::<bool>(),
    ) {
        let codec = kind.build(count).unwrap();
        if fit {
            bytes.resize(codec.wire_bytes(count as u64) as usize, 0x3c);
        }
        let mut values = vec![0.0; count];
        let result = codec.decode(&bytes, &mut values);
        if !fit && bytes.len() as u64 > kind.wire_bytes(count as u64) {
            prop_assert!(result.is_err(), "{kind}: bytes too many");
        }
    }

    #[test]
    fn cut_messages_and_short_buffers_are_errors(
        kind in kind(),
        values in vec(value(), 1..300),
        cut in 1usize..20,
    ) {
        let (_, wire) = pass(kind, &values);
        let codec = kind.build(values.len()).unwrap();
        let mut decoded = values.clone();
        let short = &wire[..wire.len().saturating_sub(cut)];
        prop_assert!(codec.decode(short, &mut decoded).is_err(), "{kind}");
        let mut codec = Method { codec: kind, feedback: true }.build(values.len()).unwrap();
        let mut space = vec![0; codec.wire_bytes(values.len() as u64) as usize - 1];
        let error = codec.encode(&values, &mut space).unwrap_err();
        prop_assert!(error.to_string().contains("larger"), "{error}");
        prop_assert!(residual_of(&mut *codec).iter().all(|r| *r == 0.0));
    }

    #[test]
    fn one_bit_is_a_thirty_first(count in 262_144u64..1 << 34) {
        for kind in [CodecKind::OneBit { threshold: Threshold::Zero }, CodecKind::SignNorm] {
            prop_assert!(31 * kind.wire_bytes(count) <= 4 * count, "{kind} of {count}");
        }
    }

    #[test]
    fn encoding_twice_gives_the_same_bytes(kind in kind(), values in vec(value(), 1..600)) {
        prop_assert_eq!(pass(kind, &values).1, pass(kind, &values).1);
    }
}

/// Over many steps nothing is lost but the last residual.
#[test]
fn feedback_delivers_the_mean() {
    const STEPS: usize = 1000;
    for kind in kinds() {
        let count = 96;
        let codec = kind.build(count).unwrap();
        let mut codec = ErrorFeedback::new(codec, count);
        let (mut given, mut got, mut rounding) = (vec![0f64; count], vec![0f64; count], 0.0);
        for step in 0..STEPS {
            let value = |i: usize| {
                let noise = ((i * 7919 + step * 104_729) % 1009) as f32 / 1009.0 - 0.5;
                1e-2 * noise + 1e-3 * (i as f32 - 48.0) / 48.0
            };
            let values: Vec<f32> = (0..count).map(value).collect();
            let (decoded, _) = encode(&mut codec, &values);
            let mut largest = 0f32;
            for i in 0..count {
                given[i] += f64::from(values[i]);
                got[i] += f64::from(decoded[i]);
                largest = largest.max(decoded[i].abs()).max(codec.residual()[i].abs());
            }
            rounding += unit(largest);
        }
        if let CodecKind::TopK { momentum: Some(_), .. } = kind {
            continue; // sends momenta, which are not the values
        }
        for i in 0..count {
            let off = (given[i] - got[i]).abs() / STEPS as f64;
            let residual = f64::from(codec.residual()[i].abs());
            let bound = (residual + rounding) / STEPS as f64;
            assert!(off <= bound, "{kind}: means differ by {off:e}, residual {residual:e}");
            assert!(residual < 10.0, "{kind}: the residual grows: {residual}");
        }
    }
}
