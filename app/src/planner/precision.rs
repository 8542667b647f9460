//! Notes on choices of precision: what they do not change on a device.

use crate::base::texts::n;
use pipewright_core::cost::Device;
use pipewright_core::graph::Precision;

/// What a choice does not change on a device, for [`crate::base::texts::t`].
pub fn note(precision: Precision, device: &Device) -> Option<&'static str> {
    // Presets say in their name what the peak of f32 is; files of others rarely know.
    let through_tf32 = device.name.contains("through TF32");
    match precision {
        Precision::Bf16 | Precision::F16 | Precision::Fp8
            if device.half_flops_per_sec.is_none() =>
        {
            Some(n("This device computes in f32: half the bytes, no less time."))
        }
        Precision::Fp8 if device.fp8_flops_per_sec.is_none() => {
            Some(n("This device has no fp8 products: times are those of bf16."))
        }
        Precision::F32 if through_tf32 => {
            Some(n("Times are those of TF32 products, as with PyTorch's allow_tf32."))
        }
        Precision::Tf32 if !through_tf32 => {
            Some(n("No rate of TF32 is known of this device: times are those of f32."))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pipewright_core::cost::Cluster;

    #[test]
    fn what_changes_nothing_is_said() {
        let told = |precision, cluster: &str| {
            note(precision, &Cluster::preset(cluster).unwrap().device).unwrap_or_default()
        };
        assert!(told(Precision::F32, "dgx-a100").contains("TF32 products"));
        assert_eq!(told(Precision::Tf32, "dgx-a100"), "");
        assert!(told(Precision::Tf32, "dgx-1-p100").contains("those of f32"));
        assert!(told(Precision::Fp8, "dgx-a100").contains("those of bf16"));
        assert_eq!((told(Precision::Fp8, "dgx-h100"), told(Precision::Bf16, "dgx-a100")), ("", ""));
        assert!(told(Precision::Bf16, "laptop").contains("half the bytes"));
    }
}
