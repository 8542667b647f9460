//! The tensors of a rank that outlive a step: what a checkpoint keeps.
//!
//! Where several ranks hold a stage (replicas, both copies of a bidirectional schedule), weights and
//! the optimizer's state are the same on all of them, and the first saves them. Running statistics
//! are each rank's own: it has seen other samples.

use super::Rank;
use super::expert_parallel::speakers;
use super::rank::tied_to;
use crate::device::DeviceError;
use pipewright_core::ids::{ParamId, StageId};
use pipewright_core::plan::{ParamPlace, Region, StageProgram};
use std::ops::Range;

/// One of them.
#[derive(Clone, Debug, PartialEq)]
pub struct PersistentTensor {
    /// The parameter's name. Followed by `@` and PyTorch's name of it for the optimizer's state,
    /// `fc1.weight@momentum_buffer`; by `@version-1` for the weights before the last update, which
    /// double-buffered schedules still need.
    pub name: String,
    /// The parameter whose values begin it, for weights and statistics: its own, or for the copy of
    /// a tied table the table.
    pub begins_as: Option<String>,
    /// The whole parameter's shape, which its state shares.
    pub shape: Vec<u64>,
    /// The parameter.
    pub(super) param: ParamId,
    /// The stage that has it.
    pub stage: StageId,
    /// The name of this rank's own value where ranks differ: for running statistics of all but the
    /// first rank that holds the stage, `bn1.running_mean@rank-3`.
    pub own_name: Option<String>,
    /// Where ranks divide what the optimizer keeps: which values of the parameter, or of the shard, this rank has.
    pub(super) part: Option<Range<usize>>,
    /// Whether its tensor group and expert group bring its shards together for the first rank, which saves them.
    pub(super) gathers: bool,
    /// Whether this rank saves it, under [`PersistentTensor::own_name`] where it has one.
    pub saves: bool,
    pub(super) region: Region,
}

impl PersistentTensor {
    /// What the optimizer's state of a parameter is called.
    pub(super) fn state_name(param: &str, state: &str) -> String {
        format!("{param}@{state}")
    }
}

impl<T> Rank<'_, T> {
    /// Every tensor of this rank that outlives a step, stage by stage, in the graph's order, where
    /// it lies before the next step.
    pub fn persistent_state(&self) -> Vec<PersistentTensor> {
        let mut all = vec![];
        for stage in 0..self.program.stages.len() {
            for place in &self.program.stages[stage].params {
                self.persistent_of(stage, place, &mut all);
            }
        }
        all
    }

    /// Has the host have what lasts, where a device computes: for [`Rank::values`].
    pub fn fetch_persistent_state(&mut self) {
        for tensor in self.persistent_state() {
            self.arena.fetch(tensor.region);
        }
    }

    /// Whether the device has done all that it was asked for, and what was fetched is what it has.
    ///
    /// # Errors
    /// What went wrong there.
    pub fn check_device(&mut self) -> Result<(), DeviceError> {
        self.arena.check()
    }

    /// The values of one of [`Rank::persistent_state`], after [`Rank::fetch_persistent_state`].
    pub fn values(&self, tensor: &PersistentTensor) -> &[f32] {
        bytemuck::cast_slice(self.arena.at_home(tensor.region))
    }

    /// The same, to set them.
    pub fn values_mut(&mut self, tensor: &PersistentTensor) -> &mut [f32] {
        self.arena.floats(tensor.region)
    }

    /// Name and CRC-32C of each tensor that replicas share, after [`Rank::fetch_persistent_state`].
    pub fn checksums(&self) -> Vec<(String, u32)> {
        // With one rank that updates, the others' values are of the step before.
        let tensors = self.persistent_state().into_iter().filter(|_| self.replica.updates);
        let sum =
            |tensor: &PersistentTensor| crc32c::crc32c(bytemuck::cast_slice(self.values(tensor)));
        let name = |t: &PersistentTensor| match self.graph.shards(t.param) {
            Some(_) => format!("{}@shard-{}", t.name, self.shard_index(t.param)),
            None => t.name.clone(),
        };
        tensors
            .filter(|t| t.own_name.is_none() && t.part.is_none())
            .map(|t| (name(&t), sum(&t)))
            .collect()
    }

    /// What a parameter keeps.
    fn persistent_of(&self, at: usize, place: &ParamPlace, all: &mut Vec<PersistentTensor>) {
        let stage: &StageProgram = &self.program.stages[at];
        let param = self.graph.param(place.param);
        let mesh = self.plan.mesh();
        let speaks = self.replica.index < speakers(self.graph, mesh, place.param);
        let gathers = stage.first_copy && speaks;
        let leads = self.tensor.index == 0 && (self.replica.index == 0 || !gathers);
        let origin = tied_to(self.graph, place.param).unwrap_or(place.param);
        let mut add = |name: String, region: Region, is_state: bool, part: Option<Range<usize>>| {
            let own = !gathers && !param.trainable && self.replica.updates;
            // A tensor group has one and the same.
            let of = self.replica.rank - self.tensor.index;
            let own_name = own.then(|| format!("{name}@rank-{of}"));
            let begins_as = (!is_state).then(|| self.graph.param(origin).name.clone());
            let whole = self.graph.shards(place.param).map_or(&param.shape, |shards| &shards.shape);
            let saves = leads && (gathers || own);
            all.push(PersistentTensor {
                name,
                begins_as,
                shape: whole.clone(),
                param: place.param,
                stage: stage.stage,
                own_name,
                part,
                gathers,
                saves,
                region,
            });
        };
        if !param.trainable {
            // What deferred statistics keep besides is zero between steps.
            return add(param.name.clone(), place.weight, false, None);
        }
        // With stashing every step begins and ends with version 0; the others serve within it.
        let needed = if stage.versions.rotate { stage.versions.count } else { 1 };
        for version in 0..needed {
            let name = match version {
                0 => param.name.clone(),
                older => format!("{}@version-{older}", param.name),
            };
            add(name, stage.versions.place(place.weight, version, self.step), false, None);
        }
        let states = self.plan.optimizer.state_names();
        for (index, state) in states.iter().enumerate() {
            let name = PersistentTensor::state_name(&param.name, state);
            match place.state[index] {
                Some(region) => add(name, region, true, None),
                None => {
                    let (region, part) = self.kept_part(at, place, index);
                    add(name, region, true, Some(part));
                }
            }
        }
    }
}
