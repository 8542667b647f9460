//! Checkpoints: what a run needs to go on as if it had never stopped.
//!
//! ```text
//! OUT/checkpoints/step-100/manifest.json            what this is; written last
//!                          stage-000.safetensors    parameters by name, the optimizer's state as
//!                          stage-001.safetensors    `NAME@momentum_buffer`
//! ```
//!
//! Where error feedback carries something from step to step, each rank has a file of it besides,
//! `residuals-rank-003.safetensors`.
//!
//! Where several ranks hold a stage, the first saves it; the others save only running statistics of
//! their own, `stage-000-rank-002.safetensors`. Schedules that keep two versions of the weights
//! save the older as `NAME@version-1`.
//!
//! Samples, dropout and the learning rate follow from the seed and from how many steps and samples
//! were trained, so tensors and these two numbers are all there is to keep. Tensors are found by name:
//! another division into stages, another schedule or number of ranks goes on from the same files.
//!
//! How one comes to be, so that a crash at any moment leaves the one before as it was:
//! 1. rank 0 makes `.step-100.part`;
//! 2. every rank writes its stages there and waits for the disk;
//! 3. rank 0 writes the manifest with a sum of itself, waits for the disk, and renames the folder: only now does the
//!    checkpoint exist;
//! 4. rank 0 removes older ones, all but the newest few.
//!
//! After steps 1 and 3 all ranks agree whether it worked. If not, each has removed what it wrote.

mod agree;
mod copy;
mod error;
mod error_feedback;
mod folder;
mod load;
mod manifest;
mod save;
mod seal;
mod spread;

pub use copy::keep_newest;
pub use error::CheckpointError;
pub use folder::{Candidate, Resume, forget_after, has_checkpoints, name, newest, remove_all};
pub use load::{Begun, load, verify};
pub use manifest::{
    ChoiceRecord, FileRecord, Identity, Manifest, ModelRecord, SplitRecord, VERSION,
};
pub use save::{Saver, Steps, save};
pub use spread::{Hosts, bring_together};

/// The folder of a run's checkpoints, in the run's.
pub const FOLDER: &str = "checkpoints";

/// The file that makes a folder a checkpoint.
pub const MANIFEST: &str = "manifest.json";

/// The name of the newest checkpoint of a run's own folder.
pub const LATEST: &str = "latest";
