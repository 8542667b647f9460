//! Questions to the search: what is given, what is left open, what a plan may need.

use super::codec;
use crate::args::{Forms, Order, PlanArgs, Recompute};
use pipewright_core::cost::Cluster;
use pipewright_core::plan::Communication;
use pipewright_core::predict::search::Encoding;

/// What the search is asked besides what a draft says.
#[derive(Clone, Debug)]
pub(in crate::commands) struct Question {
    /// Processes, exactly.
    pub ranks: Option<u32>,
    /// Copies of the pipeline.
    pub replicas: Option<u32>,
    /// Stages of the pipeline.
    pub stages: Option<u32>,
    /// Micro-batches of a replica's step.
    pub micro_batches: Option<u32>,
    /// Devices at most; none: all of the cluster.
    pub devices: Option<u32>,
    /// The schedule; for `automatic` the best plans by name get an order of their own.
    pub schedule: Option<Order>,
    /// What stages compute again.
    pub recompute: Recompute,
    /// Whether no plan may need more memory than the cluster's devices have.
    pub holds_memory: bool,
    /// How ranks may send, and the way that is fixed: `None` where all of them may be chosen.
    pub encodings: (Vec<Encoding>, Option<Option<usize>>),
    /// What is searched: with `all` layers that devices divide are priced too.
    pub forms: Forms,
    /// Plans to estimate at most.
    pub budget: u64,
}

impl Question {
    /// What the command line asks.
    pub fn of(args: &PlanArgs, cluster: &Cluster) -> Self {
        Self {
            ranks: args.ranks,
            replicas: args.replicas,
            stages: args.stages,
            micro_batches: args.micro_batches,
            devices: args.devices,
            schedule: args.schedule.clone(),
            recompute: args.recompute(),
            holds_memory: args.changes.memory.is_some(),
            // Lossy codecs change what is trained: unless asked for they are judged, not chosen.
            encodings: codec::searched(&args.communication, cluster),
            forms: args.forms,
            budget: args.budget,
        }
    }

    /// Everything open; ranks send as `communication` says.
    pub fn open(communication: &Communication, budget: u64) -> Self {
        Self {
            ranks: None,
            replicas: None,
            stages: None,
            micro_batches: None,
            devices: None,
            schedule: None,
            recompute: Recompute::None,
            holds_memory: false,
            encodings: codec::fixed_way(communication),
            forms: Forms::Runnable,
            budget,
        }
    }
}
