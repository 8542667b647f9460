//! Reads a graph. Nodes are checked one by one while the text is read, so that a file that is too
//! large or wrong takes no more memory than a good one. O(length of the text).

use super::scalar::Scalar;
use super::{FORMAT, FileError, GraphFile, Label};
use crate::recompute::problem::{MOST_BYTES, MOST_EDGES, MOST_NODES};
use crate::recompute::{Node, Problem, ProblemError};
use serde::de::{Deserialize, Deserializer, IgnoredAny, SeqAccess, Visitor};
use std::fmt;

/// What numbers of a file may be.
const BYTES: &str = "a whole number of bytes from 0 to 2^56";
const TIME: &str = "a time from 0 to 10^30 microseconds";
const ID: &str = "the number of a node";
const TEXT: &str = "a text";
const PHASE: &str = "`F` or `B`";
const FLAG: &str = "true or false";
const OUTPUT: &str = "the kind of a result";

/// Reads the JSON text of a graph.
///
/// # Errors
/// What is wrong, where, and what may stand there. Never panics, whatever the bytes.
pub fn read(json: &[u8]) -> Result<GraphFile, FileError> {
    let file: File = serde_json::from_slice(json).map_err(|e| not_json(json, &e))?;
    match file.format {
        Some(Scalar::Text(format)) if format == FORMAT => {}
        Some(other) => return Err(FileError::Format { found: other.to_string() }),
        None => return Err(FileError::Format { found: "not given".into() }),
    }
    let nodes =
        file.nodes.ok_or_else(|| FileError::Missing { at: "the file".into(), what: "nodes" })?;
    let NodeList { nodes, labels, results } = nodes.0?;
    let resident = results.saturating_add(file.sources.map_or(Ok(0), |sources| sources.0)?);
    let model = match file.model {
        Some(model) => model.text().map_err(|value| FileError::Value {
            at: "model".into(),
            value: value.to_string(),
            must: TEXT,
        })?,
        None => String::new(),
    };
    Ok(GraphFile { model, problem: Problem::new(nodes)?, labels, resident })
}

/// What programs write that have numbers which are none.
const NOT_FINITE: [&str; 4] = ["NaN", "Infinity", "-Infinity", "-NaN"];

fn not_json(json: &[u8], error: &serde_json::Error) -> FileError {
    let (line, column) = (error.line(), error.column());
    let start = json.split(|b| *b == b'\n').nth(line.saturating_sub(1)).unwrap_or_default();
    // The column is that of the letter that does not fit: the one after a sign, or the first.
    let found = [2, 1].into_iter().find_map(|back| {
        let rest = start.get(column.checked_sub(back)?..)?;
        NOT_FINITE.into_iter().find(|word| rest.starts_with(word.as_bytes()))
    });
    match found {
        Some(found) => FileError::NotFinite { line, column, found },
        None => FileError::Json(error.to_string()),
    }
}

#[derive(serde::Deserialize)]
struct File {
    format: Option<Scalar>,
    model: Option<Scalar>,
    sources: Option<Sources>,
    nodes: Option<Nodes>,
}

#[derive(serde::Deserialize)]
struct Source {
    bytes: Option<Scalar>,
}

#[derive(serde::Deserialize)]
struct Entry {
    id: Option<Scalar>,
    bytes: Option<Scalar>,
    time: Option<Scalar>,
    inputs: Option<Inputs>,
    name: Option<Scalar>,
    op: Option<Scalar>,
    phase: Option<Scalar>,
    output: Option<Scalar>,
    output_bytes: Option<Scalar>,
    workspace: Option<Scalar>,
    rng: Option<Scalar>,
    once: Option<Scalar>,
}

/// Bytes of all sources, or what is wrong with one.
struct Sources(Result<u64, FileError>);

impl<'de> Deserialize<'de> for Sources {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(SourcesVisitor)
    }
}

struct SourcesVisitor;

impl<'de> Visitor<'de> for SourcesVisitor {
    type Value = Sources;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a list of sources")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Sources, A::Error> {
        let mut sum = Ok(0u64);
        let mut index = 0;
        while let Some(source) = list.next_element::<Source>()? {
            let at = || format!("source {index}, bytes");
            // A source without bytes takes none.
            let bytes = source.bytes.map_or(Ok(0), |bytes| {
                let value = || FileError::Value { at: at(), value: bytes.to_string(), must: BYTES };
                bytes.whole(MOST_BYTES).ok_or_else(value)
            });
            sum = sum.and_then(|sum| Ok(sum.saturating_add(bytes?)));
            index += 1;
        }
        Ok(Sources(sum))
    }
}

/// All nodes, or what is wrong with the first that is wrong.
struct Nodes(Result<NodeList, FileError>);

#[derive(Default)]
struct NodeList {
    nodes: Vec<Node>,
    labels: Vec<Label>,
    /// Bytes of what is put down of outputs.
    results: u64,
}

impl<'de> Deserialize<'de> for Nodes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(NodesVisitor)
    }
}

struct NodesVisitor;

impl<'de> Visitor<'de> for NodesVisitor {
    type Value = Nodes;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a list of nodes")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Nodes, A::Error> {
        let (mut read, mut edges) = (NodeList::default(), 0);
        while let Some(entry) = list.next_element::<Entry>()? {
            let at = read.nodes.len();
            let one = if at == MOST_NODES { Ok(None) } else { entry.read(at).map(Some) };
            let error = match one {
                Ok(Some((node, label, result))) => {
                    edges += node.inputs.len();
                    read.nodes.push(node);
                    read.labels.push(label);
                    read.results = read.results.saturating_add(result);
                    if edges <= MOST_EDGES {
                        continue;
                    }
                    too_large("edges", edges, MOST_EDGES)
                }
                Ok(None) => {
                    let mut count = MOST_NODES + 1;
                    while list.next_element::<IgnoredAny>()?.is_some() {
                        count += 1;
                    }
                    too_large("nodes", count, MOST_NODES)
                }
                Err(error) => error,
            };
            // The rest is skipped: no value of it is kept.
            while list.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(Nodes(Err(error)));
        }
        Ok(Nodes(Ok(read)))
    }
}

fn too_large(what: &'static str, count: usize, most: usize) -> FileError {
    ProblemError::TooLarge { what, count, most }.into()
}

impl Entry {
    /// The node at a place, and the bytes that are put down of it as a result.
    fn read(self, at: usize) -> Result<(Node, Label, u64), FileError> {
        let missing = |what| FileError::Missing { at: format!("node {at}"), what };
        let id = self.id.ok_or_else(|| missing("id"))?;
        match id.whole(u64::MAX) {
            Some(id) if id == at as u64 => {}
            Some(id) if id < at as u64 => return Err(FileError::Duplicate { at, id }),
            _ => return Err(FileError::Id { at, id: id.to_string() }),
        }
        let bytes = self.bytes.ok_or_else(|| missing("bytes"))?;
        let time = self.time.ok_or_else(|| missing("time"))?;
        let inputs = self.inputs.ok_or_else(|| missing("inputs"))?;
        let flag = |value: &Option<Scalar>, what, must| match value {
            Some(value) => value.truth().ok_or_else(|| value.refuse(at, what, must)),
            None => Ok(false),
        };
        let text = |value: Option<Scalar>, what| match value {
            Some(value) => value.text().map(Some).map_err(|value| value.refuse(at, what, TEXT)),
            None => Ok(None),
        };
        let forward = match self.phase {
            None => true,
            Some(Scalar::Text(phase)) if phase == "F" => true,
            Some(Scalar::Text(phase)) if phase == "B" => false,
            Some(other) => return Err(other.refuse(at, "phase", PHASE)),
        };
        let node = Node {
            bytes: bytes.whole(MOST_BYTES).ok_or_else(|| bytes.refuse(at, "bytes", BYTES))?,
            scratch: match &self.workspace {
                Some(bytes) => {
                    bytes.whole(MOST_BYTES).ok_or_else(|| bytes.refuse(at, "workspace", BYTES))?
                }
                None => 0,
            },
            time: time.time().ok_or_else(|| time.refuse(at, "time", TIME))?,
            inputs: inputs.0.map_err(|value| value.refuse(at, "inputs", ID))?,
            output: flag(&self.output, "output", OUTPUT)?,
            once: flag(&self.once, "once", FLAG)?,
        };
        let label = Label {
            name: text(self.name, "name")?.unwrap_or_else(|| at.to_string()),
            op: text(self.op, "op")?.unwrap_or_default(),
            forward,
            rng: flag(&self.rng, "rng", FLAG)?,
        };
        let result = match &self.output_bytes {
            _ if !node.output => 0,
            Some(bytes) => {
                bytes.whole(MOST_BYTES).ok_or_else(|| bytes.refuse(at, "output_bytes", BYTES))?
            }
            None => node.bytes,
        };
        Ok((node, label, result))
    }
}

/// Ids of nodes, or the first value that is none.
struct Inputs(Result<Vec<u32>, Scalar>);

impl<'de> Deserialize<'de> for Inputs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(InputsVisitor)
    }
}

struct InputsVisitor;

impl<'de> Visitor<'de> for InputsVisitor {
    type Value = Inputs;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a list of nodes' ids")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Inputs, A::Error> {
        let mut inputs = Ok(vec![]);
        while let Some(value) = list.next_element::<Scalar>()? {
            let Ok(ids) = &mut inputs else { continue };
            match value.whole(u64::from(u32::MAX)) {
                // One more than may be is enough to refuse them all.
                Some(id) if ids.len() <= MOST_EDGES => ids.push(id as u32),
                Some(_) => {}
                None => inputs = Err(value),
            }
        }
        Ok(Inputs(inputs))
    }
}
