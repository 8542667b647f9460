//! Starting ranks.

use super::{Run, failure};
use crate::args::RunArgs;
#[cfg(feature = "mpi")]
use crate::elastic::{RankSession, RankSessionSettings, end_with_parent};
use crate::failure::{Code, Failure};
use crate::report::Outcome;
use crate::train::TrainError;
use crate::transport::local::local_crews;
#[cfg(feature = "mpi")]
use crate::transport::{ReduceOp, Transport, TransportError, mpi::MpiTransport};

/// All ranks as threads of this process, and what becomes of the outcome.
pub(super) fn threads(run: &Run) -> Result<(), Failure> {
    run.finish(&outcome(run)?)
}

/// What rank 0 of ranks that are threads of this process comes to.
pub(super) fn outcome(run: &Run) -> Result<Outcome, Failure> {
    let transports = local_crews(run.plan.ranks(), run.crews, run.handles());
    let count = transports.len();
    let results: Vec<Result<Outcome, TrainError>> = std::thread::scope(|scope| {
        let start = |transport| {
            std::thread::Builder::new()
                .name("rank".into())
                .spawn_scoped(scope, move || run.rank(transport, |_, _| false).0)
        };
        let threads: Vec<_> = transports.into_iter().map(start).collect();
        threads.into_iter().filter_map(|t| t.ok()?.join().ok()).collect()
    });
    if results.len() < count {
        // The panic has been printed by the thread that had it.
        return Err(Failure::new(Code::Failed, "a rank could not run to its end"));
    }
    let errors = (0..).zip(&results).filter_map(|(rank, r)| Some((rank, r.as_ref().err()?)));
    // The rank that failed first says why; the others only say that they were stopped.
    let first = errors.min_by_key(|(_, error)| super::caused_by_peer(error));
    if let Some((rank, error)) = first {
        return Err(failure(rank, error));
    }
    match results.into_iter().next() {
        Some(Ok(outcome)) => Ok(outcome),
        _ => Err(Failure::new(Code::Failed, "the plan has no ranks")),
    }
}

/// This process as one rank.
///
/// MPI starts first: what a rank finds wrong with plan, data or machine is then known to all, one
/// of them says it, and all end with the same code. None waits for a rank that will not come.
#[cfg(feature = "mpi")]
pub(super) fn processes(mut args: RunArgs) -> Result<(), Failure> {
    use super::survive::{Generation, generation, next};
    use crate::transport::mpi::Settings;
    let mpi = |e| Failure::new(Code::Failed, format!("MPI: {e}"));
    if args.session.is_some() {
        end_with_parent();
    }
    // Sums of encoded gradients go on in a thread of their own, for which MPI must be asked. What is
    // wrong with the plan is said below.
    let plan = crate::commands::read_plan(&args.plan).ok();
    let threads = plan.as_ref().is_some_and(|plan| plan.communication.encodes());
    let chooses = plan.filter(|plan| plan.communication.choose.is_some());
    let crew = chooses.map(|plan| plan.ranks());
    let settings = Settings { threads, crew, survives: args.survives, ..Settings::new(0) };
    let transport = MpiTransport::start(settings).map_err(mpi)?;
    let session = session(&args, transport.rank());
    let mut now = generation(transport, &args, session);
    loop {
        now = match now {
            Generation::Over(ended) => return ended,
            Generation::Lost(transport, session) => next(transport, &mut args, session),
        };
    }
}

/// The session of rank `rank` in an elastic job; none in others.
#[cfg(feature = "mpi")]
fn session(args: &RunArgs, rank: u32) -> Result<Option<RankSession>, Failure> {
    let Some((session, generation)) = args.session.clone().zip(args.generation) else {
        return Ok(None);
    };
    let Some(out) = args.out.clone() else {
        return Err(Failure::usage("--session goes with --out"));
    };
    let settings = RankSessionSettings { session, generation, out, beats: args.beats.clone() };
    RankSession::take(settings, rank).map(Some)
}

/// Goes on when all ranks can. Else the lowest rank that cannot says why, all end MPI in order and
/// fail with the same code.
#[cfg(feature = "mpi")]
pub(in crate::commands) fn together<P>(
    mut transport: MpiTransport,
    prepared: Result<P, Failure>,
) -> Result<(MpiTransport, P), Failure> {
    let mpi = |e| Failure::new(Code::Failed, format!("MPI: {e}"));
    match all_can(&mut transport, &prepared).map_err(mpi)? {
        None => prepared.map(|prepared| (transport, prepared)),
        Some(failure) => {
            transport.finish().map_err(mpi)?;
            Err(failure)
        }
    }
}

/// Nothing when all ranks can go on. Else the failure with which all end, said by the lowest rank that
/// has one.
#[cfg(feature = "mpi")]
pub(super) fn all_can<P>(
    transport: &mut MpiTransport,
    prepared: &Result<P, Failure>,
) -> Result<Option<Failure>, TransportError> {
    let (rank, ranks) = (transport.rank(), transport.ranks());
    // The lowest rank with an error, and its code.
    let mut first = [prepared.as_ref().map_or(f64::from(rank), |_| f64::from(ranks))];
    transport.all_reduce(&mut first, ReduceOp::Min)?;
    let mine = prepared.as_ref().err().filter(|_| first[0] == f64::from(rank));
    let mut code = [mine.map_or(0.0, |failure| f64::from(failure.code as u8))];
    transport.all_reduce(&mut code, ReduceOp::Max)?;
    if code[0] == 0.0 {
        return Ok(None);
    }
    if let Some(failure) = mine {
        say(&failure.message);
    }
    transport.barrier()?;
    Ok(Some(Failure::silent(Code::from_number(code[0] as u8))))
}

/// Prints a failure before any rank may end: under mpirun a rank that ends with an error has all
/// others killed.
#[cfg(feature = "mpi")]
pub(super) fn say(message: &str) {
    if !message.is_empty() {
        error!("{message}");
    }
}

/// This build has no MPI.
#[cfg(not(feature = "mpi"))]
pub(super) fn processes(_: RunArgs) -> Result<(), Failure> {
    Err(Failure::new(
        Code::Hardware,
        "this runner was built without MPI; build it with the feature `mpi`, \
         or run all ranks in one process: runner plan.json",
    ))
}
