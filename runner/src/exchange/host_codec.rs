//! Encoding and decoding on this processor, chunk by chunk and piece by piece.

use super::encoder::{self, Lengths};
use super::memory::{MessageBuffer, Values};
use super::pieces::{Layout, Parts, Piece};
use super::residual::Residuals;
use super::resources::{Resources, Scratch};
use crate::transport::TransportError;
use pipewright_core::compress::scale::largest_magnitude;
use pipewright_core::compress::{Codec, CodecError, Fp8, feedback};
use std::collections::VecDeque;
use std::ops::Range;

/// For two-shot sums.
pub(super) struct HostTwoShot<'a> {
    pub bucket: usize,
    /// Ranks of the group, and this rank's place there.
    pub ranks: &'a [u32],
    pub own: usize,
    pub parts: &'a Parts,
    pub layout: &'a Layout,
    pub feedback: bool,
    pub codec: &'a mut dyn Codec,
    pub scratch: &'a mut Scratch,
    pub values: Values,
    pub out: &'a MessageBuffer,
    pub incoming: &'a MessageBuffer,
    pub residuals: &'a mut Residuals,
}

impl HostTwoShot<'_> {
    /// An error of the codec, on what the `rank`-th rank sent.
    fn fault(&self, rank: usize, source: CodecError) -> TransportError {
        Resources::fault(self.bucket, self.ranks[rank], source)
    }

    /// An error if something is `left` of a message of the `rank`-th rank when its values are read.
    fn whole(&self, left: bool, rank: usize) -> Result<(), TransportError> {
        if !left {
            return Ok(());
        }
        let codec = self.codec.name();
        let source = CodecError::Damaged { codec, what: "it is longer than its values" };
        Err(self.fault(rank, source))
    }

    fn encode_chunk(&mut self, part: usize, chunk: usize) -> Result<usize, CodecError> {
        // SAFETY: nothing else uses this chunk's bytes before it is sent, when this has returned.
        let wire = unsafe { self.out.write(self.layout.first[part][chunk].clone()) };
        let mut used = 0;
        for piece in &self.parts[part][chunk] {
            // SAFETY: the only slice, and in this phase no call is under way on values.
            let values = unsafe { self.values.piece(&piece.range) };
            let wire = &mut wire[used..];
            used += if self.feedback {
                let decoded = &mut self.scratch.decoded[..values.len()];
                let residual = self.residuals.worker(piece);
                feedback::encode(&mut *self.codec, values, residual, wire, decoded)?
            } else {
                self.codec.encode(values, wire)?
            };
        }
        Ok(used)
    }

    /// Sums a chunk; `lengths` of its messages, by rank.
    fn sum_chunk(
        &mut self,
        chunk: usize,
        lengths: impl Fn(usize) -> usize,
    ) -> Result<usize, TransportError> {
        let mut read = std::mem::take(&mut self.scratch.read);
        read.clear();
        read.resize(self.ranks.len(), 0);
        // SAFETY: nothing else uses this chunk's bytes before it is sent, when this has returned.
        let wire = unsafe { self.out.write(self.layout.sum[chunk].clone()) };
        let mut used = 0;
        for piece in &self.parts[self.own][chunk] {
            self.sum_piece(chunk, piece, &lengths, &mut read)?;
            // SAFETY: the only slice; the own values that were here are encoded.
            let values = unsafe { self.values.piece(&piece.range) };
            let (sum, wire) = (&self.scratch.sum[..values.len()], &mut wire[used..]);
            let codec = &mut *self.codec;
            let encoded = if self.feedback {
                let residual = self.residuals.server(piece);
                feedback::encode(codec, sum, residual, wire, values)
            } else {
                let encoded = codec.encode(sum, wire);
                encoded.and_then(|used| codec.decode(&wire[..used], values).map(|()| used))
            };
            used += encoded.map_err(|source| self.fault(self.own, source))?;
        }
        for (rank, read) in read.iter().enumerate() {
            self.whole(lengths(rank) != *read, rank)?;
        }
        self.scratch.read = read;
        Ok(used)
    }

    /// Adds all ranks' values of a piece into `room.sum`; `read` says how much of each rank's message is
    /// decoded.
    fn sum_piece(
        &mut self,
        chunk: usize,
        piece: &Piece,
        lengths: impl Fn(usize) -> usize,
        read: &mut [usize],
    ) -> Result<(), TransportError> {
        let len = piece.range.len();
        for (rank, read) in read.iter_mut().enumerate() {
            let (wire, start) = match rank == self.own {
                true => (self.out, self.layout.first[rank][chunk].start),
                false => (self.incoming, self.layout.arriving[rank][chunk].start),
            };
            // SAFETY: the message is there, and nobody writes to it.
            let message = unsafe { wire.read(start + *read..start + lengths(rank)) };
            let Scratch { sum, decoded, .. } = &mut *self.scratch;
            let (sum, decoded) = (&mut sum[..len], &mut decoded[..len]);
            let into = if rank == 0 { &mut *sum } else { &mut *decoded };
            let done = decode(self.codec, message, into);
            *read +=
                done.map_err(|source| Resources::fault(self.bucket, self.ranks[rank], source))?;
            if rank > 0 {
                sum.iter_mut().zip(decoded).for_each(|(sum, value)| *sum += *value);
            }
        }
        Ok(())
    }

    /// Decodes a sum of the `rank`-th rank, a message of so many bytes, into its place.
    fn decode_chunk(
        &mut self,
        rank: usize,
        chunk: usize,
        length: usize,
    ) -> Result<(), TransportError> {
        let start = self.layout.sums[rank][chunk].start;
        // SAFETY: the message is there, and nobody writes to it.
        let message = unsafe { self.incoming.read(start..start + length) };
        let mut read = 0;
        for piece in &self.parts[rank][chunk] {
            // SAFETY: the only slice; the own values that were here are encoded.
            let values = unsafe { self.values.piece(&piece.range) };
            let done = decode(self.codec, &message[read..], values);
            read += done.map_err(|source| self.fault(rank, source))?;
        }
        self.whole(read != length, rank)
    }
}

impl encoder::TwoShotCodec for HostTwoShot<'_> {
    fn at_once(&self) -> usize {
        1
    }

    fn ready(&mut self) -> Result<bool, TransportError> {
        Ok(true)
    }

    fn encode(&mut self, part: usize, chunks: Range<usize>) -> Result<Lengths, TransportError> {
        let encode = |chunk| self.encode_chunk(part, chunk);
        let lengths: Result<Lengths, CodecError> = chunks.map(encode).collect();
        lengths.map_err(|source| self.fault(self.own, source))
    }

    fn sum(
        &mut self,
        chunks: Range<usize>,
        arrived: &[VecDeque<usize>],
    ) -> Result<Lengths, TransportError> {
        let sum = |(at, chunk)| self.sum_chunk(chunk, |rank| arrived[rank][at]);
        chunks.enumerate().map(sum).collect()
    }

    fn decode(
        &mut self,
        part: usize,
        chunks: Range<usize>,
        lengths: &[usize],
    ) -> Result<(), TransportError> {
        let mut pairs = chunks.zip(lengths);
        pairs.try_for_each(|(chunk, length)| self.decode_chunk(part, chunk, *length))
    }
}

/// Decodes what a message begins with, and returns its length.
fn decode(codec: &dyn Codec, message: &[u8], values: &mut [f32]) -> Result<usize, CodecError> {
    let length = codec.message_bytes(message, values.len() as u64);
    // Longer than there is: the codec sees what there is and says so.
    let length = usize::try_from(length).unwrap_or(usize::MAX).min(message.len());
    codec.decode(&message[..length], values)?;
    Ok(length)
}

/// For sums of codes.
pub(super) struct HostOperator<'a> {
    pub pieces: &'a [Piece],
    pub feedback: bool,
    pub codec: &'a Fp8,
    pub scratch: &'a mut Scratch,
    pub values: Values,
    pub codes: &'a MessageBuffer,
    pub scales: &'a mut [f32],
    pub residuals: &'a mut Residuals,
}

impl encoder::OperatorCodec for HostOperator<'_> {
    fn at_once(&self) -> usize {
        1
    }

    fn ready(&mut self) -> Result<bool, TransportError> {
        Ok(true)
    }

    fn measure(&mut self, pieces: Range<usize>, agreed: bool) -> Result<(), TransportError> {
        for piece in &self.pieces[pieces] {
            // SAFETY: the only slice, and no call is under way on values.
            let values: &[f32] = unsafe { self.values.piece(&piece.range) };
            let carried = self.feedback && feedback::carry(values, self.residuals.worker(piece));
            let source = if carried { self.residuals.worker(piece) } else { values };
            let scale = &mut self.scales[piece.tensor];
            if !agreed {
                *scale = scale.max(largest_magnitude(source));
            }
        }
        Ok(())
    }

    fn encode(&mut self, pieces: Range<usize>) -> Result<(), TransportError> {
        for piece in &self.pieces[pieces] {
            let (scale, codec) = (self.scales[piece.tensor], self.codec);
            // SAFETY: no call on these codes has begun, and this is the only slice of the values.
            let (codes, values) =
                unsafe { (self.codes.write(piece.dense()), &*self.values.piece(&piece.range)) };
            if self.feedback && feedback::is_carried(values) {
                let residual = self.residuals.worker(piece);
                let decoded = &mut self.scratch.decoded[..codes.len()];
                codec.encode_scaled(residual, scale, codes);
                codec.decode_scaled(codes, scale, decoded);
                feedback::keep_lost(residual, decoded);
            } else {
                codec.encode_scaled(values, scale, codes);
            }
        }
        Ok(())
    }

    fn decode(&mut self, pieces: Range<usize>) -> Result<(), TransportError> {
        for piece in &self.pieces[pieces] {
            // SAFETY: the call on these codes has ended, and this is the only slice of the values.
            let (codes, values) =
                unsafe { (self.codes.read(piece.dense()), self.values.piece(&piece.range)) };
            self.codec.decode_scaled(codes, self.scales[piece.tensor], values);
        }
        Ok(())
    }

    fn scales(&mut self) -> &mut [f32] {
        self.scales
    }
}
