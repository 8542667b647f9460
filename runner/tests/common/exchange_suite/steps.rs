//! Sums step after step, beside the reference.

use super::reference::{Carried, differences, sum as expected_sum};
use super::*;
use pipewright_core::compress::division::Division;
use pipewright_runner::exchange::Residual;
use pipewright_runner::transport::Collective;

/// The values of all ranks in a step.
pub fn all(t: &dyn Transport, step: u32) -> Vec<Vec<f32>> {
    (0..t.ranks()).map(|rank| gradient(rank, step, LEN)).collect()
}

/// Bits of the sums, residuals and bytes on the wire: every rank compares with the same reference, so
/// all ranks have the same.
pub fn every_codec_equals_the_reference(t: &mut dyn Transport) {
    let methods = codecs().into_iter().map(Reduction::of);
    let reductions: Vec<Reduction> = methods.flat_map(|r| [r, r.with_feedback()]).collect();
    for reduction in reductions {
        let mut exchange = Exchange::new(t, &[everybody(t, vec![reduction])], false).unwrap();
        let mut carried = Carried::nothing(t.ranks() as usize, LEN);
        for step in 0..2 {
            let inputs = all(t, step);
            let expected = expected_sum(reduction, &tensors(), &inputs, &mut carried);
            let mut values = inputs[t.rank() as usize].clone();
            let before = exchange.sent_bytes();
            sum(&mut exchange, 0, 0, &mut values);
            if t.ranks() == 1 {
                assert_eq!(values, inputs[0], "one rank has the sum");
                continue;
            }
            let (bits, rank) = (differences(&tensors(), &values, &expected), t.rank());
            assert_eq!(bits, 0, "{reduction} on rank {rank}, step {step}");
            let codec = reduction.method.codec;
            let division = Division::new(&tensors(), t.ranks());
            let (sent, most) =
                (exchange.sent_bytes() - before, division.sent_bytes(rank as usize, codec));
            let exact = !matches!(codec, CodecKind::TopK { .. });
            assert!(sent == most || (sent < most && !exact), "{reduction}: {sent} of {most} bytes");
            expect_residuals(t, &mut exchange, &carried);
        }
    }
}

/// The exchange carries over what the reference does.
fn expect_residuals(t: &dyn Transport, exchange: &mut Exchange, carried: &Carried) {
    exchange.residuals(|_, whose, places, residual| {
        let expected = match whose {
            Residual::Worker => &carried.worker[t.rank() as usize][places.clone()],
            Residual::Server => &carried.server[places.clone()],
        };
        assert_eq!(residual, expected, "{whose:?} at {places:?}");
    });
}

/// MPI adds in an order of its own, so only two ranks have the reference's bits; all have the same.
pub fn the_operator_adds_codes(t: &mut dyn Transport) {
    for reduction in operators() {
        let mut exchange = Exchange::new(t, &[everybody(t, vec![reduction])], false).unwrap();
        let mut carried = Carried::nothing(t.ranks() as usize, LEN);
        for step in 0..2 {
            let inputs = all(t, step);
            let expected = expected_sum(reduction, &tensors(), &inputs, &mut carried);
            let mut values = inputs[t.rank() as usize].clone();
            sum(&mut exchange, 0, 0, &mut values);
            expect_equal_everywhere(t, &values);
            if t.ranks() == 1 {
                continue;
            }
            if t.ranks() == 2 || t.name() == "local" {
                assert_eq!(differences(&tensors(), &values, &expected), 0, "{reduction}");
            }
            expect_residuals(t, &mut exchange, &carried);
            let far = tensors().into_iter().flatten().filter(|at| {
                // Each of p additions and encodings loses a quarter at most.
                let size: f32 = inputs.iter().map(|v| v[*at].abs()).sum();
                let slack = 0.5 * t.ranks() as f32 * size + 0.05;
                (values[*at] - expected[*at]).abs() > slack
            });
            assert_eq!(far.count(), 0, "{reduction}");
        }
    }
}

/// All ranks have the bits of rank 0.
pub fn expect_equal_everywhere(t: &mut dyn Transport, values: &[f32]) {
    let used = tensors().into_iter().flat_map(|tensor| values[tensor].to_vec());
    let bytes: Vec<u8> = used.flat_map(|value| value.to_bits().to_le_bytes()).collect();
    if let Some(all) = t.gather(&bytes).unwrap() {
        for (rank, theirs) in all.iter().enumerate() {
            assert!(*theirs == bytes, "rank {rank} has other bits than rank 0");
        }
    }
}

/// The residual is the bucket's: one codec makes up for what another lost.
pub fn codecs_change_and_residuals_stay(t: &mut dyn Transport) {
    let [one_bit, fp8] = [ONE_BIT, FP8].map(|codec| Reduction::of(codec).with_feedback());
    let table = Reduction::of(CodecKind::Table { bits: 2 });
    let reductions = vec![one_bit, fp8, Reduction::default(), table];
    let mut exchange = Exchange::new(t, &[everybody(t, reductions.clone())], false).unwrap();
    let mut carried = Carried::nothing(t.ranks() as usize, LEN);
    for (step, choice) in [0, 1, 0, 2, 3, 1].into_iter().enumerate() {
        let inputs = all(t, step as u32);
        let mut values = inputs[t.rank() as usize].clone();
        sum(&mut exchange, 0, choice, &mut values);
        expect_equal_everywhere(t, &values);
        if t.ranks() > 1 && choice != 2 {
            let expected = expected_sum(reductions[choice], &tensors(), &inputs, &mut carried);
            assert_eq!(differences(&tensors(), &values, &expected), 0, "step {step}");
            expect_residuals(t, &mut exchange, &carried);
        }
    }
}

/// Buckets of overlapping groups, all started before any is waited for, by all algorithms.
pub fn buckets_under_way_together(t: &mut dyn Transport) {
    let (rank, ranks) = (t.rank(), t.ranks());
    let all: Vec<u32> = (0..ranks).collect();
    let pair = |first: u32| (first..(first + 2).min(ranks)).collect::<Vec<u32>>();
    let groups = [all.clone(), pair(rank / 2 * 2), all.clone(), pair(rank / 2 * 2), all];
    let codecs = [ONE_BIT, FP8, FP8, CodecKind::Bf16, FP8];
    let mut reductions = codecs.map(Reduction::of);
    (reductions[2], reductions[4]) = (operators()[2], operators()[0]);
    let bucket = |(group, reduction): (&Vec<u32>, &Reduction)| BucketSpec {
        group: group.clone(),
        tensors: tensors(),
        len: LEN,
        reductions: vec![*reduction],
    };
    let specs: Vec<_> = groups.iter().zip(&reductions).map(bucket).collect();
    let mut exchange = Exchange::new(t, &specs, false).unwrap();
    for step in 0..3 {
        let input = |rank: u32, bucket: usize| gradient(rank, 10 * step + bucket as u32, LEN);
        let mut values: Vec<_> = (0..specs.len()).map(|bucket| input(rank, bucket)).collect();
        for (bucket, values) in values.iter_mut().enumerate() {
            // SAFETY: they are ours alone until they were waited for, below.
            unsafe { exchange.start(bucket, 0, values) }.unwrap();
        }
        for bucket in [3, 0, 4, 1, 2] {
            exchange.wait(bucket).unwrap();
            let inputs: Vec<_> = groups[bucket].iter().map(|r| input(*r, bucket)).collect();
            let mut carried = Carried::nothing(inputs.len(), LEN);
            let expected = expected_sum(reductions[bucket], &tensors(), &inputs, &mut carried);
            let ordered = reductions[bucket].algorithm == Algorithm::TwoShot;
            if inputs.len() > 1 && (ordered || t.name() == "local" || ranks == 2) {
                let bits = differences(&tensors(), &values[bucket], &expected);
                assert_eq!(bits, 0, "bucket {bucket}");
            }
        }
    }
}

/// Single precision is the transport's own all-reduce.
pub fn plain_sums_are_the_transport_s(t: &mut dyn Transport) {
    let group: Vec<u32> = (0..t.ranks()).collect();
    t.connect(&[group], 1).unwrap();
    let mut exchange =
        Exchange::new(t, &[everybody(t, vec![Reduction::default()])], false).unwrap();
    let mut values = gradient(t.rank(), 0, LEN);
    let mut expected = values.clone();
    // SAFETY: `expected` is waited for in the next line.
    unsafe { t.start_collective(Collective::AllReduce, 0, &mut expected, 0) }.unwrap();
    t.wait_collective(0).unwrap();
    sum(&mut exchange, 0, 0, &mut values);
    assert_eq!(differences(&tensors(), &values, &expected), 0);
    assert_eq!(exchange.sent_bytes(), 0, "collective calls do not count");
}

pub fn what_is_not_a_number_stays_none(t: &mut dyn Transport) {
    if t.ranks() == 1 {
        return;
    }
    let codecs = codecs().into_iter().map(|codec| Reduction::of(codec).with_feedback());
    for reduction in codecs.chain(operators()) {
        for bad in [f32::NAN, f32::INFINITY] {
            let mut exchange = Exchange::new(t, &[everybody(t, vec![reduction])], false).unwrap();
            let mut values = gradient(t.rank(), 0, LEN);
            if t.rank() == 1 {
                values[200_000] = bad;
            }
            sum(&mut exchange, 0, 0, &mut values);
            assert!(!values[200_000].is_finite(), "{reduction}: {}", values[200_000]);
            assert!(values[..150_000].iter().all(|v| v.is_finite()), "another tensor: {reduction}");
            exchange.residuals(|_, _, _, residual| {
                assert!(residual.iter().all(|r| r.is_finite()), "{reduction}");
            });
        }
    }
}

/// Counted on the transport, of 1 MiB of gradients.
pub fn one_bit_is_a_thirty_first(t: &mut dyn Transport) {
    let len = 1 << 18;
    let group: Vec<u32> = (0..t.ranks()).collect();
    let reductions = vec![Reduction::of(ONE_BIT)];
    let spec = BucketSpec { group, tensors: vec![0..len / 2, len / 2..len], len, reductions };
    let mut exchange = Exchange::new(t, &[spec], false).unwrap();
    sum(&mut exchange, 0, 0, &mut gradient(t.rank(), 0, len));
    // What a ring sends in single precision.
    let ring = 2 * 4 * len as u64 * u64::from(t.ranks() - 1) / u64::from(t.ranks());
    assert!(
        exchange.sent_bytes() * 31 <= ring,
        "{} of {ring} bytes on rank {}",
        exchange.sent_bytes(),
        t.rank()
    );
    assert_eq!(exchange.sent_bytes() > 0, t.ranks() > 1);
}
