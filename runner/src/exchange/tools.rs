//! What all buckets use in turn: messages, codecs, room to compute in.

use crate::device::Coder;
use crate::transport::{Links, TransportError};
use pipewright_core::compress::division::CHUNK;
use pipewright_core::compress::{Codec, CodecError, CodecKind, Float8, Fp8, Rounding, Scale};
use std::collections::VecDeque;

pub(super) struct Tools {
    pub links: Box<dyn Links>,
    /// The device's codecs, where values may lie there.
    pub coder: Option<Box<dyn Coder>>,
    codecs: Vec<(CodecKind, Box<dyn Codec>)>,
    /// E5M2 under scales that the operator chose, truncated and to nearest.
    operators: [Fp8; 2],
    pub room: Room,
    pub turns: Turns,
}

/// By circle: the buckets that have calls of theirs to start there, in the order in which they were
/// started. All ranks of a circle must start its calls in one order, whoever is ready first.
pub(super) struct Turns(Vec<VecDeque<usize>>);

impl Turns {
    /// A bucket will start calls on a circle.
    pub fn queue(&mut self, circle: usize, bucket: usize) {
        self.0[circle].push_back(bucket);
    }

    /// Whether it may start them now.
    pub fn has_turn(&self, circle: usize, bucket: usize) -> bool {
        self.0[circle].front() == Some(&bucket)
    }

    /// It has started them all.
    pub fn pass_turn(&mut self, circle: usize) {
        self.0[circle].pop_front();
    }
}

/// Room to compute in.
pub(super) struct Room {
    /// Values of a chunk: decoded, and their sum.
    pub decoded: Vec<f32>,
    pub sum: Vec<f32>,
    /// By rank: how much of a message is decoded.
    pub read: Vec<usize>,
}

/// One codec, and what is used beside it.
pub(super) struct Bench<'a> {
    pub codec: &'a mut dyn Codec,
    /// Codes under scales that the operator chose.
    pub operator: &'a Fp8,
    pub room: &'a mut Room,
    pub links: &'a mut dyn Links,
    pub turns: &'a mut Turns,
    pub coder: Option<&'a mut dyn Coder>,
}

impl Tools {
    /// For `circles` circles and any of `kinds`.
    pub fn new(
        links: Box<dyn Links>,
        coder: Option<Box<dyn Coder>>,
        (circles, buckets): (usize, usize),
        kinds: impl Iterator<Item = CodecKind>,
    ) -> Result<Self, CodecError> {
        let mut codecs: Vec<(CodecKind, Box<dyn Codec>)> = vec![];
        for kind in kinds {
            if codecs.iter().all(|(known, _)| *known != kind) {
                codecs.push((kind, kind.build(CHUNK)?));
            }
        }
        let operator = |rounding| Fp8::new(Float8::E5m2(rounding), Scale::None);
        let turns = (0..circles).map(|_| VecDeque::with_capacity(buckets)).collect();
        Ok(Self {
            links,
            coder,
            codecs,
            operators: [operator(Rounding::Truncate), operator(Rounding::NearestEven)],
            room: Room { decoded: vec![0.0; CHUNK], sum: vec![0.0; CHUNK], read: vec![] },
            turns: Turns(turns),
        })
    }

    /// The codec of a kind that was named in [`Tools::new`].
    pub fn bench(&mut self, kind: CodecKind) -> Bench<'_> {
        let codec = self.codecs.iter_mut().find(|(known, _)| *known == kind);
        let [truncating, nearest] = &self.operators;
        let truncates = matches!(kind, CodecKind::Fp8E5m2 { rounding: Rounding::Truncate, .. });
        Bench {
            codec: &mut *codec.expect("built for all reductions").1,
            operator: if truncates { truncating } else { nearest },
            room: &mut self.room,
            links: &mut *self.links,
            turns: &mut self.turns,
            coder: self.coder.as_deref_mut().map(|coder| coder as &mut dyn Coder),
        }
    }

    /// The device's codecs.
    pub fn coder(&mut self) -> Option<&mut dyn Coder> {
        self.coder.as_deref_mut().map(|coder| coder as &mut dyn Coder)
    }

    /// An error of a codec, on values of `rank`.
    pub fn fault(bucket: usize, rank: u32, source: CodecError) -> TransportError {
        TransportError::Codec { bucket, rank, source }
    }
}
