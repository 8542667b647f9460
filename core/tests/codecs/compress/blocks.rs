//! Tables of magnitudes and bytes between extremes.

use super::golden::{bits, file, hex, integers, list, numbers};
use super::{pass, relative_error};
use pipewright_core::compress::CodecKind;
use serde_json::Value;

/// Codes of `bits` bits, the first in the lowest.
fn codes(wire: &[u8], bits: usize, count: usize) -> Vec<u8> {
    let mask = ((1u32 << bits) - 1) as u8;
    (0..count).map(|i| wire[i * bits / 8] >> (i * bits % 8) & mask).collect()
}

/// The cases, each with its sample, which the file holds once for each distribution.
fn table_cases() -> Vec<(Value, Vec<f32>)> {
    let mut sample = Vec::new();
    let cases = list(&file("table_n.json")["cases"]).to_vec();
    let of = |case: Value| {
        if case["sample_bits"].is_array() {
            sample = bits(&case["sample_bits"]);
        }
        (case, sample.clone())
    };
    cases.into_iter().map(of).collect()
}

#[test]
fn tables() {
    for (case, sample) in table_cases() {
        let bits_each = case["N"].as_u64().unwrap() as u8;
        let what = format!("{} N={bits_each}", case["dist"]);
        let (decoded, wire) = pass(CodecKind::Table { bits: bits_each }, &sample);
        let expected = numbers(&case["magnitudes_linear"]);
        let (head, packed) = wire.split_at(4 * expected.len());
        for (bytes, expected) in head.chunks_exact(4).zip(&expected) {
            let got = f64::from(f32::from_le_bytes(bytes.try_into().unwrap()));
            assert!((got - expected).abs() <= 1e-6 * expected, "{what}: {got}, not {expected}");
        }
        let codes = codes(packed, usize::from(bits_each), 256);
        let split = |code: &u8| {
            (u32::from(code & !(1 << (bits_each - 1))), u32::from(code >> (bits_each - 1)))
        };
        let (indices, signs): (Vec<u32>, Vec<u32>) = codes.iter().map(split).unzip();
        assert_eq!(indices, integers(&case["index_of_first_256"]), "{what}");
        assert_eq!(signs, integers(&case["sign_of_first_256"]), "{what}");
        let error = relative_error(&decoded[..256], &sample[..256]);
        let expected = case["rel_l2_error_first_256"].as_f64().unwrap();
        assert!((error - expected).abs() < 1e-5, "{what}: error {error}, not {expected}");
    }
}

/// Many values take the look-up, few the search by halves: same codes, as long as the sample is one.
#[test]
fn large_tables_have_the_nearest_magnitude_too() {
    let values: Vec<f32> = (0..50_000u32)
        .map(|i| (f64::from(i.wrapping_mul(2_654_435_761)) / 4e9 - 0.5).powi(5) as f32)
        .collect();
    // Repeated magnitudes put many borders into one cell: the search by halves again.
    let few: Vec<f32> =
        values.iter().map(|v| if *v > 0.0 { 1.0 } else { *v * 1e-6 - 1.0 }).collect();
    let cases = [(&values, 8), (&values, 4), (&few, 8), (&few, 4)];
    for (values, bits) in cases {
        let (decoded, wire) = pass(CodecKind::Table { bits }, values);
        let magnitudes: Vec<f32> = wire[..4 << (bits - 1)]
            .chunks_exact(4)
            .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
            .collect();
        for (value, decoded) in values.iter().zip(decoded) {
            let off = |m: f32| (f64::from(value.abs()) - f64::from(m)).abs();
            let least = magnitudes.iter().copied().map(off).fold(f64::INFINITY, f64::min);
            assert_eq!(off(decoded.abs()), least, "{value} became {decoded}");
            assert_eq!(value.is_sign_negative(), decoded.is_sign_negative());
        }
    }
}

#[test]
fn means_keep_the_size_that_percentiles_inflate() {
    for (case, sample) in table_cases() {
        let bits_each = case["N"].as_u64().unwrap() as u8;
        let size = |values: &[f32]| values.iter().map(|v| f64::from(v.abs())).sum::<f64>();
        let (percentiles, _) = pass(CodecKind::Table { bits: bits_each }, &sample);
        let (means, _) = pass(CodecKind::TableMean { bits: bits_each }, &sample);
        let kept = size(&means) / size(&sample);
        assert!((kept - 1.0).abs() < 1e-5, "{kept}");
        assert!(relative_error(&means, &sample) <= relative_error(&percentiles, &sample));
        if bits_each == 1 {
            assert!(size(&percentiles) / size(&sample) > 2.0, "three times for a normal gradient");
        }
    }
}

#[test]
fn bagua_bytes() {
    for case in list(&file("bagua_minmax_uint8.json")["cases"]) {
        let values = bits(&case["input_bits"]);
        let (decoded, wire) = pass(CodecKind::Int8 { block: None }, &values);
        assert_eq!(wire[..4], case["min_bits"].as_u64().unwrap().to_le_bytes()[..4]);
        assert_eq!(wire[4..8], case["max_bits"].as_u64().unwrap().to_le_bytes()[..4]);
        let below = case["n_below_zero_before_cast"].as_u64().unwrap();
        let (mut off, golden) = (0, hex(&case["codes_hex"]));
        for (code, expected) in wire[8..].iter().zip(&golden) {
            // Bagua's own cast brings -1 to 255 or to 0, as the compiler likes; here it is 0.
            off += u64::from(code != expected && !(*code == 0 && below > 0));
        }
        assert_eq!(off, 0, "{}", case["name"]);
        for ((got, expected), code) in
            decoded.iter().zip(bits(&case["decoded_bits"])).zip(&wire[8..])
        {
            let step = (f32::from_bits(case["scale_bits"].as_u64().unwrap() as u32)).recip();
            let tolerance = if *code == 0 && below > 0 { step } else { 0.0 };
            assert!((got - expected).abs() <= tolerance, "{}: {got}, not {expected}", case["name"]);
        }
    }
}

#[test]
fn blocks_follow_the_size_of_their_values() {
    let values: Vec<f32> = (0..640).map(|i| (i % 64) as f32 * 10f32.powi(i / 64 - 6)).collect();
    for kind in [
        CodecKind::Int8 { block: Some(64) },
        CodecKind::Fp8E4m3 { scale: pipewright_core::compress::Scale::Block(64) },
    ] {
        let (decoded, _) = pass(kind, &values);
        for block in 0..10 {
            let range = block * 64..(block + 1) * 64;
            let error = relative_error(&decoded[range.clone()], &values[range]);
            assert!(error < 0.04, "{kind}, block {block}: {error}");
        }
    }
    let whole = pass(CodecKind::Int8 { block: None }, &values).0;
    assert!(relative_error(&whole[..64], &values[..64]) > 0.5, "small values drown in one range");
}
