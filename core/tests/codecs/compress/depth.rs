//! Loss of precision in all-reduces of E5M2: every rounding on the way counts.

use pipewright_core::compress::narrow::{E5m2, e5m2_truncated, narrow, widen};
use pipewright_core::compress::{Rounding, e5m2_sum};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

const VALUES: usize = 20_000;

/// Normal gradients of deviation 0.1, one tensor a rank.
fn gradients(ranks: usize) -> Vec<Vec<f32>> {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let mut uniform = move || (f64::from(rng.next_u32()) + 0.5) / 2f64.powi(32);
    let mut normal = move || {
        let (radius, angle) = ((-2.0 * uniform().ln()).sqrt(), std::f64::consts::TAU * uniform());
        (0.1 * radius * angle.cos()) as f32
    };
    (0..ranks).map(|_| (0..VALUES).map(|_| normal()).collect()).collect()
}

fn encode(values: &[f32], rounding: Rounding) -> Vec<u8> {
    let code = |v: &f32| match rounding {
        Rounding::Truncate => e5m2_truncated(*v) as u8,
        _ => narrow::<E5m2>(*v) as u8,
    };
    values.iter().map(code).collect()
}

fn decode(codes: &[u8]) -> Vec<f32> {
    codes.iter().map(|code| widen::<E5m2>(u32::from(*code))).collect()
}

/// p - 1 sums, one after another.
fn ring(ranks: &[Vec<f32>], rounding: Rounding) -> Vec<f32> {
    let mut total = encode(&ranks[0], rounding);
    for rank in &ranks[1..] {
        e5m2_sum::add(&encode(rank, rounding), &mut total, rounding);
    }
    decode(&total)
}

/// Sums of pairs, of pairs of pairs, and so on.
fn recursive_doubling(ranks: &[Vec<f32>], rounding: Rounding) -> Vec<f32> {
    let mut codes: Vec<Vec<u8>> = ranks.iter().map(|rank| encode(rank, rounding)).collect();
    while codes.len() > 1 {
        codes = codes
            .chunks(2)
            .map(|pair| {
                let mut total = pair[1].clone();
                e5m2_sum::add(&pair[0], &mut total, rounding);
                total
            })
            .collect();
    }
    decode(&codes[0])
}

/// Two roundings at any number of ranks: of the values, and of their sum in single precision.
fn two_shot(ranks: &[Vec<f32>]) -> Vec<f32> {
    let mut total = vec![0f32; VALUES];
    for rank in ranks {
        for (total, value) in total.iter_mut().zip(decode(&encode(rank, Rounding::NearestEven))) {
            *total += value;
        }
    }
    decode(&encode(&total, Rounding::NearestEven))
}

/// Relative error, and what is left of the true sum in its own direction.
fn quality(sum: &[f32], ranks: &[Vec<f32>]) -> [f64; 2] {
    let truth = |i: usize| ranks.iter().map(|rank| f64::from(rank[i])).sum::<f64>();
    let [mut off, mut along, mut size] = [0.0; 3];
    for (i, sum) in sum.iter().enumerate() {
        let (sum, truth) = (f64::from(*sum), truth(i));
        off += (sum - truth).powi(2);
        along += sum * truth;
        size += truth * truth;
    }
    [(off / size).sqrt(), along / size]
}

#[test]
fn rounding_depth() {
    use Rounding::{NearestEven, Truncate};
    // By ranks: error and projection of truncation by ring and by recursive doubling, of rounding
    // to nearest by both, of rounding to nearest with sums in single precision.
    let table: [(usize, [[f64; 2]; 5]); 4] = [
        (2, [[0.153, 0.861], [0.153, 0.861], [0.078, 0.992], [0.078, 0.992], [0.078, 0.992]]),
        (4, [[0.217, 0.802], [0.199, 0.816], [0.101, 0.986], [0.097, 0.986], [0.076, 0.993]]),
        (16, [[0.486, 0.548], [0.283, 0.731], [0.167, 0.954], [0.126, 0.973], [0.074, 0.994]]),
        (64, [[0.829, 0.201], [0.355, 0.657], [0.312, 0.839], [0.148, 0.961], [0.074, 0.995]]),
    ];
    for (count, expected) in table {
        let ranks = gradients(count);
        let measured = [
            ring(&ranks, Truncate),
            recursive_doubling(&ranks, Truncate),
            ring(&ranks, NearestEven),
            recursive_doubling(&ranks, NearestEven),
            two_shot(&ranks),
        ]
        .map(|sum| quality(&sum, &ranks));
        println!("{count:>2} ranks: {measured:.3?}");
        for (got, expected) in measured.as_flattened().iter().zip(expected.as_flattened()) {
            assert!((got - expected).abs() <= 0.01, "{count} ranks: {got:.4}, not {expected}");
        }
        let [error, projection] = measured[4];
        assert!(error <= 0.08 && (projection - 1.0).abs() <= 0.01, "{count} ranks, two-shot");
    }
}
