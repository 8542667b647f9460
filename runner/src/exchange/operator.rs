//! MPI's all-reduce of E5M2 codes, added by an operator of ours (Oyama). A tensor's codes have one scale
//! on all ranks, found by a small all-reduce before: sums of all ranks' values fit (APS).

use super::memory::{Values, Wire};
use super::pieces::{Piece, segments};
use super::residual::Residuals;
use super::tools::Tools;
use crate::transport::{Joint, Ticket, TransportError};
use pipewright_core::compress::narrow::E5m2;
use pipewright_core::compress::scale::{largest_magnitude, power_of_two};
use pipewright_core::compress::{CodecKind, Method, Rounding, Scale, feedback};
use std::collections::VecDeque;
use std::ops::Range;

/// What stays the same from step to step.
pub(super) struct Operator {
    /// Circles of the calls that find scales, and of those that add codes.
    circles: (usize, usize),
    /// Ranks whose values are added.
    terms: u32,
    pieces: Vec<Piece>,
    /// What one call takes.
    segments: Vec<Range<usize>>,
    progress: Progress,
}

/// Where a sum stands: pieces, or segments, that are done.
#[derive(Default)]
struct Progress {
    measured: usize,
    agreeing: Option<Ticket>,
    agreed: bool,
    encoded: usize,
    started: usize,
    decoded: usize,
    calls: VecDeque<Ticket>,
}

/// A step's particulars.
pub(super) struct Step<'a> {
    pub bucket: usize,
    pub method: Method,
    pub values: Values,
    pub codes: &'a Wire,
    pub scales: &'a mut [f32],
    pub residuals: &'a mut Residuals,
}

/// How the codec rounds, and whether tensors have scales.
fn settings(codec: CodecKind) -> (Rounding, bool) {
    match codec {
        CodecKind::Fp8E5m2 { rounding, scale } => (rounding, scale != Scale::None),
        // No other codec has this algorithm: refused at construction.
        _ => (Rounding::NearestEven, false),
    }
}

impl Operator {
    pub fn new(pieces: Vec<Piece>, terms: usize, circles: (usize, usize)) -> Self {
        let segments = segments(&pieces);
        let calls = VecDeque::with_capacity(segments.len());
        let progress = Progress { calls, ..Progress::default() };
        Self { circles, terms: terms as u32, pieces, segments, progress }
    }

    /// Calls under way at a time, at most.
    pub fn tickets(&self) -> usize {
        self.segments.len() + 1
    }

    pub fn start(&mut self, step: &mut Step, tools: &mut Tools) {
        let calls = std::mem::take(&mut self.progress.calls);
        let (_, scaled) = settings(step.method.codec);
        self.progress = Progress { calls, agreed: !scaled, ..Progress::default() };
        if scaled {
            step.scales.fill(0.0);
            tools.queue(self.circles.0, step.bucket);
        } else {
            step.scales.fill(1.0);
        }
        if !self.segments.is_empty() {
            tools.queue(self.circles.1, step.bucket);
        }
    }

    /// Does one thing, if there is one to do.
    pub fn advance(&mut self, step: &mut Step, tools: &mut Tools) -> Result<bool, TransportError> {
        if self.progress.measured < self.pieces.len() {
            self.measure(step);
            return Ok(true);
        }
        if !self.progress.agreed {
            return self.agree(step, tools);
        }
        if self.progress.encoded < self.pieces.len() {
            self.encode(step, tools);
            self.call(step, tools)?;
            return Ok(true);
        }
        self.call(step, tools)?;
        let Some(ticket) = self.progress.calls.front() else { return Ok(false) };
        if tools.links.test(ticket)?.is_none() {
            return Ok(false);
        }
        self.progress.calls.pop_front();
        self.decode(step, tools);
        Ok(true)
    }

    pub fn is_done(&self) -> bool {
        self.progress.agreed && self.progress.decoded == self.segments.len()
    }

    /// Adds what is carried over, and notes how large values are.
    fn measure(&mut self, step: &mut Step) {
        let piece = &self.pieces[self.progress.measured];
        // SAFETY: the only slice, and no call is under way on values.
        let values: &[f32] = unsafe { step.values.piece(&piece.range) };
        let carried = step.method.feedback && feedback::carry(values, step.residuals.worker(piece));
        let source = if carried { step.residuals.worker(piece) } else { values };
        let scale = &mut step.scales[piece.tensor];
        if !self.progress.agreed {
            *scale = scale.max(largest_magnitude(source));
        }
        self.progress.measured += 1;
    }

    /// Finds the scales that all ranks take.
    fn agree(&mut self, step: &mut Step, tools: &mut Tools) -> Result<bool, TransportError> {
        let circle = self.circles.0;
        let Some(ticket) = &self.progress.agreeing else {
            if !tools.has_turn(circle, step.bucket) {
                return Ok(false);
            }
            let (scales, len) = (step.scales.as_mut_ptr().cast(), step.scales.len());
            // SAFETY: single precision that nobody touches before the call has ended, below.
            let call = unsafe { tools.links.call(circle, Joint::Max, scales, len)? };
            self.progress.agreeing = Some(call);
            tools.pass_turn(circle);
            return Ok(true);
        };
        if tools.links.test(ticket)?.is_none() {
            return Ok(false);
        }
        for scale in step.scales.iter_mut() {
            *scale = power_of_two::<E5m2>(*scale, self.terms);
        }
        (self.progress.agreeing, self.progress.agreed) = (None, true);
        Ok(true)
    }

    fn encode(&mut self, step: &mut Step, tools: &mut Tools) {
        let piece = &self.pieces[self.progress.encoded];
        let scale = step.scales[piece.tensor];
        let (codec, room) = tools.operator(settings(step.method.codec).0);
        // SAFETY: no call on these codes has begun, and this is the only slice of the values.
        let (codes, values) =
            unsafe { (step.codes.write(piece.dense()), &*step.values.piece(&piece.range)) };
        if step.method.feedback && feedback::is_carried(values) {
            let (residual, decoded) = (step.residuals.worker(piece), &mut room.decoded);
            codec.encode_scaled(residual, scale, codes);
            codec.decode_scaled(codes, scale, &mut decoded[..codes.len()]);
            feedback::keep_lost(residual, decoded);
        } else {
            codec.encode_scaled(values, scale, codes);
        }
        self.progress.encoded += 1;
    }

    /// Starts calls of the segments that are encoded, in this bucket's turn.
    fn call(&mut self, step: &Step, tools: &mut Tools) -> Result<(), TransportError> {
        let circle = self.circles.1;
        while let Some(segment) = self.segments.get(self.progress.started)
            && segment.end <= self.progress.encoded
            && tools.has_turn(circle, step.bucket)
        {
            let (first, last) = (&self.pieces[segment.start], &self.pieces[segment.end - 1]);
            let codes = step.codes.place(first.at..last.dense().end);
            let joint = Joint::Codes(settings(step.method.codec).0);
            // SAFETY: nobody touches these codes before the call has ended.
            let call = unsafe { tools.links.call(circle, joint, codes.cast(), codes.len())? };
            self.progress.calls.push_back(call);
            self.progress.started += 1;
            if self.progress.started == self.segments.len() {
                tools.pass_turn(circle);
            }
        }
        Ok(())
    }

    fn decode(&mut self, step: &mut Step, tools: &mut Tools) {
        let (codec, _) = tools.operator(settings(step.method.codec).0);
        for piece in &self.pieces[self.segments[self.progress.decoded].clone()] {
            // SAFETY: the call on these codes has ended, and this is the only slice of the values.
            let (codes, values) =
                unsafe { (step.codes.read(piece.dense()), step.values.piece(&piece.range)) };
            codec.decode_scaled(codes, step.scales[piece.tensor], values);
        }
        self.progress.decoded += 1;
    }
}
