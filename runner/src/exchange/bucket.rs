//! A bucket: what stays from step to step, and where its sum stands.

use super::BucketSpec;
use super::circles::Circles;
use super::here;
use super::memory::{Values, Wire};
use super::operator::{self, Operator};
use super::pieces::{Layout, Parts, Piece, parts, span};
use super::residual::{Residual, Residuals};
use super::there::{self, There};
use super::tools::{Bench, Tools};
use super::two_shot::{self, TwoShot};
use crate::device::{Coder, DeviceError, DevicePtr};
use crate::transport::{Collective, Joint, Ticket, TransportError};
use pipewright_core::compress::share::Share;
use pipewright_core::compress::{Algorithm, Reduction};
use std::ops::Range;

pub(super) struct Bucket {
    number: usize,
    reductions: Vec<Reduction>,
    share: Share,
    circles: Circles,
    parts: Parts,
    /// All of them, one behind the other.
    pieces: Vec<Piece>,
    /// By reduction, where messages lie; for two-shot sums alone.
    layouts: Vec<Option<Layout>>,
    two_shot: Option<TwoShot>,
    operator: Option<Operator>,
    out: Wire,
    inward: Wire,
    scales: Vec<f32>,
    residuals: Residuals,
    /// By reduction: whether the device does it.
    taken: Vec<bool>,
    there: Option<There>,
    phase: Phase,
    /// Of the phases that call inside of the host: by rail.
    calls: Vec<Ticket>,
    /// Of a sum under way; none where the device has them.
    values: Option<Values>,
    reduction: usize,
}

/// Steps of a sum, in their order.
#[derive(Debug)]
enum Phase {
    Idle,
    /// Single precision.
    Plain(Ticket),
    /// Single precision inside of the host: each rail to its owner.
    Reduce,
    /// Encoded among hosts, or all ranks.
    Encoded,
    /// The device was asked for all of it.
    Asked,
    /// Inside of the host: each rail from its owner; so many have begun.
    Broadcast(usize),
}

impl Bucket {
    pub fn new(number: usize, spec: &BucketSpec, share: Share, circles: Circles, tag: u32) -> Self {
        let division = share.division();
        let parts = match share.across.is_empty() {
            true => vec![],
            false => parts(&share, &division),
        };
        let two_shot = |r: &Reduction| {
            let lossy = !r.is_plain() && r.algorithm == Algorithm::TwoShot;
            (lossy && circles.two_shot.is_some())
                .then(|| Layout::new(&division, share.part(), r.method.codec))
        };
        let layouts = spec.reductions.iter().map(two_shot).collect();
        let pieces: Vec<Piece> = parts.iter().flatten().flatten().cloned().collect();
        let buffers = share.buffers(&spec.reductions);
        let calls = Vec::with_capacity(circles.reduce.len());
        let residuals = Residuals::new(share.residuals(&spec.reductions), &parts, share.part());
        Self {
            number,
            reductions: spec.reductions.clone(),
            layouts,
            two_shot: (circles.two_shot).map(|circle| TwoShot::new(&share, &parts, circle, tag)),
            operator: (circles.scales.zip(circles.codes))
                .map(|circles| Operator::new(&pieces, share.across.len(), circles)),
            out: Wire::new(buffers.out as usize),
            inward: Wire::new(buffers.inward as usize),
            scales: vec![0.0; (buffers.scales / 4) as usize],
            residuals,
            taken: vec![false; spec.reductions.len()],
            there: None,
            phase: Phase::Idle,
            calls,
            values: None,
            reduction: 0,
            share,
            circles,
            parts,
            pieces,
        }
    }

    /// Bytes of buffers and residuals.
    pub fn bytes(&self) -> u64 {
        let scales = 4 * self.scales.len() as u64;
        (self.out.len() + self.inward.len()) as u64 + scales + self.residuals.bytes()
    }

    /// Messages and calls that are under way at a time, at most.
    pub fn tickets(&self) -> usize {
        let two_shot = self.two_shot.as_ref().map_or(0, TwoShot::tickets);
        let operator = self.operator.as_ref().map_or(0, Operator::tickets);
        1 + two_shot.max(operator) + self.circles.reduce.len()
    }

    /// The device has the values, from `values` on; takes memory for the reductions that it does.
    /// `marks`: see [`There`]; `inside`: whether devices sum what hosts sum first.
    pub fn take_room(
        &mut self,
        (values, inside): (DevicePtr, bool),
        marks: [usize; 2],
        coder: &mut dyn Coder,
    ) -> Result<(), DeviceError> {
        let share = &self.share;
        let takes = |reduction: &Reduction| there::takes(&*coder, share, inside, reduction);
        self.taken = self.reductions.iter().map(takes).collect();
        if self.share.across.is_empty() {
            return Ok(());
        }
        let ways = (&self.reductions[..], &self.layouts[..], &self.taken[..]);
        let parts = (&self.share, &self.parts);
        self.there = There::new(ways, parts, (values, marks), &mut *coder)?;
        if self.there.is_some() {
            self.residuals.take_room(coder)?;
        }
        Ok(())
    }

    /// By reduction: whether the device does it.
    pub fn taken(&self) -> &[bool] {
        &self.taken
    }

    /// What the host sums first, in places of the bucket: of each of its owners one range.
    pub fn rails(&self) -> Vec<Range<usize>> {
        self.share.inside.iter().flat_map(|inside| &inside.rails).map(|rail| span(rail)).collect()
    }

    /// Whether values travel encoded: not where all ranks are on one host and it sums first.
    pub fn encodes(&self) -> bool {
        !self.share.across.is_empty() || self.share.inside.is_some()
    }

    pub fn visit(
        &mut self,
        coder: Option<&mut dyn Coder>,
        mut visit: impl FnMut(usize, Residual, Range<usize>, &mut [f32]),
    ) -> Result<(), DeviceError> {
        let number = self.number;
        self.residuals.visit(&self.parts, self.share.part(), coder, |whose, places, values| {
            visit(number, whose, places, values);
        })
    }

    pub fn allow_undo(&mut self, coder: Option<&mut dyn Coder>) -> Result<(), DeviceError> {
        self.residuals.allow_undo(coder)
    }

    pub fn settle(&mut self, undo: bool, coder: Option<&mut dyn Coder>) -> Result<(), DeviceError> {
        self.residuals.settle(undo, coder)
    }

    pub fn is_done(&self) -> bool {
        matches!(self.phase, Phase::Idle)
    }

    /// Begins a sum of `values`, or of the device's, by one of the bucket's reductions.
    pub fn start(
        &mut self,
        reduction: usize,
        values: Option<Values>,
        tools: &mut Tools,
    ) -> Result<(), TransportError> {
        self.residuals.begin(values.is_none(), tools.coder())?;
        (self.values, self.reduction) = (values, reduction);
        if self.method().is_plain() || !self.encodes() {
            // A rank alone has the sum.
            let (Some(circle), Some(values)) = (self.circles.plain, values) else { return Ok(()) };
            let (at, len) = (values.place(&(0..0)), values.len());
            let joint = Joint::Float(Collective::AllReduce);
            // SAFETY: nobody touches the values before the call has ended.
            let call = unsafe { tools.links.call(circle, joint, at.cast(), len)? };
            self.phase = Phase::Plain(call);
            return Ok(());
        }
        self.post(tools)?;
        self.phase = Phase::Reduce;
        if self.values.is_none() {
            // Devices have summed inside of the host when the values are there, and hand out themselves.
            return Ok(());
        }
        for circle in &self.circles.broadcast {
            tools.turns.queue(*circle, self.number);
        }
        for rail in 0..self.circles.reduce.len() {
            let call = self.inside(self.circles.reduce[rail], Collective::Reduce, rail, tools)?;
            self.calls.push(call);
        }
        Ok(())
    }

    fn method(&self) -> &Reduction {
        &self.reductions[self.reduction]
    }

    /// Posts what the encoded sum receives.
    fn post(&mut self, tools: &mut Tools) -> Result<(), TransportError> {
        if self.share.across.is_empty() {
            return Ok(());
        }
        match self.method().algorithm {
            Algorithm::TwoShot => {
                let layout = self.layouts[self.reduction].as_ref();
                let layout = layout.expect("made for the reductions");
                let step = two_shot::Step { layout, out: &self.out, inward: &self.inward };
                let sum = self.two_shot.as_mut().expect("made for the reductions");
                sum.start(&step, self.values.is_none(), &mut *tools.links)
            }
            Algorithm::Operator => {
                let (bucket, codec) = (self.number, self.method().method.codec);
                let (pieces, codes, turns) = (&self.pieces[..], &self.out, &mut tools.turns);
                let mut step = operator::Step { bucket, codec, pieces, codes, turns };
                let sum = self.operator.as_mut().expect("made for the reductions");
                sum.start(&mut step, &mut self.scales);
                Ok(())
            }
        }
    }

    /// Does one thing, if there is one to do.
    pub fn advance(&mut self, tools: &mut Tools) -> Result<bool, TransportError> {
        match &mut self.phase {
            Phase::Idle => Ok(false),
            Phase::Plain(ticket) => {
                if tools.links.test(ticket)?.is_none() {
                    return Ok(false);
                }
                self.phase = Phase::Idle;
                Ok(true)
            }
            Phase::Reduce => {
                if !self.calls_end(tools)? {
                    return Ok(false);
                }
                self.phase = Phase::Encoded;
                Ok(true)
            }
            Phase::Encoded => {
                let (worked, done) = self.encoded(tools)?;
                if done {
                    self.phase = match (self.values, &self.there, tools.coder()) {
                        (None, Some(there), Some(coder)) => {
                            there.asked(coder)?;
                            Phase::Asked
                        }
                        (None, ..) => Phase::Idle,
                        _ => Phase::Broadcast(0),
                    };
                }
                Ok(worked || done)
            }
            Phase::Asked => {
                let done = match (&self.there, tools.coder()) {
                    (Some(there), Some(coder)) => there.has_done(coder)?,
                    _ => true,
                };
                if done {
                    self.phase = Phase::Idle;
                }
                Ok(done)
            }
            Phase::Broadcast(begun) => {
                let rail = *begun;
                if let Some(&circle) = self.circles.broadcast.get(rail) {
                    if !tools.turns.has_turn(circle, self.number) {
                        return Ok(false);
                    }
                    let call = self.inside(circle, Collective::Broadcast, rail, tools)?;
                    tools.turns.pass_turn(circle);
                    self.calls.push(call);
                    self.phase = Phase::Broadcast(rail + 1);
                    return Ok(true);
                }
                if !self.calls_end(tools)? {
                    return Ok(false);
                }
                self.phase = Phase::Idle;
                Ok(true)
            }
        }
    }

    /// One thing of the encoded sum, and whether it is done.
    fn encoded(&mut self, tools: &mut Tools) -> Result<(bool, bool), TransportError> {
        if self.share.across.is_empty() {
            return Ok((false, true));
        }
        match self.method().algorithm {
            Algorithm::TwoShot => self.shoot(tools),
            Algorithm::Operator => self.add_codes(tools),
        }
    }

    /// The same of a two-shot sum.
    fn shoot(&mut self, tools: &mut Tools) -> Result<(bool, bool), TransportError> {
        let (bucket, reduction, method) = (self.number, self.reduction, self.method().method);
        let (ranks, own) = (&self.share.across, self.share.part());
        let layout = self.layouts[reduction].as_ref().expect("made for the reductions");
        let (parts, out, inward) = (&self.parts, &self.out, &self.inward);
        let step = two_shot::Step { layout, out, inward };
        let sum = self.two_shot.as_mut().expect("made for the reductions");
        let Bench { codec, room, links, coder, .. } = tools.bench(method.codec);
        let worked = match (self.values, &self.there, coder) {
            (None, Some(there), Some(coder)) => {
                let (codec, residuals) = (codec.name(), &self.residuals);
                let mut shots = there::Shots {
                    bucket,
                    reduction,
                    ranks,
                    own,
                    parts,
                    layout,
                    method,
                    codec,
                    there,
                    coder,
                    out,
                    inward,
                    residuals,
                };
                sum.advance(&step, &mut shots, links)
            }
            (values, ..) => {
                let (feedback, residuals) = (method.feedback, &mut self.residuals);
                let values = values.expect("under way");
                let mut shots = here::Shots {
                    bucket,
                    ranks,
                    own,
                    parts,
                    layout,
                    feedback,
                    codec,
                    room,
                    values,
                    out,
                    inward,
                    residuals,
                };
                sum.advance(&step, &mut shots, links)
            }
        };
        Ok((worked?, sum.is_done()))
    }

    /// The same of a sum of codes.
    fn add_codes(&mut self, tools: &mut Tools) -> Result<(bool, bool), TransportError> {
        let (bucket, reduction, method) = (self.number, self.reduction, self.method().method);
        let sum = self.operator.as_mut().expect("made for the reductions");
        let pieces = &self.pieces[..];
        let (codes, feedback, scales) = (&self.out, method.feedback, &mut self.scales[..]);
        let Bench { operator, room, links, turns, coder, .. } = tools.bench(method.codec);
        let mut step = operator::Step { bucket, codec: method.codec, pieces, codes, turns };
        let worked = match (self.values, &self.there, coder) {
            (None, Some(there), Some(coder)) => {
                let (residuals, (rounding, _)) =
                    (&self.residuals, operator::settings(method.codec));
                let mut encoder = there::Codes {
                    reduction,
                    pieces,
                    feedback,
                    rounding,
                    there,
                    coder,
                    codes,
                    scales,
                    residuals,
                };
                sum.advance(&mut step, &mut encoder, links)
            }
            (values, ..) => {
                let (codec, residuals) = (operator, &mut self.residuals);
                let values = values.expect("under way");
                let mut encoder =
                    here::Codes { pieces, feedback, codec, room, values, codes, scales, residuals };
                sum.advance(&mut step, &mut encoder, links)
            }
        };
        Ok((worked?, sum.is_done()))
    }

    /// Starts a call on a rail inside of the host.
    fn inside(
        &self,
        circle: usize,
        call: Collective,
        rail: usize,
        tools: &mut Tools,
    ) -> Result<Ticket, TransportError> {
        let inside = self.share.inside.as_ref().expect("it has circles inside");
        let places = span(&inside.rails[rail]);
        let at = self.values.expect("under way").place(&places);
        // SAFETY: rails are apart, and nobody touches one before its call has ended.
        unsafe { tools.links.call(circle, Joint::Float(call), at.cast(), places.len()) }
    }

    /// Whether all calls inside of the host have ended.
    fn calls_end(&mut self, tools: &mut Tools) -> Result<bool, TransportError> {
        while let Some(call) = self.calls.last() {
            if tools.links.test(call)?.is_none() {
                return Ok(false);
            }
            self.calls.pop();
        }
        Ok(true)
    }
}
