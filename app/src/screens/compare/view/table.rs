//! The right column: what differs, where that comes from, and the lanes in numbers.

use super::shelf::Shelf;
use super::shown::Compare;
use crate::base::shared::Shared;
use crate::base::texts::{t, tr};
use crate::planner::compare;
use crate::planner::engine::Solved;
use crate::screens::compare::chart::differences::{lanes, rows};
use leptos::prelude::*;

#[component]
pub fn Differences() -> impl IntoView {
    let state = expect_context::<Compare>();
    let both = Memo::new(move |_| Some((state.side(0)?.solved, state.side(1)?.solved)));
    // A change of B touches every number.
    let of = move |markup: fn(&Solved, &Solved) -> String| {
        move || both.with(|both| both.as_ref().map(|(a, b)| markup(a, b)).unwrap_or_default())
    };
    view! {
        <aside class="out" aria-label=t("Differences")>
            <section class="sum">
                <table id="differences">
                    <thead><tr>
                        <th><h2>{t("Difference")}</h2></th>
                        <th class="num">"A"</th><th class="num">"B"</th><th class="num">{t("B \
                            compared with A")}</th>
                    </tr></thead>
                    <tbody inner_html=of(|a, b| rows(&compare::rows(a, b)))></tbody>
                </table>
                <p class="why" id="difference-why">{move || why(state, both.get())}</p>
            </section>
            <Shelf />
            <section class="lanesec" aria-label=t("Lanes of A and B")>
                <div class="sec"><h2>{t("Lanes")}</h2></div>
                <table class="lanes">
                    <thead><tr>
                        <th>{t("lane")}</th><th class="num">{t("busy A")}</th><th class="num">"B"</th>
                        <th class="num">{t("memory A")}</th><th class="num">"B"</th>
                    </tr></thead>
                    <tbody inner_html=of(lanes)></tbody>
                </table>
            </section>
        </aside>
    }
}

/// What makes the difference, after what is wrong with either.
fn why(state: Compare, both: Option<(Shared<Solved>, Shared<Solved>)>) -> impl IntoView {
    let problem = state.page.shown.with(|s| s.problem.clone());
    let full = |name: &str, solved: &Solved| {
        let over = solved.figures.peak > solved.capacity;
        over.then(|| tr!("✕ {name} does not fit its device. ", name))
    };
    let said = match &both {
        Some((a, b)) => {
            let (finding, because) = compare::sentence(a, b);
            let over = [full("A", a), full("B", b)].into_iter().flatten().collect::<String>();
            view! { <b class="bad">{over}</b><b>{finding}</b>{because} }.into_any()
        }
        None => {
            let why = state.a.with(|a| a.as_ref().err().cloned()).unwrap_or_default();
            view! { <b class="bad">{tr!("A cannot be shown: {why}", why)}</b> }.into_any()
        }
    };
    view! {
        {problem.map(|why| view! { <b class="bad">{tr!("B is not what is asked for: {why}. ", why)}</b> })}
        {said}
    }
}
