//! The tray's search over numbers of devices: speed, days and cost of the best plan on each.

use crate::base::format::{self, escape, hero};
use crate::base::texts::{said as said_of, t, tr};
use crate::screens::compare::chart::sizes::draw;
use crate::screens::compare::model as plans;
use crate::screens::compare::model::scaling::SizeSearch;
use crate::screens::compare::model::sizes::{Best, Bill, Size};
use crate::widgets::size::watch;
use leptos::prelude::*;
use pipewright_core::predict::samples_of;
use pipewright_core::units::{Bytes, Nanos};
use std::fmt::Write;
use wasm_bindgen::JsCast;

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
        {typed("sizes", search.sizes, t("Powers of two from one number to another, 8..64, or a list, 8,16,24"), "8..64")}
        <label class="on-devices" for="sizes">{t("devices")}</label>
        {typed("work", search.work, t("How much is trained, such as 300e9: days are of so much"), "300e9")}
        <label class="on-devices" for="work">{work}</label>
        {typed("price", search.price, t("What a device costs an hour, in any currency"), "2.5")}
        <label class="on-devices" for="price">{t("a device and hour")}</label>
        <p class="live" class:on=running id="sizes-said" role="status" title=move || said(search)>{move || said(search)}</p>
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

/// What speed is in.
fn unit(search: SizeSearch) -> &'static str {
    if has_tokens(search) { t("tokens/s") } else { t("samples/s") }
}

/// How far it is, or what is wrong.
fn said(search: SizeSearch) -> String {
    if let Some(why) = search.failed.get() {
        return why;
    }
    if let Err(why) = search.bill() {
        return tr!("Days and cost: {why}.", why);
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
        let of = |row: &Size| Some((row.devices, row.best.as_ref().ok()?.rate()));
        let points: Vec<(u32, f64)> = search.rows.with(|rows| rows.iter().filter_map(of).collect());
        let (width, height) = size.get();
        draw(width, height, &points, unit(search))
    };
    view! {
        <div class="tbody by-size">
            <div class="speed" node_ref=frame><div class="plot" id="speed-by-size" inner_html=picture></div></div>
            <div class="front" tabindex="-1"><Table /></div>
        </div>
    }
}

/// The rows are markup, and one listener takes all presses: each has nine cells.
#[component]
fn Table() -> impl IntoView {
    let search = expect_context::<SizeSearch>();
    let markup = move || {
        let bill = search.bill().unwrap_or_default();
        search.rows.with(|rows| table(rows, &bill, unit(search)))
    };
    let press = move |event: web_sys::MouseEvent| {
        let pressed = event.target().and_then(|target| target.dyn_into::<web_sys::Element>().ok());
        let pressed = pressed.and_then(|element| element.closest("button").ok().flatten());
        let at = pressed.and_then(|button| button.get_attribute("data-at")?.parse::<usize>().ok());
        let row = at.and_then(|at| search.rows.with_untracked(|rows| rows.get(at).cloned()));
        if let Some(Size { devices, best: Ok(best) }) = row {
            search.take(devices, &best.found);
        }
    };
    view! { <table id="by-size" inner_html=markup on:click=press></table> }
}

/// The table's head and rows.
fn table(rows: &[Size], bill: &Bill, rate: &str) -> String {
    let heads = [t("devices"), rate, t("MFU"), t("efficiency"), t("step"), t("days"), t("cost")];
    let mut out = String::from("<thead><tr>");
    for (at, head) in heads.into_iter().enumerate() {
        let title = match at {
            2 => t("Model FLOP/s utilization: arithmetic of the network over the devices' peak"),
            3 => t("Speed of a device, as a share of the smallest size's"),
            _ => "",
        };
        let _ = write!(out, "<th class='num' title='{}'>{}</th>", escape(title), escape(head));
    }
    let _ = write!(out, "<th>{}</th></tr></thead><tbody>", t("stages × replicas"));
    for (at, row) in rows.iter().enumerate() {
        let _ = write!(out, "<tr><td class='num'>{}</td>", row.devices);
        match &row.best {
            Ok(best) => cells(&mut out, at, best, rows, bill),
            Err(why) => drop(write!(out, "<td colspan='7'>{}</td>", escape(&said_of(why)))),
        }
        out += "</tr>";
    }
    out + "</tbody>"
}

fn cells(out: &mut String, at: usize, best: &Best, rows: &[Size], bill: &Bill) {
    let devices = rows[at].devices;
    let (time, unit) = hero(Nanos(best.found.step));
    let percent = |share: f64| format!("{} %", format::percent(share, 1));
    let (days, cost) = bill.of(devices, best);
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "–".into());
    let numbers = [
        format::scaled(best.rate()),
        or_dash(best.throughput.mfu.map(percent)),
        or_dash(rows[at].efficiency(rows).map(percent)),
        format!("{time} {unit}"),
        or_dash(days.map(format::scaled)),
        or_dash(cost.map(format::scaled)),
    ];
    for number in numbers {
        let _ = write!(out, "<td class='num'>{number}</td>");
    }
    let name = escape(&plans::name(&best.found));
    let title =
        tr!("Use it as B; it takes {bytes}", bytes = format::bytes_text(Bytes(best.found.peak)));
    let step = best.found.step;
    let _ = write!(
        out,
        "<td><button class='pick' data-at='{at}' data-step='{step}' title='{}'>{name}</button></td>",
        escape(&title)
    );
}
