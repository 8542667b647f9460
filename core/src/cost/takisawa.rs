//! The closed-form pipeline model of Takisawa, Yazaki, Ishihata 2022, section 6.
//!
//! | symbol | meaning |
//! |---|---|
//! | m | micro-batches of a mini-batch |
//! | d | stages |
//! | t_comp | time of the undivided mini-batch on one process |
//! | t0, bw | start-up time and bandwidth of a message |
//!
//! Known limit: equation 3 has no time that is constant per micro-batch, so it promises too much
//! for large m; [`stage_time`] adds it (overhead of every layer and micro-batch).

use super::Link;
use crate::units::{Bytes, Nanos};

/// Equation 1: time of one message, `t0 + bytes / bw`.
pub fn t_comm(link: &Link, bytes: Bytes) -> Nanos {
    link.time(bytes)
}

/// Equation 2: compute time of a pipelined mini-batch, `(m + d - 1) / m * t_comp / d`.
pub fn t_pipe(m: u64, d: u64, t_comp: f64) -> f64 {
    (m + d - 1) as f64 / m as f64 * t_comp / d as f64
}

/// Equation 3: compute and communication, `t_pipe + (m + d - 2) t_comm(bs / m)`.
pub fn t_total(m: u64, d: u64, t_comp: f64, t_comm: f64) -> f64 {
    t_pipe(m, d, t_comp) + (m + d - 2) as f64 * t_comm
}

/// One stage's share of one micro-batch with the constant that equation 3 lacks:
/// `layers / d * (t_comp / (layers m) + k)`, with `k` seconds per layer and micro-batch.
pub fn stage_time(m: u64, d: u64, t_comp: f64, layers: u64, k: f64) -> f64 {
    layers as f64 / d as f64 * (t_comp / (layers * m) as f64 + k)
}

/// Equation 3 with [`stage_time`]: `(m + d - 1) stage_time + (m + d - 2) t_comm`.
pub fn t_total_with_overhead(m: u64, d: u64, t_comp: f64, t_comm: f64, layers: u64, k: f64) -> f64 {
    (m + d - 1) as f64 * stage_time(m, d, t_comp, layers, k) + (m + d - 2) as f64 * t_comm
}

/// A point of Fig. 7: speed-up over one process with an undivided mini-batch, at the best m.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredSpeedup {
    /// Processes.
    pub d: u64,
    /// Micro-batches at which the speed-up was largest.
    pub m: u64,
    /// The speed-up.
    pub speedup: f64,
}

/// The measured points of Fig. 7: 32 fully connected layers of width 5,000, mini-batch 1,200,
/// Reedbush-L.
pub const FIG7: [MeasuredSpeedup; 5] = [
    MeasuredSpeedup { d: 2, m: 5, speedup: 1.34 },
    MeasuredSpeedup { d: 4, m: 5, speedup: 1.93 },
    MeasuredSpeedup { d: 8, m: 20, speedup: 2.7 },
    MeasuredSpeedup { d: 16, m: 20, speedup: 3.49 },
    MeasuredSpeedup { d: 32, m: 20, speedup: 3.72 },
];

#[cfg(test)]
mod tests {
    use super::*;

    /// One parameter set, in units of the one-process time; found by least squares over [`FIG7`].
    const K: f64 = 0.00142;
    const T0: f64 = 0.00094;
    const B: f64 = 0.0329;

    #[test]
    fn equation_3_with_the_overhead_gives_every_measured_speedup() {
        for point in FIG7 {
            let t_comm = T0 + B / point.m as f64;
            let time = t_total_with_overhead(point.m, point.d, 1.0, t_comm, 32, K);
            // One process, undivided: no message, but the overhead of 32 layers.
            let alone = t_total_with_overhead(1, 1, 1.0, 0.0, 32, K);
            let speedup = alone / time;
            let error = speedup / point.speedup - 1.0;
            assert!(error.abs() < 0.01, "d = {}: {speedup:.3}, off by {error:.4}", point.d);
        }
    }

    #[test]
    fn equation_2_alone_promises_far_too_much() {
        let ideal = 1.0 / t_pipe(20, 32, 1.0);
        assert!((ideal / 3.72 - 1.0 - 2.37).abs() < 0.01, "{ideal}");
    }

    #[test]
    fn without_overhead_the_corrected_equation_is_equation_3() {
        let (a, b) = (t_total(5, 4, 2.0, 0.1), t_total_with_overhead(5, 4, 2.0, 0.1, 32, 0.0));
        assert!((a - b).abs() < 1e-12);
    }
}
