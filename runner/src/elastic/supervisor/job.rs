//! Settings of a supervised job.

use crate::elastic::membership::Node;
use crate::elastic::session::Session;
use pipewright_core::elastic::{BatchRule, ScalePolicy};
use pipewright_core::plan::Plan;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// What is to be kept going, and how.
pub struct Job {
    /// Its name.
    pub name: String,
    /// The plan that the user gave, with the steps to train.
    pub plan: Plan,
    /// Its file.
    pub plan_file: PathBuf,
    /// Samples of an epoch; 0 where nobody knows.
    pub epoch: u64,
    /// The run's folder.
    pub out: PathBuf,
    /// What decides.
    pub policy: Box<dyn ScalePolicy>,
    /// More of `runner run`'s options.
    pub options: Vec<OsString>,
    /// Newest checkpoints that are kept on the disk.
    pub keep: usize,
    /// What the ranks of this machine share.
    pub session: Session,
    /// This machine's name, as members give theirs.
    pub host: String,
    /// What this supervisor brings.
    pub nodes: Vec<Node>,
    /// What stays of the mini-batch when the number of replicas changes.
    pub mini_batch: BatchRule,
    /// What is done about losses.
    pub on_loss: OnLoss,
    /// Whether ranks that make no whole replica take over the work of those that are missing.
    pub reroute: bool,
    /// Times.
    pub times: Times,
}

/// What is done when a rank is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLoss {
    /// All others are ended, and everybody is started anew: any MPI can.
    Relaunch,
    /// Survivors go on without it.
    Shrink,
    /// Survivors go on where starting anew would bring no more ranks than them.
    Auto,
}

/// How long what may take.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Changes of members count when none came for so long.
    pub settle: Duration,
    /// A rank is dead when its heart stood still for so long.
    pub silent: Duration,
    /// Ranks hang when none moved for so long.
    pub hung: Duration,
    /// Ranks that were asked to stop are ended after so long.
    pub stop: Duration,
    /// Survivors of a loss belong to the next generation after so long, or all are started anew.
    pub regroup: Duration,
    /// A policy that waits is asked again so often, and one that runs, too.
    pub ask: Duration,
}

impl Default for Times {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            settle: seconds(1),
            silent: seconds(5),
            hung: seconds(120),
            stop: seconds(7),
            regroup: seconds(3),
            ask: seconds(30),
        }
    }
}
