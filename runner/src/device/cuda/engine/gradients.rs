//! Reductions over all gradients of a rank, and copies for steps that are undone.

use super::Engine;
use crate::device::DeviceError;
use crate::device::cuda::backend::Backend;
use crate::device::cuda::kernels::DevicePtr;
use crate::device::cuda::kernels::bulk::{
    Tables, Tensor, chunk_squares, chunks, tensor_squares, tensors,
};
use pipewright_core::plan::Region;
use std::collections::BTreeMap;

/// What stays of it from step to step.
#[derive(Default)]
pub(super) struct Gradients {
    /// By the places of the regions that are looked at together.
    squares: BTreeMap<Vec<u64>, Squares>,
    /// Copies of regions, and room for them in bytes.
    kept: (DevicePtr, u64),
}

/// Regions that are looked at together, on the device.
#[derive(Clone, Copy)]
struct Squares {
    tables: Tables,
    scratch: DevicePtr,
    totals: DevicePtr,
}

impl<B: Backend> Engine<B> {
    /// See [`Accelerator::squares`](crate::device::Accelerator::squares).
    pub(super) fn sums_of_squares(
        &mut self,
        regions: &[Region],
        sums: &mut [f64],
    ) -> Result<(), DeviceError> {
        if regions.is_empty() {
            return Ok(());
        }
        let Squares { tables, scratch, totals } = self.squares_of(regions)?;
        self.backend.launch(&chunk_squares(&tables, scratch))?;
        self.backend.launch(&tensor_squares(&tables, scratch, totals))?;
        self.backend.download(totals, bytemuck::cast_slice_mut(sums))
    }

    /// The tables of regions, made when they are first asked for.
    fn squares_of(&mut self, regions: &[Region]) -> Result<Squares, DeviceError> {
        const WHAT: &str = "tables of gradients";
        let key: Vec<u64> = regions.iter().map(|region| region.offset.0).collect();
        if let Some(squares) = self.gradients.squares.get(&key) {
            return Ok(*squares);
        }
        let tensor = |region: &Region| Tensor {
            gradient: self.place(region),
            count: region.bytes.0 / 4,
            ..Tensor::default()
        };
        let list: Vec<Tensor> = regions.iter().map(tensor).collect();
        let (of_chunks, chunk_count) = chunks(&list);
        let tables = Tables {
            tensors: self.put(&tensors(&list), WHAT)?,
            tensor_count: list.len() as u32,
            chunks: self.put(&of_chunks, WHAT)?,
            chunk_count,
            ..Tables::default()
        };
        let scratch = self.backend.allocate(16 * u64::from(chunk_count), WHAT)?;
        let totals = self.backend.allocate(8 * list.len() as u64, WHAT)?;
        let squares = Squares { tables, scratch, totals };
        self.gradients.squares.insert(key, squares);
        Ok(squares)
    }

    /// Copies between each region and the place where a copy of it is kept; `way` tells source and
    /// destination of the two.
    pub(super) fn copy_kept(
        &mut self,
        regions: &[Region],
        way: impl Fn(DevicePtr, DevicePtr) -> (DevicePtr, DevicePtr),
    ) -> Result<(), DeviceError> {
        let bytes = regions.iter().map(|region| region.bytes.0).sum();
        if bytes > self.gradients.kept.1 {
            let room = self.backend.allocate(bytes, "copies of running statistics")?;
            self.gradients.kept = (room, bytes);
        }
        let mut kept = self.gradients.kept.0;
        for region in regions {
            let (from, to) = way(self.place(region), kept);
            self.backend.copy(from, to, region.bytes.0)?;
            kept = kept.after(region.bytes.0);
        }
        Ok(())
    }
}
