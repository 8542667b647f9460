//! Signals of the Compare screen.

use super::shelf::KeptPlan;
use crate::base::screen::Screen;
use crate::base::texts::t;
use crate::planner::engine::{self, Ground, solve};
use crate::planner::inputs::Inputs;
use crate::state::State;
use crate::widgets::pair::{Pair, Seen};
use leptos::prelude::*;

/// All of it.
#[derive(Clone, Copy)]
pub struct Compare {
    pub page: State,
    /// What is compared with, or why it cannot be.
    pub a: Memo<Result<Seen, String>>,
    /// Both on one axis.
    pub pair: Pair,
    /// Other plans to weigh.
    pub kept: RwSignal<Vec<KeptPlan>>,
}

impl Compare {
    /// The plan that is edited against what it is compared with.
    pub fn new(page: State) -> Self {
        let looked_at = move || page.screen.get() == Screen::Compare;
        let asked = Memo::new(move |old: Option<&Option<Inputs>>| match old {
            // Nobody looks at what is hidden.
            Some(old) if !looked_at() => old.clone(),
            _ => page.inputs.with(|i| page.graph.with(|g| engine::baseline(i, g))),
        });
        let a = Memo::new(move |_| {
            let inputs = asked.get().ok_or_else(|| {
                t("The model has fewer layers than there are \
                                                      stages.")
            })?;
            let ground = page.ground.with_untracked(|now| Ground::near(&inputs, now));
            solve(&inputs, &ground).map(Seen::new)
        });
        let b = Memo::new(move |old: Option<&Seen>| match old {
            Some(old) if !looked_at() => old.clone(),
            _ => Seen::edited(page),
        });
        let sides = [Memo::new(move |_| a.get().ok()), Memo::new(move |_| Some(b.get()))];
        Self { page, a, pair: Pair::new(page, sides), kept: RwSignal::new(vec![]) }
    }

    /// A or B.
    pub fn side(self, index: usize) -> Option<Seen> {
        self.pair.side(index)
    }
}
