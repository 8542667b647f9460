//! Schedules that update parameters while micro-batches are under way, beside a slow interpreter of
//! what they mean: plain loops in double precision over a small network, every version of every
//! stage's weights kept for ever.
//!
//! - PipeDream: a stage's backward pass uses the weights of its forward pass of the same
//!   micro-batch, and is followed by an update with that micro-batch's gradient alone.
//! - PipeDream-2BW: all passes of a step use the weights of one update before, and the update of
//!   the step is added to the newest ones.

use crate::common::{losses, mpirun_in, runner_in, scratch, write};
use pipewright_core::cost::Cluster;
use pipewright_core::graph::{Graph, GraphBuilder, Op};
use pipewright_core::ids::{LaneId, MicroBatch, StageId};
use pipewright_core::plan::{Data, Draft, Model, Optimizer, Plan};
use pipewright_core::schedule::{Action, ActionKind, Schedule, ScheduleKind, Updates};
use pipewright_runner::data::{Order, Sequence, open};
use pipewright_runner::init::init_param;
use std::collections::BTreeMap;

const LAYERS: usize = 4;
const WIDTH: usize = 12;
const CLASSES: usize = 6;
const MICRO_BATCHES: u32 = 6;
const SAMPLES: usize = 3;
const STEPS: u64 = 6;
const RATE: f64 = 0.05;
const MOMENTUM: f64 = 0.9;

/// Linear layers with a rectifier between them, one a stage.
fn network() -> (Graph, Vec<u32>) {
    let mut g = GraphBuilder::new("chain");
    g.layer("0");
    let mut x = g.input(vec![WIDTH as u64]);
    let mut cuts = vec![];
    for layer in 0..LAYERS {
        if layer > 0 {
            cuts.push(x.0 + 1);
            g.layer(layer.to_string());
        }
        let out = if layer + 1 == LAYERS { CLASSES } else { WIDTH };
        x = g.add(format!("fc{layer}"), Op::Linear { out_features: out as u64, bias: false }, &[x]);
        if layer + 1 < LAYERS {
            x = g.relu(&format!("relu{layer}"), x);
        }
    }
    g.loss(x, CLASSES as u64);
    (g.finish().unwrap(), cuts)
}

fn plan(kind: ScheduleKind) -> Plan {
    let (graph, cuts) = network();
    let mut draft = Draft::new(Model::Graph(graph), Cluster::preset("laptop").unwrap(), cuts);
    draft.schedule = kind;
    (draft.mini_batch, draft.micro_batches) = (18, MICRO_BATCHES);
    draft.steps = STEPS;
    draft.data = Data::Synthetic { train: 64, test: 4 };
    draft.optimizer = Optimizer::Sgd {
        learning_rate: RATE as f32,
        momentum: MOMENTUM as f32,
        weight_decay: 0.0,
        nesterov: false,
    };
    draft.plan().unwrap().0
}

/// `[out][in]`
type Weights = Vec<Vec<f64>>;

/// One stage: all versions of its weights, the newest last.
struct Stage {
    versions: Vec<Weights>,
    momentum: Weights,
    /// Sum of gradients since the last update.
    gradient: Weights,
    /// By micro-batch in flight: its input, its version.
    kept: BTreeMap<u32, (Vec<Vec<f64>>, usize)>,
}

fn zeros(like: &Weights) -> Weights {
    like.iter().map(|row| vec![0.0; row.len()]).collect()
}

impl Stage {
    fn update(&mut self) {
        let mut new = self.versions.last().unwrap().clone();
        for ((w, v), g) in new.iter_mut().zip(&mut self.momentum).zip(&mut self.gradient) {
            for ((w, v), g) in w.iter_mut().zip(v).zip(g) {
                *v = MOMENTUM * *v + *g;
                *w -= RATE * *v;
                *g = 0.0;
            }
        }
        self.versions.push(new);
    }

    /// `x Wᵀ`
    fn forward(&self, x: &[Vec<f64>], version: usize) -> Vec<Vec<f64>> {
        let row = |x: &Vec<f64>| {
            let dot = |w: &Vec<f64>| w.iter().zip(x).map(|(w, x)| w * x).sum();
            self.versions[version].iter().map(dot).collect()
        };
        x.iter().map(row).collect()
    }
}

/// The samples of a micro-batch, and their classes.
fn batch(plan: &Plan, graph: &Graph, step: u64, micro_batch: u32) -> (Vec<Vec<f64>>, Vec<usize>) {
    let data = open(&plan.data, &graph.sample().unwrap(), plan.seed).unwrap();
    let sequence = Sequence::Shuffled { seed: plan.seed };
    let order = Order::new(sequence, data.train.len(), plan.mini_batch);
    let mut samples = (vec![], vec![]);
    for i in 0..SAMPLES as u64 {
        let place = u64::from(micro_batch) * SAMPLES as u64 + i;
        let index = order.index(step, place).unwrap();
        let (mut x, mut class) = (vec![0u32; WIDTH], vec![0u32; 1]);
        data.train.input(index, &mut x).unwrap();
        data.train.target(index, &mut class).unwrap();
        samples.0.push(x.iter().map(|bits| f64::from(f32::from_bits(*bits))).collect());
        samples.1.push(class[0] as usize);
    }
    samples
}

/// Everything that the interpreter knows.
struct Reference<'a> {
    plan: &'a Plan,
    graph: Graph,
    schedule: Schedule,
    stages: Vec<Stage>,
    /// By stage and micro-batch: what comes in, forth and back.
    inputs: BTreeMap<(usize, u32), Vec<Vec<f64>>>,
    gradients: BTreeMap<(usize, u32), Vec<Vec<f64>>>,
    loss: f64,
}

impl<'a> Reference<'a> {
    fn new(plan: &'a Plan) -> Self {
        let graph = plan.model.graph().unwrap();
        let stage = |param: &pipewright_core::graph::Param| {
            let mut values = vec![0.0; param.elements() as usize];
            init_param(param, plan.seed, &mut values);
            let rows = values.chunks(param.shape[1] as usize);
            let weights: Weights =
                rows.map(|row| row.iter().map(|w| f64::from(*w)).collect()).collect();
            let (momentum, gradient) = (zeros(&weights), zeros(&weights));
            Stage { versions: vec![weights], momentum, gradient, kept: BTreeMap::new() }
        };
        let stages = graph.params().iter().map(stage).collect();
        let schedule = plan.schedule.parse().unwrap();
        let (inputs, gradients) = (BTreeMap::new(), BTreeMap::new());
        Self { plan, graph, schedule, stages, inputs, gradients, loss: 0.0 }
    }

    /// One step: lanes take their next action as soon as what it needs is there.
    fn step(&mut self, step: u64) -> f64 {
        self.loss = 0.0;
        let lanes = self.schedule.lanes.clone();
        let mut next = vec![0; lanes.len()];
        loop {
            let mut moved = false;
            for (lane, actions) in lanes.iter().enumerate() {
                while let Some(action) = actions.get(next[lane]).filter(|a| self.ready(a)) {
                    self.act(action, step);
                    next[lane] += 1;
                    moved = true;
                }
            }
            if !moved {
                break;
            }
        }
        assert!(lanes.iter().zip(&next).all(|(actions, next)| actions.len() == *next));
        if self.schedule.updates == Updates::DoubleBuffered {
            self.stages.iter_mut().for_each(Stage::update);
        }
        self.loss / self.plan.mini_batch as f64
    }

    fn ready(&self, action: &Action) -> bool {
        let (stage, m) = (action.stage.index(), action.micro_batch.0);
        match action.kind {
            ActionKind::Forward => stage == 0 || self.inputs.contains_key(&(stage, m)),
            _ => stage + 1 == LAYERS || self.gradients.contains_key(&(stage, m)),
        }
    }

    fn act(&mut self, action: &Action, step: u64) {
        let (stage, m) = (action.stage.index(), action.micro_batch.0);
        match action.kind {
            ActionKind::Forward => self.forward(stage, m, step),
            ActionKind::Backward => self.backward(stage, m, step),
            _ => panic!("these schedules have whole backward passes"),
        }
    }

    fn forward(&mut self, stage: usize, m: u32, step: u64) {
        let x = match stage {
            0 => batch(self.plan, &self.graph, step, m).0,
            _ => self.inputs.remove(&(stage, m)).unwrap(),
        };
        let newest = self.stages[stage].versions.len() - 1;
        let version = match self.schedule.updates {
            Updates::DoubleBuffered => newest.saturating_sub(1),
            _ => newest,
        };
        let y = self.stages[stage].forward(&x, version);
        self.stages[stage].kept.insert(m, (x, version));
        if stage + 1 < LAYERS {
            let relu = y.into_iter().map(|row| row.into_iter().map(|v| v.max(0.0)).collect());
            self.inputs.insert((stage + 1, m), relu.collect());
            return;
        }
        let (_, classes) = batch(self.plan, &self.graph, step, m);
        self.loss += y.iter().zip(&classes).map(|(y, class)| loss(y, *class)).sum::<f64>();
    }

    fn backward(&mut self, stage: usize, m: u32, step: u64) {
        let (x, version) = self.stages[stage].kept.remove(&m).unwrap();
        let y = self.stages[stage].forward(&x, version);
        // An update averages over the samples that it is for.
        let stashed = self.schedule.updates == Updates::Stashed;
        let samples = if stashed { SAMPLES as u64 } else { self.plan.mini_batch };
        let gy: Vec<Vec<f64>> = if stage + 1 == LAYERS {
            let (_, classes) = batch(self.plan, &self.graph, step, m);
            let scaled = |g: Vec<f64>| g.into_iter().map(|g| g / samples as f64).collect();
            y.iter().zip(&classes).map(|(y, class)| scaled(gradient(y, *class))).collect()
        } else {
            let after = self.gradients.remove(&(stage, m)).unwrap();
            let open = |(y, g): (&f64, f64)| if *y > 0.0 { g } else { 0.0 };
            y.iter().zip(after).map(|(y, g)| y.iter().zip(g).map(open).collect()).collect()
        };
        let state = &mut self.stages[stage];
        for (x, gy) in x.iter().zip(&gy) {
            for (row, gy) in state.gradient.iter_mut().zip(gy) {
                row.iter_mut().zip(x).for_each(|(sum, x)| *sum += gy * x);
            }
        }
        if stage > 0 {
            let back = |gy: &Vec<f64>| {
                let column = |i: usize| {
                    state.versions[version].iter().zip(gy).map(|(row, gy)| row[i] * gy).sum()
                };
                (0..WIDTH).map(column).collect()
            };
            self.gradients.insert((stage - 1, m), gy.iter().map(back).collect());
        }
        if stashed {
            state.update();
        }
    }
}

fn loss(logits: &[f64], class: usize) -> f64 {
    logits.iter().map(|y| y.exp()).sum::<f64>().ln() - logits[class]
}

fn gradient(logits: &[f64], class: usize) -> Vec<f64> {
    let sum: f64 = logits.iter().map(|y| y.exp()).sum();
    let share = |(i, y): (usize, &f64)| y.exp() / sum - if i == class { 1.0 } else { 0.0 };
    logits.iter().enumerate().map(share).collect()
}

fn trains_what_it_means(kind: ScheduleKind) {
    let dir = scratch(&kind.to_string());
    let plan = plan(kind);
    write(&dir, "plan.json", plan.to_json());
    let mut reference = Reference::new(&plan);
    let expected: Vec<f64> = (0..STEPS).map(|step| reference.step(step)).collect();
    runner_in(&dir, &["plan.json", "--out", "threads"]).done();
    compare(kind, &losses(&dir.join("threads")), &expected);
    if let Some(ended) = mpirun_in(&dir, plan.ranks(), &["plan.json", "--out", "mpi"]) {
        ended.done();
        assert_eq!(losses(&dir.join("mpi")), losses(&dir.join("threads")), "{kind}");
    }
    // And it is something else than what a flush would train.
    let mut flushed = self::plan(ScheduleKind::OneFOneB);
    flushed.seed = plan.seed;
    write(&dir, "flushed.json", flushed.to_json());
    runner_in(&dir, &["flushed.json", "--out", "flushed"]).done();
    assert_ne!(losses(&dir.join("flushed"))[3], losses(&dir.join("threads"))[3], "{kind}");
    std::fs::remove_dir_all(dir).ok();
}

fn compare(kind: ScheduleKind, found: &[String], expected: &[f64]) {
    assert_eq!(found.len(), expected.len(), "{kind}");
    for (step, (found, expected)) in found.iter().zip(expected).enumerate() {
        let found: f64 = found.parse().unwrap();
        let off = (found / expected - 1.0).abs();
        assert!(off < 1e-5, "{kind}, step {step}: {found} instead of {expected}");
    }
}

#[test]
fn pipedream() {
    let schedule = plan(ScheduleKind::PipeDream).schedule.parse().unwrap();
    assert_eq!(schedule.lane_of(StageId(3), MicroBatch(0)), LaneId(3));
    trains_what_it_means(ScheduleKind::PipeDream);
}

#[test]
fn pipedream_2bw() {
    trains_what_it_means(ScheduleKind::PipeDream2Bw);
}
