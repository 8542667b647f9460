//! Layers of a model, where it can be cut: sizes, work, and what a cut would send.

use crate::args::OnnxArgs;
use crate::commands::figures;
use crate::commands::model::read_model;
use crate::commands::words::counted;
use crate::failure::Failure;
use pipewright_core::cost::Cluster;
use pipewright_core::graph::{Division, Graph, Layer};
use pipewright_core::ids::StageId;
use pipewright_core::units::Bytes;
use serde_json::{Value, json};

/// Prints a row for each layer, or all as JSON.
pub(super) fn layers(model: &str, onnx: &OnnxArgs, json: bool) -> Result<(), Failure> {
    // Profiles change the cluster's times, which are not shown here.
    let mut cluster = Cluster::preset("laptop").map_err(|e| Failure::usage(e.to_string()))?;
    let model = read_model(model, onnx, &mut cluster)?;
    let graph = model.graph().map_err(|e| Failure::usage(e.to_string()))?;
    let cuts: Vec<u32> = graph.layers().iter().skip(1).map(|l| l.first_node.0).collect();
    let division = graph.division(&cuts);
    if json {
        figures::print(&object(&graph, &division));
        return Ok(());
    }
    let count = graph.layers().len() as u64;
    let title = format!("{}: {}", graph.name(), counted(count, "layer"));
    say!("{title}; a cut between two sends what the upper one hands on, for each sample");
    say!("  parameters      forward    hands on  values  layer");
    for (at, layer) in graph.layers().iter().enumerate() {
        let (params, flops) = size(&graph, &division, at);
        let (sent, values) = handed_on(&graph, &division, at);
        say!(
            "{params:>12}  {:>6.3} GFLOP  {:>10}  {values:>6}  {}",
            flops as f64 / 1e9,
            sent.to_string(),
            layer.name
        );
    }
    say!("--cuts takes these names, and those of nodes inside of them");
    Ok(())
}

fn object(graph: &Graph, division: &Division) -> Value {
    let layer = |(at, layer): (usize, &Layer)| {
        let (params, flops) = size(graph, division, at);
        let (sent, values) = handed_on(graph, division, at);
        json!({
            "name": layer.name,
            "parameters": params,
            "forward_flops": flops,
            "sends_bytes": sent.0,
            "sends_values": values,
        })
    };
    let layers: Vec<Value> = graph.layers().iter().enumerate().map(layer).collect();
    json!({ "model": graph.name(), "layers": layers })
}

/// Parameters and operations of a layer's forward pass on one sample.
fn size(graph: &Graph, division: &Division, layer: usize) -> (u64, u64) {
    let range = division.stages[layer].start as usize..division.stages[layer].end as usize;
    let nodes = &graph.nodes()[range];
    let params = nodes.iter().flat_map(|n| &n.params).map(|p| graph.param(*p).elements()).sum();
    (params, graph.flops_of(nodes))
}

/// Bytes and number of the values of one sample that are read behind a layer.
fn handed_on(graph: &Graph, division: &Division, layer: usize) -> (Bytes, usize) {
    let (from, to) = (StageId(layer as u32), StageId(layer as u32 + 1));
    let mut nodes: Vec<_> = division
        .crossings
        .iter()
        .filter(|c| c.from <= from && c.to >= to)
        .map(|c| c.node)
        .collect();
    nodes.sort_unstable();
    nodes.dedup();
    let bytes = nodes.iter().map(|node| graph.node(*node).output.bytes().0).sum();
    (Bytes(bytes), nodes.len())
}
