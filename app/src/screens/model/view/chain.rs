//! The chain: a scrolling tree of rows of which only those in sight exist, with stages, arcs and cuts.

use super::look::Looked;
use crate::base::focus::{focus, rewrite};
use crate::base::format::{self, Clock};
use crate::base::keys::{self, Command, Scope};
use crate::base::texts::{t, tr};
use crate::draw::fill::Fill;
use crate::screens::model::anatomy::chain::ROW;
use crate::screens::model::anatomy::fold::Kind;
use crate::screens::model::chart::chain as picture;
use crate::widgets::size::watch;
use crate::widgets::split::{Handles, select};
use crate::widgets::stands::{Shown, Stands};
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

/// What the chain shows, and what its signs mean.
fn title() -> String {
    format!(
        "<h2>{}</h2><span class='dim small'>{}</span><div class='keys'>\
         <span class='key'><i class='f'></i>{}</span><span class='key'><i class='b'></i>{}</span>\
         <span class='key'><svg width='14' height='12' aria-hidden='true'>\
         <path class='ch-arc' d='M12 1Q3 1 3 5V7Q3 11 12 11'/></svg>{}</span></div>",
        t("Layers"),
        t("one micro-batch"),
        t("forward"),
        t("backward"),
        t("skip connection")
    )
}

#[component]
pub fn ChainPane() -> impl IntoView {
    let looked = expect_context::<Looked>();
    let frame: NodeRef<Div> = NodeRef::new();
    let body: NodeRef<Div> = NodeRef::new();
    let size = watch(frame, (800.0, 600.0));
    // In steps, so that most scrolling draws nothing.
    let step = RwSignal::new(0.0);
    let window = move || (step.get() - BEYOND, step.get() + size.get().1 + 1.5 * BEYOND);
    let rows = move || {
        looked.look(|scene, look| {
            let (from, to) = window();
            let seen = scene.chain.visible(from, to);
            picture::rows(&scene.chain, seen, look, scene.longest)
        })
    };
    let beside = move || {
        let window = window();
        looked.look(|scene, look| {
            let arcs = picture::arcs(&scene.chain, &scene.arcs, window, look.selected);
            let shown = &looked.page.shown;
            arcs + shown.with(|s| picture::stages(&scene.chain, &scene.borders, &s.solved)).as_str()
        })
    };
    let scrolled = move |_| {
        let Some(frame) = frame.get_untracked() else { return };
        let now = (f64::from(frame.scroll_top()) / (BEYOND / 2.0)).floor() * (BEYOND / 2.0);
        if now != step.get_untracked() {
            step.set(now);
        }
    };
    reveal(looked, frame, size);
    follow(looked, body);
    let click = move |event: MouseEvent| {
        if let Some(row) = row_at(&event) {
            looked.pick(row);
            toggle(looked, row);
        }
    };
    let head = move || picture::head(looked.scene.with(|s| s.longest));
    view! {
        <section class="chain" aria-label=t("Layers")>
            <div class="tbar" inner_html=title()></div>
            <div class="ch-frame" node_ref=frame on:scroll=scrolled>
                <div class="ch-all" node_ref=body>
                    <div id="chain" role="treegrid" tabindex="0" aria-label=t("Layers and their costs")
                        on:keydown=move |event| key(looked, &event) on:click=click>
                        <div role="rowgroup" class="ch-head" inner_html=head></div>
                        <div class="ch-rows" role="rowgroup" inner_html=rows></div>
                    </div>
                    <div class="ch-side" inner_html=beside></div>
                    <Cuts frame body />
                </div>
            </div>
        </section>
    }
}

/// The plan's cuts, as handles over the rows.
#[component]
fn Cuts(frame: NodeRef<Div>, body: NodeRef<Div>) -> impl IntoView {
    let looked = expect_context::<Looked>();
    let count = Memo::new(move |_| looked.page.inputs.with(|i| i.cuts.len()));
    let caught = Memo::new(move |_| 0..count.get());
    let place = move |index: usize| {
        let border = |s: &super::look::Scene| s.borders.get(index).map(|b| s.chain.border(*b));
        looked.scene.with(|s| border(s)).unwrap_or(0.0) + HEAD
    };
    let near = Callback::new(move |y: f64| {
        if let Some(frame) = frame.get_untracked() {
            let inside = y - f64::from(frame.scroll_top());
            let down = inside > f64::from(frame.client_height()) - EDGE;
            let up = inside < HEAD + EDGE;
            let by = if down { ROW } else { -ROW * f64::from(u8::from(up)) };
            frame.set_scroll_top(frame.scroll_top() + by as i32);
        }
        looked.scene.with_untracked(|s| s.chain.near(y - HEAD)).saturating_sub(1)
    });
    let shown = Callback::new(move |index: usize| {
        let top = place(index);
        let close = |other: usize| other < count.get() && (place(other) - top).abs() < 24.0;
        let crowded = close(index + 1) || index.checked_sub(1).is_some_and(close);
        Shown { top, crowded, says: neighbours(looked, index) }
    });
    let stands = Stands::new(looked.page, looked.places, shown);
    view! { <Handles caught places=looked.places frame=body near stands /> }
}

/// Scrolls to the selected row when that is wished for.
fn reveal(looked: Looked, frame: NodeRef<Div>, size: ReadSignal<(f64, f64)>) {
    Effect::new(move |_| {
        looked.reveal.track();
        let Some((row, _)) = untrack(|| looked.selected()) else { return };
        let (from, to) = looked.scene.with_untracked(|s| s.chain.span(row));
        if let Some(frame) = frame.get_untracked() {
            let now = f64::from(frame.scroll_top());
            let high = size.get_untracked().1 - HEAD;
            let wanted = now.min(from).max((to - high).min(from));
            if wanted != now {
                frame.set_scroll_top(wanted.round() as i32);
            }
        }
    });
}

/// Keeps the height, and what the tree says of itself, up to date.
fn follow(looked: Looked, body: NodeRef<Div>) {
    Effect::new(move |_| {
        let Some(body) = body.get() else { return };
        let (height, rows) = looked.scene.with(|s| (s.chain.height(), s.chain.rows.len()));
        let _ = body.set_attribute("style", &format!("height:{:.0}px", height + HEAD));
        let Some(tree) = document().get_element_by_id("chain") else { return };
        let _ = tree.set_attribute("aria-rowcount", &(rows + 1).to_string());
        let _ = match looked.selected() {
            Some((row, _)) => tree.set_attribute("aria-activedescendant", &format!("ch-{row}")),
            None => tree.remove_attribute("aria-activedescendant"),
        };
    });
}

/// Time and memory of the stages on both sides of a cut.
fn neighbours(looked: Looked, index: usize) -> String {
    looked.page.shown.with(|s| {
        let stage = |stage: usize| {
            let lane = *s.solved.lane_of.get(stage)?;
            let (cost, lane) = (s.solved.stages.get(stage)?, s.solved.timeline.lanes.get(lane)?);
            let time = cost.forward + cost.backward();
            let sign = Fill::of(lane.arena, s.solved.capacity).sign();
            let memory = format::bytes_text(lane.arena);
            Some(tr!(
                "stage {stage}: {time} · {memory}",
                stage,
                time = Clock::of(time).text(time),
                memory = format_args!("{sign}{memory}")
            ))
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
    match looked.scene.with_untracked(|s| s.chain.rows.get(row).map(|r| r.kind)) {
        Some(Kind::Folded(group)) => looked.turn(group, true),
        Some(Kind::Open(group)) => looked.turn(group, false),
        _ => return false,
    }
    true
}

fn key(looked: Looked, event: &KeyboardEvent) {
    let scene = looked.scene.get_untracked();
    let selected = untrack(|| looked.selected());
    let (rows, row) = (&scene.chain.rows, selected.map_or(0, |(row, _)| row));
    let last = rows.len().saturating_sub(1);
    let (ctrl, shift) = (event.ctrl_key() || event.meta_key(), event.shift_key());
    match keys::find(Scope::Chain, &event.key(), ctrl, shift) {
        Some(Command::RowUp) => looked.pick(row.saturating_sub(1)),
        Some(Command::RowDown) => looked.pick(selected.map_or(0, |_| last.min(row + 1))),
        Some(Command::PageUp) => looked.pick(row.saturating_sub(10)),
        Some(Command::PageDown) => looked.pick(last.min(row + 10)),
        Some(Command::FirstRow) => looked.pick(0),
        Some(Command::LastRow) => looked.pick(last),
        Some(Command::Unfold) => match rows[row].kind {
            Kind::Folded(group) => looked.turn(group, true),
            Kind::Open(_) => looked.pick(last.min(row + 1)),
            Kind::Layer => {}
        },
        Some(Command::Fold) => match (rows[row].kind, scene.chain.parent(row)) {
            (Kind::Open(group), _) => looked.turn(group, false),
            (_, Some(parent)) => looked.pick(parent),
            _ => {}
        },
        Some(Command::Enter) => {
            looked.pick(row);
            if !toggle(looked, row) {
                rewrite("time-forward");
            }
        }
        Some(Command::Find) => focus("find-layer"),
        Some(Command::NextCut) => {
            select(looked.page, scene.borders.iter().position(|b| *b > rows[row].first));
        }
        Some(Command::PreviousCut) => {
            select(looked.page, scene.borders.iter().rposition(|b| *b <= rows[row].first));
        }
        _ => return,
    }
    event.prevent_default();
    event.stop_propagation();
}
