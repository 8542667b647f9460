//! Runs plans: on threads of one process or on MPI ranks, on the CPU.
//!
//! [`execute`] interprets the programs that `pipewright_core` lowers plans to, over a
//! [`transport`], on a [`device`], with samples from [`data`]; [`train`] is the loop around it.
//! [`commands`] is the command line. Modules stand on floors, which `tests/tidy` lists.

// Several processes share a standard error: see `notes`.
#![deny(clippy::print_stderr)]

#[macro_use]
pub mod notes;

pub mod args;
pub mod checkpoint;
pub mod commands;
pub mod data;
pub mod device;
pub mod elastic;
pub mod exchange;
pub mod execute;
pub mod failure;
pub mod fence;
pub mod files;
mod hash;
pub mod init;
pub mod lock;
pub mod onnx;
pub mod report;
pub mod signals;
pub mod tensor_file;
pub mod train;
pub mod transport;
pub mod weights;
