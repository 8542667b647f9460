//! ONNX files in: a [`Graph`] with a loss, and where the values of its parameters are.
//!
//! ```text
//! bytes -> proto -> flat: functions inlined, sorted
//!                -> origin: weights that the exporter merged are told apart
//!                -> build: values with shapes; what is constant is computed (fold)
//!                -> fuse: attention, norms, activations, linear layers found in what exporters wrote
//!                -> emit: our operations on one sample; what has none becomes opaque
//!                -> layers, loss -> Graph
//! ```
//!
//! The batch is the first axis of the inputs, by name or by number. All other sizes must be numbers;
//! a name among them needs a size in [`Options`]. A file may be hostile: whatever it holds, the
//! answer is a graph or one [`OnnxError`].
//!
//! ```
//! use pipewright_core::onnx::{Loss, Options, read_with};
//!
//! # let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/onnx/batch_norm.onnx");
//! let bytes = std::fs::read(file)?;
//! let options = Options { loss: Loss::CrossEntropy, ..Options::default() };
//! let imported = read_with(bytes, &options, &|_| None)?;
//! assert!(imported.unsupported.is_empty(), "all of it can be trained");
//! assert_eq!(imported.weights.len(), imported.graph.params().len());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod build;
mod emit;
mod flat;
mod fold;
mod fuse;
mod ir;
mod layers;
mod names;
mod node;
mod origin;
mod proto;
mod shapes;
mod tensor;
mod weights;
mod window;

pub use weights::{Place, Source, Weight, WeightError};

use crate::graph::{Graph, GraphError};
use bytes::Bytes;
use prost::Message;
use std::collections::BTreeMap;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use thiserror::Error;

/// A network that was imported.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The network, with a loss.
    pub graph: Graph,
    /// Where the values of each parameter of the graph are, by its id.
    pub weights: Vec<Weight>,
    /// Operations that became opaque: the network can be planned, not trained.
    pub unsupported: Vec<Unsupported>,
    /// What was assumed or left out.
    pub warnings: Vec<String>,
}

/// An operation of the file that has no counterpart here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// Name of the file's node.
    pub node: String,
    /// Its operation.
    pub op: String,
    /// What it is that is not supported.
    pub why: String,
}

/// What training makes small, when the file has no loss of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Loss {
    /// Cross entropy of the output's last axis as logits; of an image's channels.
    #[default]
    CrossEntropy,
    /// Mean squared error of the whole output.
    MeanSquaredError,
}

/// What the file leaves open.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Name of the graph; empty for the file's own.
    pub name: String,
    /// The loss.
    pub loss: Loss,
    /// Sizes of axes that have a name in the file, but for the batch.
    pub sizes: BTreeMap<String, u64>,
    /// Shape of one sample of the input: sizes for axes that are open and not in `sizes`. Empty when
    /// unknown.
    pub sample: Vec<u64>,
}

/// Bytes of a part of another file; `None` when they cannot be had.
pub type Beside<'a> = &'a dyn Fn(&Place) -> Option<Vec<u8>>;

/// Why a file is no network.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum OnnxError {
    /// Not a protocol buffer, or cut off.
    #[error("not an ONNX file, or cut off: {0}")]
    Decode(String),
    /// Without a graph, or a graph without nodes.
    #[error("the ONNX file has no graph with nodes")]
    Empty,
    /// A version before all that can be read; newer ones than are known are tried, with a warning.
    #[error("operator set {version} is before 7; export with opset_version=17")]
    Version {
        /// Of the standard operators.
        version: i64,
    },
    /// More than any network has.
    #[error("more than {limit} nodes")]
    Nodes {
        /// The most that are read.
        limit: usize,
    },
    /// A function that calls itself.
    #[error("function `{function}` calls itself")]
    Recursion {
        /// Its name.
        function: String,
    },
    /// A value with two producers.
    #[error("value `{value}` is computed twice")]
    Twice {
        /// Its name.
        value: String,
    },
    /// A value without producer.
    #[error("node `{node}` reads `{value}`, which nothing computes")]
    Missing {
        /// The reader.
        node: String,
        /// The value.
        value: String,
    },
    /// Nodes that wait for each other.
    #[error("node `{node}` waits for its own output")]
    Cycle {
        /// One of them.
        node: String,
    },
    /// An initialiser that makes no sense.
    #[error("initialiser `{name}` {why}")]
    Tensor {
        /// Its name.
        name: String,
        /// What does not fit.
        why: String,
    },
    /// An input that makes no sense.
    #[error("input `{name}` {why}")]
    Input {
        /// Its name.
        name: String,
        /// What does not fit.
        why: String,
    },
    /// A size that is not known.
    #[error(
        "input `{input}`: the size of axis {axis} is open (`{name}`); export with a number there, \
         only the batch may be open, or say --size {name}=NUMBER"
    )]
    Open {
        /// The input.
        input: String,
        /// Which axis.
        axis: usize,
        /// Its name in the file.
        name: String,
    },
    /// A size that nothing takes.
    #[error("no open size of the inputs is called `{name}`; {}", if .open.is_empty() { "none is open".into() } else { format!("open are {open}") })]
    Unknown {
        /// As it was given.
        name: String,
        /// The names that there are.
        open: String,
    },
    /// Inputs with different batches.
    #[error(
        "input `{input}` begins with {size}, other inputs with another number: which is the batch?"
    )]
    Batch {
        /// The input.
        input: String,
        /// Its first size.
        size: i64,
    },
    /// Not one input.
    #[error("the network needs one input, the sample; the file has {}", if .names.is_empty() { "none" } else { .names })]
    Inputs {
        /// Their names.
        names: String,
    },
    /// An output that nothing can be learnt from.
    #[error("output `{name}`: {why}")]
    Output {
        /// Its name.
        name: String,
        /// What does not fit.
        why: String,
    },
    /// The nodes make no network.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

/// The module that a node of PyTorch's older exporter belongs to: `features.conv0` of
/// `/features/conv0/Conv`. None for other names.
pub fn module_of_node(name: &str) -> Option<String> {
    names::module(name)
}

/// Reads an ONNX file. `beside` gives the bytes of a part of another file, if it can. It is asked for
/// constants that decide what the network is, and for tables that may be tied; weights stay where
/// they are, and no other file is touched.
///
/// # Errors
/// What is wrong with the file, and where. Operations that are not supported are no error: see
/// [`Imported::unsupported`].
pub fn read_with(
    bytes: impl Into<Bytes>,
    options: &Options,
    beside: Beside<'_>,
) -> Result<Imported, OnnxError> {
    let read = pin!(read_in_pieces(bytes, options, beside, async || ()));
    match read.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(found) => found,
        Poll::Pending => unreachable!("there is nothing to wait for"),
    }
}

/// As [`read_with`], awaiting `rest` between pieces of work of some ten thousand nodes, for callers
/// that have other things to do as well.
///
/// # Errors
/// As [`read_with`].
pub async fn read_in_pieces(
    bytes: impl Into<Bytes>,
    options: &Options,
    beside: Beside<'_>,
    rest: impl AsyncFn(),
) -> Result<Imported, OnnxError> {
    let mut model =
        proto::Model::decode(bytes.into()).map_err(|e| OnnxError::Decode(e.to_string()))?;
    model.graph.as_ref().filter(|g| !g.node.is_empty()).ok_or(OnnxError::Empty)?;
    let standard = |o: &&proto::OperatorSet| matches!(o.domain.as_str(), "" | "ai.onnx");
    let version = model.opset_import.iter().find(standard).map_or(0, |o| o.version);
    if version < 7 {
        return Err(OnnxError::Version { version });
    }
    let mut nodes = flat::nodes(&model, &build::known(&model))?;
    rest().await;
    let origins = model.graph.as_mut().map(|graph| origin::restore(graph, &mut nodes));
    let origins = origins.unwrap_or_default();
    rest().await;
    let graph = model.graph.as_ref().ok_or(OnnxError::Empty)?;
    let mut ir = build::build(&model, &nodes, &origins, options, beside)?;
    if version < 13 {
        flat_softmax(&mut ir);
    }
    if !(13..=21).contains(&version) {
        let tested = "13 to 21 are those that imports are tested with";
        ir.warnings.push(format!("operator set {version}: {tested}"));
    }
    rest().await;
    fuse::fuse(&mut ir);
    rest().await;
    let name = match options.name.is_empty() {
        true => graph.name.clone(),
        false => options.name.clone(),
    };
    emit::emit(ir, name, options.loss, rest).await
}

/// Attribute of a softmax over all axes from its own on.
const FLAT: &str = "flat";

/// Before operator set 13 a softmax is over all axes from its own on, which is axis 1 unless it says another.
fn flat_softmax(ir: &mut ir::Ir<'_>) {
    for node in &mut ir.nodes {
        if node.op.ends_with("Softmax") {
            node.attributes.set_int("axis", node.attributes.int("axis").unwrap_or(1));
            node.attributes.set_int(FLAT, 1);
        }
    }
}
