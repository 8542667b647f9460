//! Writes what was found. `sequence` is the list of computations, in order, with repetitions;
//! values are dropped right after their last use before they are computed again.

use crate::recompute::Cost;
use serde::Serialize;

/// The format of one sequence.
pub const SEQUENCE_FORMAT: &str = "recompute-sequence/1";

/// The format of a front.
pub const FRONT_FORMAT: &str = "recompute-front/1";

/// One sequence.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SequenceFile<'a> {
    /// [`SEQUENCE_FORMAT`].
    pub format: &'static str,
    /// The model's name.
    pub model: &'a str,
    /// Bytes that were allowed.
    pub budget_bytes: u64,
    /// Bytes without recomputation.
    pub peak_without_bytes: u64,
    /// Microseconds without recomputation.
    pub time_without_us: f64,
    /// Bytes that every sequence needs at least.
    pub bound_bytes: u64,
    /// What it needs, and what it computes.
    #[serde(flatten)]
    pub point: PointRecord<'a>,
}

/// All trade-offs between memory and time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FrontFile<'a> {
    /// [`FRONT_FORMAT`].
    pub format: &'static str,
    /// The model's name.
    pub model: &'a str,
    /// Bytes without recomputation.
    pub peak_without_bytes: u64,
    /// Microseconds without recomputation.
    pub time_without_us: f64,
    /// Bytes that every sequence needs at least.
    pub bound_bytes: u64,
    /// From the least memory to the least time.
    pub points: Vec<PointRecord<'a>>,
}

/// What one sequence needs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PointRecord<'a> {
    /// Most bytes at one moment.
    pub peak_bytes: u64,
    /// Microseconds of all computations.
    pub time_us: f64,
    /// Peak in percent of that without recomputation.
    pub memory_pct: f64,
    /// Time in percent of that without recomputation.
    pub time_pct: f64,
    /// Microseconds that no sequence within that peak goes below, where they are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound_time_us: Option<f64>,
    /// The computations, where they are wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<&'a [u32]>,
}

impl<'a> PointRecord<'a> {
    /// What a sequence needs beside what is needed `without` recomputation.
    pub fn new(cost: Cost, without: Cost, sequence: Option<&'a [u32]>) -> Self {
        // Graphs whose values have no bytes, or whose nodes take no time, have nothing to compare.
        let percent =
            |part: f64, whole: f64| if whole > 0.0 { 100.0 * part / whole } else { 100.0 };
        Self {
            peak_bytes: cost.peak,
            time_us: cost.time,
            memory_pct: percent(cost.peak as f64, without.peak as f64),
            time_pct: percent(cost.time, without.time),
            bound_time_us: None,
            sequence,
        }
    }
}

impl SequenceFile<'_> {
    /// The file's text.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("plain data")
    }
}

impl FrontFile<'_> {
    /// The file's text.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("plain data")
    }
}
