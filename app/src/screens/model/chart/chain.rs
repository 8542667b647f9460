//! The chain of layers as markup: the rows that can be seen, the stages beside them, the arcs of skip
//! connections.

use crate::base::format::{self, Clock, escape};
use crate::base::texts::{t, tr};
use crate::draw::fill::Fill;
use crate::draw::layers::lane_beside;
use crate::planner::engine::Solved;
use crate::screens::model::anatomy::arcs::{Arc, COLUMNS};
use crate::screens::model::anatomy::chain::{Chain, ROW};
use crate::screens::model::anatomy::fold::{Group, Kind, LayerRow};
use crate::screens::model::anatomy::{Anatomy, Passes};
use pipewright_core::units::Nanos;
use std::fmt::Write;
use std::ops::Range;

/// Room for arcs at the left of the rows, CSS pixels.
const GUTTER: f64 = 44.0;
/// More arcs than this at once are no picture; the shortest are drawn.
const ARCS_MAX: usize = 400;

/// What rows are drawn from.
pub struct Look<'a> {
    pub anatomy: &'a Anatomy,
    pub groups: &'a [Group],
    pub times: &'a [Passes],
    /// Layers with typed times, ascending.
    pub typed: &'a [u32],
    /// Of a micro-batch.
    pub samples: u64,
    /// The selected row.
    pub selected: Option<usize>,
}

impl Look<'_> {
    /// The time of a row.
    pub fn time(&self, row: &LayerRow) -> Passes {
        Passes::sum(self.times.get(row.first..row.end).unwrap_or_default())
    }

    /// What people call a row, and how many layers it stands for.
    pub fn name(&self, row: &LayerRow) -> (&str, usize) {
        let name = match row.group() {
            Some(group) => self.groups.get(group).map(|g| &g.name),
            None => self.anatomy.layers.get(row.first).map(|l| &l.name),
        };
        (name.map_or("", String::as_str), row.end - row.first)
    }

    /// Its trained values, in words.
    pub fn params(&self, row: &LayerRow) -> String {
        match self.anatomy.layers[row.first..row.end].iter().map(|l| l.params).sum() {
            0 => "–".into(),
            few @ 1..1000 => few.to_string(),
            many => format::scaled(many as f64),
        }
    }

    fn is_typed(&self, row: &LayerRow) -> bool {
        let at = self.typed.partition_point(|t| (*t as usize) < row.first);
        self.typed.get(at).is_some_and(|t| (*t as usize) < row.end)
    }

    /// The operations of a row: of one layer, or those that all its layers have.
    fn ops(&self, row: &LayerRow) -> String {
        let layers = &self.anatomy.layers[row.first..row.end];
        let first = &layers[0].ops;
        match row.kind {
            Kind::Layer => first.clone(),
            _ if layers.iter().all(|l| l.ops == *first) => {
                tr!("each {operations}", operations = first)
            }
            _ => String::new(),
        }
    }
}

/// The longest time that a bar stands for.
pub fn longest(rows: &[LayerRow], times: &[Passes]) -> Nanos {
    let bars = rows.iter().filter(|row| !row.is_open());
    let time =
        |row: &LayerRow| Passes::sum(times.get(row.first..row.end).unwrap_or_default()).both();
    bars.map(time).max().unwrap_or_default()
}

/// The names of the columns.
pub fn head(longest: Nanos) -> String {
    let columns = [
        ("ch-n", t("layer")),
        ("ch-o", t("operations")),
        ("ch-b", t("forward and backward")),
        ("ch-t", &*tr!("time, {unit}", unit = Clock::of(longest).unit)),
        ("ch-p", t("params")),
        ("ch-s", t("cut sends")),
    ];
    let mut out = String::from("<div role='row' class='ch-row' aria-rowindex='1'>");
    for (class, name) in columns {
        let _ = write!(out, "<span role='columnheader' class='{class}'>{name}</span>");
    }
    out.push_str("</div>");
    out
}

/// Some rows, each with its cells.
pub fn rows(chain: &Chain, range: Range<usize>, look: &Look, longest: Nanos) -> String {
    let clock = Clock::of(longest);
    let mut out = String::new();
    for index in range {
        row(chain, index, look, longest, &clock, &mut out);
    }
    out
}

fn row(chain: &Chain, index: usize, look: &Look, longest: Nanos, clock: &Clock, out: &mut String) {
    let row = &chain.rows[index];
    if row.end > look.anatomy.layers.len() {
        return;
    }
    let (top, bottom) = chain.span(index);
    let (name, count) = look.name(row);
    let (shown, name, time) = (ends(name), escape(name), look.time(row));
    let selected = look.selected == Some(index);
    let fold = match row.kind {
        Kind::Layer => "",
        Kind::Folded(_) => " aria-expanded='false'",
        Kind::Open(_) => " aria-expanded='true'",
    };
    let class = match (row.kind, selected) {
        (Kind::Layer, false) => "ch-row",
        (Kind::Layer, true) => "ch-row on",
        (_, false) => "ch-row ch-group",
        (_, true) => "ch-row ch-group on",
    };
    let _ = write!(
        out,
        "<div role='row' id='ch-{index}' class='{class}' data-row='{index}' data-layer='{}' aria-rowindex='{}' aria-level='{}' aria-selected='{selected}'{fold} style='top:{top:.0}px;height:{:.0}px;--in:{}'>",
        row.first,
        index + 2,
        row.level + 1,
        bottom - top,
        row.level,
    );
    let count = if count > 1 || row.group().is_some() {
        format!(" <small>× {count}</small>")
    } else {
        String::new()
    };
    let ops = look.ops(row);
    let _ = write!(
        out,
        "<span role='gridcell' class='ch-n' title='{name}'>{shown}{count}</span><span role='gridcell' class='ch-o' title='{ops}'>{ops}</span>"
    );
    bar(row, time, longest, clock, out);
    let mark = match look.is_typed(row) {
        true => format!("<b title='{}'>* </b>", t("overridden")),
        false => String::new(),
    };
    let layers = &look.anatomy.layers[row.first..row.end];
    let params = look.params(row);
    let sends = layers[layers.len() - 1].sends * look.samples;
    let sends = if sends.0 == 0 { "–".into() } else { format::bytes_text(sends) };
    let _ = write!(
        out,
        "<span role='gridcell' class='ch-t' data-nanos='{}'>{mark}{}</span><span role='gridcell' class='ch-p'>{params}</span><span role='gridcell' class='ch-s'>{sends}</span></div>",
        time.both().0,
        clock.number(time.both()),
    );
}

/// Letters of a long name that are always shown: its end says which layer it is.
const END: usize = 14;

/// A name of which the beginning is cut where there is no room, as its end tells it from the others.
fn ends(name: &str) -> String {
    let from = name.char_indices().rev().nth(END - 1).map_or(0, |(at, _)| at);
    let (begin, end) = name.split_at(from);
    match begin.chars().count() < END / 2 {
        true => escape(name),
        false => format!("<i>{}</i><b>{}</b>", escape(begin), escape(end)),
    }
}

/// Forward and backward time as lengths; a header's are those of the rows below it.
fn bar(row: &LayerRow, time: Passes, longest: Nanos, clock: &Clock, out: &mut String) {
    let _ = write!(out, "<span role='gridcell' class='ch-b'>");
    if !row.is_open() {
        for (class, part) in [("f", time.forward), ("b", time.backward)] {
            let share = part.0 as f64 / longest.0.max(1) as f64 * 100.0;
            let _ = write!(out, "<i class='{class}' style='width:{share:.2}%'></i>");
        }
    }
    let (forward, backward) = (clock.text(time.forward), clock.text(time.backward));
    let spoken = tr!("forward {forward}, backward {backward}", forward, backward);
    let _ = write!(out, "<span class='sr'>{spoken}</span></span>");
}

/// The stages beside the rows: a bracket each with time and memory, the slowest marked. `borders` are
/// the layers at which stages begin.
pub fn stages(chain: &Chain, borders: &[usize], solved: &Solved) -> String {
    let ends = borders.iter().map(|b| chain.border(*b)).chain([chain.height()]);
    let times: Vec<Nanos> = solved.stages.iter().map(|s| s.forward + s.backward()).collect();
    let slowest = (0..times.len()).max_by_key(|s| (times[*s], usize::MAX - s));
    let clock = Clock::of(slowest.map_or(Nanos::ZERO, |s| times[s]));
    let (mut out, mut top) = (String::new(), 0.0);
    for (stage, bottom) in ends.enumerate() {
        let height = (bottom - top).max(0.0);
        let slow = slowest == Some(stage) && times.len() > 1;
        let class = if slow { "ch-st slow" } else { "ch-st" };
        let _ = write!(
            out,
            "<div class='{class}' data-stage='{stage}' style='top:{top:.1}px;height:{height:.1}px'>"
        );
        if let Some(time) = times.get(stage).filter(|_| height >= 15.0) {
            let time = clock.text(*time);
            let _ = write!(out, "<p><span><i>{} </i>{stage}</span><b>{time}</b></p>", t("stage"));
            let lane = lane_beside(solved, stage).filter(|_| height >= 34.0);
            if let (None, Some(lane)) = (lane, solved.lane_of.get(stage).filter(|_| height >= 34.0))
            {
                let lane = tr!("lane {lane}", lane);
                let _ = write!(out, "<p><span>{lane}</span></p>");
            }
            if let Some(lane) = lane {
                let fill = Fill::of(lane.arena, solved.capacity);
                let (sign, class) = (fill.sign(), fill.class());
                let memory = format::bytes_text(lane.arena);
                let word = if slow { t("slowest") } else { "" };
                let _ = write!(
                    out,
                    "<p><span class='{class}'>{sign}{memory}</span><span>{word}</span></p>"
                );
            }
        }
        out.push_str("</div>");
        top = bottom;
    }
    out
}

/// The arcs that can be seen between two heights.
pub fn arcs(
    chain: &Chain,
    arcs: &[Arc],
    (top, bottom): (f64, f64),
    selected: Option<usize>,
) -> String {
    let middle = |row: usize| {
        let (a, b) = chain.span(row);
        a + (b - a).min(ROW) / 2.0
    };
    let (top, bottom) = (top.max(0.0), bottom.min(chain.height()));
    let mut out = format!(
        "<svg class='ch-arcs' aria-hidden='true' width='{GUTTER}' height='{:.0}' style='top:{top:.0}px'>",
        (bottom - top).max(0.0)
    );
    let ends = arcs.iter().map(|arc| (arc, middle(arc.from), middle(arc.to)));
    let seen = ends.filter(|(_, from, to)| *from < bottom && *to > top);
    for (arc, from, to) in seen.take(ARCS_MAX) {
        let (from, to) = (from - top + 4.0, to - top - 4.0);
        let x = GUTTER - 10.0 - (GUTTER - 16.0) * arc.column as f64 / COLUMNS as f64;
        let on = if [Some(arc.from), Some(arc.to)].contains(&selected) { " on" } else { "" };
        let (end, bend) = (GUTTER - 3.0, ((to - from) / 2.0).min(8.0));
        let _ = write!(
            out,
            "<path class='ch-arc{on}' d='M{end} {from:.1}Q{x:.1} {from:.1} {x:.1} {:.1}V{:.1}Q{x:.1} {to:.1} {end} {to:.1}m-4-3l4 3l-4 3'/>",
            from + bend,
            to - bend,
        );
    }
    out.push_str("</svg>");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::engine::{self, Ground};
    use crate::planner::presets::EXAMPLES;
    use crate::screens::model::anatomy::{arcs as skips, fold};

    /// A network's rows, folded, with what `draw` makes of them.
    fn look<T>(selected: Option<usize>, typed: &[u32], draw: impl FnOnce(&Chain, &Look) -> T) -> T {
        let inputs = EXAMPLES[2].inputs();
        let ground = Ground::of(&inputs);
        let anatomy = Anatomy::new(&ground.graph);
        let groups = fold::groups(anatomy.layers.iter().map(|l| l.name.as_str()));
        let chain = Chain::new(anatomy.layers.len(), &groups, &[true], &[]);
        let times = anatomy.times(&ground.costs);
        let (anatomy, groups, times) = (&anatomy, &groups[..], &times[..]);
        draw(&chain, &Look { anatomy, groups, times, typed, samples: 2, selected })
    }

    #[test]
    fn rows_are_a_tree_with_every_cell() {
        let (markup, count) = look(Some(1), &[2], |chain, look| {
            (
                rows(chain, 0..chain.rows.len(), look, longest(&chain.rows, look.times)),
                chain.rows.len(),
            )
        });
        // stem, layer1 with three blocks, layer2 to 4, fc.
        assert_eq!(count, 1 + 4 + 3 + 1);
        assert_eq!(markup.matches("role='row'").count(), count);
        assert_eq!(markup.matches("role='gridcell'").count(), count * 6);
        assert_eq!(markup.matches("aria-expanded='true'").count(), 1);
        assert_eq!(markup.matches("aria-expanded='false'").count(), 3);
        assert_eq!(markup.matches("aria-selected='true'").count(), 1);
        // The layer, and the header above it.
        assert_eq!(markup.matches("overridden").count(), 2);
        assert!(markup.contains("layer3 <small>× 6</small>"));
        // The first block of each has a shortcut of its own.
        assert!(!markup.contains("each conv2d"));
    }

    #[test]
    fn the_slowest_stage_is_marked_and_memory_stands_where_there_is_room() {
        let inputs = EXAMPLES[2].inputs();
        let solved = engine::solve(&inputs, &Ground::of(&inputs)).unwrap();
        let markup = look(None, &[], |chain, _| stages(chain, &[1, 2, 3, 4, 8, 11, 14], &solved));
        assert_eq!(markup.matches("data-stage").count(), 8);
        assert_eq!(markup.matches("ch-st slow").count(), 1);
        assert!(markup.contains("<i>stage </i>0") && markup.contains("GiB"), "{markup}");
    }

    #[test]
    fn long_names_keep_their_ends() {
        assert_eq!(ends("layer3.4.conv2"), "layer3.4.conv2");
        assert_eq!(
            ends("bert.encoder.layer.11.attention.output<x>"),
            "<i>bert.encoder.layer.11.atten</i><b>tion.output&lt;x&gt;</b>"
        );
        assert_eq!(ends(""), "");
        assert_eq!(
            ends("レイヤー".repeat(9).as_str()).matches("<b>").count(),
            1,
            "letters, not bytes"
        );
    }

    #[test]
    fn arcs_outside_of_the_window_are_not_drawn() {
        let chain = Chain::new(100, &[], &[], &[]);
        let all: Vec<skips::Skip> = (0..98).map(|from| (from, from + 2)).collect();
        let all = skips::arcs(&all, &chain);
        let few = arcs(&chain, &all, (280.0, 560.0), Some(15));
        assert_eq!(few.matches("<path").count(), 12, "rows 8 to 20");
        assert_eq!(few.matches("ch-arc on").count(), 2, "into row 15 and out of it");
    }
}
