//! The chain as rows with places: which layers a row stands for, how high it is, and which border
//! between layers is nearest to a height.

use super::fold::{Group, LayerRow};
use std::ops::Range;

/// Height of a layer's row, CSS pixels.
pub const ROW: f64 = 28.0;

/// Rows with their upper edges.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    pub rows: Vec<LayerRow>,
    /// Of each row, and the end of the last.
    tops: Vec<f64>,
}

impl Chain {
    /// `cuts` are the borders of stages, as layers: a folded row has room for each stage in it, below
    /// its own line.
    pub fn new(layers: usize, groups: &[Group], open: &[bool], cuts: &[usize]) -> Self {
        let rows = super::fold::rows(layers, groups, open);
        let mut tops = vec![0.0];
        let mut top = 0.0;
        for row in &rows {
            let from = cuts.partition_point(|c| *c <= row.first);
            let inside = cuts.partition_point(|c| *c < row.end) - from;
            let lines = if row.is_open() || inside == 0 { 1 } else { inside + 2 };
            top += ROW * lines as f64;
            tops.push(top);
        }
        Self { rows, tops }
    }

    /// The height of all rows.
    pub fn height(&self) -> f64 {
        self.tops[self.rows.len()]
    }

    /// Upper and lower edge of a row.
    pub fn span(&self, row: usize) -> (f64, f64) {
        (self.tops[row], self.tops[row + 1])
    }

    /// Where a row's borders are: below its line, where it has room for them.
    fn field(&self, row: usize) -> (f64, f64) {
        let (top, bottom) = self.span(row);
        (if bottom - top > ROW { top + ROW } else { top }, bottom)
    }

    /// The rows that can be seen between two heights.
    pub fn visible(&self, top: f64, bottom: f64) -> Range<usize> {
        let first = self.tops.partition_point(|t| *t <= top).saturating_sub(1);
        let end = self.tops.partition_point(|t| *t < bottom);
        first.min(self.rows.len())..end.min(self.rows.len())
    }

    /// The row that shows a layer: its own, or the folded one that it is in.
    pub fn row_of(&self, layer: usize) -> usize {
        let last = self.rows.partition_point(|r| r.first <= layer).saturating_sub(1);
        last.min(self.rows.len().saturating_sub(1))
    }

    /// The row that stands for the same as `row` does, or shows its first layer.
    pub fn find(&self, row: &LayerRow) -> usize {
        let from = self.rows.partition_point(|r| r.first < row.first);
        let same = self.rows[from..].iter().take_while(|r| r.first == row.first);
        same.enumerate()
            .find(|(_, r)| r.stands_for(row))
            .map_or_else(|| self.row_of(row.first), |(at, _)| from + at)
    }

    /// The row that `row` is folded into.
    pub fn parent(&self, row: usize) -> Option<usize> {
        let level = self.rows[row].level.checked_sub(1)?;
        self.rows[..row].iter().rposition(|r| r.level == level && r.is_open())
    }

    /// Where the border before a layer is: between two rows, or inside of a folded one.
    pub fn border(&self, layer: usize) -> f64 {
        let from = self.rows.partition_point(|r| r.first < layer);
        if let Some(row) = self.rows.get(from).filter(|r| r.first == layer) {
            debug_assert_eq!(row.first, layer);
            return self.tops[from];
        }
        let Some(row) = from.checked_sub(1) else { return 0.0 };
        let LayerRow { first, end, .. } = self.rows[row];
        let (top, bottom) = self.field(row);
        top + (bottom - top) * (layer.min(end) - first) as f64 / (end - first) as f64
    }

    /// The layer whose border is nearest to a height.
    pub fn near(&self, y: f64) -> usize {
        let row = self.tops.partition_point(|t| *t <= y).saturating_sub(1);
        let Some(LayerRow { first, end, .. }) = self.rows.get(row).copied() else {
            return self.rows.last().map_or(0, |r| r.end);
        };
        let (top, bottom) = self.field(row);
        if self.rows[row].is_open() {
            return first;
        }
        let share = ((y - top) / (bottom - top)).clamp(0.0, 1.0);
        first + (share * (end - first) as f64).round() as usize
    }
}

/// Layers whose name has a text in it, whatever the case.
pub fn find<'a>(names: impl Iterator<Item = &'a str>, text: &str) -> Vec<usize> {
    let text = text.trim().to_ascii_lowercase();
    if text.is_empty() {
        return vec![];
    }
    let fits = |(at, name): (usize, &str)| name.to_ascii_lowercase().contains(&text).then_some(at);
    names.enumerate().filter_map(fits).collect()
}

/// Groups that must be unfolded for a layer to have a row.
pub fn around(groups: &[Group], layer: usize) -> impl Iterator<Item = usize> + '_ {
    let within = move |g: &Group| (g.first..g.end).contains(&layer);
    groups.iter().enumerate().filter(move |(_, g)| within(g)).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screens::model::anatomy::fold::groups;

    const NAMES: [&str; 7] = ["stem", "h.0", "h.1", "h.2", "h.3", "norm", "head"];

    fn chain(open: &[usize], cuts: &[usize]) -> Chain {
        let groups = groups(NAMES.into_iter());
        let open: Vec<bool> = (0..groups.len()).map(|g| open.contains(&g)).collect();
        Chain::new(NAMES.len(), &groups, &open, cuts)
    }

    #[test]
    fn borders_and_heights_are_inverse() {
        for (open, cuts) in [(vec![], vec![]), (vec![0], vec![2, 5]), (vec![], vec![2, 3, 5])] {
            let chain = chain(&open, &cuts);
            for layer in 1..NAMES.len() {
                assert_eq!(chain.near(chain.border(layer)), layer, "{open:?} {cuts:?}");
            }
            assert_eq!(chain.near(1e9), NAMES.len());
            assert_eq!(chain.near(-5.0), 0);
        }
    }

    #[test]
    fn a_folded_row_has_room_for_every_stage_in_it() {
        assert_eq!(chain(&[], &[]).height(), 4.0 * ROW);
        // Between layers of the block; a cut at its edge needs no room.
        assert_eq!(chain(&[], &[1, 2, 4, 5]).height(), 7.0 * ROW);
        assert_eq!(chain(&[0], &[2, 4]).height(), 8.0 * ROW);
        let folded = chain(&[], &[3]);
        assert_eq!(folded.span(1), (ROW, 4.0 * ROW));
        assert_eq!(folded.border(3), 3.0 * ROW);
    }

    #[test]
    fn only_visible_rows() {
        let names: Vec<String> = (0..10_000).map(|i| format!("{i}.x")).collect();
        let chain = Chain::new(names.len(), &[], &[], &[]);
        let seen = chain.visible(140_010.0, 140_700.0);
        assert_eq!(seen, 5000..5025);
        assert_eq!(chain.visible(-100.0, 10.0), 0..1);
        assert!(chain.visible(1e9, 2e9).is_empty());
    }

    #[test]
    fn rows_are_found_again_after_folding() {
        let (open, folded) = (chain(&[0], &[]), chain(&[], &[]));
        let row = open.rows[3];
        assert_eq!((row.first, open.parent(3)), (2, Some(1)));
        assert_eq!(folded.find(&row), 1, "what it is folded into");
        assert_eq!(open.find(&folded.rows[1]), 1, "the same group");
        assert_eq!(open.find(&open.rows[2]), 2, "the first layer of a group is not the group");
        assert_eq!(open.row_of(1), 2);
    }

    #[test]
    fn layers_are_found_by_a_part_of_their_name() {
        assert_eq!(find(NAMES.into_iter(), " H."), [1, 2, 3, 4]);
        assert_eq!(find(NAMES.into_iter(), "e"), [0, 6]);
        assert!(find(NAMES.into_iter(), " ").is_empty());
        assert_eq!(around(&groups(NAMES.into_iter()), 3).collect::<Vec<_>>(), [0]);
    }
}
