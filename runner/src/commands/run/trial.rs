//! Short runs that are measured and leave nothing: no metrics, weights or records.

use super::{Run, launch};
use crate::args::RunArgs;
use crate::failure::Failure;
use crate::report::Outcome;
use crate::train::StopFlag;
use pipewright_core::plan::Plan;

/// Trains by `plan` with ranks that are threads of this process.
///
/// # Errors
/// Whatever keeps the plan from running; the next trial may be made nevertheless.
pub(in crate::commands) fn with_threads(
    args: &RunArgs,
    plan: &Plan,
    stop: &StopFlag,
) -> Result<Outcome, Failure> {
    launch::outcome(&Run::of(args, plan.clone(), None, None, stop.clone())?)
}

#[cfg(feature = "mpi")]
pub(in crate::commands) use processes::{agreed, with_processes};

#[cfg(feature = "mpi")]
mod processes {
    use super::super::launch::say;
    use super::super::{Run, failure, known_to_all};
    use crate::args::RunArgs;
    use crate::failure::{Code, Failure};
    use crate::report::Outcome;
    use crate::train::StopFlag;
    use crate::transport::mpi::MpiTransport;
    use crate::transport::{ReduceOp, Transport, TransportError};
    use pipewright_core::plan::Plan;

    /// Trains by `plan` with this process as a rank; all ranks call it. With the transport, unless the
    /// ranks cannot go on together: then this says why.
    pub(in crate::commands) fn with_processes(
        mut transport: MpiTransport,
        args: &RunArgs,
        plan: &Plan,
        stop: &StopFlag,
    ) -> (Result<Outcome, Failure>, Option<MpiTransport>) {
        let (rank, ranks) = (transport.rank(), transport.ranks());
        let prepared = Run::of(args, plan.clone(), Some((rank, ranks, 0)), None, stop.clone());
        let run = match agreed(&mut transport, prepared) {
            Ok(Ok(run)) => run,
            Ok(Err(failure)) => return (Err(failure), Some(transport)),
            Err(e) => return (Err(Failure::new(Code::Failed, format!("MPI: {e}"))), None),
        };
        transport.reserve(run.handles());
        let (result, transport) = run.rank(transport, |result, _| match result {
            Err(error) if !known_to_all(error) => {
                // Nothing is said any more after the end of MPI.
                say(&failure(rank, error).message);
                false
            }
            _ => true,
        });
        (result.map_err(|error| failure(rank, &error)), transport)
    }

    /// What is prepared, where all ranks are. Else the failure of the lowest rank that has one, in its own
    /// words on rank 0 and silent on the others. Collective.
    pub(in crate::commands) fn agreed<P>(
        transport: &mut MpiTransport,
        prepared: Result<P, Failure>,
    ) -> Result<Result<P, Failure>, TransportError> {
        let (rank, ranks) = (transport.rank(), transport.ranks());
        let mut first = [prepared.as_ref().map_or(f64::from(rank), |_| f64::from(ranks))];
        transport.all_reduce(&mut first, ReduceOp::Min)?;
        let first = first[0] as u32;
        if first == ranks {
            return Ok(prepared);
        }
        let mine = prepared.err().filter(|_| rank == first);
        let mut code = [mine.as_ref().map_or(0.0, |failure| f64::from(failure.code as u8))];
        transport.all_reduce(&mut code, ReduceOp::Max)?;
        let code = Code::from_number(code[0] as u8);
        let words = mine.map_or_else(String::new, |failure| failure.message);
        let all = transport.gather(words.as_bytes())?;
        let words = all.and_then(|mut all| String::from_utf8(all.swap_remove(first as usize)).ok());
        Ok(Err(Failure::new(code, words.unwrap_or_default())))
    }
}
