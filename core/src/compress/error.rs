//! Distance of encoded sums from the true ones, measured on normal gradients.

use super::e5m2_sum;
use super::narrow::{E5m2, e5m2_truncated, narrow, widen};
use super::{Algorithm, CodecError, CodecKind, Reduction, Rounding};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Values of each rank: errors of all codecs are steady from some thousands on.
const VALUES: usize = 8192;

/// Ranks beyond these are not tried: two shots lose the same with any number, and sums of codes have
/// lost everything by then.
const RANKS_MAX: u32 = 64;

/// Relative error (of the Euclidean norm) of one sum of normal gradients of `ranks` ranks, without what
/// feedback brings later. The same numbers in every call.
///
/// # Errors
/// Settings that the codec does not have.
pub fn relative_error(way: Reduction, ranks: u32) -> Result<f64, CodecError> {
    if way.is_plain() {
        return Ok(0.0);
    }
    let most = if way.algorithm == Algorithm::Operator { RANKS_MAX } else { 8 };
    let gradients = gradients(ranks.clamp(1, most));
    let sum = match (way.algorithm, way.method.codec) {
        (Algorithm::Operator, CodecKind::Fp8E5m2 { rounding, .. }) => ring(&gradients, rounding),
        _ => two_shots(&gradients, way.method.codec)?,
    };
    let (mut off, mut size) = (0.0, 0.0);
    for (at, sum) in sum.iter().enumerate() {
        let truth: f64 = gradients.iter().map(|rank| f64::from(rank[at])).sum();
        off += (f64::from(*sum) - truth).powi(2);
        size += truth * truth;
    }
    Ok(f64::sqrt(off / size))
}

/// Normal, of deviation 0.1; a tensor a rank.
fn gradients(ranks: u32) -> Vec<Vec<f32>> {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let mut uniform = move || (f64::from(rng.next_u32()) + 0.5) / 4_294_967_296.0;
    let mut normal = move || {
        let radius = (-2.0 * libm::log(uniform())).sqrt();
        (0.1 * radius * libm::cos(std::f64::consts::TAU * uniform())) as f32
    };
    (0..ranks).map(|_| (0..VALUES).map(|_| normal()).collect()).collect()
}

/// Values rounded, summed in single precision, rounded.
fn two_shots(gradients: &[Vec<f32>], codec: CodecKind) -> Result<Vec<f32>, CodecError> {
    let mut codec = codec.build(VALUES)?;
    let mut wire = vec![0; codec.wire_bytes(VALUES as u64) as usize];
    let mut through = |values: &[f32], decoded: &mut [f32]| {
        let used = codec.encode(values, &mut wire)?;
        codec.decode(&wire[..used], decoded)
    };
    let (mut total, mut decoded) = (vec![0.0; VALUES], vec![0.0; VALUES]);
    for rank in gradients {
        through(rank, &mut decoded)?;
        total.iter_mut().zip(&decoded).for_each(|(total, value)| *total += value);
    }
    through(&total, &mut decoded)?;
    Ok(decoded)
}

/// Sums of codes, one after the other.
fn ring(gradients: &[Vec<f32>], rounding: Rounding) -> Vec<f32> {
    let code = |value: &f32| match rounding {
        Rounding::Truncate => e5m2_truncated(*value) as u8,
        _ => narrow::<E5m2>(*value) as u8,
    };
    let encode = |rank: &Vec<f32>| rank.iter().map(code).collect::<Vec<u8>>();
    let mut total = encode(&gradients[0]);
    for rank in &gradients[1..] {
        e5m2_sum::add(&encode(rank), &mut total, rounding);
    }
    total.iter().map(|code| widen::<E5m2>(u32::from(*code))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_the_published_ones() {
        // COMMUNICATION.md, sections 1.2 and 1.3; of a table two shots see twice.
        for (way, ranks, low, high) in [
            ("fp32", 4, 0.0, 0.0),
            ("bf16", 4, 0.0, 0.005),
            ("fp8-e5m2", 4, 0.06, 0.08),
            ("fp8-e5m2+operator", 16, 0.157, 0.177),
            ("fp8-e5m2:truncate+operator", 16, 0.476, 0.496),
            ("fp8-e5m2:truncate+operator", 1_000_000, 0.819, 0.839),
            ("table:1", 4, 1.5, 8.0),
            ("one-bit", 4, 0.5, 1.0),
        ] {
            let way: Reduction = way.parse().unwrap();
            let error = relative_error(way, ranks).unwrap();
            assert!((low..=high).contains(&error), "{way}, {ranks} ranks: {error}");
        }
        assert!(relative_error(Reduction::of(CodecKind::Table { bits: 3 }), 2).is_err());
    }
}
