//! Data parallelism: collectives of the pipeline's replicas, and of copies of a stage in it.

use super::error::StepFault;
use super::gradients::{IntraNode, Sum};
use super::rank::{Batch, Rank};
use crate::transport::{Collective, PartCollective, Transport, TransportError};
use pipewright_core::ids::{LaneId, MicroBatch, StageId};
use pipewright_core::plan::{Bucket, DataParallel, Instruction, Mesh, Plan, Region};
use pipewright_core::timeline::Wait;

/// Which replica this rank belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replica {
    /// This rank.
    pub rank: u32,
    /// From 0.
    pub index: u32,
    /// Whether it updates its parameters; else the first one's are handed out before each step.
    pub updates: bool,
    data_parallel: DataParallel,
    mesh: Mesh,
    /// Samples of a micro-batch, and of all micro-batches of a replica.
    samples: (u64, u64),
}

impl Replica {
    /// The replica of `rank`.
    pub fn new(plan: &Plan, rank: u32) -> Self {
        let (data_parallel, mesh) = (plan.data_parallel, plan.mesh());
        let index = mesh.replica(rank);
        let samples = plan.samples();
        Self {
            rank,
            index,
            updates: !data_parallel.through_first() || index == 0,
            data_parallel,
            mesh,
            samples: (samples, samples * u64::from(plan.micro_batches)),
        }
    }

    /// This rank's place in its tensor group.
    pub fn tensor_rank(&self) -> u32 {
        self.mesh.tensor_rank(self.rank)
    }

    /// This rank's twin on another lane of this replica.
    pub fn peer(&self, lane: LaneId) -> u32 {
        self.mesh.rank(lane, self.mesh.place(self.rank).1)
    }

    /// The replicas in the order in which the first one loads their samples: its own come last.
    pub fn scattered(&self) -> impl Iterator<Item = u32> + use<> {
        (1..self.data_parallel.replicas).chain([0])
    }

    /// Where the samples of a micro-batch of `replica` begin in the mini-batch: a replica has its
    /// share in one piece.
    pub fn first_sample(&self, replica: u32, micro_batch: MicroBatch) -> u64 {
        let (micro_batch_samples, replica_samples) = self.samples;
        u64::from(replica) * replica_samples + u64::from(micro_batch.0) * micro_batch_samples
    }
}

impl<T: Transport> Rank<'_, T> {
    /// Makes the groups of ranks known that sum gradients together. Collective.
    ///
    /// # Errors
    /// When the transport fails.
    pub fn connect(&mut self, groups: &[Vec<LaneId>]) -> Result<(), TransportError> {
        if groups.is_empty() {
            return Ok(());
        }
        let ranks: Vec<Vec<u32>> =
            groups.iter().map(|ranks| ranks.iter().map(|rank| rank.0).collect()).collect();
        self.transport.connect(&ranks, self.program.collectives as usize)?;
        let (plan, program, talks) = (self.plan, self.program, self.arena.talks());
        let coder = || self.arena.coder();
        self.gradients.connect(&mut self.transport, plan, program, groups, talks, coder)
    }

    /// The group that sums a bucket of this rank's.
    pub(super) fn group_of(&self, bucket: &Bucket) -> u32 {
        bucket.group_of(self.tensor.index, self.replica.index)
    }

    /// Starts to sum a bucket of a stage.
    pub(super) fn reduce(&mut self, stage: StageId, bucket: &Bucket) -> Result<(), TransportError> {
        self.recorder.reducing(stage, self.transport.now_ns());
        while let Some(before) = self.gradients.next_behind(bucket.slot) {
            self.hand_out(before)?;
        }
        let call = match self.replica.data_parallel.through_first() {
            true => Collective::Reduce,
            false => Collective::AllReduce,
        };
        let mut parts = bucket.divided.is_some();
        self.division.summing[bucket.slot as usize] = bucket.divided_gradient().is_some();
        match self.gradients.sum(bucket.slot) {
            Sum::Device { mark, intra_node } => {
                match intra_node {
                    None => {
                        self.arena.compute(&[], &[bucket.region], |device| device.mark(mark));
                    }
                    Some(IntraNode { group, shards }) => {
                        let slot = bucket.slot;
                        self.arena.reduce_intra_node(group, slot, mark, bucket.region, shards);
                    }
                }
                self.arena.check()?;
                return self.start_there(bucket.slot);
            }
            Sum::Plain if self.arena.talks() && parts => {
                self.join_divided(Collective::Reduce, bucket, bucket.region);
                return Ok(());
            }
            Sum::Plain if self.arena.talks() => {
                let group = self.group_of(bucket);
                self.arena.join(call, group, bucket.region, bucket.slot);
                return Ok(());
            }
            Sum::Plain => {}
            // All ranks decode the whole sum.
            Sum::Host => parts = false,
        }
        let bucket = &Bucket { group: self.group_of(bucket), ..*bucket };
        let values = self.arena.floats(bucket.region);
        // SAFETY: as in `Self::call`.
        unsafe {
            if parts {
                let (call, group) = (PartCollective::ReduceScatter, bucket.group as usize);
                let slot = bucket.slot as usize;
                return self.transport.start_part_collective(call, group, values, slot);
            }
            self.gradients.start(&mut self.transport, call, bucket, values)
        }
    }

    /// Starts the exchange of a bucket that the device encodes. Where devices talk and it fails, they are
    /// told: others must not wait for what this rank has begun.
    fn start_there(&mut self, slot: u32) -> Result<(), TransportError> {
        if !self.arena.talks() {
            return self.gradients.start_there(slot);
        }
        self.arena.wait_until(&mut || self.gradients.start_there(slot).map(|()| true));
        Ok(self.arena.check()?)
    }

    /// Waits until the buckets of a stage are summed.
    pub(super) fn wait_reduce(&mut self, stage: StageId) -> Result<(), TransportError> {
        let stage = self.program.stage(stage).expect("its lane");
        let end = self.waiting(Wait::Ranks, |rank| {
            if stage.divides_gradients() {
                return rank.take_parts(stage);
            }
            stage.buckets.iter().try_for_each(|bucket| rank.wait_bucket(bucket.slot))
        })?;
        self.recorder.reduced(stage.stage, end);
        Ok(())
    }

    /// Waits until a bucket is summed.
    ///
    /// All that devices of a host ask each other for is asked by this thread, in an order that follows from the
    /// program alone; the exchange's own thread calls no device but its own. A host waits for the exchange
    /// between the two parts, and what others need for that was asked of every device before: so no
    /// rank waits for what another one asks for later. While the backward pass goes on that is so where all that
    /// sum together have one program.
    pub(super) fn wait_bucket(&mut self, slot: u32) -> Result<(), TransportError> {
        if !self.arena.talks() {
            return self.gradients.wait(&mut self.transport, slot);
        }
        match self.gradients.sum(slot) {
            Sum::Plain => self.arena.wait_join(slot),
            Sum::Host | Sum::Device { intra_node: None, .. } => self.wait_exchange(slot)?,
            Sum::Device { intra_node: Some(_), .. } => {
                while let Some(next) = self.gradients.next_inside(slot) {
                    self.hand_out(next)?;
                }
                self.arena.wait_join(slot);
            }
        }
        Ok(())
    }

    /// Waits for the exchange of a sum that devices of this host began, and has them hand it out.
    fn hand_out(&mut self, slot: u32) -> Result<(), TransportError> {
        self.wait_exchange(slot)?;
        if let Sum::Device { intra_node: Some(IntraNode { group, shards }), .. } =
            self.gradients.sum(slot)
        {
            self.arena.broadcast_intra_node(group, shards, slot);
        }
        Ok(())
    }

    /// Waits for the exchange, and looks meanwhile after the way between devices: what the exchange waits
    /// for may be a device that waits for another one.
    fn wait_exchange(&mut self, slot: u32) -> Result<(), TransportError> {
        self.arena.wait_until(&mut || self.gradients.is_summed(slot));
        Ok(self.arena.check()?)
    }

    /// A collective call, and its end.
    fn call(&mut self, call: Collective, group: u32, region: Region) -> Result<(), TransportError> {
        let slot = self.last_slot();
        if self.arena.talks() {
            self.arena.join(call, group, region, slot);
            self.arena.wait_join(slot);
            return Ok(());
        }
        let values = self.arena.floats(region);
        // SAFETY: nothing touches gradients that are complete until the program waits for them, and
        // exchange and transport are dropped before the arena.
        unsafe { self.transport.start_collective(call, group as usize, values, slot as usize)? };
        self.transport.wait_collective(slot as usize)
    }

    /// The slot behind those of the buckets.
    pub(super) fn last_slot(&self) -> u32 {
        self.program.collectives - 1
    }

    /// Sums the gradients of a parameter that several stages hold, so that all copies change alike.
    pub(super) fn tie(&mut self, index: u32) -> Result<(), TransportError> {
        let tie = &self.program.ties[index as usize];
        let Some((first, others)) = tie.gradients.split_first() else { return Ok(()) };
        for other in others {
            let (reads, mut writes) = self.arena.views([*other].into_iter(), [*first].into_iter());
            writes[0].iter_mut().zip(reads[0]).for_each(|(sum, gradient)| *sum += gradient);
        }
        if let Some(group) = tie.group {
            let call = match self.replica.data_parallel.through_first() {
                true => Collective::Reduce,
                false => Collective::AllReduce,
            };
            self.call(call, group + self.tensor.index, *first)?;
        }
        for other in others {
            let (reads, mut writes) = self.arena.views([*first].into_iter(), [*other].into_iter());
            writes[0].copy_from_slice(reads[0]);
        }
        Ok(())
    }

    /// Every replica gets the parameters and statistics of the first.
    pub(super) fn broadcast(&mut self, stage: StageId) -> Result<(), TransportError> {
        let stage = self.program.stage(stage).expect("its lane");
        // With one lane there is one group: all replicas.
        stage.params.iter().try_for_each(|place| self.call(Collective::Broadcast, 0, place.weight))
    }

    /// The first replica loads everybody's samples.
    pub(super) fn scatter(
        &mut self,
        batch: Batch,
        instruction: &Instruction,
    ) -> Result<(), StepFault> {
        let Instruction::Scatter { micro_batch, source, region, staging, tag, handle } =
            *instruction
        else {
            return Ok(());
        };
        if self.replica.index > 0 {
            return Ok(self.transport.recv(0, tag, self.arena.raw_mut(region))?);
        }
        for replica in self.replica.scattered() {
            if self.model.is_some() {
                if replica > 0 {
                    self.send(replica, tag, staging, handle)?;
                    self.transport.wait_send(handle as usize)?;
                }
                continue;
            }
            if replica == 0 {
                self.load_for(0, batch, micro_batch, (source, region))?;
                continue;
            }
            self.load_for(replica, batch, micro_batch, (source, staging))?;
            self.send(replica, tag, staging, handle)?;
            self.transport.wait_send(handle as usize)?;
        }
        Ok(())
    }
}
