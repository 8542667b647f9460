//! Switches of GPUs.

use super::Switch;
use clap::{Args, ValueEnum};

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

/// How a run uses its GPUs.
#[derive(Args, Clone, Copy, Debug)]
pub struct CudaArgs {
    /// With --device cuda: replay what a step asks of the GPU as one CUDA graph, where it is the same as
    /// in the step before.
    #[arg(long, value_enum, default_value = "on")]
    pub cuda_graphs: Switch,
    /// With --device cuda: do neighbouring operations in one kernel where one only changes what the other
    /// has made, as a ReLU does; results have the same bits.
    #[arg(long, value_enum, default_value = "on")]
    pub cuda_fusion: Switch,
    /// With --device cuda: how images lie there.
    #[arg(long, value_enum, default_value = "auto")]
    pub cuda_layout: LayoutKind,
}

impl Default for CudaArgs {
    fn default() -> Self {
        Self { cuda_graphs: Switch::On, cuda_fusion: Switch::On, cuda_layout: LayoutKind::Auto }
    }
}
