//! A stand-in for a device with wires: it waits for what its stream waits for, and does as asked.

use super::wires::Wired;
use pipewright_core::plan::{Precision, Region};
use pipewright_kernels::{Call, Rule, Update};
use pipewright_runner::data::SampleBuffer;
use pipewright_runner::device::{Accelerator, Coder, DeviceError, ParameterPlaces, Places};

impl<A: Accelerator> Accelerator for Wired<A> {
    fn upload(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.copies(offset, bytes.len());
        self.ready().upload(offset, bytes)
    }

    fn download(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.copies(offset, bytes.len());
        self.ready().download(offset, bytes)
    }

    fn launch(&mut self, call: &Call, places: &Places) -> Result<(), DeviceError> {
        self.ready().launch(call, places)
    }

    fn update(
        &mut self,
        rule: &Rule,
        update: &Update,
        precision: Precision,
        parameters: &[ParameterPlaces],
    ) -> Result<(), DeviceError> {
        self.ready().update(rule, update, precision, parameters)
    }

    fn copy(&mut self, from: Region, into: Region) -> Result<(), DeviceError> {
        self.ready().copy(from, into)
    }

    fn zero(&mut self, region: Region) -> Result<(), DeviceError> {
        self.ready().zero(region)
    }

    fn moment(&mut self) -> Result<(), DeviceError> {
        self.ready().moment()
    }

    fn ages(&mut self, ages: &mut Vec<u64>) -> Result<(), DeviceError> {
        self.ready().ages(ages)
    }

    fn keep(&mut self, region: Region, at: u64) -> Result<(), DeviceError> {
        self.ready().keep(region, at)
    }

    fn kept(&mut self, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.ready().kept(bytes)
    }

    fn stage(
        &mut self,
        place: usize,
        bytes: u64,
        fill: &mut dyn FnMut(&mut Box<dyn SampleBuffer>),
    ) -> Result<(), DeviceError> {
        self.ready().stage(place, bytes, fill)
    }

    fn take(&mut self, place: usize, into: Region) -> Result<(), DeviceError> {
        self.ready().take(place, into)
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn end_batch(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn squares(&mut self, regions: &[Region], sums: &mut [f64]) -> Result<(), DeviceError> {
        self.ready().squares(regions, sums)
    }

    fn save(&mut self, regions: &[Region]) -> Result<(), DeviceError> {
        self.ready().save(regions)
    }

    fn restore(&mut self, regions: &[Region]) -> Result<(), DeviceError> {
        self.ready().restore(regions)
    }

    fn mark(&mut self, number: usize) -> Result<(), DeviceError> {
        self.ready().mark(number)
    }

    /// Known at once: what reads the region next waits.
    fn written(&mut self, region: Region) {
        self.device().written(region);
    }

    fn coder(&mut self) -> Result<Option<Box<dyn Coder>>, DeviceError> {
        self.ready().coder()
    }
}
