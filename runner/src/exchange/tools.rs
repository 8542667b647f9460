//! What all buckets use in turn: messages, codecs, room to compute in.

use crate::transport::{Links, TransportError};
use pipewright_core::compress::division::CHUNK;
use pipewright_core::compress::{Codec, CodecError, CodecKind, Float8, Fp8, Rounding, Scale};
use std::collections::VecDeque;

pub(super) struct Tools {
    pub links: Box<dyn Links>,
    codecs: Vec<(CodecKind, Box<dyn Codec>)>,
    /// E5M2 under scales that the operator chose, truncated and to nearest.
    operators: [Fp8; 2],
    /// Values of a chunk: decoded, and their sum.
    pub room: Room,
    /// By circle: the buckets that have calls of theirs to start there, in the order in which they were
    /// started. All ranks of a circle must start its calls in one order, whoever is ready first.
    turns: Vec<VecDeque<usize>>,
}

/// Room for values.
pub(super) struct Room {
    pub decoded: Vec<f32>,
    pub sum: Vec<f32>,
}

/// One codec and what it needs.
pub(super) struct Bench<'a> {
    pub codec: &'a mut dyn Codec,
    pub room: &'a mut Room,
    pub links: &'a mut dyn Links,
}

impl Tools {
    /// For `circles` circles and any of `kinds`.
    pub fn new(
        links: Box<dyn Links>,
        circles: usize,
        buckets: usize,
        kinds: impl Iterator<Item = CodecKind>,
    ) -> Result<Self, CodecError> {
        let mut codecs: Vec<(CodecKind, Box<dyn Codec>)> = vec![];
        for kind in kinds {
            if codecs.iter().all(|(known, _)| *known != kind) {
                codecs.push((kind, kind.build(CHUNK)?));
            }
        }
        let operator = |rounding| Fp8::new(Float8::E5m2(rounding), Scale::None);
        Ok(Self {
            links,
            codecs,
            operators: [operator(Rounding::Truncate), operator(Rounding::NearestEven)],
            room: Room { decoded: vec![0.0; CHUNK], sum: vec![0.0; CHUNK] },
            turns: (0..circles).map(|_| VecDeque::with_capacity(buckets)).collect(),
        })
    }

    /// The codec of a kind that was named in [`Tools::new`].
    pub fn bench(&mut self, kind: CodecKind) -> Bench<'_> {
        let codec = self.codecs.iter_mut().find(|(known, _)| *known == kind);
        let codec = &mut *codec.expect("built for all reductions").1;
        Bench { codec, room: &mut self.room, links: &mut *self.links }
    }

    /// Codes of the operator that rounds so, and room for values.
    pub fn operator(&mut self, rounding: Rounding) -> (&Fp8, &mut Room) {
        let [truncating, nearest] = &self.operators;
        let codec = if rounding == Rounding::Truncate { truncating } else { nearest };
        (codec, &mut self.room)
    }

    /// A bucket will start calls on a circle.
    pub fn queue(&mut self, circle: usize, bucket: usize) {
        self.turns[circle].push_back(bucket);
    }

    /// Whether it may start them now.
    pub fn has_turn(&self, circle: usize, bucket: usize) -> bool {
        self.turns[circle].front() == Some(&bucket)
    }

    /// It has started them all.
    pub fn pass_turn(&mut self, circle: usize) {
        self.turns[circle].pop_front();
    }

    /// An error of a codec, on values of `rank`.
    pub fn fault(bucket: usize, rank: u32, source: CodecError) -> TransportError {
        TransportError::Codec { bucket, rank, source }
    }
}
