//! The simulator against what must hold for any pipeline, and against closed forms.
//!
//! | symbol | meaning |
//! |---|---|
//! | p, m | stages, micro-batches |
//! | f, b | forward and backward time of a stage for one micro-batch |
//! | t | time of one message |

use pipewright_core::cost::{Cluster, Halves, Link};
use pipewright_core::graph::{Graph, GraphBuilder};
use pipewright_core::ids::{LaneId, MicroBatch, StageId};
use pipewright_core::plan::{
    Communication, DataParallel, Inputs, Optimizer, Program, Training, lower, training_graphs,
};
use pipewright_core::schedule::{ActionKind, Schedule, ScheduleKind};
use pipewright_core::simulate::{Copies, StageCost, simulate};
use pipewright_core::timeline::{Span, Timeline, Work};
use pipewright_core::units::{Bytes, Nanos};
use proptest::prelude::*;

/// A chain of stages of several layers, with made-up times.
#[derive(Clone, Debug)]
struct Pipeline {
    /// Layers of each stage.
    layers: Vec<u32>,
    costs: Vec<StageCost>,
    schedule: Schedule,
    latency: u64,
    /// Devices that the lanes share; as many as lanes when they do not.
    devices: u32,
}

/// Samples of a micro-batch and width of a layer: every message is as long.
const SAMPLES: u64 = 3;
const WIDTH: u64 = 5;
const MESSAGE: Bytes = Bytes(4 * SAMPLES * WIDTH);

impl Pipeline {
    /// One layer a stage.
    fn new(kind: ScheduleKind, costs: Vec<StageCost>, micro_batches: u32) -> Self {
        let schedule = kind.generate(costs.len() as u32, micro_batches).unwrap();
        let devices = costs.len() as u32;
        Self { layers: vec![1; costs.len()], costs, schedule, latency: 0, devices }
    }

    fn graph(&self) -> (Graph, Vec<u32>) {
        let mut g = GraphBuilder::new("chain");
        g.layer("chain");
        let mut x = g.input(vec![WIDTH]);
        let mut cuts = vec![];
        for (stage, layers) in self.layers.iter().enumerate() {
            for layer in 0..*layers {
                x = g.linear(&format!("{stage}.{layer}"), x, WIDTH);
                if stage > 0 && layer == 0 {
                    cuts.push(x.0);
                }
            }
        }
        g.loss(x, WIDTH);
        (g.finish().unwrap(), cuts)
    }

    fn cluster(&self) -> Cluster {
        let mut cluster = Cluster::preset("dgx-a100").unwrap();
        let link = Link { latency_ns: Nanos(self.latency), bytes_per_sec: 1e30 };
        (cluster.local, cluster.network) = (link, link);
        cluster.devices_per_node = self.devices;
        cluster.ranks_per_node = self.schedule.stages();
        cluster
    }

    fn programs(&self) -> Vec<Program> {
        let (graph, cuts) = self.graph();
        let (cuts, schedule) = (&cuts, &self.schedule);
        let inputs = Inputs {
            graph: &graph,
            cuts,
            schedule,
            samples: SAMPLES,
            data_parallel: DataParallel::default(),
            communication: &Communication::default(),
            cluster: &self.cluster(),
            optimizer: Optimizer::default(),
            training: Training::default(),
            halves: Halves::Unpacked,
        };
        lower(&inputs, &training_graphs(&inputs))
    }

    fn run(&self) -> Timeline {
        simulate(&self.programs(), &self.costs, &self.cluster(), Copies::default()).unwrap()
    }

    fn micro_batches(&self) -> u64 {
        u64::from(self.schedule.micro_batches)
    }

    /// Time of all work together.
    fn work(&self) -> u64 {
        let stage = |c: &StageCost| self.micro_batches() * per_micro_batch(c) + c.update.0;
        self.costs.iter().map(stage).sum()
    }
}

fn per_micro_batch(cost: &StageCost) -> u64 {
    (cost.forward + cost.backward()).0
}

/// The span of an action.
fn span(timeline: &Timeline, stage: u32, backward: bool, micro_batch: u32) -> Span {
    let wanted = |span: &&Span| match span.work {
        Work::Run(a) => {
            let is_backward = !matches!(a.kind, ActionKind::Forward);
            (a.stage, is_backward, a.micro_batch)
                == (StageId(stage), backward, MicroBatch(micro_batch))
        }
        Work::Optimizer(_) => false,
    };
    *timeline.lanes[stage as usize].spans.iter().find(wanted).expect("every action runs")
}

fn stage_cost() -> impl Strategy<Value = StageCost> {
    [1u64..1000, 0u64..1000, 0u64..1000, 0u64..300].prop_map(|[f, i, w, update]| StageCost {
        forward: Nanos(f),
        backward_input: Nanos(i + 1),
        backward_weight: Nanos(w),
        update: Nanos(update),
    })
}

fn kind() -> impl Strategy<Value = ScheduleKind> {
    prop::sample::select(ScheduleKind::STRAIGHT.to_vec())
}

fn pipeline() -> impl Strategy<Value = Pipeline> {
    let stages = prop::collection::vec((1u32..4, stage_cost()), 1..7);
    (stages, kind(), 1u32..13, 0u64..500).prop_map(|(stages, kind, m, latency)| {
        let (layers, costs) = stages.into_iter().unzip();
        Pipeline { layers, latency, ..Pipeline::new(kind, costs, m) }
    })
}

proptest! {
    #[test]
    fn every_action_runs_once_in_its_time_and_without_overlap(pipeline in pipeline()) {
        let timeline = pipeline.run();
        for (lane, cost) in timeline.lanes.iter().zip(&pipeline.costs) {
            prop_assert_eq!(lane.spans.len() as u64, 2 * pipeline.micro_batches() + 1);
            for pair in lane.spans.windows(2) {
                prop_assert!(pair[0].end <= pair[1].start, "{:?}", pair);
            }
            for span in &lane.spans {
                let wanted = match span.work {
                    Work::Run(action) => cost.of(action.kind),
                    Work::Optimizer(_) => cost.update,
                };
                prop_assert_eq!(span.end - span.start, wanted);
            }
        }
        prop_assert_eq!(
            timeline.messages.len() as u64,
            2 * (pipeline.costs.len() as u64 - 1) * pipeline.micro_batches()
        );
        prop_assert!(timeline.messages.iter().all(|m| m.bytes == MESSAGE));
    }

    #[test]
    fn dependencies_are_respected(pipeline in pipeline()) {
        let timeline = pipeline.run();
        let t = pipeline.cluster().link(LaneId(0), LaneId(0)).time(MESSAGE);
        let last = pipeline.schedule.stages() - 1;
        for i in 0..pipeline.schedule.micro_batches {
            let at = |stage, backward| span(&timeline, stage, backward, i);
            for stage in 0..last {
                prop_assert!(at(stage + 1, false).start >= at(stage, false).end + t);
                prop_assert!(at(stage, true).start >= at(stage + 1, true).end + t);
            }
            prop_assert!(at(last, true).start >= at(last, false).end);
        }
    }

    #[test]
    fn no_step_is_shorter_than_its_parts(pipeline in pipeline()) {
        let timeline = pipeline.run();
        let busiest = timeline.lanes.iter().map(|lane| lane.busy()).max().unwrap();
        prop_assert!(timeline.step >= busiest);
        // One micro-batch there and back, then the update of the first stage.
        let hops = 2 * (pipeline.costs.len() as u64 - 1) * pipeline.latency;
        let path: u64 = pipeline.costs.iter().map(per_micro_batch).sum();
        prop_assert!(timeline.step.0 >= path + hops + pipeline.costs[0].update.0);
        let ends = timeline.lanes.iter().map(|lane| lane.spans.last().unwrap().end);
        prop_assert_eq!(timeline.step, ends.max().unwrap());
        // Nor longer than everything in a row.
        prop_assert!(timeline.step.0 <= pipeline.work() + pipeline.micro_batches() * hops);
    }

    #[test]
    fn memory_returns_to_what_lasts(pipeline in pipeline()) {
        let timeline = pipeline.run();
        for (lane, program) in timeline.lanes.iter().zip(pipeline.programs()) {
            prop_assert_eq!(lane.memory[0].0, Nanos::ZERO);
            prop_assert_eq!(lane.memory.last().unwrap().1, program.persistent);
            prop_assert!(lane.memory.iter().all(|(_, bytes)| *bytes >= program.persistent));
            prop_assert!(lane.peak() <= program.arena);
            prop_assert_eq!(lane.arena, program.arena);
        }
    }

    #[test]
    fn even_stages_take_the_textbook_time(cost in stage_cost(), p in 1u64..9, m in 1u32..17, kind in kind()) {
        let cost = StageCost { update: Nanos::ZERO, ..cost };
        let timeline = Pipeline::new(kind, vec![cost; p as usize], m).run();
        // GPipe and 1F1B alike: they differ in memory.
        prop_assert_eq!(timeline.step.0, (u64::from(m) + p - 1) * per_micro_batch(&cost));
        let bubble = (p - 1) as f64 / (u64::from(m) + p - 1) as f64;
        prop_assert!((timeline.bubble() - bubble).abs() < 1e-9);
    }

    #[test]
    fn uneven_gpipe_waits_for_its_slowest_stage(
        mut costs in prop::collection::vec(stage_cost(), 1..9),
        m in 1u32..17,
    ) {
        costs.iter_mut().for_each(|c| c.update = Nanos::ZERO);
        let timeline = Pipeline::new(ScheduleKind::GPipe, costs.clone(), m).run();
        let pass = |time: fn(&StageCost) -> Nanos| {
            let sum: u64 = costs.iter().map(|c| time(c).0).sum();
            sum + u64::from(m - 1) * costs.iter().map(|c| time(c).0).max().unwrap()
        };
        prop_assert_eq!(timeline.step.0, pass(|c| c.forward) + pass(StageCost::backward));
    }

    #[test]
    fn shared_devices_neither_lose_nor_find_work(pipeline in pipeline(), devices in 1u32..7) {
        let devices = devices.min(pipeline.schedule.stages());
        let shared = Pipeline { devices, ..pipeline }.run_shared();
        let (timeline, work) = (&shared.0, shared.1);
        let done = work_done(timeline, u64::from(devices));
        // Spans begin and end at whole nanoseconds.
        let rounding = 2.0 * timeline.lanes.iter().map(|l| l.spans.len()).sum::<usize>() as f64;
        prop_assert!((done - work as f64).abs() <= rounding, "{done} of {work}");
        let least = work as f64 / f64::from(devices);
        prop_assert!(timeline.step.0 as f64 >= least - rounding, "{} < {least}", timeline.step.0);
    }
}

impl Pipeline {
    /// The timeline, and the work that is to be found in it.
    fn run_shared(&self) -> (Timeline, u64) {
        (self.run(), self.work())
    }
}

/// Integral over the step of the devices that are in use: as many as lanes work, up to all.
fn work_done(timeline: &Timeline, devices: u64) -> f64 {
    let spans = timeline.lanes.iter().flat_map(|lane| &lane.spans);
    let mut edges: Vec<(u64, i64)> = spans.flat_map(|s| [(s.start.0, 1), (s.end.0, -1)]).collect();
    edges.sort_unstable();
    let (mut done, mut busy) = (0, 0i64);
    for pair in edges.windows(2) {
        busy += pair[0].1;
        done += (pair[1].0 - pair[0].0) * devices.min(busy as u64);
    }
    done as f64
}

/// What a pipeline of 8 stages comes to: instructions, spans, messages, moments of memory, sends
/// that can be outstanding.
fn size(kind: ScheduleKind, micro_batches: u32) -> [usize; 5] {
    let cost = StageCost { forward: Nanos(10), backward_input: Nanos(20), ..StageCost::default() };
    let pipeline = Pipeline::new(kind, vec![cost; 8], micro_batches);
    let (programs, timeline) = (pipeline.programs(), pipeline.run());
    let lanes = || timeline.lanes.iter();
    [
        programs.iter().map(|p| p.train.len()).sum(),
        lanes().map(|lane| lane.spans.len()).sum(),
        timeline.messages.len(),
        lanes().map(|lane| lane.memory.len()).sum(),
        programs.iter().map(|p| p.handles as usize).sum(),
    ]
}

#[test]
fn everything_grows_in_proportion_to_the_micro_batches() {
    for kind in ScheduleKind::STRAIGHT {
        let [small, middle, large] = [8, 64, 512].map(|m| size(kind, m));
        for i in 0..small.len() {
            // The first growth is by 56 micro-batches, the second by eight times as many.
            let most = middle[i] + 8 * (middle[i] - small[i]) + 8;
            assert!(large[i] <= most, "{kind}, count {i}: {small:?} {middle:?} {large:?}");
        }
    }
}
