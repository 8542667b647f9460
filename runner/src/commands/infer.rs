//! Inference, for `eval` and `predict`: a network with weights, on ranks that only make forward passes.

use crate::args::{InferArgs, NamedSplit};
use crate::data::{DataError, DataSet, Split};
use crate::execute::{Rank, RunError};
use crate::failure::{Code, Failure};
use crate::train::{StopFlag, TrainError};
use crate::transport::local::local;
use crate::transport::{Transport, launched_by_mpi};
use crate::weights::{self, WeightSource};
use pipewright_core::cost::Halves;
use pipewright_core::graph::SampleSpec;
use pipewright_core::plan::{
    Communication, Data, DataParallel, Instruction, Optimizer, Plan, Training,
};
use pipewright_core::predict::{Prediction, evaluation, predict_with};
use std::path::Path;

/// This process among others of the job.
#[derive(Clone, Copy)]
pub(super) struct Process {
    pub rank: u32,
    pub ranks: u32,
}

/// What ranks do with a network that they hold together.
pub(super) trait Work: Sync {
    /// What comes of it on rank 0; none where a signal ended it before.
    type Made: Send;

    /// A rank's part.
    fn on<T: Transport>(
        &self,
        network: &Network,
        rank: &mut Rank<T>,
    ) -> Result<Option<Self::Made>, TrainError>;
}

/// A plan's network with weights.
pub(super) struct Network {
    pub plan: Plan,
    pub prediction: Prediction,
    /// What each lane does for a mini-batch of samples.
    pub instructions: Vec<Vec<Instruction>>,
    /// The samples; both halves are the same.
    pub data: DataSet,
    pub stop: StopFlag,
    weights: Box<dyn WeightSource>,
    threads: usize,
    process: Option<Process>,
}

/// The samples that were asked for.
pub(super) struct Samples {
    pub split: Split,
    pub half: NamedSplit,
}

impl NamedSplit {
    /// In messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            NamedSplit::Train => "train",
            NamedSplit::Test => "test",
        }
    }
}

/// What opens a data set.
type Open = fn(&Data, &SampleSpec, u64) -> Result<DataSet, DataError>;

/// Opens the half of a data set that the command line asks for.
pub(super) fn samples(args: &InferArgs, plan: &Plan, open: Open) -> Result<Samples, Failure> {
    let graph = plan.model.graph().map_err(|e| Failure::new(Code::Plan, e.to_string()))?;
    let sample = graph.sample().expect("plans train on samples");
    let data = args.data.as_ref().unwrap_or(&plan.data);
    let refused = |why: String| Failure::usage(format!("data {data}: {why}"));
    let set = open(data, &sample, plan.seed).map_err(|e| refused(e.to_string()))?;
    let half = match args.split {
        Some(half) => half,
        None if set.test.is_empty() => NamedSplit::Train,
        None => NamedSplit::Test,
    };
    let split = match half {
        NamedSplit::Train => set.train,
        NamedSplit::Test if set.test.is_empty() => {
            return Err(refused("it has nothing to test on; use --split train".into()));
        }
        NamedSplit::Test => set.test,
    };
    Ok(Samples { split: split.first(args.samples.unwrap_or(u64::MAX)), half })
}

/// Reads the plan, without what only training needs: what it would keep, sum and send for gradients,
/// and what would round activations on their way.
pub(super) fn plan(args: &InferArgs, process: Option<Process>) -> Result<Plan, Failure> {
    let mut plan = super::read_plan(&args.plan)?;
    let divided = plan.tensor > 1;
    if divided {
        // Checkpoints are of whole parameters, so whole lanes take them; orders were for shards.
        (plan.tensor, plan.sequence_parallel, plan.recompute) = (1, false, vec![]);
    }
    if let Some(Process { ranks, .. }) = process.filter(|process| process.ranks != plan.ranks()) {
        let message = match divided {
            true => format!(
                "each rank of {} takes whole layers here, without tensor groups; mpirun gave {ranks}. \
                 Use -n {}",
                super::words::processes(&plan),
                plan.ranks()
            ),
            false => super::check::wrong_ranks(&plan, ranks, "mpirun"),
        };
        return Err(Failure::new(Code::Hardware, message));
    }
    plan.communication = Communication::default();
    plan.data_parallel =
        DataParallel { replicas: plan.data_parallel.replicas, ..DataParallel::default() };
    plan.optimizer =
        Optimizer::Sgd { learning_rate: 0.1, momentum: 0.0, weight_decay: 0.0, nesterov: false };
    plan.training = Training { precision: plan.training.precision, ..Training::default() };
    Ok(plan)
}

impl Network {
    /// Everything that can go wrong before a pass does so here.
    pub fn new(
        args: &InferArgs,
        plan: Plan,
        split: Split,
        process: Option<Process>,
    ) -> Result<Self, Failure> {
        let prediction = predict_with(&plan, Halves::Unpacked)?;
        let graph = &prediction.graph;
        super::runnable(graph)?;
        super::run::fits(&plan, &prediction, process.map(|process| process.rank), 1)?;
        let Some(path) = args.weights.as_deref().or(plan.weights.as_deref().map(Path::new)) else {
            return Err(Failure::usage(
                "the plan names no weights: give --weights with the folder of a run, a checkpoint \
                 or a .safetensors file",
            ));
        };
        let speaks = process.is_none_or(|process| process.rank == 0);
        let weights = weights::open_fitting(path, graph, speaks)?;
        Ok(Self {
            instructions: evaluation(&plan, Halves::Unpacked)?,
            threads: super::run::threads(args.threads, plan.ranks())?,
            stop: super::run::stop_flag()?,
            data: DataSet { train: split.clone(), test: split },
            plan,
            prediction,
            weights,
            process,
        })
    }

    /// What the lane of a rank does for a mini-batch.
    pub fn instructions_of<T: Transport>(&self, rank: &Rank<T>) -> &[Instruction] {
        let lane = self.plan.mesh().lane(rank.transport.rank());
        &self.instructions[lane.index()]
    }

    fn handles(&self) -> usize {
        super::run::sends(&self.prediction)
    }

    /// A rank, from its first weight on.
    fn rank<T: Transport, W: Work>(
        &self,
        work: &W,
        transport: T,
    ) -> (Result<Option<W::Made>, TrainError>, T) {
        let lane = self.plan.mesh().lane(transport.rank());
        let parts = (&self.plan, &self.prediction.graph, &self.prediction.programs[lane.index()]);
        let mut rank = Rank::new(parts, &self.data, transport, self.threads);
        let loaded = weights::load(&mut rank, self.weights.as_ref());
        let made = loaded.map_err(TrainError::Weights).and_then(|()| work.on(self, &mut rank));
        if let Err(error) = &made
            && !super::run::caused_by_peer(error)
        {
            if self.process.is_some() {
                // Nothing is said any more after the end of MPI.
                let message = super::run::failure(rank.transport.rank(), error).message;
                error!("{message}");
            }
            rank.transport.abort(Code::Failed as i32, &error.to_string());
        }
        (made, rank.into_transport())
    }
}

/// Prepares a network and some work, does it on all ranks, and hands what came of it to `finish` on
/// the first one.
pub(super) fn on_ranks<W: Work>(
    prepare: impl FnOnce(Option<Process>) -> Result<(Network, W), Failure>,
    finish: impl FnOnce(&Network, W::Made) -> Result<(), Failure>,
) -> Result<(), Failure> {
    match launched_by_mpi() {
        Some(_) => processes(prepare, finish),
        None => {
            let (network, work) = prepare(None)?;
            finish(&network, threads(&network, &work)?)
        }
    }
}

fn interrupted() -> Failure {
    Failure::new(Code::Interrupted, "interrupted")
}

/// All ranks as threads of this process.
fn threads<W: Work>(network: &Network, work: &W) -> Result<W::Made, Failure> {
    let transports = local(network.plan.ranks(), network.handles());
    let count = transports.len();
    let results: Vec<Result<Option<W::Made>, TrainError>> = std::thread::scope(|scope| {
        let start = |transport| scope.spawn(move || network.rank(work, transport).0);
        let threads: Vec<_> = transports.into_iter().map(start).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    if results.len() < count {
        // The panic has been printed by the thread that had it.
        return Err(Failure::new(Code::Failed, "a rank could not run to its end"));
    }
    let errors = (0..).zip(&results).filter_map(|(rank, r)| Some((rank, r.as_ref().err()?)));
    if let Some((rank, error)) = errors.min_by_key(|(_, error)| super::run::caused_by_peer(error)) {
        return Err(super::run::failure(rank, error));
    }
    let first = results.into_iter().next().and_then(Result::ok);
    first.flatten().ok_or_else(interrupted)
}

/// This process as one rank.
#[cfg(feature = "mpi")]
fn processes<W: Work>(
    prepare: impl FnOnce(Option<Process>) -> Result<(Network, W), Failure>,
    finish: impl FnOnce(&Network, W::Made) -> Result<(), Failure>,
) -> Result<(), Failure> {
    use crate::transport::TransportError;
    use crate::transport::mpi::{MpiTransport, Settings};
    let mpi = |e: TransportError| Failure::new(Code::Failed, format!("MPI: {e}"));
    let transport = MpiTransport::start(Settings::new(0)).map_err(mpi)?;
    let process = Process { rank: transport.rank(), ranks: transport.ranks() };
    let (mut transport, (network, work)) = super::run::together(transport, prepare(Some(process)))?;
    transport.reserve(network.handles());
    let (made, transport) = network.rank(&work, transport);
    let Ok(made) = made else { return Err(Failure::silent(Code::Peers)) };
    let written = match made {
        Some(made) if process.rank == 0 => finish(&network, made),
        Some(_) => Ok(()),
        None => Err(interrupted()),
    };
    let (transport, ()) = super::run::together(transport, written)?;
    transport.finish().map_err(mpi)
}

/// This build has no MPI.
#[cfg(not(feature = "mpi"))]
fn processes<W: Work>(
    _: impl FnOnce(Option<Process>) -> Result<(Network, W), Failure>,
    _: impl FnOnce(&Network, W::Made) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let why = "this runner was built without MPI; build it with the feature `mpi`, or run all ranks in \
               one process, without mpirun";
    Err(Failure::new(Code::Hardware, why))
}

/// Whether a rank was asked to stop, or an agreement failed.
pub(super) fn agreement(source: crate::transport::TransportError) -> TrainError {
    RunError::Agreement { step: 0, source }.into()
}
