//! The tray's search over numbers of devices: speed, days and cost of the best plan on each.

use crate::base::format::{self, hero};
use crate::base::texts::{t, tr};
use crate::screens::compare::chart::sizes::draw;
use crate::screens::compare::model as plans;
use crate::screens::compare::model::scaling::SizeSearch;
use crate::screens::compare::model::sizes::{Best, Size, efficiency};
use crate::widgets::size::watch;
use leptos::prelude::*;
use pipewright_core::predict::samples_of;
use pipewright_core::units::{Bytes, Nanos};

#[component]
pub fn SizesHead() -> impl IntoView {
    let search = expect_context::<SizeSearch>();
    let running = move || search.at.get().is_some();
    let turn = move |_| match search.at.get_untracked() {
        Some(_) => search.stop(),
        None => search.start(),
    };
    let work = move || if has_tokens(search) { t("tokens") } else { t("samples") };
    view! {
        <button class="btn acc" id="search-sizes" on:click=turn>
            {move || if running() { t("Stop") } else { t("Search") }}
        </button>
        <label class="on-devices" for="sizes">{t("on")}</label>
        {typed("sizes", search.sizes, t("Powers of two from one number to another, 8..64, or a list, 8,16,24"), "8..64")}
        <label class="on-devices" for="work">{move || tr!("devices, for {what}", what = work())}</label>
        {typed("work", search.work, t("How much is trained, such as 300e9: days are of so much"), "300e9")}
        <label class="on-devices" for="price">{t("at, a device and hour")}</label>
        {typed("price", search.price, t("What a device costs an hour, in any currency"), "2.5")}
        <p class="live" class:on=running id="sizes-said" role="status">{move || said(search)}</p>
    }
}

/// A box of a text.
fn typed(
    id: &'static str,
    text: RwSignal<String>,
    title: &'static str,
    hint: &'static str,
) -> impl IntoView {
    view! {
        <input id=id class="box" type="text" title=title placeholder=hint size="6" autocomplete="off"
            prop:value=move || text.get() on:change=move |event| text.set(event_target_value(&event)) />
    }
}

fn has_tokens(search: SizeSearch) -> bool {
    search.page.graph.with(|graph| samples_of(graph, 1.0).is_some())
}

/// How far it is, or what is wrong.
fn said(search: SizeSearch) -> String {
    if let Some(why) = search.failed.get().or_else(|| search.bill().err()) {
        return why;
    }
    match search.at.get() {
        Some(devices) => tr!("searching on {devices} devices", devices),
        None if search.rows.with(Vec::is_empty) => {
            t("The best plan on each number of devices, with the same mini-batch").into()
        }
        None => t("Each is the fastest plan found on exactly so many devices, simulated").into(),
    }
}

#[component]
pub fn SizesBody() -> impl IntoView {
    let search = expect_context::<SizeSearch>();
    let frame: NodeRef<leptos::html::Div> = NodeRef::new();
    let size = watch(frame, (520.0, 200.0));
    let picture = move || {
        let unit = if has_tokens(search) { t("tokens/s") } else { t("samples/s") };
        let of = |row: &Size| Some((row.devices, row.best.as_ref().ok()?.rate()));
        let points: Vec<(u32, f64)> = search.rows.with(|rows| rows.iter().filter_map(of).collect());
        draw(size.get(), &points, unit)
    };
    view! {
        <div class="tbody by-size">
            <div class="speed" node_ref=frame><div class="plot" id="speed-by-size" inner_html=picture></div></div>
            <div class="front" tabindex="-1"><Table /></div>
        </div>
    }
}

#[component]
fn Table() -> impl IntoView {
    let search = expect_context::<SizeSearch>();
    let rows = move || {
        let bill = search.bill().unwrap_or_default();
        let all = search.rows.get();
        let line = |row: &Size| match &row.best {
            Ok(best) => {
                let share = efficiency((row.devices, best), &all);
                line(search, row.devices, best.clone(), share, bill.of(row.devices, best))
                    .into_any()
            }
            Err(why) => {
                let why = why.clone();
                view! { <tr><td class="num">{row.devices}</td><td colspan="8">{why}</td></tr> }
                    .into_any()
            }
        };
        all.iter().map(line).collect_view()
    };
    let rate = move || if has_tokens(search) { t("tokens/s") } else { t("samples/s") };
    view! {
        <table id="by-size">
            <thead><tr>
                <th class="num">{t("devices")}</th><th>{t("stages × replicas")}</th><th class="num">{t("step")}</th>
                <th class="num">{rate}</th><th class="num" title=t("Model FLOP/s utilization: arithmetic of the network over the devices' peak")>"MFU"</th>
                <th class="num" title=t("Speed of a device, as a share of the smallest size's")>{t("efficiency")}</th>
                <th class="num">{t("memory")}</th><th class="num">{t("days")}</th><th class="num">{t("cost")}</th>
            </tr></thead>
            <tbody>{rows}</tbody>
        </table>
    }
}

fn line(
    search: SizeSearch,
    devices: u32,
    best: Best,
    share: f64,
    (days, cost): (Option<f64>, Option<f64>),
) -> impl IntoView {
    let (time, unit) = hero(Nanos(best.found.step));
    let percent = |share: f64| format!("{} %", format::percent(share, 1));
    let (rate, peak) = (format::scaled(best.rate()), format::bytes_text(Bytes(best.found.peak)));
    let mfu = best.throughput.mfu.map_or_else(|| "–".into(), percent);
    let or_dash = |number: Option<f64>| number.map_or_else(|| "–".into(), format::scaled);
    let (name, step) = (plans::name(&best.found), best.found.step.to_string());
    view! {
        <tr data-devices=devices.to_string() data-step=step>
            <td class="num">{devices}</td>
            <td><button class="pick" title=t("Use it as B") on:click=move |_| search.take(devices, &best.found)>{name}</button></td>
            <td class="num">{format!("{time} {unit}")}</td><td class="num">{rate}</td>
            <td class="num">{mfu}</td><td class="num">{percent(share)}</td><td class="num">{peak}</td>
            <td class="num">{or_dash(days)}</td><td class="num">{or_dash(cost)}</td>
        </tr>
    }
}
