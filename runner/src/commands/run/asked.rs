//! Validation of a run's command line.

use crate::args::{DeviceKind, RunArgs, TransportKind};
use crate::failure::{Code, Failure};
use crate::transport::{launched_by_mpi, launched_rank};
use pipewright_core::plan::Plan;

/// Refuses options that make no sense where nothing is trained.
pub(super) fn nothing_is_trained(args: &RunArgs) -> Result<(), Failure> {
    let given = [
        ("--save-every", args.save_every.is_some()),
        ("--resume", args.resume.is_some()),
        ("--weights", args.weights.is_some()),
        ("--eval-every", args.eval_every > 0),
        ("--eval-samples", args.eval_samples.is_some()),
    ];
    let Some((flag, _)) = given.into_iter().find(|(_, given)| *given) else { return Ok(()) };
    Err(Failure::usage(format!(
        "{flag} with --device model: nothing is trained there, so there are no weights; \
         leave one of them out"
    )))
}

/// Threads that a rank may have for each core of the machine.
const THREADS_A_CORE: usize = 4;

/// Threads of each rank: the machine's cores shared among its ranks, unless given.
pub(in crate::commands) fn threads(given: usize, ranks: u32) -> Result<usize, Failure> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    match given {
        0 => Ok((cores / ranks as usize).max(1)),
        given if given <= cores * THREADS_A_CORE => Ok(given),
        given => Err(Failure::usage(format!(
            "--threads {given}: with {cores} cores here give at most {}, or leave it out: then the cores \
             are shared among the ranks",
            cores * THREADS_A_CORE
        ))),
    }
}

/// The plan with what the command line says instead, for so many ranks as there are processes.
pub(super) fn plan_of(args: &RunArgs, process: Option<(u32, u32, u32)>) -> Result<Plan, Failure> {
    let between = match args.transport {
        TransportKind::Nccl => Some("--transport nccl is between GPUs"),
        TransportKind::Ipc => Some("--transport ipc is between ranks that share a GPU"),
        TransportKind::Auto | TransportKind::Mpi | TransportKind::Local => None,
    };
    if let Some(between) = between.filter(|_| args.device != DeviceKind::Cuda) {
        return Err(Failure::usage(format!("{between}: add --device cuda")));
    }
    let mut plan = crate::commands::read_plan(&args.plan)?;
    plan.steps = args.steps.unwrap_or(plan.steps);
    plan.seed = args.seed.unwrap_or(plan.seed);
    plan.training.skip_nonfinite = args.skip_nonfinite.or(plan.training.skip_nonfinite);
    if let (Some((_, 1, _)), Some(given)) = (process, launched_by_mpi().filter(|given| *given > 1))
        && plan.communication.choose.is_none()
        // The last survivor of an elastic job is alone for another reason.
        && args.session.is_none()
    {
        return Err(other_mpi(given));
    }
    if let Some((_, ranks, _)) = process.filter(|(_, ranks, _)| *ranks != plan.ranks()) {
        let message = crate::commands::check::wrong_ranks(&plan, ranks, "mpirun");
        return Err(Failure::new(Code::Hardware, message));
    }
    if args.crews > 1 && plan.communication.choose.is_none() {
        return Err(Failure::usage(
            "--crews share trials, and this plan makes none: runner plan --choose ..",
        ));
    }
    Ok(plan)
}

/// Processes that find themselves alone, though a launcher started several: it is another MPI's. All say the
/// same; one is heard.
fn other_mpi(given: u32) -> Failure {
    if launched_rank().is_some_and(|rank| rank > 0) {
        return Failure::silent(Code::Hardware);
    }
    Failure::new(
        Code::Hardware,
        format!(
            "the launcher started {given} processes, and each is alone in MPI: this runner is built with \
             another MPI than the launcher's; start it by the mpirun of its own, or build it with this one"
        ),
    )
}
