//! The page's only door to the planner: from the inputs to everything that is drawn.

use super::inputs::{Inputs, Rest};
use super::times::Times;
use crate::base::shared::Shared;
use crate::base::texts::t;
use pipewright_core::cost::{Cluster, Costs};
use pipewright_core::graph::{Graph, Layer, Precision};
use pipewright_core::ids::StageId;
use pipewright_core::partition::{self, balanced, uniform};
use pipewright_core::plan::{self, PlanError, Program, Sequence};
use pipewright_core::predict::{Outline, Steady};
use pipewright_core::schedule::{Schedule, ScheduleKind, Updates};
use pipewright_core::simulate::StageCost;
use pipewright_core::timeline::causes::Arrivals;
use pipewright_core::timeline::{Lane, Timeline};
use pipewright_core::units::{Bytes, Nanos};

/// What follows from the inputs.
#[derive(Debug)]
pub struct Solved {
    pub inputs: Inputs,
    pub schedule: Schedule,
    pub timeline: Timeline,
    pub stages: Vec<StageCost>,
    /// What of them tensor groups and expert groups exchange within passes; empty where there are no groups.
    pub exchanged: Vec<StageCost>,
    /// The lane of each stage; of those that run on several, the first micro-batch's.
    pub lane_of: Vec<usize>,
    /// What each stage keeps of one micro-batch between its passes.
    pub stash: Vec<Bytes>,
    /// What each lane always holds: parameters, their gradients, the optimizer's state.
    pub persistent: Vec<Bytes>,
    pub capacity: Bytes,
    /// Whether receivers take messages when they come for them.
    pub receivers_copy: bool,
    /// Devices of the cluster.
    pub devices: u64,
    /// Of a schedule that does not flush, what its figures are of; the timeline is one flushed mini-batch.
    pub steady: Option<Steady>,
    pub figures: Figures,
}

/// The numbers that plans are compared by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    pub step: Nanos,
    pub bubble: f64,
    pub peak: Bytes,
    /// The lane of the peak.
    pub worst: u32,
    pub samples_per_sec: f64,
    pub traffic: Bytes,
}

/// What the arrows below need besides the inputs; each is computed once and shared.
#[derive(Clone, Debug, PartialEq)]
pub struct Ground {
    /// What a rank computes of the network.
    pub graph: Shared<Graph>,
    pub network: Network,
    pub cluster: Shared<Cluster>,
    pub precision: Precision,
    /// For micro-batches of the inputs' size.
    pub costs: Shared<Costs>,
    /// The typed times that the cluster has.
    pub times: Option<Shared<Times>>,
}

/// A network, and what a rank computes of it where tensor groups or replicas divide it.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    pub whole: Shared<Graph>,
    /// The whole, where nothing is divided.
    pub shard: Shared<Graph>,
    divided: Divided,
    /// Why it cannot be divided.
    undivided: Option<String>,
}

impl Network {
    /// That of so many ranks.
    pub fn new(whole: Shared<Graph>, divided: Divided) -> Self {
        let (shard, undivided) = match divided.shard(&whole) {
            Ok(shard) => (shard.map_or_else(|| whole.clone(), Shared::new), None),
            Err(why) => (whole.clone(), Some(why.to_string())),
        };
        Self { whole, shard, divided, undivided }
    }
}

/// By what a network is divided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Divided {
    tensor: u32,
    slices: bool,
    experts: u32,
}

impl Divided {
    pub fn of(rest: &Rest) -> Self {
        let experts = rest.data_parallel.expert_parallel;
        Self { tensor: rest.tensor, slices: rest.sequence_parallel, experts }
    }

    /// What a rank computes; none: all.
    fn shard(self, whole: &Graph) -> Result<Option<Graph>, PlanError> {
        let shard = match self.tensor {
            1 => None,
            tensor => Some(whole.divided(tensor, self.slices)?),
        };
        match self.experts {
            1 => Ok(shard),
            of => Ok(Some(shard.unwrap_or_else(|| whole.clone()).expert_parallel(of)?)),
        }
    }
}

impl Ground {
    pub fn of(inputs: &Inputs) -> Self {
        let network = Network::new(inputs.model.graph(), Divided::of(&inputs.rest));
        let (graph, cluster) = (network.shard.clone(), inputs.cluster());
        let precision = inputs.rest.training.precision;
        let costs = Shared::new(Costs::new(&graph, &cluster, samples(inputs), precision));
        Self { graph, network, cluster, precision, costs, times: inputs.typed().cloned() }
    }

    /// Whether inputs have this graph, this cluster and these times.
    pub fn is_of(&self, inputs: &Inputs) -> bool {
        inputs.model.graph_is(&self.network.whole)
            && Divided::of(&inputs.rest) == self.network.divided
            && inputs.cluster.cluster_is(&self.cluster)
            && inputs.rest.training.precision == self.precision
            && inputs.typed() == self.times.as_ref()
    }

    /// That of `inputs`, with what `now` has of it already.
    pub fn near(inputs: &Inputs, now: &Ground) -> Self {
        let ground = if now.is_of(inputs) { now.clone() } else { Ground::of(inputs) };
        ground.with_samples(samples(inputs))
    }

    /// The same for another micro-batch size.
    pub fn with_samples(&self, samples: u64) -> Self {
        if self.costs.samples == samples {
            return self.clone();
        }
        let costs = Shared::new(Costs::new(&self.graph, &self.cluster, samples, self.precision));
        Self { costs, ..self.clone() }
    }
}

/// Samples of a micro-batch, rounded where the inputs contradict each other.
pub fn samples(inputs: &Inputs) -> u64 {
    let parts = u64::from(inputs.micro_batches) * u64::from(inputs.rest.data_parallel.replicas);
    (inputs.mini_batch / parts.max(1)).max(1)
}

/// Generates, lays out and simulates: the arrows of [`pipewright_core::predict::outline`] from what the page
/// keeps between two movements of a slider, without the plan file's text.
///
/// # Errors
/// The choices that contradict each other.
pub fn solve(inputs: &Inputs, ground: &Ground) -> Result<Solved, String> {
    let graph = &*ground.graph;
    check(inputs, graph).map_err(|e| e.to_string())?;
    if let Some(why) = &ground.network.undivided {
        return Err(why.clone());
    }
    let schedule = inputs.order()?;
    let lowering = lowering(inputs, ground, &schedule);
    let graphs = plan::training_graphs(&lowering);
    let graphs = plan::in_sequences(graphs, &inputs.sequences()).map_err(|e| e.to_string())?;
    let outline = |lowering: &plan::Inputs| {
        Outline::new(lowering, &graphs, &ground.costs).map_err(|e| e.to_string())
    };
    let Outline { stages, exchanged, programs, timeline } = outline(&lowering)?;
    // The step of more micro-batches of the same size.
    let longer = |micro_batches: u32| {
        let schedule = inputs.schedule.generate(inputs.stages(), micro_batches);
        let schedule = &schedule.map_err(|e| e.to_string())?;
        Ok::<_, String>(outline(&plan::Inputs { schedule, ..lowering })?.timeline.step)
    };
    let steady = match inputs.own.is_none() && schedule.updates != Updates::Synchronous {
        true => Some(Steady::of(&schedule, &timeline, longer)?),
        false => None,
    };
    let figures = figures(&timeline, inputs.mini_batch, steady);
    let capacity = ground.cluster.device.memory;
    let lane_of: Vec<usize> = schedule.routes[0].iter().map(|lane| lane.index()).collect();
    let kept = |stage| programs.iter().find_map(|p| p.stage(stage)).map(|s| s.slots.bytes);
    let stash = (0..inputs.stages()).map(|s| kept(StageId(s)).unwrap_or_default()).collect();
    let persistent = programs.iter().map(|p| p.persistent).collect();
    let inputs = inputs.clone();
    let receivers_copy = ground.cluster.receivers_copy;
    let devices = ground.cluster.devices();
    Ok(Solved {
        inputs,
        schedule,
        timeline,
        stages,
        exchanged,
        lane_of,
        stash,
        persistent,
        capacity,
        receivers_copy,
        devices,
        steady,
        figures,
    })
}

/// A plan of the same model that is possible where these inputs contradict each other: without what excludes other
/// choices, one after the other.
pub fn possible(inputs: &Inputs) -> Solved {
    let first = super::presets::first();
    let mut next = inputs.alone();
    // Replicas stay where other micro-batches are all that it takes.
    let near = super::repair::dividing(&next);
    if near.mini_batch == next.mini_batch
        && let Ok(solved) = solve(&near, &Ground::of(&near))
    {
        return solved;
    }
    for without in 0..4 {
        match without {
            0 => next.rest.communication = first.rest.communication.clone(),
            1 => (next.own, next.schedule) = (None, ScheduleKind::OneFOneB),
            2 => {
                next.rest.data_parallel.expert_parallel = 1;
                (next.rest.tensor, next.rest.sequence_parallel, next.recompute) = (1, false, None);
            }
            _ => (next.rest.data_parallel, next.micro_batches) = (first.rest.data_parallel, 1),
        }
        if let Ok(solved) = solve(&next, &Ground::of(&next)) {
            return solved;
        }
    }
    solve(&first, &Ground::of(&first)).expect("tested")
}

/// The programs of plans that were solved; none where the choices contradict each other.
pub fn programs(inputs: &Inputs, ground: &Ground) -> Option<Vec<Program>> {
    let schedule = inputs.order().ok()?;
    let lowering = lowering(inputs, ground, &schedule);
    let graphs = plan::in_sequences(plan::training_graphs(&lowering), &inputs.sequences()).ok()?;
    Some(plan::lay_out(&lowering, &graphs))
}

fn lowering<'a>(
    inputs: &'a Inputs,
    ground: &'a Ground,
    schedule: &'a Schedule,
) -> plan::Inputs<'a> {
    plan::Inputs {
        graph: &ground.graph,
        cuts: &inputs.cuts,
        schedule,
        samples: ground.costs.samples,
        data_parallel: inputs.rest.data_parallel,
        communication: &inputs.rest.communication,
        cluster: &ground.cluster,
        optimizer: inputs.rest.optimizer,
        training: inputs.rest.training,
        halves: ground.cluster.device.halves(),
    }
}

impl Solved {
    /// The messages that its lanes wait for.
    pub fn arrivals(&self) -> Arrivals {
        match self.receivers_copy {
            true => Arrivals::taken(&self.timeline),
            false => Arrivals::new(&self.timeline),
        }
    }

    /// Whether every lane has one stage, of its own number.
    pub fn is_straight(&self) -> bool {
        self.lane_of.len() == self.timeline.lanes.len()
            && self.lane_of.iter().enumerate().all(|(stage, lane)| stage == *lane)
    }
}

/// What lowering relies on and a hand at the controls can break.
fn check(inputs: &Inputs, graph: &Graph) -> Result<(), PlanError> {
    let Inputs { mini_batch, micro_batches, .. } = *inputs;
    if inputs.samples().is_none_or(|samples| samples == 0) {
        let replicas = inputs.rest.data_parallel.replicas;
        return Err(PlanError::Indivisible { mini_batch, micro_batches, replicas });
    }
    if inputs.rest.tensor > 1 && inputs.rest.communication.encodes() {
        return Err(PlanError::WithTensor("encoded gradients"));
    }
    inputs.rest.data_parallel.check_experts(&inputs.rest.communication)?;
    let schedule = inputs.schedule;
    let what = plan::excluded(graph, schedule.updates(), &inputs.rest.training);
    if let Some(what) = what.filter(|_| inputs.own.is_none()) {
        return Err(PlanError::Asynchronous { name: schedule.to_string(), what });
    }
    let last = graph.nodes().len() - 1;
    for (index, &cut) in inputs.cuts.iter().enumerate() {
        let after = index.checked_sub(1).map_or(0, |i| inputs.cuts[i]);
        if cut <= after || cut as usize > last {
            return Err(PlanError::Cut { index, cut, last, model: graph.name().into() });
        }
    }
    Ok(())
}

/// The comparable numbers of a step.
fn figures(timeline: &Timeline, mini_batch: u64, steady: Option<Steady>) -> Figures {
    let (lane, peak) = timeline.peak().unwrap_or_default();
    let step = steady.map_or(timeline.step, |steady| steady.step);
    let idle = |lane: &Lane| step.saturating_sub(lane.busy()).secs() / step.secs().max(1e-12);
    let lanes = timeline.lanes.len().max(1) as f64;
    Figures {
        step,
        bubble: match steady {
            Some(_) => timeline.lanes.iter().map(idle).sum::<f64>() / lanes,
            None => timeline.bubble(),
        },
        peak,
        worst: lane.0,
        samples_per_sec: mini_batch as f64 / step.secs(),
        traffic: timeline.traffic(),
    }
}

/// Cuts the model into stages of about equal time, as many as the schedule has on so many lanes; as
/// many lanes as there are layers for at most.
pub fn split(inputs: &mut Inputs, lanes: u32) {
    let ground = Ground::of(inputs);
    inputs.cuts = match &inputs.own {
        // Other lanes than those of an order from a file are said, not made to fit.
        Some(own) if own.schedule.lanes.len() as u32 == lanes => {
            balanced_cuts(&ground, own.schedule.stages())
        }
        Some(_) => balanced_cuts(&ground, lanes),
        None => lane_cuts(&ground, inputs.schedule, lanes),
    };
}

/// The cuts for stages of about equal time on so many lanes.
pub fn lane_cuts(ground: &Ground, schedule: ScheduleKind, lanes: u32) -> Vec<u32> {
    let most = most_lanes(&ground.graph, schedule);
    balanced_cuts(ground, schedule.placement().stages(lanes.clamp(1, most)))
}

/// Lanes that the model has layers for.
pub fn most_lanes(graph: &Graph, schedule: ScheduleKind) -> u32 {
    (graph.layers().len() as u32 / schedule.placement().stages(1)).max(1)
}

/// Lets every stage compute again all that it can: each keeps what it receives.
pub fn recompute_all(inputs: &mut Inputs, ground: &Ground) {
    inputs.recompute = None;
    let Ok(schedule) = inputs.order() else { return };
    if check(inputs, &ground.graph).is_err() {
        return;
    }
    let graphs = plan::training_graphs(&lowering(inputs, ground, &schedule));
    for (stage, graph) in (0..).zip(&graphs) {
        inputs.recompute(stage, Sequence::full(graph));
    }
}

/// Another schedule on the same lanes; the model is cut anew where it needs other stages.
pub fn reschedule(inputs: &mut Inputs, schedule: ScheduleKind) {
    let lanes = inputs.lanes();
    (inputs.schedule, inputs.own) = (schedule, None);
    if schedule.placement().lanes(inputs.stages()) != Some(lanes) {
        split(inputs, lanes);
    }
}

/// The cuts that [`split`] makes.
pub fn balanced_cuts(ground: &Ground, stages: u32) -> Vec<u32> {
    let stages = stages.clamp(1, ground.graph.layers().len() as u32);
    balanced(&ground.graph, &ground.costs, stages).unwrap_or_default()
}

/// A way to cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The simulated step is shortest.
    Best,
    /// Stages of about equal time.
    Time,
    /// Stages of as many layers.
    Layers,
}

/// The cuts of a way; of [`Way::Best`], which takes a search, those of equal time.
pub fn cuts_of(way: Way, ground: &Ground, stages: u32) -> Vec<u32> {
    match way {
        Way::Best | Way::Time => balanced_cuts(ground, stages),
        Way::Layers => uniform(&ground.graph, stages).unwrap_or_default(),
    }
}

/// The way that made the cuts of `inputs`; none where a hand did, or a search that is not done here.
pub fn way_of(inputs: &Inputs, ground: &Ground) -> Option<Way> {
    let same = |way: &Way| cuts_of(*way, ground, inputs.stages()) == inputs.cuts;
    [Way::Time, Way::Layers].into_iter().find(same)
}

/// Plan A: what was pinned, else the same choices, split by layer count.
pub fn baseline(inputs: &Inputs, graph: &Graph) -> Option<Inputs> {
    if let Some(pinned) = &inputs.a {
        return Some((**pinned).clone());
    }
    let cuts = uniform(graph, inputs.stages()).ok()?;
    Some(Inputs { cuts, ..inputs.alone() })
}

/// A layer of the split editor.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerTime {
    pub name: String,
    pub first_node: u32,
    /// Forward and backward pass of one micro-batch.
    pub time: Nanos,
}

/// The layers with their times, as the balanced split weighs them.
pub fn layer_times(graph: &Graph, costs: &Costs) -> Vec<LayerTime> {
    let times = partition::layer_times(graph, costs);
    let layer = |(layer, time): (&Layer, Nanos)| LayerTime {
        name: layer.name.clone(),
        first_node: layer.first_node.0,
        time,
    };
    graph.layers().iter().zip(times).map(layer).collect()
}

/// What the page shows: the last plan that worked, and why the newest one does not.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    pub solved: Shared<Solved>,
    pub problem: Option<String>,
    /// Whether what is shown is no earlier state but [`possible`]'s.
    pub stands_in: bool,
}

impl Shown {
    /// What a picture is called that is not of the newest inputs.
    pub fn stale(&self) -> &'static str {
        match self.stands_in {
            true => t("another plan"),
            false => t("out of date"),
        }
    }
}
