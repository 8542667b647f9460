//! What launches are handed to.

use super::kernels::{ConvolutionStep, DevicePtr, Launch, ProductStep, Step, Storage};
use crate::device::DeviceError;

/// A device's memory, and a queue of work on it: what is asked for is done in order. The driver is one;
/// tests have another that needs no GPU.
pub trait Backend: Send {
    /// For messages.
    fn name(&self) -> &str;

    /// Zeroed memory, which lives as long as this does; `what` it is for, for messages.
    ///
    /// # Errors
    /// When there is not so much.
    fn allocate(&mut self, bytes: u64, what: &str) -> Result<DevicePtr, DeviceError>;

    /// Writes bytes, which are the caller's again when it returns.
    ///
    /// # Errors
    /// When the device has failed.
    fn upload(&mut self, to: DevicePtr, bytes: &[u8]) -> Result<(), DeviceError>;

    /// Reads bytes, when all that was asked for before is done.
    ///
    /// # Errors
    /// When the device has failed, at this or at something before.
    fn download(&mut self, from: DevicePtr, bytes: &mut [u8]) -> Result<(), DeviceError>;

    /// Copies within the device's memory.
    ///
    /// # Errors
    /// When the device has failed.
    fn copy(&mut self, from: DevicePtr, to: DevicePtr, bytes: u64) -> Result<(), DeviceError>;

    /// Sets bytes to zero.
    ///
    /// # Errors
    /// When the device has failed.
    fn zero(&mut self, at: DevicePtr, bytes: u64) -> Result<(), DeviceError>;

    /// A kernel of ours.
    ///
    /// # Errors
    /// When the device has failed, or the kernel cannot be compiled.
    fn launch(&mut self, launch: &Launch) -> Result<(), DeviceError>;

    /// A product of matrices.
    ///
    /// # Errors
    /// When the device has failed.
    fn product(&mut self, product: &ProductStep, storage: Storage) -> Result<(), DeviceError>;

    /// A convolution.
    ///
    /// # Errors
    /// When the device has failed.
    fn convolution(
        &mut self,
        convolution: &ConvolutionStep,
        storage: Storage,
    ) -> Result<(), DeviceError>;
}

/// Has a backend do a step.
///
/// # Errors
/// When the device has failed.
pub fn perform<B: Backend + ?Sized>(
    backend: &mut B,
    step: &Step,
    storage: Storage,
) -> Result<(), DeviceError> {
    match step {
        Step::Kernel(launch) => backend.launch(launch),
        Step::Product(product) => backend.product(product, storage),
        Step::Convolution(convolution) => backend.convolution(convolution, storage),
    }
}
