//! Codecs, chunk by chunk as sums of gradients use them, on all ranks at the same time: in a run they
//! share cores and memory.

use crate::transport::{ReduceOp, Transport, TransportError};
use pipewright_core::compress::division::CHUNK;
use pipewright_core::compress::{Codec, CodecKind, Rounding, Scale, Threshold, USUAL};
use pipewright_core::cost::CodecSpeed;
use std::time::Instant;

/// How long each direction of a codec is measured, long enough for ranks that share a core to take
/// turns.
const SECONDS: f64 = 0.12;

/// Others of a kind are as fast as these.
fn kinds() -> Vec<CodecKind> {
    let mut kinds = vec![CodecKind::Fp32, CodecKind::Fp16];
    kinds.extend(USUAL.iter().map(|way| way.method.codec));
    kinds.extend([
        CodecKind::Fp8E5m2 { rounding: Rounding::Truncate, scale: Scale::Percentile },
        CodecKind::Fp8E4m3 { scale: Scale::PowerOfTwo },
        CodecKind::Table { bits: 1 },
        CodecKind::OneBit { threshold: Threshold::Mean },
        CodecKind::SignNorm,
        CodecKind::Int8 { block: None },
        CodecKind::TopK { one_in: 1000, momentum: None },
    ]);
    kinds
}

/// Speeds of a core, the same on all ranks, all of which call it. `crowd` ranks share a core. Each rank
/// has so many `bytes` of values, a chunk of which comes from the cache or from memory.
pub(super) fn measure<T: Transport>(
    transport: &mut T,
    crowd: f64,
    bytes: usize,
) -> Result<Vec<CodecSpeed>, TransportError> {
    let values = values((bytes / (4 * CHUNK)).max(1));
    let mut speeds = vec![];
    for codec in kinds() {
        let mut mean = [0.0; 2];
        let mut bench = Bench::new(codec, &values);
        for (speed, pass) in mean.iter_mut().zip([Bench::encode, Bench::decode]) {
            transport.barrier()?;
            *speed = throughput(bench.chunks(), |chunk| pass(&mut bench, chunk));
        }
        transport.all_reduce(&mut mean, ReduceOp::Sum)?;
        let [encode, decode] = mean.map(|sum| sum / f64::from(transport.ranks()) * crowd);
        let (encode_bytes_per_sec, decode_bytes_per_sec) = (encode.round(), decode.round());
        speeds.push(CodecSpeed { codec, encode_bytes_per_sec, decode_bytes_per_sec });
    }
    Ok(speeds)
}

/// About normal: sums of uniform numbers.
fn values(chunks: usize) -> Vec<f32> {
    let mut state = 1u64;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 40) as f32 / (1 << 24) as f32 - 0.5
    };
    (0..chunks * CHUNK).map(|_| (0..4).map(|_| uniform()).sum()).collect()
}

/// Bytes of single precision in a second, waits for the core included.
fn throughput(chunks: usize, mut chunk: impl FnMut(usize)) -> f64 {
    // Once around: pages are there, and tables are built.
    (0..chunks).for_each(&mut chunk);
    let start = Instant::now();
    let mut done = 0;
    while start.elapsed().as_secs_f64() < SECONDS {
        chunk(done % chunks);
        done += 1;
    }
    (done * 4 * CHUNK) as f64 / start.elapsed().as_secs_f64()
}

/// Buffers of one codec.
struct Bench<'a> {
    /// None for single precision, which is copied and added.
    codec: Option<Box<dyn Codec>>,
    values: &'a [f32],
    wire: Vec<u8>,
    /// Bytes of the wire that each chunk has.
    each: usize,
    /// By chunk, those that it used.
    used: Vec<usize>,
    decoded: Vec<f32>,
}

impl<'a> Bench<'a> {
    fn new(kind: CodecKind, values: &'a [f32]) -> Self {
        let codec = kind.build(CHUNK).expect("settings are right");
        let each = codec.wire_bytes(CHUNK as u64) as usize;
        let chunks = values.len() / CHUNK;
        Self {
            codec: (!kind.is_lossless()).then_some(codec),
            values,
            wire: vec![0; chunks * each],
            each,
            used: vec![each; chunks],
            decoded: vec![0.0; values.len()],
        }
    }

    fn chunks(&self) -> usize {
        self.used.len()
    }

    fn encode(&mut self, chunk: usize) {
        let values = &self.values[chunk * CHUNK..][..CHUNK];
        let wire = &mut self.wire[chunk * self.each..][..self.each];
        match &mut self.codec {
            Some(codec) => {
                self.used[chunk] = codec.encode(values, wire).expect("the buffer is large")
            }
            None => self.decoded[chunk * CHUNK..][..CHUNK].copy_from_slice(values),
        }
    }

    fn decode(&mut self, chunk: usize) {
        let wire = &self.wire[chunk * self.each..][..self.used[chunk]];
        let decoded = &mut self.decoded[chunk * CHUNK..][..CHUNK];
        match &self.codec {
            Some(codec) => codec.decode(wire, decoded).expect("its own message"),
            None => {
                let values = &self.values[chunk * CHUNK..][..CHUNK];
                decoded.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_speeds() {
        let mut alone = crate::transport::local::local(1, 1).remove(0);
        let speeds = measure(&mut alone, 2.0, 16 * CHUNK).unwrap();
        assert_eq!(speeds.len(), kinds().len());
        for speed in &speeds {
            let [encode, decode] = [speed.encode_bytes_per_sec, speed.decode_bytes_per_sec];
            assert!(encode > 1e6 && decode > 1e6, "{speed:?}");
        }
        let again: Vec<CodecKind> = speeds.iter().map(|speed| speed.codec).collect();
        assert_eq!(again, kinds());
    }
}
