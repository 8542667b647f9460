//! Reads a graph. Nodes are checked one by one while the text is read, so that a file that is too
//! large or wrong takes no more memory than a good one. O(length of the text).

use super::scalar::Scalar;
use super::{FORMAT, FileError, GraphFile, Label};
use crate::recompute::{MOST_BYTES, MOST_EDGES, MOST_NODES, Node, Problem, ProblemError};
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
    let (nodes, labels) = nodes.0?;
    let model = match file.model {
        Some(model) => model.text().map_err(|value| FileError::Value {
            at: "model".into(),
            value: value.to_string(),
            must: TEXT,
        })?,
        None => String::new(),
    };
    Ok(GraphFile { model, problem: Problem::new(nodes)?, labels })
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
    nodes: Option<Nodes>,
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
    rng: Option<Scalar>,
    once: Option<Scalar>,
}

/// All nodes, or what is wrong with the first that is wrong.
struct Nodes(Result<(Vec<Node>, Vec<Label>), FileError>);

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
        let (mut nodes, mut labels, mut edges) = (vec![], vec![], 0);
        while let Some(entry) = list.next_element::<Entry>()? {
            let at = nodes.len();
            let read = if at == MOST_NODES { Ok(None) } else { entry.read(at).map(Some) };
            let error = match read {
                Ok(Some((node, label))) => {
                    edges += node.inputs.len();
                    nodes.push(node);
                    labels.push(label);
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
        Ok(Nodes(Ok((nodes, labels))))
    }
}

fn too_large(what: &'static str, count: usize, most: usize) -> FileError {
    ProblemError::TooLarge { what, count, most }.into()
}

impl Entry {
    /// The node at a place.
    fn read(self, at: usize) -> Result<(Node, Label), FileError> {
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
        Ok((node, label))
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
