//! One step of a plan whose stages are a chain, without its instructions.
//!
//! Where each stage hands one value to the next and gets one gradient back, lanes do nothing but
//! their actions and updates, and the step follows from the schedule: a fraction of the work and none of
//! the memory of programs. It is the same timeline that [`super::simulate`] gives, to the last wait;
//! property tests hold the two together.

use super::actions::{ActionSimulation, Hop, Needs};
use super::reduce::Reductions;
use super::{Copies, StageCost, have_own_devices, in_order};
use crate::graph::autodiff::{Port, TrainingGraph};
use crate::ids::{LaneId, MicroBatch, StageId};
use crate::plan::{Inputs, Program};
use crate::schedule::{Action, ActionKind, Updates};
use crate::timeline::{Aside, Lane, Message, Span, Timeline, Wait, What, Work};
use crate::units::{Bytes, Nanos};

/// What [`super::simulate`] says of the step that `programs` make, of which only the layout is looked at
/// ([`crate::plan::lay_out`]). `None` where the plan is no chain, or does more than this knows: then
/// ask the programs. Linear in actions.
pub fn simulate_chain(
    inputs: &Inputs,
    graphs: &[TrainingGraph],
    programs: &[Program],
    stages: &[StageCost],
    copies: Copies,
) -> Option<Timeline> {
    let links = Links::new(inputs, graphs, programs)?;
    let schedule = inputs.schedule;
    let mut lanes: Vec<LaneSteps> =
        schedule.lanes.iter().map(|actions| LaneSteps::new(actions)).collect();
    let mut run =
        ActionSimulation::new(schedule, stages, |hop| links.time(hop), links.entries.clone());
    // Lanes that wait for each other are the programs' to explain.
    let steps = lanes.as_mut_slice();
    run.all(|lane, _, needs, moments| steps[lane.index()].act(needs, moments)).ok()?;
    let mut reductions = Reductions::new(inputs.cluster, copies, programs, 1);
    let lanes = (0..).map(LaneId).zip(lanes).zip(programs).map(|((lane, mut steps), program)| {
        let now = steps.update(lane, program, stages, &mut reductions);
        let taken = program.stages.iter().flat_map(|stage| run.taken(stage.stage));
        steps.wait_for_all(now, taken);
        in_order(&mut steps.asides);
        Lane { asides: steps.asides, ..Lane::new(program, steps.spans) }
    });
    let lanes: Vec<Lane> = lanes.collect();
    let ends = lanes.iter().filter_map(|lane| lane.spans.last()).map(|span| span.end);
    let step = ends.max().unwrap_or_default();
    let messages = links.messages(inputs, &run);
    let elsewhere = reductions.elsewhere(programs, &messages);
    Some(Timeline { lanes, messages, elsewhere, step })
}

/// The ways between neighbouring stages.
struct Links {
    /// By stage.
    lanes: Vec<LaneId>,
    /// By stage: what it hands to the next one, bytes and time on the way.
    activations: Vec<(Bytes, Nanos)>,
    /// By stage: what it hands to the one before.
    gradients: Vec<(Bytes, Nanos)>,
    /// By stage: entries of its outbox.
    entries: Vec<u32>,
}

impl Links {
    /// Those of a plan that is a chain and has nothing else to do.
    fn new(inputs: &Inputs, graphs: &[TrainingGraph], programs: &[Program]) -> Option<Self> {
        let lanes = inputs.schedule.placement()?;
        if !is_plain(inputs, programs) || !(0..).zip(graphs).all(|(at, g)| is_link(at, g, graphs)) {
            return None;
        }
        let lanes = lanes.to_vec();
        let mut links = Self { lanes, activations: vec![], gradients: vec![], entries: vec![] };
        for (stage, graph) in graphs.iter().enumerate() {
            let lanes = links.lanes.as_slice();
            let program = programs[lanes[stage].index()].stage(StageId(stage as u32))?;
            let way = |ports: &[Port]| {
                let Some(port) = ports.first() else { return Default::default() };
                let (from, to) = (lanes[stage], lanes[port.peer.index()]);
                let rank = |lane| LaneId(inputs.mesh().rank(lane, 0));
                let bytes = crate::plan::value_bytes(inputs, graph, port.value);
                let link = inputs.cluster.link(rank(from), rank(to));
                (bytes, if from == to { Nanos::ZERO } else { link.time(bytes) })
            };
            let ways = [way(&graph.sends), way(&graph.gradient_sends)];
            links.activations.push(ways[0]);
            links.gradients.push(ways[1]);
            links.entries.push(program.outbox.count.max(1));
            // Elsewhere gradients lie in the slots, which the next forward pass would wait for.
            if program.outbox.count == 0 && stage > 0 {
                return None;
            }
        }
        Some(links)
    }

    fn time(&self, hop: Hop) -> Nanos {
        match hop.gradient {
            false => self.activations[hop.boundary.index()].1,
            true => self.gradients[hop.boundary.index() + 1].1,
        }
    }

    /// All messages, in the order of their tags.
    fn messages<H: Fn(Hop) -> Nanos>(
        &self,
        inputs: &Inputs,
        run: &ActionSimulation<H>,
    ) -> Vec<Message> {
        let schedule = inputs.schedule;
        let (stages, m) = (schedule.stages(), schedule.micro_batches);
        let mut messages = Vec::with_capacity(2 * (stages as usize - 1) * m as usize);
        for stage in 0..stages {
            let backward = stage.checked_sub(1).map(|to| (to, true));
            let forward = (stage + 1 < stages).then_some((stage + 1, false));
            for (to, gradient) in backward.into_iter().chain(forward) {
                let ways = if gradient { &self.gradients } else { &self.activations };
                let (bytes, time) = ways[stage as usize];
                let [from, to] = [stage, to].map(|stage| self.lanes[stage as usize]);
                let stage = StageId(stage);
                let ends = (0..).map(MicroBatch).zip(run.ends_of(stage, gradient));
                messages.extend(ends.map(|(micro_batch, &sent)| {
                    let received = sent + time;
                    Message { from, to, stage, micro_batch, gradient, bytes, sent, received }
                }));
            }
        }
        messages
    }
}

/// Whether lanes do nothing but actions, plain sums of gradients, and updates at the end.
fn is_plain(inputs: &Inputs, programs: &[Program]) -> bool {
    let (schedule, cluster) = (inputs.schedule, inputs.cluster);
    let edges = inputs.communication.edges;
    let stages = || programs.iter().flat_map(|program| &program.stages);
    schedule.updates != Updates::Stashed
        && schedule.overlaps.iter().all(Vec::is_empty)
        && !(cluster.receivers_copy || cluster.blocking_sends)
        && !inputs.data_parallel.through_first()
        // Instructions say what is sent within passes.
        && inputs.mesh().tensor == 1
        && inputs.mesh().experts == 1
        && !inputs.training.judges_gradients()
        && edges.within.is_lossless()
        && edges.across.is_lossless()
        && stages().all(|stage| stage.buckets.iter().all(|bucket| bucket.reduction.is_plain()))
        // Else each pass sums, and may wait for the sums of the one before.
        && (schedule.micro_batches == 1 || !stages().any(|stage| stage.divides_gradients()))
        && have_own_devices(cluster, programs.len() as u32 * inputs.data_parallel.replicas)
}

/// Whether stage `at` has exactly its neighbours to talk to, in both directions.
fn is_link(at: u32, graph: &TrainingGraph, graphs: &[TrainingGraph]) -> bool {
    let only = |ports: &[Port], peer: Option<u32>| match (ports, peer) {
        ([], None) => true,
        ([port], Some(peer)) => port.peer.0 == peer,
        _ => false,
    };
    let before = at.checked_sub(1);
    let behind = Some(at + 1).filter(|next| (*next as usize) < graphs.len());
    only(&graph.receives, before)
        && only(&graph.sends, behind)
        && only(&graph.gradient_receives, behind)
        && only(&graph.gradient_sends, before)
}

/// What a lane has done so far.
struct LaneSteps {
    /// All its actions; those from `done` on have no moments yet.
    spans: Vec<Span>,
    done: usize,
    asides: Vec<Aside>,
    now: Nanos,
}

impl LaneSteps {
    fn new(actions: &[Action]) -> Self {
        let span = |action: &Action| Span {
            start: Nanos::ZERO,
            end: Nanos::ZERO,
            work: Work::Run(*action),
        };
        let mut spans = Vec::with_capacity(actions.len() + 2);
        spans.extend(actions.iter().map(span));
        Self { spans, done: 0, asides: vec![], now: Nanos::ZERO }
    }

    /// The next action, and what the lane waited for before it: first for a place for its gradient.
    fn act(&mut self, needs: Needs, (start, end): (Nanos, Nanos)) {
        if start > self.now {
            let now = self.wait(self.now, needs.entry, Wait::Receiver);
            self.wait(now, needs.message, Wait::Message);
        }
        if let Some(span) = self.spans.get_mut(self.done) {
            (span.start, span.end) = (start, end);
        }
        self.done += 1;
        self.now = end;
    }

    /// Waits from `now` until a moment, if that is later; returns when it goes on.
    fn wait(&mut self, now: Nanos, until: Nanos, what: Wait) -> Nanos {
        if until > now {
            self.asides.push(Aside { start: now, end: until, what: What::Wait(what) });
        }
        now.max(until)
    }

    /// Waits for the sums of gradients, then updates; returns when it is done.
    fn update(
        &mut self,
        lane: LaneId,
        program: &Program,
        stages: &[StageCost],
        reductions: &mut Reductions,
    ) -> Nanos {
        for (stage, span) in self.last_passes(program) {
            reductions.completed(lane, &program.stages[stage], span);
        }
        let mut now = self.now;
        for stage in program.stages.iter().filter(|stage| !stage.buckets.is_empty()) {
            let over = reductions.wait(lane, stage.stage).unwrap_or_default();
            if let Some(start) = reductions.done(lane, stage.stage) {
                let end = now.max(over);
                self.asides.push(Aside { start, end, what: What::AllReduce(stage.stage) });
            }
            now = self.wait(now, over, Wait::Ranks);
        }
        // Ranks come to these at nearly the same moment, as with programs.
        for tie in &program.ties {
            let Some(group) = tie.group else { continue };
            now = self.wait(
                now,
                now + reductions.all_reduce(group, tie.gradients[0].bytes),
                Wait::Ranks,
            );
        }
        for stage in &program.stages {
            let whole = stages[stage.stage.index()].update;
            let (start, end) = (now, now + reductions.update(stage, whole));
            self.spans.push(Span { start, end, work: Work::Optimizer(stage.stage) });
            now = end;
        }
        now
    }

    /// The passes that complete the gradients of the lane's stages, in their order.
    fn last_passes(&self, program: &Program) -> Vec<(usize, (Nanos, Nanos))> {
        let mut found: Vec<(usize, (Nanos, Nanos))> = vec![];
        for span in self.spans.iter().rev() {
            let Work::Run(Action { stage, kind, .. }) = span.work else { continue };
            let ends = matches!(kind, ActionKind::Backward | ActionKind::BackwardWeight);
            let at = program.stages.iter().position(|s| s.stage == stage).filter(|_| ends);
            if let Some(at) = at
                && found.iter().all(|(known, _)| *known != at)
            {
                found.push((at, (span.start, span.end)));
                if found.len() == program.stages.len() {
                    break;
                }
            }
        }
        found.reverse();
        found
    }

    /// The step ends when what was sent is received.
    fn wait_for_all(&mut self, mut now: Nanos, taken: impl Iterator<Item = Nanos>) {
        for moment in taken {
            now = self.wait(now, moment, Wait::Receiver);
        }
    }
}
