//! Communicators of a plan: one for each pair of ranks that send, and for each group that sums.
//!
//! NCCL has no tags: what two ranks send each other in a communicator arrives in the order in which it was
//! sent, and a call that waits for its peer holds up those behind it. So every edge of the plan has a
//! communicator and a stream of its own for each direction and pair of ranks: neither another edge nor the
//! way back can hold it up. What is left to ask is that both ends take its messages in one order, which is
//! looked at here.
//!
//! Hosts whose ranks sum before they encode ([`Share`]) have two communicators for each group: one adds up,
//! one hands out. The order of either is that in which sums begin, on all ranks; how the two are mixed
//! follows from their program.

use pipewright_core::compress::share::Share;
use pipewright_core::ids::LaneId;
use pipewright_core::plan::{Instruction, Plan, Program};
use pipewright_core::predict::Prediction;
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// Ranks that share a communicator, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// The messages of an edge.
    Edge {
        /// The sender, number 0 of the communicator.
        from: u32,
        /// The receiver, number 1.
        to: u32,
        /// The edge: a message's tag, divided by the number of micro-batches.
        edge: u32,
    },
    /// The collective calls of a group.
    Group {
        /// Its number.
        group: usize,
        /// Its ranks.
        ranks: Vec<u32>,
    },
    /// The part of a host in the encoded sums of a group.
    IntraNode {
        /// The group's number.
        group: usize,
        /// The host's ranks of it.
        ranks: Vec<u32>,
        /// Whether sums are handed out, or added up.
        hands_out: bool,
    },
}

impl Line {
    /// All ranks.
    pub fn ranks(&self) -> Vec<u32> {
        match self {
            Self::Edge { from, to, .. } => vec![*from, *to],
            Self::Group { ranks, .. } | Self::IntraNode { ranks, .. } => ranks.clone(),
        }
    }

    /// For messages of the rank `by`.
    pub fn label(&self, by: u32) -> String {
        match self {
            Self::Edge { from, to, edge } => {
                format!("rank {by}, messages of edge {edge} from rank {from} to rank {to}")
            }
            Self::Group { ranks, .. } => format!("rank {by}, sums of ranks {ranks:?}"),
            Self::IntraNode { ranks, .. } => {
                format!("rank {by}, sums of ranks {ranks:?} inside of their host")
            }
        }
    }
}

/// Messages that overtake each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("lanes {from} and {to} take the messages of edge {edge} in different orders")]
pub struct Disorder {
    /// The sender.
    pub from: u32,
    /// The receiver.
    pub to: u32,
    /// The edge.
    pub edge: u32,
}

/// What ranks send and sum on their devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routes {
    /// In the order in which all ranks set them up.
    pub lines: Vec<Line>,
    /// Micro-batches: a tag is `edge x micro-batches + micro-batch`.
    pub micro_batches: u32,
}

/// By sending lane, receiving lane and edge: tags in order.
type Tags = BTreeMap<(u32, u32, u32), Vec<u32>>;

impl Routes {
    /// Those of a plan; `evaluation` is what its lanes do with test samples, `hosts` has each rank's
    /// host.
    ///
    /// # Errors
    /// When two lanes do not take messages in one order.
    pub fn new(
        plan: &Plan,
        prediction: &Prediction,
        evaluation: &[Vec<Instruction>],
        hosts: &[u32],
    ) -> Result<Self, Disorder> {
        let m = plan.micro_batches;
        let train = prediction.programs.iter().map(|program: &Program| &program.train[..]);
        let edges = edges(train, m)?;
        edges_of_evaluation(evaluation, m)?;
        let mesh = plan.mesh();
        let of_replica = |replica: u32| {
            let rank = move |lane: u32| mesh.rank(LaneId(lane), replica);
            edges.iter().map(move |(from, to, edge)| Line::Edge {
                from: rank(*from),
                to: rank(*to),
                edge: *edge,
            })
        };
        let groups = prediction.groups.iter().enumerate().map(|(group, ranks)| Line::Group {
            group,
            ranks: ranks.iter().map(|rank| rank.0).collect(),
        });
        let lines = (0..mesh.copies()).flat_map(of_replica).chain(groups);
        let lines = lines.chain(intra_node_lines(plan, prediction, hosts));
        Ok(Self { lines: lines.filter(|line| line.ranks().len() > 1).collect(), micro_batches: m })
    }
}

/// The parts of hosts in all groups that sum encoded gradients.
fn intra_node_lines(plan: &Plan, prediction: &Prediction, hosts: &[u32]) -> Vec<Line> {
    let communication = &plan.communication;
    if !communication.hierarchical || !communication.encodes() {
        return vec![];
    }
    let stages = prediction.programs.iter().flat_map(|program| &program.stages);
    let groups: BTreeSet<usize> =
        stages.flat_map(|stage| &stage.buckets).map(|bucket| bucket.group as usize).collect();
    let mut lines = vec![];
    for group in groups {
        let members: Vec<u32> = prediction.groups[group].iter().map(|rank| rank.0).collect();
        for &rank in &members {
            let host = |rank: u32| hosts[rank as usize];
            let intra_node = Share::hierarchical(&members, &[], rank, host).intra_node;
            let Some(ranks) = intra_node.map(|intra_node| intra_node.ranks) else { continue };
            if ranks[0] == rank {
                let line = |hands_out| Line::IntraNode { group, ranks: ranks.clone(), hands_out };
                lines.extend([false, true].map(line));
            }
        }
    }
    lines
}

/// The same order is asked of evaluation, which sends on edges of training.
fn edges_of_evaluation(programs: &[Vec<Instruction>], m: u32) -> Result<(), Disorder> {
    edges(programs.iter().map(|program| &program[..]), m).map(|_| ())
}

/// All edges between lanes on which values travel as they are.
fn edges<'a>(
    programs: impl Iterator<Item = &'a [Instruction]>,
    m: u32,
) -> Result<Vec<(u32, u32, u32)>, Disorder> {
    let (mut sent, mut received) = (Tags::new(), Tags::new());
    for (lane, program) in (0..).zip(programs) {
        for instruction in program {
            match *instruction {
                Instruction::Send { to, tag, encode: None, .. } if to.0 != lane => {
                    sent.entry((lane, to.0, tag / m)).or_default().push(tag);
                }
                Instruction::Recv { from, tag, decode: None, .. } if from.0 != lane => {
                    received.entry((from.0, lane, tag / m)).or_default().push(tag);
                }
                _ => {}
            }
        }
    }
    let in_order = |key: &&(u32, u32, u32)| sent.get(key) != received.get(key);
    match sent.keys().chain(received.keys()).find(in_order) {
        Some(&(from, to, edge)) => Err(Disorder { from, to, edge }),
        None => Ok(sent.into_keys().collect()),
    }
}
