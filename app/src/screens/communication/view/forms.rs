//! Forms of parallel training side by side, on one clock: who sends what to whom, and when.

use crate::base::format;
use crate::base::later::{self, Missing};
use crate::base::screen::Screen;
use crate::base::texts::{t, tr};
use crate::planner::engine::Ground;
use crate::screens::communication::chart::forms::draw;
use crate::screens::communication::model::forms::{self, DEVICES_MAX, Row, says};
use crate::state::State;
use crate::widgets::size::watch;
use leptos::prelude::*;
use leptos::wasm_split::wasm_split;
use pipewright_core::cost::forms::FormCost;
use pipewright_core::units::Nanos;
use std::sync::Arc;

/// Seconds that the longest step takes when it is played.
const SHOW: f64 = 8.0;
/// Positions of the slider.
const STEPS: f64 = 1000.0;

#[component]
pub fn FormsView() -> impl IntoView {
    later::view(regions())
}

/// Something computed anew only when what it follows from changes.
#[derive(Clone)]
struct Known(Arc<Vec<Row>>);

impl PartialEq for Known {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

#[derive(Clone, Copy)]
struct Forms {
    page: State,
    devices: RwSignal<u32>,
    rows: Memo<Known>,
    /// The longest step.
    most: Memo<Nanos>,
    /// Where the clock stands.
    at: RwSignal<f64>,
    playing: RwSignal<bool>,
}

impl Forms {
    fn new(page: State) -> Self {
        let usual = page.inputs.with_untracked(|i| i.ranks().clamp(2, 8));
        let devices = RwSignal::new(usual);
        // Nobody looks at what is hidden.
        let rows = Memo::new(move |old: Option<&Known>| match (page.screen.get(), old) {
            (Screen::Communication, _) | (_, None) => {
                let made = page.inputs.with(|i| {
                    page.ground.with(|g| forms::rows(i, &Ground::near(i, g), devices.get()))
                });
                Known(Arc::new(made))
            }
            (_, Some(old)) => old.clone(),
        });
        let most = Memo::new(move |_| {
            rows.with(|rows| costs(rows).map(|cost| cost.step).max().unwrap_or_default())
        });
        Self { page, devices, rows, most, at: RwSignal::new(0.0), playing: RwSignal::new(false) }
    }

    fn now(self) -> Nanos {
        Nanos(self.at.get().max(0.0) as u64)
    }

    fn most(self) -> f64 {
        self.most.get().0.max(1) as f64
    }

    /// Plays on, a frame after the other, until the end.
    fn play(self, before: Option<f64>) {
        request_animation_frame(move || {
            let shown = self.page.screen.try_get_untracked() == Some(Screen::Communication);
            if !shown || self.playing.try_get_untracked() != Some(true) {
                return;
            }
            let now = crate::base::meter::now();
            let passed = before.map_or(0.0, |before| now - before);
            let most = untrack(|| self.most());
            let next = self.at.get_untracked() + passed / 1e3 / SHOW * most;
            self.at.set(next.min(most));
            match next < most {
                true => self.play(Some(now)),
                false => self.playing.set(false),
            }
        });
    }

    /// To the next or the previous moment at which something changes in any form.
    fn step(self, forward: bool) {
        self.playing.set(false);
        let now = Nanos(self.at.get_untracked() as u64);
        let all = self
            .rows
            .with_untracked(|rows| costs(rows).flat_map(forms::moments).collect::<Vec<Nanos>>());
        let found = match forward {
            true => all.into_iter().filter(|at| *at > now).min(),
            false => all.into_iter().filter(|at| *at < now).max(),
        };
        self.at.set(found.unwrap_or(now).0 as f64);
    }
}

fn costs(rows: &Known) -> impl Iterator<Item = &FormCost> {
    rows.0.iter().filter_map(|row| row.cost.as_ref().ok())
}

#[wasm_split(communication, wasm_split_path = ::leptos::wasm_split, fallible)]
fn regions() -> Result<AnyView, Missing> {
    let state = Forms::new(expect_context::<State>());
    provide_context(state);
    let cards = (0..state.rows.with_untracked(|rows| rows.0.len())).map(|at| view! { <Card at /> });
    Ok(view! {
        <Head />
        <div class="cards">{cards.collect_view()}</div>
        <Collectives />
    }
    .into_any())
}

#[component]
fn Head() -> impl IntoView {
    let state = expect_context::<Forms>();
    let typed = move |event: web_sys::Event| {
        let input: web_sys::HtmlInputElement = event_target(&event);
        match input.value().trim().parse::<u32>() {
            Ok(n) if (2..=DEVICES_MAX).contains(&n) => state.devices.set(n),
            _ => {
                state.page.complain(tr!("From 2 to {most} devices are drawn.", most = DEVICES_MAX));
                input.set_value(&state.devices.get_untracked().to_string());
            }
        }
    };
    let play = move |_| {
        let on = !state.playing.get_untracked();
        state.playing.set(on);
        if on {
            if state.at.get_untracked() >= untrack(|| state.most()) {
                state.at.set(0.0);
            }
            state.play(None);
        }
    };
    let place = move || state.at.get() / state.most() * STEPS;
    let slide = move |event: web_sys::Event| {
        if let Ok(position) = event_target_value(&event).parse::<f64>() {
            state.playing.set(false);
            state.at.set(position / STEPS * untrack(|| state.most()));
        }
    };
    let clock = move || {
        let clock = format::Clock::of(state.most.get());
        clock.text(state.now())
    };
    view! {
        <div class="tbar">
            <h2 title=t("Closed forms: GPipe's order, cuts by equal time, nothing recomputed, SGD with momentum")>{t("Parallel forms side by side")}</h2>
            <label class="on-devices" for="form-devices">{t("Devices")}</label>
            <input id="form-devices" class="box" type="number" min="2" max=DEVICES_MAX.to_string()
                prop:value=move || state.devices.get().to_string() on:change=typed />
            <button class="btn" id="form-play" on:click=play>
                {move || if state.playing.get() { t("Pause") } else { t("Play a step") }}
            </button>
            <button class="btn" id="form-back" aria-label=t("Previous step") on:click=move |_| state.step(false)>"‹"</button>
            <button class="btn" id="form-next" aria-label=t("Next step") on:click=move |_| state.step(true)>"›"</button>
            <input id="form-at" type="range" min="0" max=STEPS.to_string() step="1" aria-label=t("Time \
                within the step")
                style=move || format!("--p:{:.1}%", place() / STEPS * 100.0)
                prop:value=move || place().to_string() aria-valuetext=clock on:input=slide />
            <output>{clock}</output>
        </div>
    }
}

/// A form: figures, picture, and what goes on.
#[component]
fn Card(at: usize) -> impl IntoView {
    let state = expect_context::<Forms>();
    let frame: NodeRef<leptos::html::Div> = NodeRef::new();
    let size = watch(frame, (300.0, 120.0));
    let (title, what) = state.rows.with_untracked(|rows| forms::title(rows.0[at].form));
    let row = move |rows: &Known| rows.0.get(at).map(|row| row.cost.clone());
    let cost = Memo::new(move |_| state.rows.with(row));
    let picture = move || {
        cost.with(|cost| match cost {
            Some(Ok(cost)) => draw(cost, state.now(), state.most.get(), size.get().0),
            _ => String::new(),
        })
    };
    let said = move || {
        cost.with(|cost| match cost {
            Some(Ok(cost)) => says(cost, state.now()),
            Some(Err(why)) => why.clone(),
            None => String::new(),
        })
    };
    let plan = Memo::new(move |_| state.rows.with(|rows| rows.0.get(at).and_then(|row| row.plan)));
    let as_plan = move || {
        plan.get().map(|figures| {
            let (step, unit) = format::hero(figures.step);
            let over = state.page.cluster.with(|c| figures.peak > c.device.memory);
            let sign = if over { "✕ " } else { "" };
            view! {
                <p class="figs plan" data-plan-step=figures.step.0.to_string()>
                    {tr!("As a plan with these choices: {step}, ", step = format!("{step} {unit}"))}
                    <span class:bad=over>{sign}{tr!("memory {bytes}", bytes = format::bytes_text(figures.peak))}</span>
                </p>
            }
        })
    };
    let figures = move || {
        cost.with(|cost| {
            let cost = cost.as_ref()?.as_ref().ok()?;
            let (step, unit) = format::hero(cost.step);
            let over = state.page.cluster.with(|c| cost.peak > c.device.memory);
            let (sign, title) = match over {
                true => ("✕ ", t("More than a device has")),
                false => ("", ""),
            };
            Some(view! {
                <b class="num" data-form-step=cost.step.0.to_string()>{step}" "{unit}</b>
                <span class:bad=over title=title>{sign}{tr!("memory {bytes}", bytes = format::bytes_text(cost.peak))}</span>
                <span>{tr!("sent {bytes}", bytes = format::bytes_text(cost.traffic))}</span>
                <span>{match cost.communications {
                    1 => t("1 communication").to_owned(),
                    count => tr!("{count} communications", count),
                }}</span>
            })
        })
    };
    view! {
        <article class="card form">
            <h3>{t(title)}</h3>
            <p class="note">{t(what)}</p>
            <p class="figs">{figures}</p>
            {as_plan}
            <div class="plot" node_ref=frame inner_html=picture></div>
            <p class="say">{said}</p>
        </article>
    }
}

/// Every collective with the model's gradients.
#[component]
fn Collectives() -> impl IntoView {
    let state = expect_context::<Forms>();
    let rows = move || {
        let found = state.page.ground.with(|g| forms::collectives(g, state.devices.get()));
        let row = |(name, time, speed): (&'static str, Nanos, f64)| {
            let (value, unit) = format::hero(time);
            view! {
                <tr><th scope="row">{t(name)}</th><td class="num">{value}" "{unit}</td>
                    <td class="num">{format::speed(speed)}</td></tr>
            }
        };
        found.into_iter().map(row).collect_view()
    };
    let bytes = move || {
        let elements = state.page.graph.with(|g| g.trainable_elements());
        let bytes = pipewright_core::units::Bytes(elements * 4);
        tr!(
            "{bytes} of gradients on {count} devices",
            bytes = format::bytes_text(bytes),
            count = state.devices.get()
        )
    };
    view! {
        <table class="colls">
            <caption>{bytes}</caption>
            <thead><tr><th>{t("collective")}</th><th class="num">{t("time")}</th>
                <th class="num">{t("bus bandwidth")}</th></tr></thead>
            <tbody>{rows}</tbody>
        </table>
    }
}
