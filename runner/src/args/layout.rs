//! The order of images in a device's memory.

use clap::ValueEnum;

/// How images lie on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LayoutKind {
    /// With channels innermost where cuDNN convolves on the tensor cores: any precision but f32.
    Auto,
    /// Samples, channels, rows, columns.
    Nchw,
    /// Channels innermost wherever there are kernels for it.
    Nhwc,
}
