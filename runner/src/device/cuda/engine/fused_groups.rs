//! Computations that are done together.

use super::conversions::{Taken, is_channels_last};
use super::{Engine, Pointers};
use crate::device::cuda::backend::Backend;
use crate::device::cuda::kernels::{Buffers, Computed, DevicePtr, Operand, Plan, Storage, fused};
use crate::device::{Accelerator, DeviceError, FusedOp, Place, Places};
use smallvec::SmallVec;

/// Whether kernels take all values of a link as they lie.
fn is_even(of: Taken, places: &Places) -> bool {
    let reads = places.reads.iter().zip((0..).map(Operand::Read));
    let writes = places.writes.iter().zip((0..).map(Operand::Write));
    reads.chain(writes).all(|(place, operand)| of.is_even(place, operand))
}

impl<B: Backend> Engine<B> {
    /// Together; one by one where a value lies otherwise than kernels take it, which ranks do not ask for.
    pub(super) fn chain(&mut self, ops: &[FusedOp]) -> Result<(), DeviceError> {
        let storage = Storage::from(ops[0].call.precision);
        let places = ops.iter().flat_map(|op| op.places.reads.iter().chain(op.places.writes));
        let channels_last = is_channels_last(places);
        let taken =
            |op: &'_ FusedOp| is_even(Taken { call: &op.call, storage, channels_last }, &op.places);
        if !ops.iter().all(taken) {
            return ops.iter().try_for_each(|op| self.launch(&op.call, &op.places));
        }
        let params = ops.iter().map(|op| {
            self.parameters(Taken { call: &op.call, storage, channels_last }, op.places.params)
        });
        let params: SmallVec<[Pointers; 4]> = params.collect::<Result<_, _>>()?;
        let mut all = self.fused(ops, &params, channels_last);
        if all.scratch > self.scratch.1 {
            self.need(all.scratch)?;
            all = self.fused(ops, &params, channels_last);
        }
        self.run(&all.steps, storage)
    }

    fn fused(&self, ops: &[FusedOp], params: &[Pointers], channels_last: bool) -> Plan {
        let at = |places: &[Place]| -> Pointers {
            places.iter().map(|place| self.place(&place.region)).collect()
        };
        let lists: SmallVec<[[Pointers; 4]; 4]> = ops
            .iter()
            .map(|FusedOp { places, .. }| {
                let (gradients, deferred) =
                    (self.places(places.gradients), self.places(places.deferred));
                [at(places.reads), at(places.writes), gradients, deferred]
            })
            .collect();
        let chain: SmallVec<[Computed; 4]> = (0..ops.len())
            .map(|i| {
                let [reads, writes, gradients, deferred] = &lists[i];
                let buffers = Buffers {
                    reads,
                    writes,
                    params: &params[i],
                    // No product is in a chain.
                    codes: DevicePtr::NULL,
                    gradients,
                    deferred,
                    scratch: self.scratch.0,
                    most_shared: self.backend.most_shared(),
                    matrix_units: self.backend.matrix_units(),
                    step: self.step.0,
                    channels_last,
                };
                Computed { call: &ops[i].call, buffers, stored: ops[i].stored }
            })
            .collect();
        fused(&chain, Storage::from(ops[0].call.precision))
    }
}
