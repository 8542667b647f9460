//! PipeDream's and DAPPLE's `graph.txt`.
//!
//! ```text
//! node4 -- Linear(4, 8) -- forward_compute_time=0.5, backward_compute_time=1.0, activation_size=64, parameter_size=128
//!     node3 -- node4
//! ```
//!
//! An edge stands after a tab or spaces. Times are in ms, sizes in bytes, all for one profiled
//! batch, whose size the text does not say
//! (`samples` is 1: one batch). `activation_size=[a; b]` is a value of several tensors. A part
//! ` -- stage_id=2` may follow. As in PipeDream's own optimizer, sources called `Input..` are no
//! work for a device, and a `__getitem__` that nobody reads is dropped; both with their edges.

use super::ImportError;
use super::assemble::{EDGES_MAX, NODES_MAX, Parts};
use super::number::{bytes, time};
use crate::cost::{Item, Workload};
use crate::units::{Bytes, Nanos};
use std::collections::{BTreeMap, BTreeSet};

/// What every such file has.
pub(super) const MARK: &str = "forward_compute_time=";

const MS: f64 = 1e6;

struct ProfileNode<'a> {
    line: usize,
    id: &'a str,
    description: &'a str,
    item: Item,
}

/// Reads a `graph.txt`.
///
/// # Errors
/// The line that does not fit, what stands there and what may.
pub fn read(text: &str) -> Result<Workload, ImportError> {
    let mut nodes: Vec<ProfileNode> = vec![];
    let mut edges: Vec<(usize, &str, &str)> = vec![];
    for (index, line) in text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()) {
        let number = index + 1;
        if nodes.len() > NODES_MAX || edges.len() > EDGES_MAX {
            break; // refused below, without reading on
        }
        if line.starts_with([' ', '\t']) {
            let pair = line.split_once("--").ok_or_else(|| ImportError::Value {
                at: format!("line {number}"),
                value: quoted(line),
                must: "an edge `node1 -- node2`",
            })?;
            edges.push((number, pair.0.trim(), pair.1.trim()));
        } else {
            nodes.push(node(number, line)?);
        }
    }
    let alone = alone(&nodes, &edges).map(|node| (node.line, node.id));
    let dropped = dropped(&nodes, &edges);
    let mut parts = Parts::default();
    let mut known = BTreeSet::new();
    for node in nodes {
        let at = || format!("line {}", node.line);
        if !known.insert(node.id) {
            return Err(ImportError::Duplicate { at: at(), name: format!("node `{}`", node.id) });
        }
        if !dropped.contains(node.id) {
            parts.node(node.id, rank(node.id), node.item, at)?;
        }
    }
    for (line, from, to) in edges {
        let at = || format!("line {line}");
        if let Some(name) = [from, to].into_iter().find(|id| !known.contains(*id)) {
            return Err(ImportError::NoNode { at: at(), name: name.into() });
        }
        if !dropped.contains(from) && !dropped.contains(to) {
            let (from, to) = (parts.find(from, at)?, parts.find(to, at)?);
            parts.edge(from, to, None)?;
        }
    }
    let (items, edges, _) = parts.assemble()?;
    if let Some((line, id)) = alone {
        let what = format!("an edge of `{id}` (is the file whole?)");
        return Err(ImportError::Missing { at: format!("line {line}"), what });
    }
    Ok(Workload { name: "profile".into(), samples: 1, items, edges, ..Workload::default() })
}

fn node(line: usize, text: &str) -> Result<ProfileNode<'_>, ImportError> {
    let whole = || ImportError::Value {
        at: format!("line {line}"),
        value: quoted(text),
        must: "`node1 -- description -- forward_compute_time=.., ..`",
    };
    // The description is free text; what counts follows the last separator before the times.
    let times = text.find(MARK).ok_or_else(whole)?;
    let (id, description) = text[..times].split_once(" -- ").ok_or_else(whole)?;
    let description = description.trim_end().trim_end_matches("--").trim();
    let mut stage = None;
    let mut figures = BTreeMap::new();
    for part in text[times..].split(" -- ").flat_map(|part| part.split(", ")) {
        let (key, value) = part.trim().split_once('=').ok_or_else(whole)?;
        if key == "stage_id" {
            stage = Some(value.trim().parse().map_err(|_| refuse(line, key, value, STAGE))?);
        } else if figures.insert(key, value.trim()).is_some() {
            let name = format!("`{key}`");
            return Err(ImportError::Duplicate { at: format!("line {line}"), name });
        }
    }
    let figure = |key: &str| {
        let missing = || ImportError::Missing { at: format!("line {line}"), what: key.into() };
        figures.get(key).copied().ok_or_else(missing)
    };
    let ms = |key: &'static str| -> Result<Nanos, ImportError> {
        let number = number(line, key, figure(key)?)?;
        time(number, MS, || format!("line {line}, {key}"))
    };
    let size = |key: &'static str| -> Result<Bytes, ImportError> {
        let text = figure(key)?;
        let list = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
        list.split(';').try_fold(Bytes(0), |sum, text| {
            let number = number(line, key, text.trim())?;
            Ok(sum + bytes(number, || format!("line {line}, {key}"))?)
        })
    };
    let output = size("activation_size")?;
    let parameters = size("parameter_size")?;
    let kind = description.split('(').next().unwrap_or(description).trim();
    let item = Item {
        name: format!("{} {kind}", id.trim()),
        forward: ms("forward_compute_time")?,
        backward_input: ms("backward_compute_time")?,
        output,
        stash: output,
        parameters,
        state: parameters * 2,
        stage,
        ..Item::default()
    };
    Ok(ProfileNode { line, id: id.trim(), description, item })
}

const STAGE: &str = "the number of a stage";

fn number(line: usize, key: &str, text: &str) -> Result<f64, ImportError> {
    text.parse().map_err(|_| refuse(line, key, text, "a number"))
}

fn refuse(line: usize, key: &str, value: &str, must: &'static str) -> ImportError {
    ImportError::Value { at: format!("line {line}, {key}"), value: quoted(value), must }
}

/// The beginning of what stands there.
fn quoted(text: &str) -> String {
    let mut start: String = text.trim().chars().take(40).collect();
    if start.len() < text.trim().len() {
        start.push_str("..");
    }
    format!("`{start}`")
}

/// A node that nothing joins to the others: edges stand last, so it is of a file that was cut off.
fn alone<'n, 'a>(
    nodes: &'n [ProfileNode<'a>],
    edges: &[(usize, &str, &str)],
) -> Option<&'n ProfileNode<'a>> {
    let joined: BTreeSet<&str> = edges.iter().flat_map(|(_, from, to)| [*from, *to]).collect();
    nodes.iter().find(|node| nodes.len() > 1 && !joined.contains(node.id))
}

/// Ids of the nodes that are no work.
fn dropped<'a>(
    nodes: &[ProfileNode<'a>],
    edges: &[(usize, &'a str, &'a str)],
) -> BTreeSet<&'a str> {
    let read: BTreeSet<&str> = edges.iter().map(|(_, from, _)| *from).collect();
    let written: BTreeSet<&str> = edges.iter().map(|(_, _, to)| *to).collect();
    let drop = |node: &&ProfileNode<'a>| {
        let source = node.description.starts_with("Input") && !written.contains(node.id);
        source || (node.description.starts_with("__getitem__") && !read.contains(node.id))
    };
    nodes.iter().filter(drop).map(|node| node.id).collect()
}

/// `node12` was traced as the twelfth: the numbers are the order of execution.
fn rank(id: &str) -> u64 {
    id.strip_prefix("node").and_then(|n| n.parse().ok()).unwrap_or(u64::MAX)
}
