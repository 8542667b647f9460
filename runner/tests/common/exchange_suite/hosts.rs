//! Several ranks a host, and memory.

use super::reference::{Carried, by_host, differences, sum as expected_sum};
use super::steps::expect_equal_everywhere;
use super::*;
use pipewright_core::compress::share::Share;

/// Values whose sums are exact: MPI adds those of a host in an order of its own.
fn round_gradient(rank: u32, step: u32) -> Vec<f32> {
    gradient(rank, step, LEN).into_iter().map(|v| (v * 4096.0).round() / 4096.0).collect()
}

/// Ranks of a host sum in single precision, hosts exchange codes.
pub fn hosts_sum_first(t: &mut dyn Transport) {
    let hosts = t.hosts().unwrap();
    assert_eq!(hosts.len(), t.ranks() as usize);
    let group: Vec<u32> = (0..t.ranks()).collect();
    let [fp8, one_bit] = [FP8, ONE_BIT].map(|codec| Reduction::of(codec).with_feedback());
    for reduction in [fp8, one_bit, operators()[3]] {
        let spec = everybody(t, vec![reduction]);
        let mut exchange = Exchange::new(t, &[spec.clone(), spec], true).unwrap();
        let mut carried: Vec<Carried> = vec![];
        for step in 0..2 {
            let input = |rank: u32, bucket: usize| round_gradient(rank, 7 * bucket as u32 + step);
            let mut values = [0, 1].map(|bucket| input(t.rank(), bucket));
            for (bucket, values) in values.iter_mut().enumerate() {
                // SAFETY: they are ours alone until they were waited for, below.
                unsafe { exchange.start(bucket, 0, values) }.unwrap();
            }
            for bucket in [1, 0] {
                exchange.wait(bucket).unwrap();
                expect_equal_everywhere(t, &values[bucket]);
            }
            for (bucket, values) in values.iter().enumerate() {
                let inputs: Vec<_> = group.iter().map(|rank| input(*rank, bucket)).collect();
                let sums = by_host(&inputs, &hosts);
                if carried.len() == bucket {
                    carried.push(Carried::nothing(sums.len(), LEN));
                }
                let expected = between_hosts(t, reduction, &sums, &mut carried[bucket]);
                let ordered = reduction.algorithm == Algorithm::TwoShot || t.name() == "local";
                if ordered || sums.len() <= 2 {
                    let bits = differences(&tensors(), values, &expected);
                    assert_eq!(bits, 0, "{reduction}, bucket {bucket} on hosts {hosts:?}");
                }
            }
        }
    }
}

/// The sum over hosts, each shard by itself; single precision on one host.
fn between_hosts(
    t: &mut dyn Transport,
    reduction: Reduction,
    sums: &[Vec<f32>],
    carried: &mut Carried,
) -> Vec<f32> {
    if sums.len() == 1 {
        return sums[0].clone();
    }
    let hosts = t.hosts().unwrap();
    let group: Vec<u32> = (0..t.ranks()).collect();
    let share = Share::hierarchical(&group, &tensors(), 0, |rank| hosts[rank as usize]);
    let shards = share.intra_node.map_or(vec![tensors()], |intra_node| intra_node.shards);
    let mut result = sums[0].clone();
    for shard in shards {
        let summed = expected_sum(reduction, &shard, sums, carried);
        for tensor in shard {
            result[tensor.clone()].copy_from_slice(&summed[tensor]);
        }
    }
    result
}

/// Plans count this memory: the exchange allocates as much.
pub fn memory_is_what_the_formula_says(t: &mut dyn Transport) {
    let hosts = t.hosts().unwrap();
    let feedback = Reduction::of(ONE_BIT).with_feedback();
    let lists = [
        vec![Reduction::default()],
        vec![Reduction::of(FP8), feedback],
        vec![operators()[1], Reduction::of(CodecKind::Bf16)],
        vec![operators()[3]],
    ];
    for hierarchical in [false, true] {
        let specs: Vec<_> = lists.iter().map(|list| everybody(t, list.clone())).collect();
        let exchange = Exchange::new(t, &specs, hierarchical).unwrap();
        let share = |spec: &BucketSpec| match hierarchical {
            true => Share::hierarchical(&spec.group, &spec.tensors, t.rank(), |rank| {
                hosts[rank as usize]
            }),
            false => Share::flat(&spec.group, &spec.tensors, t.rank()),
        };
        let expected: u64 =
            specs.iter().map(|spec| share(spec).bytes(&spec.reductions, false)).sum();
        assert_eq!(exchange.bytes(), expected, "hierarchical: {hierarchical}");
        assert_eq!(expected > 0, t.ranks() > 1 && share(&specs[0]).across.len() > 1);
    }
}
