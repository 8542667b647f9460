//! Profiles that others measured, as a [`Workload`].
//!
//! | format | made by | text |
//! |---|---|---|
//! | `graph.txt` | PipeDream (Narayanan et al. 2019), DAPPLE (Fan et al. 2021) | a line a node, a line an edge |
//! | dnn-partitioning | Tarnawski et al. 2020 | JSON with `maxFPGAs` |
//! | Piper | Tarnawski et al. 2021 | JSON with `TMPCs` |
//! | `graph.json` | the Python package, from an `nn.Module` | JSON with `format` |
//!
//! Items come out in topological order. Reading is linear in the text but for one sort. A file may
//! be hostile: every number has a range, every name must exist, and what does not fit is refused
//! with its line or its path.

mod assemble;
pub mod dnn_partitioning;
pub mod graph;
mod json;
mod number;
pub mod pipedream;
pub mod piper;

use super::Workload;
use thiserror::Error;

/// Why a text is no workload.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ImportError {
    /// None of the formats above.
    #[error(
        "not a profile: neither lines `node1 -- Conv2d -- forward_compute_time=..` nor JSON with \
         `nodes` and `edges`"
    )]
    Unknown,
    /// A result of dnn-partitioning, not one of its inputs.
    #[error("a placement (`fpgas`, `cpus`), not a profile: import the profile that it places")]
    Placement,
    /// Nothing to compute.
    #[error("the profile has no node with work")]
    Empty,
    /// Not JSON, or cut off.
    #[error("not JSON: {0}")]
    Json(String),
    /// Something that must stand there.
    #[error("{at}: {what} is missing")]
    Missing {
        /// Line, or path of the JSON value.
        at: String,
        /// The field.
        what: String,
    },
    /// Something else than what may stand there.
    #[error("{at} is {value}, must be {must}")]
    Value {
        /// Line and field, or path of the JSON value.
        at: String,
        /// What stands there.
        value: String,
        /// What may stand there.
        must: &'static str,
    },
    /// One name for two things.
    #[error("{at}: {name} was there before")]
    Duplicate {
        /// Line, or path of the JSON value.
        at: String,
        /// The second one.
        name: String,
    },
    /// An edge to nowhere.
    #[error("{at}: there is no node `{name}`")]
    NoNode {
        /// Line, or path of the JSON value.
        at: String,
        /// The name.
        name: String,
    },
    /// Nodes that wait for each other.
    #[error("the nodes {} wait for each other in a circle", .names.join(" -> "))]
    Cycle {
        /// Some of them, in the order of the edges.
        names: Vec<String>,
    },
    /// More than a profile may have.
    #[error("more than {limit} {what}")]
    TooMany {
        /// Nodes or edges.
        what: &'static str,
        /// How many may be.
        limit: usize,
    },
}

/// Reads a profile in whichever format it is. `name` is for people; where it says the size of the
/// measured batch, as DAPPLE's file names do (`pbs-32`), samples are counted.
///
/// # Errors
/// What is wrong with the text, where, and what may stand there.
pub fn read(name: &str, text: &str) -> Result<Workload, ImportError> {
    let mut work = match text.trim_start().as_bytes().first() {
        None => return Err(ImportError::Empty),
        Some(b'{' | b'[') => {
            let value = json::parse(text)?;
            let first_node = &value["nodes"][0];
            if value.get("format").is_some() {
                graph::of_json(&value)?
            } else if first_node.get("TMPCs").is_some() {
                piper::of_json(&value)?
            } else if value.get("nodes").is_some() {
                dnn_partitioning::of_json(&value)?
            } else if value.get("fpgas").is_some() {
                return Err(ImportError::Placement);
            } else {
                return Err(ImportError::Unknown);
            }
        }
        Some(_) if text.contains(pipedream::MARK) => pipedream::read(text)?,
        Some(_) => return Err(ImportError::Unknown),
    };
    let file = name.rsplit(['/', '\\']).next().unwrap_or(name);
    work.name = file.split('.').next().unwrap_or(file).into();
    if let Some(samples) = samples_in(file) {
        work.samples = samples;
    }
    Ok(work)
}

/// `32` of `vgg-19-pbs-32.txt`.
fn samples_in(file: &str) -> Option<u64> {
    let (_, after) = file.split_once("pbs-")?;
    let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
    after[..end].parse().ok().filter(|n| (1..=1 << 32).contains(n))
}
