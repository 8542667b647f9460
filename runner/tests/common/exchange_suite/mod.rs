//! Conformance of sums of encoded gradients, on every transport. A case is run by all ranks at once and
//! panics on the rank that sees something wrong. `training/exchange_local.rs` and `mpi/exchange.rs` run the
//! same cases.

pub mod hosts;
pub mod reference;
pub mod steps;

use pipewright_core::compress::{
    Algorithm, CodecKind, Method, Reduction, Rounding, Scale, Threshold,
};
use pipewright_runner::exchange::{BucketSpec, Exchange};
use pipewright_runner::transport::Transport;
use std::ops::Range;

/// A case: all ranks call it, and all return.
pub type Case = fn(&mut dyn Transport);

/// Cases that leave the transport fit for the next one.
pub const CASES: &[(&str, Case)] = &[
    ("every_codec_equals_the_reference", steps::every_codec_equals_the_reference),
    ("the_operator_adds_codes", steps::the_operator_adds_codes),
    ("codecs_change_and_residuals_stay", steps::codecs_change_and_residuals_stay),
    ("buckets_under_way_together", steps::buckets_under_way_together),
    ("plain_sums_are_the_transport_s", steps::plain_sums_are_the_transport_s),
    ("what_is_not_a_number_stays_none", steps::what_is_not_a_number_stays_none),
    ("one_bit_is_a_thirty_first", steps::one_bit_is_a_thirty_first),
    ("hosts_sum_first", hosts::hosts_sum_first),
    ("memory_is_what_the_formula_says", hosts::memory_is_what_the_formula_says),
];

/// E5M2 with a power of two as scale.
pub const FP8: CodecKind =
    CodecKind::Fp8E5m2 { rounding: Rounding::NearestEven, scale: Scale::PowerOfTwo };

/// CNTK's one bit.
pub const ONE_BIT: CodecKind = CodecKind::OneBit { threshold: Threshold::Zero };

/// All codecs that sums can have.
pub fn codecs() -> Vec<CodecKind> {
    let e5m2 = |rounding, scale| CodecKind::Fp8E5m2 { rounding, scale };
    vec![
        CodecKind::Fp16,
        CodecKind::Bf16,
        FP8,
        e5m2(Rounding::Truncate, Scale::None),
        e5m2(Rounding::Saturating, Scale::Percentile),
        e5m2(Rounding::NearestEven, Scale::Block(100)),
        CodecKind::Fp8E4m3 { scale: Scale::PowerOfTwo },
        CodecKind::Table { bits: 1 },
        CodecKind::Table { bits: 4 },
        CodecKind::TableMean { bits: 2 },
        ONE_BIT,
        CodecKind::OneBit { threshold: Threshold::Mean },
        CodecKind::CntkBits { bits: 4 },
        CodecKind::SignNorm,
        CodecKind::Int8 { block: None },
        CodecKind::Int8 { block: Some(64) },
        CodecKind::TopK { one_in: 50, momentum: None },
    ]
}

/// The operator's settings.
pub fn operators() -> Vec<Reduction> {
    let settings = [(Rounding::Truncate, Scale::None), (Rounding::NearestEven, Scale::PowerOfTwo)];
    let operator = |(rounding, scale), feedback| Reduction {
        method: Method { codec: CodecKind::Fp8E5m2 { rounding, scale }, feedback },
        algorithm: Algorithm::Operator,
    };
    settings.iter().flat_map(|s| [false, true].map(|feedback| operator(*s, feedback))).collect()
}

/// Tensors of several sizes, with places between them that are nobody's, larger together than
/// a chunk a rank.
pub fn tensors() -> Vec<Range<usize>> {
    vec![0..150_000, 150_016..150_080, 150_080..150_081, 150_144..290_000, 290_000..290_007]
}

pub const LEN: usize = 290_010;

/// Values of a rank in a step, of very different sizes in different tensors; about normal.
pub fn gradient(rank: u32, step: u32, len: usize) -> Vec<f32> {
    let seed = u64::from(rank + 1) << 32 | u64::from(step + 1);
    // SplitMix64: no number waits for the one before it.
    let bits = |at: usize| {
        let x = seed
            .wrapping_mul(len as u64)
            .wrapping_add(at as u64)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    };
    let uniform = |bits: u64| (bits & 0xffff) as f32 / (1 << 16) as f32 - 0.5;
    let size = |at: usize| if at < 150_050 { 1e-3 } else { 10.0 };
    let sum = |bits: u64| (0..4).map(|i| uniform(bits >> (16 * i))).sum::<f32>();
    (0..len).map(|at| size(at) * sum(bits(at))).collect()
}

/// A bucket of all ranks.
pub fn everybody(t: &dyn Transport, reductions: Vec<Reduction>) -> BucketSpec {
    BucketSpec { group: (0..t.ranks()).collect(), tensors: tensors(), len: LEN, reductions }
}

/// Sums a bucket and waits for it.
pub fn sum(exchange: &mut Exchange, bucket: usize, reduction: usize, values: &mut [f32]) {
    // SAFETY: `values` are ours alone until they were waited for; an error ends the test.
    unsafe { exchange.start(bucket, reduction, values) }.unwrap();
    exchange.wait(bucket).unwrap();
}
