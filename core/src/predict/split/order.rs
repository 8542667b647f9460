//! Another order of the layers, where branches side by side are better divided than cut through.
//!
//! Cuts divide the nodes in their order; the exact split of the graph ([`exact`]) divides it between any two
//! downsets. Its stages are ranges once the layers are sorted by stage.

use super::sketch::Sketch;
use super::trial::Trials;
use super::{DOWNSETS, SplitError};
use crate::cost::Workload;
use crate::graph::{Graph, GraphParts, Layer, Node, Op};
use crate::ids::{NodeId, ParamId};
use crate::order::sort_by_numbers;
use crate::partition::{Pipeline, exact};
use crate::plan::{Draft, ScheduleText};

/// The network of `draft` with its layers in the order of the stages of its exact split, layers whole; none
/// where they are in that order already, or where a parameter is shared. Parameters keep their names, so
/// that it is the same network to a run.
///
/// # Errors
/// A draft that makes no plan.
pub fn reordered(draft: &Draft, order: &ScheduleText) -> Result<Option<Graph>, SplitError> {
    let trials = Trials::new(draft, order)?;
    let sketch = Sketch::new(&trials, false);
    let graph = &trials.graph;
    if graph.nodes().iter().any(|node| matches!(node.op, Op::TiedLinear { .. })) {
        return Ok(None);
    }
    let stage_of = stages(&trials, sketch.work);
    let Some(stage_of) = stage_of.filter(|stages| !stages.is_sorted()) else { return Ok(None) };
    let mut layers: Vec<usize> = (0..stage_of.len()).collect();
    sort_by_numbers(&mut layers, |layer| [stage_of[*layer] as u64, 0]);
    Ok(in_order(graph, &layers))
}

/// By layer: its stage in the exact split.
fn stages(trials: &Trials, mut work: Workload) -> Option<Vec<u32>> {
    let graph = &trials.graph;
    let stages = trials.schedule.stages();
    for (layer, group) in (0..graph.layers().len()).zip(0..) {
        for node in graph.layer_nodes(layer) {
            work.items[node as usize].rules.group = Some(group);
        }
    }
    // A full pipeline does not wait for its messages.
    let link = (!trials.is_steady()).then_some(trials.plan.cluster.local);
    let line = Pipeline { link, limit: DOWNSETS, ..Pipeline::of(stages) };
    let placement = exact(&work, &line).ok()?;
    let stage_of = placement.stage_of_item(work.items.len());
    let all = placement.stages.len() == stages as usize;
    all.then(|| graph.layers().iter().map(|layer| stage_of[layer.first_node.index()]).collect())
}

/// The graph with its layers in this order; none where that is no order for it.
fn in_order(graph: &Graph, layers: &[usize]) -> Option<Graph> {
    let old: Vec<u32> = layers.iter().flat_map(|layer| graph.layer_nodes(*layer)).collect();
    let mut new = vec![NodeId(0); old.len()];
    for (at, node) in (0..).zip(&old) {
        new[*node as usize] = NodeId(at);
    }
    let (mut nodes, mut params) = (vec![], vec![]);
    for node in old.iter().map(|node| &graph.nodes()[*node as usize]) {
        let own = node.params.iter().map(|id| {
            params.push(graph.param(*id).clone());
            ParamId(params.len() as u32 - 1)
        });
        let own = own.collect();
        let inputs = node.inputs.iter().map(|input| new[input.index()]).collect();
        nodes.push(Node { params: own, inputs, ..node.clone() });
    }
    let moved = layers.iter().map(|layer| {
        let layer = &graph.layers()[*layer];
        Layer { first_node: new[layer.first_node.index()], ..layer.clone() }
    });
    let layers = moved.collect();
    Graph::new(GraphParts { name: graph.name().into(), nodes, params, layers }).ok()
}
