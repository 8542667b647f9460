//! A line of `run.jsonl`: written by the runner's supervisor, read by [`super::Life::read`].
//!
//! One type for both, so that what is written can be read. An event of a newer runner is
//! [`Event::Unknown`], and fields that are not known are passed over.

use super::Cause;
use crate::elastic::{Member, Occasion, Verdict};
use serde::{Deserialize, Serialize};

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A supervisor began.
    Started {
        /// The job's name.
        job: String,
        /// The plan's file.
        plan: String,
        /// The policy as text.
        policy: String,
        /// Steps to train, of the mini-batch that the job was planned with.
        steps: u64,
        /// Samples of such a step.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mini_batch: Option<u64>,
        /// Samples of an epoch, where somebody knows.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        samples_epoch: Option<u64>,
    },
    /// Other nodes than before.
    Members {
        /// Those that can run ranks now.
        members: Vec<Member>,
        /// What changed.
        why: Occasion,
    },
    /// The policy was asked.
    Verdict {
        /// On what occasion.
        why: Occasion,
        /// Its answer.
        verdict: Verdict,
    },
    /// Ranks are started.
    Generation {
        /// Its number, from 1.
        generation: u64,
        /// Whose ranks they are.
        members: Vec<Member>,
        /// How many.
        ranks: u32,
        /// Copies of the pipeline.
        replicas: u32,
        /// Parts of a mini-batch in each.
        micro_batches: u32,
        /// Samples of a step.
        mini_batch: u64,
        /// What the learning rate is multiplied by, where the mini-batch is not the planned one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rate_factor: Option<f64>,
        /// Samples that were trained before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        samples: Option<u64>,
        /// Steps that were trained before.
        step: u64,
        /// How it differs from what the plan says: its work is re-routed around ranks that are missing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rerouted: Option<String>,
    },
    /// A step is committed for the first time in a generation.
    Training {
        /// Which generation.
        generation: u64,
        /// Steps that are trained.
        step: u64,
        /// Time since the loss that it recovers from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        recover_ms: Option<u64>,
    },
    /// About once a second while it trains.
    Progress {
        /// Which generation.
        generation: u64,
        /// Steps that are trained.
        step: u64,
    },
    /// A rank says nothing, for longer than is usual and not yet so long that it counts as dead.
    Quiet {
        /// Which generation.
        generation: u64,
        /// Who.
        rank: u32,
        /// For how long.
        ms: u64,
    },
    /// A rank computes for longer than those who do the same, or than was predicted.
    Straggler {
        /// Which generation.
        generation: u64,
        /// Who.
        rank: u32,
        /// Its stages.
        stages: Vec<u32>,
        /// How many times as long as others it takes.
        factor: f64,
        /// Steps that were trained when it was found.
        step: u64,
    },
    /// Replicas do not have the same weights any more; what was trained since they had is forgotten.
    ReplicasDiffer {
        /// Which generation.
        generation: u64,
        /// Whose weights are not those of most replicas, or all of them where none has a majority.
        ranks: Vec<u32>,
        /// A tensor that differs.
        tensor: String,
        /// Steps that are trained again from.
        left: u64,
    },
    /// No rank of a generation is left.
    Ended {
        /// Which.
        generation: u64,
        /// Steps that are trained and kept.
        step: u64,
        /// Why.
        cause: Cause,
        /// Whose end it began with.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rank: Option<u32>,
        /// Time from that until it was known; where the moment is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detect_ms: Option<u64>,
    },
    /// Steps were trained and their state is gone with everybody who had it.
    StateLost {
        /// The newest step that was trained.
        step: u64,
        /// The newest whose state is left.
        left: u64,
    },
    /// The supervisor ends.
    Finished {
        /// Its exit code.
        code: u8,
        /// Why, where it did not come to the end.
        message: String,
    },
    /// What a newer runner tells; nobody writes it.
    #[serde(other)]
    Unknown,
}

/// A line of `run.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
    /// Milliseconds since the supervisor began.
    pub at_ms: u64,
    /// Milliseconds since 1970 by the supervisor's machine, for people.
    pub unix_ms: u64,
}
