//! Gradients of which each rank keeps a part (ZeRO-2): buckets that lie where others lay, sums of every pass, and the
//! parts to which they add up.

use super::arena::Slices;
use super::rank::Rank;
use crate::device::{Place, Places};
use crate::transport::{Transport, TransportError};
use pipewright_core::graph::autodiff::ComputationKind;
use pipewright_core::graph::{DType, Op, TensorSpec};
use pipewright_core::plan::{Bucket, ParamPlace, Precision, Region, StageProgram};
use pipewright_core::units::Bytes;
use pipewright_kernels::{Call, Draw, Phase, Shard, Turn};
use std::collections::BTreeMap;

/// Whether buckets lie in the same place.
fn overlap(a: &Bucket, b: &Bucket) -> bool {
    a.region.offset < b.region.offset + b.region.bytes
        && b.region.offset < a.region.offset + a.region.bytes
}

impl<T: Transport> Rank<'_, T> {
    /// Before the computations from kernel `next` on of a pass that began with kernel `start`: takes the parts of
    /// buckets that lie where those lie to which these computations are the first to add.
    ///
    /// # Errors
    /// When a sum fails.
    pub(super) fn make_room(
        &mut self,
        stage: &StageProgram,
        start: usize,
        next: usize,
    ) -> Result<(), TransportError> {
        let end = next + self.fusion.at(stage.stage, next).len().max(1);
        for bucket in &stage.buckets {
            if !(next..end).contains(&(bucket.first as usize).max(start)) {
                continue;
            }
            if let Some(model) = &self.model {
                model.catch_up(&self.transport);
            }
            for other in stage.buckets.iter().filter(|other| overlap(other, bucket)) {
                self.take_part(other)?;
            }
            match &mut self.model {
                Some(model) => model.met(&self.transport),
                None => self.zero(bucket.region),
            }
        }
        Ok(())
    }

    /// Waits for all sums of a stage that are under way, and adds the rank's parts to what it keeps.
    ///
    /// # Errors
    /// When a sum fails.
    pub(super) fn take_parts(&mut self, stage: &StageProgram) -> Result<(), TransportError> {
        stage.buckets.iter().try_for_each(|bucket| self.take_part(bucket))
    }

    /// The same for a bucket: nothing, where it is not being summed.
    fn take_part(&mut self, bucket: &Bucket) -> Result<(), TransportError> {
        if !std::mem::take(&mut self.division.summing[bucket.slot as usize]) {
            return Ok(());
        }
        self.wait_bucket(bucket.slot)?;
        let Some(part) = bucket.divided_gradient() else { return Ok(()) };
        let own = bucket.own(self.replica.index);
        let bytes = Bytes(own.end - own.start);
        if self.model.is_none() && bytes > Bytes::ZERO {
            let sum = Region { offset: bucket.region.offset + Bytes(own.start), bytes };
            self.add(sum, Region { bytes, ..part });
        }
        Ok(())
    }

    /// Adds values to others.
    fn add(&mut self, values: Region, to: Region) {
        if !self.arena.is_distant() {
            return self.arena.convert(values, to, |values, to| {
                to.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
            });
        }
        let elements = to.bytes.0 / 4;
        let spec = TensorSpec { shape: vec![elements], dtype: DType::F32 };
        let call = Call {
            op: &Op::Add,
            kind: ComputationKind::SumGradients,
            inputs: &[&spec, &spec],
            output: &spec,
            samples: 1,
            phase: Phase::Train,
            loss_scale: 1.0,
            wanted: 0,
            threads: self.threads,
            draw: Draw::default(),
            turn: Turn::default(),
            shard: Shard::default(),
            precision: Precision::F32,
        };
        let place = |region| Place { region, elements, packed: false, image: None };
        let places = Places {
            reads: &[place(to), place(values)],
            writes: &[place(to)],
            params: &[],
            gradients: &[],
            deferred: &[],
            workspace: None,
        };
        self.arena.compute(&[values], &[to], |device| device.launch(&call, &places));
    }

    /// Forgets the gradients of a step that is skipped.
    pub(super) fn drop_divided_gradients(&mut self, stage: &StageProgram) {
        let parts: Slices<Region> =
            stage.buckets.iter().filter_map(Bucket::divided_gradient).collect();
        parts.into_iter().for_each(|part| self.zero(part));
    }

    /// Adds what others carried and nobody does any more to the next step's gradients, by name of the parameter: each
    /// rank to its part.
    pub(super) fn owe_parts(&mut self, totals: &BTreeMap<String, Vec<f32>>) {
        let program = self.program;
        for (at, stage) in program.stages.iter().enumerate() {
            if !stage.divides_gradients() {
                continue;
            }
            let pieces = std::mem::take(&mut self.division.pieces[at]);
            pieces.iter().for_each(|piece| self.owe_part(stage, piece, totals));
            self.division.pieces[at] = pieces;
        }
    }

    fn owe_part(
        &mut self,
        stage: &StageProgram,
        piece: &ParamPlace,
        totals: &BTreeMap<String, Vec<f32>>,
    ) {
        let whole = stage.params.iter().find(|place| place.param == piece.param);
        let total = totals.get(&self.graph.param(piece.param).name);
        if let (Some(whole), Some(total), Some(gradient)) = (whole, total, piece.gradient) {
            let first = (piece.weight.offset - whole.weight.offset).0 as usize / 4;
            let values = self.arena.floats(gradient);
            values
                .iter_mut()
                .zip(total.get(first..).unwrap_or_default())
                .for_each(|(gradient, owed)| *gradient += owed);
        }
    }
}
