//! TransformerRates that a device and its software reach on networks with attention: a part of a cluster's file.

use crate::cost::{ClusterError, Link};
use crate::units::Nanos;
use serde::{Deserialize, Serialize};

/// What whole training steps of transformers were measured to reach. Networks with attention are priced
/// by it instead of by the device's other numbers; peaks and bandwidth are the device's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TransformerRates {
    /// For people: what was measured.
    pub software: String,
    /// Share of the arithmetic peak that matrix products would reach without their memory traffic; with
    /// it small and thin ones reach less.
    pub products: f64,
    /// Share of the memory bandwidth.
    pub memory: f64,
    /// Host time that launches the kernels of one computation, beside what the device does.
    pub launch_ns: Nanos,
    /// Bytes that loss and softmax move for each logit, forward and backward.
    pub logit_bytes: f64,
    /// The same where devices have a part of the logits each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub divided_logit_bytes: Option<f64>,
    /// More host time for each pass of an attention whose heads times samples on a device are no
    /// multiple of four: Megatron's fused softmax does not take those.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unfused_ns: Nanos,
    /// Divided attentions that take a device longer than their arithmetic and traffic say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attention: Vec<MeasuredAttention>,
    /// Tensor-parallel degrees that were measured, ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tensor: Vec<TensorRates>,
}

/// The same of layers that so many devices divide among themselves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TensorRates {
    /// Devices, at least 2.
    pub degree: u32,
    /// Host time that launches the kernels of one computation.
    pub launch_ns: Nanos,
    /// A step of the ring that sums the layers' results.
    pub link: Link,
    /// Sizes at which layers were measured to take more or less than these rates say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<MeasuredLayer>,
}

/// More time of a divided attention by the number of its matrices: kernels of batched products are chosen by it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MeasuredAttention {
    /// Heads times samples on a device.
    pub matrices: u64,
    /// More time of the device in each pass.
    pub more_ns: Nanos,
}

/// TensorRates layers of one size, which rates alone do not meet: kernels are chosen by size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MeasuredLayer {
    /// Values of a position that the devices sum.
    pub hidden: u64,
    /// Positions of a micro-batch.
    pub positions: u64,
    /// What such a layer takes, in what the rates say.
    pub factor: f64,
}

fn is_zero(time: &Nanos) -> bool {
    *time == Nanos::ZERO
}

impl TransformerRates {
    /// Checks every number; `cluster` is the name for the error.
    ///
    /// # Errors
    /// The first number out of range.
    pub(in crate::cost) fn check(&self, cluster: &str) -> Result<(), ClusterError> {
        let refuse = |field, value: String, must| {
            Err(ClusterError::Value { cluster: cluster.into(), field, value, must })
        };
        let shares = [
            ("device.transformers.products", self.products),
            ("device.transformers.memory", self.memory),
        ];
        for (field, share) in shares {
            if !(share > 0.0 && share <= 1.0) {
                return refuse(field, share.to_string(), "in (0, 1]");
            }
        }
        let logits = [
            ("device.transformers.logit_bytes", Some(self.logit_bytes)),
            ("device.transformers.divided_logit_bytes", self.divided_logit_bytes),
        ];
        for (field, bytes) in logits {
            if let Some(bytes) = bytes.filter(|bytes| !(0.0..=1e6).contains(bytes)) {
                return refuse(field, bytes.to_string(), "between 0 and a million");
            }
        }
        let degrees: Vec<u32> = self.tensor.iter().map(|divided| divided.degree).collect();
        if degrees.first().is_some_and(|first| *first < 2) || !degrees.is_sorted_by(|a, b| a < b) {
            let field = "device.transformers.tensor";
            return refuse(field, format!("{degrees:?}"), "degrees from 2, ascending");
        }
        let times = [
            ("device.transformers.launch_ns", self.launch_ns),
            ("device.transformers.unfused_ns", self.unfused_ns),
        ];
        let of_degrees = self.tensor.iter().flat_map(|divided| {
            let (launch, latency) = (divided.launch_ns, divided.link.latency_ns);
            [
                ("device.transformers.tensor.launch_ns", launch),
                ("device.transformers.tensor.link.latency_ns", latency),
            ]
        });
        let of_attention = self.attention.iter();
        let of_attention = of_attention
            .map(|attention| ("device.transformers.attention.more_ns", attention.more_ns));
        for (field, time) in times.into_iter().chain(of_attention).chain(of_degrees) {
            if time.0 > 60_000_000_000 {
                return refuse(field, time.0.to_string(), "at most a minute");
            }
        }
        for divided in &self.tensor {
            let rate = divided.link.bytes_per_sec;
            if !(rate.is_finite() && rate >= 1.0) {
                let field = "device.transformers.tensor.link.bytes_per_sec";
                return refuse(field, rate.to_string(), "a number of at least 1");
            }
            let factors = divided.layers.iter().map(|layer| layer.factor);
            let mut out = factors.filter(|factor| !(0.01..=100.0).contains(factor));
            if let Some(factor) = out.next() {
                let field = "device.transformers.tensor.layers.factor";
                return refuse(field, factor.to_string(), "between 0.01 and 100");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Cluster;

    #[test]
    fn numbers_out_of_range_are_named() {
        let refused = |change: &dyn Fn(&mut TransformerRates)| {
            let mut cluster = Cluster::preset("dgx-a100").unwrap();
            change(cluster.device.transformers.as_mut().unwrap());
            cluster.check().unwrap_err().to_string()
        };
        let named = |change: &dyn Fn(&mut TransformerRates), field: &str| {
            let message = refused(change);
            assert!(message.contains(&format!("device.transformers.{field} is ")), "{message}");
        };
        named(&|rates| rates.products = 0.0, "products");
        named(&|rates| rates.memory = 1.5, "memory");
        named(&|rates| rates.logit_bytes = f64::NAN, "logit_bytes");
        named(&|rates| rates.divided_logit_bytes = Some(-1.0), "divided_logit_bytes");
        named(&|rates| rates.launch_ns = Nanos(u64::MAX), "launch_ns");
        named(&|rates| rates.attention[0].more_ns = Nanos(u64::MAX), "attention.more_ns");
        named(&|rates| rates.tensor.reverse(), "tensor");
        named(&|rates| rates.tensor[0].degree = 1, "tensor");
        named(&|rates| rates.tensor[1].launch_ns = Nanos(u64::MAX), "tensor.launch_ns");
        named(&|rates| rates.tensor[1].link.bytes_per_sec = 0.0, "tensor.link.bytes_per_sec");
        named(&|rates| rates.tensor[1].layers[0].factor = 0.0, "tensor.layers.factor");
    }
}
