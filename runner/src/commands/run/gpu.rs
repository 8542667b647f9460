//! Ranks on GPUs that talk to each other.

use super::super::gpu::{Opened, open};
use super::Run;
use crate::args::TransportKind;
use crate::device::Fabric;
use crate::device::cuda::nccl::{Api, Cuda, GivenUp, Limits, Member, Routes, connect, may};
use crate::execute::{Rank, RunError};
use crate::report::Progress;
use crate::transport::{Transport, TransportError};
use pipewright_core::graph::Graph;
use pipewright_core::plan::{Plan, Program};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// A rank on its GPU, which talks to those of the others where it can.
///
/// # Errors
/// When the GPU has not so much memory, the driver refuses, or NCCL does though it is asked for.
pub(super) fn rank<'a, T: Transport>(
    run: &'a Run,
    parts: (&'a Plan, &'a Graph, &'a Program),
    mut transport: T,
    progress: &Progress,
) -> Result<Rank<'a, T>, (RunError, T)> {
    let opened = match open(&run.gpus, transport.rank(), run.are_processes, parts.2, run.cuda) {
        Ok(opened) => opened,
        Err(source) => {
            return Err((RunError::Device { step: 0, instruction: 0, source }, transport));
        }
    };
    let fabric = match fabric(run, &mut transport, &opened) {
        Ok((fabric, name)) => {
            if let Some(name) = name {
                progress.talks(&name);
                run.output.talks(name);
            }
            fabric
        }
        Err(error) => return Err((error, transport)),
    };
    let engine = Box::new(opened.engine);
    let mut rank = Rank::on(engine, parts, &run.data, transport, run.threads);
    if let Some(fabric) = fabric {
        rank.talk_by(fabric);
    }
    Ok(rank)
}

/// How the GPUs of all ranks talk to each other, with a text of it; nothing for one rank alone. All ranks
/// call it, and get the same.
///
/// # Errors
/// When ranks cannot agree, or NCCL is asked for and cannot be used.
#[allow(clippy::type_complexity, reason = "a way and its name")]
fn fabric<T: Transport>(
    run: &Run,
    transport: &mut T,
    opened: &Opened,
) -> Result<(Option<Box<dyn Fabric>>, Option<String>), RunError> {
    if transport.ranks() == 1 {
        return Ok((None, None));
    }
    let why = match run.transport {
        TransportKind::Mpi | TransportKind::Local => "as asked for".into(),
        TransportKind::Auto | TransportKind::Nccl => match by_nccl(run, transport, opened)? {
            Ok(fabric) => {
                let name = fabric.name().to_string();
                return Ok((Some(fabric), Some(name)));
            }
            Err(why) => why,
        },
    };
    if run.transport == TransportKind::Nccl {
        return Err(RunError::NoNccl(why));
    }
    let hosts_sum = match sums_in_hosts(&run.plan) {
        true => "; hosts themselves add up what they encode",
        false => "",
    };
    Ok((None, Some(format!("{}, staged: {why}{hosts_sum}", transport.name()))))
}

/// Whether ranks of a host sum before they encode.
fn sums_in_hosts(plan: &Plan) -> bool {
    plan.communication.hierarchical && plan.communication.encodes()
}

/// By NCCL, or why not.
#[allow(clippy::type_complexity, reason = "a way or a text")]
fn by_nccl<T: Transport>(
    run: &Run,
    transport: &mut T,
    opened: &Opened,
) -> Result<Result<Box<dyn Fabric>, String>, RunError> {
    let at = |source| RunError::Agreement { step: 0, source };
    let (rank, hosts) = (transport.rank(), transport.hosts().map_err(at)?);
    let routes = match Routes::new(&run.plan, &run.prediction, &run.evaluation, &hosts) {
        Ok(routes) => routes,
        Err(disorder) => return Ok(Err(disorder.to_string())),
    };
    let host = hosts[rank as usize];
    let api = Api::of_system();
    // What the driver does not say is unlike everything else.
    let (uuid, pci) = opened.gpu.identity().unwrap_or(([0; 16], format!("rank {rank}")));
    let version = api.map_or(0, |api| api.version);
    let refusal = may(transport, &Member { host, pci, uuid, version }).map_err(at)?;
    let api = match (refusal, api) {
        (None, Some(api)) => api,
        (Some(refusal), _) => return Ok(Err(refusal.to_string())),
        (None, None) => unreachable!("who has no NCCL refuses"),
    };
    let wires = Cuda::new(api, opened.stream.clone(), (opened.arena, opened.marks.clone()));
    let how = (run.given_up(rank), Limits::default());
    match connect(wires, transport, &routes, how).map_err(at)? {
        Ok(nccl) => Ok(Ok(Box::new(nccl))),
        Err((refusal, mine)) => {
            if let Some(error) = mine {
                warn!("{error}");
            }
            Ok(Err(refusal.to_string()))
        }
    }
}

/// Tells the ranks of this process when one of them panics: they may wait for its device.
pub(super) struct Panics<'a> {
    pub run: &'a Run,
    pub rank: u32,
}

impl Drop for Panics<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The first is told.
            let _ = self.run.failed.set((self.rank, "it panicked".into()));
        }
    }
}

impl Run {
    /// Whether the run of a rank was given up: by another rank of this process, or by the supervisor.
    fn given_up(&self, rank: u32) -> GivenUp {
        const EVERY: Duration = Duration::from_millis(100);
        let (failed, fence) = (self.failed.clone(), self.session.as_ref().map(|s| s.fence.clone()));
        let asked = Cell::new(Instant::now());
        Box::new(move || {
            if let Some((rank, why)) = failed.get() {
                return Some(TransportError::Aborted { rank: *rank, why: why.clone() });
            }
            // The supervisor's word is in a file.
            let fence = fence.as_ref().filter(|_| asked.get().elapsed() >= EVERY)?;
            asked.set(Instant::now());
            let why = fence.check().err()?.to_string();
            Some(TransportError::Aborted { rank, why })
        })
    }
}
