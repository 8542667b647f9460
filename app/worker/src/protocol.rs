//! Messages between the page and the worker: JSON texts. Times are in nanoseconds.

use pipewright_core::compress::Reduction;
use pipewright_core::graph::Precision;
use pipewright_core::plan::ScheduleText;
use pipewright_core::predict::Change;
use serde::{Deserialize, Serialize};

/// Parts of the time axis of pictures.
pub const COLUMNS: usize = 1000;

/// Parts of the time axis of a small picture, and lanes that it has at most.
pub const THUMBNAIL: (usize, usize) = (120, 16);

/// What the page asks for. Files of graphs come beside these, as bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// Work on a stage of a plan.
    Stage {
        /// The plan's text.
        plan: String,
        /// Which stage.
        stage: u32,
    },
    /// Show the fastest answer within so many bytes.
    Budget {
        /// Bytes.
        bytes: u64,
        /// Whether to search for just that, too; not while a hand is moving it.
        search: bool,
    },
    /// Look for plans like this one: same network, cluster and mini-batch.
    Plans {
        /// The plan's text.
        plan: String,
        /// Devices to use at most.
        devices: u32,
    },
    /// Look for plans that are better than this one; an earlier question is over.
    Advise {
        /// The plan's text.
        plan: String,
    },
    /// Simulate this plan under other schedules; an earlier question is over.
    Orders {
        /// The plan's text.
        plan: String,
        /// The schedules, in the order in which they are simulated.
        orders: Vec<Order>,
    },
    /// Make cuts or an order.
    Make {
        /// The plan's text.
        plan: String,
        /// Which.
        what: Make,
    },
    /// Search or rest.
    Run {
        /// Whether to search.
        on: bool,
    },
    /// Search anew from another seed; what was found stays.
    Reseed,
    /// What a cell of the picture of the graph stands for.
    Describe {
        /// The cell.
        cell: u32,
    },
    /// The shown answer as a file, or as a plan's sequence.
    Take,
}

/// What the worker says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// A graph is open.
    Opened(Opened),
    /// How far the search is.
    Progress(Progress),
    /// Another answer is shown.
    Shown(Box<Shown>),
    /// A cell's node.
    Described(Described),
    /// The answer that was asked for.
    Taken(Taken),
    /// How far the search for plans is.
    Plans(Plans),
    /// Better plans so far.
    Advice(Advised),
    /// The plan under other schedules, as far as they are simulated.
    Orders(Orders),
    /// What was to be made.
    Made(Made),
    /// What was asked for cannot be done; `worker.js` writes this, too.
    Failed {
        /// Why, a sentence.
        why: String,
    },
}

/// Peak and time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Bytes at the peak.
    pub peak: u64,
    /// Nanoseconds of all computations.
    pub time: f64,
}

/// A graph.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Opened {
    /// Its name.
    pub title: String,
    /// Nodes.
    pub nodes: u32,
    /// What they read.
    pub edges: u32,
    /// Without recomputation.
    pub base: Point,
    /// No sequence has a smaller peak.
    pub floor: u64,
    /// Bytes that its device has for it, where that is known.
    pub room: Option<u64>,
    /// Micro-batches in flight.
    pub copies: u32,
    /// Chen's segments of the forward pass.
    pub segments: Vec<Point>,
    /// How the picture of the graph is laid out.
    pub grid: Grid,
}

/// Nodes of the forward pass as cells, column after column.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Grid {
    /// Cells of each column.
    pub columns: Vec<u32>,
    /// The column of the first of the repeated layers, and how many there are.
    pub layers: Option<(u32, u32)>,
    /// What stands in each row of a layer; empty without layers.
    pub rows: Vec<String>,
}

/// How far a search is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Moves so far.
    pub moves: u64,
    /// The trade-offs found so far: ascending in peak, descending in time.
    pub front: Vec<Point>,
    /// What is shown.
    pub best: Point,
    /// Whether nothing better can be found.
    pub done: bool,
}

/// What an answer looks like.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shown {
    /// What it costs.
    pub cost: Point,
    /// End of the time axis of both curves.
    pub end: f64,
    /// Bytes without recomputation, the most in each of [`COLUMNS`] equal parts of the axis.
    pub without: Vec<u64>,
    /// Bytes with it.
    pub with: Vec<u64>,
    /// What runs longest in each part: `F` forward, `R` again, `B` backward, ` ` nothing.
    pub runs: String,
    /// Moments of the two peaks: without and with.
    pub peaks: [f64; 2],
    /// When the backward pass begins.
    pub backward: f64,
    /// A letter a cell: `.` not needed later, `k` kept, `2` and so on: run so often.
    pub cells: String,
    /// Cells that are kept until the backward pass, of how many.
    pub kept: (u32, u32),
    /// What is computed again, the most first.
    pub again: Vec<Share>,
    /// What is held at the peak, the most bytes first.
    pub alive: Vec<Share>,
}

/// Nodes of an operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// The operation.
    pub name: String,
    /// How many computations or values.
    pub count: u32,
    /// Nanoseconds or bytes.
    pub amount: f64,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Described {
    /// The cell that was asked about.
    pub cell: u32,
    /// Its name.
    pub name: String,
    /// Its operation.
    pub op: String,
    /// Bytes of its value.
    pub bytes: u64,
    /// Nanoseconds of computing it once.
    pub time: f64,
    /// How often the shown answer computes it.
    pub times: u32,
    /// Cells of what it reads.
    pub inputs: Vec<u32>,
    /// Cells of what reads it.
    pub readers: Vec<u32>,
    /// How many backward nodes read it.
    pub backward: u32,
}

/// An answer to take away.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Taken {
    /// The stage that it is for, of a plan.
    pub stage: Option<u32>,
    /// A plan's sequence, or a file `recompute-sequence/1`.
    pub text: String,
    /// What it costs.
    pub cost: Point,
}

/// How far a search for plans is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plans {
    /// Plans that were estimated.
    pub tried: u64,
    /// Plans that were certain to be no better.
    pub skipped: u64,
    /// Plans that were predicted since the last report; each is said once. They are numbered from 0
    /// in the order in which they are said.
    pub found: Vec<FoundPlan>,
    /// Numbers of those that fit and that no other is better than in step, peak and traffic; the
    /// fastest first.
    pub front: Vec<u32>,
    /// Whether it has rested: nothing is left to try, or enough was tried.
    pub done: bool,
}

/// A plan with what a prediction says of it, to the byte.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FoundPlan {
    /// First nodes of the stages after the first.
    pub cuts: Vec<u32>,
    /// The schedule's word.
    pub schedule: String,
    /// Micro-batches of a replica's step.
    pub micro_batches: u32,
    /// Copies of the pipeline.
    pub replicas: u32,
    /// Ranks of each tensor group; 0 or 1 for none.
    pub tensor: u32,
    /// Whether they have slices of the sequence.
    pub sequence_parallel: bool,
    /// Sequences of the stages, as plans write them; empty where none recomputes.
    pub recompute: Vec<String>,
    /// Nanoseconds of a step.
    pub step: u64,
    /// Most bytes that a device holds.
    pub peak: u64,
    /// Bytes sent in a step.
    pub traffic: u64,
}

/// Advice for a plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Advised {
    /// Plans that were simulated.
    pub tried: u32,
    /// Nanoseconds of a step of the plan itself.
    pub step: u64,
    /// Nanoseconds of its timeline: another number where the schedule does not flush. By this the page knows
    /// which plan is meant.
    pub drawn: u64,
    /// Whether it fits its devices.
    pub fits: bool,
    /// No plan on as many devices in this precision takes fewer nanoseconds.
    pub bound: u64,
    /// Better plans, on the same ranks and in the same precision first.
    pub plans: Vec<Better>,
    /// Whether nothing is left to try.
    pub done: bool,
}

/// A better plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Better {
    /// What it changes.
    pub changes: Vec<Change>,
    /// It, without its traffic.
    pub plan: FoundPlan,
    /// Of its products.
    pub precision: Precision,
    /// How its gradients are summed.
    pub gradients: Reduction,
    /// Ranks more than the plan has.
    pub more_ranks: u32,
}

/// Something that takes a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Make {
    /// The cuts whose simulated step is shortest.
    Cuts,
    /// An order for these stages, these messages and this memory.
    Order,
}

/// Cuts and order of a plan, made for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Made {
    /// First nodes of the stages after the first.
    pub cuts: Vec<u32>,
    /// The order.
    pub schedule: ScheduleText,
    /// Nanoseconds of its step.
    pub step: u64,
    /// Nanoseconds that no other cuts, or no other order, can be below, where that is known.
    pub bound: Option<u64>,
    /// Nanoseconds of what it was compared with: the balanced split, the best schedule by name.
    pub before: u64,
}

/// A schedule, and the stages that it is simulated with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// Its name, or `automatic`.
    pub schedule: String,
    /// First nodes of the stages after the first.
    pub cuts: Vec<u32>,
    /// Sequences of the stages; empty where none recomputes.
    pub recompute: Vec<String>,
}

/// Schedules that were simulated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Orders {
    /// Those since the last report.
    pub drawn: Vec<Drawn>,
    /// Whether nothing is left to simulate.
    pub done: bool,
}

/// A plan under a schedule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Drawn {
    /// The schedule's name.
    pub schedule: String,
    /// Nanoseconds of the step; in the steady state where it does not flush.
    pub step: u64,
    /// Nanoseconds of the picture's axis.
    pub length: u64,
    /// The share of the step in which a lane is idle.
    pub bubble: f64,
    /// Bytes of the fullest lane.
    pub peak: u64,
    /// Whether every lane fits its device.
    pub fits: bool,
    /// A row for each lane, or for some of many: `F`, `B`, `D` or `W`, `O` for updates, ` ` for nothing.
    pub rows: Vec<String>,
    /// Why there is no such plan; empty where it was too large to be made unasked.
    pub why: Option<String>,
}
