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

/// How algorithms of NVIDIA's libraries are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AlgorithmsKind {
    /// Those that the library expects to be quickest: they follow from shapes, versions and the GPU alone.
    Expected,
    /// Those that are quickest by their times, measured once and kept in ~/.cache/pipewright/algorithms.
    Measured,
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
    #[command(flatten)]
    pub algorithms: AlgorithmsArgs,
}

/// What products and convolutions are done by.
#[derive(Args, Clone, Copy, Debug)]
pub struct AlgorithmsArgs {
    /// With --device cuda: which algorithms of cuBLASLt and cuDNN products and convolutions take.
    #[arg(long, value_enum, default_value = "expected")]
    pub cuda_algorithms: AlgorithmsKind,
}

impl Default for CudaArgs {
    fn default() -> Self {
        let (cuda_graphs, cuda_fusion, cuda_layout) = (Switch::On, Switch::On, LayoutKind::Auto);
        Self { cuda_graphs, cuda_fusion, cuda_layout, algorithms: AlgorithmsArgs::default() }
    }
}

impl Default for AlgorithmsArgs {
    fn default() -> Self {
        Self { cuda_algorithms: AlgorithmsKind::Expected }
    }
}
