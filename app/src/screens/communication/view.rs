//! The Communication view: what encoding gradients would bring on the plan's links, and what it loses.

mod forms;

use super::chart::draw;
use super::model::{Asked, Base, Curve, SPAN, errors, taken};
use crate::base::format;
use crate::base::later::{self, Missing};
use crate::base::screen::Screen;
use crate::base::texts::{said, t, tr};
use crate::state::State;
use crate::widgets::icons::{Icon, icon};
use crate::widgets::size::watch;
use forms::FormsView;
use leptos::prelude::*;
use leptos::wasm_split::wasm_split;
use pipewright_core::compress::{CodecKind, Reduction};
use pipewright_core::predict::Offer;
use std::sync::Arc;

#[component]
pub fn CommunicationView() -> impl IntoView {
    later::view(regions())
}

/// Positions of the bandwidth's slider: a hundred a decade.
const STEPS: f64 = 600.0;

/// What the view shows, each computed from what stands above it.
#[derive(Clone, Copy)]
struct Comparison {
    page: State,
    asked: RwSignal<Asked>,
    /// A bandwidth that is tried; none: that of the cluster.
    tried: RwSignal<Option<f64>>,
    base: Memo<Known<Base>>,
    errors: Memo<Arc<Vec<f64>>>,
    curves: Memo<Known<Vec<Curve>>>,
    rows: Memo<Known<Vec<Offer>>>,
}

/// Something computed, or why not; the same only where nothing was computed anew.
#[derive(Clone)]
struct Known<T>(Arc<Result<T, String>>);

impl<T> PartialEq for Known<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T> Known<T> {
    fn new(result: Result<T, String>) -> Self {
        Self(Arc::new(result))
    }

    fn get(&self) -> Option<&T> {
        (*self.0).as_ref().ok()
    }

    /// What follows from it.
    fn then<U>(&self, next: impl FnOnce(&T) -> Result<U, String>) -> Known<U> {
        Known::new((*self.0).as_ref().map_err(Clone::clone).and_then(next))
    }
}

impl Comparison {
    fn new(page: State) -> Self {
        let now = page.inputs.with_untracked(|i| i.rest.communication.clone());
        let asked = RwSignal::new(Asked {
            feedback: now.gradients.method.feedback,
            by_hosts: now.hierarchical,
        });
        let tried = RwSignal::new(None);
        // Nobody looks at what is hidden.
        let base = Memo::new(move |old: Option<&Known<Base>>| match (page.screen.get(), old) {
            (Screen::Communication, _) | (_, None) => Known::new(page.inputs.with(Base::new)),
            (_, Some(old)) => old.clone(),
        });
        let ranks = Memo::new(move |_| base.with(|b| b.get().map_or(1, Base::ranks)));
        let errors = Memo::new(move |_| Arc::new(errors(ranks.get())));
        let curves = Memo::new(move |_| base.with(|b| b.then(|b| b.curves(asked.get()))));
        let rows = Memo::new(move |_| {
            base.with(|b| b.then(|b| b.rows(asked.get(), tried.get().unwrap_or(b.bytes_per_sec))))
        });
        Self { page, asked, tried, base, errors, curves, rows }
    }

    /// The bandwidth that is looked at.
    fn speed(self) -> f64 {
        let own = self.base.with(|b| b.get().map_or(1e9, |b| b.bytes_per_sec));
        self.tried.get().unwrap_or(own)
    }

    fn own(self) -> (Reduction, bool) {
        self.page
            .inputs
            .with(|i| (i.rest.communication.gradients, i.rest.communication.hierarchical))
    }
}

/// The view's regions, laid out by the style sheet.
#[wasm_split(communication, wasm_split_path = ::leptos::wasm_split, fallible)]
fn regions() -> Result<AnyView, Missing> {
    let state = Comparison::new(expect_context::<State>());
    provide_context(state);
    Ok(view! { <Choices /> <Picture /> <Codecs />
    <section class="comfrm" aria-label=t("Parallel forms side by side")><FormsView /></section> }
    .into_any())
}

#[component]
fn Choices() -> impl IntoView {
    let state = expect_context::<Comparison>();
    let page = state.page;
    let replicas = move || page.inputs.with(|i| i.rest.data_parallel.replicas);
    let copies = move |event: web_sys::Event| {
        let typed = event_target_value(&event).trim().parse::<u32>();
        match typed.ok().filter(|n| (1..=crate::planner::link::REPLICAS_MAX).contains(n)) {
            Some(n) => page.edit(|i| i.rest.data_parallel.replicas = n),
            None => {
                let input: web_sys::HtmlInputElement = event_target(&event);
                input.set_value(
                    &page.inputs.with_untracked(|i| i.rest.data_parallel.replicas.to_string()),
                );
            }
        }
    };
    let check = move |event: web_sys::Event, set: fn(&mut Asked, bool)| {
        state.asked.update(|asked| set(asked, event_target_checked(&event)));
    };
    view! {
        <aside class="inp" class:open=move || page.sheet.get() aria-label=t("Inputs of communication")>
            <details class="grp" open>
                <summary>{icon(Icon::Chevron)} <h2>{t("Gradients")}</h2></summary>
                <div class="row"><label for="replicas">{t("Replicas")}</label>
                    <input id="replicas" class="box" type="number" min="1" max=crate::planner::link::REPLICAS_MAX.to_string()
                        prop:value=move || replicas().to_string() on:change=copies /></div>
                <p class="row tight"><label class="wide"><input id="feedback" type="checkbox"
                    prop:checked=move || state.asked.get().feedback
                    on:change=move |e| check(e, |asked, on| asked.feedback = on) />" "{t("Error feedback")}</label></p>
                <p class="row tight"><label class="wide"><input id="by-hosts" type="checkbox"
                    prop:checked=move || state.asked.get().by_hosts
                    on:change=move |e| check(e, |asked, on| asked.by_hosts = on) />" "{t("Encode between hosts only")}</label></p>
            </details>
            <details class="grp" open><summary>{icon(Icon::Chevron)} <h2>{t("Stages")}</h2></summary><Edge /></details>
            <details class="grp" open>
                <summary>{icon(Icon::Chevron)} <h2>{t("Link")}</h2> <span>{t("for experiments")}</span></summary>
                <Bandwidth />
            </details>
        </aside>
    }
}

/// How values travel between stages on different nodes.
#[component]
fn Edge() -> impl IntoView {
    let page = expect_context::<Comparison>().page;
    let names = ["fp32", "bf16", "fp8-e4m3", "fp8-e5m2"];
    let now = move || page.inputs.with(|i| i.rest.communication.edges.across.to_string());
    let chosen = move |event: web_sys::Event| {
        if let Ok(codec) = event_target_value(&event).parse::<CodecKind>() {
            page.edit(|i| i.rest.communication.edges.across = codec);
        }
    };
    view! {
        <div class="row"><label for="edges">{t("Across nodes")}</label>
            <span class="sel"><select id="edges" on:change=chosen>
                {names.map(|name| view! {
                    <option value=name prop:selected=move || now() == name>{name}</option>
                }).collect_view()}
            </select></span>
        </div>
    }
}

/// The link that gradients go over, as fast as one likes.
#[component]
fn Bandwidth() -> impl IntoView {
    let state = expect_context::<Comparison>();
    let decades = (SPAN.1 / SPAN.0).log10();
    let at = move || ((state.speed() / SPAN.0).log10() / decades * STEPS).round().clamp(0.0, STEPS);
    let slide = move |event: web_sys::Event| {
        if let Ok(step) = event_target_value(&event).parse::<f64>() {
            state.tried.set(Some(SPAN.0 * 10f64.powf(step / STEPS * decades)));
        }
    };
    let which = move || {
        let between = state.base.with(|b| b.get().is_some_and(|b| b.between_nodes));
        if between { t("between nodes") } else { t("within the node") }
    };
    view! {
        <div class="row"><label for="bandwidth">{t("Bandwidth")}</label><output>{move || format::speed(state.speed())}</output></div>
        <div class="sl rsl wide1">
            <input id="bandwidth" type="range" min="0" max=STEPS.to_string() step="1"
                style=move || format!("--p:{:.1}%", at() / STEPS * 100.0)
                prop:value=move || at().to_string() aria-valuetext=move || format::speed(state.speed())
                on:input=slide />
        </div>
        <p class="note wide">{which}</p>
        <Show when=move || state.tried.get().is_some()>
            <button class="btn" id="own-link" on:click=move |_| state.tried.set(None)>{t("From \
                the cluster")}</button>
        </Show>
    }
}

#[component]
fn Picture() -> impl IntoView {
    let state = expect_context::<Comparison>();
    let frame: NodeRef<leptos::html::Div> = NodeRef::new();
    let size = watch(frame, (700.0, 360.0));
    let picture = move || {
        state.curves.with(|curves| {
            let curves = curves.get().map(Vec::as_slice).unwrap_or_default();
            draw(curves, state.speed(), state.own().0, size.get())
        })
    };
    view! {
        <section class="compic" aria-label=t("Step time by bandwidth")>
            <div class="tbar"><h2>{t("Step time by link bandwidth")}</h2></div>
            <div class="rpic" node_ref=frame><div class="plot" id="over-bandwidth" inner_html=picture></div></div>
        </section>
    }
}

#[component]
fn Codecs() -> impl IntoView {
    let state = expect_context::<Comparison>();
    let rows = move || {
        let (errors, own) = (state.errors.get(), state.own());
        state.rows.with(|rows| {
            let rows = rows.get().cloned().unwrap_or_default();
            let row = |(at, offer): (usize, Offer)| {
                row(state, offer, errors.get(at).copied().unwrap_or(f64::NAN), own)
            };
            rows.into_iter().enumerate().map(row).collect_view()
        })
    };
    let said = move || {
        state.rows.with(|rows| match &*rows.0 {
            Err(why) => Some(said(why)),
            Ok(rows) if rows.is_empty() => {
                Some(t("One replica has no gradients to sum. Set Replicas to 2 or more.").into())
            }
            Ok(_) => {
                let why = state.base.with(|base| base.get()?.refusal())?;
                Some(tr!("Gradients travel as they are: {why}.", why))
            }
        })
    };
    view! {
        <section class="comtab front" aria-label=t("Codecs")>
            {move || said().map(|text| view! { <p class="rfail" role="status">{text}</p> })}
            <table id="codecs">
                <thead><tr>
                    <th>{t("gradients as")}</th><th class="num">{t("sent")}</th><th class="num">{t("sums")}</th>
                    <th class="num">{t("step")}</th><th class="num">{t("error")}</th><th class="say">{t("here")}</th>
                </tr></thead>
                <tbody>{rows}</tbody>
            </table>
        </section>
    }
}

/// A codec; its name takes it into the plan.
fn row(state: Comparison, offer: Offer, error: f64, own: (Reduction, bool)) -> impl IntoView {
    let Offer { way, by_hosts, sent, exchange, step, pays, verdict } = offer;
    let take = move |_| {
        state.page.edit(|i| i.rest.communication = taken(&i.rest.communication, way, by_hosts));
    };
    let mine = own == (way, by_hosts && !way.is_plain());
    let class = if pays { "say good" } else { "say" };
    let time = |t| {
        let (value, unit) = format::hero(t);
        format!("{value} {unit}")
    };
    view! {
        <tr class:me=mine data-codec=way.to_string() data-step=step.0.to_string() data-sent=sent.0.to_string()>
            <td><button class="pick" title=t("Use it in the plan") on:click=take>{way.to_string()}</button></td>
            <td class="num">{format::bytes_text(sent)}</td>
            <td class="num">{time(exchange)}</td><td class="num">{time(step)}</td>
            <td class="num">{format!("{error:.3}")}</td><td class=class>{said(&verdict)}</td>
        </tr>
    }
}
