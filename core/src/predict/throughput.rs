//! Throughput: samples, tokens and arithmetic per second, the figures by which training steps are compared.

use crate::graph::{Graph, InputSpec, Op};
use crate::plan::Plan;
use crate::units::Nanos;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Arithmetic of a step over that of its forward pass: the backward pass has two products for each one.
const STEP_OVER_FORWARD: f64 = 3.0;

/// What a step of some length gets done.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// Samples of the mini-batch per second.
    pub samples_per_sec: f64,
    /// Tokens per second; none where samples are no tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_sec: Option<f64>,
    /// Model FLOP/s of each device: forward and backward pass, a multiply-add counting two, attention
    /// over all pairs of positions, without what recomputation does again. None where the arithmetic of
    /// the network is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_flops_per_sec: Option<f64>,
    /// Model FLOP/s utilization (Chowdhery et al. 2022): their share of the device's peak in the plan's
    /// precision. None where node times are measured: a profile says nothing of the peak.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mfu: Option<f64>,
}

impl Plan {
    /// The throughput of a step of this plan that takes `step`; `graph` is its model's. Linear in the nodes.
    pub fn throughput(&self, graph: &Graph, step: Nanos) -> Throughput {
        let samples_per_sec = self.mini_batch as f64 / step.secs().max(1e-9);
        let length = match graph.sample().map(|sample| sample.input) {
            Some(InputSpec::Tokens { length, .. }) => Some(length as f64),
            _ => None,
        };
        let is_known = !graph.nodes().iter().any(|node| matches!(node.op, Op::Opaque { .. }));
        let devices = u64::from(self.ranks()).min(self.cluster.devices()).max(1) as f64;
        // A shard's arithmetic is not the network's.
        let whole = self.model.graph().ok().filter(|_| graph.tensor_parallel().is_some());
        let flops = STEP_OVER_FORWARD * whole.as_ref().unwrap_or(graph).forward_flops() as f64;
        let device_flops_per_sec = is_known.then_some(flops * samples_per_sec / devices);
        let device = &self.cluster.device;
        let peak = self.cluster.profile.is_none().then(|| device.peak(self.training.precision));
        Throughput {
            samples_per_sec,
            tokens_per_sec: length.map(|length| length * samples_per_sec),
            device_flops_per_sec,
            mfu: device_flops_per_sec.zip(peak).map(|(flops, peak)| flops / peak),
        }
    }
}

impl fmt::Display for Throughput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} samples/s", Scaled { number: self.samples_per_sec, whole_below: 9_999.5 })?;
        if let Some(number) = self.tokens_per_sec {
            write!(f, ", {} tokens/s", Scaled { number, whole_below: 9_999.5 })?;
        }
        if let Some(number) = self.device_flops_per_sec {
            write!(f, ", {}FLOP/s a device", Scaled { number, whole_below: 999.5 })?;
        }
        if let Some(share) = self.mfu {
            let decimals = if share < 0.01 { 2 } else { 1 };
            write!(f, ", MFU {:.decimals$} %", 100.0 * share)?;
        }
        Ok(())
    }
}

/// A rate in three digits or four, with the prefix of its unit.
struct Scaled {
    number: f64,
    /// From here on there is a prefix.
    whole_below: f64,
}

impl fmt::Display for Scaled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefixes = ["", " k", " M", " G", " T", " P", " E"];
        let (mut number, mut at) = (self.number, 0);
        let mut end = self.whole_below;
        while number >= end && at + 1 < prefixes.len() {
            (number, at, end) = (number / 1e3, at + 1, 999.5);
        }
        let decimals = match number {
            n if n >= 99.95 => 0,
            n if n >= 9.995 => 1,
            _ => 2,
        };
        write!(f, "{number:.decimals$}{}", prefixes[at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Cluster;
    use crate::graph::Precision;
    use crate::graph::presets::Preset;
    use crate::plan::{Draft, Model};

    fn draft(model: &str, cluster: &str) -> Draft {
        let preset: Preset = model.parse().unwrap();
        let mut draft =
            Draft::new(Model::Preset(preset), Cluster::preset(cluster).unwrap(), vec![]);
        (draft.mini_batch, draft.micro_batches) = (16, 1);
        draft
    }

    /// 6 operations for each parameter and token, and 12 x layers x hidden x length for attention
    /// (Chowdhery et al. 2022, appendix B).
    #[test]
    fn gpt2_has_the_arithmetic_of_the_formula() {
        let (plan, prediction) = draft("gpt2", "dgx-a100").plan().unwrap();
        let throughput = plan.throughput(&prediction.graph, Nanos::from_secs(2.0));
        assert_eq!(throughput.samples_per_sec, 8.0);
        assert_eq!(throughput.tokens_per_sec, Some(8.0 * 1024.0));
        let weights = 124_439_808.0 - 1024.0 * 768.0;
        let formula = 8192.0 * (6.0 * weights + 12.0 * 12.0 * 768.0 * 1024.0);
        let counted = throughput.device_flops_per_sec.unwrap();
        assert!((counted / formula - 1.0).abs() < 0.02, "{counted:e} beside {formula:e}");
        let peak = plan.cluster.device.flops_per_sec;
        assert_eq!(throughput.mfu, Some(counted / peak));
    }

    #[test]
    fn the_peak_is_of_the_precision_and_the_arithmetic_of_the_devices() {
        let mut draft = draft("gpt2", "dgx-a100");
        let (plan, prediction) = draft.clone().plan().unwrap();
        let step = prediction.timeline.step;
        let alone = plan.throughput(&prediction.graph, step);
        draft.training.precision = Precision::Bf16;
        let (plan, prediction) = draft.clone().plan().unwrap();
        let half = plan.throughput(&prediction.graph, step);
        let device = &plan.cluster.device;
        let ratio = device.half_flops_per_sec.unwrap() / device.flops_per_sec;
        assert!((alone.mfu.unwrap() / half.mfu.unwrap() / ratio - 1.0).abs() < 1e-12);
        draft.data_parallel.replicas = 4;
        let (plan, prediction) = draft.plan().unwrap();
        let four = plan.throughput(&prediction.graph, step);
        assert_eq!(four.samples_per_sec, alone.samples_per_sec);
        assert_eq!(four.mfu, half.mfu.map(|mfu| mfu / 4.0));
    }

    #[test]
    fn images_have_no_tokens_and_rates_three_digits() {
        let (plan, prediction) = draft("vgg16", "dgx-a100").plan().unwrap();
        let throughput = plan.throughput(&prediction.graph, Nanos::from_secs(0.5));
        assert_eq!(throughput.tokens_per_sec, None);
        assert!(throughput.to_string().starts_with("32.0 samples/s, 2.9"), "{throughput}");
        let scaled = |number, whole_below| Scaled { number, whole_below }.to_string();
        assert_eq!(scaled(0.123, 9_999.5), "0.12");
        assert_eq!(scaled(9_999.0, 9_999.5), "9999");
        assert_eq!(scaled(10_000.0, 9_999.5), "10.0 k");
        assert_eq!(scaled(1_548_200.0, 9_999.5), "1.55 M");
        assert_eq!(scaled(5_860.0, 999.5), "5.86 k");
        assert_eq!(scaled(1.5e14, 999.5), "150 T");
        assert_eq!(scaled(1.5e25, 999.5), "15000000 E");
    }
}
