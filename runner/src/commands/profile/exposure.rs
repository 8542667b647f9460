//! Exposed time of encoded sums. Wires and processors work at the same time, but where hosts share
//! processors, or these do the network's work as well, the longer of the two does not cover all of
//! the shorter. Only a whole sum shows how much.

use super::collective::median;
use crate::exchange::{BucketSpec, Exchange};
use crate::transport::{Transport, TransportError};
use pipewright_core::compress::Reduction;
use pipewright_core::cost::Cluster;
use pipewright_core::cost::collective::{Group, price};
use pipewright_core::ids::LaneId;
use std::iter;

/// [`Cluster::codec_exposure`] of `cluster`, in which all else is measured. All ranks call it; what
/// counts is what comes of it on rank 0.
pub(super) fn measure<T: Transport>(
    transport: &mut T,
    cluster: &Cluster,
    bytes: usize,
) -> Result<f64, TransportError> {
    let all: Vec<u32> = (0..transport.ranks()).collect();
    if all.len() < 2 {
        return Ok(0.0);
    }
    // The first is mostly bound by the wire, the second by the processor.
    let kinds = ["fp8-e5m2", "one-bit"];
    let reductions: Vec<Reduction> =
        kinds.iter().map(|kind| kind.parse().expect("known codecs")).collect();
    let len = bytes / 4;
    let tensors = iter::once(0..len).collect();
    let spec = BucketSpec { group: all.clone(), tensors, len, reductions: reductions.clone() };
    let mut exchange = Exchange::new(transport, &[spec], false)?;
    let mut values: Vec<f32> = (0..len).map(|i| (i % 1000) as f32 - 500.0).collect();
    let lanes: Vec<LaneId> = all.iter().copied().map(LaneId).collect();
    let group = Group::new(cluster, &lanes, transport.ranks());
    let [hidden, exposed] =
        [0.0, 1.0].map(|codec_exposure| Cluster { codec_exposure, ..cluster.clone() });
    let mut points = vec![];
    for (number, reduction) in reductions.iter().enumerate() {
        let seconds = median(transport, |_| {
            // SAFETY: waited for in the next line; after an error the exchange goes before its values.
            unsafe { exchange.start(0, number, &mut values)? };
            exchange.wait(0)
        })?;
        let price = |cluster| price(cluster, &group, false, *reduction, 4.0 * len as f64).seconds;
        points.push([price(&hidden), price(&exposed), seconds]);
    }
    Ok(fit(&points))
}

/// The share with the least squares of relative errors, where a sum takes `hidden` seconds for 0 and
/// `exposed` for 1, and has taken `seconds`.
fn fit(points: &[[f64; 3]]) -> f64 {
    let (mut up, mut down) = (0.0, 0.0);
    for [hidden, exposed, seconds] in points {
        let slope = (exposed - hidden) / seconds;
        up += slope * (1.0 - hidden / seconds);
        down += slope * slope;
    }
    // Nothing to hide: sums of processors alone.
    if down > 0.0 { (up / down).clamp(0.0, 1.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_gives_the_times_it_was_made_of() {
        let times = |share: f64| [[1.0, 1.5], [0.2, 0.3]].map(|[h, e]| [h, e, h + share * (e - h)]);
        for share in [0.0, 0.3, 1.0] {
            assert!((fit(&times(share)) - share).abs() < 1e-12);
        }
        assert_eq!(fit(&times(2.0)), 1.0);
        assert_eq!(fit(&times(-1.0)), 0.0);
        assert_eq!(fit(&[[1.0, 1.0, 2.0]]), 0.0);
    }
}
