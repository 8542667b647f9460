//! The ways of a rank's gradients: by the transport's own sums, or encoded.

use crate::device::{Coder, DeviceError};
use crate::exchange::{Beside, BucketSpec, Exchange, Residual};
use crate::transport::{Collective, ReduceOp, Transport, TransportError};
use pipewright_core::compress::Reduction;
use pipewright_core::ids::{LaneId, ParamId, StageId};
use pipewright_core::plan::{Bucket, GradientReduction, Plan, Program, Region, StageProgram};
use pipewright_core::units::Bytes;
use std::ops::Range;

/// Who sums which bucket how.
pub(super) struct Gradients {
    ways: Vec<GradientReduction>,
    /// The way that is taken.
    way: usize,
    /// Buckets of the program's stages, in order.
    buckets: Vec<Coded>,
    exchange: Option<Exchange>,
    begun: Begun,
    /// How values are spread over ranks.
    layout: Option<String>,
}

/// A bucket that is encoded in one of the ways, at least.
struct Coded {
    stage: StageId,
    /// Its slot, which tells a rank's buckets apart.
    slot: u32,
    group: u32,
    region: Region,
    /// What devices of this host add up and hand out; empty where none do.
    shards: Vec<Region>,
    /// Whether all that sum it have one program: replicas of one lane.
    is_alike: bool,
    /// Whether devices sum it as it is: all of them are on one host.
    is_joined: bool,
    /// Its parameters and their places in it.
    params: Vec<(ParamId, Range<usize>)>,
    /// Ranks that exchange the same values of it.
    holders: usize,
    /// Whether one of its ways has feedback.
    feedback: bool,
    /// By way: which of the exchange's reductions; none for the transport's own.
    by_way: Vec<Option<usize>>,
}

/// Who sums a bucket.
#[derive(Clone, Copy)]
pub(super) enum Sum<'a> {
    /// The transport, or devices that talk: nothing is encoded.
    Plain,
    /// This processor, encoded.
    Host,
    /// The device, encoded, when it reaches the mark.
    Device { mark: usize, intra_node: Option<IntraNode<'a>> },
}

/// What devices of a host add up before the mark, and hand out after the sum.
#[derive(Clone, Copy)]
pub(super) struct IntraNode<'a> {
    pub group: u32,
    /// By owner.
    pub shards: &'a [Region],
}

/// So many sums are on their way when another one begins: the device computes what they wait for, so that a host
/// which waits for the one before them does not make it wait.
const BEHIND: usize = 2;

/// Sums that devices of hosts have begun and not handed out, in the order in which they began: group and
/// slot. A group's are handed out in that order, whichever a rank's program waits for first.
struct Begun(Vec<(u32, u32)>);

impl Begun {
    /// The oldest of a group of which [`BEHIND`] have begun; no more among them then.
    fn next_behind(&mut self, group: u32) -> Option<u32> {
        let mut own = (0..self.0.len()).filter(|at| self.0[*at].0 == group);
        let oldest = own.next()?;
        (own.count() + 1 >= BEHIND).then(|| self.0.remove(oldest).1)
    }

    /// The next one on the way to that of a slot, which is no more among them then.
    fn next_for(&mut self, slot: u32) -> Option<u32> {
        let (group, _) = *self.0.iter().find(|(_, other)| *other == slot)?;
        let next = self.0.iter().position(|(other, _)| *other == group)?;
        Some(self.0.remove(next).1)
    }
}

/// What is carried over of one parameter's gradient: its places in the parameter, and the values.
pub(super) struct Residuals<'a> {
    pub param: ParamId,
    pub whose: Residual,
    pub places: Range<usize>,
    /// Ranks that carry something of these places.
    pub holders: usize,
    pub values: &'a mut [f32],
}

impl Gradients {
    /// Those of `program`, before ranks know each other.
    pub fn new(plan: &Plan, program: &Program) -> Self {
        let ways = plan.communication.gradient_reductions();
        let mut buckets = vec![];
        for stage in &program.stages {
            for (at, bucket) in stage.buckets.iter().enumerate() {
                let reduction =
                    |way: &GradientReduction| plan.communication.reduction(*way, stage.stage, at);
                let reductions: Vec<Reduction> = ways.iter().map(reduction).collect();
                let coded = distinct(&reductions);
                if coded.is_empty() {
                    continue;
                }
                let place = |r: &Reduction| coded.iter().position(|other| other == r);
                buckets.push(Coded {
                    stage: stage.stage,
                    slot: bucket.slot,
                    group: bucket.group,
                    region: bucket.region,
                    shards: vec![],
                    is_alike: false,
                    is_joined: false,
                    params: params(stage, bucket),
                    holders: 1,
                    feedback: coded.iter().any(|reduction| reduction.method.feedback),
                    by_way: reductions.iter().map(place).collect(),
                });
            }
        }
        let begun = Begun(Vec::with_capacity(buckets.len()));
        Self { ways, way: 0, buckets, exchange: None, begun, layout: None }
    }

    /// Connects the ranks that sum encoded buckets together; `coder` gives the device's codecs where there
    /// is one, `talk` says whether devices talk. All ranks call it.
    ///
    /// # Errors
    /// When the transport fails.
    pub fn connect<T: Transport>(
        &mut self,
        transport: &mut T,
        plan: &Plan,
        program: &Program,
        groups: &[Vec<LaneId>],
        talk: bool,
        coder: impl FnOnce() -> Result<Option<Box<dyn Coder>>, DeviceError>,
    ) -> Result<(), TransportError> {
        let communication = &plan.communication;
        // The same answer on all ranks, whatever stages they have.
        if groups.is_empty() || !communication.encodes() {
            return Ok(());
        }
        let spec = |coded: &Coded| {
            let stage = program.stage(coded.stage).expect("its lane");
            let at = stage.buckets.iter().position(|bucket| bucket.slot == coded.slot);
            let at = at.expect("it was found there");
            let reduction =
                |way: &GradientReduction| communication.reduction(*way, coded.stage, at);
            let reductions: Vec<Reduction> = self.ways.iter().map(reduction).collect();
            BucketSpec {
                group: groups[coded.group as usize].iter().map(|rank| rank.0).collect(),
                tensors: coded.params.iter().map(|(_, places)| places.clone()).collect(),
                len: coded.region.bytes.0 as usize / 4,
                reductions: distinct(&reductions),
            }
        };
        let places: Vec<Bytes> = self.buckets.iter().map(|coded| coded.region.offset).collect();
        let specs: Vec<BucketSpec> = self.buckets.iter().map(spec).collect();
        let hosts = if communication.hierarchical { Some(transport.hosts()?) } else { None };
        for (coded, spec) in self.buckets.iter_mut().zip(&specs) {
            coded.holders = holders(&spec.group, hosts.as_deref());
            let lane = |rank: &u32| plan.mesh().lane(*rank);
            coded.is_alike = spec.group.windows(2).all(|pair| lane(&pair[0]) == lane(&pair[1]));
        }
        self.layout = Some(match &hosts {
            None => "flat".into(),
            Some(hosts) => format!("hosts {:?}", numbered(hosts)),
        });
        let (coder, hierarchical) = (coder()?, communication.hierarchical);
        let intra_node = talk && hierarchical && all_have(coder.is_some(), transport)?;
        let device = coder.map(|coder| Beside { coder, values: &places, intra_node });
        let mut exchange = Exchange::beside(device, transport, &specs, hierarchical)?;
        if plan.training.skips().is_some() {
            exchange.allow_undo()?;
        }
        for (at, coded) in self.buckets.iter_mut().enumerate() {
            coded.shards =
                exchange.shards(at).iter().map(|shard| within(coded.region, shard)).collect();
            coded.is_joined = talk && !exchange.encodes(at);
        }
        self.exchange = Some(exchange);
        Ok(())
    }

    /// How what is carried is spread over ranks, where gradients are encoded with feedback.
    pub fn layout(&self) -> Option<String> {
        let feedback = |way: &GradientReduction| match way {
            GradientReduction::All(reduction) => reduction.method.feedback,
            GradientReduction::Adaptive => true,
        };
        self.layout.clone().filter(|_| self.ways.iter().any(feedback))
    }

    /// Whether what is lost of a parameter's gradient is carried over.
    pub fn carries(&self, param: ParamId) -> bool {
        let of = |coded: &&Coded| coded.params.iter().any(|(other, _)| *other == param);
        let coded = self.buckets.iter().find(of);
        self.exchange.is_some() && coded.is_some_and(|coded| coded.feedback && coded.holders > 1)
    }

    /// The ways that may be taken.
    pub fn gradient_reductions(&self) -> &[GradientReduction] {
        &self.ways
    }

    /// Which of them is taken.
    pub fn way(&self) -> usize {
        self.way
    }

    /// From the next step on gradients take another way.
    pub fn take(&mut self, way: usize) {
        assert!(way < self.ways.len(), "way {way} of {}", self.ways.len());
        self.way = way;
    }

    /// The exchange's number of a bucket and of its reduction, where it is encoded now.
    fn coded(&self, slot: u32) -> Option<(usize, usize)> {
        let at = self.buckets.iter().position(|bucket| bucket.slot == slot)?;
        Some((at, self.buckets[at].by_way[self.way]?))
    }

    /// Who sums a bucket now; the same on all its ranks where devices talk.
    pub fn sum(&self, slot: u32) -> Sum<'_> {
        let (Some((at, reduction)), Some(exchange)) = (self.coded(slot), &self.exchange) else {
            return Sum::Plain;
        };
        let Coded { group, shards, is_joined, .. } = &self.buckets[at];
        if *is_joined {
            return Sum::Plain;
        }
        if !exchange.sums_on_device(at, reduction) {
            return Sum::Host;
        }
        let intra_node = IntraNode { group: *group, shards };
        Sum::Device { mark: at, intra_node: (!shards.is_empty()).then_some(intra_node) }
    }

    /// Starts to sum a bucket on the device, when it reaches the bucket's mark.
    pub fn start_there(&mut self, slot: u32) -> Result<(), TransportError> {
        if let Sum::Device { intra_node: Some(IntraNode { group, .. }), .. } = self.sum(slot) {
            self.begun.0.push((group, slot));
        }
        match (self.coded(slot), &mut self.exchange) {
            (Some((at, reduction)), Some(exchange)) => exchange.start_there(at, reduction),
            _ => Ok(()),
        }
    }

    /// The slot whose sum devices of this host hand out before that of `slot` begins, while the backward pass goes on;
    /// none where ranks of several lanes sum together, whose programs begin sums in orders of their own.
    pub fn next_behind(&mut self, slot: u32) -> Option<u32> {
        let coded = self.buckets.iter().find(|bucket| bucket.slot == slot)?;
        let (group, is_alike) = (coded.group, coded.is_alike);
        if is_alike { self.begun.next_behind(group) } else { None }
    }

    /// The slot whose sum devices of this host hand out next, for that of `slot`; none when that is done.
    pub fn next_inside(&mut self, slot: u32) -> Option<u32> {
        self.begun.next_for(slot)
    }

    /// Whether an encoded bucket is summed.
    pub fn is_summed(&mut self, slot: u32) -> Result<bool, TransportError> {
        match (self.coded(slot), &mut self.exchange) {
            (Some((at, _)), Some(exchange)) => exchange.is_summed(at),
            _ => Ok(true),
        }
    }

    /// Starts to sum a bucket.
    ///
    /// # Safety
    /// As [`Transport::start_collective`].
    pub unsafe fn start<T: Transport>(
        &mut self,
        transport: &mut T,
        call: Collective,
        bucket: &Bucket,
        values: &mut [f32],
    ) -> Result<(), TransportError> {
        match (self.coded(bucket.slot), &mut self.exchange) {
            // SAFETY: the caller's promise.
            (Some((at, reduction)), Some(exchange)) => unsafe {
                exchange.start(at, reduction, values)
            },
            // SAFETY: the caller's promise.
            _ => unsafe {
                let (group, slot) = (bucket.group as usize, bucket.slot as usize);
                transport.start_collective(call, group, values, slot)
            },
        }
    }

    /// Waits until a bucket is summed.
    pub fn wait<T: Transport>(
        &mut self,
        transport: &mut T,
        slot: u32,
    ) -> Result<(), TransportError> {
        match (self.coded(slot), &mut self.exchange) {
            (Some((at, _)), Some(exchange)) => exchange.wait(at),
            _ => transport.wait_collective(slot as usize),
        }
    }

    /// Lets sums under way advance.
    pub fn progress(&mut self) -> Result<(), TransportError> {
        self.exchange.as_mut().map_or(Ok(()), Exchange::progress)
    }

    /// The sums of a step are to be kept, or to be undone: what is carried over is as it was before.
    pub fn settle(&mut self, undo: bool) {
        if let Some(exchange) = &mut self.exchange {
            exchange.settle(undo);
        }
    }

    /// Bytes of encoded gradients that this rank has sent so far.
    pub fn sent_bytes(&self) -> u64 {
        self.exchange.as_ref().map_or(0, Exchange::sent_bytes)
    }

    /// Bytes of buffers and of what is carried over.
    pub fn bytes(&self) -> u64 {
        self.exchange.as_ref().map_or(0, Exchange::bytes)
    }

    /// Shows what is carried over to the next step.
    pub fn carried(&mut self, mut visit: impl FnMut(Residuals)) {
        let Some(exchange) = &mut self.exchange else { return };
        let buckets = &self.buckets;
        exchange.residuals(|bucket, whose, places, values| {
            let Coded { params, holders, .. } = &buckets[bucket];
            let found = params.iter().find(|(_, range)| range.contains(&places.start));
            let (param, range) = found.expect("pieces are parts of parameters");
            let places = places.start - range.start..places.end - range.start;
            visit(Residuals { param: *param, whose, places, holders: *holders, values });
        });
    }
}

/// Whether all ranks have something. All call it.
fn all_have(it: bool, transport: &mut impl Transport) -> Result<bool, TransportError> {
    let mut have = [f64::from(u8::from(it))];
    transport.all_reduce(&mut have, ReduceOp::Min)?;
    Ok(have[0] > 0.0)
}

/// Where values of a bucket lie.
fn within(bucket: Region, values: &Range<usize>) -> Region {
    let [offset, bytes] = [values.start, values.len()].map(|count| Bytes(4 * count as u64));
    Region { offset: bucket.offset + offset, bytes }
}

/// Ranks of a group that exchange the same values: one of each host where hosts sum first.
fn holders(group: &[u32], hosts: Option<&[u32]>) -> usize {
    let Some(hosts) = hosts else { return group.len() };
    let mut of_group: Vec<u32> = group.iter().map(|rank| hosts[*rank as usize]).collect();
    of_group.sort_unstable();
    of_group.dedup();
    of_group.len()
}

/// Hosts by the order in which ranks first name them.
fn numbered(hosts: &[u32]) -> Vec<usize> {
    let first = |host: &u32| hosts.iter().position(|other| other == host);
    hosts.iter().filter_map(first).collect()
}

/// The encoded ones of some reductions, each once.
fn distinct(reductions: &[Reduction]) -> Vec<Reduction> {
    let mut distinct: Vec<Reduction> = vec![];
    for reduction in reductions.iter().filter(|reduction| !reduction.is_plain()) {
        if !distinct.contains(reduction) {
            distinct.push(*reduction);
        }
    }
    distinct
}

/// The parameters of a bucket, by their places among its values.
fn params(stage: &StageProgram, bucket: &Bucket) -> Vec<(ParamId, Range<usize>)> {
    let (start, end) = (bucket.region.offset, bucket.region.offset + bucket.region.bytes);
    let mut params = vec![];
    for place in &stage.params {
        let Some(gradient) = place.gradient.filter(|g| start <= g.offset && g.offset < end) else {
            continue;
        };
        let first = (gradient.offset - start).0 as usize / 4;
        params.push((place.param, first..first + gradient.bytes.0 as usize / 4));
    }
    params.sort_by_key(|(_, places)| places.start);
    params
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_a_group_are_handed_out_as_they_began() {
        let mut begun = Begun(vec![(0, 5), (1, 6), (0, 7), (0, 4)]);
        let mut handed_out =
            |slot| -> Vec<u32> { std::iter::from_fn(|| begun.next_for(slot)).collect() };
        assert_eq!(handed_out(7), [5, 7], "the other group is not asked");
        assert!(handed_out(5).is_empty(), "it was handed out for the other's sake");
        assert_eq!([handed_out(6), handed_out(4)], [[6], [4]]);
    }

    #[test]
    fn two_sums_of_a_group_are_on_their_way() {
        let mut begun = Begun(vec![(0, 5), (1, 6), (0, 7)]);
        assert_eq!([begun.next_behind(0), begun.next_behind(0)], [Some(5), None]);
        assert_eq!([begun.next_behind(1), begun.next_behind(2)], [None, None], "too few");
        assert_eq!(begun.0, [(1, 6), (0, 7)]);
    }
}
