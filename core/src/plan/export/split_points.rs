//! PyTorch's way to say where stages begin: `torch.distributed.pipelining.pipeline` takes a
//! dictionary from module name to `SplitPoint.BEGINNING`.

use crate::graph::Graph;
use crate::hf;
use thiserror::Error;

/// A cut that no module begins at.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "cut {} is at node {node} (`{name}`), inside of layer `{layer}`; PyTorch splits between \
     modules: plan again with --cuts at node {start} or {end}, or with --split balanced",
    index + 1
)]
pub struct SplitPointError {
    /// Which cut.
    pub index: usize,
    /// Its node.
    pub node: u32,
    /// The node's name.
    pub name: String,
    /// The layer around it.
    pub layer: String,
    /// Where that layer begins.
    pub start: u32,
    /// Where the next one begins.
    pub end: u32,
}

/// First layer of each stage but the first, by index.
fn layers_of_cuts(graph: &Graph, cuts: &[u32]) -> Result<Vec<usize>, SplitPointError> {
    let layers = graph.layers();
    let find = |(index, &node): (usize, &u32)| {
        // The last layer that begins at or before the cut.
        let layer = layers.partition_point(|l| l.first_node.0 <= node).saturating_sub(1);
        let range = graph.layer_nodes(layer);
        if range.start == node {
            return Ok(layer);
        }
        Err(SplitPointError {
            index,
            node,
            name: graph.nodes().get(node as usize).map_or(String::new(), |n| n.name.clone()),
            layer: layers[layer].name.clone(),
            start: range.start,
            end: range.end,
        })
    };
    cuts.iter().enumerate().map(find).collect()
}

/// The modules that a layer is: those of transformers for its transformers, else one of its own name.
fn names(graph: &Graph, layer: usize) -> Vec<String> {
    let name = &graph.layers()[layer].name;
    let params: Vec<String> = graph.params().iter().map(|param| param.name.clone()).collect();
    hf::modules(name, &params).unwrap_or_else(|| vec![name.clone()])
}

/// The `split_spec` of `cuts` as Python text, a line a stage. O(cuts log layers).
///
/// # Errors
/// A cut inside of a layer.
pub fn split_points(graph: &Graph, cuts: &[u32]) -> Result<String, SplitPointError> {
    let mut text = String::from("split_spec = {\n");
    for layer in layers_of_cuts(graph, cuts)? {
        let name = quoted(&names(graph, layer)[0]);
        text += &format!("    {name}: SplitPoint.BEGINNING,\n");
    }
    text += "}\n";
    Ok(text)
}

/// The names of the modules of each stage, in order: what runtimes take that build a stage from a
/// list (torchtitan's `module_fqns_per_model_part`). O(layers).
///
/// # Errors
/// A cut inside of a layer.
pub fn modules_by_stage(graph: &Graph, cuts: &[u32]) -> Result<Vec<Vec<String>>, SplitPointError> {
    let layers = graph.layers();
    let mut bounds = layers_of_cuts(graph, cuts)?;
    bounds.insert(0, 0);
    bounds.push(layers.len());
    let names = |w: &[usize]| (w[0]..w[1]).flat_map(|layer| names(graph, layer)).collect();
    Ok(bounds.windows(2).map(names).collect())
}

/// A Python string literal.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out += &format!("\\u{:04x}", c as u32),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::presets::Preset;

    #[test]
    fn cuts_become_the_names_of_modules() {
        let graph = Preset::Vgg16.graph().unwrap();
        let starts: Vec<u32> = graph.layers().iter().map(|l| l.first_node.0).collect();
        let cuts = [starts[2], starts[5]];
        let names: Vec<&str> = graph.layers().iter().map(|l| l.name.as_str()).collect();
        let text = split_points(&graph, &cuts).unwrap();
        let line = |i: usize| format!("    \"{}\": SplitPoint.BEGINNING,\n", names[i]);
        assert_eq!(text, format!("split_spec = {{\n{}{}}}\n", line(2), line(5)));
        let stages = modules_by_stage(&graph, &cuts).unwrap();
        assert_eq!(stages.concat(), names);
        assert_eq!([stages[0].len(), stages[1].len()], [2, 3]);
        let inside = (1..).find(|node| !starts.contains(node)).unwrap();
        let error = split_points(&graph, &[inside]).unwrap_err().to_string();
        assert!(error.contains("cut 1 is at node") && error.contains("inside of layer"), "{error}");
    }

    #[test]
    fn transformers_have_the_modules_of_transformers() {
        let modules = |preset: Preset| {
            let graph = preset.graph().unwrap();
            let cut = graph.layers()[8].first_node.0;
            (split_points(&graph, &[cut]).unwrap(), modules_by_stage(&graph, &[cut]).unwrap())
        };
        let (text, stages) = modules(Preset::Gpt2);
        assert!(text.contains("\"transformer.h.7\": SplitPoint.BEGINNING"), "{text}");
        assert_eq!(stages[0][..3], ["transformer.wte", "transformer.wpe", "transformer.h.0"]);
        assert_eq!(stages[1].last().unwrap(), "lm_head");
        assert!(modules(Preset::Llama7b).0.contains("\"model.layers.7\""));
        assert!(modules(Preset::BertBase).0.contains("\"bert.encoder.layer.7\""));
    }

    #[test]
    fn names_cannot_end_the_string() {
        assert_eq!(quoted("a\"b\\c\n"), "\"a\\\"b\\\\c\\u000a\"");
    }
}
