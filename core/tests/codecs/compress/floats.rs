//! Short floats against ml_dtypes, gfloat and numpy.

use super::golden::{file, hex, integers, large_file, list, same};
use pipewright_core::compress::narrow::{
    E4m3, E5m2, Half, e5m2_truncated, from_bf16, half_to_e5m2_truncated, narrow, narrow_finite,
    narrow_saturating, to_bf16, widen,
};
use pipewright_core::compress::{Rounding, e5m2_sum};

fn is_nan_e5m2(code: u8) -> bool {
    code & 0x7f > 0x7c
}

/// Half `h` in single precision.
fn half(h: u32) -> f32 {
    widen::<Half>(h)
}

#[test]
fn all_halves_to_e5m2() {
    let Some(golden) = large_file("half_to_e5m2.json") else { return };
    type Convert = fn(u32) -> u8;
    let columns: [(&str, Convert); 3] = [
        ("rne", |h| narrow::<E5m2>(half(h)) as u8),
        ("rne_saturating", |h| narrow_saturating::<E5m2>(half(h)) as u8),
        ("truncate", |h| half_to_e5m2_truncated(h as u16)),
    ];
    for (name, convert) in columns {
        let rows = hex(&golden[name]["rows"]);
        assert_eq!(rows.len(), 65536);
        for (h, expected) in (0..).zip(rows) {
            let code = convert(h);
            if h & 0x7fff > 0x7c00 {
                assert!(is_nan_e5m2(code), "{name} of NaN {h:#06x}: {code:#04x}");
                assert_eq!(code >> 7, (h >> 15) as u8, "the sign of NaN");
            } else {
                assert_eq!(code, expected, "{name} of {h:#06x}");
            }
        }
    }
}

#[test]
fn through_single_precision_truncation_is_the_same() {
    for h in 0..=0xffff {
        let direct = half_to_e5m2_truncated(h as u16);
        let code = e5m2_truncated(half(h)) as u8;
        assert!(code == direct || is_nan_e5m2(code) && is_nan_e5m2(direct), "{h:#06x}");
    }
}

#[test]
fn infinity_never_becomes_a_number_in_a_codec() {
    for sign in [1.0f32, -1.0] {
        assert!(widen::<E5m2>(narrow_finite::<E5m2>(sign * f32::INFINITY)).is_infinite());
        assert!(widen::<E4m3>(narrow_finite::<E4m3>(sign * f32::INFINITY)).is_nan());
        assert_eq!(widen::<E5m2>(narrow_finite::<E5m2>(sign * 1e9)), sign * 57344.0);
        assert_eq!(widen::<E4m3>(narrow_finite::<E4m3>(sign * 1e9)), sign * 448.0);
    }
}

#[test]
fn all_halves_to_e4m3() {
    for (h, expected) in (0..).zip(hex(&file("half_to_e4m3fn.json")["rne"]["rows"])) {
        let code = narrow::<E4m3>(half(h)) as u8;
        let both_nan = code & expected & 0x7f == 0x7f;
        assert!(code == expected || both_nan, "{h:#06x}: {code:#04x}, not {expected:#04x}");
    }
}

#[test]
fn all_codes_decode_exactly() {
    let golden = file("fp8_decode.json");
    type Widen = fn(u32) -> f32;
    let formats: [(&str, Widen); 2] = [("e5m2", widen::<E5m2>), ("e4m3fn", widen::<E4m3>)];
    for (name, widen) in formats {
        for row in list(&golden[name]) {
            let code = row[0].as_u64().unwrap() as u32;
            let expected = f32::from_bits(row[2].as_u64().unwrap() as u32);
            same(widen(code), expected, &format!("{name} {code:#04x}"));
        }
    }
}

#[test]
fn single_precision_to_all_formats() {
    let golden = file("f32_conversions.json");
    let (mut rows, mut twice) = (0, 0);
    for row in list(&golden["rows"]) {
        let row = integers(row);
        let value = f32::from_bits(row[0]);
        let codes = [
            narrow::<Half>(value),
            u32::from(to_bf16(value)),
            narrow::<E5m2>(value),
            narrow::<E5m2>(half(narrow::<Half>(value))),
            e5m2_truncated(value),
            narrow::<E4m3>(value),
        ];
        rows += 1;
        twice += usize::from(codes[2] != codes[3]);
        if value.is_nan() {
            assert!(half(codes[0]).is_nan() && from_bf16(codes[1] as u16).is_nan());
            assert!(codes[2..5].iter().all(|code| is_nan_e5m2(*code as u8)));
            assert_eq!(codes[5] & 0x7f, 0x7f);
        } else {
            assert_eq!(codes[..], row[1..], "{value:e} = {:#010x}", row[0]);
        }
    }
    assert_eq!((rows, twice), (4112, 25), "rows, and those that double rounding changes");
}

#[test]
fn halves_and_bfloats_survive() {
    for code in 0..=0xffff_u32 {
        let (h, b) = (half(code), from_bf16(code as u16));
        assert!(h.is_nan() || narrow::<Half>(h) == code, "half {code:#06x}");
        assert!(b.is_nan() || u32::from(to_bf16(b)) == code, "bfloat16 {code:#06x}");
    }
}

#[test]
fn sums_of_all_codes() {
    let Some(golden) = large_file("e5m2_add.json") else { return };
    for (name, rounding) in [
        ("half_add_then_truncate", Rounding::Truncate),
        ("half_add_then_rne", Rounding::NearestEven),
        ("exact_add_then_rne", Rounding::NearestEven),
    ] {
        let rows = hex(&golden[name]["rows"]);
        assert_eq!(rows.len(), 65536);
        for (pair, expected) in (0..=u16::MAX).zip(rows) {
            let [a, b] = pair.to_be_bytes();
            assert_eq!(e5m2_sum::sum(a, b, rounding), expected, "{name}: {a:#04x} + {b:#04x}");
        }
    }
}
