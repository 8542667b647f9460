//! Files: computation graphs to read (`recompute-graph/1`), sequences and fronts to write.
//!
//! A graph is one JSON object with `format` and `nodes`, and perhaps `model`. A node has `id` (its
//! place in the list, from 0), `bytes` of its value, `time` in microseconds and `inputs` (ids that
//! are all smaller than its own). It may have `name`, `op`, `phase` (`"F"` or `"B"`, else forward),
//! `output` (what kind of result it is; absent: none), `output_bytes`, `workspace` (bytes that it
//! needs only while it is computed), `rng` and `once` (true or false). `sources` lists what is there
//! from the beginning, each with `bytes`. Whatever else stands in the file is skipped.

mod parse;
mod scalar;
#[cfg(test)]
mod tests;
mod write;

pub use parse::read;
pub use write::{FRONT_FORMAT, FrontFile, PointRecord, SEQUENCE_FORMAT, SequenceFile};

use super::{Problem, ProblemError};
use thiserror::Error;

/// The format that is read.
pub const FORMAT: &str = "recompute-graph/1";

/// A graph as it stands in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct GraphFile {
    /// The model's name, empty where the file does not say it.
    pub model: String,
    /// What is to be computed; times are in microseconds.
    pub problem: Problem,
    /// What the file says of each node for people.
    pub labels: Vec<Label>,
    /// Bytes that no sequence changes and no peak counts: sources, and the room in which results
    /// are put down.
    pub resident: u64,
}

/// What a node is called, and what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Its name; its id where the file has none.
    pub name: String,
    /// Its operation, empty where the file has none.
    pub op: String,
    /// Whether it belongs to the forward pass.
    pub forward: bool,
    /// Whether it draws random numbers: computing it again must draw the same ones.
    pub rng: bool,
}

impl GraphFile {
    /// Which nodes belong to the forward pass.
    pub fn forward(&self) -> Vec<bool> {
        self.labels.iter().map(|label| label.forward).collect()
    }
}

/// Why a file is no graph to recompute.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum FileError {
    /// The text is no JSON, or not of this kind.
    #[error("not a graph: {0}")]
    Json(String),
    /// A number that JSON does not have.
    #[error(
        "line {line}, column {column} has {found}; JSON has no such number: write finite times and sizes"
    )]
    NotFinite {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What stands there.
        found: &'static str,
    },
    /// Another kind of file, or a newer one.
    #[error("the file's format is {found}; graphs of the format `{FORMAT}` are read")]
    Format {
        /// What it says.
        found: String,
    },
    /// Something is missing.
    #[error(
        "{at} has no `{what}`; a graph needs nodes, and each of them id, bytes, time and inputs"
    )]
    Missing {
        /// Where.
        at: String,
        /// What.
        what: &'static str,
    },
    /// Something has a value that it cannot have.
    #[error("{at}: {value} is not {must}")]
    Value {
        /// Where.
        at: String,
        /// What stands there.
        value: String,
        /// What may.
        must: &'static str,
    },
    /// An id that is not the node's place.
    #[error(
        "the node at place {at} has the id {id}; number the nodes 0, 1, 2 and so on, in an order \
         in which they can be computed"
    )]
    Id {
        /// Place in the list, from 0.
        at: usize,
        /// Its id.
        id: String,
    },
    /// Two nodes with an id.
    #[error("the nodes at places {id} and {at} both have the id {id}; number each node once")]
    Duplicate {
        /// Place of the second one, from 0.
        at: usize,
        /// The id.
        id: u64,
    },
    /// The graph cannot be computed.
    #[error(transparent)]
    Problem(#[from] ProblemError),
}
