//! Resources that all buckets use in turn: messages, codecs, scratch memory.

use crate::device::Coder;
use crate::transport::{Nonblocking, TransportError};
use pipewright_core::compress::division::CHUNK;
use pipewright_core::compress::{Codec, CodecError, CodecKind, Float8, Fp8, Rounding, Scale};
use std::collections::VecDeque;

pub(super) struct Resources {
    pub endpoint: Box<dyn Nonblocking>,
    /// The device's codecs, where values may lie there.
    pub coder: Option<Box<dyn Coder>>,
    codecs: Vec<(CodecKind, Box<dyn Codec>)>,
    /// E5M2 under scales that the operator chose, truncated and to nearest.
    operators: [Fp8; 2],
    pub scratch: Scratch,
    pub turns: Turns,
}

/// By group: the buckets that have calls of theirs to start there, in the order in which they were
/// started. All ranks of a group must start its calls in one order, whoever is ready first.
pub(super) struct Turns(Vec<VecDeque<usize>>);

impl Turns {
    /// A bucket will start calls on a group.
    pub fn queue(&mut self, process_group: usize, bucket: usize) {
        self.0[process_group].push_back(bucket);
    }

    /// Whether it may start them now.
    pub fn has_turn(&self, process_group: usize, bucket: usize) -> bool {
        self.0[process_group].front() == Some(&bucket)
    }

    /// It has started them all.
    pub fn pass_turn(&mut self, process_group: usize) {
        self.0[process_group].pop_front();
    }
}

/// Room to compute in.
pub(super) struct Scratch {
    /// Values of a chunk: decoded, and their sum.
    pub decoded: Vec<f32>,
    pub sum: Vec<f32>,
    /// By rank: how much of a message is decoded.
    pub read: Vec<usize>,
}

/// One codec, and what is used beside it.
pub(super) struct Workspace<'a> {
    pub codec: &'a mut dyn Codec,
    /// Codes under scales that the operator chose.
    pub operator: &'a Fp8,
    pub scratch: &'a mut Scratch,
    pub endpoint: &'a mut dyn Nonblocking,
    pub turns: &'a mut Turns,
    pub coder: Option<&'a mut dyn Coder>,
}

impl Resources {
    /// For `groups` groups and any of `kinds`.
    pub fn new(
        endpoint: Box<dyn Nonblocking>,
        coder: Option<Box<dyn Coder>>,
        process_groups: usize,
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
        let turns = (0..process_groups).map(|_| VecDeque::with_capacity(buckets)).collect();
        Ok(Self {
            endpoint,
            coder,
            codecs,
            operators: [operator(Rounding::Truncate), operator(Rounding::NearestEven)],
            scratch: Scratch { decoded: vec![0.0; CHUNK], sum: vec![0.0; CHUNK], read: vec![] },
            turns: Turns(turns),
        })
    }

    /// The codec of a kind that was named in [`Tools::new`].
    pub fn workspace(&mut self, kind: CodecKind) -> Workspace<'_> {
        let codec = self.codecs.iter_mut().find(|(known, _)| *known == kind);
        let [truncating, nearest] = &self.operators;
        let truncates = matches!(kind, CodecKind::Fp8E5m2 { rounding: Rounding::Truncate, .. });
        Workspace {
            codec: &mut *codec.expect("built for all reductions").1,
            operator: if truncates { truncating } else { nearest },
            scratch: &mut self.scratch,
            endpoint: &mut *self.endpoint,
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
