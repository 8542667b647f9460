//! Ranks on GPUs that talk to each other.

use super::super::gpu::{Opened, open};
use super::Run;
use crate::args::TransportKind;
use crate::device::cuda::nccl::{Api, Cuda, GivenUp, Limits, Member, Routes, Wires, connect, may};
use crate::device::cuda::peers::{Handle, SharedDevice, meet, page_bytes};
use crate::device::cuda::{Gpu, Marks, SharedStreams};
use crate::device::{DevicePtr, Fabric};
use crate::execute::{Rank, RunError};
use crate::report::Progress;
use crate::transport::{Transport, TransportError};
use cudarc::driver::CudaStream;
use pipewright_core::graph::Graph;
use pipewright_core::plan::{Plan, Program};
use std::cell::Cell;
use std::sync::Arc;
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
    let Opened { engine, gpu, stream, shared, arena, marks } = opened;
    let ends = Ends { gpu, stream, shared, arena, marks };
    let fabric = match fabric(run, &mut transport, ends) {
        Ok((fabric, name)) => {
            if let Some(name) = name {
                progress.talks(&name);
                run.output.talks(name);
            }
            fabric
        }
        Err(error) => return Err((error, transport)),
    };
    let mut rank = Rank::on(Box::new(engine), parts, &run.data, transport, run.threads);
    if let Some(fabric) = fabric {
        rank.talk_by(fabric);
    }
    Ok(rank)
}

/// What a way between GPUs takes of a rank's.
struct Ends {
    gpu: Gpu,
    stream: Arc<CudaStream>,
    shared: SharedStreams,
    arena: DevicePtr,
    marks: Marks,
}

/// How the GPUs of all ranks talk to each other, with a text of it; nothing for one rank alone. All ranks
/// call it, and get the same.
///
/// # Errors
/// When ranks cannot agree, or a way is asked for that cannot be used.
#[allow(clippy::type_complexity, reason = "a way and its name")]
fn fabric<T: Transport>(
    run: &Run,
    transport: &mut T,
    ends: Ends,
) -> Result<(Option<Box<dyn Fabric>>, Option<String>), RunError> {
    if transport.ranks() == 1 {
        return Ok((None, None));
    }
    let found = match run.transport {
        TransportKind::Mpi | TransportKind::Local => Err("as asked for".into()),
        way => match (routes(run, transport, &ends.gpu)?, way) {
            (Err(why), _) => Err(why),
            (Ok(between), TransportKind::Ipc) => by_shared_memory(run, transport, ends, between)?,
            (Ok(between), _) => by_nccl(run, transport, ends, between)?,
        },
    };
    let why = match (found, run.transport) {
        (Ok(fabric), _) => {
            let name = fabric.name().to_string();
            return Ok((Some(fabric), Some(name)));
        }
        (Err(why), TransportKind::Nccl) => return Err(RunError::NoFabric { asked: "nccl", why }),
        (Err(why), TransportKind::Ipc) => return Err(RunError::NoFabric { asked: "ipc", why }),
        (Err(why), _) => why,
    };
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

/// A way, or why there is none.
type FabricOrWhy = Result<Box<dyn Fabric>, String>;

fn disagrees(source: TransportError) -> RunError {
    RunError::Agreement { step: 0, source }
}

/// What ranks send and sum, and what this one has: the same answer on all, if messages overtake each other.
fn routes<T: Transport>(
    run: &Run,
    transport: &mut T,
    gpu: &Gpu,
) -> Result<Result<(Routes, Member), String>, RunError> {
    let (rank, hosts) = (transport.rank(), transport.hosts().map_err(disagrees)?);
    let routes = match Routes::new(&run.plan, &run.prediction, &run.evaluation, &hosts) {
        Ok(routes) => routes,
        Err(disorder) => return Ok(Err(disorder.to_string())),
    };
    // What the driver does not say is unlike everything else.
    let (uuid, pci) = gpu.identity().unwrap_or(([0; 16], format!("rank {rank}")));
    let version = Api::of_system().map_or(0, |api| api.version);
    Ok(Ok((routes, Member { host: hosts[rank as usize], pci, uuid, version })))
}

/// By NCCL.
fn by_nccl<T: Transport>(
    run: &Run,
    transport: &mut T,
    ends: Ends,
    (routes, member): (Routes, Member),
) -> Result<FabricOrWhy, RunError> {
    let refusal = may(transport, &member).map_err(disagrees)?;
    let api = Api::of_system();
    let api = match (refusal, api) {
        (None, Some(api)) => api,
        (Some(refusal), _) => return Ok(Err(refusal.to_string())),
        (None, None) => unreachable!("who has no NCCL refuses"),
    };
    let wires = Cuda::new(api, ends.stream, (ends.arena, ends.marks));
    connected(run, transport, wires, &routes)
}

/// By the memory of the GPU that all ranks share.
fn by_shared_memory<T: Transport>(
    run: &Run,
    transport: &mut T,
    ends: Ends,
    (routes, member): (Routes, Member),
) -> Result<FabricOrWhy, RunError> {
    let (rank, mut shared, lines) = (transport.rank(), ends.shared, routes.lines.len());
    let handle = |at: DevicePtr| match run.are_processes {
        true => shared.handle(at),
        false => Ok(Handle { address: at.0, ..Handle::default() }),
    };
    let page = shared.page(page_bytes(lines));
    let own = page.and_then(|page| Ok([handle(ends.arena)?, handle(page)?]));
    let own = own.map_err(|e| warn!("rank {rank} cannot share its memory: {}", e.why)).ok();
    let open = |handle: &Handle| {
        let opened = shared.open(handle);
        opened.map_err(|e| warn!("rank {rank} cannot open another's memory: {}", e.why)).ok()
    };
    match meet(transport, &member, own, open).map_err(disagrees)? {
        Ok(reach) => {
            let wires = SharedDevice::new(shared, rank, reach, lines);
            connected(run, transport, wires, &routes)
        }
        Err(apart) => Ok(Err(apart.to_string())),
    }
}

/// Connects all lines.
fn connected<T: Transport, W: Wires + 'static>(
    run: &Run,
    transport: &mut T,
    wires: W,
    routes: &Routes,
) -> Result<FabricOrWhy, RunError> {
    let how = (run.given_up(transport.rank()), Limits::default());
    match connect(wires, transport, routes, how).map_err(disagrees)? {
        Ok(fabric) => Ok(Ok(Box::new(fabric))),
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
