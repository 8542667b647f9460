//! A strip of all schedules: each as a small picture of this plan. Hovering shows one, a click takes it.

use crate::base::format::{self, Delta};
use crate::base::texts::{said, t, tr};
use crate::planner::inputs::Inputs;
use crate::screens::plan::model::orders::{Tile, picture, trades};
use crate::screens::plan::state::PlanState;
use crate::state::State;
use crate::state::request::Request;
use leptos::prelude::*;
use pipewright_core::units::{Bytes, Nanos};
use pipewright_worker::protocol::{Drawn, Make};
use web_sys::PointerEvent;

/// How much longer than the plan's step the axis of the pictures is.
const AXIS: f64 = 1.25;

#[component]
pub fn Orders(own: PlanState) -> impl IntoView {
    let state = expect_context::<State>();
    // What the plan was before a schedule was hovered.
    let before: StoredValue<Option<Inputs>> = StoredValue::new(None);
    let end = Memo::new(move |_| {
        own.orders.with(|tiles| {
            let now =
                state.inputs.with_untracked(|i| tiles.iter().find(|tile| tile.is_of(i)).cloned());
            let length = now.and_then(|tile| tile.drawn).map(|drawn| drawn.length as f64);
            length
                .or_else(|| tiles.iter().find_map(|tile| Some(tile.drawn.as_ref()?.length as f64)))
        })
    });
    // What schedules are compared with: the plan as it was before one was hovered.
    let step = Memo::new(move |old: Option<&Nanos>| {
        let now = state.shown.with(|s| s.solved.figures.step);
        old.copied().filter(|_| before.with_value(Option::is_some)).unwrap_or(now)
    });
    view! {
        <ul class="orders" id="schedules">
            <For each=move || {
                let end = end.get().unwrap_or(1.0) * AXIS;
                own.orders.get().into_iter().map(move |tile| (end, tile)).collect::<Vec<_>>()
            } key=|(end, tile)| key(*end, tile) children=move |(end, tile)| view! { <OrderTile tile before end step /> } />
        </ul>
    }
}

/// The same where the tile looks the same.
fn key(end: f64, tile: &Tile) -> String {
    let order = serde_json::to_string(&tile.order).unwrap_or_default();
    let Some(drawn) = &tile.drawn else { return order };
    let Drawn { step, length, peak, fits, rows, why, .. } = drawn;
    let (rows, why) = (rows.concat(), why.as_deref().unwrap_or_default());
    format!("{order}{end} {step} {length} {peak} {fits}{rows}{why}")
}

#[component]
fn OrderTile(
    tile: Tile,
    before: StoredValue<Option<Inputs>>,
    end: f64,
    step: Memo<Nanos>,
) -> impl IntoView {
    let state = expect_context::<State>();
    let tile = StoredValue::new(tile);
    let mine = Memo::new(move |_| state.inputs.with(|i| tile.with_value(|tile| tile.is_of(i))));
    let possible = tile.with_value(|tile| tile.kind.is_some() && tile.refusal().is_none());
    let show = move |event: PointerEvent| {
        let untouched = before.with_value(Option::is_none) && !mine.get_untracked();
        // Where something above it went away the tile came to the pointer, and nobody asked for it.
        let moved = (event.movement_x(), event.movement_y()) != (0, 0);
        if possible && untouched && moved && event.pointer_type() == "mouse" {
            before.set_value(Some(state.inputs.get_untracked()));
            state.drag(|inputs| tile.with_value(|tile| tile.apply(inputs)));
        }
    };
    let back = move |_: PointerEvent| {
        if let Some(inputs) = before.try_update_value(Option::take).flatten() {
            state.drag(move |i| *i = inputs);
            state.release();
        }
    };
    let take = move |_| {
        before.set_value(None);
        match tile.with_value(|tile| tile.kind) {
            None => state.request(Request::Make(Make::Order)),
            Some(_) => state.edit(|inputs| tile.with_value(|tile| tile.apply(inputs))),
        }
        state.release();
    };
    let drawn = tile.with_value(|tile| tile.drawn.clone());
    let unfit = drawn.as_ref().is_some_and(|drawn| drawn.why.is_some() || !drawn.fits);
    let exact = drawn.as_ref().map(|drawn| drawn.step.to_string());
    let (title, kind) = tile.with_value(|tile| (tile.title(), tile.kind));
    let name = tile.with_value(|tile| tile.order.schedule.clone());
    view! {
        <li>
            <button class:unfit=unfit aria-pressed=move || mine.get().to_string() data-schedule=name data-step=exact
                title=t(trades(kind)) on:pointermove=show on:pointerleave=back on:click=take>
                <span class="thumb" inner_html=drawn.as_ref().map(|drawn| picture(drawn, end))></span>
                <b translate="no">{title}</b>
                {figures(drawn.as_ref(), step)}
                <small>{t(trades(kind))}</small>
            </button>
        </li>
    }
}

/// Step and peak, and how they compare; or why there are none.
fn figures(drawn: Option<&Drawn>, now: Memo<Nanos>) -> AnyView {
    let Some(drawn) = drawn else { return view! { <i>{t("simulating")}</i> }.into_any() };
    if let Some(why) = &drawn.why {
        let text = if why.is_empty() { t("click to make it").to_owned() } else { said(why) };
        return view! { <i>{text}</i> }.into_any();
    }
    let step = Nanos(drawn.step);
    let (value, unit) = format::hero(step);
    let change = move || match format::relative(step.secs(), now.get().secs()) {
        Delta::Same => view! { <span class="dim">{t("as now")}</span> }.into_any(),
        Delta::By { down, text } => {
            let (class, sign) = if down { ("good", "▼") } else { ("bad", "▲") };
            view! { <span class=class>{format!("{sign} {text}")}</span> }.into_any()
        }
    };
    let peak = format::bytes_text(Bytes(drawn.peak));
    let memory = if drawn.fits { peak } else { tr!("{peak}: does not fit", peak) };
    view! {
        <span class="figs">{format!("{value} {unit}")}" "{change}</span>
        <span class="figs" class:bad=!drawn.fits>{memory}</span>
    }
    .into_any()
}
