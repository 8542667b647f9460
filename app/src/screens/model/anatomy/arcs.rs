//! Skip connections: values that are read further on than in the next layer.

use super::chain::Chain;
use pipewright_core::graph::Graph;

/// A layer and a later one that reads a value of it; at least one layer lies between.
pub type Skip = (usize, usize);

/// A skip between two rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arc {
    pub from: usize,
    pub to: usize,
    /// Its column, 0 next to the rows.
    pub column: usize,
}

/// Columns that arcs are put in; what finds none free shares the outermost.
pub const COLUMNS: usize = 6;

/// The skips of a graph, each once. Samples and targets are loaded where they are read.
pub fn skips(graph: &Graph, of: impl Fn(usize) -> usize) -> Vec<Skip> {
    let mut found = vec![];
    for (reader, node) in graph.nodes().iter().enumerate() {
        for input in &node.inputs {
            let (from, to) = (of(input.index()), of(reader));
            if to > from + 1 && !graph.node(*input).op.is_source() {
                found.push((from, to));
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// The skips as arcs between rows; those within a folded row, or to the row below, are none.
/// Short ones stand nearest to the rows.
pub fn arcs(skips: &[Skip], chain: &Chain) -> Vec<Arc> {
    let rows = |(from, to): &Skip| (chain.row_of(*from), chain.row_of(*to));
    let mut pairs: Vec<(usize, usize)> = skips.iter().map(rows).collect();
    // A header between two layers is no layer.
    pairs.retain(|(a, b)| chain.rows[(a + 1).min(*b)..*b].iter().any(|r| !r.is_open()));
    let mut spans: Vec<(usize, usize)> = pairs.into_iter().map(|(a, b)| (b - a, a)).collect();
    spans.sort_unstable();
    spans.dedup();
    let arc = |(span, from)| Arc { from, to: from + span, column: 0 };
    let mut arcs: Vec<Arc> = spans.into_iter().map(arc).collect();
    let mut taken: Vec<Vec<(usize, usize)>> = vec![vec![]; COLUMNS];
    for arc in &mut arcs {
        let free = |column: &Vec<(usize, usize)>| {
            // Columns are sorted by their first row: the one before and the one after can touch.
            let at = column.partition_point(|(from, _)| *from < arc.from);
            at.checked_sub(1).is_none_or(|before| column[before].1 <= arc.from)
                && column.get(at).is_none_or(|(from, _)| *from >= arc.to)
        };
        arc.column = taken.iter().position(free).unwrap_or(COLUMNS - 1);
        let column = &mut taken[arc.column];
        let at = column.partition_point(|(from, _)| *from < arc.from);
        column.insert(at, (arc.from, arc.to));
    }
    arcs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screens::model::anatomy::{Anatomy, fold};
    use pipewright_core::graph::presets::Preset;

    fn chain(anatomy: &Anatomy, open: bool) -> Chain {
        let groups = fold::groups(anatomy.layers.iter().map(|l| l.name.as_str()));
        Chain::new(anatomy.layers.len(), &groups, &vec![open; groups.len()], &[])
    }

    #[test]
    fn a_u_net_has_an_arc_for_each_level() {
        let anatomy = Anatomy::new(&Preset::Unet { blocks: 2, channels: 8 }.graph().unwrap());
        assert!(anatomy.skips.len() >= 4, "{:?}", anatomy.skips);
        let chain = chain(&anatomy, true);
        let arcs = arcs(&anatomy.skips, &chain);
        assert_eq!(arcs.len(), anatomy.skips.len());
        // Nested: each level has a column of its own, and no two in one column overlap.
        for (i, a) in arcs.iter().enumerate() {
            for b in &arcs[..i] {
                let apart = a.to <= b.from || b.to <= a.from;
                assert!(apart || a.column != b.column, "{arcs:?}");
            }
        }
    }

    #[test]
    fn chains_have_none_and_folding_hides_them() {
        assert!(Anatomy::new(&Preset::Vgg16.graph().unwrap()).skips.is_empty());
        assert!(Anatomy::new(&Preset::Gpt2.graph().unwrap()).skips.is_empty());
        let anatomy = Anatomy::new(&Preset::AmoebanetD { layers: 6, filters: 32 }.graph().unwrap());
        let (open, folded) = (chain(&anatomy, true), chain(&anatomy, false));
        let (open, folded) = (arcs(&anatomy.skips, &open), arcs(&anatomy.skips, &folded));
        assert!(!open.is_empty() && folded.len() < open.len(), "{open:?} {folded:?}");
    }
}
