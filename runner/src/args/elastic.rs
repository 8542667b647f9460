//! `runner elastic`, `runner join`, `runner leave`.

use clap::{Args, ValueEnum};
use pipewright_core::elastic::BatchRule;
use pipewright_core::plan::STEPS_MAX;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Where a job's members meet.
#[derive(Clone, Debug, Args)]
pub struct MeetingArgs {
    /// The job; the only one that runs here, where there is one.
    #[arg(long, value_name = "NAME")]
    pub job: Option<String>,
    /// Members meet in this etcd, http://HOST:2379 (several with commas), and may be on several
    /// machines; without it in the supervisor, on its machine.
    #[arg(long, value_name = "URL")]
    #[cfg_attr(not(feature = "etcd"), arg(hide = true))]
    pub etcd: Option<String>,
}

/// What is done when a rank is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnLossKind {
    /// What there is that loses least.
    Auto,
    /// Start anew.
    Relaunch,
    /// Go on without it.
    Shrink,
}

/// `runner elastic`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: train on 4 ranks that may die, with room for 2 replicas more when somebody brings it
  runner elastic plan.json --out run --policy min-max:2:8 -- --threads 1
  runner join --slots 4        in another shell
A job goes on where its folder says it was. Exit codes: 0 done, or stopped by SIGTERM with its state
kept; 3 also when the policy ends the job; 5 ranks were lost again and again.")]
pub struct ElasticArgs {
    /// The plan.
    pub plan: PathBuf,
    /// The run's folder; on several machines one that all of them share.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Replace an earlier run in that folder instead of going on with it.
    #[arg(long)]
    pub overwrite: bool,
    /// Where members meet. Default: the job is called as the folder.
    #[command(flatten)]
    pub meeting: MeetingArgs,
    /// Ranks that this machine runs; default: as many as the plan has. With 0 the job waits for others.
    #[arg(long, conflicts_with = "hosts")]
    pub slots: Option<u32>,
    /// Hosts that are members from the beginning, with their slots: host1:2,host2:2.
    #[arg(long, value_delimiter = ',', value_name = "HOST:SLOTS")]
    pub hosts: Vec<String>,
    /// When to run with what there is, to wait or to end: any, min-max:2:8, fixed-size:4, fail-stop:4,
    /// deadline:48h, progress:0.8, batch-range:64:512 or a script, FILE.rhai; several with +.
    #[arg(long, value_name = "POLICY", default_value = "any")]
    pub policy: String,
    /// Steps to train, in place of the plan's; of the plan's mini-batch, whatever it becomes.
    #[arg(long, value_parser = clap::value_parser!(u64).range(..=STEPS_MAX))]
    pub steps: Option<u64>,
    /// What another number of replicas does to the mini-batch. keep: nothing, each has another share of
    /// it. scale:linear, scale:sqrt, scale:none: a replica's share stays, the mini-batch becomes k times
    /// as large, and the learning rate k times, √k times, or not at all.
    #[arg(long, value_name = "RULE", default_value_t = BatchRule::Keep)]
    pub mini_batch: BatchRule,
    /// Save a checkpoint on the disk every so many steps; the last state is also in memory.
    #[arg(long, value_name = "STEPS", default_value_t = 100)]
    pub save_every: u64,
    /// Keep the state in memory every so many steps: with more, less time for it and so many steps to
    /// train again after a loss.
    #[arg(long, value_name = "STEPS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub state_every: u64,
    /// Compare the weights of replicas every so many steps, and before a checkpoint goes to the disk;
    /// 0: never. Where they differ the job goes on from the last state in which they did not.
    #[arg(long, value_name = "STEPS", default_value_t = 0)]
    pub check_replicas: u64,
    /// Newest checkpoints that are kept on the disk.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    pub keep: u32,
    /// What is done when a rank is lost: start all ranks anew (relaunch), or have the survivors go on
    /// without it (shrink; Open MPI 5). auto: survivors go on where starting anew would bring no more ranks.
    #[arg(long, value_enum, value_name = "WAY", default_value = "auto")]
    pub on_loss: OnLossKind,
    /// Train with ranks that make no whole replica too: the work of those that are missing goes to their
    /// data-parallel peers, where that is predicted to be faster than fewer whole replicas.
    #[arg(long)]
    pub reroute: bool,
    /// Changes of members count when none came for so many seconds.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub settle: Duration,
    /// A rank is dead when nothing was heard of it for so many seconds.
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub silent_after: Duration,
    /// Ranks hang when none came to another operation for so many seconds.
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = seconds)]
    pub hung_after: Duration,
    /// More of `runner run`'s options for the ranks, such as --threads 1.
    #[arg(last = true, value_name = "RUN OPTIONS")]
    pub options: Vec<OsString>,
}

/// `runner join`.
#[derive(Debug, Args)]
pub struct JoinArgs {
    /// Where members meet.
    #[command(flatten)]
    pub meeting: MeetingArgs,
    /// This member's name; default: the machine's with the number of this process.
    #[arg(long)]
    pub name: Option<String>,
    /// Ranks that it can run.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub slots: u32,
    /// The machine as mpirun knows it; default: this one.
    #[arg(long)]
    pub host: Option<String>,
}

/// `runner leave`.
#[derive(Debug, Args)]
pub struct LeaveArgs {
    /// The member.
    pub name: String,
    /// Where members meet.
    #[command(flatten)]
    pub meeting: MeetingArgs,
}

/// A time in seconds, such as 5 or 0.2.
fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|_| "a number of seconds is wanted".to_string())?;
    match Duration::try_from_secs_f64(number) {
        Ok(time) if (0.01..=86_400.0).contains(&number) => Ok(time),
        _ => Err("0.01 to 86400 seconds".into()),
    }
}
