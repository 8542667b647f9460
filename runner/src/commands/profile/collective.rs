//! All-reduce over sizes, as the link over which the formulas give the measured times.

use crate::transport::{Collective, ReduceOp, Transport, TransportError};
use pipewright_core::cost::Link;
use pipewright_core::cost::calibrate::{Parameter, fit};
use pipewright_core::cost::collective::{Channel, best_all_reduce};
use pipewright_core::units::Nanos;
use std::ops::Range;

/// Numbers of four bytes in an all-reduce; buckets of gradients are of the larger sizes.
const SIZES: [usize; 4] = [1 << 10, 1 << 14, 1 << 18, 1 << 21];
/// Sizes for ranks of one host.
pub(super) const ALL: Range<usize> = 0..SIZES.len();
/// Sizes for ranks of several: switches let a few packets pass at any speed, and a fit to these as well
/// would make buckets of gradients too fast.
pub(super) const LARGE: Range<usize> = 1..SIZES.len();
/// Calls of a size: so many, or as many as fit into [`SECONDS`] where the link is slow.
const ROUNDS: usize = 20;
const ROUNDS_MIN: usize = 2;
const SECONDS: f64 = 2.0;

/// Sums of such sizes over each of `groups`, from which a [`Link`] each follows on rank 0, in all of them; none for a
/// group of one rank. All ranks call it. Each sum is of other values than the one before, of `bytes` in all.
pub(super) fn measure<T: Transport>(
    transport: &mut T,
    groups: &[(Vec<u32>, Range<usize>)],
    bytes: usize,
) -> Result<Vec<Option<Link>>, TransportError> {
    let several: Vec<Vec<u32>> =
        groups.iter().map(|(group, _)| group).filter(|group| group.len() > 1).cloned().collect();
    if several.is_empty() {
        return Ok(vec![None; groups.len()]);
    }
    transport.connect(&several, 1)?;
    let mut links = vec![];
    for (group, sizes) in groups {
        let Some(index) = several.iter().position(|known| known == group) else {
            links.push(None);
            continue;
        };
        let member = group.contains(&transport.rank());
        let mut times = vec![];
        for size in &SIZES[sizes.clone()] {
            times.push(all_reduce(transport, member.then_some(index), *size, bytes / 4)?);
        }
        links.push(
            (transport.rank() == 0)
                .then(|| over(group.len() as u32, sizes.clone(), &times))
                .flatten(),
        );
    }
    Ok(links)
}

/// Median time in seconds; all ranks call it, those of the group with its number. Sums of `size` numbers
/// take turns over `all`.
fn all_reduce<T: Transport>(
    transport: &mut T,
    group: Option<usize>,
    size: usize,
    all: usize,
) -> Result<f64, TransportError> {
    let mut values = vec![1.0f32; all.max(size)];
    let mut turn = (0..values.len() / size).cycle();
    median(transport, |transport| {
        let (Some(group), Some(turn)) = (group, turn.next()) else { return Ok(()) };
        let values = &mut values[turn * size..][..size];
        // SAFETY: `values` is not touched before the wait below has returned; after an error the
        // caller's transport only aborts or is dropped.
        unsafe { transport.start_collective(Collective::AllReduce, group, values, 0)? };
        transport.wait_collective(0)
    })
}

/// Median time of a call in seconds; all ranks call it, together.
pub(super) fn median<T: Transport>(
    transport: &mut T,
    mut call: impl FnMut(&mut T) -> Result<(), TransportError>,
) -> Result<f64, TransportError> {
    let mut times = vec![];
    let mut rounds = ROUNDS;
    while times.len() < rounds {
        // Whoever comes first would measure how late the others are.
        transport.barrier()?;
        let start = transport.now_ns();
        call(transport)?;
        times.push(transport.now_ns() - start);
        if times.len() == 1 {
            let mut longest = [times[0] as f64 / 1e9];
            transport.all_reduce(&mut longest, ReduceOp::Max)?;
            let fit = (SECONDS / longest[0].max(1e-9)) as usize;
            rounds = fit.clamp(ROUNDS_MIN, ROUNDS);
        }
    }
    // Of two the second: the first has connected.
    let of = if rounds == ROUNDS_MIN { 1..2 } else { 0..rounds };
    let mut times = times[of].to_vec();
    times.sort_unstable();
    Ok(times[times.len() / 2] as f64 / 1e9)
}

/// The link over which the best algorithm takes these times; none where they say nothing.
fn over(ranks: u32, sizes: Range<usize>, times: &[f64]) -> Option<Link> {
    let advice = "measure more sizes";
    let slowest = times.iter().copied().fold(1e-6, f64::max);
    let largest = 4.0 * SIZES[SIZES.len() - 1] as f64;
    let parameter = |name, start: f64, low, high| Parameter { name, start, low, high, advice };
    let parameters = [
        parameter("latency", times.first()? / 4.0, 0.0, slowest),
        parameter("seconds per byte", slowest / largest / 2.0, 1e-15, 10.0 * slowest / largest),
    ];
    let model = |x: &[f64]| {
        let channel = Channel { alpha: x[0], beta: x[1], gamma: 0.0 };
        let time = |size: &usize| best_all_reduce(ranks, 4.0 * *size as f64, channel).1;
        SIZES[sizes.clone()].iter().map(time).collect()
    };
    let found = fit(&parameters, times, model).ok()?.values();
    Some(Link { latency_ns: Nanos::from_secs(found[0]), bytes_per_sec: 1.0 / found[1] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_gives_the_times_it_was_made_of() {
        let link = Link { latency_ns: Nanos(20_000), bytes_per_sec: 2e9 };
        let times = SIZES.map(|size| best_all_reduce(4, 4.0 * size as f64, &link).1);
        let found = over(4, ALL, &times).unwrap();
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 0.01;
        assert!(near(found.latency_ns.0 as f64, 20_000.0), "{found:?}");
        assert!(near(found.bytes_per_sec, 2e9), "{found:?}");
    }
}
