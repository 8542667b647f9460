//! A bucket: what stays from step to step, and where its sum stands.

use super::BucketSpec;
use super::device_codec::{self, DeviceCodec};
use super::host_codec;
use super::memory::{MessageBuffer, Values};
use super::operator::{self, Operator};
use super::pieces::{Layout, Parts, Piece, parts, span};
use super::process_groups::ProcessGroups;
use super::residual::{Residual, Residuals};
use super::resources::{Resources, Workspace};
use super::two_shot::{self, TwoShot};
use crate::device::{Coder, DeviceError, DevicePtr};
use crate::transport::{Collective, CollectiveOp, Request, TransportError};
use pipewright_core::compress::share::Share;
use pipewright_core::compress::{Algorithm, Reduction};
use std::ops::Range;

pub(super) struct Bucket {
    number: usize,
    reductions: Vec<Reduction>,
    share: Share,
    process_groups: ProcessGroups,
    parts: Parts,
    /// All of them, one behind the other.
    pieces: Vec<Piece>,
    /// By reduction, where messages lie; for two-shot sums alone.
    layouts: Vec<Option<Layout>>,
    two_shot: Option<TwoShot>,
    operator: Option<Operator>,
    out: MessageBuffer,
    incoming: MessageBuffer,
    scales: Vec<f32>,
    residuals: Residuals,
    /// By reduction: whether the device does it.
    on_device: Vec<bool>,
    device_codec: Option<DeviceCodec>,
    phase: Phase,
    /// Of the phases that call inside of the host: by shard.
    calls: Vec<Request>,
    /// Of a sum under way; none where the device has them.
    values: Option<Values>,
    reduction: usize,
}

/// Steps of a sum, in their order.
#[derive(Debug)]
enum Phase {
    Idle,
    /// Single precision.
    Plain(Request),
    /// Single precision inside of the host: each shard to its owner.
    Reduce,
    /// Encoded among hosts, or all ranks.
    Encoded,
    /// The device was asked for all of it.
    Asked,
    /// Inside of the host: each shard from its owner; so many have begun.
    Broadcast(usize),
}

impl Bucket {
    pub fn new(
        number: usize,
        spec: &BucketSpec,
        share: Share,
        process_groups: ProcessGroups,
        tag: u32,
    ) -> Self {
        let division = share.division();
        let parts = match share.across.is_empty() {
            true => vec![],
            false => parts(&share, &division),
        };
        let two_shot = |r: &Reduction| {
            let lossy = !r.is_plain() && r.algorithm == Algorithm::TwoShot;
            (lossy && process_groups.two_shot.is_some())
                .then(|| Layout::new(&division, share.part(), r.method.codec))
        };
        let layouts = spec.reductions.iter().map(two_shot).collect();
        let pieces: Vec<Piece> = parts.iter().flatten().flatten().cloned().collect();
        let buffers = share.buffers(&spec.reductions);
        let calls = Vec::with_capacity(process_groups.reduce.len());
        let (worker, server) = share.residuals(&spec.reductions);
        let residuals = Residuals::new(worker, server, &parts, share.part());
        Self {
            number,
            reductions: spec.reductions.clone(),
            layouts,
            two_shot: (process_groups.two_shot)
                .map(|process_group| TwoShot::new(&share, &parts, process_group, tag)),
            operator: (process_groups.scales.zip(process_groups.codes))
                .map(|(scales, codes)| Operator::new(&pieces, share.across.len(), scales, codes)),
            out: MessageBuffer::new(buffers.out as usize),
            incoming: MessageBuffer::new(buffers.incoming as usize),
            scales: vec![0.0; (buffers.scales / 4) as usize],
            residuals,
            on_device: vec![false; spec.reductions.len()],
            device_codec: None,
            phase: Phase::Idle,
            calls,
            values: None,
            reduction: 0,
            share,
            process_groups,
            parts,
            pieces,
        }
    }

    /// Bytes of buffers and residuals.
    pub fn bytes(&self) -> u64 {
        let scales = 4 * self.scales.len() as u64;
        (self.out.len() + self.incoming.len()) as u64 + scales + self.residuals.bytes()
    }

    /// Messages and calls that are under way at a time, at most.
    pub fn requests(&self) -> usize {
        let two_shot = self.two_shot.as_ref().map_or(0, TwoShot::requests);
        let operator = self.operator.as_ref().map_or(0, Operator::requests);
        1 + two_shot.max(operator) + self.process_groups.reduce.len()
    }

    /// The device has the values, from `values` on; takes memory for the reductions that it does.
    /// `marks`: see [`There`]; `inside`: whether devices sum what hosts sum first.
    pub fn take_scratch(
        &mut self,
        values: DevicePtr,
        intra_node: bool,
        marks: [usize; 2],
        coder: &mut dyn Coder,
    ) -> Result<(), DeviceError> {
        let share = &self.share;
        let takes =
            |reduction: &Reduction| device_codec::takes(&*coder, share, intra_node, reduction);
        self.on_device = self.reductions.iter().map(takes).collect();
        if self.share.across.is_empty() {
            return Ok(());
        }
        let ways = (&self.reductions[..], &self.layouts[..], &self.on_device[..]);
        let parts = (&self.share, &self.parts);
        self.device_codec = DeviceCodec::new(ways, parts, (values, marks), &mut *coder)?;
        if self.device_codec.is_some() {
            self.residuals.take_room(coder)?;
        }
        Ok(())
    }

    /// By reduction: whether the device does it.
    pub fn on_device(&self) -> &[bool] {
        &self.on_device
    }

    /// What the host sums first, in places of the bucket: of each of its owners one range.
    pub fn shards(&self) -> Vec<Range<usize>> {
        self.share
            .intra_node
            .iter()
            .flat_map(|intra_node| &intra_node.shards)
            .map(|shard| span(shard))
            .collect()
    }

    /// Whether values travel encoded: not where all ranks are on one host and it sums first.
    pub fn encodes(&self) -> bool {
        !self.share.across.is_empty() || self.share.intra_node.is_some()
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
        resources: &mut Resources,
    ) -> Result<(), TransportError> {
        self.residuals.begin(values.is_none(), resources.coder())?;
        (self.values, self.reduction) = (values, reduction);
        if self.method().is_plain() || !self.encodes() {
            // A rank alone has the sum.
            let (Some(process_group), Some(values)) = (self.process_groups.plain, values) else {
                return Ok(());
            };
            let (at, len) = (values.place(&(0..0)), values.len());
            let op = CollectiveOp::Float(Collective::AllReduce);
            // SAFETY: nobody touches the values before the call has ended.
            let call = unsafe { resources.endpoint.call(process_group, op, at.cast(), len)? };
            self.phase = Phase::Plain(call);
            return Ok(());
        }
        self.post(resources)?;
        self.phase = Phase::Reduce;
        if self.values.is_none() {
            // Devices have summed inside of the host when the values are there, and hand out themselves.
            return Ok(());
        }
        for process_group in &self.process_groups.broadcast {
            resources.turns.queue(*process_group, self.number);
        }
        for shard in 0..self.process_groups.reduce.len() {
            let call = self.intra_node(
                self.process_groups.reduce[shard],
                Collective::Reduce,
                shard,
                resources,
            )?;
            self.calls.push(call);
        }
        Ok(())
    }

    fn method(&self) -> &Reduction {
        &self.reductions[self.reduction]
    }

    /// Posts what the encoded sum receives.
    fn post(&mut self, resources: &mut Resources) -> Result<(), TransportError> {
        if self.share.across.is_empty() {
            return Ok(());
        }
        match self.method().algorithm {
            Algorithm::TwoShot => {
                let layout = self.layouts[self.reduction].as_ref();
                let layout = layout.expect("made for the reductions");
                let step =
                    two_shot::TwoShotStep { layout, out: &self.out, incoming: &self.incoming };
                let sum = self.two_shot.as_mut().expect("made for the reductions");
                sum.start(&step, self.values.is_none(), &mut *resources.endpoint)
            }
            Algorithm::Operator => {
                let (bucket, codec) = (self.number, self.method().method.codec);
                let (pieces, codes, turns) = (&self.pieces[..], &self.out, &mut resources.turns);
                let mut step = operator::OperatorStep { bucket, codec, pieces, codes, turns };
                let sum = self.operator.as_mut().expect("made for the reductions");
                sum.start(&mut step, &mut self.scales);
                Ok(())
            }
        }
    }

    /// Does one thing, if there is one to do.
    pub fn advance(&mut self, resources: &mut Resources) -> Result<bool, TransportError> {
        match &mut self.phase {
            Phase::Idle => Ok(false),
            Phase::Plain(request) => {
                if resources.endpoint.test(request)?.is_none() {
                    return Ok(false);
                }
                self.phase = Phase::Idle;
                Ok(true)
            }
            Phase::Reduce => {
                if !self.calls_end(resources)? {
                    return Ok(false);
                }
                self.phase = Phase::Encoded;
                Ok(true)
            }
            Phase::Encoded => {
                let (worked, done) = self.encoded(resources)?;
                if done {
                    self.phase = match (self.values, &self.device_codec, resources.coder()) {
                        (None, Some(device_codec), Some(coder)) => {
                            device_codec.asked(coder)?;
                            Phase::Asked
                        }
                        (None, ..) => Phase::Idle,
                        _ => Phase::Broadcast(0),
                    };
                }
                Ok(worked || done)
            }
            Phase::Asked => {
                let done = match (&self.device_codec, resources.coder()) {
                    (Some(device_codec), Some(coder)) => device_codec.has_done(coder)?,
                    _ => true,
                };
                if done {
                    self.phase = Phase::Idle;
                }
                Ok(done)
            }
            Phase::Broadcast(begun) => {
                let shard = *begun;
                if let Some(&process_group) = self.process_groups.broadcast.get(shard) {
                    if !resources.turns.has_turn(process_group, self.number) {
                        return Ok(false);
                    }
                    let call =
                        self.intra_node(process_group, Collective::Broadcast, shard, resources)?;
                    resources.turns.pass_turn(process_group);
                    self.calls.push(call);
                    self.phase = Phase::Broadcast(shard + 1);
                    return Ok(true);
                }
                if !self.calls_end(resources)? {
                    return Ok(false);
                }
                self.phase = Phase::Idle;
                Ok(true)
            }
        }
    }

    /// One thing of the encoded sum, and whether it is done.
    fn encoded(&mut self, resources: &mut Resources) -> Result<(bool, bool), TransportError> {
        if self.share.across.is_empty() {
            return Ok((false, true));
        }
        match self.method().algorithm {
            Algorithm::TwoShot => self.shoot(resources),
            Algorithm::Operator => self.add_codes(resources),
        }
    }

    /// The same of a two-shot sum.
    fn shoot(&mut self, resources: &mut Resources) -> Result<(bool, bool), TransportError> {
        let (bucket, reduction, method) = (self.number, self.reduction, self.method().method);
        let (ranks, own) = (&self.share.across, self.share.part());
        let layout = self.layouts[reduction].as_ref().expect("made for the reductions");
        let (parts, out, incoming) = (&self.parts, &self.out, &self.incoming);
        let step = two_shot::TwoShotStep { layout, out, incoming };
        let sum = self.two_shot.as_mut().expect("made for the reductions");
        let Workspace { codec, scratch, endpoint, coder, .. } = resources.workspace(method.codec);
        let worked = match (self.values, &self.device_codec, coder) {
            (None, Some(device_codec), Some(coder)) => {
                let (codec, residuals) = (codec.name(), &self.residuals);
                let mut shots = device_codec::DeviceTwoShot {
                    bucket,
                    reduction,
                    ranks,
                    own,
                    parts,
                    layout,
                    method,
                    codec,
                    device_codec,
                    coder,
                    out,
                    incoming,
                    residuals,
                };
                sum.advance(&step, &mut shots, endpoint)
            }
            (values, ..) => {
                let (feedback, residuals) = (method.feedback, &mut self.residuals);
                let values = values.expect("under way");
                let mut shots = host_codec::HostTwoShot {
                    bucket,
                    ranks,
                    own,
                    parts,
                    layout,
                    feedback,
                    codec,
                    scratch,
                    values,
                    out,
                    incoming,
                    residuals,
                };
                sum.advance(&step, &mut shots, endpoint)
            }
        };
        Ok((worked?, sum.is_done()))
    }

    /// The same of a sum of codes.
    fn add_codes(&mut self, resources: &mut Resources) -> Result<(bool, bool), TransportError> {
        let (bucket, reduction, method) = (self.number, self.reduction, self.method().method);
        let sum = self.operator.as_mut().expect("made for the reductions");
        let pieces = &self.pieces[..];
        let (codes, feedback, scales) = (&self.out, method.feedback, &mut self.scales[..]);
        let Workspace { operator, scratch, endpoint, turns, coder, .. } =
            resources.workspace(method.codec);
        let mut step = operator::OperatorStep { bucket, codec: method.codec, pieces, codes, turns };
        let worked = match (self.values, &self.device_codec, coder) {
            (None, Some(device_codec), Some(coder)) => {
                let (residuals, (rounding, _)) =
                    (&self.residuals, operator::settings(method.codec));
                let mut encoder = device_codec::DeviceOperator {
                    reduction,
                    pieces,
                    feedback,
                    rounding,
                    device_codec,
                    coder,
                    codes,
                    scales,
                    residuals,
                };
                sum.advance(&mut step, &mut encoder, endpoint)
            }
            (values, ..) => {
                let (codec, residuals) = (operator, &mut self.residuals);
                let values = values.expect("under way");
                let mut encoder = host_codec::HostOperator {
                    pieces,
                    feedback,
                    codec,
                    scratch,
                    values,
                    codes,
                    scales,
                    residuals,
                };
                sum.advance(&mut step, &mut encoder, endpoint)
            }
        };
        Ok((worked?, sum.is_done()))
    }

    /// Starts a call on a shard inside of the host.
    fn intra_node(
        &self,
        process_group: usize,
        call: Collective,
        shard: usize,
        resources: &mut Resources,
    ) -> Result<Request, TransportError> {
        let intra_node =
            self.share.intra_node.as_ref().expect("a hierarchical bucket has groups on its host");
        let places = span(&intra_node.shards[shard]);
        let at = self.values.expect("under way").place(&places);
        // SAFETY: shards are apart, and nobody touches one before its call has ended.
        unsafe {
            resources.endpoint.call(
                process_group,
                CollectiveOp::Float(call),
                at.cast(),
                places.len(),
            )
        }
    }

    /// Whether all calls inside of the host have ended.
    fn calls_end(&mut self, resources: &mut Resources) -> Result<bool, TransportError> {
        while let Some(call) = self.calls.last() {
            if resources.endpoint.test(call)?.is_none() {
                return Ok(false);
            }
            self.calls.pop();
        }
        Ok(true)
    }
}
