//! The Compare screen: A above B on one time axis, what differs, and which other plans there are.

mod hand;
mod painter;
mod sides;
mod table;
mod timelines;
mod trade_offs;

use crate::charts::layout::View;
use crate::engine::{self, Ground, Solved, solve};
use crate::inputs::Inputs;
use crate::later::{self, Missing};
use crate::plans::PlanSearch;
use crate::screen::Screen;
use crate::shared::Shared;
use crate::state::State;
use crate::texts::t;
use leptos::prelude::*;
use leptos::wasm_split::wasm_split;
use pipewright_core::timeline::causes::{self, Arrivals};
use sides::Sides;
use table::Differences;
use timelines::Timelines;
use trade_offs::TradeOffs;

#[component]
pub fn CompareView() -> impl IntoView {
    later::view(regions())
}

/// A plan with what its picture is drawn from.
#[derive(Clone, PartialEq)]
struct Seen {
    solved: Shared<Solved>,
    arrivals: Shared<Arrivals>,
    path: Shared<Vec<(usize, usize)>>,
}

impl Seen {
    fn new(solved: Solved) -> Self {
        let arrivals = Arrivals::new(&solved.timeline);
        let path = causes::critical_path(&solved.timeline, &arrivals);
        let (arrivals, path) = (Shared::new(arrivals), Shared::new(path));
        Self { solved: Shared::new(solved), arrivals, path }
    }
}

/// What the screen shows.
#[derive(Clone, Copy)]
struct Compare {
    page: State,
    /// What is compared with, or why it cannot be.
    a: Memo<Result<Seen, String>>,
    b: Memo<Seen>,
    /// The part of the time axis that is seen; `None` for all of it.
    view: RwSignal<Option<View>>,
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
            _ => Seen {
                solved: page.shown.with(|s| s.solved.clone()),
                arrivals: page.arrivals.get(),
                path: page.path.get(),
            },
        });
        Self { page, a, b, view: RwSignal::new(None) }
    }

    /// Where the time axis ends when everything is seen: a hair after the later of both ends.
    fn full(self) -> f64 {
        let a = self.a.with(|a| a.as_ref().map_or(0, |a| a.solved.timeline.step.0));
        let b = self.b.with(|b| b.solved.timeline.step.0);
        a.max(b).max(1) as f64 * 1.006
    }

    fn visible(self) -> View {
        let full = self.full();
        let kept = self.view.get().filter(|view| view.from < full);
        kept.unwrap_or(View { from: 0.0, to: full })
    }

    /// A or B.
    fn side(self, index: usize) -> Option<Seen> {
        if index == 0 { self.a.get().ok() } else { Some(self.b.get()) }
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
