//! Choice of a schedule, and its number where it has one; what to change where it does not fit.

use crate::base::shared::Shared;
use crate::base::texts::{t, tr};
use crate::planner::engine;
use crate::planner::inputs::Own;
use crate::planner::kept;
use crate::planner::repair::{Repair, repair};
use crate::state::State;
use crate::state::request::Request;
use leptos::prelude::*;
use pipewright_core::predict::AUTOMATIC;
use pipewright_core::schedule::{Placement, ScheduleKind};
use pipewright_worker::protocol::Make;

/// Most stages a lane that the box takes.
const NUMBER_MAX: u32 = 64;

#[component]
pub fn ScheduleSelect(id: &'static str) -> impl IntoView {
    let state = expect_context::<State>();
    let kind = Memo::new(move |_| state.inputs.with(|i| i.schedule));
    let own = Memo::new(move |_| state.inputs.with(|i| i.own.as_ref().map(|own| own.name.clone())));
    let chosen = move |event: web_sys::Event| {
        let value = event_target_value(&event);
        if value == AUTOMATIC {
            state.request(Request::Make(Make::Order));
        } else if let Ok(kind) = value.parse() {
            choose(state, kind);
        }
        // The select shows what holds: what was chosen may be refused, or an order still be made.
        let named = || ScheduleKind::ALL.into_iter().find(|one| one.is_like(kind.get_untracked()));
        let file = own.with_untracked(Option::is_some).then(|| "file".to_owned());
        let holds = file.or_else(|| named().map(|one| one.to_string()));
        event_target::<web_sys::HtmlSelectElement>(&event).set_value(&holds.unwrap_or_default());
    };
    view! {
        <div class="row">
            <label for=id>{t("Schedule")}</label>
            <span class="sel">
                <select id=id on:change=chosen>
                    {ScheduleKind::ALL.map(|one| {
                        let mine = move || own.with(Option::is_none) && one.is_like(kind.get());
                        view! { <option value=one.to_string() prop:selected=mine>{one.title()}</option> }
                    }).collect_view()}
                    {move || own.get().map(|name| view! { <option value="file" selected>{name}</option> })}
                    <option value=AUTOMATIC title=t("An order for these stages, these messages and this memory")>
                        {t("Automatic (made for this plan)")}
                    </option>
                </select>
            </span>
        </div>
        <Show when=move || own.with(Option::is_none)><Number id kind /></Show>
        <Anew />
        <Unfit />
    }
}

/// A way to a new order, where the plan is not what its automatic one was made for.
#[component]
fn Anew() -> impl IntoView {
    let state = expect_context::<State>();
    let stale = Memo::new(move |_| {
        let automatic = |own: &Shared<Own>| own.name == AUTOMATIC;
        state.inputs.with(|i| i.own.as_ref().is_some_and(automatic) && i.order().is_err())
    });
    let anew = move |_| state.request(Request::Make(Make::Order));
    view! {
        <div class="row tight" class:none=move || !stale.get()>
            <p class="note"><button class="fix" on:click=anew>{t("Rebuild the order")}</button></p>
        </div>
    }
}

/// Takes a schedule, unless the model has not layers enough for its stages.
fn choose(state: State, kind: ScheduleKind) {
    let (lanes, most) = state.inputs.with_untracked(|i| {
        (i.lanes(), state.graph.with_untracked(|g| engine::most_lanes(g, kind)))
    });
    if lanes > most {
        let said = tr!(
            "{title} on {lanes} lanes: this model has layers for at most {most}.",
            title = kind.title(),
            lanes,
            most
        );
        return state.offer(said, most, kind);
    }
    state.edit(|inputs| kept::recut(inputs, &|i| engine::reschedule(i, kind)));
}

/// Stages a lane, or waves.
#[component]
fn Number(id: &'static str, kind: Memo<ScheduleKind>) -> impl IntoView {
    let state = expect_context::<State>();
    let typed = move |event: web_sys::Event| {
        let number = event_target_value(&event).trim().parse::<u32>().ok();
        let number = number.filter(|n| (1..=NUMBER_MAX).contains(n));
        if let Some(next) = number.and_then(|n| kind.get_untracked().with_number(n)) {
            choose(state, next);
        }
        let input: web_sys::HtmlInputElement = event_target(&event);
        input.set_value(&kind.get_untracked().number().unwrap_or(1).to_string());
    };
    let id = format!("{id}-number");
    view! {
        {move || kind.get().number().map(|number| {
            let waves = matches!(kind.get().placement(), Placement::Wave { .. });
            let name = if waves { t("Waves") } else { t("Stages per lane") };
            view! {
                <div class="row">
                    <label for=id.clone()>{name}</label>
                    <input id=id.clone() class="box" type="number" min="1" max=NUMBER_MAX.to_string()
                        inputmode="numeric" prop:value=number.to_string() on:change=typed />
                </div>
            }
        })}
    }
}

/// What would make the schedule possible, where lanes and micro-batches do not.
#[component]
fn Unfit() -> impl IntoView {
    let state = expect_context::<State>();
    let found = Memo::new(move |_| {
        state.shown.with(|s| s.problem.is_some()).then(|| state.inputs.with(repair)).flatten()
    });
    let fix = move |to: Repair| {
        let name = match to {
            Repair::MicroBatches(m) => tr!("Use {m} micro-batches", m),
            Repair::Lanes(lanes) => tr!("Use {lanes} lanes", lanes),
        };
        let act = move |_| state.edit(|inputs| to.apply(inputs));
        view! { <p class="note bad">{t("Other numbers are needed.")}" "<button class="fix" on:click=act>{name}</button></p> }
    };
    view! { <div class="row tight" class:none=move || found.get().is_none()>{move || found.get().map(fix)}</div> }
}
