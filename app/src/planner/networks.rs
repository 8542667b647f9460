//! Files of others: networks (ONNX, configurations of Hugging Face, measured profiles), machines, orders of actions.

use super::choices::{ClusterChoice, ModelChoice};
use super::engine;
use super::inputs::{Inputs, Own};
use super::kept;
use super::sane;
use crate::base::shared::Shared;
use crate::base::texts::tr;
use pipewright_core::cost::{Cluster, Profile, import};
use pipewright_core::graph::Graph;
use pipewright_core::hf;
use pipewright_core::onnx::{self, Options};
use pipewright_core::schedule::Schedule;

/// Something that takes the place of a part of the inputs.
pub enum Part {
    /// A network, with what was measured of it.
    Network(Shared<Graph>, Option<Box<Profile>>),
    /// A machine.
    Machine(Shared<Cluster>),
    /// An order of actions.
    Order(Own),
}

/// A part, and what a person should know of it.
pub struct Found {
    pub part: Part,
    pub said: String,
}

/// Whether the first bytes are those of an ONNX file: a protocol buffer that begins with its version.
pub fn is_onnx(head: &[u8]) -> bool {
    matches!(head, [0x08, version, 0x12 | 0x1a | 0x22 | 0x3a | 0x42, ..] if (1..=32).contains(version))
}

/// Whether a text may be one of others: not if it is a plan, a trace or empty.
pub fn may_be(text: &str) -> bool {
    let ours = ["\"cuts\"", "\"traceEvents\""];
    !text.trim().is_empty() && !ours.iter().any(|word| text.contains(word))
}

/// Reads an ONNX file, awaiting `rest` now and then. Weights in other files are not needed to plan.
///
/// # Errors
/// One sentence for the person.
pub async fn of_onnx(name: &str, bytes: Vec<u8>, rest: impl AsyncFn()) -> Result<Found, String> {
    let stem = name.strip_suffix(".onnx").unwrap_or(name).to_owned();
    let options = Options { name: stem, ..Options::default() };
    let imported = onnx::read_in_pieces(bytes, &options, &|_| None, rest)
        .await
        .map_err(|why| tr!("{name} was read as ONNX: {why}. Nothing changed.", name, why))?;
    let (layers, nodes) = (imported.graph.layers().len(), imported.graph.nodes().len());
    let said = match imported.unsupported.first() {
        None if layers == 1 => tr!("{name}: 1 layer, {nodes} operations.", name, nodes),
        None => tr!("{name}: {layers} layers, {nodes} operations.", name, layers, nodes),
        Some(first) => tr!(
            "{name}: {layers} layers, {nodes} operations; {count} are not supported, such as {op} \
             ({node}): it can be planned, not trained.",
            name,
            layers,
            nodes,
            count = imported.unsupported.len(),
            op = first.op,
            node = first.node
        ),
    };
    let said = match imported.warnings.first() {
        Some(warning) => tr!("{said} {warning}.", said, warning),
        None => said,
    };
    Ok(Found { part: Part::Network(Shared::new(imported.graph), None), said })
}

/// Reads a text that is none of the project's own: a cluster, a profile, a schedule as CSV. None for
/// JSON that is neither.
///
/// # Errors
/// One sentence for the person.
pub fn of_text(name: &str, text: &str) -> Option<Result<Found, String>> {
    let has = |word: &str| text.contains(word);
    if !text.trim_start().starts_with('{') {
        // Some files begin with empty slots, some with cells that hold no pass.
        let is_pass = |cell: &str| {
            cell.trim().starts_with(|c: char| c.is_ascii_digit()) && cell.contains(['F', 'B'])
        };
        let is_order = text.lines().next()?.split(',').any(is_pass);
        return match (is_order, has(" -- ")) {
            (true, false) => Some(order(name, text)),
            (_, true) => Some(profile(name, text)),
            _ => None,
        };
    }
    if has("\"cuts\"") {
        return None;
    }
    if has("\"devices_per_node\"") {
        return Some(machine(name, text));
    }
    if has("\"model_type\"") {
        return Some(config(name, text));
    }
    let edges = has("\"edges\"") || has("\"pipewright-graph/");
    (has("\"nodes\"") && edges).then(|| profile(name, text))
}

fn order(name: &str, text: &str) -> Result<Found, String> {
    let schedule = Schedule::from_csv(text).map_err(|why| {
        tr!("{name} was read as a PyTorch schedule: {why}. Nothing changed.", name, why)
    })?;
    let said = tr!(
        "{name}: lanes {lanes}, stages {stages}, micro-batches {m}.",
        name,
        lanes = schedule.lanes.len(),
        stages = schedule.stages(),
        m = schedule.micro_batches
    );
    Ok(Found { part: Part::Order(Own { name: name.into(), schedule }), said })
}

fn machine(name: &str, text: &str) -> Result<Found, String> {
    let refuse = |why: &dyn std::fmt::Display| {
        tr!("{name} was read as a cluster: {why}. `runner profile` writes one.", name, why)
    };
    let cluster: Cluster = serde_json::from_str(text).map_err(|why| refuse(&why))?;
    cluster.check().map_err(|why| refuse(&why))?;
    let said = tr!("{name}: {devices} devices.", name, devices = cluster.devices());
    Ok(Found { part: Part::Machine(Shared::new(cluster)), said })
}

/// A configuration of Hugging Face: each is called config.json, so the network is named by its kind.
fn config(name: &str, text: &str) -> Result<Found, String> {
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    let kind = text.split("\"model_type\"").nth(1).and_then(|rest| rest.split('"').nth(1));
    let called = kind.filter(|_| stem == "config").unwrap_or(stem);
    let imported = hf::read(called, text, None).map_err(|why| {
        tr!(
            "{name} was read as a configuration of Hugging Face: {why}. Nothing changed.",
            name,
            why
        )
    })?;
    let (layers, length) = (imported.graph.layers().len(), imported.length);
    let said = tr!("{name}: {layers} layers, samples of {length} tokens.", name, layers, length);
    Ok(Found { part: Part::Network(Shared::new(imported.graph), None), said })
}

fn profile(name: &str, text: &str) -> Result<Found, String> {
    let refuse = |why: &dyn std::fmt::Display| {
        tr!("{name} was read as a profile: {why}. Nothing changed.", name, why)
    };
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    let work = import::read(stem, text).map_err(|why| refuse(&why))?;
    let (graph, profile) = work.network().map_err(|why| refuse(&why))?;
    let (layers, nodes) = (graph.layers().len(), graph.nodes().len());
    let said =
        tr!("{name}: {layers} layers, {nodes} operations, with their times.", name, layers, nodes);
    Ok(Found { part: Part::Network(Shared::new(graph), Some(Box::new(profile))), said })
}

/// The inputs with this part in place of their own; lanes stay as far as they can.
pub fn with(inputs: &Inputs, part: Part) -> Inputs {
    let mut next = inputs.clone();
    match part {
        Part::Network(graph, profile) => kept::another_model(&mut next, |next, lanes| {
            next.model = ModelChoice::File(graph);
            let measured = profile.is_some();
            if let Some(profile) = profile {
                let mut cluster = (*next.cluster.cluster()).clone();
                cluster.profile = Some(*profile);
                next.cluster = ClusterChoice::File(Shared::new(cluster));
            }
            engine::split(next, lanes);
            // Times of a profile are those of the mini-batch that was measured.
            if measured {
                sane::resize(next, 1);
            }
            sane::settle(next);
        }),
        Part::Machine(cluster) => next.cluster = ClusterChoice::File(cluster),
        Part::Order(own) => {
            let (stages, lanes) = (own.schedule.stages(), own.schedule.lanes.len() as u32);
            next.micro_batches = own.schedule.micro_batches;
            next.own = Some(Shared::new(own));
            if next.stages() != stages {
                engine::split(&mut next, lanes);
            }
        }
    }
    next
}

#[cfg(test)]
#[path = "networks_tests.rs"]
mod tests;
