//! The tray's search over numbers of devices: speed, days and cost of the best plan on each.

use crate::base::focus::focus;
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

/// The controls are markup, with one listener for what is typed and one for what is pressed.
#[component]
pub fn SizesHead() -> impl IntoView {
    let search = expect_context::<SizeSearch>();
    let running = Memo::new(move |_| search.at.get().is_some());
    let markup = move || controls(search, running.get());
    let press = move |event: web_sys::MouseEvent| {
        if pressed(&event).is_none() {
            return;
        }
        match search.at.get_untracked() {
            Some(_) => search.stop(),
            None => search.start(),
        }
        // The button is written anew first.
        request_animation_frame(|| focus("search-sizes"));
    };
    let typed = move |event: web_sys::Event| {
        let input: web_sys::HtmlInputElement = event_target(&event);
        let text = match input.id().as_str() {
            "sizes" => search.sizes,
            "work" => search.work,
            _ => search.price,
        };
        text.set(input.value());
    };
    view! {
        <div class="by-size-h" inner_html=markup on:click=press on:change=typed></div>
    }
}

/// The button that an event is of.
fn pressed(event: &web_sys::MouseEvent) -> Option<web_sys::Element> {
    event.target()?.dyn_into::<web_sys::Element>().ok()?.closest("button").ok()?
}

fn controls(search: SizeSearch, running: bool) -> String {
    let turn = if running { t("Stop") } else { t("Search") };
    let mut out = format!("<button class='btn acc' id='search-sizes'>{turn}</button>");
    let work = if has_tokens(search) { t("tokens") } else { t("samples") };
    let boxes = [
        (
            "sizes",
            search.sizes,
            t("devices"),
            "8..64",
            t("Powers of two from one number to another, 8..64, or a list, 8,16,24"),
        ),
        (
            "work",
            search.work,
            work,
            "300e9",
            t("How much is trained, such as 300e9: days are of so much"),
        ),
        (
            "price",
            search.price,
            t("per device-hour"),
            "2.5",
            t("What a device costs an hour, in any currency"),
        ),
    ];
    for (id, text, label, hint, title) in boxes {
        let value = text.with_untracked(|text| escape(text));
        let _ = write!(
            out,
            "<input id='{id}' class='box' type='text' size='6' autocomplete='off' value='{value}' \
             placeholder='{hint}' title='{}'><label class='on-devices' for='{id}'>{label}</label>",
            escape(title)
        );
    }
    out
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
        None => String::new(),
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
            <div class="front" tabindex="-1">
                <p class="live" class:on=move || search.at.get().is_some() id="sizes-said" role="status">{move || said(search)}</p>
                <Table />
            </div>
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
        let pressed = pressed(&event);
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
