//! Options of training beyond the split.

use crate::failure::Failure;
use clap::{Args, ValueEnum};
use pipewright_core::graph::{Graph, GraphError, GraphParts, Node, Op};
use pipewright_core::plan::{
    BatchNorm, Decay, Model, Optimizer, Precision, RateSchedule, Training,
};

/// How activations and messages are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Storage {
    /// Four bytes.
    F32,
    /// Four bytes; products of matrices on GPUs may round to TF32.
    Tf32,
    /// Two bytes, sums in f32.
    Bf16,
    /// Two bytes, sums in f32, and a loss that is scaled so that gradients do not vanish.
    F16,
    /// As bf16; linear layers multiply numbers of eight bits.
    Fp8,
}

/// How parameters change, and how training goes.
#[derive(Clone, Debug, Args)]
pub struct TrainingArgs {
    /// sgd, adam, adamw or lars, with settings such as adamw:lr=3e-3,beta2=0.99,weight_decay=0.1 or
    /// sgd:momentum=0.9,nesterov=true.
    #[arg(long, default_value_t = Optimizer::default())]
    pub optimizer: Optimizer,
    /// What replicas divide among themselves (ZeRO): 0 nothing, 1 what the optimizer keeps, and the work of
    /// updates, 2 gradients too, which are summed behind every micro-batch then.
    #[arg(long, default_value_t = 0, value_name = "STAGE", value_parser = clap::value_parser!(u8).range(..=2))]
    pub zero: u8,
    /// Learning rate, in place of the optimizer's.
    #[arg(long)]
    pub learning_rate: Option<f32>,
    /// Momentum, in place of the optimizer's.
    #[arg(long)]
    pub momentum: Option<f32>,
    /// L2 penalty (adamw: decay of weights), in place of the optimizer's.
    #[arg(long)]
    pub weight_decay: Option<f32>,
    /// Course of the learning rate: constant, step:every=STEPS,factor=RATIO or cosine:floor=RATE.
    #[arg(long, default_value_t = Decay::default())]
    pub rate: Decay,
    /// Steps in which the learning rate rises linearly.
    #[arg(long, default_value_t = 0)]
    pub warmup: u64,
    /// Linear scaling rule: the learning rate is for mini-batches of so many samples.
    #[arg(long, value_name = "SAMPLES")]
    pub base_batch: Option<u64>,
    /// Shorten the gradient of all parameters together to this length.
    #[arg(long, value_name = "NORM")]
    pub clip_norm: Option<f32>,
    /// Skip steps whose gradients are not finite: nothing changes by them, and so many in a row end
    /// the run.
    #[arg(long, value_name = "STEPS")]
    pub skip_nonfinite: Option<u32>,
    /// Update batch normalisation's running statistics once a mini-batch.
    #[arg(long)]
    pub deferred_batch_norm: bool,
    /// Share of the target's weight that the loss spreads over all classes.
    #[arg(long, value_name = "SHARE")]
    pub label_smoothing: Option<f32>,
    /// Share of elements that dropout makes zero, in place of the model's.
    #[arg(long, value_name = "SHARE")]
    pub dropout: Option<f32>,
    /// How activations, their gradients and messages are stored.
    #[arg(long, value_enum, default_value = "f32")]
    pub precision: Storage,
}

impl TrainingArgs {
    /// The optimizer with the settings that have flags of their own.
    ///
    /// # Errors
    /// A setting that it does not have.
    pub fn optimizer(&self) -> Result<Optimizer, Failure> {
        let mut optimizer = self.optimizer;
        let settings = [
            ("learning_rate", self.learning_rate),
            ("momentum", self.momentum),
            ("weight_decay", self.weight_decay),
        ];
        for (name, value) in settings {
            if let Some(value) = value {
                optimizer.replace(name, value).map_err(Failure::usage)?;
            }
        }
        Ok(optimizer)
    }

    /// The model with label smoothing and dropout as the command line has them. A model by name
    /// becomes one in full, because names do not tell.
    ///
    /// # Errors
    /// When the model has no operation that they belong to, or a share is none.
    pub fn model(&self, model: Model) -> Result<Model, Failure> {
        let is_norm = |node: &Node| matches!(node.op, Op::BatchNorm2d { .. });
        if self.deferred_batch_norm
            && let Ok(graph) = model.graph()
            && !graph.nodes().iter().any(is_norm)
        {
            warn!("--deferred-batch-norm: {} has no batch norm", graph.name());
        }
        let changes = [("--label-smoothing", self.label_smoothing), ("--dropout", self.dropout)];
        if changes.iter().all(|(_, share)| share.is_none()) {
            return Ok(model);
        }
        let usage = |e: GraphError| Failure::usage(e.to_string());
        let mut parts = GraphParts::from(model.graph().map_err(usage)?);
        for (flag, share) in changes {
            let Some(share) = share else { continue };
            let mut found = false;
            for node in &mut parts.nodes {
                match (&mut node.op, flag) {
                    (Op::SoftmaxCrossEntropy { label_smoothing: of_node }, "--label-smoothing")
                    | (Op::Dropout { probability: of_node }, "--dropout") => *of_node = share,
                    _ => continue,
                }
                found = true;
            }
            if !found {
                let name = &parts.name;
                return Err(Failure::usage(format!(
                    "{flag}: {name} has no operation that uses it"
                )));
            }
        }
        Ok(Model::Graph(Graph::new(parts).map_err(usage)?))
    }

    /// The rest.
    pub fn training(&self) -> Training {
        Training {
            rate: RateSchedule {
                decay: self.rate,
                warmup: self.warmup,
                base_batch: self.base_batch,
            },
            clip_norm: self.clip_norm,
            skip_nonfinite: self.skip_nonfinite,
            batch_norm: match self.deferred_batch_norm {
                true => BatchNorm::Deferred,
                false => BatchNorm::PerMicroBatch,
            },
            precision: self.precision(),
        }
    }

    /// Number formats.
    pub fn precision(&self) -> Precision {
        match self.precision {
            Storage::F32 => Precision::F32,
            Storage::Tf32 => Precision::Tf32,
            Storage::Bf16 => Precision::Bf16,
            Storage::F16 => Precision::F16,
            Storage::Fp8 => Precision::Fp8,
        }
    }
}
