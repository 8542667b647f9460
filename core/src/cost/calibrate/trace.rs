//! Links and stage times from the spans of a trace.
//!
//! The caller takes them from its timeline; here they are plain numbers.

use super::{CalibrateError, Estimate, Fit, Parameter, fit};
use crate::cost::Link;
use crate::ids::StageId;
use crate::units::{Bytes, Nanos};

/// One message of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageSample {
    /// Size.
    pub bytes: Bytes,
    /// From the send to the arrival, without waiting.
    pub time: Nanos,
}

/// One computation of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpanSample<K> {
    /// Where.
    pub stage: StageId,
    /// What, for instance forward; samples of one stage and kind are averaged.
    pub kind: K,
    /// How long.
    pub time: Nanos,
}

/// Mean and spread of one kind of computation on one stage.
#[derive(Clone, Debug, PartialEq)]
pub struct StageFit<K> {
    /// Where.
    pub stage: StageId,
    /// What.
    pub kind: K,
    /// Computations.
    pub count: u64,
    /// Mean seconds, with the standard deviation of the mean; `None` for a single one.
    pub mean: Estimate,
}

/// Latency and bandwidth from messages of several sizes.
///
/// # Errors
/// When all messages have one size: then latency and bandwidth cannot be told apart.
pub fn link(messages: &[MessageSample]) -> Result<(Link, Fit), CalibrateError> {
    let measured: Vec<f64> = messages.iter().map(|m| m.time.secs()).collect();
    let advice = "measure messages of several sizes, some below 1 KiB and some above 1 MiB";
    let slowest = measured.iter().fold(1e-9_f64, |slowest, time| slowest.max(*time));
    let largest = messages.iter().map(|m| m.bytes.0).max().unwrap_or(1).max(1) as f64;
    let quickest = measured.iter().fold(slowest, |quickest, time| quickest.min(*time));
    let per_byte = slowest / largest;
    let parameters = [
        Parameter { name: "latency", start: quickest / 2.0, low: 0.0, high: slowest, advice },
        // 1e-15: a petabyte a second is free.
        Parameter {
            name: "seconds per byte",
            start: (per_byte / 2.0).max(1e-15),
            low: 1e-15,
            high: (10.0 * per_byte).max(1e-14),
            advice,
        },
    ];
    let model = |x: &[f64]| messages.iter().map(|m| x[0] + x[1] * m.bytes.0 as f64).collect();
    let fit = fit(&parameters, &measured, model)?;
    let x = fit.values();
    Ok((Link { latency_ns: Nanos::from_secs(x[0]), bytes_per_sec: 1.0 / x[1] }, fit))
}

/// Mean time of every stage and kind, ascending. O(n log n).
///
/// # Errors
/// When there is no sample.
pub fn stages<K: Copy + Ord>(
    samples: &[SpanSample<K>],
) -> Result<Vec<StageFit<K>>, CalibrateError> {
    if samples.is_empty() {
        return Err(CalibrateError::TooFew { points: 0, parameters: 0 });
    }
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    let same = |a: &SpanSample<K>, b: &SpanSample<K>| a.stage == b.stage && a.kind == b.kind;
    Ok(sorted.chunk_by(same).map(summary).collect())
}

fn summary<K: Copy>(samples: &[SpanSample<K>]) -> StageFit<K> {
    let n = samples.len() as f64;
    let mean = samples.iter().map(|s| s.time.secs()).sum::<f64>() / n;
    let squares: f64 =
        samples.iter().map(|s| (s.time.secs() - mean) * (s.time.secs() - mean)).sum();
    let deviation = (samples.len() > 1).then(|| (squares / (n - 1.0) / n).sqrt());
    StageFit {
        stage: samples[0].stage,
        kind: samples[0].kind,
        count: samples.len() as u64,
        mean: Estimate { name: "seconds", value: mean, deviation },
    }
}
