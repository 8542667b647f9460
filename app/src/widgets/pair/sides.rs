//! Two steps and what is seen of both.

use crate::base::shared::Shared;
use crate::draw::layout::View;
use crate::planner::engine::Solved;
use crate::state::State;
use crate::widgets::reel::Scroll;
use leptos::prelude::*;
use pipewright_core::timeline::Timeline;
use pipewright_core::timeline::causes::{self, Arrivals};

/// A step with what its picture is drawn from.
#[derive(Clone, PartialEq)]
pub struct Seen {
    pub solved: Shared<Solved>,
    pub arrivals: Shared<Arrivals>,
    pub path: Shared<Vec<(usize, usize)>>,
    /// What was measured with that plan, where this is shown instead.
    measured: Option<Shared<Timeline>>,
}

impl Seen {
    /// A plan's predicted step.
    pub fn new(solved: Solved) -> Self {
        let arrivals = solved.arrivals();
        let path = causes::critical_path(&solved.timeline, &arrivals);
        let (arrivals, path) = (Shared::new(arrivals), Shared::new(path));
        Self { solved: Shared::new(solved), arrivals, path, measured: None }
    }

    /// The plan that is edited.
    pub fn edited(page: State) -> Self {
        let solved = page.shown.with(|s| s.solved.clone());
        Self { solved, arrivals: page.arrivals.get(), path: page.path.get(), measured: None }
    }

    /// A measured step of that plan.
    pub fn measured(solved: Shared<Solved>, timeline: Shared<Timeline>) -> Self {
        let arrivals = Arrivals::taken(&timeline);
        let path = Shared::new(causes::critical_path(&timeline, &arrivals));
        let arrivals = Shared::new(arrivals);
        Self { solved, arrivals, path, measured: Some(timeline) }
    }

    /// The step.
    pub fn timeline(&self) -> &Timeline {
        self.measured.as_deref().unwrap_or(&self.solved.timeline)
    }
}

/// What both pictures show.
#[derive(Clone, Copy)]
pub struct Pair {
    pub page: State,
    /// From above.
    pub sides: [Memo<Option<Seen>>; 2],
    /// The part of the time axis that is seen; `None` for all of it.
    pub view: RwSignal<Option<View>>,
    /// How far each picture is scrolled.
    pub scroll: [Scroll; 2],
}

impl Pair {
    pub fn new(page: State, sides: [Memo<Option<Seen>>; 2]) -> Self {
        Self { page, sides, view: RwSignal::new(None), scroll: [Scroll::new(), Scroll::new()] }
    }

    /// Where the time axis ends when everything is seen: a hair after the later of both ends.
    pub fn full(self) -> f64 {
        let end = |side: Memo<Option<Seen>>| {
            side.with(|seen| seen.as_ref().map_or(0, |seen| seen.timeline().step.0))
        };
        end(self.sides[0]).max(end(self.sides[1])).max(1) as f64 * 1.006
    }

    pub fn visible(self) -> View {
        let full = self.full();
        let kept = self.view.get().filter(|view| view.from < full);
        kept.unwrap_or(View { from: 0.0, to: full })
    }

    /// One of both.
    pub fn side(self, index: usize) -> Option<Seen> {
        self.sides[index].get()
    }
}
