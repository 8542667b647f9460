//! A bucket: what stays from step to step, and where its sum stands.

use super::BucketSpec;
use super::circles::Circles;
use super::memory::{Values, Wire};
use super::operator::{self, Operator};
use super::pieces::{Layout, Parts, parts, span};
use super::residual::{Residual, Residuals};
use super::tools::Tools;
use super::two_shot::{self, TwoShot};
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
    /// By reduction, where messages lie; for two-shot sums alone.
    layouts: Vec<Option<Layout>>,
    two_shot: Option<TwoShot>,
    operator: Option<Operator>,
    out: Wire,
    inward: Wire,
    scales: Vec<f32>,
    residuals: Residuals,
    phase: Phase,
    /// Of the phases that call inside of the host: by rail.
    calls: Vec<Ticket>,
    values: Option<Values>,
    reduction: Reduction,
    layout: usize,
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
        let pieces = || parts.iter().flatten().flatten().cloned().collect();
        let buffers = share.buffers(&spec.reductions);
        let calls = Vec::with_capacity(circles.reduce.len());
        let residuals = Residuals::new(share.residuals(&spec.reductions), &parts, share.part());
        Self {
            number,
            reductions: spec.reductions.clone(),
            layouts,
            two_shot: (circles.two_shot)
                .map(|circle| TwoShot::new(&share, parts.clone(), circle, tag)),
            operator: (circles.scales.zip(circles.codes))
                .map(|circles| Operator::new(pieces(), share.across.len(), circles)),
            out: Wire::new(buffers.out as usize),
            inward: Wire::new(buffers.inward as usize),
            scales: vec![0.0; (buffers.scales / 4) as usize],
            residuals,
            phase: Phase::Idle,
            calls,
            values: None,
            reduction: Reduction::default(),
            layout: 0,
            share,
            circles,
            parts,
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

    pub fn visit(&mut self, mut visit: impl FnMut(usize, Residual, Range<usize>, &mut [f32])) {
        let number = self.number;
        self.residuals.visit(&self.parts, self.share.part(), |whose, places, values| {
            visit(number, whose, places, values);
        });
    }

    pub fn allow_undo(&mut self) {
        self.residuals.allow_undo();
    }

    pub fn settle(&mut self, undo: bool) {
        self.residuals.settle(undo);
    }

    pub fn is_done(&self) -> bool {
        matches!(self.phase, Phase::Idle)
    }

    /// Begins a sum of `values` by one of the bucket's reductions.
    pub fn start(
        &mut self,
        reduction: usize,
        values: Values,
        tools: &mut Tools,
    ) -> Result<(), TransportError> {
        self.residuals.remember();
        self.values = Some(values);
        (self.reduction, self.layout) = (self.reductions[reduction], reduction);
        let encodes = !self.share.across.is_empty() || self.share.inside.is_some();
        if self.reduction.is_plain() || !encodes {
            // A rank alone has the sum.
            let Some(circle) = self.circles.plain else { return Ok(()) };
            let (at, len) = (values.place(&(0..0)), values.len());
            let joint = Joint::Float(Collective::AllReduce);
            // SAFETY: nobody touches the values before the call has ended.
            let call = unsafe { tools.links.call(circle, joint, at.cast(), len)? };
            self.phase = Phase::Plain(call);
            return Ok(());
        }
        for circle in &self.circles.broadcast {
            tools.queue(*circle, self.number);
        }
        self.post(tools)?;
        for rail in 0..self.circles.reduce.len() {
            let call = self.inside(self.circles.reduce[rail], Collective::Reduce, rail, tools)?;
            self.calls.push(call);
        }
        self.phase = Phase::Reduce;
        Ok(())
    }

    /// Posts what the encoded sum receives.
    fn post(&mut self, tools: &mut Tools) -> Result<(), TransportError> {
        if self.share.across.is_empty() {
            return Ok(());
        }
        let (mut two_shot, mut operator) = (self.two_shot.take(), self.operator.take());
        let started = match self.reduction.algorithm {
            Algorithm::TwoShot => {
                let sum = two_shot.as_mut().expect("made for the reductions");
                sum.start(&self.two_shot_step(), &mut *tools.links)
            }
            Algorithm::Operator => {
                let sum = operator.as_mut().expect("made for the reductions");
                sum.start(&mut self.operator_step(), tools);
                Ok(())
            }
        };
        (self.two_shot, self.operator) = (two_shot, operator);
        started
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
                    self.phase = Phase::Broadcast(0);
                }
                Ok(worked || done)
            }
            Phase::Broadcast(begun) => {
                let rail = *begun;
                if let Some(&circle) = self.circles.broadcast.get(rail) {
                    if !tools.has_turn(circle, self.number) {
                        return Ok(false);
                    }
                    let call = self.inside(circle, Collective::Broadcast, rail, tools)?;
                    tools.pass_turn(circle);
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
        let (mut two_shot, mut operator) = (self.two_shot.take(), self.operator.take());
        let result = match self.reduction.algorithm {
            Algorithm::TwoShot => {
                let sum = two_shot.as_mut().expect("made for the reductions");
                let worked = sum.advance(&mut self.two_shot_step(), tools);
                worked.map(|worked| (worked, sum.is_done()))
            }
            Algorithm::Operator => {
                let sum = operator.as_mut().expect("made for the reductions");
                let worked = sum.advance(&mut self.operator_step(), tools);
                worked.map(|worked| (worked, sum.is_done()))
            }
        };
        (self.two_shot, self.operator) = (two_shot, operator);
        result
    }

    fn two_shot_step(&mut self) -> two_shot::Step<'_> {
        two_shot::Step {
            bucket: self.number,
            method: self.reduction.method,
            layout: self.layouts[self.layout].as_ref().expect("made for the reductions"),
            values: self.values.expect("under way"),
            out: &self.out,
            inward: &self.inward,
            residuals: &mut self.residuals,
        }
    }

    fn operator_step(&mut self) -> operator::Step<'_> {
        operator::Step {
            bucket: self.number,
            method: self.reduction.method,
            values: self.values.expect("under way"),
            codes: &self.out,
            scales: &mut self.scales,
            residuals: &mut self.residuals,
        }
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
