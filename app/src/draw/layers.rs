//! The split editor's bar as markup, and where its cuts can be.

use super::fill::Fill;
use crate::base::format::{self, Clock, escape};
use crate::base::texts::{t, tr};
use crate::planner::engine::{LayerTime, Solved};
use pipewright_core::timeline::Lane;
use pipewright_core::units::Nanos;
use std::fmt::Write;
use std::ops::{Range, RangeInclusive};

/// Stages that the bar shows at most; of more a block.
pub const BLOCK: usize = 16;

/// Height of the bar, CSS pixels.
pub const HEIGHT: f64 = 300.0;
/// Width of the bar; stage names stand to the right of it.
const BAR: f64 = 112.0;

/// The places where a cut can be: first nodes of all layers but the first, and the time before
/// each as a share of the whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Places {
    pub nodes: Vec<u32>,
    shares: Vec<f64>,
    total: Nanos,
}

impl Places {
    pub fn new(layers: &[LayerTime]) -> Self {
        let total: Nanos = layers.iter().map(|l| l.time).sum();
        let mut before = Nanos::ZERO;
        let mut places = Self { nodes: vec![], shares: vec![], total };
        for (i, layer) in layers.iter().enumerate() {
            if i > 0 {
                places.nodes.push(layer.first_node);
                places.shares.push(before.0 as f64 / total.0.max(1) as f64);
            }
            before += layer.time;
        }
        places
    }

    /// Place of a cut; one inside of a layer counts as the place after that layer.
    pub fn of(&self, cut: u32) -> usize {
        self.nodes.partition_point(|n| *n < cut).min(self.nodes.len().saturating_sub(1))
    }

    pub fn share(&self, cut: u32) -> f64 {
        self.shares.get(self.of(cut)).copied().unwrap_or(1.0)
    }

    /// The place nearest to a share of the time.
    pub fn near(&self, share: f64) -> usize {
        let distance = |i: &usize| ((self.shares[*i] - share).abs() * 1e9) as u64;
        (0..self.shares.len()).min_by_key(distance).unwrap_or(0)
    }

    /// Layers that can stand before cut `index`, between its neighbours; empty where there is no such cut.
    pub fn room(&self, cuts: &[u32], index: usize) -> RangeInclusive<usize> {
        let low = index.checked_sub(1).and_then(|i| cuts.get(i)).map_or(0, |cut| self.of(*cut) + 1);
        let high = match cuts.get(index + 1) {
            Some(cut) => self.of(*cut),
            None => self.nodes.len(),
        };
        low + 1..=high
    }

    /// Moves cut `index` to `place`, no further than its neighbours allow.
    pub fn moved(&self, cuts: &[u32], index: usize, place: usize) -> u32 {
        let room = self.room(cuts, index);
        match room.is_empty() {
            true => cuts[index],
            false => self.nodes[(place + 1).clamp(*room.start(), *room.end()) - 1],
        }
    }
}

/// The stages that the bar shows, and the part of the time that they have.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    pub stages: Range<usize>,
    from: f64,
    to: f64,
}

impl Block {
    /// A block of the plan's stages, by number; the last one where there are fewer.
    pub fn new(cuts: &[u32], places: &Places, number: usize) -> Self {
        let stages = cuts.len() + 1;
        let first = number.min((stages - 1) / BLOCK) * BLOCK;
        let last = (first + BLOCK).min(stages);
        let bound = |stage: usize| match stage {
            0 => 0.0,
            stage => cuts.get(stage - 1).map_or(1.0, |cut| places.share(*cut)),
        };
        Self { stages: first..last, from: bound(first), to: bound(last) }
    }

    /// Its cuts, those at its ends as well.
    pub fn cuts(&self, all: usize) -> Range<usize> {
        self.stages.start.saturating_sub(1)..self.stages.end.min(all)
    }

    /// Where a share of the time is in the bar.
    pub fn y(&self, share: f64) -> f64 {
        (share - self.from) / (self.to - self.from).max(1e-9) * HEIGHT
    }

    /// The share of the time at a place of the bar.
    pub fn share(&self, y: f64) -> f64 {
        self.from + y / HEIGHT * (self.to - self.from)
    }
}

/// The bar: one rectangle a layer, names where there is room, runs of thin layers named together.
pub fn layer_marks(layers: &[LayerTime], block: &Block) -> String {
    let total: Nanos = layers.iter().map(|l| l.time).sum();
    let whole = total.0.max(1) as f64;
    let scale = block.y(block.from + 1.0) / whole;
    let clock = Clock::of(total);
    let mut out = String::new();
    let (mut before, mut drawn) = (Nanos::ZERO, 0.0);
    let (mut tops, mut seen) = (vec![], vec![]);
    for layer in layers {
        let y = block.y(before.0 as f64 / whole);
        before += layer.time;
        let h = layer.time.0 as f64 * scale;
        if y + h < 0.5 || y > HEIGHT - 0.5 {
            continue;
        }
        let i = seen.len();
        seen.push(layer);
        tops.push(y);
        // Of thousands of layers only as many are drawn as there is room for.
        if y + h < drawn {
            continue;
        }
        drawn = y + 0.5 + (h - 1.0).max(0.5);
        let (fill, opacity) = if i % 2 == 0 { ("line", 1.0) } else { ("mem", 0.62) };
        let name = escape(&layer.name);
        let _ = write!(
            out,
            "<rect x='0' y='{:.2}' width='{BAR}' height='{:.2}' fill='var(--{fill})' opacity='{opacity}' rx='1'><title>{name}: {}</title></rect>",
            y + 0.5,
            (h - 1.0).max(0.5),
            clock.text(layer.time),
        );
        if h >= 11.0 {
            let middle = y + h / 2.0 + 3.7;
            let _ = write!(out, "<text x='8' y='{middle:.1}' class='ln'>{name}</text>");
            if h >= 14.0 && layer.name.len() <= 9 {
                let time = clock.number(layer.time);
                let _ = write!(
                    out,
                    "<text x='{}' y='{middle:.1}' class='lt'>{time}</text>",
                    BAR - 14.0
                );
            }
        }
    }
    tops.push(block.y(before.0 as f64 / whole).min(HEIGHT));
    runs(&seen, &tops, &mut out);
    out
}

/// `conv5_1 … fc8` over layers too thin for their own names.
fn runs(layers: &[&LayerTime], tops: &[f64], out: &mut String) {
    let thin = |i: usize| tops[i + 1] - tops[i] < 11.0;
    let mut i = 0;
    while i < layers.len() {
        let mut end = i;
        while end < layers.len() && thin(end) {
            end += 1;
        }
        let (a, b) = (tops[i], tops[end]);
        if end > i + 1 && b - a >= 14.0 {
            let (first, last) = (escape(&layers[i].name), escape(&layers[end - 1].name));
            let short = first.len() + last.len() <= 15;
            let text = if short { format!("{first} … {last}") } else { format!("{first} …") };
            let _ = write!(
                out,
                "<text x='8' y='{:.1}' class='ln run'>{text}</text>",
                // In a long run the middle is where a cut would strike the name out.
                if b - a > 60.0 { a + 16.0 } else { (a + b) / 2.0 + 3.7 }
            );
        }
        i = end.max(i + 1);
    }
}

/// The lane whose memory stands beside a stage: where it has no other.
pub fn lane_beside(solved: &Solved, stage: usize) -> Option<&Lane> {
    solved.timeline.lanes.get(stage).filter(|_| solved.is_straight())
}

/// Letters of a stage's number and its time that leave room for the word before them.
const BESIDE_NAME: usize = 8;

/// What stages are called beside their times: all by a name, or all by a number, for a lone number among names would
/// be a puzzle.
fn names_beside<T: Fn(usize) -> String>(
    block: &Block,
    time: &T,
) -> impl Fn(usize) -> String + use<T> {
    let room = |stage: usize| time(stage).chars().count() + stage.to_string().len() <= BESIDE_NAME;
    let named = block.stages.clone().all(room);
    move |stage| if named { tr!("stage {stage}", stage) } else { stage.to_string() }
}

/// Brackets, times and memory of the stages, and marks at shares of the time.
pub fn stage_marks(
    cuts: &[u32],
    solved: &Solved,
    places: &Places,
    block: &Block,
    marks: &[f64],
) -> String {
    let mut out = String::new();
    let bounds: Vec<f64> = std::iter::once(0.0)
        .chain(cuts.iter().map(|c| places.share(*c)))
        .chain([1.0])
        .map(|share| block.y(share))
        .collect();
    let n = bounds.len() - 1;
    // While the newest inputs do not fit together, what was solved is older: other cuts have no times yet.
    let known = solved.inputs.cuts == cuts;
    let stages = solved.stages.iter().filter(|_| known);
    let times: Vec<Nanos> = stages.map(|s| s.forward + s.backward()).collect();
    let clock = Clock::of(places.total);
    let slowest = (0..times.len()).max_by_key(|s| (times[*s], usize::MAX - s)).unwrap_or(0);
    let text = |stage: usize| times.get(stage).map(|time| clock.text(*time)).unwrap_or_default();
    let name = names_beside(block, &text);
    let seen = bounds.windows(2).enumerate();
    for (stage, pair) in seen.take(block.stages.end).skip(block.stages.start) {
        let (a, b) = (pair[0], pair[1]);
        let x = BAR + 10.0;
        let end = (b - 2.0).max(a + 2.0);
        let _ = write!(out, "<path d='M{x} {:.1}h4V{end:.1}h-4' class='br'/>", a + 2.0);
        if b - a < 12.0 {
            continue;
        }
        let two = b - a >= 32.0;
        let y = (a + b) / 2.0 + if two { -4.0 } else { 4.0 };
        let left = BAR + 22.0;
        let time = text(stage);
        let _ = write!(out, "<text x='{left}' y='{y:.1}'>{}</text>", name(stage));
        let _ = write!(out, "<text x='100%' y='{y:.1}' class='st'>{time}</text>");
        if !two || !known {
            continue;
        }
        let y = y + 15.0;
        let Some(lane) = lane_beside(solved, stage) else {
            if let Some(lane) = solved.lane_of.get(stage) {
                let lane = tr!("lane {lane}", lane);
                let _ = write!(out, "<text x='{left}' y='{y:.1}' class='sm'>{lane}</text>");
            }
            continue;
        };
        let fill = Fill::of(lane.arena, solved.capacity);
        let (sign, class) = (fill.sign(), fill.class());
        let memory = format::bytes_text(lane.arena);
        let _ = write!(out, "<text x='{left}' y='{y:.1}' class='sm {class}'>{sign}{memory}</text>");
        // Beside a warning there is no room for it.
        let below = if b - a >= 48.0 { 14.0 } else { 0.0 };
        if stage == slowest && n > 1 && (below > 0.0 || sign.is_empty()) {
            let y = y + below;
            let _ = write!(out, "<text x='100%' y='{y:.1}' class='slow'>{}</text>", t("slowest"));
        }
    }
    for share in marks {
        let y = block.y(*share);
        if !(0.0..=HEIGHT).contains(&y) {
            continue;
        }
        let _ = write!(out, "<path d='M-9 {y:.1}h5' class='eqm'/>");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::engine::{self, Ground};
    use crate::planner::presets::first;

    fn layers(times: &[u64]) -> Vec<LayerTime> {
        let layer = |(i, t): (usize, &u64)| LayerTime {
            name: format!("<l{i}>"),
            first_node: i as u32 * 3,
            time: Nanos(*t),
        };
        times.iter().enumerate().map(layer).collect()
    }

    #[test]
    fn cuts_stop_at_their_neighbours() {
        let places = Places::new(&layers(&[10, 10, 10, 10, 10]));
        assert_eq!(places.nodes, [3, 6, 9, 12]);
        let cuts = [3, 6, 12];
        assert_eq!(places.moved(&cuts, 1, 0), 6);
        assert_eq!(places.moved(&cuts, 1, 99), 9);
        assert_eq!(places.moved(&cuts, 0, 99), 3);
        assert_eq!(places.moved(&cuts, 2, 2), 9);
        // No room at all: it stays.
        assert_eq!(places.moved(&[3, 6, 9, 12], 1, 3), 6);
    }

    #[test]
    fn pixels_lead_to_the_nearest_place() {
        let places = Places::new(&layers(&[50, 10, 40]));
        assert_eq!((places.near(0.0), places.near(0.54), places.near(0.99)), (0, 0, 1));
        assert!((places.share(6) - 0.6).abs() < 1e-9);
        assert_eq!(places.of(4), 1, "inside of a layer");
    }

    #[test]
    fn thousands_of_layers_are_hundreds_of_marks() {
        let count = |number: usize| {
            let layers = layers(&vec![10; number]);
            let block = Block::new(&[], &Places::new(&layers), 0);
            layer_marks(&layers, &block).matches("<rect").count()
        };
        assert!((200..800).contains(&count(20_000)));
        assert_eq!(count(50), 50);
    }

    #[test]
    fn many_stages_are_shown_in_blocks_that_fill_the_bar() {
        let layers = layers(&[10; 80]);
        let places = Places::new(&layers);
        let cuts: Vec<u32> = (1..40).map(|stage| stage * 6).collect();
        let blocks: Vec<Block> = (0..3).map(|at| Block::new(&cuts, &places, at)).collect();
        assert_eq!(
            blocks.iter().map(|b| b.stages.clone()).collect::<Vec<_>>(),
            [0..16, 16..32, 32..40]
        );
        assert_eq!(Block::new(&cuts, &places, 9), blocks[2]);
        // Every cut can be caught in some block; those at the ends in two.
        let caught: Vec<Range<usize>> = blocks.iter().map(|b| b.cuts(cuts.len())).collect();
        assert_eq!(caught, [0..16, 15..32, 31..39]);
        for block in &blocks {
            assert_eq!(
                layer_marks(&layers, block).matches("<rect").count(),
                block.stages.len() * 2
            );
            for cut in block.cuts(cuts.len()) {
                let y = block.y(places.share(cuts[cut]));
                assert!((-1e-6..=HEIGHT + 1e-6).contains(&y), "{y}");
                assert!((block.share(y) - places.share(cuts[cut])).abs() < 1e-9);
            }
        }
    }

    #[test]
    fn names_from_files_are_text() {
        let layers = layers(&[50, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
        let marks = layer_marks(&layers, &Block::new(&[], &Places::new(&layers), 0));
        assert!(marks.contains("&lt;l0&gt;") && !marks.contains("<l0>"));
        assert!(marks.contains('…'));
    }

    #[test]
    fn cuts_that_are_not_solved_have_no_times() {
        let inputs = first();
        let ground = Ground::of(&inputs);
        let solved = engine::solve(&inputs, &ground).unwrap();
        let places = Places::new(&engine::layer_times(&ground.graph, &ground.costs));
        let marks =
            |cuts: &[u32]| stage_marks(cuts, &solved, &places, &Block::new(cuts, &places, 0), &[]);
        let known = marks(&inputs.cuts);
        assert_eq!(known.matches("class='st'></text>").count(), 0, "{known}");
        assert!(known.contains("GiB") && known.contains("slowest"), "{known}");
        let mut moved = inputs.cuts.clone();
        moved[0] = places.nodes[places.of(moved[0]) - 1];
        let marks = marks(&moved);
        assert_eq!(marks.matches("class='st'></text>").count(), 4, "{marks}");
        assert!(!marks.contains("GiB") && !marks.contains("slowest"), "{marks}");
    }
}
