//! The centre: tool bar, canvas and key hints.

use super::painter::Painter;
use super::pointer::Hand;
use crate::base::focus::{focus, typing};
use crate::base::format;
use crate::base::keys::{self, Command, Scope};
use crate::base::texts::{t, tr};
use crate::draw::palette::ColourBy;
use crate::planner::details::{one_line, tip};
use crate::planner::engine::Shown;
use crate::screens::plan::state::PlanState;
use crate::state::State;
use crate::widgets::moves::{act, select};
use crate::widgets::reel::{LaneHeight, reel};
use crate::widgets::size::observe;
use leptos::ev::KeyboardEvent;
use leptos::prelude::*;
use pipewright_core::schedule::Action;
use pipewright_core::timeline::{What, causes};

#[component]
pub fn TimelinePane(own: PlanState) -> impl IntoView {
    let state = expect_context::<State>();
    view! {
        <section class="time" aria-label=t("Timeline")>
            <ToolBar own />
            <Picture own />
            <div class="tfoot" aria-hidden="true">
                <span><kbd>"W"</kbd>" "<kbd>"S"</kbd>" "{t("zoom")}</span>
                <span><kbd>"A"</kbd>" "<kbd>"D"</kbd>" "{t("pan")}</span>
                <span><kbd>"←"</kbd>" "<kbd>"→"</kbd>" "{t("select")}</span>
                <span><kbd>"F"</kbd>" "{t("fit")}</span>
                <span><kbd>"/"</kbd>" "{t("find")}</span>
                <span><kbd>"?"</kbd>" "{t("all keys")}</span>
                <span class="say">{move || said(state)}</span>
            </div>
            // The same words for those who hear the page.
            <p class="sr" aria-live="polite">{move || said(state)}</p>
        </section>
    }
}

fn said(state: State) -> String {
    let selected = state.look.selected.get();
    let solved = state.shown.get().solved;
    selected
        .and_then(|action| one_line(&solved.timeline, &state.arrivals.get(), action))
        .unwrap_or_default()
}

#[component]
fn ToolBar(own: PlanState) -> impl IntoView {
    let state = expect_context::<State>();
    let colours = ColourBy::ALL.map(|(by, name)| {
        let on = move || (state.look.colour_by.get() == by).to_string();
        view! { <button aria-pressed=on on:click=move |_| state.look.colour_by.set(by)>{t(name)}</button> }
    });
    view! {
        <div class="tbar">
            <h2>{t("Timeline")}</h2>
            <div class="seg" role="group" aria-label=t("Colour by")>{colours.collect_view()}</div>
            <label class="chk">
                <input type="checkbox" id="critical" prop:checked=move || state.look.critical.get()
                    on:change=move |e| state.look.critical.set(event_target_checked(&e)) />
                <span>{t("Critical path")}</span>
            </label>
            <label class="chk" class:off=move || state.look.measured.with(Option::is_none)
                title=t("Drop the runner's trace.json to see what was measured over what was predicted")>
                <input type="checkbox" id="measured" prop:checked=move || state.look.show_measured.get()
                    prop:disabled=move || state.look.measured.with(Option::is_none)
                    on:change=move |e| {
                        state.look.view.set(None);
                        state.look.show_measured.set(event_target_checked(&e));
                    } />
                <span>{t("Measured")}</span>
            </label>
            <LaneHeight />
            <Find own />
            <Legend />
        </div>
    }
}

/// `/` opens it: `3F7` selects that action.
#[component]
fn Find(own: PlanState) -> impl IntoView {
    let state = expect_context::<State>();
    let input: NodeRef<leptos::html::Input> = NodeRef::new();
    Effect::new(move |_| {
        if let Some(input) = input.get() {
            let _ = input.focus();
        }
    });
    let close = move || {
        own.finding.set(false);
        focus("timeline");
    };
    let typed = move |event: KeyboardEvent| match event.key().as_str() {
        "Enter" => {
            let text = input.get_untracked().map(|i| i.value()).unwrap_or_default();
            let found = text.trim().to_ascii_uppercase().parse::<Action>().ok().filter(|action| {
                state.shown.with_untracked(|s| causes::find(&s.solved.timeline, *action).is_some())
            });
            match found {
                Some(action) => {
                    select(state, action);
                    close();
                }
                None => state.complain(tr!(
                    "No action `{text}`; write stage, F or B, micro-batch: 3F7.",
                    text
                )),
            }
        }
        "Escape" => {
            event.stop_propagation();
            close();
        }
        _ => {}
    };
    view! {
        <Show when=move || own.finding.get()>
            <input class="find" node_ref=input placeholder="3F7" aria-label=t("Find an action")
                on:keydown=typed on:blur=move |_| own.finding.set(false) />
        </Show>
    }
}

#[component]
fn Legend() -> impl IntoView {
    let state = expect_context::<State>();
    let kinds = move || state.look.colour_by.get() == ColourBy::Kind;
    let sums = move || {
        state.shown.with(|s| {
            let mut asides = s.solved.timeline.lanes.iter().flat_map(|lane| &lane.asides);
            asides.any(|aside| matches!(aside.what, What::AllReduce(_)))
        })
    };
    let measured = move || {
        state.overlay().map(|m| {
            let predicted = state.shown.with(|s| s.solved.timeline.step.secs());
            tr!("measured {change}", change = format::signed_percent(m.step.secs(), predicted))
        })
    };
    view! {
        <div class="keys">
            <Show when=kinds>
                <span class="key"><i class="f"></i>{t("forward")}</span>
                <span class="key"><i class="b"></i>{t("backward")}</span>
                <Show when=move || state.shown.with(|s| s.solved.schedule.splits_backward())>
                    <span class="key"><i class="w"></i>{t("weight gradient")}</span>
                </Show>
            </Show>
            <Show when=kinds><span class="key"><i class="u"></i>{t("update")}</span></Show>
            <span class="key"><i class="idle"></i>{t("idle")}</span>
            <span class="key"><i class="send"></i>{t("send")}</span>
            <Show when=sums>
                <span class="key"><i class="red"></i>{t("gradient sum")}</span>
            </Show>
            {move || measured().map(|text| view! {
                <span class="key"><i class="meas"></i>{text}</span>
            })}
        </div>
    }
}

/// The canvas: one widget with one focus; a second canvas above it carries what follows the hand.
#[component]
fn Picture(own: PlanState) -> impl IntoView {
    let state = expect_context::<State>();
    let base: NodeRef<leptos::html::Canvas> = NodeRef::new();
    let marks: NodeRef<leptos::html::Canvas> = NodeRef::new();
    let painter = Painter::new(state, own);
    let hand = Hand::new(state, own, painter.clone());
    attach(base, marks, painter.clone());
    follow(state, own, painter.clone());
    let label = move || {
        let solved = state.shown.get().solved;
        let (time, unit) = format::hero(solved.timeline.step);
        tr!(
            "Timeline of one step: {lanes} lanes, {time}. Arrow keys select actions; the table of \
             lanes says the same.",
            lanes = solved.timeline.lanes.len(),
            time = format_args!("{time} {unit}")
        )
    };
    let on = |f: fn(&Hand, &web_sys::PointerEvent)| {
        let hand = hand.clone();
        move |event: web_sys::PointerEvent| f(&hand, &event)
    };
    let down = {
        let hand = hand.clone();
        move |event: web_sys::PointerEvent| {
            if let Some(canvas) = base.get_untracked() {
                let _ = canvas.set_pointer_capture(event.pointer_id());
            }
            hand.pressed(&event);
        }
    };
    let leave = hand.clone();
    let canvases = view! {
            <canvas id="timeline" node_ref=base tabindex="0" role="application" aria-label=label
                on:pointerdown=down on:pointermove=on(Hand::moved) on:pointerup=on(Hand::released)
                on:pointercancel=on(Hand::released) on:pointerleave=move |_| leave.left()
                on:wheel=move |e| hand.wheel(&e) on:keydown=move |e| key(state, own, &e)></canvas>
            <canvas class="marks" node_ref=marks aria-hidden="true"></canvas>
    };
    view! {
        <div class="pic" class:stale=move || state.shown.with(|s| s.problem.is_some())>
            {reel(own.scroll, canvases)}
            <Tip own />
            <Show when=move || state.shown.with(|s| s.problem.is_some())>
                <p class="before">{move || state.shown.with(Shown::stale)}</p>
            </Show>
        </div>
    }
}

/// Hands the canvases to the painter and keeps their size.
fn attach(
    base: NodeRef<leptos::html::Canvas>,
    marks: NodeRef<leptos::html::Canvas>,
    painter: Painter,
) {
    Effect::new(move |_| {
        let (Some(base), Some(marks)) = (base.get(), marks.get()) else { return };
        painter.attach(base.clone(), marks);
        let sized = {
            let (painter, base) = (painter.clone(), base.clone());
            move || {
                let Some(parent) = base.parent_element() else { return };
                painter.resize(f64::from(parent.client_width()), f64::from(parent.client_height()));
            }
        };
        sized();
        if let Some(parent) = base.parent_element() {
            observe(&parent, sized);
        }
    });
}

/// Draws again when what is drawn from changes.
fn follow(state: State, own: PlanState, painter: Painter) {
    let everything = painter.clone();
    Effect::new(move |_| {
        state.shown.track();
        state.look.view.track();
        state.look.colour_by.track();
        if state.look.critical.get() {
            state.path.track();
        }
        state.overlay();
        state.theme.track();
        own.scroll.track(state);
        crate::base::meter::computed();
        everything.ask(true);
    });
    let seen = painter.clone();
    Effect::new(move |_| {
        let Some(action) = state.look.selected.get() else { return };
        let place = state.shown.with_untracked(|s| causes::find(&s.solved.timeline, action));
        if let Some((layout, (lane, _))) = seen.layout().zip(place) {
            own.scroll.show(&layout, lane);
        }
    });
    Effect::new(move |_| {
        state.look.selected.track();
        own.hovered.track();
        state.look.range.track();
        painter.ask(false);
    });
}

/// The hovered action's line; the same words as in the details.
#[component]
fn Tip(own: PlanState) -> impl IntoView {
    let state = expect_context::<State>();
    let text = move || {
        let action = own.hovered.get()?;
        let solved = state.shown.get().solved;
        tip(&solved, &state.arrivals.get(), action)
    };
    // Another picture has other bars under the pointer.
    Effect::new(move |before: Option<()>| {
        state.look.view.track();
        state.shown.track();
        if before.is_some() {
            own.hovered.set(None);
        }
    });
    // Under the pointer and, near the right edge, to its left; the text is at most 420 px wide.
    let place = move || {
        let (x, y) = own.hovered_at.get();
        format!("left:clamp(8px,{:.0}px,max(8px,100% - 430px));top:{:.0}px", x + 12.0, y + 20.0)
    };
    view! {
        {move || text().map(|text| view! { <p class="tip" style=place>{text}</p> })}
    }
}

fn key(state: State, own: PlanState, event: &KeyboardEvent) {
    if typing() {
        return;
    }
    let with_ctrl = event.ctrl_key() || event.meta_key();
    let Some(command) = keys::find(Scope::Timeline, &event.key(), with_ctrl, event.shift_key())
    else {
        return;
    };
    event.prevent_default();
    match command {
        Command::Find => own.finding.set(true),
        _ => act(state, command),
    }
}
