//! Networks of Hugging Face: a `config.json` becomes a graph whose parameters and layers have the names
//! that transformers gives them, and parameters of presets have a counterpart there.
//!
//! ```
//! let config = r#"{"model_type": "llama", "vocab_size": 32000, "hidden_size": 2048,
//!     "intermediate_size": 5632, "num_hidden_layers": 22, "num_attention_heads": 32,
//!     "num_key_value_heads": 4, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
//!     "hidden_act": "silu"}"#;
//! let imported = pipewright_core::hf::read("tinyllama", config, Some(1024))?;
//! assert_eq!(imported.graph.trainable_elements(), 1_100_048_384);
//! # Ok::<(), pipewright_core::hf::HfError>(())
//! ```

mod bert;
mod block;
mod decoder;
mod fields;
mod gpt2;
mod names;

pub use names::{Counterpart, Counterparts, Family, counterparts, family_of, modules};

use crate::graph::{Function, Graph, GraphBuilder, GraphError, Op};
use crate::ids::NodeId;
use fields::Fields;
use thiserror::Error;

/// Tokens of a sample where nobody says how many and the network takes more.
const USUAL_LENGTH: u64 = 2048;

/// Why no network is made of a configuration.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum HfError {
    /// No configuration.
    #[error("not a config.json of Hugging Face: {0}")]
    File(String),
    /// A field that says something that cannot be expressed.
    #[error("`{field}` is {value}: {why}")]
    Field {
        /// Its name.
        field: String,
        /// What it says.
        value: String,
        /// What can be.
        why: String,
    },
    /// A field that must be there.
    #[error("`{0}` is missing")]
    Missing(String),
    /// More tokens than the network takes.
    #[error("{wanted} tokens of a sample, the network takes at most {most}")]
    Length {
        /// How many are asked for.
        wanted: u64,
        /// How many there may be.
        most: u64,
    },
    /// Sizes that make no network.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

/// A network that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// It, with a loss: of the next token at each position, or of the class of a text.
    pub graph: Graph,
    /// Tokens of a sample.
    pub length: u64,
    /// Most tokens that it takes.
    pub length_max: u64,
}

/// Reads a `config.json`. `name` is the network's; samples have `length` tokens, or as many as it takes
/// up to 2,048. Dropout is left out.
///
/// # Errors
/// The first field that says something that no graph here does.
pub fn read(name: &str, text: &str, length: Option<u64>) -> Result<Imported, HfError> {
    let fields = Fields::parse(text)?;
    let kind = fields.text("model_type")?.ok_or_else(|| HfError::Missing("model_type".into()))?;
    known(&kind, &fields)?;
    fields.must_be_absent("quantization_config", "quantized weights cannot be trained")?;
    let length_max = match kind.as_str() {
        "gpt2" => fields.number("n_positions")?,
        _ => fields.number("max_position_embeddings")?,
    };
    let length = length.unwrap_or(length_max.min(USUAL_LENGTH));
    if length == 0 || length > length_max {
        return Err(HfError::Length { wanted: length, most: length_max });
    }
    let graph = match kind.as_str() {
        "gpt2" => gpt2::graph(name, &fields, length)?,
        "bert" => bert::graph(name, &fields, length)?,
        kind => decoder::graph(name, kind, &fields, length)?,
    };
    Ok(Imported { graph, length, length_max })
}

/// Kinds of networks that can be read.
const KINDS: [&str; 11] = [
    "gpt2",
    "llama",
    "mistral",
    "mixtral",
    "qwen2",
    "qwen3",
    "qwen3_moe",
    "phi3",
    "olmo2",
    "smollm3",
    "bert",
];

/// Refuses kinds that cannot be read, before fields that they do not have.
fn known(kind: &str, fields: &Fields) -> Result<(), HfError> {
    if KINDS.contains(&kind) {
        return Ok(());
    }
    let experts = ["num_experts", "num_local_experts", "n_routed_experts"];
    let kinds = KINDS.join(", ");
    let why = match () {
        () if experts.iter().any(|field| fields.has(field)) => {
            format!("mixtures of experts of this kind cannot be read; {kinds} can")
        }
        () if fields.has("text_config") => {
            format!(
                "of networks for texts and images only their parts can be read: give the text_config; {kinds} can be read"
            )
        }
        () => format!("{kinds} can be read; networks of other kinds come as ONNX files"),
    };
    Err(fields.refused("model_type", &why))
}

/// The activation function that a field names.
fn activation(fields: &Fields, field: &str) -> Result<Option<Function>, HfError> {
    Ok(match fields.text(field)?.as_deref() {
        Some("gelu") => Some(Function::Gelu),
        Some("gelu_new" | "gelu_fast" | "gelu_pytorch_tanh") => Some(Function::GeluTanh),
        Some("silu" | "swish") => Some(Function::Silu),
        Some("tanh") => Some(Function::Tanh),
        Some("relu") => None,
        _ => {
            return Err(fields.refused(field, "gelu, gelu_new, silu, relu and tanh can be read"));
        }
    })
}

/// Applies it; none is a rectifier.
fn activated(g: &mut GraphBuilder, name: &str, function: Option<Function>, x: NodeId) -> NodeId {
    match function {
        Some(function) => g.activation(name, function, x),
        None => g.relu(name, x),
    }
}

/// Adds the first rows of a learnt table to the vectors of positions.
struct Rows<'a> {
    /// The table's name.
    name: &'a str,
    /// Its rows, and their size.
    shape: [u64; 2],
    /// How many of them; one is for all positions.
    used: u64,
}

impl Rows<'_> {
    fn added_to(&self, g: &mut GraphBuilder, x: NodeId) -> NodeId {
        let Self { name, shape, used } = *self;
        let table = Op::Parameter { shape: shape.to_vec(), trainable: true };
        let mut rows = g.add(name, table, &[]);
        if used < shape[0] {
            let slice = Op::Slice { axis: 0, start: 0, end: used, step: 1 };
            rows = g.add(format!("{name}.slice"), slice, &[rows]);
        }
        g.add(format!("{name}.add"), Op::Add, &[x, rows])
    }
}

/// The output layer of a decoder, by the table of its tokens or by one of its own, and the loss.
struct Head {
    /// The operation that has the table of tokens.
    tokens: NodeId,
    tied: bool,
    length: u64,
    vocabulary: u64,
}

impl Head {
    fn attach(&self, g: &mut GraphBuilder, x: NodeId) {
        g.layer("lm_head");
        let out_features = self.vocabulary;
        let op = match self.tied {
            true => Op::TiedLinear { weight: g.weight(self.tokens), out_features },
            false => Op::Linear { out_features, bias: false },
        };
        let logits = g.add("lm_head", op, &[x]);
        g.losses(logits, self.length, self.vocabulary);
    }
}

#[cfg(test)]
mod tests;
