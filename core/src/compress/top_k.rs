//! The largest values alone, with their places (Deep Gradient Compression, Lin et al. 2018).
//!
//! With momentum m, what is sent comes from sums that each rank keeps: u ← m u + g, v ← v + u; the
//! largest of v are sent, and at their places u and v become zero, so that a value that waits gains
//! the momentum it would have had. The choice is exact: k magnitudes, ties to the smaller place.
//!
//! Wire: the number of entries, then place and value of each, by ascending place. Zeros are not sent.
//! Of a tensor that is not finite only the number 2^32 - 1 is sent, and nothing is added up.

use super::wire::{all_finite, put_f32, take_f32};
use super::{Codec, CodecError, wire};

/// Head of a message that says: not finite.
const POISON: u32 = u32::MAX;

/// One value in so many.
#[derive(Clone, Debug)]
pub struct TopK {
    values: usize,
    one_in: u32,
    momentum: f32,
    /// u and v of the paper; empty without momentum.
    velocity: Vec<f32>,
    waiting: Vec<f32>,
    /// Magnitudes, to find the smallest that is sent.
    magnitudes: Vec<u32>,
}

impl TopK {
    /// The largest of each `values` values that it is given, one in `one_in`, rounded up.
    pub fn new(values: usize, one_in: u32) -> Result<Self, CodecError> {
        let codec = "top-k";
        if one_in == 0 {
            return Err(CodecError::Settings { codec, what: "one in 0 is none: take 1 or more" });
        }
        if values as u64 >= u64::from(POISON) {
            return Err(CodecError::Settings { codec, what: "places have 32 bits: use buckets" });
        }
        let magnitudes = vec![0; values];
        Ok(Self { values, one_in, momentum: 0.0, velocity: vec![], waiting: vec![], magnitudes })
    }

    /// With momentum correction: values that are not sent wait. Needs no [`super::feedback::ErrorFeedback`],
    /// and the optimizer no momentum.
    pub fn with_momentum(values: usize, one_in: u32, momentum: f32) -> Result<Self, CodecError> {
        if !(0.0..1.0).contains(&momentum) {
            let what = "momentum is at least 0 and below 1";
            return Err(CodecError::Settings { codec: "top-k", what });
        }
        let (velocity, waiting) = (vec![0.0; values], vec![0.0; values]);
        Ok(Self { momentum, velocity, waiting, ..Self::new(values, one_in)? })
    }

    fn accumulate(&mut self, gradient: &[f32]) {
        for ((u, v), g) in self.velocity.iter_mut().zip(&mut self.waiting).zip(gradient) {
            *u = self.momentum * *u + g;
            *v += *u;
        }
    }

    /// Writes the `most` largest of `source` and returns the bytes used.
    fn write(magnitudes: &mut [u32], source: &[f32], most: usize, wire: &mut [u8]) -> usize {
        for (magnitude, value) in magnitudes.iter_mut().zip(source) {
            *magnitude = value.abs().to_bits();
        }
        let at = source.len() - most;
        let (_, least, above) = magnitudes[..source.len()].select_nth_unstable(at);
        let least = *least;
        let mut ties = most - above.iter().filter(|m| **m > least).count();
        let mut count = 0;
        let entries = wire[4..].as_chunks_mut::<8>().0;
        for (place, value) in source.iter().enumerate() {
            let magnitude = value.abs().to_bits();
            if magnitude < least || magnitude == 0 || (magnitude == least && ties == 0) {
                continue;
            }
            ties -= usize::from(magnitude == least);
            entries[count][..4].copy_from_slice(&(place as u32).to_le_bytes());
            put_f32(&mut entries[count][4..], *value);
            count += 1;
        }
        wire[..4].copy_from_slice(&(count as u32).to_le_bytes());
        4 + 8 * count
    }
}

/// Place and value of each entry of a message.
fn entries(wire: &[u8]) -> impl Iterator<Item = (usize, f32)> + Clone {
    wire[4..].as_chunks::<8>().0.iter().map(|entry| {
        let place = u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
        (place as usize, take_f32(&entry[4..]).0)
    })
}

impl Codec for TopK {
    fn name(&self) -> &'static str {
        "top-k"
    }

    /// The most that it may use.
    fn wire_bytes(&self, values: u64) -> u64 {
        4 + 8 * values.div_ceil(u64::from(self.one_in))
    }

    fn encode(&mut self, values: &[f32], wire: &mut [u8]) -> Result<usize, CodecError> {
        let fits = values.len() < self.values && self.waiting.is_empty();
        if values.len() != self.values && !fits {
            let (expected, got) = (self.values, values.len());
            return Err(CodecError::WrongCount { codec: self.name(), expected, got });
        }
        let wire = wire::space(self, values.len(), wire)?;
        if !all_finite(values) {
            wire[..4].copy_from_slice(&POISON.to_le_bytes());
            return Ok(4);
        }
        if values.is_empty() {
            wire.fill(0);
            return Ok(4);
        }
        let most = (wire.len() - 4) / 8;
        if self.waiting.is_empty() {
            return Ok(Self::write(&mut self.magnitudes, values, most, wire));
        }
        self.accumulate(values);
        let used = Self::write(&mut self.magnitudes, &self.waiting, most, wire);
        for (place, _) in entries(&wire[..used]) {
            (self.velocity[place], self.waiting[place]) = (0.0, 0.0);
        }
        Ok(used)
    }

    fn message_bytes(&self, wire: &[u8], _values: u64) -> u64 {
        let count = wire.first_chunk().map_or(0, |head| u32::from_le_bytes(*head));
        if count == POISON { 4 } else { 4 + 8 * u64::from(count) }
    }

    fn decode(&self, wire: &[u8], values: &mut [f32]) -> Result<(), CodecError> {
        let (codec, got) = (self.name(), wire.len());
        let wrong = |needed| CodecError::WrongLength { codec, values: values.len(), needed, got };
        let most = self.wire_bytes(values.len() as u64);
        let Some(head) = wire.first_chunk() else { return Err(wrong(most)) };
        let count = u32::from_le_bytes(*head);
        let needed = if count == POISON { 4 } else { 4 + 8 * u64::from(count) };
        if needed != got as u64 || needed > most {
            return Err(wrong(needed.min(most)));
        }
        if count == POISON {
            values.fill(f32::NAN);
            return Ok(());
        }
        let places = entries(wire).map(|(place, _)| place);
        if !places.clone().is_sorted_by(|a, b| a < b) || places.last() >= Some(values.len()) {
            let what = "its places do not ascend within the tensor";
            return Err(CodecError::Damaged { codec, what });
        }
        values.fill(0.0);
        for (place, value) in entries(wire) {
            values[place] = value;
        }
        Ok(())
    }

    fn visit_state(&mut self, visit: &mut dyn FnMut(&'static str, &mut [f32])) {
        if !self.waiting.is_empty() {
            visit("velocity", &mut self.velocity);
            visit("waiting", &mut self.waiting);
        }
    }
}
