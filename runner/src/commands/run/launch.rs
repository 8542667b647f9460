//! Starting ranks.

use super::{Run, failure};
use crate::args::RunArgs;
use crate::execute::{Outcome, RunError};
use crate::failure::{Code, Failure};
use crate::transport::local::local;

/// All ranks as threads of this process.
pub(super) fn threads(run: &Run) -> Result<(), Failure> {
    let transports = local(run.plan.ranks(), run.handles());
    let results: Vec<Result<Outcome, RunError>> = std::thread::scope(|scope| {
        let start = |transport| {
            std::thread::Builder::new()
                .name("rank".into())
                .spawn_scoped(scope, move || run.rank(transport, |_, _| {}))
        };
        let threads: Vec<_> = transports.into_iter().map(start).collect();
        threads.into_iter().filter_map(|t| t.ok()?.join().ok()).collect()
    });
    if results.len() < run.plan.ranks() as usize {
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
        Some(Ok(outcome)) => run.finish(&outcome),
        _ => Err(Failure::new(Code::Failed, "the plan has no ranks")),
    }
}

/// This process as one rank.
///
/// MPI starts first: what a rank finds wrong with plan, data or machine is then known to all, one
/// of them says it, and all end with the same code. None waits for a rank that will not come.
#[cfg(feature = "mpi")]
pub(super) fn processes(args: &RunArgs) -> Result<(), Failure> {
    use crate::transport::Transport;
    use crate::transport::mpi::{MpiTransport, Settings};
    use pipewright_core::plan::Plan;
    let mpi = |e| Failure::new(Code::Failed, format!("MPI: {e}"));
    // Sums of encoded gradients go on in a thread of their own, for which MPI must be asked. What is
    // wrong with the plan is said below.
    let encodes = |plan: Plan| plan.communication.encodes();
    let threads = crate::commands::read_plan(&args.plan).is_ok_and(encodes);
    let settings = Settings { threads, ..Settings::new(0) };
    let transport = MpiTransport::start(settings).map_err(mpi)?;
    let (rank, ranks) = (transport.rank(), transport.ranks());
    let prepared = Run::prepare(args, Some((rank, ranks)));
    let (mut transport, run) = together(transport, prepared)?;
    transport.reserve(run.handles());
    let mut ended = Ok(());
    let _ = run.rank(transport, |result, transport| {
        ended = match result {
            Ok(outcome) if rank == 0 => run.finish(outcome),
            Ok(outcome) if outcome.interrupted => Err(Failure::silent(Code::Interrupted)),
            Ok(_) => Ok(()),
            Err(error) if rank > 0 && super::known_to_all(error) => {
                Err(Failure::silent(failure(rank, error).code))
            }
            Err(error) => Err(failure(rank, error)),
        };
        if let Err(failure) = &mut ended {
            say(failure);
        }
        if result.as_ref().err().is_none_or(super::known_to_all) {
            // An error of the connection itself changes nothing any more.
            let _ = transport.barrier();
        }
    });
    ended
}

/// Goes on when all ranks can. Else the lowest rank that cannot says why, all end MPI in order and
/// fail with the same code.
#[cfg(feature = "mpi")]
pub(in crate::commands) fn together<P>(
    mut transport: crate::transport::mpi::MpiTransport,
    prepared: Result<P, Failure>,
) -> Result<(crate::transport::mpi::MpiTransport, P), Failure> {
    use crate::transport::{ReduceOp, Transport};
    let mpi = |e| Failure::new(Code::Failed, format!("MPI: {e}"));
    let (rank, ranks) = (transport.rank(), transport.ranks());
    // The lowest rank with an error, and its code.
    let mut first = [prepared.as_ref().map_or(f64::from(rank), |_| f64::from(ranks))];
    transport.all_reduce(&mut first, ReduceOp::Min).map_err(mpi)?;
    let speaks = first[0] == f64::from(rank);
    let mut code = [prepared.as_ref().map_or_else(|f| f64::from(f.code as u8), |_| 0.0)];
    if !speaks {
        code[0] = 0.0;
    }
    transport.all_reduce(&mut code, ReduceOp::Max).map_err(mpi)?;
    let failure = match prepared {
        Ok(prepared) if code[0] == 0.0 => return Ok((transport, prepared)),
        Err(mut failure) if speaks => {
            say(&mut failure);
            failure
        }
        Ok(_) | Err(_) => Failure::silent(Code::from_number(code[0] as u8)),
    };
    transport.barrier().map_err(mpi)?;
    transport.finish().map_err(mpi)?;
    Err(failure)
}

/// Prints a failure now, and no second time. Under mpirun a rank that ends with an error has all
/// others killed, so what is to be said is said before any rank may end.
#[cfg(feature = "mpi")]
fn say(failure: &mut Failure) {
    if !failure.message.is_empty() {
        eprintln!("error: {}", std::mem::take(&mut failure.message));
    }
}

/// This build has no MPI.
#[cfg(not(feature = "mpi"))]
pub(super) fn processes(_: &RunArgs) -> Result<(), Failure> {
    Err(Failure::new(
        Code::Hardware,
        "this runner was built without MPI; build it with the feature `mpi`, \
         or run all ranks in one process: runner plan.json",
    ))
}
