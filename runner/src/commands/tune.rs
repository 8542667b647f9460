//! `runner tune`: measures plans, calibrates by what it measured, plans again, until nothing promises more
//! and what is divided otherwise than all that was measured has been tried.
//!
//! ```text
//!  plan --> profile --> run --> calibrate --> search --> run the most promising --+--> best, measured
//!                                  ^                                             |
//!                                  +---------------------------------------------+
//! ```
//!
//! A plan promises what it is predicted to take, times what steps of plans like it were measured over
//! predicted: see `beliefs`.

mod beliefs;
mod candidates;
mod history;
mod ranks;
mod summary;
#[cfg(test)]
mod tests;
mod tuner;

use super::figures;
use super::run::stop_flag;
use crate::args::{DeviceKind, TuneArgs};
use crate::failure::{Code, Failure};
use crate::files::Beside;
use crate::transport::launched_by_mpi;
use pipewright_core::plan::Plan;
use ranks::Threads;
use std::path::Path;
use tuner::{End, Tuner};

/// Runs the command.
pub fn tune(args: &TuneArgs) -> Result<(), Failure> {
    match launched_by_mpi() {
        Some(_) => processes(args),
        None => {
            let plan = prepare(args)?;
            let stop = stop_flag()?;
            report(args, Tuner::new(args, plan, Threads { args, stop: stop.clone() }, stop)?)
        }
    }
}

/// This process as one rank: the first one decides, the others follow.
#[cfg(feature = "mpi")]
fn processes(args: &TuneArgs) -> Result<(), Failure> {
    use crate::transport::mpi::{MpiTransport, Settings};
    use crate::transport::{Transport, TransportError};
    let mpi = |e: TransportError| Failure::new(Code::Failed, format!("MPI: {e}"));
    // Profiles measure sums that go on in a thread of their own.
    let settings = Settings { threads: true, ..Settings::new(1) };
    let transport = MpiTransport::start(settings).map_err(mpi)?;
    let (rank, ranks) = (transport.rank(), transport.ranks());
    let prepared = prepare(args).and_then(|plan| {
        if plan.ranks() != ranks {
            let message = super::check::wrong_ranks(&plan, ranks, "mpirun");
            return Err(Failure::new(Code::Hardware, message));
        }
        Ok((plan, stop_flag()?))
    });
    let (transport, (plan, stop)) = super::run::together(transport, prepared)?;
    let together = ranks::Processes::new(args, transport, stop.clone());
    if rank > 0 {
        return together.follow();
    }
    report(args, Tuner::new(args, plan, together, stop)?)
}

/// This build has no MPI.
#[cfg(not(feature = "mpi"))]
fn processes(_: &TuneArgs) -> Result<(), Failure> {
    let why = "this runner was built without MPI; build it with the feature `mpi`, or tune with threads: \
               runner tune plan.json";
    Err(Failure::new(Code::Hardware, why))
}

/// Reads the plan; refuses what cannot be tuned or written before anything is measured.
fn prepare(args: &TuneArgs) -> Result<Plan, Failure> {
    let plan = super::read_plan(&args.plan)?;
    let output = args.output();
    let name = args.plan.display();
    if args.device == DeviceKind::Model {
        let why =
            "--device model spends predicted times: nothing would be measured; use cpu or cuda";
        return Err(Failure::usage(why));
    }
    if plan.communication.choose.is_some() || !plan.communication.buckets.is_empty() {
        return Err(Failure::usage(format!(
            "{name}: how its gradients are encoded depends on its stages, which tuning changes; make the \
             plan with one --codec, or none"
        )));
    }
    super::runnable(&plan.model.graph().map_err(|e| Failure::new(Code::Plan, e.to_string()))?)?;
    for (flag, path) in [("-o", Some(&output)), ("--history", args.history.as_ref())] {
        let Some(path) = path else { continue };
        if path == Path::new("-") {
            return Err(Failure::usage(format!("{flag} -: trials are printed there; name a file")));
        }
        Beside::new(path).map_err(|e| Failure::file(path, &e))?;
    }
    if let Some(history) =
        args.history.as_ref().filter(|path| **path == output || **path == args.plan)
    {
        let history = history.display();
        return Err(Failure::usage(format!(
            "--history {history}: that is a plan's file; name another"
        )));
    }
    Ok(plan)
}

/// Tunes, and says what came of it before any rank may end: under mpirun a rank that ends with an error has
/// all others killed.
fn report<R: ranks::Ranks>(args: &TuneArgs, mut tuner: Tuner<R>) -> Result<(), Failure> {
    let ended = tuner.tune();
    let summary = tuner.summary();
    let failure = match ended {
        Err(failure) => Some(failure),
        Ok(End::Interrupted) => Some(Failure::new(Code::Interrupted, summary.interrupted())),
        Ok(end) if args.json => {
            figures::print(&summary.with(end));
            None
        }
        Ok(end) => {
            say!("{}", summary.sentence(end));
            None
        }
    };
    let Some(failure) = failure else { return tuner.finish(None) };
    if !failure.message.is_empty() {
        error!("{}", failure.message);
    }
    tuner.finish(Some(failure.code))?;
    Err(Failure::silent(failure.code))
}
