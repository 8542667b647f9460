//! MPI's all-reduce of E5M2 codes, added by an operator of ours (Oyama). A tensor's codes have one scale
//! on all ranks, found by a small all-reduce before: sums of all ranks' values fit (APS).

use super::encoder::OperatorCodec;
use super::memory::MessageBuffer;
use super::pieces::{Piece, segments};
use super::resources::Turns;
use crate::transport::{CollectiveOp, Nonblocking, Request, TransportError};
use pipewright_core::compress::narrow::E5m2;
use pipewright_core::compress::scale::power_of_two;
use pipewright_core::compress::{CodecKind, Rounding, Scale};
use std::collections::VecDeque;
use std::ops::Range;

/// What stays the same from step to step.
pub(super) struct Operator {
    /// Process group of the calls that find scales.
    scales: usize,
    /// Process group of the calls that add codes.
    codes: usize,
    /// Ranks whose values are added.
    terms: u32,
    /// What one call takes.
    segments: Vec<Range<usize>>,
    progress: Progress,
}

/// Where a sum stands: pieces, or segments, that are done.
#[derive(Default)]
struct Progress {
    measured: usize,
    agreeing: Option<Request>,
    agreed: bool,
    encoded: usize,
    started: usize,
    decoded: usize,
    calls: VecDeque<Request>,
}

/// A step's particulars.
pub(super) struct OperatorStep<'a> {
    pub bucket: usize,
    pub codec: CodecKind,
    /// All of this rank's.
    pub pieces: &'a [Piece],
    pub codes: &'a MessageBuffer,
    pub turns: &'a mut Turns,
}

/// How the codec rounds, and whether tensors have scales.
pub(super) fn settings(codec: CodecKind) -> (Rounding, bool) {
    match codec {
        CodecKind::Fp8E5m2 { rounding, scale } => (rounding, scale != Scale::None),
        // No other codec has this algorithm: refused at construction.
        _ => (Rounding::NearestEven, false),
    }
}

impl Operator {
    pub fn new(pieces: &[Piece], terms: usize, scales: usize, codes: usize) -> Self {
        let segments = segments(pieces);
        let calls = VecDeque::with_capacity(segments.len());
        let progress = Progress { calls, ..Progress::default() };
        Self { scales, codes, terms: terms as u32, segments, progress }
    }

    /// Calls under way at a time, at most.
    pub fn requests(&self) -> usize {
        self.segments.len() + 1
    }

    pub fn start(&mut self, step: &mut OperatorStep, scales: &mut [f32]) {
        let calls = std::mem::take(&mut self.progress.calls);
        let (_, scaled) = settings(step.codec);
        self.progress = Progress { calls, agreed: !scaled, ..Progress::default() };
        if scaled {
            scales.fill(0.0);
            step.turns.queue(self.scales, step.bucket);
        } else {
            scales.fill(1.0);
        }
        if !self.segments.is_empty() {
            step.turns.queue(self.codes, step.bucket);
        }
    }

    /// Does one thing, if there is one to do.
    pub fn advance(
        &mut self,
        step: &mut OperatorStep,
        encoder: &mut dyn OperatorCodec,
        endpoint: &mut dyn Nonblocking,
    ) -> Result<bool, TransportError> {
        let count = step.pieces.len();
        let next = |done: usize, most: usize| done..done + most.min(count - done);
        if self.progress.measured < count {
            if !encoder.ready()? {
                return Ok(false);
            }
            let pieces = next(self.progress.measured, encoder.at_once());
            self.progress.measured = pieces.end;
            encoder.measure(pieces, self.progress.agreed)?;
            return Ok(true);
        }
        if !self.progress.agreed {
            return self.agree(step, encoder.scales(), endpoint);
        }
        if self.progress.encoded < count {
            let pieces = next(self.progress.encoded, encoder.at_once());
            self.progress.encoded = pieces.end;
            encoder.encode(pieces)?;
            self.call(step, endpoint)?;
            return Ok(true);
        }
        self.call(step, endpoint)?;
        let Some(request) = self.progress.calls.front() else { return Ok(false) };
        if endpoint.test(request)?.is_none() {
            return Ok(false);
        }
        self.progress.calls.pop_front();
        encoder.decode(self.segments[self.progress.decoded].clone())?;
        self.progress.decoded += 1;
        Ok(true)
    }

    pub fn is_done(&self) -> bool {
        self.progress.agreed && self.progress.decoded == self.segments.len()
    }

    /// Finds the scales that all ranks take.
    fn agree(
        &mut self,
        step: &mut OperatorStep,
        scales: &mut [f32],
        endpoint: &mut dyn Nonblocking,
    ) -> Result<bool, TransportError> {
        let process_group = self.scales;
        let Some(request) = &self.progress.agreeing else {
            if !step.turns.has_turn(process_group, step.bucket) {
                return Ok(false);
            }
            let (at, len) = (scales.as_mut_ptr().cast(), scales.len());
            // SAFETY: single precision that nobody touches before the call has ended, below.
            let call = unsafe { endpoint.call(process_group, CollectiveOp::Max, at, len)? };
            self.progress.agreeing = Some(call);
            step.turns.pass_turn(process_group);
            return Ok(true);
        };
        if endpoint.test(request)?.is_none() {
            return Ok(false);
        }
        for scale in scales {
            *scale = power_of_two::<E5m2>(*scale, self.terms);
        }
        (self.progress.agreeing, self.progress.agreed) = (None, true);
        Ok(true)
    }

    /// Starts calls of the segments that are encoded, in this bucket's turn.
    fn call(
        &mut self,
        step: &mut OperatorStep,
        endpoint: &mut dyn Nonblocking,
    ) -> Result<(), TransportError> {
        let process_group = self.codes;
        while let Some(segment) = self.segments.get(self.progress.started)
            && segment.end <= self.progress.encoded
            && step.turns.has_turn(process_group, step.bucket)
        {
            let (first, last) = (&step.pieces[segment.start], &step.pieces[segment.end - 1]);
            let codes = step.codes.place(first.at..last.dense().end);
            let op = CollectiveOp::Codes(settings(step.codec).0);
            // SAFETY: nobody touches these codes before the call has ended.
            let call = unsafe { endpoint.call(process_group, op, codes.cast(), codes.len())? };
            self.progress.calls.push_back(call);
            self.progress.started += 1;
            if self.progress.started == self.segments.len() {
                step.turns.pass_turn(process_group);
            }
        }
        Ok(())
    }
}
