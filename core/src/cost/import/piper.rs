//! Piper's JSON (Tarnawski et al. 2021, "Piper: Multidimensional Planner for DNN Parallelization").
//!
//! Each node lists, by tensor-parallel degree, its ways to be computed (TMPCs): without and with
//! recomputation of activations. The first way of degree 1 that does not recompute becomes the
//! item, the others its shards. On a stage of the pipeline a way takes
//! `memoryUsageA x y + memoryUsageB` bytes, where y is the number of micro-batches in flight there
//! (in Piper: the data-parallel degrees of this stage and the later ones, summed and divided by
//! this stage's, rounded up): A is [`Item::stash`], B is [`Item::state`]. An edge that leaves a
//! stage costs that stage its own bytes and the way's `syncTime` bytes, in both directions.
//!
//! `timePerSample` (seconds) is forward and backward together; a third of it is taken as forward,
//! the usual share: a backward pass has two products for each one of the forward pass. Stages are
//! balanced by the sum, which is exact.

use super::ImportError;
use super::assemble::{EDGES_MAX, NODES_MAX, Parts};
use super::json::{Cursor, parse};
use super::number::{bytes, time};
use crate::cost::{Item, Link, Shard, Sync, Workload};
use crate::units::{Bytes, Nanos};
use serde_json::Value;
use std::collections::BTreeSet;

const SECOND: f64 = 1e9;
const ID: &str = "a whole number of at least 0";
const DEGREE: &str = "a number of devices from 1 to 10^4";
/// Ways of one node; Piper has two for each of four degrees.
const WAYS_MAX: usize = 1 << 10;

/// Reads one of its inputs.
///
/// # Errors
/// The path of the value that does not fit, what stands there and what may.
pub fn read(text: &str) -> Result<Workload, ImportError> {
    of_json(&parse(text)?)
}

pub(super) fn of_json(value: &Value) -> Result<Workload, ImportError> {
    let root = Cursor::root(value);
    let memory = root.field("maxMemoryPerDevice")?;
    let devices = root.field("maxDevices")?.integer(1, 1_000_000, "from 1 to 10^6")? as u32;
    let bandwidth = root.field("bandwidth")?;
    let bytes_per_sec = bandwidth.number()?;
    if !(1.0..=1e18).contains(&bytes_per_sec) {
        return Err(bandwidth.refuse("from 1 to 10^18 bytes per second"));
    }
    // The paper's files say `mbsInBatch`, their description `maxBatchSize`.
    let batch = root.optional("mbsInBatch").or_else(|| root.optional("maxBatchSize"));
    let micro_batches = match batch {
        Some(count) => Some(count.integer(1, 1 << 30, "from 1 to 2^30")? as u32),
        None => None,
    };
    let mut parts = Parts::default();
    let nodes = root.field("nodes")?;
    for node in nodes.list("nodes", NODES_MAX)? {
        let id = node.field("id")?.integer(0, i64::MAX, ID)?;
        // Other nodes are known when all are read: what names them comes in the second round.
        let name = match node.optional("name") {
            Some(name) => format!("{id} {}", name.text()?),
            None => id.to_string(),
        };
        let item = Item { name, ..Item::default() };
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
        let cost = edge.field("communicationCost")?;
        let size = bytes(cost.number()?, || cost.at())?;
        if !pairs.insert((from, to)) {
            return Err(ImportError::Duplicate { at: edge.at(), name: "the edge".into() });
        }
        parts.edge(from, to, Some(size))?;
    }
    let mut ways = Vec::new();
    for (index, node) in (0..).zip(nodes.list("nodes", NODES_MAX)?) {
        ways.push(node_ways(&node, index, &parts, &pairs)?);
    }
    let (mut items, edges, place) = parts.assemble()?;
    for (ways, at) in ways.into_iter().zip(&place) {
        fill(&mut items[*at as usize], ways, &place);
    }
    for edge in &edges {
        let output = &mut items[edge.from as usize].output;
        *output = edge.bytes.max(*output);
    }
    Ok(Workload {
        name: "profile".into(),
        samples: 1,
        items,
        edges,
        memory: Some(bytes(memory.number()?, || memory.at())?),
        devices: Some(devices),
        hosts: 0,
        link: Some(Link { latency_ns: Nanos(0), bytes_per_sec }),
        micro_batches,
    })
}

/// The way that is the item itself first, then the others by degree.
fn node_ways(
    node: &Cursor,
    index: u32,
    parts: &Parts,
    pairs: &BTreeSet<(u32, u32)>,
) -> Result<Vec<Shard>, ImportError> {
    let lists = node.field("TMPCs")?;
    let mut ways = vec![];
    for (key, list) in lists.entries()? {
        let degree: u32 =
            key.parse().ok().filter(|d| (1..=10_000).contains(d)).ok_or_else(|| {
                ImportError::Value { at: lists.at(), value: format!("`{key}`"), must: DEGREE }
            })?;
        for way in list.list("ways to compute a node", WAYS_MAX)? {
            ways.push(shard(&way, degree, index, parts, pairs)?);
        }
    }
    if ways.len() > WAYS_MAX {
        return Err(ImportError::TooMany { what: "ways to compute a node", limit: WAYS_MAX });
    }
    ways.sort_by_key(|way| (way.degree, way.recompute));
    if ways.first().is_none_or(|way| way.degree != 1) {
        let what = "a way of degree 1 (the node on one device)".into();
        return Err(ImportError::Missing { at: lists.at(), what });
    }
    Ok(ways)
}

fn shard(
    way: &Cursor,
    degree: u32,
    index: u32,
    parts: &Parts,
    pairs: &BTreeSet<(u32, u32)>,
) -> Result<Shard, ImportError> {
    let size = |key| {
        let field = way.field(key)?;
        bytes(field.number()?, || field.at())
    };
    let seconds = way.field("timePerSample")?;
    let total = time(seconds.number()?, SECOND, || seconds.at())?;
    let forward = Nanos(total.0 / 3);
    let mut syncs = vec![];
    for (key, forward) in [("syncTimeFw", true), ("syncTimeBw", false)] {
        let costs = way.field(key)?;
        for (other, cost) in costs.entries()? {
            let other = parts.find(other, || costs.at())?;
            let pair = if forward { (other, index) } else { (index, other) };
            if !pairs.contains(&pair) {
                return Err(ImportError::Missing { at: cost.at(), what: "its edge".into() });
            }
            let bytes = bytes(cost.number()?, || cost.at())?;
            if bytes > Bytes(0) {
                syncs.push(Sync { other, bytes });
            }
        }
    }
    let name = way.field("id")?;
    Ok(Shard {
        degree,
        recompute: name.text()?.contains("recomp"),
        forward,
        backward: total - forward,
        stash: size("memoryUsageA")?,
        state: size("memoryUsageB")?,
        parameters: size("parameterSize")?,
        syncs,
    })
}

fn fill(item: &mut Item, ways: Vec<Shard>, place: &[u32]) {
    let mut ways = ways.into_iter().map(|mut way| {
        way.syncs.iter_mut().for_each(|sync| sync.other = place[sync.other as usize]);
        way.syncs.sort_unstable();
        way
    });
    let own = ways.next().expect("checked: a way of degree 1");
    item.forward = own.forward;
    item.backward_input = own.backward;
    item.stash = own.stash;
    item.state = own.state;
    item.parameters = own.parameters;
    item.syncs = own.syncs;
    item.shards = ways.collect();
}
