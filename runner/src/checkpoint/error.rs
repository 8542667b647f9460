//! Errors of saving, reading and continuing a checkpoint.

use super::manifest::VERSION;
use crate::device::DeviceError;
use crate::fence::Fenced;
use crate::tensor_file::TensorFileError;
use std::path::PathBuf;
use thiserror::Error;

/// What is wrong with a checkpoint.
#[derive(Debug, Error)]
pub enum CheckpointError {
    /// A file of tensors could not be read or written.
    #[error(transparent)]
    Tensors(#[from] TensorFileError),
    /// A rank of a generation that was given up.
    #[error("{0}")]
    Fenced(#[from] Fenced),
    /// The device does not give its tensors.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Another file or a folder could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A manifest that is none.
    #[error("{}: damaged: {why}", path.display())]
    Manifest {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Made by a newer Pipewright.
    #[error(
        "{}: the checkpoint has version {found}, this program reads up to {VERSION}; use a newer \
         one", path.display()
    )]
    Version {
        /// The manifest.
        path: PathBuf,
        /// The version in it.
        found: u64,
    },
    /// A file that is not what was written.
    #[error("{}: damaged: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// How it differs from what the manifest says.
        why: String,
    },
    /// A tensor that the manifest does not know.
    #[error("{}: no tensor `{name}`", path.display())]
    Missing {
        /// The checkpoint.
        path: PathBuf,
        /// The tensor.
        name: String,
    },
    /// A checkpoint of something else.
    #[error("{}: {what} is {found} in the checkpoint, {wanted} in the plan{advice}", path.display())]
    Other {
        /// The checkpoint.
        path: PathBuf,
        /// What differs.
        what: String,
        /// What the checkpoint has.
        found: String,
        /// What the plan says.
        wanted: String,
        /// What to do about it.
        advice: &'static str,
    },
    /// No checkpoint where one was named.
    #[error(
        "{}: no checkpoint: it holds neither {} nor folders step-N; `runner run --save-every 0` saves \
         one at the end", path.display(), super::MANIFEST
    )]
    Nowhere {
        /// The folder.
        path: PathBuf,
    },
    /// Nothing is left to fall back to.
    #[error("{}: every checkpoint is damaged; the warnings above say how", path.display())]
    NoneLeft {
        /// The folder.
        path: PathBuf,
    },
    /// Weights that no training can go on from.
    #[error(
        "parameter `{name}` holds {value}: training has diverged; lower the learning rate. \
         The checkpoint before this one is kept"
    )]
    NotFinite {
        /// The parameter.
        name: String,
        /// One of its values.
        value: f32,
    },
    /// A file that rank 0 does not see.
    #[error(
        "{}: written by rank {rank}, not seen by rank 0; the output folder must be one that all \
         machines share", path.display()
    )]
    Invisible {
        /// The file.
        path: PathBuf,
        /// Who wrote it.
        rank: u32,
    },
    /// Checkpoints that only some ranks see.
    #[error(
        "{}: rank 0 does not see the same checkpoints; the output folder must be one that all \
         machines share", path.display()
    )]
    Unseen {
        /// The folder.
        path: PathBuf,
    },
    /// What another rank reported to rank 0.
    #[error("rank {rank}: {why}")]
    OnRank {
        /// Who.
        rank: u32,
        /// Its error.
        why: String,
    },
    /// Rank 0 says what happened.
    #[error("another rank says why")]
    Elsewhere,
}
