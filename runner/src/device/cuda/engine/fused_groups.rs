//! Computations that are done together.

use super::{Engine, Pointers};
use crate::device::cuda::backend::Backend;
use crate::device::cuda::kernels::{Buffers, Computed, Operand, Plan, Storage, fused, is_stored};
use crate::device::{Accelerator, DeviceError, FusedOp, Place};
use smallvec::SmallVec;

/// Whether kernels take all values of a link as they lie.
fn is_even(op: &FusedOp, storage: Storage) -> bool {
    let even = |place: &Place, operand: Operand| {
        place.packed == (storage != Storage::F32 && is_stored(&op.call, operand))
    };
    let reads = op.places.reads.iter().zip((0..).map(Operand::Read));
    let writes = op.places.writes.iter().zip((0..).map(Operand::Write));
    reads.chain(writes).all(|(place, operand)| even(place, operand))
}

impl<B: Backend> Engine<B> {
    /// Together; one by one where a value lies otherwise than kernels take it, which ranks do not ask for.
    pub(super) fn chain(&mut self, ops: &[FusedOp]) -> Result<(), DeviceError> {
        let storage = Storage::from(ops[0].call.precision);
        if !ops.iter().all(|op| is_even(op, storage)) {
            return ops.iter().try_for_each(|op| self.launch(&op.call, &op.places));
        }
        let params = ops.iter().map(|op| self.parameters((&op.call, storage), op.places.params));
        let params: SmallVec<[Pointers; 4]> = params.collect::<Result<_, _>>()?;
        let mut all = self.fused(ops, &params, storage);
        if all.scratch > self.scratch.1 {
            self.need(all.scratch)?;
            all = self.fused(ops, &params, storage);
        }
        self.run(&all.steps, storage)
    }

    fn fused(&self, ops: &[FusedOp], params: &[Pointers], storage: Storage) -> Plan {
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
                    gradients,
                    deferred,
                    scratch: self.scratch.0,
                    most_shared: self.backend.most_shared(),
                    matrix_units: self.backend.matrix_units(),
                    step: self.step.0,
                };
                Computed { call: &ops[i].call, buffers, stored: ops[i].stored }
            })
            .collect();
        fused(&chain, storage)
    }
}
