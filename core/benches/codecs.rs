//! Speed of codecs on one core, in bytes of single precision a second, and as a share of what
//! copying the same bytes takes in the same run. `cargo bench -p pipewright-core --bench codecs`.

use pipewright_core::compress::{CodecKind, Method, Rounding, Scale, Threshold};
use std::time::Instant;

/// Seconds of one `work`: best of `times`.
fn best(times: u32, mut work: impl FnMut()) -> f64 {
    let time = |work: &mut dyn FnMut()| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    };
    (0..times).map(|_| time(&mut work)).fold(f64::INFINITY, f64::min)
}

/// About normal: sums of twelve uniform numbers.
fn gradient(values: usize) -> Vec<f32> {
    let mut state = 1u64;
    let mut uniform = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 24) as f32 - 0.5
    };
    (0..values).map(|_| (0..12).map(|_| uniform()).sum::<f32>() * 1e-2).collect()
}

fn row(method: Method, values: &[f32], bar: Option<f64>) {
    let bytes = (4 * values.len()) as f64;
    let mut copied = vec![0f32; values.len()];
    let copy = best(20, || copied.copy_from_slice(std::hint::black_box(values)));
    let mut codec = method.build(values.len()).expect("settings are right");
    let mut wire = vec![0; codec.wire_bytes(values.len() as u64) as usize];
    let mut used = 0;
    let encode = best(20, || used = codec.encode(values, &mut wire).expect("the buffer is large"));
    let wire = &wire[..used];
    let decode = best(20, || codec.decode(wire, &mut copied).expect("its own message"));
    let speed = |seconds: f64| {
        format!("{:>6.2} GB/s ({:>3.0} %)", bytes / seconds / 1e9, 100.0 * copy / seconds)
    };
    let bar = bar.map_or(String::new(), |bar| {
        let good = bytes / encode.max(decode) >= bar * 1e9;
        format!("  bar {bar}: {}", if good { "reached" } else { "MISSED" })
    });
    println!(
        "{:<28} wire {:>5.1} %  encode {}  decode {}{bar}",
        method.to_string(),
        100.0 * used as f64 / bytes,
        speed(encode),
        speed(decode),
    );
}

fn main() {
    for mebibytes in [1, 16] {
        let values = gradient(mebibytes << 18);
        println!("{mebibytes} MiB of single precision; in brackets: share of a copy's speed");
        let none = |codec| Method { codec, feedback: false };
        for (rounding, scale) in [
            (Rounding::Truncate, Scale::None),
            (Rounding::NearestEven, Scale::None),
            (Rounding::NearestEven, Scale::PowerOfTwo),
            (Rounding::Saturating, Scale::Percentile),
            (Rounding::NearestEven, Scale::Block(256)),
        ] {
            row(none(CodecKind::Fp8E5m2 { rounding, scale }), &values, Some(4.0));
        }
        row(none(CodecKind::Fp8E4m3 { scale: Scale::PowerOfTwo }), &values, Some(4.0));
        for threshold in [Threshold::Zero, Threshold::Mean] {
            row(none(CodecKind::OneBit { threshold }), &values, Some(4.0));
        }
        row(none(CodecKind::SignNorm), &values, Some(4.0));
        for bits in [1, 2, 4, 8] {
            row(none(CodecKind::Table { bits }), &values, Some(2.0));
            row(none(CodecKind::TableMean { bits }), &values, Some(2.0));
        }
        for codec in [
            CodecKind::Fp32,
            CodecKind::Fp16,
            CodecKind::Bf16,
            CodecKind::CntkBits { bits: 4 },
            CodecKind::Int8 { block: None },
            CodecKind::Int8 { block: Some(256) },
            CodecKind::TopK { one_in: 1000, momentum: None },
            CodecKind::TopK { one_in: 1000, momentum: Some(0.9) },
            CodecKind::PowerSgd { rank: 4 },
        ] {
            row(none(codec), &values, None);
        }
        let threshold = Threshold::Zero;
        row(Method { codec: CodecKind::OneBit { threshold }, feedback: true }, &values, None);
    }
}
