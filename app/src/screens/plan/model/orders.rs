//! The plan under every schedule: what each trades, and its small picture.

use crate::base::texts::{n, t, tr};
use crate::planner::engine::{self, Ground};
use crate::planner::inputs::Inputs;
use crate::planner::kept;
use pipewright_core::predict::AUTOMATIC;
use pipewright_core::schedule::ScheduleKind;
use pipewright_worker::protocol::{Drawn, Order};
use std::fmt::Write;

/// A schedule of the strip.
#[derive(Clone, Debug, PartialEq)]
pub struct Tile {
    /// None: the one that is made for the plan.
    pub kind: Option<ScheduleKind>,
    pub order: Order,
    pub drawn: Option<Drawn>,
}

impl Tile {
    pub fn title(&self) -> String {
        match self.kind {
            None => t("Automatic").into(),
            Some(kind) => match kind.number() {
                Some(number) => format!("{} ({number})", kind.title()),
                None => kind.title().into(),
            },
        }
    }

    /// Whether the inputs have it.
    pub fn is_of(&self, inputs: &Inputs) -> bool {
        match &inputs.own {
            Some(own) => self.kind.is_none() && own.name == AUTOMATIC,
            None => self.kind == Some(inputs.schedule),
        }
    }

    /// Why there is no such plan, once that is known.
    pub fn refusal(&self) -> Option<String> {
        self.drawn.as_ref()?.why.clone()
    }

    /// Gives the inputs this schedule with the stages that it was simulated with.
    pub fn apply(&self, inputs: &mut Inputs) {
        if let Some(kind) = self.kind {
            (inputs.schedule, inputs.own) = (kind, None);
            inputs.cuts.clone_from(&self.order.cuts);
        }
    }

    /// What sorts the strip: what fits, by its step, then what does not, then what cannot be.
    fn rank(&self) -> (u8, u64) {
        match &self.drawn {
            None => (2, 0),
            Some(drawn) if drawn.why.is_some() => (3, 0),
            Some(drawn) => (u8::from(!drawn.fits), drawn.step),
        }
    }
}

/// What a schedule trades.
pub fn trades(kind: Option<ScheduleKind>) -> &'static str {
    let Some(kind) = kind else {
        return n("Made for these stages, these messages and this memory.");
    };
    match kind {
        ScheduleKind::OneFOneB => n("Backward as soon as it can: few activations in flight."),
        ScheduleKind::GPipe => n("All forward, then all backward: keeps every activation."),
        ScheduleKind::Naive => n("One micro-batch at a time: least memory, no overlap."),
        ScheduleKind::Interleaved { .. } => {
            n("Several stages per lane: short ramps, more messages.")
        }
        ScheduleKind::LoopedBfs { .. } => n("Several stages per lane, in GPipe's order."),
        ScheduleKind::DualPipe => n("Two directions overlap: twice the weights."),
        ScheduleKind::DualPipeV => n("DualPipe folded into a V: weights only once."),
        ScheduleKind::Chimera => n("Two opposite pipelines: short ramps, twice the weights."),
        ScheduleKind::Hanayo { .. } => {
            n("Waves through the lanes: Chimera's ramps, weights only once.")
        }
        ScheduleKind::PipeDream => {
            n("Never flushes: hardly any gaps, stashed weights, stale gradients.")
        }
        ScheduleKind::PipeDream2Bw => {
            n("Never flushes: two versions of the weights, stale gradients.")
        }
        ScheduleKind::ZbH1 => n("Weight gradients wait and fill the gaps."),
        ScheduleKind::ZbH2 => n("More micro-batches start early: fewer gaps, more activations."),
        ScheduleKind::InterleavedZb { .. } => n("Interleaved, weight gradients in the gaps."),
        ScheduleKind::ZbV => n("A V of two stages per lane, weight gradients in the gaps."),
        ScheduleKind::VHalf => n("ZB-V with fewer activations in flight, for more gaps."),
        ScheduleKind::VMin => n("ZB-V with the fewest activations in flight, for yet more gaps."),
    }
}

/// All schedules on the lanes of `inputs`; those that the model has not layers enough for are refused.
pub fn tiles(inputs: &Inputs, ground: &Ground) -> Vec<Tile> {
    let ground = Ground::near(inputs, ground);
    let lanes = inputs.lanes();
    let named = ScheduleKind::ALL.map(|usual| {
        let kind = if usual.is_like(inputs.schedule) { inputs.schedule } else { usual };
        let most = engine::most_lanes(&ground.graph, kind);
        let same = kind.placement().lanes(inputs.stages()) == Some(lanes);
        let cuts = match same {
            true => inputs.cuts.clone(),
            false => kept::cuts(&inputs.model, kind.placement().stages(lanes))
                .unwrap_or_else(|| engine::lane_cuts(&ground, kind, lanes)),
        };
        let why = (!same && lanes > most)
            .then(|| tr!("This model has layers for at most {most} lanes.", most));
        let schedule = kind.to_string();
        let next = Inputs { cuts, schedule: kind, own: None, ..inputs.alone() };
        let recompute = next.sequences().iter().map(ToString::to_string).collect();
        let order = Order { schedule: schedule.clone(), cuts: next.cuts, recompute };
        let drawn = why.map(|why| Drawn { schedule, why: Some(why), ..Drawn::default() });
        Tile { kind: Some(kind), order, drawn }
    });
    let order = Order { schedule: AUTOMATIC.into(), cuts: inputs.cuts.clone(), recompute: vec![] };
    named.into_iter().chain([Tile { kind: None, order, drawn: None }]).collect()
}

/// Puts pictures where they belong; sorted once those of all names are there.
pub fn place(tiles: &mut [Tile], drawn: Vec<Drawn>) {
    for drawn in drawn {
        if let Some(tile) = tiles.iter_mut().find(|tile| tile.order.schedule == drawn.schedule) {
            tile.drawn = Some(drawn);
        }
    }
    if tiles.iter().all(|tile| tile.drawn.is_some() || tile.kind.is_none()) {
        tiles.sort_by_key(Tile::rank);
    }
}

/// Rows as markup: a path for each letter. The axis ends at `end`.
pub fn picture(drawn: &Drawn, end: f64) -> String {
    let width = drawn.rows.first().map_or(0, String::len);
    let scale = drawn.length as f64 / end.max(1.0);
    let mut marks = String::new();
    for (letter, colour) in [('F', "f"), ('B', "b"), ('I', "i"), ('W', "w"), ('O', "text-3")] {
        let mut path = String::new();
        for (row, text) in drawn.rows.iter().enumerate() {
            runs(text, letter, |from, to| {
                let (from, to) = (from as f64 * scale, to as f64 * scale);
                let _ = write!(path, "M{from:.1} {row}.1H{to:.1}V{row}.9H{from:.1}z");
            });
        }
        if !path.is_empty() {
            let _ = write!(marks, "<path d='{path}' fill='var(--{colour})'/>");
        }
    }
    format!(
        "<svg viewBox='0 0 {width} {rows}' preserveAspectRatio='none' aria-hidden='true'>{marks}</svg>",
        rows = drawn.rows.len().max(1)
    )
}

/// Where `letter` stands without a gap.
fn runs(text: &str, letter: char, mut found: impl FnMut(usize, usize)) {
    let mut from = None;
    for (at, other) in text.chars().chain(['\0']).enumerate() {
        match (from, other == letter) {
            (None, true) => from = Some(at),
            (Some(first), false) => {
                found(first, at);
                from = None;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::presets::first;
    use pipewright_worker::Session;
    use pipewright_worker::protocol::{Reply, Request};

    /// The strip of these inputs with its pictures.
    fn drawn(inputs: &Inputs) -> Vec<Tile> {
        let mut all = tiles(inputs, &Ground::of(inputs));
        let mut session = Session::default();
        let orders = all.iter().map(|tile| tile.order.clone()).collect();
        session.receive(Request::Orders { plan: inputs.question().unwrap(), orders });
        while session.step(1) {}
        session.report();
        while let Some(reply) = session.take() {
            let Reply::Orders(orders) = reply else { panic!("{reply:?}") };
            assert!(orders.done);
            place(&mut all, orders.drawn);
        }
        all
    }

    /// A part of the axis in which many passes begin and end is as full as one that a pass fills.
    #[test]
    fn lanes_at_work_are_drawn_so_whatever_the_number_of_micro_batches() {
        let inputs = Inputs { mini_batch: 256, micro_batches: 256, ..first() };
        for tile in drawn(&inputs) {
            let Some(drawn) = tile.drawn.filter(|drawn| drawn.why.is_none()) else { continue };
            let letters = || drawn.rows.iter().flat_map(|row| row.chars());
            let full = letters().filter(|letter| *letter != ' ').count() as f64;
            let busy = 1.0 - drawn.bubble;
            let seen =
                full / letters().count().max(1) as f64 * drawn.step as f64 / drawn.length as f64;
            // Of lanes that work now and then, as under Naive, no part is full.
            assert!(busy < 0.5 || seen > 0.9 * busy, "{:?}: {busy} and {seen}", tile.kind);
        }
    }

    #[test]
    fn every_schedule_has_its_picture_and_the_step_that_the_page_shows() {
        let inputs = first();
        let all = drawn(&inputs);
        assert_eq!(all.len(), ScheduleKind::ALL.len() + 1);
        let mut fastest = 0;
        for tile in &all {
            let drawn = tile.drawn.as_ref().unwrap();
            assert_eq!(drawn.why, None, "{}", tile.title());
            assert_eq!(drawn.rows.len(), 4);
            assert!(picture(drawn, drawn.length as f64).contains("var(--f)"));
            if tile.kind.is_some() {
                let mut taken = inputs.clone();
                tile.apply(&mut taken);
                let solved = engine::solve(&taken, &Ground::of(&taken)).unwrap();
                assert_eq!(drawn.step, solved.figures.step.0, "{}", tile.title());
                assert_eq!(drawn.peak, solved.figures.peak.0, "{}", tile.title());
                assert!((drawn.bubble - solved.figures.bubble).abs() < 1e-9, "{}", tile.title());
            }
            if drawn.fits {
                assert!(drawn.step >= fastest, "sorted");
                fastest = drawn.step;
            }
        }
    }

    #[test]
    fn another_schedule_and_back_lose_no_cut() {
        let mut inputs = first();
        let before = inputs.clone();
        inputs.cuts[0] += 1;
        kept::keep(&before, &inputs);
        let tuned = inputs.cuts.clone();
        for kind in [ScheduleKind::ZbV, ScheduleKind::OneFOneB] {
            let all = tiles(&inputs, &Ground::of(&inputs));
            all.iter().find(|tile| tile.kind == Some(kind)).unwrap().apply(&mut inputs);
        }
        assert_eq!(inputs.cuts, tuned);
    }

    #[test]
    fn what_cannot_be_says_why() {
        let mut inputs = first();
        engine::split(&mut inputs, 30);
        let all = tiles(&inputs, &Ground::of(&inputs));
        let v = all.iter().find(|tile| tile.kind == Some(ScheduleKind::ZbV)).unwrap();
        assert!(v.refusal().unwrap().contains("at most"), "{v:?}");
    }

    #[test]
    fn runs_are_found_at_both_ends() {
        let mut all = vec![];
        runs("FF B F", 'F', |from, to| all.push((from, to)));
        assert_eq!(all, [(0, 2), (5, 6)]);
    }
}
