//! The JSON of dnn-partitioning (Tarnawski et al. 2020, "Efficient Algorithms for Device Placement
//! of DNN Graph Operators").
//!
//! "FPGA" there is any accelerator. `fpgaLatency` and `cpuLatency` are ms; `size` is what a node
//! takes of the device's memory, whatever it holds. An edge's `cost` is a transfer time in ms: the
//! workload's link carries one byte per nanosecond, so that `edge.bytes` is that time in ns.
//! Backward operations are nodes of their own; a `colorClass` stays on one device.

use super::ImportError;
use super::assemble::{EDGES_MAX, NODES_MAX, Parts};
use super::json::{Cursor, parse};
use super::number::{bytes, time};
use crate::cost::{Item, Link, Rules, Workload};
use crate::units::{Bytes, Nanos};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const MS: f64 = 1e6;
/// One byte per nanosecond.
const LINK: Link = Link { latency_ns: Nanos(0), bytes_per_sec: 1e9 };
const ID: &str = "a whole number of at least 0";
const COUNT: &str = "a number of devices from 0 to 10^6";

/// Reads one of its inputs.
///
/// # Errors
/// The path of the value that does not fit, what stands there and what may.
pub fn read(text: &str) -> Result<Workload, ImportError> {
    of_json(&parse(text)?)
}

pub(super) fn of_json(value: &Value) -> Result<Workload, ImportError> {
    let root = Cursor::root(value);
    let memory = match root.optional("maxSizePerFPGA") {
        Some(size) => Some(bytes(size.number()?, || size.at())?),
        None => None,
    };
    let count = |key| match root.optional(key) {
        Some(count) => Ok(Some(count.integer(0, 1_000_000, COUNT)? as u32)),
        None => Ok(None),
    };
    let mut parts = Parts::default();
    let mut groups = BTreeMap::new();
    let nodes = root.field("nodes")?;
    for node in nodes.list("nodes", NODES_MAX)? {
        let id = node.field("id")?.integer(0, i64::MAX, ID)?;
        let item = item(&node, id, &mut groups)?;
        parts.node(&id.to_string(), id as u64, item, || node.at())?;
    }
    let mut pairs = BTreeSet::new();
    let edges = root.field("edges")?;
    for edge in edges.list("edges", EDGES_MAX)? {
        let end = |key| {
            let field = edge.field(key)?;
            let id = field.integer(0, i64::MAX, ID)?;
            parts.find(&id.to_string(), || field.at())
        };
        let (from, to) = (end("sourceId")?, end("destId")?);
        let cost = edge.field("cost")?;
        let nanos = time(cost.number()?, MS, || cost.at())?;
        if !pairs.insert((from, to)) {
            return Err(ImportError::Duplicate { at: edge.at(), name: "the edge".into() });
        }
        parts.edge(from, to, Some(Bytes(nanos.0)))?;
    }
    let (items, edges, _) = parts.assemble()?;
    Ok(Workload {
        name: "profile".into(),
        samples: 1,
        items,
        edges,
        memory,
        devices: count("maxFPGAs")?,
        hosts: count("maxCPUs")?.unwrap_or(0),
        link: Some(LINK),
        micro_batches: None,
    })
}

fn item(node: &Cursor, id: i64, groups: &mut BTreeMap<i64, u32>) -> Result<Item, ImportError> {
    let ms = |key| {
        let field = node.field(key)?;
        time(field.number()?, MS, || field.at())
    };
    let flag = |key| node.optional(key).map_or(Ok(None), |field| field.flag().map(Some));
    let name = match node.optional("name") {
        Some(name) => format!("{id} {}", name.text()?),
        None => id.to_string(),
    };
    let group = match node.optional("colorClass") {
        Some(class) => {
            let class = class.integer(i64::MIN, i64::MAX, "a whole number")?;
            let next = groups.len() as u32;
            Some(*groups.entry(class).or_insert(next))
        }
        None => None,
    };
    let size = node.field("size")?;
    let backward = flag("isBackwardNode")?.unwrap_or(false);
    let latency = ms("fpgaLatency")?;
    let (forward, backward_input) =
        if backward { (Nanos(0), latency) } else { (latency, Nanos(0)) };
    let rules = Rules {
        host: Some(ms("cpuLatency")?),
        host_only: !flag("supportedOnFpga")?.unwrap_or(true),
        group,
        backward,
    };
    let state = bytes(size.number()?, || size.at())?;
    Ok(Item { name, forward, backward_input, state, rules, ..Item::default() })
}
