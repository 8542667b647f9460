//! Throughput that a device and its software reach on transformers.

use pipewright_core::cost::collective::Channel;
use pipewright_core::cost::{ClusterError, Link};
use pipewright_core::units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

/// A link in seconds, which a fit can move by less than a nanosecond.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wire {
    /// Seconds to start a message.
    pub latency: f64,
    /// Bandwidth.
    pub bytes_per_sec: f64,
}

impl From<Wire> for Channel {
    fn from(wire: Wire) -> Self {
        Self { alpha: wire.latency, beta: 1.0 / wire.bytes_per_sec, gamma: 0.0 }
    }
}

impl From<Wire> for Link {
    fn from(wire: Wire) -> Self {
        Self { latency_ns: Nanos::from_secs(wire.latency), bytes_per_sec: wire.bytes_per_sec }
    }
}

/// A device with its links, as one training software uses them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accelerator {
    /// For people.
    pub name: String,
    /// Half-precision peak.
    pub flops_per_sec: f64,
    /// Share of the peak that large matrix products reach.
    pub product_efficiency: f64,
    /// Peak of the memory's bandwidth.
    pub memory_bytes_per_sec: f64,
    /// Share of the bandwidth that kernels reach.
    pub memory_efficiency: f64,
    /// Memory.
    pub memory: Bytes,
    /// Seconds that the host needs to launch one layer's forward and backward kernels.
    pub launch_layer: f64,
    /// Seconds that the host needs per micro-batch besides.
    pub launch_micro_batch: f64,
    /// Bytes moved per logit by loss and softmax, forward and backward.
    pub logit_bytes: f64,
    /// Bytes moved per parameter by the optimizer.
    pub optimizer_bytes: f64,
    /// Bytes of a gradient in the data-parallel all-reduce.
    pub gradient_bytes: f64,
    /// Seconds of an iteration that depend on nothing.
    pub constant: f64,
    /// Between tensor-parallel devices: start-up and bus bandwidth of a collective's step.
    pub tensor: Wire,
    /// Between replicas.
    pub data: Wire,
    /// Between pipeline stages.
    pub stage: Wire,
}

/// The presets: A100 80 GB under Megatron-LM of 2022, and under Megatron-DeepSpeed on one node.
pub const ACCELERATORS: [&str; 2] = ["a100-megatron", "a100-megatron-deepspeed"];

impl Accelerator {
    /// A preset. How its numbers were found: docs/prediction.md.
    ///
    /// # Errors
    /// When no preset has that name.
    pub fn preset(name: &str) -> Result<Self, ClusterError> {
        let text = match name {
            "a100-megatron" => include_str!("accelerators/a100-megatron.json"),
            "a100-megatron-deepspeed" => {
                include_str!("accelerators/a100-megatron-deepspeed.json")
            }
            _ => return Err(ClusterError::Unknown(name.into())),
        };
        Ok(serde_json::from_str(text).expect("presets are tested"))
    }

    /// Seconds to move `bytes` through the memory.
    pub(super) fn move_bytes(&self, bytes: f64) -> f64 {
        bytes / (self.memory_efficiency * self.memory_bytes_per_sec)
    }

    /// Seconds of `count` products of `[m, k]` by `[k, n]` in half precision. Arithmetic and
    /// traffic add up instead of overlapping, which gives small and thin products the lower
    /// efficiency that they have.
    pub(super) fn product(&self, count: f64, m: f64, n: f64, k: f64) -> f64 {
        let arithmetic = 2.0 * m * n * k / (self.product_efficiency * self.flops_per_sec);
        count * (arithmetic + self.move_bytes(2.0 * (m * n + n * k + m * k)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_round_trip() {
        for name in ACCELERATORS {
            let accelerator = Accelerator::preset(name).unwrap();
            assert_eq!(accelerator.name, name);
            let text = serde_json::to_string(&accelerator).unwrap();
            assert_eq!(serde_json::from_str::<Accelerator>(&text).unwrap(), accelerator);
        }
        assert!(Accelerator::preset("abacus").is_err());
    }

    #[test]
    fn thin_products_are_less_efficient() {
        let a100 = Accelerator::preset("a100-megatron").unwrap();
        let rate = |k: f64| 2.0 * 4096.0 * 4096.0 * k / a100.product(1.0, 4096.0, 4096.0, k);
        assert!(rate(64.0) < rate(1024.0) && rate(1024.0) < rate(8192.0));
        assert!(rate(1e9) < a100.product_efficiency * a100.flops_per_sec);
    }
}
