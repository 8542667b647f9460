//! The command line.

mod bench;
mod cluster;
mod communication;
mod cuda;
mod curves;
mod device;
mod elastic;
mod explore;
mod export;
mod help;
mod infer;
mod measure;
mod names;
mod onnx;
mod order;
mod recompute;
mod scale;
mod training;
mod tune;

pub use bench::{AllreduceArgs, Bench, BenchArgs, CodecsArgs, SumAlgorithm};
pub use cluster::{ClusterArgs, ClusterChanges};
pub use communication::{Codec, CommunicationArgs};
pub use cuda::{AlgorithmsArgs, AlgorithmsKind, CudaArgs, LayoutKind};
pub use curves::{CurvesArgs, Measure};
pub use device::{DeviceKind, TransportKind};
pub use elastic::{ElasticArgs, JoinArgs, LeaveArgs, MeetingArgs, OnLossKind};
pub use explore::ExploreArgs;
pub use export::{ExportArgs, ExportFormat};
pub use help::{CompletionsArgs, ManArgs};
pub use infer::{EvalArgs, InferArgs, NamedSplit, PredictArgs};
pub use measure::{CalibrateArgs, DevicesArgs, FormsArgs, ProfileArgs};
pub use names::parse;
pub use onnx::{LossKind, OnnxArgs};
pub use order::{Order, StageReplicas, TensorDegree};
pub use recompute::{Budget, RecomputeArgs};
pub use scale::ScaleArgs;
pub use training::{Storage, TrainingArgs};
pub use tune::TuneArgs;

use crate::checkpoint::LATEST;
use clap::{Args, Parser, Subcommand, ValueEnum};
use pipewright_core::plan::{Data, STEPS_MAX};
use std::path::PathBuf;

/// Plans and runs the parallel training of neural networks.
///
/// `runner plan.json` is short for `runner run plan.json`. Under mpirun each process is a rank;
/// alone, all ranks are threads of one process.
#[derive(Debug, Parser)]
#[command(name = "runner", version, arg_required_else_help = true, after_help = EXAMPLES)]
pub struct Cli {
    /// Leave out progress, notes and summaries; results, warnings and errors stay.
    #[arg(long, short, global = true)]
    pub quiet: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  runner plan --model digits-cnn --stages 4 --data idx:tests/data/digits -o plan.json
  mpirun -n 4 runner plan.json --out run
  runner profile plan.json -o here.json   then: runner plan .. --cluster here.json

Exit codes: 0 done, 1 run failed, 2 usage, 3 plan invalid or too new, 4 the plan does not fit the
machine, 5 peers lost, 130 interrupted.";

/// The subcommands.
#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one of them in a process")]
pub enum Command {
    /// Train by a plan: mpirun -n 4 runner plan.json --out run
    Run(RunArgs),
    /// Train with ranks that may die and join: runner elastic plan.json --out run
    Elastic(ElasticArgs),
    /// Offer ranks to an elastic job: runner join --slots 2
    Join(JoinArgs),
    /// Ask a member of an elastic job to leave: runner leave node2
    Leave(LeaveArgs),
    /// Make a plan: runner plan --model vgg16 --stages 4 -o plan.json
    Plan(PlanArgs),
    /// Read, lower and verify a plan, print each rank's memory and program: runner check plan.json
    Check(CheckArgs),
    /// Predict a step and write its timeline: runner simulate plan.json -o trace.json
    Simulate(SimulateArgs),
    /// Show a plan's stages and schedule: runner show plan.json
    Show(ShowArgs),
    /// Write a plan, trained weights or metrics for other programs: runner export run --csv run.csv
    Export(ExportArgs),
    /// Loss and accuracy of trained weights: runner eval plan.json --weights run
    Eval(EvalArgs),
    /// What a network gives, to a file: runner predict plan.json --weights run -o out.npy
    Predict(PredictArgs),
    /// Compare runs by what they learned in their time: runner curves fp32 fp8 -o curves.svg
    Curves(CurvesArgs),
    /// Compare DataParallel, DDP, ZeRO-1, tensor parallel, pipeline and hybrid: runner forms --model vgg16 --devices 8
    Forms(FormsArgs),
    /// The best plan for each number of devices, its speed and cost: runner scale --model gpt2 --devices 8,16
    Scale(ScaleArgs),
    /// Fit the cost model to measurements: runner calibrate points.csv --layers 32
    Calibrate(CalibrateArgs),
    /// List the presets of machines, or print one as a file: runner cluster dgx-a100 -o mine.json
    Cluster(ClusterArgs),
    /// Measure a plan's operations and links here: runner profile plan.json -o cluster.json
    Profile(ProfileArgs),
    /// Measure plans, calibrate, plan again, keep the fastest: runner tune plan.json --trials 3
    Tune(TuneArgs),
    /// Less memory by computing again: runner recompute graph.json.gz --budget 0.5 -o sequence.json
    Recompute(RecomputeArgs),
    /// Measure codecs, and sums of gradients over ranks: mpirun -n 4 runner bench allreduce
    Bench(BenchArgs),
    /// Open the explorer in the browser, with runs on this machine: runner explore plan.json
    Explore(ExploreArgs),
    /// List processors, GPUs and NVIDIA's libraries, and why some cannot be used: runner devices
    Devices(DevicesArgs),
    /// Print the JSON Schema of plan files: runner schema > plan.schema.json
    Schema,
    /// Print what a shell completes commands with: runner completions bash > runner.bash
    Completions(CompletionsArgs),
    /// Write man pages into a folder: runner man man1
    Man(ManArgs),
}

impl Command {
    /// Whether the standard output is one JSON object, in place of what is said about it.
    pub fn prints_json(&self) -> bool {
        match self {
            Self::Plan(args) => args.json,
            Self::Export(args) => args.json,
            _ => false,
        }
    }
}

/// Whether to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// Do.
    On,
    /// Do not.
    Off,
}

/// `runner run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The plan.
    pub plan: PathBuf,
    /// Steps to train, in place of the plan's.
    #[arg(long, value_parser = clap::value_parser!(u64).range(..=STEPS_MAX))]
    pub steps: Option<u64>,
    /// Seed, in place of the plan's.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Skip steps whose gradients are not finite, at most so many in a row, in place of what the plan
    /// says of that.
    #[arg(long, value_name = "STEPS")]
    pub skip_nonfinite: Option<u32>,
    /// Compare the weights of replicas every so many steps, and before a checkpoint is saved; 0: never.
    /// They differ where a memory or a processor has failed, and then the run ends.
    #[arg(long, value_name = "STEPS", default_value_t = 0)]
    pub check_replicas: u64,
    /// Folder for metrics, trace.json and result.json; without it nothing is written.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Replace an earlier run in that folder.
    #[arg(long, requires = "out")]
    pub overwrite: bool,
    /// Save a checkpoint in DIR/checkpoints every so many steps, at the end and when interrupted;
    /// 0: only the latter two.
    #[arg(long, value_name = "STEPS", requires = "out")]
    pub save_every: Option<u64>,
    /// Newest checkpoints that are kept.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    pub keep: u32,
    /// Go on from a checkpoint, a folder of them, or `latest`: the newest of --out, if there is one.
    #[arg(long, value_name = "CHECKPOINT", num_args = 0..=1, default_missing_value = LATEST)]
    pub resume: Option<String>,
    /// Initial weights in place of the plan's: a .safetensors file, model.safetensors.index.json or
    /// a checkpoint, tensors named as the model's parameters.
    #[arg(long, value_name = "FILE")]
    pub weights: Option<PathBuf>,
    /// Evaluate the test samples every so many steps as well as at the end; 0: only at the end.
    #[arg(long, value_name = "STEPS", default_value_t = 0)]
    pub eval_every: u64,
    /// Do not evaluate the test samples at the end.
    #[arg(long, conflicts_with_all = ["eval_every", "eval_samples"])]
    pub no_eval: bool,
    /// Evaluate the first test samples alone, so many.
    #[arg(long, value_name = "SAMPLES", value_parser = clap::value_parser!(u64).range(1..))]
    pub eval_samples: Option<u64>,
    /// Write trace.json every so many steps as well as at the end; 0: only at the end.
    #[arg(long, value_name = "STEPS", default_value_t = 0, requires = "out")]
    pub trace_every: u64,
    /// How ranks talk.
    #[arg(long, value_enum, default_value = "auto")]
    pub transport: TransportKind,
    /// What computes.
    #[arg(long, value_enum, default_value = "cpu")]
    pub device: DeviceKind,
    #[command(flatten)]
    pub cuda: CudaArgs,
    /// Threads that each rank computes with, at most four for each core; 0 shares the cores among the ranks.
    #[arg(long, default_value_t = 0)]
    pub threads: usize,
    /// Crews of threads that share the trials of a plan that chooses its codec while training. Under
    /// mpirun: start as many ranks for each.
    #[arg(long, value_name = "CREWS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub crews: u32,
    /// Print the result record as JSON instead of progress and summary.
    #[arg(long)]
    pub json: bool,
    /// The folder of the elastic job whose rank this is; its supervisor says so.
    #[arg(long, hide = true, requires_all = ["generation", "out"])]
    pub session: Option<PathBuf>,
    /// Steps between two states in memory.
    #[arg(long, hide = true, requires = "session", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub state_every: u64,
    /// Whether the ranks of an elastic job are to survive the loss of others.
    #[arg(long, hide = true, requires = "session")]
    pub survives: bool,
    /// Where ranks of an elastic job say that they live, where not in that folder.
    #[arg(long, hide = true, requires = "session")]
    pub beats: Option<PathBuf>,
    /// Number of the generation of an elastic job.
    #[arg(long, hide = true, requires = "session")]
    pub generation: Option<u64>,
}

/// How to choose cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Split {
    /// Least time of the simulated step: messages, memory and the schedule count.
    Exact,
    /// Least time of the slowest stage.
    Balanced,
    /// Equal numbers of layers.
    Uniform,
}

impl Split {
    /// As the command line has it.
    pub const fn name(self) -> &'static str {
        match self {
            Split::Exact => "exact",
            Split::Balanced => "balanced",
            Split::Uniform => "uniform",
        }
    }
}

/// How replicas keep the same parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Parallel {
    /// Gradients are summed by all-reduce while the backward pass goes on.
    Ddp,
    /// Samples, parameters and gradients go through the first replica.
    Dp,
}

/// Plans that `runner plan` tries at most, if nothing else is said.
pub const BUDGET: u64 = 20_000;

/// What `runner plan` searches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Forms {
    /// Pipelines and replicas of them, which the runner executes.
    Runnable,
    /// Tensor parallelism as well: what it would give is printed, the plan written is still one that
    /// the runner executes.
    All,
}

/// What stages compute again in the backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Recompute {
    /// Nothing.
    None,
    /// As little as lets each lane fit the memory of its device; where all fit, nothing.
    Auto,
    /// Attentions alone, what their products and softmax make of queries, keys and values: Megatron-LM's selective.
    Selective,
    /// All activations of a stage but those that it receives and sends.
    Full,
}

/// `runner plan`. What is left open is searched.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// Such as vgg16, resnet50, fc32:512, gpt2, llama-7b; a wrong name lists all. Or an ONNX file,
    /// hf:config.json of Hugging Face (gpt2, llama, mistral, qwen2, bert), or a profile file of the Python package, PipeDream, DAPPLE, dnn-partitioning or Piper, with its measured times.
    #[arg(long)]
    pub model: String,
    /// What an ONNX file leaves open.
    #[command(flatten)]
    pub onnx: OnnxArgs,
    /// Processes, exactly: lanes of the pipeline times replicas times --tensor. More than the cluster has devices share
    /// them. Default: as many as are fastest, each with a device for itself.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub ranks: Option<u32>,
    /// Stages; as many as lanes, or a multiple of them where a schedule has several stages a lane.
    #[arg(long, alias = "pp", value_parser = clap::value_parser!(u32).range(1..))]
    pub stages: Option<u32>,
    /// How to choose the cuts; default: exact.
    #[arg(long, value_enum, requires = "stages")]
    pub split: Option<Split>,
    /// Layers that begin a stage, by name: conv2,pool2,fc1. A node's name (layer1.0.bn2) cuts
    /// inside of a block.
    #[arg(long, value_delimiter = ',', conflicts_with_all = ["split", "stages"])]
    pub cuts: Vec<String>,
    /// 1f1b, gpipe, zb-h1, interleaved:2 and so on; automatic: an order made for these stages, messages and
    /// memory; or PyTorch's CSV of a schedule, FILE.csv, which also says stages and micro-batches; default:
    /// the fastest by name (1f1b with --cuts, --split).
    #[arg(long)]
    pub schedule: Option<Order>,
    /// Parts of a mini-batch; default: the fastest (4 with --cuts, --split).
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub micro_batches: Option<u32>,
    /// Copies of the pipeline that share each mini-batch; default: as many as are fastest. With --cuts,
    /// --split, or all of stages, schedule and micro-batches: as many as make the --ranks, or 1.
    #[arg(long, alias = "dp", value_parser = clap::value_parser!(u32).range(1..))]
    pub replicas: Option<u32>,
    /// Replicas that divide the experts of a mixture and send each other rows of tokens, all-to-all (expert parallelism).
    #[arg(long, alias = "ep", value_name = "DEGREE", default_value_t = 1, requires = "replicas", value_parser = clap::value_parser!(u32).range(1..))]
    pub expert_parallel: u32,
    /// Ranks that divide the work of every lane: attention by heads, feed-forward parts by features (Megatron-LM's
    /// tensor parallelism). They are neighbours, so on one host where that has room. auto: as many of a host's as are
    /// fastest, with --sequence-parallel or without.
    #[arg(long, alias = "tp", value_name = "DEGREE|auto", default_value = "1")]
    pub tensor: TensorDegree,
    /// Ranks of a tensor group take a slice of the sequence each where nothing else is divided: norms, dropout and
    /// residuals (Megatron-LM's sequence parallelism).
    #[arg(long)]
    pub sequence_parallel: bool,
    /// Copies of each stage, which take its micro-batches in turn (PipeDream), in 1F1B: 2,1,1; or best: as
    /// many as make the slowest stage fastest on the --ranks.
    #[arg(long, value_name = "N,N,..|best", conflicts_with_all = ["schedule", "stages", "replicas"])]
    pub stage_replicas: Option<StageReplicas>,
    /// How replicas keep the same parameters: PyTorch's DistributedDataParallel or, for comparison,
    /// its DataParallel through the first replica.
    #[arg(long, value_enum, default_value = "ddp")]
    pub data_parallel: Parallel,
    /// MiB of gradients that travel together.
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u64).range(1..1 << 20))]
    pub bucket_mib: u64,
    /// Devices to use at most; default: all of the cluster.
    #[arg(long, conflicts_with = "ranks", value_parser = clap::value_parser!(u32).range(1..))]
    pub devices: Option<u32>,
    /// What is searched.
    #[arg(long, value_enum, default_value = "runnable")]
    pub forms: Forms,
    /// Plans to try at most. The result depends on it and on the seed, not on the machine's pace.
    #[arg(long, default_value_t = BUDGET, value_parser = clap::value_parser!(u64).range(1..))]
    pub budget: u64,
    /// Which row of the table of a search to write; 1 is the fastest.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub row: u32,
    /// Samples of an optimizer step.
    #[arg(long, alias = "global-batch-size", default_value_t = 32)]
    pub mini_batch: u64,
    /// The machine: a preset, all of which `runner cluster` lists, or a file, such as `runner profile`
    /// writes.
    #[arg(long, default_value = "laptop")]
    pub cluster: String,
    /// What differs in it.
    #[command(flatten)]
    pub changes: ClusterChanges,
    /// What stages compute again instead of keeping it; default: auto with --memory, else nothing.
    #[arg(long, value_enum)]
    pub recompute: Option<Recompute>,
    /// synthetic, idx:DIR (MNIST's files), cifar10:DIR, cifar100:DIR, images:DIR (a folder a class),
    /// tokens16:PATH, tokens32:PATH, npy:DIR or safetensors:FILE.
    #[arg(long, default_value_t = Data::default())]
    pub data: Data,
    /// Classes of an image network; default: as many as the data set has, where it says so.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..1 << 20))]
    pub classes: Option<u64>,
    /// Take the samples as they lie in their files, in every epoch.
    #[arg(long)]
    pub no_shuffle: bool,
    /// How ranks send.
    #[command(flatten)]
    pub communication: CommunicationArgs,
    /// How parameters change, and how training goes.
    #[command(flatten)]
    pub training: TrainingArgs,
    /// Seed of weights and samples.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// A file of initial weights, written into the plan as it stands here: see `runner run --help`.
    /// Default: those of an ONNX model, else drawn from the seed, which `seed` asks for.
    #[arg(long, value_name = "FILE")]
    pub weights: Option<String>,
    /// Steps to train.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(..=STEPS_MAX))]
    pub steps: u64,
    /// The file; `-` prints it.
    #[arg(short, long, default_value = "-")]
    pub output: PathBuf,
    /// Print one JSON object about the plan instead of text, see docs/json.md; the plan goes to -o FILE.
    #[arg(long)]
    pub json: bool,
}

impl PlanArgs {
    /// What stages compute again.
    pub fn recompute(&self) -> Recompute {
        let open = if self.changes.memory.is_some() { Recompute::Auto } else { Recompute::None };
        self.recompute.unwrap_or(open)
    }
}

/// `runner check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The plan.
    pub plan: PathBuf,
    /// Also check that the plan runs on so many ranks.
    #[arg(long)]
    pub ranks: Option<u32>,
    /// Print every instruction of every rank.
    #[arg(long)]
    pub programs: bool,
    /// Print one JSON object instead of text: see docs/json.md.
    #[arg(long)]
    pub json: bool,
}

/// `runner simulate`.
#[derive(Debug, Args)]
pub struct SimulateArgs {
    /// The plan.
    pub plan: PathBuf,
    /// The predicted timeline, for Perfetto or the explorer.
    #[arg(short, long, value_name = "TRACE")]
    pub output: Option<PathBuf>,
    /// Print the prediction as JSON.
    #[arg(long)]
    pub json: bool,
}

/// `runner show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// The plan.
    #[arg(required_unless_present = "layers")]
    pub plan: Option<PathBuf>,
    /// List a model's layers instead, where it can be cut: runner show --layers vgg16
    #[arg(long, value_name = "MODEL", conflicts_with = "plan")]
    pub layers: Option<String>,
    /// Add other plans that are better, each simulated: runner show plan.json --advice
    #[arg(long, conflicts_with = "layers")]
    pub advice: bool,
    /// Write the plan of a row of the advice
    #[arg(short, long, value_name = "FILE", requires = "advice")]
    pub output: Option<PathBuf>,
    /// Which row of the advice to write.
    #[arg(long, default_value_t = 1, requires = "output", value_parser = clap::value_parser!(u32).range(1..))]
    pub row: u32,
    #[command(flatten)]
    pub onnx: OnnxArgs,
    /// Print one JSON object instead of text: see docs/json.md.
    #[arg(long)]
    pub json: bool,
}
