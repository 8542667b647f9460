//! Opening files: what they are, and what becomes of them.
//!
//! A file that cannot be used leaves everything as it was and says in one line what was read,
//! what is wrong and what to do. All of this is in a chunk that comes with the first file.

use super::kinds::{Kind, plain_name};
use super::packing::unpack;
use super::state::Page;
use crate::base::later::{self, Missing};
use crate::base::screen::Screen;
use crate::base::shared::Shared;
use crate::base::texts::{t, tr};
use crate::planner::content::{self, Content, recognise};
use crate::planner::link::Files;
use crate::planner::measured::Measured;
use crate::planner::networks::{self, Found};
use crate::screens::elastic::model as elastic;
use crate::screens::recompute::state::Source;
use crate::screens::run::model::metrics;
use crate::screens::run::model::tune::TuneHistory;
use crate::state::request::Side;
use leptos::prelude::*;
use leptos::wasm_split::wasm_split;
use pipewright_core::timeline::chrome::{self, Opened, RankTrace};
use pipewright_core::timeline::{Span, Work};
use std::pin::Pin;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;

/// Larger files are refused before they fill the page's memory.
const BYTES_MAX: f64 = 300e6;

/// Shows a file's content.
async fn take(page: Page, name: &str, text: String, side: Side) {
    if networks::may_be(&text) {
        match foreign(name.to_owned(), text.clone()).await {
            Ok(None) => {}
            Ok(Some(found)) => return replace(page, found).await,
            Err(why) => {
                return page.state.complain(tr!("{name} was not read: {why}.", name, why));
            }
        }
    }
    match recognise(name, &text) {
        Ok(Content::Plan(inputs)) if side == Side::A => {
            page.state.pin(Some(*inputs));
            page.state.say(tr!("{name} is now A. Ctrl+Z undoes it.", name));
        }
        Ok(Content::Plan(inputs)) => {
            let lanes = inputs.lanes();
            page.state.load(*inputs);
            page.state.say(tr!("Opened {name}: {lanes} lanes.", name, lanes));
        }
        Ok(Content::Trace(measured)) => {
            let parts = js_sys::Array::of1(&JsValue::from_str(&text));
            let file = web_sys::File::new_with_str_sequence(&parts, name);
            show(page, measured, file.into_iter().collect());
        }
        Err(why) => page.state.complain(why),
    }
}

/// What others wrote comes in a chunk of its own.
#[wasm_split(networks, wasm_split_path = ::leptos::wasm_split, fallible)]
fn foreign(name: String, text: String) -> Result<Option<Result<Found, String>>, Missing> {
    Ok(networks::of_text(&name, &text))
}

#[wasm_split(networks, wasm_split_path = ::leptos::wasm_split, fallible)]
fn onnx(name: String, bytes: Vec<u8>) -> Result<Reading, Missing> {
    Ok(Box::pin(async move { networks::of_onnx(&name, bytes, later::breathe).await }))
}

/// A file that is read with a frame between pieces of work.
type Reading = Pin<Box<dyn Future<Output = Result<Found, String>>>>;

/// Puts a network, a machine or an order of actions in place of the plan's. A large network takes a while
/// to read, to cut and to solve: the page shows a frame between.
async fn replace(page: Page, found: Result<Found, String>) {
    match found {
        Ok(Found { part, said }) => {
            later::breathe().await;
            let next = page.state.inputs.with_untracked(|inputs| networks::with(inputs, part));
            later::breathe().await;
            page.state.load(next);
            page.state.say(said);
        }
        Err(why) => page.state.complain(why),
    }
}

/// Draws a trace, which these files hold, over the prediction, unless it is one of another plan.
fn show(page: Page, measured: Measured, files: Vec<web_sys::File>) {
    let solved = page.state.shown.with_untracked(|s| s.solved.clone());
    let measured = measured.with_updates_of(&solved.timeline);
    if let Some(why) = measured.foreign(&solved.inputs.model.name(), &solved.timeline) {
        let name = &measured.name;
        page.state.complain(tr!(
            "{name} {why}. Open its plan.json first, or drop both files at once. Nothing changed.",
            name,
            why
        ));
        return;
    }
    page.shows(Kind::Trace, files);
    let name = measured.name.clone();
    let (lanes, steps) = (measured.timeline.lanes.len(), measured.trace.steps.len());
    page.state.look.measured.set(Some(measured));
    page.state.look.show_measured.set(true);
    page.state.say(tr!(
        "{name}: {lanes} lanes; the median step of {steps} is drawn over the prediction.",
        name,
        lanes,
        steps
    ));
}

/// What was read as a file of the browser's, which can be kept.
fn named(name: &str, blob: &web_sys::Blob) -> Vec<web_sys::File> {
    let parts = js_sys::Array::of1(blob);
    web_sys::File::new_with_blob_sequence(&parts, name).into_iter().collect()
}

/// Opens files, one after the other: a plan before its trace.
pub async fn open(page: Page, files: Vec<web_sys::File>, side: Side) {
    let (mut texts, mut long) = (vec![], vec![]);
    for file in files {
        let name = file.name();
        let kind = kind(&file).await;
        // Graphs can be large and packed: the worker reads them.
        if kind == Kind::Graph {
            page.recompute.source.set(Source::File(file));
            page.state.go(Screen::Recompute);
            continue;
        }
        if file.size() > BYTES_MAX {
            page.state.complain(tr!(
                "{name} is {size} MB, more than a page can hold.",
                name,
                size = format_args!("{:.0}", file.size() / 1e6)
            ));
            continue;
        }
        if kind == Kind::Onnx {
            network(page, &name, &file).await;
            continue;
        }
        if kind == Kind::Elastic {
            records(page, &name, &file).await;
            continue;
        }
        if kind == Kind::Tune {
            tuned(page, &name, &file).await;
            continue;
        }
        if kind != Kind::Other {
            long.push((name, kind, web_sys::Blob::from(file)));
            continue;
        }
        match JsFuture::from(file.text()).await {
            Ok(text) => texts.push((name, text.as_string().unwrap_or_default())),
            Err(_) => page.state.complain(tr!("{name} could not be read. Is it a folder?", name)),
        }
    }
    texts.sort_by_key(|(_, text)| text.contains("\"traceEvents\""));
    for (name, text) in texts {
        take(page, &name, text, side).await;
    }
    measure_all(page, long).await;
}

/// Opens an ONNX file.
async fn network(page: Page, name: &str, file: &web_sys::Blob) {
    let Ok(bytes) = JsFuture::from(file.array_buffer()).await else {
        return page.state.complain(tr!("{name} could not be read. Is it a folder?", name));
    };
    match onnx(name.to_owned(), js_sys::Uint8Array::new(&bytes).to_vec()).await {
        Ok(reading) => replace(page, reading.await).await,
        Err(why) => page.state.complain(tr!("{name} was not read: {why}.", name, why)),
    }
}

/// Shows what became of an elastic job.
async fn records(page: Page, name: &str, file: &web_sys::Blob) {
    let Ok(text) = JsFuture::from(file.text()).await else {
        return page.state.complain(tr!("{name} could not be read. Is it a folder?", name));
    };
    match elastic::read(name, &text.as_string().unwrap_or_default()) {
        Ok(record) => {
            let count = record.life.generations.len();
            page.shows(Kind::Elastic, named(name, file));
            page.elastic.record.set(Some(Shared::new(record)));
            page.state.go(Screen::Elastic);
            page.state.say(tr!(
                "Opened {name}: an elastic job of {count} generations.",
                name,
                count
            ));
        }
        Err(why) => {
            page.state.complain(tr!(
                "{name} was read as the records of a job: {why}. Nothing changed.",
                name,
                why
            ));
        }
    }
}

/// Shows what `runner tune` tried.
async fn tuned(page: Page, name: &str, file: &web_sys::Blob) {
    let Ok(text) = JsFuture::from(file.text()).await else {
        return page.state.complain(tr!("{name} could not be read. Is it a folder?", name));
    };
    match TuneHistory::read(name, &text.as_string().unwrap_or_default()) {
        Ok(history) => {
            page.shows(Kind::Tune, named(name, file));
            page.run.tuned.set(Some(history));
            page.state.go(Screen::Run);
        }
        Err(why) => page.state.complain(tr!(
            "{name} was read as the history of a tuning: {why}. Nothing changed.",
            name,
            why
        )),
    }
}

/// What a file's first bytes say that it is.
async fn kind(file: &web_sys::Blob) -> Kind {
    const LOOK: f64 = 4096.0;
    let Ok(head) = file.slice_with_f64_and_f64(0.0, LOOK) else { return Kind::Other };
    let Ok(bytes) = JsFuture::from(head.array_buffer()).await else { return Kind::Other };
    Kind::of(&js_sys::Uint8Array::new(&bytes).to_vec())
}

/// What a run left behind.
enum Left {
    Trace(Measured),
    /// Of torch.profiler or Nsight Systems.
    Ranks(Vec<RankTrace>),
    Metrics(metrics::File),
}

/// Reads traces and metrics piece by piece, so that the page lives on and never holds their texts.
async fn measure(name: &str, kind: Kind, file: &web_sys::Blob) -> Result<Left, String> {
    if kind == Kind::Metrics {
        let mut reader = metrics::Reader::default();
        let refuse = |why| tr!("{name} was read as metrics: {why}. Nothing changed.", name, why);
        pieces(name, file, |bytes| reader.push(bytes).map_err(refuse)).await?;
        return reader.finish(name).map(Left::Metrics).map_err(refuse);
    }
    let mut reader = chrome::Reader::default();
    let mut wrong = None;
    let read = |bytes: &[u8]| {
        reader.push(bytes).map_err(|why| {
            wrong = Some(why);
            String::new()
        })
    };
    let read = pieces(name, file, read).await;
    let trace = match (wrong, read) {
        (Some(wrong), _) => Err(wrong),
        (None, Err(why)) => return Err(why),
        (None, Ok(())) => match reader.finish_any() {
            Ok(Opened::Ranks(ranks)) => return Ok(Left::Ranks(ranks)),
            Ok(Opened::Run(trace)) => Ok(trace),
            Err(why) => Err(why),
        },
    };
    content::measured(name, trace).map(Left::Trace)
}

/// Hands out a file piece by piece; the browser breathes between them.
async fn pieces(
    name: &str,
    file: &web_sys::Blob,
    mut each: impl FnMut(&[u8]) -> Result<(), String>,
) -> Result<(), String> {
    // Some milliseconds of reading.
    const PIECE: f64 = 131_072.0;
    let lost = |_: JsValue| tr!("{name} could not be read. Is it a folder?", name);
    let mut from = 0.0;
    while from < file.size() {
        let piece = file.slice_with_f64_and_f64(from, from + PIECE).map_err(lost)?;
        let bytes = JsFuture::from(piece.array_buffer()).await.map_err(lost)?;
        each(&js_sys::Uint8Array::new(&bytes).to_vec())?;
        from += PIECE;
    }
    Ok(())
}

/// Shows traces and metrics; ranks of one run come together.
async fn measure_all(page: Page, files: Vec<(String, Kind, web_sys::Blob)>) {
    let (mut found, mut of_found) = (vec![], vec![]);
    let (mut ranks, mut of_ranks) = (vec![], vec![]);
    for (name, kind, file) in files {
        match measure(&name, kind, &file).await {
            Ok(Left::Trace(measured)) => show(page, measured, named(&name, &file)),
            Ok(Left::Ranks(of_file)) => {
                of_ranks.extend(named(&name, &file));
                ranks.extend(of_file);
            }
            Ok(Left::Metrics(of_file)) => {
                of_found.extend(named(&name, &file));
                found.push(of_file);
            }
            Err(why) => page.state.complain(why),
        }
    }
    if !ranks.is_empty() {
        profiled(page, of_ranks, &ranks);
    }
    if !found.is_empty() {
        let joined = metrics::join(found);
        page.shows(Kind::Metrics, of_found);
        page.run.runs.update(|runs| runs.extend(joined));
        page.state.go(Screen::Run);
    }
}

/// Shows what a profiler of PyTorch's trainings wrote of a plan's ranks, as one trace.
fn profiled(page: Page, files: Vec<web_sys::File>, ranks: &[RankTrace]) {
    let name = &files.iter().map(web_sys::File::name).collect::<Vec<_>>().join(", ");
    let solved = page.state.shown.with_untracked(|s| s.solved.clone());
    let lanes = &solved.timeline.lanes;
    let lane_of = |stage| {
        let runs = |span: &Span| matches!(span.work, Work::Run(action) if action.stage == stage);
        lanes.iter().position(|lane| lane.spans.iter().any(runs))
    };
    let model = solved.inputs.model.name();
    match chrome::join(ranks, &model, lanes.len(), lane_of) {
        Ok(trace) => match Measured::new(trace, name) {
            Some(measured) => show(page, measured, files),
            None => page.state.complain(tr!("{name} has no step.", name)),
        },
        Err(why) => page.state.complain(tr!(
            "{name} was read as a profiler's trace: {why}. Nothing changed.",
            name,
            why
        )),
    }
}

/// Shows the plans that a link holds, and fetches the files beside the page that it names.
pub async fn fetch(page: Page, files: Files) {
    for (packed, side) in [(files.packed, Side::B), (files.packed_a, Side::A)] {
        let Some(packed) = packed else { continue };
        match unpack(&packed).await {
            Some(text) => take(page, "plan.json", text, side).await,
            None => {
                page.state.complain(t("The plan in the link is damaged; copy the whole link."));
            }
        }
    }
    let mut ranks = vec![];
    for path in files.plan.into_iter().chain(files.trace).chain(files.metrics) {
        let place = path;
        let path = plain_name(&place);
        let refuse = |why: &str| tr!("{path} could not be fetched: {why}.", path, why);
        let file = match fetched(&place).await {
            Ok(file) => file,
            Err(why) => {
                page.state.complain(refuse(&why));
                continue;
            }
        };
        match kind(&file).await {
            Kind::Trace => measure_all(page, vec![(path, Kind::Trace, file)]).await,
            Kind::Metrics => ranks.push((path, Kind::Metrics, file)),
            Kind::Onnx => network(page, &path, &file).await,
            Kind::Elastic => records(page, &path, &file).await,
            Kind::Tune => tuned(page, &path, &file).await,
            Kind::Other | Kind::Graph => match JsFuture::from(file.text()).await {
                Ok(text) => {
                    take(page, &path, text.as_string().unwrap_or_default(), Side::B).await;
                }
                Err(_) => page.state.complain(refuse(t("not text"))),
            },
        }
    }
    // Ranks of one run come together.
    measure_all(page, ranks).await;
}

async fn fetched(path: &str) -> Result<web_sys::Blob, String> {
    let failed = |_: JsValue| t("no response").to_owned();
    let answer = JsFuture::from(window().fetch_with_str(path)).await.map_err(failed)?;
    let answer: web_sys::Response = answer.dyn_into().map_err(failed)?;
    if !answer.ok() {
        return Err(tr!(
            "the server says {status}",
            status = format_args!("{} {}", answer.status(), answer.status_text())
        ));
    }
    let blob = JsFuture::from(answer.blob().map_err(failed)?).await.map_err(failed)?;
    blob.dyn_into().map_err(failed)
}
