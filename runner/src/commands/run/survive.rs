//! A rank's process through the generations of an elastic job: it ends with the first one, unless it
//! survives the loss of others.

use super::launch::{all_can, say};
use super::{Run, failure, known_to_all};
use crate::args::RunArgs;
use crate::elastic::RankSession;
use crate::failure::{Code, Failure};
use crate::report::Outcome;
use crate::train::TrainError;
use crate::transport::mpi::MpiTransport;
use crate::transport::{Transport, TransportError};

/// How a generation went for this process.
#[allow(clippy::large_enum_variant, reason = "there is one of them in a process")]
pub(super) enum Generation {
    /// It is over.
    Over(Result<(), Failure>),
    /// Others were lost, and this process lives.
    Lost(MpiTransport, RankSession),
}

fn mpi(error: TransportError) -> Failure {
    Failure::new(Code::Failed, format!("MPI: {error}"))
}

/// Whether a call failed because a rank was lost.
fn is_loss<T>(result: &Result<T, TransportError>) -> bool {
    matches!(result, Err(TransportError::Lost { .. }))
}

/// One generation.
pub(super) fn generation(
    mut transport: MpiTransport,
    args: &RunArgs,
    session: Result<Option<RankSession>, Failure>,
) -> Generation {
    let (rank, ranks, (crew, _)) = (transport.rank(), transport.ranks(), transport.crew());
    let prepared =
        session.and_then(|session| Run::prepare(args, Some((rank, ranks, crew)), session));
    let all = all_can(&mut transport, &prepared);
    let run = match (all, prepared) {
        (Ok(None), Ok(run)) => run,
        (Ok(failure), _) => {
            let failure = failure.unwrap_or_else(|| Failure::silent(Code::Failed));
            return Generation::Over(transport.finish().map_err(mpi).and(Err(failure)));
        }
        (lost, Ok(Run { session: Some(session), survives: true, .. })) if is_loss(&lost) => {
            return match transport.withdraw() {
                Ok(()) => {
                    session.survived();
                    Generation::Lost(transport, session)
                }
                Err(e) => Generation::Over(Err(mpi(e))),
            };
        }
        (Err(e), _) => return Generation::Over(Err(mpi(e))),
    };
    transport.reserve(run.handles());
    let mut ended = Ok(());
    let (_, transport) = run.rank(transport, |result, transport| {
        let (how, survives) = end(&run, result, transport);
        ended = how;
        survives
    });
    match transport.zip(run.session) {
        Some((transport, session)) => {
            session.survived();
            Generation::Lost(transport, session)
        }
        None => Generation::Over(ended),
    }
}

/// What a rank does at its end, while it is connected: how it ended, or that it goes on in another
/// generation.
fn end(
    run: &Run,
    result: &Result<Outcome, TrainError>,
    transport: &mut MpiTransport,
) -> (Result<(), Failure>, bool) {
    let (rank, (crew, _)) = (transport.rank(), transport.crew());
    let mut lost = match result {
        Ok(outcome) => run.survives && !outcome.interrupted && run.is_given_up(),
        Err(error) => run.goes_on_after(error),
    };
    let mut ended = Ok(());
    if !lost {
        ended = match result {
            Ok(outcome) if rank == 0 && crew == 0 => run.finish(outcome),
            Ok(outcome) if outcome.interrupted && run.session.is_none() => {
                Err(Failure::silent(Code::Interrupted))
            }
            Ok(_) => Ok(()),
            Err(error) if rank > 0 && known_to_all(error) => {
                Err(Failure::silent(failure(rank, error).code))
            }
            Err(error) => Err(failure(rank, error)),
        };
        // Given up between the question and the record.
        lost = ended.is_err() && result.is_ok() && run.survives && run.is_given_up();
    }
    if !lost {
        if let Err(failure) = &mut ended {
            say(&std::mem::take(&mut failure.message));
        }
        if result.as_ref().err().is_none_or(known_to_all) {
            // Errors of the connection itself change nothing any more, unless others have not come here.
            lost = run.survives && is_loss(&transport.barrier());
            if rank == 0 && !lost {
                transport.dismiss();
            }
        }
    }
    if lost && let Err(e) = transport.withdraw() {
        return (Err(mpi(e)), false);
    }
    (ended, lost)
}

/// The next generation of those who live, or the end for who is not needed any more.
pub(super) fn next(
    mut transport: MpiTransport,
    args: &mut RunArgs,
    mut session: RankSession,
) -> Generation {
    match find_together(&mut transport, args, &mut session) {
        Ok(true) => generation(transport, args, Ok(Some(session))),
        Ok(false) => {
            drop(session);
            Generation::Over(transport.finish().map_err(mpi))
        }
        Err(failure) => Generation::Over(Err(failure)),
    }
}

/// Finds those who live, and what the supervisor wants of them; whether this process is a rank. Where it
/// is not, returns when the ranks have ended.
fn find_together(
    transport: &mut MpiTransport,
    args: &mut RunArgs,
    session: &mut RankSession,
) -> Result<bool, Failure> {
    loop {
        let (place, survivors) = transport.shrink().map_err(mpi)?;
        let order = session.order(survivors)?;
        if order.survivors < survivors {
            transport.withdraw().map_err(mpi)?;
            continue;
        }
        args.generation = Some(order.generation);
        // First of all: from here on the loss of another may leave this one in a call that does not
        // return, which the supervisor is to know.
        session.sit(order.generation, (place < order.ranks).then_some(place))?;
        let done = match transport.divide(order.ranks) {
            Ok(true) => return Ok(true),
            Ok(false) => transport.wait_aside(),
            Err(e) => Err(e),
        };
        match done {
            Ok(()) => return Ok(false),
            lost if is_loss(&lost) => {
                transport.withdraw().map_err(mpi)?;
                session.survived();
            }
            Err(e) => return Err(mpi(e)),
        }
    }
}
