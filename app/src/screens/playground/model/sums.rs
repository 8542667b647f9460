//! Sums of all ranks' gradients, as the runner's exchange makes them: core's codecs, division into pieces
//! and error feedback, with the ranks' values in one place instead of on a wire.
//!
//! A layer is a bucket. Its values are cut into parts, one a rank; each piece of a part goes encoded to
//! the part's owner, which sums in the order of ranks and sends the sum, encoded anew, to all. With the
//! operator, codes themselves are added. What codecs lose is kept here when there is feedback.

use super::network::Network;
use pipewright_core::compress::division::Division;
use pipewright_core::compress::narrow::E5m2;
use pipewright_core::compress::scale::{largest_magnitude, power_of_two};
use pipewright_core::compress::{
    Algorithm, Codec, CodecError, CodecKind, Float8, Fp8, Reduction, Rounding, Scale, e5m2_sum,
    feedback,
};
use std::ops::Range;

/// How so many ranks sum the gradients of a network.
pub struct Sums {
    way: Reduction,
    ranks: usize,
    codec: Box<dyn Codec>,
    /// By layer: what is encoded by itself.
    pieces: Vec<Vec<Range<usize>>>,
    /// By layer: its tensors.
    tensors: Vec<[Range<usize>; 2]>,
    /// By rank, by parameter: what it lost.
    worker: Vec<Vec<f32>>,
    /// By parameter: what was lost of sums.
    server: Vec<f32>,
    /// Bytes that a rank has sent, in the mean.
    sent: f64,
    wire: Vec<u8>,
    decoded: Vec<f32>,
    total: Vec<f32>,
}

impl Sums {
    /// Nothing lost yet.
    ///
    /// # Errors
    /// Settings that the codec does not have.
    pub fn new(way: Reduction, network: &Network, ranks: usize) -> Result<Self, CodecError> {
        if let Some(what) = way.fault() {
            return Err(CodecError::Settings { codec: "reduction", what });
        }
        let tensors: Vec<[Range<usize>; 2]> =
            network.layers.iter().map(|l| [l.weights.clone(), l.biases.clone()]).collect();
        let pieces = |tensors: &[Range<usize>; 2]| {
            let parts = Division::new(tensors, ranks as u32).parts;
            parts.into_iter().flatten().flat_map(|chunk| chunk.pieces).collect()
        };
        let pieces: Vec<Vec<Range<usize>>> = tensors.iter().map(pieces).collect();
        let longest = tensors.iter().flatten().map(Range::len).max().unwrap_or(0);
        let codec = way.method.codec.build(longest)?;
        let kept = if way.method.feedback { network.parameters() } else { 0 };
        Ok(Self {
            way,
            ranks,
            wire: vec![0; codec.wire_bytes(longest as u64) as usize],
            codec,
            pieces,
            tensors,
            worker: vec![vec![0.0; kept]; ranks],
            server: vec![0.0; kept],
            sent: 0.0,
            decoded: vec![0.0; longest],
            total: vec![0.0; longest],
        })
    }

    /// Puts the sum of a layer's gradients over all ranks into `out`, at the layer's places.
    ///
    /// # Errors
    /// Those of the codec.
    pub fn add(
        &mut self,
        layer: usize,
        ranks: &[Vec<f32>],
        out: &mut [f32],
    ) -> Result<(), CodecError> {
        if self.way.is_plain() || self.ranks == 1 {
            for tensor in self.tensors[layer].clone() {
                plain(ranks, tensor.clone(), &mut out[tensor.clone()]);
                // A ring: everybody sends each value twice but for its own part.
                self.sent += 8.0 * tensor.len() as f64 * self.beyond_own();
            }
            return Ok(());
        }
        match (self.way.algorithm, self.way.method.codec) {
            (Algorithm::Operator, CodecKind::Fp8E5m2 { rounding, scale }) => {
                for tensor in self.tensors[layer].clone() {
                    self.operator((rounding, scale), ranks, tensor, out);
                }
                Ok(())
            }
            _ => self.two_shots(layer, ranks, out),
        }
    }

    /// The share of values that are not a rank's own to sum.
    fn beyond_own(&self) -> f64 {
        (self.ranks as f64 - 1.0) / self.ranks as f64
    }

    fn two_shots(
        &mut self,
        layer: usize,
        ranks: &[Vec<f32>],
        out: &mut [f32],
    ) -> Result<(), CodecError> {
        let beyond = self.beyond_own();
        for piece in self.pieces[layer].clone() {
            let len = piece.len();
            for (rank, values) in ranks.iter().enumerate() {
                let used = self.through(&values[piece.clone()], Some(rank), &piece)?;
                self.sent += used as f64 * beyond / self.ranks as f64;
                let (total, decoded) = (&mut self.total[..len], &self.decoded[..len]);
                if rank == 0 {
                    total.copy_from_slice(decoded);
                } else {
                    total.iter_mut().zip(decoded).for_each(|(sum, value)| *sum += value);
                }
            }
            let total = std::mem::take(&mut self.total);
            let used = self.through(&total[..len], None, &piece);
            self.total = total;
            // The owner sends it to every other rank.
            self.sent += used? as f64 * beyond;
            out[piece].copy_from_slice(&self.decoded[..len]);
        }
        Ok(())
    }

    /// Encodes values of a rank, or the sum, and decodes what receivers see; gives the bytes used.
    fn through(
        &mut self,
        values: &[f32],
        rank: Option<usize>,
        piece: &Range<usize>,
    ) -> Result<usize, CodecError> {
        let decoded = &mut self.decoded[..values.len()];
        if self.way.method.feedback {
            let kept = rank.map_or(&mut self.server, |rank| &mut self.worker[rank]);
            let residual = &mut kept[piece.clone()];
            return feedback::encode(&mut self.codec, values, residual, &mut self.wire, decoded);
        }
        let used = self.codec.encode(values, &mut self.wire)?;
        self.codec.decode(&self.wire[..used], decoded)?;
        Ok(used)
    }

    /// MPI's all-reduce with an operation that adds codes, rank after rank (Oyama).
    fn operator(
        &mut self,
        (rounding, scale): (Rounding, Scale),
        ranks: &[Vec<f32>],
        tensor: Range<usize>,
        out: &mut [f32],
    ) {
        let codec = Fp8::new(Float8::E5m2(rounding), Scale::None);
        let len = tensor.len();
        let mut carried = vec![false; ranks.len()];
        let mut largest = 0.0f32;
        for (rank, values) in ranks.iter().enumerate() {
            let values = &values[tensor.clone()];
            carried[rank] = self.way.method.feedback
                && feedback::carry(values, &mut self.worker[rank][tensor.clone()]);
            let source = if carried[rank] { &self.worker[rank][tensor.clone()] } else { values };
            largest = largest.max(largest_magnitude(source));
        }
        let scale = match scale {
            Scale::None => 1.0,
            _ => power_of_two::<E5m2>(largest, self.ranks as u32),
        };
        let (mut totals, mut codes) = (vec![0; len], vec![0; len]);
        for (rank, values) in ranks.iter().enumerate() {
            if carried[rank] {
                let residual = &mut self.worker[rank][tensor.clone()];
                codec.encode_scaled(residual, scale, &mut codes);
                codec.decode_scaled(&codes, scale, &mut self.decoded[..len]);
                feedback::keep_lost(residual, &self.decoded[..len]);
            } else {
                codec.encode_scaled(&values[tensor.clone()], scale, &mut codes);
            }
            match rank {
                0 => totals.copy_from_slice(&codes),
                _ => e5m2_sum::add(&codes, &mut totals, rounding),
            }
        }
        codec.decode_scaled(&totals, scale, &mut out[tensor]);
        // A ring of codes, and the scale.
        self.sent += (2.0 * len as f64 + 8.0) * self.beyond_own();
    }

    /// Bytes that a rank has sent since the beginning, in the mean.
    pub fn sent(&self) -> f64 {
        self.sent
    }

    /// Euclidean norm of all that is to be made up for.
    pub fn carried(&self) -> f64 {
        let all = self.worker.iter().chain([&self.server]).flatten();
        all.map(|value| f64::from(*value).powi(2)).fold(0.0, |sum, square| sum + square).sqrt()
    }
}

/// The sum in single precision, in the order of ranks.
pub fn plain(ranks: &[Vec<f32>], places: Range<usize>, out: &mut [f32]) {
    for (rank, values) in ranks.iter().enumerate() {
        let values = &values[places.clone()];
        match rank {
            0 => out.copy_from_slice(values),
            _ => out.iter_mut().zip(values).for_each(|(sum, value)| *sum += value),
        }
    }
}

#[cfg(test)]
#[path = "sums_tests.rs"]
mod tests;
