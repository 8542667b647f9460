//! Reader of `graph.json`, which the Python package writes from an `nn.Module`.
//!
//! ```text
//! {"format": "pipewright-graph/1", "name": "mlp", "samples": 32, "nodes": [
//!   {"name": "fc1", "inputs": [], "output_bytes": 8192, "forward_ns": 40000, "input_gradient_ns": 0,
//!    "weight_gradient_ns": 41000, "parameters": [{"name": "fc1.weight", "bytes": 16384}],
//!    "keeps": ["fc1"], "saved_bytes": 8192}, ..]}
//! ```
//!
//! A node reads nodes above it. `keeps` names those of its inputs, or itself, whose values its backward
//! pass reads; `saved_bytes` is what the forward pass makes for it besides. Without `keeps` it reads all
//! inputs. A parameter that several nodes name is held by each. Times and bytes are of one batch of
//! `samples`. Other fields (`op`, `module`, `shape`, `dtype`, ..) are for people and for the package itself.

use super::ImportError;
use super::assemble::{EDGES_MAX, NODES_MAX};
use super::json::Cursor;
use super::number::{bytes, time};
use crate::cost::{Edge, Item, Keeps, Workload};
use crate::units::{Bytes, Nanos};
use serde_json::Value;
use std::collections::BTreeMap;

/// The version that is read.
pub const FORMAT: &str = "pipewright-graph/1";

/// Parameters of one node.
const PARAMETERS_MAX: usize = 1 << 12;

pub(super) fn of_json(value: &Value) -> Result<Workload, ImportError> {
    let root = Cursor::root(value);
    let format = root.field("format")?;
    if format.text()? != FORMAT {
        return Err(format.refuse("`pipewright-graph/1`; a newer one needs a newer program"));
    }
    let samples = root.field("samples")?.integer(1, 1 << 32, "from 1 to 2^32")? as u64;
    let mut work = Workload { samples, ..Workload::default() };
    let mut index: BTreeMap<String, u32> = BTreeMap::new();
    let nodes = root.field("nodes")?;
    for (number, node) in (0..).zip(nodes.list("nodes", NODES_MAX)?) {
        let name = node.field("name")?.text()?;
        let inputs = named(&node, "inputs", &index)?.unwrap_or_default();
        if work.edges.len() + inputs.len() > EDGES_MAX {
            return Err(ImportError::TooMany { what: "edges", limit: EDGES_MAX });
        }
        if index.insert(name.into(), number).is_some() {
            return Err(ImportError::Duplicate { at: node.at(), name: format!("node `{name}`") });
        }
        let item = item(&node, name, &index)?;
        let strange = |keeps: &Keeps| {
            keeps.values.iter().any(|at| *at != number && inputs.binary_search(at).is_err())
        };
        if item.keeps.as_ref().is_some_and(strange) {
            return Err(node.field("keeps")?.refuse("names of its inputs, or its own"));
        }
        let edge =
            |from: &u32| Edge { to: number, from: *from, bytes: work.items[*from as usize].output };
        work.edges.extend(inputs.iter().map(edge));
        work.items.push(item);
    }
    if work.items.is_empty() {
        return Err(ImportError::Empty);
    }
    stash(&mut work.items);
    Ok(work)
}

/// A node without what others keep of it.
fn item(node: &Cursor, name: &str, index: &BTreeMap<String, u32>) -> Result<Item, ImportError> {
    let size = |node: &Cursor, key: &str| -> Result<Bytes, ImportError> {
        let field = node.field(key)?;
        bytes(field.number()?, || field.at())
    };
    let duration = |key| -> Result<Nanos, ImportError> {
        let field = node.field(key)?;
        time(field.number()?, 1.0, || field.at())
    };
    let mut parameters = Bytes(0);
    if let Some(list) = node.optional("parameters") {
        for parameter in list.list("parameters of one node", PARAMETERS_MAX)? {
            parameters += size(&parameter, "bytes")?;
        }
    }
    let keeps = match named(node, "keeps", index)? {
        None => None,
        Some(values) => Some(Keeps { values, saved: size(node, "saved_bytes")? }),
    };
    Ok(Item {
        name: name.into(),
        forward: duration("forward_ns")?,
        backward_input: duration("input_gradient_ns")?,
        backward_weight: duration("weight_gradient_ns")?,
        output: size(node, "output_bytes")?,
        parameters,
        state: parameters * 2,
        keeps,
        ..Item::default()
    })
}

/// The nodes that a field names, ascending, each once.
fn named(
    node: &Cursor,
    key: &str,
    index: &BTreeMap<String, u32>,
) -> Result<Option<Vec<u32>>, ImportError> {
    let Some(names) = node.optional(key) else { return Ok(None) };
    let mut found = vec![];
    for name in names.list("names in one list", NODES_MAX)? {
        let text = name.text()?;
        let none = || ImportError::NoNode { at: name.at(), name: text.into() };
        found.push(*index.get(text).ok_or_else(none)?);
    }
    found.sort_unstable();
    found.dedup();
    Ok(Some(found))
}

/// What each item keeps: what is made for the backward pass, and its value where anybody reads it there.
fn stash(items: &mut [Item]) {
    let mut read = vec![false; items.len()];
    for item in &*items {
        let Some(keeps) = &item.keeps else {
            // Not known of one of the readers.
            read.fill(true);
            break;
        };
        keeps.values.iter().for_each(|at| read[*at as usize] = true);
    }
    for (item, read) in items.iter_mut().zip(read) {
        let saved = item.keeps.as_ref().map_or(Bytes(0), |keeps| keeps.saved);
        item.stash = saved + if read { item.output } else { Bytes(0) };
    }
}
