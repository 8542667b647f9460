//! Training of GPT-like transformers in closed form: time of an iteration, memory, and a
//! [`Workload`](pipewright_core::cost::Workload) to plan with.
//!
//! | symbol | meaning |
//! |---|---|
//! | L, h, a, s, V | layers, hidden size, attention heads, sequence, vocabulary |
//! | B, b, m | samples of an iteration, of a micro-batch; micro-batches of a replica |
//! | t, d, p, v | tensor-parallel, data-parallel, pipeline degree; chunks per device |
//!
//! The operations are those of Narayanan et al. 2021 (Megatron-LM, arXiv 2104.04473): 24 b s h² +
//! 4 b s² h floating-point operations a layer forward, two all-reduces of b s h values. Recompute
//! and sequence parallelism are those of Korthikanti et al. 2022 (arXiv 2205.05198). What the
//! device and its software reach is in an [`Accelerator`], found by [`calibrate`](fn@calibrate).
//!
//! Plans are priced by their nodes instead, with what this form taught: `pipewright_core::cost`,
//! `transformer/nodes.rs`.
//!
//! Known limits of the closed form: one kind of layer; every replica alike; links are not shared; no overlap of
//! communication with computation.

mod accelerator;
mod knobs;
mod layer;
mod memory;
mod time;
mod workload;

pub use accelerator::{ACCELERATORS, Accelerator, Wire};
pub use knobs::{Knob, Measured, calibrate};
pub use memory::{Memory, memory};
pub use time::{Iteration, iteration};
pub use workload::workload;

use thiserror::Error;

/// A GPT-like network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transformer {
    /// Blocks of attention and multi-layer perceptron.
    pub layers: u32,
    /// Size of the hidden state.
    pub hidden: u32,
    /// Attention heads.
    pub heads: u32,
    /// Tokens of a sample.
    pub sequence: u32,
    /// Tokens of the vocabulary.
    pub vocabulary: u32,
}

/// What is computed again in the backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recompute {
    /// Nothing.
    None,
    /// The attention core: scores, softmax, dropout and the sum over values.
    Selective,
    /// Each layer from its input.
    Full,
}

/// How a network is trained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Training {
    /// Samples of an iteration, over all replicas.
    pub batch: u32,
    /// Samples of a micro-batch.
    pub micro_batch: u32,
    /// Tensor-parallel degree t.
    pub tensor: u32,
    /// Replicas d.
    pub data: u32,
    /// Pipeline stages p.
    pub pipeline: u32,
    /// Chunks of layers per device v; 1 is 1F1B, more is interleaved 1F1B.
    pub chunks: u32,
    /// What is computed again.
    pub recompute: Recompute,
    /// Norms and dropouts divided among the tensor-parallel group along the sequence.
    pub sequence_parallel: bool,
}

/// Why a network cannot be trained so.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what} {dividend} cannot be divided by {by} {divisor}")]
pub struct Indivisible {
    /// What is divided.
    pub what: &'static str,
    /// How many.
    pub dividend: u32,
    /// Among what.
    pub by: &'static str,
    /// How many of those.
    pub divisor: u32,
}

impl Transformer {
    /// GPT-3 with 175 billion parameters (Brown et al. 2020), vocabulary padded as Megatron does.
    pub const GPT3_175B: Self =
        Self { layers: 96, hidden: 12288, heads: 96, sequence: 2048, vocabulary: 51200 };

    /// Parameters of a layer: 12 h², without norms and biases (13 h of them).
    pub fn layer_parameters(&self) -> u64 {
        12 * u64::from(self.hidden) * u64::from(self.hidden)
    }

    /// Parameters of the token embedding, which the head shares.
    pub fn embedding_parameters(&self) -> u64 {
        u64::from(self.vocabulary) * u64::from(self.hidden)
    }

    /// Parameters as counted in arXiv 2104.04473, equation 2:
    /// 12 L h² (1 + 13 / (12 h) + (V + s) / (12 L h)).
    pub fn parameters(&self) -> u64 {
        let (layers, hidden) = (u64::from(self.layers), u64::from(self.hidden));
        let positions = u64::from(self.sequence) * hidden;
        layers * (self.layer_parameters() + 13 * hidden) + self.embedding_parameters() + positions
    }

    /// Floating-point operations of an iteration over `batch` samples with full recompute,
    /// arXiv 2104.04473, equation 3: 96 B s L h² (1 + s / (6 h) + V / (16 L h)).
    pub fn flops_with_recompute(&self, batch: u32) -> f64 {
        let [layers, h, s, vocabulary] =
            [self.layers, self.hidden, self.sequence, self.vocabulary].map(f64::from);
        let relative = 1.0 + s / (6.0 * h) + vocabulary / (16.0 * layers * h);
        96.0 * f64::from(batch) * s * layers * h * h * relative
    }
}

impl Training {
    /// One device, no recompute.
    pub fn alone(batch: u32, micro_batch: u32) -> Self {
        Self {
            batch,
            micro_batch,
            tensor: 1,
            data: 1,
            pipeline: 1,
            chunks: 1,
            recompute: Recompute::None,
            sequence_parallel: false,
        }
    }

    /// Micro-batches of a replica.
    pub fn micro_batches(&self) -> u32 {
        self.batch / (self.micro_batch * self.data)
    }

    /// All devices.
    pub fn devices(&self) -> u64 {
        u64::from(self.tensor) * u64::from(self.data) * u64::from(self.pipeline)
    }

    /// Checks that everything divides.
    ///
    /// # Errors
    /// The first division with a rest, or by zero.
    pub fn check(&self, model: &Transformer) -> Result<(), Indivisible> {
        let per_step = self.data.saturating_mul(self.micro_batch);
        let chunks = self.pipeline.saturating_mul(self.chunks);
        let divisions = [
            ("batch", self.batch, "samples of all replicas' micro-batches", per_step),
            ("layers", model.layers, "chunks", chunks),
            ("heads", model.heads, "tensor-parallel degree", self.tensor),
            ("hidden size", model.hidden, "heads", model.heads),
        ];
        for (what, dividend, by, divisor) in divisions {
            if divisor == 0 || dividend == 0 || !dividend.is_multiple_of(divisor) {
                return Err(Indivisible { what, dividend, by, divisor });
            }
        }
        // Interleaving runs the micro-batches of a chunk in groups of p.
        if self.chunks > 1 && !self.micro_batches().is_multiple_of(self.pipeline) {
            let (what, dividend) = ("micro-batches", self.micro_batches());
            return Err(Indivisible { what, dividend, by: "stages", divisor: self.pipeline });
        }
        Ok(())
    }
}
