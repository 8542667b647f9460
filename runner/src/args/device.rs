//! Devices that compute, and ways between their ranks.

use clap::ValueEnum;
use pipewright_core::cost::Halves;
use pipewright_core::plan::Plan;

/// How ranks talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TransportKind {
    /// MPI under mpirun, threads otherwise; GPUs by NCCL where each rank has one of its own.
    Auto,
    /// MPI processes; messages between GPUs go through their hosts.
    Mpi,
    /// Threads of this process; messages between GPUs go through its memory.
    Local,
    /// As `auto`, but an error where NCCL cannot be used.
    Nccl,
    /// As `auto`, but ranks share one GPU and read each other's memory there; an error where they do not.
    Ipc,
}

/// What computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DeviceKind {
    /// This machine's processors.
    Cpu,
    /// NVIDIA's GPUs.
    Cuda,
    /// Nothing: the times of the plan's costs are spent, messages are real. Trains nothing; shows
    /// how a plan would run on a cluster that is not there.
    Model,
}

impl DeviceKind {
    /// How it computes with what is stored in two bytes.
    pub fn halves(self, plan: &Plan) -> Halves {
        match self {
            Self::Cpu => Halves::Unpacked,
            Self::Cuda => Halves::AsTheyLie,
            Self::Model => plan.cluster.device.halves(),
        }
    }
}
