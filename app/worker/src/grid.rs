//! The picture of a graph: values of its forward pass as cells, a column a layer where layers repeat.

use crate::protocol::Grid;
use pipewright_core::recompute::file::Label;
use pipewright_core::recompute::{Layers, Problem, layers};

/// Cells of a column where nothing repeats.
const HEIGHT: usize = 24;

/// More nodes than this are not drawn one by one.
const MOST: usize = 20_000;

/// Which nodes are cells, and where.
#[derive(Clone, Debug, Default)]
pub struct Cells {
    /// By cell: its node.
    pub nodes: Vec<u32>,
    /// By node: its cell.
    pub of: Vec<Option<u32>>,
    pub grid: Grid,
}

impl Cells {
    /// Values that the backward pass reads: in repeated layers those rows of which some layer has
    /// such a value. O(nodes + edges).
    pub fn new(problem: &Problem, labels: &[Label]) -> Self {
        let mut cells = Self { of: vec![None; problem.len()], ..Self::default() };
        if labels.iter().filter(|label| label.forward).count() > MOST {
            return cells;
        }
        let forward = |node: &u32| labels[*node as usize].forward;
        let needed = |node: u32| {
            let read = !problem.readers(node).iter().all(forward);
            forward(&node) && problem.node(node).bytes > 0 && read
        };
        let needed: Vec<bool> = (0..problem.len() as u32).map(needed).collect();
        let end = labels.iter().rposition(|label| label.forward).map_or(0, |last| last + 1);
        // Where most values stand in no layer, columns of layers among others would say nothing.
        let run = layers(problem).into_iter().find(|run| {
            let inside = run.first as usize..last(run);
            let all = needed[..end].iter().filter(|needed| **needed).count();
            let covered = needed[inside].iter().filter(|needed| **needed).count();
            last(run) <= end && run.count > 2 && 2 * covered > all
        });
        let Some(run) = run else {
            cells.loose(0..end, &needed);
            return cells;
        };
        cells.loose(0..run.first as usize, &needed);
        cells.layers(run, &needed, labels);
        cells.loose(last(&run)..end, &needed);
        cells
    }

    fn push(&mut self, node: usize) {
        self.of[node] = Some(self.nodes.len() as u32);
        self.nodes.push(node as u32);
    }

    /// Nodes that belong to no layer.
    fn loose(&mut self, range: std::ops::Range<usize>, needed: &[bool]) {
        let nodes: Vec<usize> = range.filter(|node| needed[*node]).collect();
        for column in nodes.chunks(HEIGHT) {
            column.iter().for_each(|node| self.push(*node));
            self.grid.columns.push(column.len() as u32);
        }
    }

    fn layers(&mut self, run: Layers, needed: &[bool], labels: &[Label]) {
        let at = |layer: u32, place: u32| (run.first + layer * run.period + place) as usize;
        let used = |place: &u32| (0..run.count).any(|layer| needed[at(layer, *place)]);
        let places: Vec<u32> = (0..run.period).filter(used).collect();
        self.grid.layers = Some((self.grid.columns.len() as u32, run.count));
        self.grid.rows = places.iter().map(|place| short(&labels[at(0, *place)])).collect();
        for layer in 0..run.count {
            places.iter().for_each(|place| self.push(at(layer, *place)));
            self.grid.columns.push(places.len() as u32);
        }
    }
}

/// The node after the last layer.
fn last(run: &Layers) -> usize {
    (run.first + run.period * run.count) as usize
}

/// The name of an operation without where it comes from: `native_layer_norm` is long enough.
pub fn short(label: &Label) -> String {
    let op = if label.op.is_empty() { &label.name } else { &label.op };
    let op = op.strip_prefix("aten.").unwrap_or(op);
    op.trim_start_matches('_').to_owned()
}
