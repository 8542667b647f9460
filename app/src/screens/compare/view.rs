//! The Compare screen: A above B on one time axis, what differs, and which other plans there are.

mod sides;
mod table;
mod timelines;
mod trade_offs;

use super::model::PlanSearch;
use crate::base::later::{self, Missing};
use crate::base::screen::Screen;
use crate::base::texts::t;
use crate::planner::engine::{self, Ground, solve};
use crate::planner::inputs::Inputs;
use crate::state::State;
use crate::widgets::pair::{Pair, Seen};
use leptos::prelude::*;
use leptos::wasm_split::wasm_split;
use sides::Sides;
use table::Differences;
use timelines::Timelines;
use trade_offs::TradeOffs;

#[component]
pub fn CompareView() -> impl IntoView {
    later::view(regions())
}

/// What the screen shows.
#[derive(Clone, Copy)]
struct Compare {
    page: State,
    /// What is compared with, or why it cannot be.
    a: Memo<Result<Seen, String>>,
    /// Both on one axis.
    pair: Pair,
}

impl Compare {
    fn new(page: State) -> Self {
        let looked_at = move || page.screen.get() == Screen::Compare;
        let asked = Memo::new(move |old: Option<&Option<Inputs>>| match old {
            // Nobody looks at what is hidden.
            Some(old) if !looked_at() => old.clone(),
            _ => page.inputs.with(|i| page.graph.with(|g| engine::baseline(i, g))),
        });
        let a = Memo::new(move |_| {
            let inputs = asked.get().ok_or_else(|| t("The model has fewer layers than stages."))?;
            let ground = page.ground.with_untracked(|now| Ground::near(&inputs, now));
            solve(&inputs, &ground).map(Seen::new)
        });
        let b = Memo::new(move |old: Option<&Seen>| match old {
            Some(old) if !looked_at() => old.clone(),
            _ => Seen::edited(page),
        });
        let sides = [Memo::new(move |_| a.get().ok()), Memo::new(move |_| Some(b.get()))];
        Self { page, a, pair: Pair::new(page, sides) }
    }

    /// A or B.
    fn side(self, index: usize) -> Option<Seen> {
        self.pair.side(index)
    }
}

/// The screen's regions, laid out by the style sheet.
#[wasm_split(compare, wasm_split_path = ::leptos::wasm_split, fallible)]
fn regions() -> Result<AnyView, Missing> {
    let page = expect_context::<State>();
    provide_context(Compare::new(page));
    provide_context(PlanSearch::new(page));
    Ok(view! { <Sides /> <Timelines /> <Differences /> <TradeOffs /> }.into_any())
}
