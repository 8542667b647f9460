//! Codecs of gradients on a GPU: launches on a queue beside that of the computations.

use super::backend::Backend;
use super::kernels::bulk::{decode, decode_scaled, encode, encode_scaled, measure, scratch};
use super::kernels::{DevicePtr, Launch};
use crate::device::{Coded, Coder, DeviceError};
use pipewright_core::compress::{CodecKind, Rounding};
use pipewright_core::units::Bytes;

/// A rank's codecs.
pub struct Codecs {
    backend: Box<dyn Backend>,
    arena: DevicePtr,
    /// What is seen of values before they are encoded, one call after the other, and its size.
    scratch: (DevicePtr, u64),
}

impl Codecs {
    /// On a queue of their own; where the rank's arena begins.
    pub fn new(backend: Box<dyn Backend>, arena: DevicePtr) -> Self {
        Self { backend, arena, scratch: (DevicePtr::NULL, 0) }
    }

    /// Room for [`scratch`]. The first step decides: nothing is freed.
    fn scratch(&mut self, coded: &Coded) -> Result<DevicePtr, DeviceError> {
        let bytes = scratch(coded);
        if bytes > self.scratch.1 {
            self.scratch = (self.backend.allocate(bytes, "scratch of codecs")?, bytes);
        }
        Ok(self.scratch.0)
    }

    /// Launches what there is to do.
    fn launch(&mut self, coded: &Coded, launches: &[Launch]) -> Result<(), DeviceError> {
        let there_are = if coded.count == 0 { &[] } else { launches };
        there_are.iter().try_for_each(|launch| self.backend.launch(launch))
    }

    fn none(&self, codec: CodecKind) -> DeviceError {
        DeviceError::NoKernel { device: self.backend.name().into(), what: format!("codec {codec}") }
    }
}

impl Coder for Codecs {
    fn knows(&self, codec: CodecKind) -> bool {
        encode(codec, &Coded::default(), DevicePtr::NULL).is_some()
    }

    fn arena(&self, offset: Bytes) -> DevicePtr {
        self.arena.after(offset.0)
    }

    fn allocate(&mut self, bytes: u64) -> Result<DevicePtr, DeviceError> {
        self.backend.allocate(bytes, "encoded gradients")
    }

    fn upload(&mut self, to: DevicePtr, bytes: &[u8]) -> Result<(), DeviceError> {
        self.backend.upload(to, bytes)
    }

    fn download(&mut self, from: DevicePtr, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.backend.download(from, bytes)
    }

    fn copy(&mut self, from: DevicePtr, to: DevicePtr, bytes: u64) -> Result<(), DeviceError> {
        self.backend.copy(from, to, bytes)
    }

    fn encode(&mut self, codec: CodecKind, coded: &Coded) -> Result<(), DeviceError> {
        let scratch = self.scratch(coded)?;
        let launches = encode(codec, coded, scratch).ok_or_else(|| self.none(codec))?;
        self.launch(coded, &launches)
    }

    fn decode(&mut self, codec: CodecKind, coded: &Coded, add: bool) -> Result<(), DeviceError> {
        let launch = decode(codec, coded, add).ok_or_else(|| self.none(codec))?;
        self.launch(coded, &[launch])
    }

    fn measure(&mut self, coded: &Coded) -> Result<(), DeviceError> {
        let scratch = self.scratch(coded)?;
        self.launch(coded, &measure(coded, scratch))
    }

    fn encode_scaled(&mut self, rounding: Rounding, coded: &Coded) -> Result<(), DeviceError> {
        let scratch = self.scratch(coded)?;
        self.launch(coded, &encode_scaled(rounding, coded, scratch))
    }

    fn decode_scaled(&mut self, coded: &Coded) -> Result<(), DeviceError> {
        self.launch(coded, &[decode_scaled(coded)])
    }

    fn mark(&mut self, number: usize) -> Result<(), DeviceError> {
        self.backend.mark(number)
    }

    fn reached(&mut self, number: usize) -> Result<bool, DeviceError> {
        self.backend.reached(number)
    }
}
