//! The right column: what differs, where that comes from, and the lanes in numbers.

use super::Compare;
use crate::compare::{self, Change, Row, Value};
use crate::engine::Solved;
use crate::format::percent;
use crate::shared::Shared;
use crate::views::results::{memory, share};
use leptos::prelude::*;

#[component]
pub fn Differences() -> impl IntoView {
    let state = expect_context::<Compare>();
    let both = Memo::new(move |_| Some((state.side(0)?.solved, state.side(1)?.solved)));
    let rows = move || {
        let (a, b) = both.get()?;
        Some(compare::rows(&a, &b).into_iter().map(row).collect_view())
    };
    view! {
        <aside class="out" aria-label="Differences">
            <section class="sum">
                <table id="differences">
                    <thead><tr>
                        <th><h2>"Difference"</h2></th>
                        <th class="num">"A"</th><th class="num">"B"</th><th class="num">"B against A"</th>
                    </tr></thead>
                    <tbody>{rows}</tbody>
                </table>
                <p class="why" id="difference-why">{move || why(state, both.get())}</p>
            </section>
            <section class="lanesec" aria-label="Lanes of A and B">
                <div class="sec"><h2>"Lanes"</h2></div>
                <table class="lanes">
                    <thead><tr>
                        <th>"lane"</th><th class="num">"busy A"</th><th class="num">"B"</th>
                        <th class="num">"memory A"</th><th class="num">"B"</th>
                    </tr></thead>
                    <tbody>{move || both.get().map(|(a, b)| lanes(&a, &b))}</tbody>
                </table>
            </section>
        </aside>
    }
}

fn row(row: Row) -> impl IntoView {
    let marked = row.chosen && row.change.is_some();
    let change = match row.change {
        None => view! { <td class="num dim">"="</td> }.into_any(),
        Some(Change { arrow, amount, word, good }) => {
            let class = match good {
                Some(true) => "num good",
                Some(false) => "num bad",
                None => "num",
            };
            let words = [arrow, amount.as_str(), word].into_iter().filter(|part| !part.is_empty());
            let text = words.collect::<Vec<&str>>().join(" ");
            view! { <td class=class>{text}</td> }.into_any()
        }
    };
    view! {
        <tr class:cho=row.chosen class:diff=marked data-row=row.id>
            <th scope="row">{row.name}</th>{value(row.a)}{value(row.b)}{change}
        </tr>
    }
}

fn value(value: Value) -> impl IntoView {
    let unit = (!value.unit.is_empty()).then(|| view! { " "<i>{value.unit}</i> });
    view! { <td class="num">{value.text}{unit}</td> }
}

/// What makes the difference, after what is wrong with either.
fn why(state: Compare, both: Option<(Shared<Solved>, Shared<Solved>)>) -> impl IntoView {
    let problem = state.page.shown.with(|s| s.problem.clone());
    let full = |name: &str, solved: &Solved| {
        let over = solved.figures.peak > solved.capacity;
        over.then(|| format!("✕ {name} does not fit its device. "))
    };
    let said = match &both {
        Some((a, b)) => {
            let (finding, because) = compare::sentence(a, b);
            let over = [full("A", a), full("B", b)].into_iter().flatten().collect::<String>();
            view! { <b class="bad">{over}</b><b>{finding}</b>{because} }.into_any()
        }
        None => {
            let why = state.a.with(|a| a.as_ref().err().cloned()).unwrap_or_default();
            view! { <b class="bad">{format!("A cannot be shown: {why}")}</b> }.into_any()
        }
    };
    view! {
        {problem.map(|why| view! { <b class="bad">{format!("B from before: {why}. ")}</b> })}
        {said}
    }
}

fn lanes(a: &Solved, b: &Solved) -> impl IntoView + use<> {
    let count = a.timeline.lanes.len().max(b.timeline.lanes.len());
    let facts = |solved: &Solved, lane: usize| {
        let t = &solved.timeline;
        t.lanes.get(lane).map_or((String::new(), (String::new(), "")), |content| {
            let busy = format!("{} %", percent(share(content.busy(), t.step), 0));
            (busy, memory(content.arena, solved.capacity))
        })
    };
    let row = |lane: usize| {
        let [(busy_a, (peak_a, full_a)), (busy_b, (peak_b, full_b))] =
            [a, b].map(|solved| facts(solved, lane));
        view! {
            <tr>
                <th scope="row">{lane}</th>
                <td class="num">{busy_a}</td><td class="num">{busy_b}</td>
                <td class=format!("num {full_a}")>{peak_a}</td>
                <td class=format!("num {full_b}")>{peak_b}</td>
            </tr>
        }
    };
    (0..count).map(row).collect_view()
}
