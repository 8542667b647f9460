//! A device that is this processor again, with memory of its own: bytes that nobody copied are not there.

use pipewright_core::plan::Region;
use pipewright_core::units::Bytes;
use pipewright_runner::device::cpu::{
    Call, Operands, Parameter, Rule, Update, bf16, launch, squares,
};
use pipewright_runner::device::{
    Accelerator, Coder, Conversion, DeviceError, ParameterPlaces, Places,
};
use pipewright_runner::execute::Arena;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The device.
pub struct Distant {
    memory: Arena,
    copied: Arc<AtomicU64>,
    kept: Vec<Vec<f32>>,
    /// Fails when so many computations are done.
    pub fails_after: Option<u64>,
}

impl Distant {
    /// With so much memory; counts bytes that are copied.
    pub fn new(bytes: Bytes, copied: Arc<AtomicU64>) -> Self {
        Self { memory: Arena::new(bytes), copied, kept: vec![], fails_after: None }
    }

    fn region(offset: u64, bytes: usize) -> Region {
        Region { offset: Bytes(offset), bytes: Bytes(bytes as u64) }
    }
}

impl Accelerator for Distant {
    fn upload(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.copied.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.memory.raw_mut(Self::region(offset, bytes.len())).copy_from_slice(bytes);
        Ok(())
    }

    fn download(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.copied.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        bytes.copy_from_slice(self.memory.raw(Self::region(offset, bytes.len())));
        Ok(())
    }

    fn launch(&mut self, call: &Call, places: &Places) -> Result<(), DeviceError> {
        if let Some(left) = &mut self.fails_after {
            *left = left.checked_sub(1).ok_or_else(|| DeviceError::Failed {
                device: "distant:0".into(),
                what: call.op.name().into(),
                why: "it is meant to".into(),
            })?;
        }
        let lists = [places.writes, places.params, places.gradients, places.deferred];
        let written = lists.into_iter().flatten().chain(&places.workspace).copied();
        let (reads, mut all) = self.memory.views(places.reads.iter().copied(), written);
        let mut rest = &mut all[..];
        let [writes, params, gradients, deferred] = lists.map(|list| {
            let (own, others) = std::mem::take(&mut rest).split_at_mut(list.len());
            rest = others;
            own
        });
        let workspace = rest.first_mut().map_or(&mut [][..], |slice| &mut **slice);
        let operands = Operands { reads: &reads, writes, params, gradients, deferred, workspace };
        launch(call, operands);
        Ok(())
    }

    fn update(
        &mut self,
        rule: &Rule,
        update: &Update,
        parameters: &[ParameterPlaces],
    ) -> Result<(), DeviceError> {
        for ParameterPlaces { weight, gradient, state, axes } in parameters {
            let written = [*weight, *gradient].into_iter().chain(state.iter().flatten().copied());
            let (_, mut slices) = self.memory.views([].into_iter(), written);
            let [weight, gradient, state @ ..] = &mut slices[..] else { unreachable!() };
            rule.update(update, Parameter { weight, gradient, state, axes: *axes });
        }
        Ok(())
    }

    fn convert(
        &mut self,
        from: Region,
        into: Region,
        conversion: Conversion,
    ) -> Result<(), DeviceError> {
        self.memory.convert(from, into, |from, into| match conversion {
            Conversion::Copy => into.copy_from_slice(from),
            Conversion::Unpack => bf16::unpack(1, from, into),
            Conversion::Pack => bf16::pack(1, from, into),
        });
        Ok(())
    }

    fn zero(&mut self, region: Region) -> Result<(), DeviceError> {
        self.memory.floats(region).fill(0.0);
        Ok(())
    }

    fn squares(&mut self, regions: &[Region], sums: &mut [f64]) -> Result<(), DeviceError> {
        for (region, sum) in regions.iter().zip(sums) {
            *sum = squares(1, self.memory.floats(*region));
        }
        Ok(())
    }

    fn keep(&mut self, regions: &[Region]) -> Result<(), DeviceError> {
        self.kept = regions.iter().map(|region| self.memory.floats(*region).to_vec()).collect();
        Ok(())
    }

    fn restore(&mut self, regions: &[Region]) -> Result<(), DeviceError> {
        for (region, kept) in regions.iter().zip(&self.kept) {
            self.memory.floats(*region).copy_from_slice(kept);
        }
        Ok(())
    }

    fn mark(&mut self, _: usize) -> Result<(), DeviceError> {
        Ok(())
    }

    fn coder(&mut self) -> Result<Option<Box<dyn Coder>>, DeviceError> {
        Ok(None)
    }
}
