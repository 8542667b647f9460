//! Worth of a choice: stages, memory, messages, gradients, then the schedule's simulation.

use super::choice::{Figures, lane_link};
use super::{Chain, Choice, Scored, Space};
use crate::cost::collective::{Group, Price, price};
use crate::cost::memory::Sharding;
use crate::ids::LaneId;
use crate::schedule::Schedule;
use crate::simulate::{Estimate, Footprint, Hop, Sends, StageCost, estimate};
use crate::units::{Bytes, Nanos};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Scores a choice. Where recomputation is open and a lane does not fit, its stages compute again.
/// `None` where the schedule does not exist for these numbers.
pub(super) fn evaluate(
    space: &Space<'_>,
    chains: &BTreeMap<(u64, u32), Arc<Chain>>,
    mut choice: Choice,
) -> Option<Scored> {
    let chain = chains.get(&(choice.samples(space.mini_batch), choice.tensor))?;
    let schedule = choice.schedule.generate(choice.stages(), choice.micro_batches).ok()?;
    let (mut laid, mut found) = run(space, chain, &schedule, &choice)?;
    if space.fixed.recompute.is_none() && found.peak() > space.memory {
        (laid, found) = make_it_fit(space, chain, &schedule, &mut choice, found)?;
    }
    // Steady schedules never stop: their step is the time between two of them.
    let makespan = found.steady.map(|each| each * u64::from(choice.micro_batches));
    let ends = found.lanes.iter().zip(&laid.gradients).map(|(lane, sum)| lane.end + *sum);
    let step = makespan.or(ends.max())?;
    let gradients = step.saturating_sub(found.makespan);
    let (peak, bubble) = (found.peak(), found.bubble());
    Some(Scored { peak, traffic: laid.traffic, bubble, gradients, step, choice })
}

fn run(
    space: &Space<'_>,
    chain: &Chain,
    schedule: &Schedule,
    choice: &Choice,
) -> Option<(Laid, Estimate)> {
    let laid = Laid::new(space, chain, choice);
    let edges = space.encoding(choice).edges;
    let hop = |hop: Hop| {
        let (link, codec) = lane_link(&space.cluster, choice, edges, (hop.from.0, hop.to.0));
        space.cluster.message_time(&link, codec, laid.borders[hop.boundary.index() + 1])
    };
    let found = estimate(schedule, &laid.costs, &laid.footprints, Sends::Outbox, hop).ok()?;
    Some((laid, found))
}

/// Lanes that do not fit compute their activations again, where that makes them smaller.
fn make_it_fit(
    space: &Space<'_>,
    chain: &Chain,
    schedule: &Schedule,
    choice: &mut Choice,
    before: Estimate,
) -> Option<(Laid, Estimate)> {
    let over = |lane: &LaneId| before.lanes[lane.index()].peak > space.memory;
    let lanes: Vec<LaneId> = (0..choice.lanes).map(LaneId).filter(over).collect();
    let set = |choice: &mut Choice, lane: LaneId, again: bool| {
        for stage in schedule.stages_of(lane) {
            choice.recompute[stage.index()] = again;
        }
    };
    lanes.iter().for_each(|lane| set(choice, *lane, true));
    let after = run(space, chain, schedule, choice)?;
    let no_less =
        |lane: &&LaneId| after.1.lanes[lane.index()].peak >= before.lanes[lane.index()].peak;
    let in_vain: Vec<LaneId> = lanes.iter().filter(no_less).copied().collect();
    if in_vain.is_empty() {
        return Some(after);
    }
    in_vain.iter().for_each(|lane| set(choice, *lane, false));
    run(space, chain, schedule, choice)
}

/// Figures that no way to run the choice can beat: lanes that are busy from the moment at which
/// the first micro-batch reaches them. O(stages).
pub(super) fn bound(space: &Space<'_>, chain: &Chain, choice: &Choice) -> Figures {
    let laid = Laid::new(space, chain, choice);
    let routes = choice.schedule.placement().routes(choice.lanes);
    let share = u64::from(choice.micro_batches) / routes.len() as u64;
    let lanes = choice.lanes as usize;
    let (mut busy, mut update) = (vec![Nanos::ZERO; lanes], vec![Nanos::ZERO; lanes]);
    let (mut start, mut peak) = (vec![Nanos(u64::MAX); lanes], vec![Bytes::ZERO; lanes]);
    for route in &routes {
        let mut reached = Nanos::ZERO;
        for ((lane, cost), footprint) in route.iter().zip(&laid.costs).zip(&laid.footprints) {
            let lane = lane.index();
            start[lane] = start[lane].min(reached);
            busy[lane] += (cost.forward + cost.backward()) * share;
            update[lane] += cost.update;
            peak[lane] += footprint.persistent(1);
            reached += cost.forward;
        }
    }
    let end = |lane: usize| start[lane] + busy[lane] + update[lane] + laid.gradients[lane];
    let step = (0..lanes).map(end).max().unwrap_or_default();
    let peak = peak.into_iter().max().unwrap_or_default();
    Figures { step, peak, traffic: laid.traffic }
}

/// A choice in numbers.
struct Laid {
    /// By stage.
    costs: Vec<StageCost>,
    /// By stage.
    footprints: Vec<Footprint>,
    /// By stage: what crosses the border before it in a micro-batch, on each tensor-parallel rank.
    borders: Vec<Bytes>,
    /// By stage: gradients, whoever keeps them.
    summed: Vec<Bytes>,
    /// By lane: the sum of gradients over replicas.
    gradients: Vec<Nanos>,
    traffic: Bytes,
}

impl Laid {
    fn new(space: &Space<'_>, chain: &Chain, choice: &Choice) -> Self {
        let ends = choice.starts.iter().copied().chain([chain.len() as u32]);
        let ranges: Vec<(u32, u32)> = [0].iter().chain(&choice.starts).copied().zip(ends).collect();
        let mut laid = Self {
            costs: vec![],
            footprints: vec![],
            borders: ranges.iter().map(|(from, _)| chain.input(*from)).collect(),
            summed: vec![],
            gradients: vec![],
            traffic: Bytes::ZERO,
        };
        for (&(from, to), &again) in ranges.iter().zip(&choice.recompute) {
            laid.stage(space, chain, choice, (from, to), again);
        }
        laid.messages(space, choice);
        laid.sum_gradients(space, choice);
        laid
    }

    fn stage(
        &mut self,
        space: &Space<'_>,
        chain: &Chain,
        choice: &Choice,
        (from, to): (u32, u32),
        again: bool,
    ) {
        let sums = chain.range(from, to);
        let parameters = sums.parameters.0 / space.parameter_bytes.max(1);
        let state = space.states.bytes(parameters, choice.replicas);
        self.summed.push(space.states.bytes(parameters, 1).gradients);
        // As in the roofline: reads and writes weights, gradients and optimizer state.
        let moved = state.total() * 2;
        let update = moved.0 as f64 / space.cluster.device.memory_bytes_per_sec;
        let output = if to < chain.len() as u32 { chain.input(to) } else { Bytes::ZERO };
        let (stash, backward) = match again {
            true => kept(chain, choice, (from, to)),
            false => (sums.stash, Bytes::ZERO),
        };
        self.footprints.push(Footprint {
            weights: state.weights,
            gradients: state.gradients,
            optimizer: state.optimizer,
            buffers: (chain.input(from) + output) * 2,
            stash,
            backward,
            ..Footprint::default()
        });
        let recomputed = if again { sums.forward } else { Nanos::ZERO };
        self.costs.push(StageCost {
            forward: sums.forward,
            backward_input: sums.backward_input + recomputed,
            backward_weight: sums.backward_weight,
            update: Nanos::from_secs(update),
        });
    }

    /// Activations and their gradients between lanes, once per micro-batch and direction.
    fn messages(&mut self, space: &Space<'_>, choice: &Choice) {
        let edges = space.encoding(choice).edges;
        let routes = choice.schedule.placement().routes(choice.lanes);
        let share = u64::from(choice.micro_batches) / routes.len() as u64;
        let copies = u64::from(choice.replicas) * u64::from(choice.tensor);
        for route in &routes {
            for (border, lanes) in self.borders[1..].iter().zip(route.windows(2)) {
                if lanes[0] != lanes[1] {
                    let ends = (lanes[0].0, lanes[1].0);
                    let (_, codec) = lane_link(&space.cluster, choice, edges, ends);
                    self.traffic += codec.bytes(*border) * (2 * share * copies);
                }
            }
        }
    }

    fn sum_gradients(&mut self, space: &Space<'_>, choice: &Choice) {
        let routes = choice.schedule.placement().routes(choice.lanes);
        let group = choice.replicas * routes.len() as u32;
        let mut bytes = vec![Bytes::ZERO; choice.lanes as usize];
        for route in &routes {
            for (lane, summed) in route.iter().zip(&self.summed) {
                bytes[lane.index()] += *summed;
            }
        }
        let ranks = f64::from(choice.replicas) * f64::from(choice.tensor);
        for n in bytes {
            let sum = sum(space, choice, group, n.0 as f64);
            self.gradients.push(Nanos::from_secs(sum.seconds));
            // A half of a sum of all gradients behind each pass where ranks keep parts of them, and one of parameters.
            let passes = match space.states.sharding {
                Sharding::Gradients => f64::from(choice.micro_batches),
                _ => 1.0,
            };
            self.traffic += Bytes((sum.sent * ranks * (1.0 + passes) / 2.0) as u64);
        }
    }
}

/// What a recomputing stage keeps of each micro-batch, and what it holds while it rebuilds the rest:
/// each block's input and one block at a time, or the stage's input and everything, whichever is
/// less with as many micro-batches in flight as lanes.
fn kept(chain: &Chain, choice: &Choice, (from, to): (u32, u32)) -> (Bytes, Bytes) {
    let sums = chain.range(from, to);
    let in_flight = u64::from(choice.micro_batches.min(choice.lanes));
    let by_block = (sums.inputs, chain.largest_stash(from, to));
    let by_stage = (chain.input(from), sums.stash);
    let bytes = |(kept, rebuilt): (Bytes, Bytes)| kept * in_flight + rebuilt;
    if bytes(by_block) <= bytes(by_stage) { by_block } else { by_stage }
}

/// The sum of `n` bytes of gradients over the `group` ranks that hold the same stage.
pub(super) fn sum(space: &Space<'_>, choice: &Choice, group: u32, n: f64) -> Price {
    let near = (space.cluster.ranks_per_node / choice.tensor).clamp(1, group);
    let way = space.encoding(choice);
    price(&space.cluster, &Group::even(group, near), way.by_hosts, way.gradients, n)
}
