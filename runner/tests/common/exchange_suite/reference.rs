//! The sums that an exchange must give, made slowly: all ranks' values in one place, every codec called
//! by hand, one piece after another.

use pipewright_core::compress::division::{Division, total};
use pipewright_core::compress::narrow::E5m2;
use pipewright_core::compress::scale::{largest_magnitude, power_of_two};
use pipewright_core::compress::{
    Algorithm, Codec, CodecKind, Float8, Fp8, Reduction, Scale, e5m2_sum, feedback,
};
use std::ops::Range;

/// What all ranks carry over, of buckets with these tensors.
#[derive(Clone)]
pub struct Carried {
    /// By rank, by place in the bucket.
    pub worker: Vec<Vec<f32>>,
    /// By place in the bucket: its owner's.
    pub server: Vec<f32>,
}

impl Carried {
    pub fn nothing(ranks: usize, len: usize) -> Self {
        Self { worker: vec![vec![0.0; len]; ranks], server: vec![0.0; len] }
    }
}

/// The sum of `values`, by rank, at the places of `tensors`; others stay those of rank 0.
pub fn sum(
    reduction: Reduction,
    tensors: &[Range<usize>],
    values: &[Vec<f32>],
    carried: &mut Carried,
) -> Vec<f32> {
    match reduction.algorithm {
        Algorithm::TwoShot => two_shot(reduction, tensors, values, carried),
        Algorithm::Operator => operator(reduction, tensors, values, carried),
    }
}

fn two_shot(
    reduction: Reduction,
    tensors: &[Range<usize>],
    values: &[Vec<f32>],
    carried: &mut Carried,
) -> Vec<f32> {
    let division = Division::new(tensors, values.len() as u32);
    let mut result = values[0].clone();
    for piece in division.parts.iter().flatten().flat_map(|chunk| chunk.pieces.clone()) {
        let mut all = vec![0.0; piece.len()];
        for (rank, values) in values.iter().enumerate() {
            let residual = &mut carried.worker[rank][piece.clone()];
            let seen = through(reduction, &values[piece.clone()], residual);
            for (sum, value) in all.iter_mut().zip(seen) {
                // The first is taken as it is: 0 + -0 is 0.
                *sum = if rank == 0 { value } else { *sum + value };
            }
        }
        let seen = through(reduction, &all, &mut carried.server[piece.clone()]);
        result[piece].copy_from_slice(&seen);
    }
    result
}

/// What receivers see of `values`.
fn through(reduction: Reduction, values: &[f32], residual: &mut [f32]) -> Vec<f32> {
    let mut codec = reduction.method.codec.build(values.len()).unwrap();
    let mut wire = vec![0; codec.wire_bytes(values.len() as u64) as usize];
    let mut decoded = vec![0.0; values.len()];
    if reduction.method.feedback {
        feedback::encode(&mut codec, values, residual, &mut wire, &mut decoded).unwrap();
    } else {
        let used = codec.encode(values, &mut wire).unwrap();
        codec.decode(&wire[..used], &mut decoded).unwrap();
    }
    decoded
}

fn operator(
    reduction: Reduction,
    tensors: &[Range<usize>],
    values: &[Vec<f32>],
    carried: &mut Carried,
) -> Vec<f32> {
    let CodecKind::Fp8E5m2 { rounding, scale } = reduction.method.codec else { panic!("not E5M2") };
    let codec = Fp8::new(Float8::E5m2(rounding), Scale::None);
    let mut result = values[0].clone();
    for tensor in tensors {
        let source: Vec<Vec<f32>> = (values.iter().zip(&carried.worker))
            .map(|(values, residual)| {
                let mut source = values[tensor.clone()].to_vec();
                if reduction.method.feedback {
                    let residual = &residual[tensor.clone()];
                    source.iter_mut().zip(residual).for_each(|(v, r)| *v += r);
                }
                source
            })
            .collect();
        let largest = source.iter().map(|s| largest_magnitude(s)).fold(0.0, f32::max);
        let scale = match scale {
            Scale::None => 1.0,
            _ => power_of_two::<E5m2>(largest, values.len() as u32),
        };
        let mut totals = vec![0; tensor.len()];
        let mut decoded = vec![0.0; tensor.len()];
        for (rank, source) in source.iter().enumerate() {
            let mut codes = vec![0; tensor.len()];
            codec.encode_scaled(source, scale, &mut codes);
            if reduction.method.feedback {
                codec.decode_scaled(&codes, scale, &mut decoded);
                let lost = source.iter().zip(&decoded).map(|(s, d)| s - d);
                let residual = carried.worker[rank][tensor.clone()].iter_mut();
                residual.zip(lost).for_each(|(residual, lost)| *residual = lost);
            }
            match rank {
                0 => totals = codes,
                _ => e5m2_sum::add(&codes, &mut totals, rounding),
            }
        }
        codec.decode_scaled(&totals, scale, &mut decoded);
        result[tensor.clone()].copy_from_slice(&decoded);
    }
    result
}

/// Sums of each host's ranks, in single precision: what hosts exchange. `values` add without rounding.
pub fn by_host(values: &[Vec<f32>], hosts: &[u32]) -> Vec<Vec<f32>> {
    let mut sums: Vec<(u32, Vec<f32>)> = vec![];
    for (values, host) in values.iter().zip(hosts) {
        match sums.iter_mut().find(|(known, _)| known == host) {
            Some((_, sum)) => sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value),
            None => sums.push((*host, values.clone())),
        }
    }
    sums.into_iter().map(|(_, sum)| sum).collect()
}

/// Places of `tensors` where two buckets differ in a bit.
pub fn differences(tensors: &[Range<usize>], a: &[f32], b: &[f32]) -> usize {
    assert!(total(tensors) > 0 && a.len() == b.len());
    let places = tensors.iter().flat_map(Range::clone);
    places.filter(|at| a[*at].to_bits() != b[*at].to_bits()).count()
}
