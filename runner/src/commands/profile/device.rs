//! The device that is measured.

use super::super::devices::usable_gpus;
use super::super::gpu::{gpu_of, open};
use crate::args::{AlgorithmsArgs, CudaArgs, DeviceKind};
use crate::device::cuda::{Driver, Engine, Gpu};
use crate::device::{Accelerator, DeviceError};
use crate::failure::{Code, Failure};
use pipewright_core::cost::calibrate::{MessageSample, link};
use pipewright_core::cost::{Cluster, Halves, Link};
use pipewright_core::plan::Program;
use pipewright_core::units::{Bytes, Nanos};
use std::time::Instant;

/// Bytes of a copy.
const SIZES: [usize; 5] = [64, 64 << 10, 1 << 20, 8 << 20, 64 << 20];
/// Copies of a size; the median counts.
const ROUNDS: usize = 9;

/// What computes: this machine's processors, or its GPUs.
pub(super) struct Device {
    gpus: Vec<Gpu>,
    are_processes: bool,
    cuda: CudaArgs,
}

impl Device {
    /// # Errors
    /// Where there is nothing to measure, or no GPU.
    pub fn new(
        kind: DeviceKind,
        algorithms: AlgorithmsArgs,
        are_processes: bool,
    ) -> Result<Self, Failure> {
        let gpus = match kind {
            DeviceKind::Cpu => vec![],
            DeviceKind::Cuda => usable_gpus()?,
            DeviceKind::Model => {
                let why = "--device model: its times are those of the plan, and there is nothing \
                           to measure; measure cpu or cuda";
                return Err(Failure::usage(why));
            }
        };
        // With graphs and chains, as runs are.
        let cuda = CudaArgs { algorithms, ..CudaArgs::default() };
        Ok(Self { gpus, are_processes, cuda })
    }

    /// How it computes with what is stored in two bytes.
    pub fn halves(&self) -> Halves {
        match self.gpus.is_empty() {
            true => Halves::Unpacked,
            false => Halves::AsTheyLie,
        }
    }

    /// Ranks that each have one of their own.
    pub fn count(&self) -> u32 {
        match self.gpus.len() as u32 {
            0 => std::thread::available_parallelism().map_or(1, usize::from) as u32,
            gpus => gpus,
        }
    }

    /// A rank's GPU, with room for the tensors of `program`; none where processors compute.
    pub fn open(
        &self,
        rank: u32,
        program: &Program,
    ) -> Result<Option<Box<dyn Accelerator>>, Failure> {
        if self.gpus.is_empty() {
            return Ok(None);
        }
        let opened = open(&self.gpus, rank, self.are_processes, program, self.cuda);
        let opened = opened.map_err(failure)?;
        Ok(Some(Box::new(opened.engine)))
    }

    /// Says of a cluster what its GPUs are, as seen from the first rank; messages between ranks are
    /// copied from one device and to another one.
    pub fn describe(&self, rank: u32, cluster: &mut Cluster) -> Result<(), Failure> {
        if self.gpus.is_empty() || rank > 0 {
            return Ok(());
        }
        let gpu = gpu_of(&self.gpus, rank, self.are_processes);
        let count = self.gpus.len() as u32;
        cluster.device.name = gpu.name.clone();
        // Ranks that share a GPU share its memory.
        let sharing = cluster.ranks_per_node.div_ceil(count).max(1);
        cluster.device.memory = Bytes(gpu.memory.0 / u64::from(sharing));
        if gpu.memory_bytes_per_sec > 0.0 {
            cluster.device.memory_bytes_per_sec = gpu.memory_bytes_per_sec;
        }
        cluster.devices_per_node = count;
        let copies = copies(gpu).map_err(failure)?;
        for link in [&mut cluster.local, &mut cluster.network] {
            *link = through(link, &copies);
        }
        let sums = [&mut cluster.collectives, &mut cluster.network_collectives];
        for link in sums.into_iter().flatten() {
            *link = through(link, &copies);
        }
        Ok(())
    }
}

/// A message that is copied before it travels or afterwards.
fn through(link: &Link, copies: &Link) -> Link {
    Link {
        latency_ns: link.latency_ns + copies.latency_ns,
        bytes_per_sec: 1.0 / (1.0 / link.bytes_per_sec + 1.0 / copies.bytes_per_sec),
    }
}

/// From the device and back to it.
fn copies(gpu: &Gpu) -> Result<Link, DeviceError> {
    let largest = SIZES[SIZES.len() - 1];
    let mut engine =
        Engine::new(Driver::open(gpu)?, Bytes(largest as u64), "copies to be measured")?;
    let mut bytes = vec![0; largest];
    let mut samples = vec![];
    for size in SIZES {
        let mut times = vec![];
        for _ in 0..ROUNDS {
            let begin = Instant::now();
            engine.download(0, &mut bytes[..size])?;
            engine.upload(0, &bytes[..size])?;
            // A short copy back: uploads are over only then.
            engine.download(0, &mut bytes[..1])?;
            times.push(begin.elapsed().as_nanos() as u64);
        }
        times.sort_unstable();
        samples.push(MessageSample { bytes: Bytes(size as u64), time: Nanos(times[ROUNDS / 2]) });
    }
    let found = link(&samples).map_err(|error| DeviceError::Failed {
        device: gpu.name.clone(),
        what: "measure copies".into(),
        why: error.to_string(),
    })?;
    Ok(found.0)
}

fn failure(error: DeviceError) -> Failure {
    Failure::new(Code::Hardware, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_come_on_top() {
        let wire = Link { latency_ns: Nanos(1000), bytes_per_sec: 10e9 };
        let copies = Link { latency_ns: Nanos(500), bytes_per_sec: 10e9 };
        let both = through(&wire, &copies);
        assert_eq!(both.time(Bytes(10_000)), wire.time(Bytes(10_000)) + copies.time(Bytes(10_000)));
    }

    #[test]
    fn a_model_has_nothing_to_measure() {
        let refused = Device::new(DeviceKind::Model, AlgorithmsArgs::default(), false)
            .map(|_| ())
            .unwrap_err();
        assert!(refused.message.contains("measure cpu or cuda"), "{}", refused.message);
    }
}
