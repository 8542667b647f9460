//! Ranks on GPUs.

use crate::args::{AlgorithmsKind, CudaArgs, LayoutKind, Switch};
use crate::device::cuda::kernels::ImageOrder;
use crate::device::cuda::{Driver, Engine, Gpu, GraphReplay, Marks, SharedStreams};
use crate::device::{DeviceError, DevicePtr};
use cudarc::driver::CudaStream;
use pipewright_core::plan::Program;
use std::env;
use std::sync::Arc;

/// What launchers tell a process of its number among those of its host.
const LOCAL_RANKS: [&str; 4] =
    ["OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_LOCAL_RANK", "SLURM_LOCALID"];

/// The GPU of rank `rank`: those of a host take one after the other, and share them where there are more
/// ranks than GPUs. As threads, all ranks are of this host.
pub fn gpu_of(gpus: &[Gpu], rank: u32, are_processes: bool) -> &Gpu {
    let told = LOCAL_RANKS.iter().find_map(|name| env::var(name).ok()?.parse().ok());
    let local = told.filter(|_| are_processes).unwrap_or(rank);
    &gpus[local as usize % gpus.len()]
}

/// A rank's GPU.
pub struct Opened {
    /// Its arena there.
    pub engine: Engine<GraphReplay<Driver>>,
    /// Which one it is.
    pub gpu: Gpu,
    /// What computes.
    pub stream: Arc<CudaStream>,
    /// The same, for messages to ranks that share the GPU.
    pub shared: SharedStreams,
    /// Where the arena begins.
    pub arena: DevicePtr,
    /// What its queues of work know each other by.
    pub marks: Marks,
}

/// Opens the GPU of a rank, with room for its tensors.
///
/// # Errors
/// When the GPU has not so much memory, or the driver refuses.
pub fn open(
    gpus: &[Gpu],
    rank: u32,
    are_processes: bool,
    program: &Program,
    asked: CudaArgs,
) -> Result<Opened, DeviceError> {
    let stages: Vec<String> = program.stages.iter().map(|s| s.stage.0.to_string()).collect();
    let what = format!("the tensors of rank {rank} (stage {})", stages.join(", "));
    let gpu = gpu_of(gpus, rank, are_processes).clone();
    let driver = match asked.algorithms.cuda_algorithms {
        AlgorithmsKind::Expected => Driver::open(&gpu)?,
        AlgorithmsKind::Measured => Driver::open(&gpu)?.by_time()?,
    };
    let (stream, marks, shared) = (driver.stream(), driver.marks(), driver.shared());
    let recorder = match asked.cuda_graphs {
        Switch::On => GraphReplay::new(driver),
        Switch::Off => GraphReplay::without_graphs(driver, "--cuda-graphs off"),
    };
    let mut engine = Engine::new(recorder, program.tensors(), &what)?;
    if asked.cuda_fusion == Switch::Off {
        engine = engine.without_fusion();
    }
    engine = match asked.cuda_layout {
        LayoutKind::Auto => engine,
        LayoutKind::Nchw => engine.with_images(ImageOrder::ChannelsFirst),
        LayoutKind::Nhwc => engine.with_images(ImageOrder::ChannelsLast),
    };
    Ok(Opened { arena: engine.arena(), engine, gpu, stream, shared, marks })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::cuda::Architecture;
    use pipewright_core::units::Bytes;

    #[test]
    fn ranks_of_a_host_take_turns() {
        let gpu = |index| Gpu {
            index,
            name: "H200".into(),
            architecture: Architecture { major: 9, minor: 0 },
            memory: Bytes(1),
            multiprocessors: 132,
            shared_bytes: 227 << 10,
            memory_bytes_per_sec: 4.8e12,
            fp8: true,
            unusable: None,
        };
        let gpus = [gpu(0), gpu(1)];
        let of = |rank| gpu_of(&gpus, rank, false).index;
        assert_eq!([of(0), of(1), of(2), of(3)], [0, 1, 0, 1]);
    }
}
