//! Codecs of gradients on a GPU: launches on a queue beside that of the computations.

use super::backend::Backend;
use super::kernels::bulk::{decode, decode_scaled, encode, encode_scaled, measure};
use super::kernels::{DevicePtr, Launch};
use crate::device::{Coded, Coder, DeviceError};
use pipewright_core::compress::{CodecKind, Rounding};
use pipewright_core::units::Bytes;

/// A rank's codecs.
pub struct Codecs {
    backend: Box<dyn Backend>,
    arena: DevicePtr,
}

impl Codecs {
    /// On a queue of their own; where the rank's arena begins.
    pub fn new(backend: Box<dyn Backend>, arena: DevicePtr) -> Self {
        Self { backend, arena }
    }

    /// Launches what there is a kernel for, unless there is nothing to do.
    fn launch(
        &mut self,
        codec: CodecKind,
        coded: &Coded,
        launch: Option<Launch>,
    ) -> Result<(), DeviceError> {
        match launch {
            _ if coded.count == 0 => Ok(()),
            Some(launch) => self.backend.launch(&launch),
            None => Err(DeviceError::NoKernel {
                device: self.backend.name().into(),
                what: format!("codec {codec}"),
            }),
        }
    }

    /// The same for what has no settings.
    fn plain(&mut self, coded: &Coded, launch: &Launch) -> Result<(), DeviceError> {
        if coded.count == 0 { Ok(()) } else { self.backend.launch(launch) }
    }
}

impl Coder for Codecs {
    fn knows(&self, codec: CodecKind) -> bool {
        encode(codec, &Coded::default()).is_some()
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
        self.launch(codec, coded, encode(codec, coded))
    }

    fn decode(&mut self, codec: CodecKind, coded: &Coded, add: bool) -> Result<(), DeviceError> {
        self.launch(codec, coded, decode(codec, coded, add))
    }

    fn measure(&mut self, coded: &Coded) -> Result<(), DeviceError> {
        self.plain(coded, &measure(coded))
    }

    fn encode_scaled(&mut self, rounding: Rounding, coded: &Coded) -> Result<(), DeviceError> {
        self.plain(coded, &encode_scaled(rounding, coded))
    }

    fn decode_scaled(&mut self, coded: &Coded) -> Result<(), DeviceError> {
        self.plain(coded, &decode_scaled(coded))
    }

    fn mark(&mut self, number: usize) -> Result<(), DeviceError> {
        self.backend.mark(number)
    }

    fn reached(&mut self, number: usize) -> Result<bool, DeviceError> {
        self.backend.reached(number)
    }
}
