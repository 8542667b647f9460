//! Typing over a layer's time: its nodes become measured ones whose times keep their proportions and
//! add up to what was typed.

use super::Anatomy;
use crate::base::shared::Shared;
use crate::base::texts::{t, tr};
use crate::planner::engine;
use crate::planner::inputs::Inputs;
use crate::planner::times::{Times, Typed, TypedLayer};
use pipewright_core::cost::{Cluster, Costs, MeasuredNode, NodeCost, Sample, SplitSample};
use pipewright_core::graph::autodiff::ComputationKind;
use pipewright_core::graph::{Graph, Precision};
use pipewright_core::units::Nanos;

/// Which pass a time is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    Forward,
    Backward,
}

impl Pass {
    pub const BOTH: [Self; 2] = [Self::Forward, Self::Backward];

    pub fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
        }
    }

    fn has(self, kind: ComputationKind) -> bool {
        (self == Self::Forward) == (kind == ComputationKind::Forward)
    }
}

/// An hour: nobody waits longer for a micro-batch.
const MOST_MS: f64 = 3.6e6;

/// A typed number of milliseconds.
///
/// # Errors
/// What is expected.
pub fn parse(text: &str) -> Result<Nanos, String> {
    let number = text.trim().replace(',', ".").parse::<f64>().ok();
    let number = number.filter(|ms| (0.0..=MOST_MS).contains(ms));
    let nanos = number.map(|ms| Nanos((ms * 1e6).round() as u64));
    nanos.ok_or_else(|| t("Times are milliseconds from 0 to 3600000, such as 1.25.").into())
}

/// A time as a box shows it: milliseconds, to a tenth of a microsecond.
pub fn written(time: Nanos) -> String {
    let text = format!("{:.4}", time.0 as f64 / 1e6);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The typed times with one more.
///
/// # Errors
/// For a layer that computes nothing in that pass.
pub fn typed(
    inputs: &Inputs,
    graph: &Graph,
    anatomy: &Anatomy,
    layer: usize,
    pass: Pass,
    time: Nanos,
) -> Result<Times, String> {
    let parts: Vec<(usize, ComputationKind)> =
        anatomy.work[layer].iter().copied().filter(|(_, kind)| pass.has(*kind)).collect();
    if parts.is_empty() {
        let name = &anatomy.layers[layer].name;
        return Err(match pass {
            Pass::Forward => tr!("{name} computes nothing in its forward pass.", name),
            Pass::Backward => tr!("{name} computes nothing in its backward pass.", name),
        });
    }
    let now = Typed { time, samples: engine::samples(inputs) };
    let chosen = inputs.cluster.cluster();
    let range = anatomy.layers[layer].nodes.clone();
    let computes = |node: &usize| anatomy.work[layer].iter().any(|(n, _)| n == node);
    let nodes: Vec<usize> = (range.start as usize..range.end as usize).filter(computes).collect();
    let ground = |cluster| Ground::new(graph, cluster, inputs.rest.training.precision);
    let scale = Scale { own: ground(&chosen), with: ground(&inputs.cluster()) };
    let nodes = scale.nodes(&nodes, &parts, pass, now);
    let known = inputs.typed().and_then(|times| times.of(layer as u32));
    let mut typed = TypedLayer {
        layer: layer as u32,
        forward: known.and_then(|k| k.forward),
        backward: known.and_then(|k| k.backward),
        nodes,
    };
    match pass {
        Pass::Forward => typed.forward = Some(now),
        Pass::Backward => typed.backward = Some(now),
    }
    let mut layers = inputs.typed().map(|times| times.layers.clone()).unwrap_or_default();
    layers.retain(|other| other.layer != typed.layer);
    let at = layers.partition_point(|other| other.layer < typed.layer);
    layers.insert(at, typed);
    Ok(Times { model: inputs.model.clone(), layers })
}

/// Takes the typed times of a layer back; of all of them where it is `None`.
pub fn reset(inputs: &mut Inputs, layer: Option<usize>) {
    let Some(mut times) = inputs.typed().map(|times| (**times).clone()) else { return };
    times.layers.retain(|typed| layer.is_some_and(|layer| typed.layer != layer as u32));
    inputs.times = (!times.layers.is_empty()).then(|| Shared::new(times));
}

/// Costs by micro-batch size, each computed once.
struct Ground<'a> {
    graph: &'a Graph,
    cluster: Cluster,
    precision: Precision,
    costs: Vec<Costs>,
}

impl<'a> Ground<'a> {
    fn new(graph: &'a Graph, cluster: &Cluster, precision: Precision) -> Self {
        Self { graph, cluster: cluster.clone(), precision, costs: vec![] }
    }

    fn node(&mut self, samples: u64, node: usize) -> NodeCost {
        let known = self.costs.iter().position(|c| c.samples == samples);
        let at = known.unwrap_or_else(|| {
            self.costs.push(Costs::new(self.graph, &self.cluster, samples, self.precision));
            self.costs.len() - 1
        });
        self.costs[at].nodes[node]
    }

    /// The sizes at which a node was measured.
    fn sizes(&self, node: usize) -> Vec<u64> {
        let profile = self.cluster.profile.iter().filter(|p| p.model == self.graph.name());
        let name = &self.graph.nodes()[node].name;
        let found = profile.flat_map(|p| &p.nodes).find(|measured| measured.node == *name);
        found.map(|n| n.samples.iter().map(|s| s.samples).collect()).unwrap_or_default()
    }
}

/// The times as the cluster has them, and with what was typed before.
struct Scale<'a> {
    own: Ground<'a>,
    with: Ground<'a>,
}

impl Scale<'_> {
    fn nodes(
        mut self,
        nodes: &[usize],
        parts: &[(usize, ComputationKind)],
        pass: Pass,
        to: Typed,
    ) -> Vec<MeasuredNode> {
        let total: Nanos =
            parts.iter().map(|(node, kind)| self.own.node(to.samples, *node).of(*kind)).sum();
        let factor = (total > Nanos::ZERO).then(|| to.time.0 as f64 / total.0 as f64);
        let measure = |node: &usize| {
            let mut sizes = self.with.sizes(*node);
            let at = sizes.partition_point(|size| *size < to.samples);
            if sizes.get(at) != Some(&to.samples) {
                sizes.insert(at, to.samples);
            }
            // Two sizes say what a computation costs whatever the size.
            if sizes.len() == 1 {
                sizes.push(2 * to.samples);
            }
            let sample = |samples: &u64| {
                let own = self.own.node(*samples, *node);
                let with = self.with.node(*samples, *node);
                scaled(own, with, pass, factor.unwrap_or(0.0), *samples)
            };
            let samples = sizes.iter().map(sample).collect();
            MeasuredNode { node: self.own.graph.nodes()[*node].name.clone(), samples }
        };
        let mut measured: Vec<MeasuredNode> = nodes.iter().map(measure).collect();
        settle(&mut measured, nodes, parts, to);
        measured
    }
}

/// A node's times where those of a pass are `factor` times the cluster's own.
fn scaled(own: NodeCost, with: NodeCost, pass: Pass, factor: f64, samples: u64) -> Sample {
    let times = |time: Nanos| Nanos((time.0 as f64 * factor).round() as u64);
    let forward = if pass == Pass::Forward { times(own.forward) } else { with.forward };
    let backward = |own: Nanos, with: Nanos| if pass == Pass::Backward { times(own) } else { with };
    let input_gradient_ns = backward(own.input_gradient, with.input_gradient);
    let weight_gradient_ns = backward(own.weight_gradient, with.weight_gradient);
    let split = SplitSample {
        input_gradient_ns: backward(own.split_input_gradient, with.split_input_gradient),
        weight_gradient_ns: backward(own.split_weight_gradient, with.split_weight_gradient),
    };
    let same = (split.input_gradient_ns, split.weight_gradient_ns);
    Sample {
        samples,
        forward_ns: forward,
        input_gradient_ns,
        weight_gradient_ns,
        sum_gradients_ns: backward(own.sum_gradients, with.sum_gradients),
        update_ns: with.update,
        split: (same != (input_gradient_ns, weight_gradient_ns)).then_some(split),
    }
}

/// Rounding, or all of a time that had no proportions, goes to the longest computation.
fn settle(
    measured: &mut [MeasuredNode],
    order: &[usize],
    parts: &[(usize, ComputationKind)],
    to: Typed,
) {
    let place = |node: usize| order.iter().position(|n| *n == node).expect("parts are of these");
    let at = |node: &MeasuredNode| node.samples.iter().position(|s| s.samples == to.samples);
    let mut sum = Nanos::ZERO;
    let mut longest = (parts[0], Nanos::ZERO);
    for part in parts {
        let node = &mut measured[place(part.0)];
        let index = at(node).expect("this size is among them");
        let time = *field(&mut node.samples[index], part.1);
        sum += time;
        if time > longest.1 {
            longest = (*part, time);
        }
    }
    let ((node, kind), _) = longest;
    let node = &mut measured[place(node)];
    let index = at(node).expect("this size is among them");
    let missing = i128::from(to.time.0) - i128::from(sum.0);
    for sample in &mut node.samples[index..] {
        let more = match sum {
            Nanos::ZERO => missing * i128::from(sample.samples) / i128::from(to.samples),
            _ => missing,
        };
        let own = field(sample, kind);
        *own = Nanos((i128::from(own.0) + more).max(0) as u64);
    }
}

fn field(sample: &mut Sample, kind: ComputationKind) -> &mut Nanos {
    match kind {
        ComputationKind::Forward | ComputationKind::PartialLoss => &mut sample.forward_ns,
        ComputationKind::InputGradient => &mut sample.input_gradient_ns,
        ComputationKind::WeightGradient => &mut sample.weight_gradient_ns,
        // Nothing is gathered or scattered in a whole lane.
        _ => &mut sample.sum_gradients_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::content::{Content, recognise};
    use crate::planner::engine::Ground;
    use crate::planner::presets::{EXAMPLES, first};
    use crate::screens::model::anatomy::Passes;

    struct Bench {
        inputs: Inputs,
        anatomy: Anatomy,
    }

    impl Bench {
        fn new(inputs: Inputs) -> Self {
            Self { anatomy: Anatomy::new(&inputs.model.graph()), inputs }
        }

        fn times(&self) -> Vec<Passes> {
            self.anatomy.times(&Ground::of(&self.inputs).costs)
        }

        fn step(&self) -> Nanos {
            engine::solve(&self.inputs, &Ground::of(&self.inputs)).unwrap().figures.step
        }

        fn edit(&mut self, layer: usize, pass: Pass, time: u64) {
            let graph = self.inputs.model.graph();
            let times = typed(&self.inputs, &graph, &self.anatomy, layer, pass, Nanos(time));
            self.inputs.times = Some(Shared::new(times.unwrap()));
        }
    }

    #[test]
    fn a_layer_takes_what_was_typed_and_the_others_what_they_took() {
        for example in &EXAMPLES {
            let mut bench = Bench::new(example.inputs());
            let before = bench.times();
            bench.edit(2, Pass::Forward, 12_345_677);
            bench.edit(2, Pass::Backward, 7_654_321);
            bench.edit(1, Pass::Backward, 0);
            let after = bench.times();
            assert_eq!(after[2], Passes { forward: Nanos(12_345_677), backward: Nanos(7_654_321) });
            assert_eq!(after[1], Passes { forward: before[1].forward, backward: Nanos::ZERO });
            assert_eq!((after[0], &after[3..]), (before[0], &before[3..]), "{}", example.title);
            // What came to nothing comes back in the cluster's proportions.
            bench.edit(1, Pass::Backward, before[1].backward.0);
            assert_eq!(bench.times()[1], before[1]);
            reset(&mut bench.inputs, Some(1));
            assert_eq!(bench.inputs.typed().unwrap().layers.len(), 1);
            reset(&mut bench.inputs, None);
            assert_eq!(bench.times(), before);
            assert_eq!(bench.inputs, example.inputs());
        }
    }

    #[test]
    fn other_sizes_follow() {
        let mut bench = Bench::new(first());
        let before = bench.times()[3];
        bench.edit(3, Pass::Forward, before.forward.0 * 3);
        bench.inputs.micro_batches *= 2;
        let half = bench.times()[3];
        reset(&mut bench.inputs, None);
        let share = half.forward.0 as f64 / bench.times()[3].forward.0 as f64;
        assert!((2.99..3.01).contains(&share), "{share}");
    }

    #[test]
    fn exported_plans_have_the_times() {
        let mut bench = Bench::new(first());
        let usual = bench.step();
        bench.edit(5, Pass::Forward, 900_000_000);
        let step = bench.step();
        assert!(step > usual);
        let (plan, _) = bench.inputs.plan().unwrap();
        assert!(plan.cluster.profile.as_ref().is_some_and(|p| p.check().is_ok()));
        let Ok(Content::Plan(read)) = recognise("plan.json", &plan.to_json()) else {
            panic!("no plan")
        };
        let read = Bench::new(*read);
        assert_eq!(read.step(), step);
        // There they are measured: typing over them scales what was measured.
        let mut again = read;
        again.edit(5, Pass::Forward, 1_000_000_000);
        assert_eq!(again.times()[5].forward, Nanos(1_000_000_000));
        let other = bench.times()[4];
        assert_eq!(again.times()[4], other);
    }

    #[test]
    fn times_stay_with_their_model() {
        let mut bench = Bench::new(first());
        bench.edit(5, Pass::Forward, 1_000_000);
        let model = std::mem::replace(&mut bench.inputs.model, EXAMPLES[2].inputs().model);
        assert!(bench.inputs.typed().is_none());
        assert!(bench.inputs.cluster().profile.is_none());
        bench.inputs.model = model;
        assert!(bench.inputs.typed().is_some());
    }

    #[test]
    fn times_are_read_and_written_in_milliseconds() {
        assert_eq!(parse(" 1.25 "), Ok(Nanos(1_250_000)));
        assert_eq!(parse("0,5"), Ok(Nanos(500_000)));
        assert_eq!(written(Nanos(1_250_000)), "1.25");
        assert_eq!(written(Nanos(2_000_000)), "2");
        assert_eq!(written(Nanos(0)), "0");
        for bad in ["", "x", "-1", "NaN", "inf", "1e9"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
