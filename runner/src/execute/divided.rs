//! Division of updates among the ranks that sum gradients together (ZeRO-1): this rank's parts of parameters and of
//! what the optimizer keeps, and how all ranks get the whole.

use super::PersistentTensor;
use super::arena::Slices;
use super::rank::Rank;
use crate::device::Rooted;
use crate::transport::{Collective, PartCollective, Transport, TransportError};
use pipewright_core::ids::ParamId;
use pipewright_core::plan::{
    Bucket, Divided, ParamPlace, Precision, Program, Region, StageProgram, part,
};
use pipewright_core::units::Bytes;
use std::collections::BTreeMap;
use std::ops::Range;

/// What a rank has of what ranks divide.
pub(super) struct Division {
    /// What it updates, by stage of its program.
    pub pieces: Vec<Vec<ParamPlace>>,
    /// By slot: whether a bucket is being summed of which the rank keeps a part.
    pub summing: Vec<bool>,
}

impl Division {
    /// That of the lane's rank of a replica.
    pub fn new(program: &Program, replica: u32) -> Self {
        let summing = vec![false; program.collectives as usize];
        Self { pieces: pieces(program, replica), summing }
    }
}

/// What the rank of a replica updates of the parameters that ranks divide, by stage of its program: each piece as if
/// it were a parameter.
fn pieces(program: &Program, replica: u32) -> Vec<Vec<ParamPlace>> {
    let of_bucket = |stage: &StageProgram, bucket: &Bucket| -> Vec<ParamPlace> {
        let Some(divided) = bucket.divided else { return vec![] };
        let own = bucket.own(replica);
        let piece = |(place, all): (&ParamPlace, Range<u64>)| {
            let (start, end) = (own.start.max(all.start), own.end.min(all.end));
            let bytes = Bytes(end.checked_sub(start).filter(|bytes| *bytes > 0)?);
            let within =
                |region: Region, at: u64| Region { offset: region.offset + Bytes(at), bytes };
            let at = start - all.start;
            Some(ParamPlace {
                param: place.param,
                weight: within(place.weight, at),
                gradient: match divided.gradient {
                    Some(part) => Some(within(part, start - own.start)),
                    None => place.gradient.map(|gradient| within(gradient, at)),
                },
                state: divided.state.map(|state| Some(within(state?, start - own.start))),
            })
        };
        places(stage, divided).filter_map(piece).collect()
    };
    let of_stage = |stage: &StageProgram| {
        stage.buckets.iter().flat_map(|bucket| of_bucket(stage, bucket)).collect()
    };
    program.stages.iter().map(of_stage).collect()
}

/// The parameters of a bucket, and which of its bytes are theirs.
fn places(
    stage: &StageProgram,
    divided: Divided,
) -> impl Iterator<Item = (&ParamPlace, Range<u64>)> {
    let all = stage.params.iter().filter(move |place| divided.holds(place));
    all.map(move |place| {
        let start = (place.weight.offset - divided.weights.offset).0;
        (place, start..start + place.weight.bytes.0)
    })
}

/// The buckets of a stage that ranks divide.
fn divided(stage: &StageProgram) -> impl Iterator<Item = &Bucket> {
    stage.buckets.iter().filter(|bucket| bucket.divided.is_some())
}

/// Whether ranks divide a stage's update.
pub(super) fn divides(stage: &StageProgram) -> bool {
    divided(stage).next().is_some()
}

/// Whether ranks divide a parameter.
pub(super) fn is_divided(stage: &StageProgram, place: &ParamPlace) -> bool {
    divided(stage).filter_map(|bucket| bucket.divided).any(|divided| divided.holds(place))
}

/// The gradients of a stage that other ranks have the sums of, where they are kept.
pub(super) fn others(stage: &StageProgram, replica: u32) -> impl Iterator<Item = Region> {
    let kept = divided(stage).filter(|bucket| bucket.divided_gradient().is_none());
    kept.flat_map(move |bucket| {
        let (own, Region { offset, bytes }) = (bucket.own(replica), bucket.region);
        let part =
            |from: u64, to: u64| Region { offset: offset + Bytes(from), bytes: Bytes(to - from) };
        [part(0, own.start), part(own.end, bytes.0)]
    })
}

impl<T> Rank<'_, T> {
    /// Where this rank has what the optimizer keeps of a parameter of which it keeps a part, and the part's places
    /// in the parameter: nothing, for most ranks.
    pub(super) fn kept_part(
        &self,
        stage: usize,
        place: &ParamPlace,
        state: usize,
    ) -> (Region, Range<usize>) {
        let piece = self.division.pieces[stage].iter().find(|piece| piece.param == place.param);
        let kept = piece.and_then(|piece| {
            let (state, from) = (piece.state[state]?, piece.weight.offset - place.weight.offset);
            let from = from.0 as usize / 4;
            Some((state, from..from + state.bytes.0 as usize / 4))
        });
        kept.unwrap_or_default()
    }
}

impl<T: Transport> Rank<'_, T> {
    /// Every rank gets what the others have updated of a stage's parameters, of one version.
    pub(super) fn gather_updates(
        &mut self,
        stage: &StageProgram,
        version: u32,
    ) -> Result<(), TransportError> {
        let talks = self.arena.talks();
        for bucket in divided(stage) {
            let Some(divided) = bucket.divided else { continue };
            let weights = stage.versions.place(divided.weights, version, self.step);
            if talks {
                self.join_divided(Collective::Broadcast, bucket, weights);
                continue;
            }
            let (group, slot) = (self.group_of(bucket), bucket.slot as usize);
            let values = self.arena.floats(weights);
            // SAFETY: nothing touches the parameters before the wait below has returned, and the transport is
            // dropped before the arena.
            unsafe {
                let call = PartCollective::AllGather;
                self.transport.start_part_collective(call, group as usize, values, slot)?;
            }
        }
        if talks {
            divided(stage).for_each(|bucket| self.arena.wait_join(bucket.slot));
            return Ok(self.arena.check()?);
        }
        divided(stage).try_for_each(|bucket| self.transport.wait_collective(bucket.slot as usize))
    }

    /// Has devices start a call on what lies as a bucket does, of which each rank has its part: the sums of gradients
    /// end where they are used, and parameters begin there.
    pub(super) fn join_divided(&mut self, call: Collective, bucket: &Bucket, whole: Region) {
        let Some(divided) = bucket.divided else { return };
        let values = whole.bytes.0 as usize / 4;
        let rooted = |root: u32| {
            let places = part(values, divided.ranks as usize, root as usize);
            let offset = whole.offset + Bytes(4 * places.start as u64);
            Rooted { root, region: Region { offset, bytes: Bytes(4 * places.len() as u64) } }
        };
        let parts: Slices<Rooted> = (0..divided.ranks).map(rooted).collect();
        let held = parts.iter().take_while(|part| part.region.bytes > Bytes::ZERO).count();
        let group = self.group_of(bucket);
        self.arena.join_parts(call, group, (whole, &parts[..held]), Precision::F32, bucket.slot);
    }

    /// The same behind an update that takes modelled time.
    pub(super) fn modelled_gather(
        &mut self,
        stage: &StageProgram,
        version: u32,
    ) -> Result<(), TransportError> {
        if let Some(model) = &self.model {
            model.catch_up(&self.transport);
        }
        self.gather_updates(stage, version)?;
        if let Some(model) = &mut self.model {
            model.met(&self.transport);
        }
        Ok(())
    }

    /// All of what the optimizer keeps of the parameters that ranks divide, by name, on the rank that saves it for all;
    /// of a tensor group's shards each rank's own. All ranks call it.
    ///
    /// # Errors
    /// When a message fails.
    pub(super) fn gather_state(&mut self) -> Result<BTreeMap<String, Vec<f32>>, TransportError> {
        let mut whole: BTreeMap<(ParamId, usize), Vec<f32>> = BTreeMap::new();
        let (program, replica) = (self.program, self.replica.index);
        for stage in &program.stages {
            for bucket in divided(stage) {
                let Some(divided) = bucket.divided else { continue };
                let saves = stage.first_copy && replica < bucket.apart;
                for (at, state) in divided.state.into_iter().flatten().enumerate() {
                    let values = self.gather_part(bucket, state)?;
                    for (place, bytes) in places(stage, divided).filter(|_| saves) {
                        let places = bytes.start as usize / 4..bytes.end as usize / 4;
                        whole.insert((place.param, at), values[places].to_vec());
                    }
                }
            }
        }
        let names = self.plan.optimizer.state_names();
        let graph = self.graph;
        let named = |((param, at), values): ((ParamId, usize), Vec<f32>)| {
            (PersistentTensor::state_name(&graph.param(param).name, names[at]), values)
        };
        Ok(whole.into_iter().map(named).collect())
    }

    /// The values of a bucket of which each rank keeps its part in `state`.
    fn gather_part(&mut self, bucket: &Bucket, state: Region) -> Result<Vec<f32>, TransportError> {
        let mut values = vec![0.0; bucket.region.bytes.0 as usize / 4];
        let own = bucket.own(self.replica.index);
        let kept = Region { bytes: Bytes(own.end - own.start), ..state };
        let own = own.start as usize / 4..own.end as usize / 4;
        values[own].copy_from_slice(self.arena.floats(kept));
        let (group, slot) = (self.group_of(bucket), bucket.slot as usize);
        // SAFETY: nothing touches the values before the wait has returned; after an error the transport touches
        // them no more, or this process only ends.
        unsafe {
            let call = PartCollective::AllGather;
            self.transport.start_part_collective(call, group as usize, &mut values, slot)?;
        }
        self.transport.wait_collective(slot)?;
        Ok(values)
    }
}
