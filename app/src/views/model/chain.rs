//! The chain: a scrolling tree of rows of which only those in sight exist, with stages, arcs and cuts.

use super::look::Looked;
use crate::charts::chain::{self as picture, GUTTER};
use crate::charts::fill::Fill;
use crate::format::{self, Clock};
use crate::keys::{self, Command, Scope};
use crate::model::chain::ROW;
use crate::model::fold::Kind;
use crate::views::help::focus;
use crate::views::size::watch;
use crate::views::split::{Handle, select};
use leptos::ev::{KeyboardEvent, MouseEvent};
use leptos::html::Div;
use leptos::prelude::*;
use wasm_bindgen::JsCast;

/// Height of the line of column names.
const HEAD: f64 = 28.0;
/// Rows are drawn this far outside of what can be seen.
const BEYOND: f64 = 8.0 * ROW;
/// A drag this near to an edge scrolls.
const EDGE: f64 = 40.0;

#[component]
pub fn ChainPane() -> impl IntoView {
    let looked = expect_context::<Looked>();
    let frame: NodeRef<Div> = NodeRef::new();
    let body: NodeRef<Div> = NodeRef::new();
    let size = watch(frame, (800.0, 600.0));
    let top = RwSignal::new(0.0);
    // In steps, so that most scrolling draws nothing.
    let window = Memo::new(move |_| {
        let step = BEYOND / 2.0;
        let from = (top.get() / step).floor() * step;
        (from - BEYOND, from + size.get().1 + BEYOND + step)
    });
    let seen = Memo::new(move |_| {
        let (from, to) = window.get();
        looked.chain.with(|c| c.visible(from, to))
    });
    let rows = move || {
        let (range, longest) = (seen.get(), looked.longest.get());
        looked.look(|chain, look| {
            let end = range.end.min(chain.rows.len());
            picture::rows(chain, range.start.min(end)..end, look, longest)
        })
    };
    let height = move || looked.chain.with(|c| c.height());
    let scrolled = move |_| {
        if let Some(frame) = frame.get_untracked() {
            top.set(f64::from(frame.scroll_top()));
        }
    };
    reveal(looked, frame, size);
    let active = move || {
        let row = looked.selected.get();
        (looked.picked.with(Option::is_some) && seen.get().contains(&row))
            .then(|| format!("ch-{row}"))
    };
    let key = move |event: KeyboardEvent| key(looked, &event);
    let click = move |event: MouseEvent| {
        if let Some(row) = row_at(&event) {
            looked.pick(row);
            toggle(looked, row);
        }
    };
    view! {
        <section class="chain" aria-label="Layers">
            <Title />
            <div class="ch-frame" node_ref=frame on:scroll=scrolled>
                <div class="ch-all" node_ref=body style=move || format!("height:{:.0}px", height() + HEAD)>
                    <div id="chain" role="treegrid" tabindex="0" aria-label="Layers and their costs"
                        aria-activedescendant=active aria-colcount="6"
                        aria-rowcount=move || (looked.chain.with(|c| c.rows.len()) + 1).to_string()
                        on:keydown=key on:click=click>
                        <Columns />
                        <div class="ch-rows" role="rowgroup" inner_html=rows></div>
                    </div>
                    <Arcs window />
                    <Stages />
                    <Cuts frame body top />
                </div>
            </div>
        </section>
    }
}

/// Scrolls to the selected row when that is wished for.
fn reveal(looked: Looked, frame: NodeRef<Div>, size: ReadSignal<(f64, f64)>) {
    Effect::new(move |_| {
        looked.reveal.track();
        let (row, chain) = (looked.selected.get_untracked(), looked.chain.get_untracked());
        if let (Some(frame), true) = (frame.get_untracked(), row < chain.rows.len()) {
            let ((from, to), high) = (chain.span(row), size.get_untracked().1 - HEAD);
            let now = f64::from(frame.scroll_top());
            let wanted = now.min(from).max((to - high).min(from));
            if wanted != now {
                frame.set_scroll_top(wanted.round() as i32);
            }
        }
    });
}

#[component]
fn Title() -> impl IntoView {
    view! {
        <div class="tbar">
            <h2>"Layers"</h2>
            <span class="dim small">"one micro-batch"</span>
            <div class="keys">
                <span class="key"><i class="f"></i>"forward"</span>
                <span class="key"><i class="b"></i>"backward"</span>
                <span class="key"><svg width="14" height="12" aria-hidden="true"><path class="ch-arc" d="M12 1Q3 1 3 5V7Q3 11 12 11"/></svg>"skip connection"</span>
            </div>
        </div>
    }
}

#[component]
fn Columns() -> impl IntoView {
    let looked = expect_context::<Looked>();
    let unit = move || Clock::of(looked.longest.get()).unit;
    view! {
        <div role="rowgroup" class="ch-head"><div role="row" class="ch-row" aria-rowindex="1">
            <span role="columnheader" class="ch-n">"layer"</span>
            <span role="columnheader" class="ch-o">"operations"</span>
            <span role="columnheader" class="ch-b">"forward and backward"</span>
            <span role="columnheader" class="ch-t">"time, "{unit}</span>
            <span role="columnheader" class="ch-p">"params"</span>
            <span role="columnheader" class="ch-s">"cut sends"</span>
        </div></div>
    }
}

#[component]
fn Arcs(window: Memo<(f64, f64)>) -> impl IntoView {
    let looked = expect_context::<Looked>();
    let view = move || {
        let (from, to) = window.get();
        (from.max(0.0), to.min(looked.chain.with(|c| c.height())).max(0.0))
    };
    let arcs = move || {
        let selected =
            if looked.picked.with(Option::is_some) { looked.selected.get() } else { usize::MAX };
        looked.chain.with(|c| looked.arcs.with(|a| picture::arcs(c, a, view(), selected)))
    };
    view! {
        <svg class="ch-arcs" aria-hidden="true" width=GUTTER.to_string()
            height=move || { let (a, b) = view(); (b - a).max(0.0).to_string() }
            style=move || format!("top:{:.0}px", view().0 + HEAD) inner_html=arcs></svg>
    }
}

#[component]
fn Stages() -> impl IntoView {
    let looked = expect_context::<Looked>();
    let stages = move || {
        let borders = looked.borders.get();
        looked.chain.with(|c| looked.page.shown.with(|s| picture::stages(c, &borders, &s.solved)))
    };
    view! { <div class="ch-stages" inner_html=stages></div> }
}

/// The plan's cuts, as handles over the rows.
#[component]
fn Cuts(frame: NodeRef<Div>, body: NodeRef<Div>, top: RwSignal<f64>) -> impl IntoView {
    let looked = expect_context::<Looked>();
    let count = Memo::new(move |_| looked.borders.with(Vec::len));
    let place = move |index: usize| {
        let border = looked.borders.with(|b| b.get(index).copied());
        border.map_or(0.0, |layer| looked.chain.with(|c| c.border(layer)) + HEAD)
    };
    let near = Callback::new(move |y: f64| {
        if let Some(frame) = frame.get_untracked() {
            let inside = y - top.get_untracked();
            let down = inside > f64::from(frame.client_height()) - EDGE;
            let by = if down {
                ROW
            } else if inside < HEAD + EDGE {
                -ROW
            } else {
                0.0
            };
            frame.set_scroll_top(frame.scroll_top() + by as i32);
        }
        looked.chain.with_untracked(|c| c.near(y - HEAD)).saturating_sub(1)
    });
    let crowded = move |index: usize| {
        let here = place(index);
        let close = |other: usize| other < count.get() && (place(other) - here).abs() < 24.0;
        close(index + 1) || index.checked_sub(1).is_some_and(close)
    };
    view! {
        <For each=move || 0..count.get() key=|i| *i let(index)>
            <Handle index places=looked.places frame=body near
                top=Signal::derive(move || place(index))
                crowded=Signal::derive(move || crowded(index))
                says=Signal::derive(move || neighbours(looked, index)) />
        </For>
    }
}

/// Time and memory of the stages on both sides of a cut.
fn neighbours(looked: Looked, index: usize) -> String {
    looked.page.shown.with(|s| {
        let stage = |stage: usize| {
            let (cost, lane) = (s.solved.stages.get(stage)?, s.solved.timeline.lanes.get(stage)?);
            let time = cost.forward + cost.backward();
            let sign = Fill::of(lane.arena, s.solved.capacity).sign();
            let memory = format::bytes_text(lane.arena);
            Some(format!("stage {stage}: {} · {sign}{memory}", Clock::of(time).text(time)))
        };
        [stage(index), stage(index + 1)].into_iter().flatten().collect::<Vec<_>>().join("\n")
    })
}

/// The row under the pointer.
fn row_at(event: &MouseEvent) -> Option<usize> {
    let target: web_sys::Element = event.target()?.dyn_into().ok()?;
    target.closest("[data-row]").ok()??.get_attribute("data-row")?.parse().ok()
}

/// Folds or unfolds a group's row; a layer's stays as it is.
fn toggle(looked: Looked, row: usize) -> bool {
    match looked.chain.with_untracked(|c| c.rows.get(row).map(|r| r.kind)) {
        Some(Kind::Folded(group)) => looked.turn(group, true),
        Some(Kind::Open(group)) => looked.turn(group, false),
        _ => return false,
    }
    true
}

fn key(looked: Looked, event: &KeyboardEvent) {
    let chain = looked.chain.get_untracked();
    let row = looked.selected.get_untracked();
    let last = chain.rows.len().saturating_sub(1);
    let (ctrl, shift) = (event.ctrl_key() || event.meta_key(), event.shift_key());
    let begun = looked.picked.with_untracked(Option::is_some);
    match keys::find(Scope::Chain, &event.key(), ctrl, shift) {
        Some(Command::RowUp) => looked.pick(row.saturating_sub(1)),
        Some(Command::RowDown) => looked.pick(if begun { last.min(row + 1) } else { 0 }),
        Some(Command::PageUp) => looked.pick(row.saturating_sub(10)),
        Some(Command::PageDown) => looked.pick(last.min(row + 10)),
        Some(Command::FirstRow) => looked.pick(0),
        Some(Command::LastRow) => looked.pick(last),
        Some(Command::Unfold) => match chain.rows[row].kind {
            Kind::Folded(group) => looked.turn(group, true),
            Kind::Open(_) => looked.pick(last.min(row + 1)),
            Kind::Layer => {}
        },
        Some(Command::Fold) => match (chain.rows[row].kind, chain.parent(row)) {
            (Kind::Open(group), _) => looked.turn(group, false),
            (_, Some(parent)) => looked.pick(parent),
            _ => {}
        },
        Some(Command::Enter) => {
            looked.pick(row);
            if !toggle(looked, row) {
                focus("time-forward");
            }
        }
        Some(Command::Find) => focus("find-layer"),
        Some(Command::NextCut) => {
            let from = chain.rows[row].first;
            select(looked.borders.with_untracked(|b| b.iter().position(|b| *b > from)));
        }
        Some(Command::PreviousCut) => {
            let from = chain.rows[row].first;
            select(looked.borders.with_untracked(|b| b.iter().rposition(|b| *b <= from)));
        }
        _ => return,
    }
    event.prevent_default();
    event.stop_propagation();
}
