//! `runner profile`: measures a plan's operations and the links between ranks on this machine.
//!
//! Under mpirun the processes measure, so that links are those of a run under mpirun; alone, as
//! many threads as the machine has cores and the plan has ranks. Each computes with as many threads as
//! a rank of a run has. All of them measure operations at the same time, because in a run all ranks
//! compute at the same time and share memory bandwidth and caches. Links are measured when nobody
//! computes.
//!
//! On GPUs operations are timed by the device's events. Messages go through the host, so that links
//! are the hosts' with the copies from and to the devices.

mod codecs;
mod collective;
mod cores;
mod device;
mod exposure;
mod link;
mod nodes;

use super::words::counted;
use crate::args::{AlgorithmsArgs, DeviceKind, ProfileArgs};
use crate::execute::available_memory;
use crate::failure::{Code, Failure};
use crate::notes;
use crate::transport::local::local;
use crate::transport::{Transport, TransportError, launched_by_mpi};
use device::Device;
use indicatif::{ProgressBar, ProgressStyle};
use pipewright_core::cost::{Cluster, CodecSpeed, Sample};
use pipewright_core::plan::Plan;
use pipewright_core::units::{Bytes, Nanos};

/// Runs the command.
pub fn profile(args: &ProfileArgs) -> Result<(), Failure> {
    match launched_by_mpi() {
        Some(_) => processes(args),
        None => threads(args),
    }
}

/// Ranks as threads of this process.
fn threads(args: &ProfileArgs) -> Result<(), Failure> {
    let plan = super::read_plan(&args.plan)?;
    let device = Device::new(args.device, args.algorithms, false)?;
    let cluster = measured_by_threads(&plan, &device, Times::of(args, &plan)?)?;
    write(args, &plan, &cluster)
}

/// The cluster that ranks as threads of this process measure, each operation several times with each size.
pub(super) fn with_threads(
    plan: &Plan,
    device: DeviceKind,
    times: Times,
) -> Result<Cluster, Failure> {
    let device = Device::new(device, AlgorithmsArgs::default(), false)?;
    measured_by_threads(plan, &device, times)
}

fn measured_by_threads(plan: &Plan, device: &Device, times: Times) -> Result<Cluster, Failure> {
    let copies = device.count().min(plan.ranks());
    // A link has two ends, also where only one rank computes.
    let transports = local(copies.max(2), 1);
    let parts: Vec<Result<Option<Cluster>, Failure>> = std::thread::scope(|scope| {
        let start = |mut transport| {
            let effort = Effort { copies, times };
            scope.spawn(move || part(&mut transport, (plan, device), effort))
        };
        let threads: Vec<_> = transports.into_iter().map(start).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let mut measured = None;
    for part in parts {
        measured = part?.or(measured);
    }
    measured.ok_or_else(|| Failure::new(Code::Failed, "a rank could not measure to its end"))
}

/// The same, where this process is a rank; on the first one. All ranks call it.
#[cfg(feature = "mpi")]
pub(super) fn with_processes(
    transport: &mut impl Transport,
    plan: &Plan,
    device: DeviceKind,
    times: Times,
) -> Result<Option<Cluster>, Failure> {
    let effort = Effort { copies: transport.ranks(), times };
    let device = Device::new(device, AlgorithmsArgs::default(), true)?;
    part(transport, (plan, &device), effort)
}

/// This process as one rank.
#[cfg(feature = "mpi")]
fn processes(args: &ProfileArgs) -> Result<(), Failure> {
    use crate::transport::mpi::{MpiTransport, Settings};
    let mpi = |e: TransportError| Failure::new(Code::Failed, format!("MPI: {e}"));
    let transport =
        MpiTransport::start(Settings { threads: true, ..Settings::new(1) }).map_err(mpi)?;
    let begun = super::read_plan(&args.plan).and_then(|plan| {
        let times = Times::of(args, &plan)?;
        Ok((plan, Device::new(args.device, args.algorithms, true)?, times))
    });
    let (mut transport, (plan, device, times)) = super::run::together(transport, begun)?;
    let effort = Effort { copies: transport.ranks(), times };
    let measured = part(&mut transport, (&plan, &device), effort);
    let written = measured.and_then(|cluster| match cluster {
        Some(cluster) => write(args, &plan, &cluster),
        None => Ok(()),
    });
    let (transport, ()) = super::run::together(transport, written)?;
    transport.finish().map_err(mpi)
}

/// This build has no MPI.
#[cfg(not(feature = "mpi"))]
fn processes(_: &ProfileArgs) -> Result<(), Failure> {
    let why = "this runner was built without MPI; build it with the feature `mpi`, or profile \
               threads: runner profile plan.json";
    Err(Failure::new(Code::Hardware, why))
}

/// Values of gradients to measure sums with, in bytes: as many as the plan's model has, within these.
const VALUES: [u64; 2] = [1 << 20, 64 << 20];

/// How often operations are measured, and with how many samples.
#[derive(Clone, Copy)]
pub(super) struct Times {
    pub repeats: u32,
    pub sizes: Sizes,
    /// Threads that each rank computes with.
    pub threads: usize,
}

impl Times {
    fn of(args: &ProfileArgs, plan: &Plan) -> Result<Self, Failure> {
        let threads = super::run::threads(args.threads, plan.ranks())?;
        Ok(Self { repeats: args.repeats, sizes: Sizes::Near, threads })
    }
}

/// How much is measured.
#[derive(Clone, Copy)]
struct Effort {
    /// Ranks that compute, the first ones.
    copies: u32,
    times: Times,
}

/// Sizes of micro-batches that operations are measured with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sizes {
    /// The plan's and a quarter of it, so that the constant part of each time shows.
    Near,
    /// Also one sample and, where that is possible, four times the plan's: for plans with other ones.
    Wide,
}

/// What one rank measures; the first returns what all found.
fn part<T: Transport>(
    transport: &mut T,
    (plan, device): (&Plan, &Device),
    effort: Effort,
) -> Result<Option<Cluster>, Failure> {
    let graph = plan.model.graph().map_err(|e| Failure::new(Code::Plan, e.to_string()))?;
    let bytes: u64 =
        graph.params().iter().map(|param| 4 * param.shape.iter().product::<u64>()).sum();
    let bytes = bytes.clamp(VALUES[0], VALUES[1]) as usize;
    let failed = |e: TransportError| Failure::new(Code::Failed, e.to_string());
    let mut cluster = machines(transport, plan, bytes).map_err(failed)?;
    // A device is as many cores as a rank has threads.
    let (threads, cores) = (effort.times.threads as u32, cluster.devices_per_node);
    cluster.device.name = format!("{threads} of {cores} cores");
    cluster.devices_per_node = (cores / threads).max(1);
    cluster.codec_exposure = exposure::measure(transport, &cluster, bytes).map_err(failed)?;
    device.describe(transport.rank(), &mut cluster)?;
    let bar = match transport.rank() {
        0 if !notes::are_unwanted() => ProgressBar::new(0).with_style(bar_style()),
        _ => ProgressBar::hidden(),
    };
    cluster.profile = nodes::measure(transport, (plan, device), effort, &bar)?;
    bar.finish_and_clear();
    Ok((transport.rank() == 0).then_some(cluster))
}

fn bar_style() -> ProgressStyle {
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} passes, {elapsed}");
    style.expect("a template that is tested")
}

/// Everything but operations, and what follows from the rest; on the first rank. A device is a core.
fn machines<T: Transport>(
    transport: &mut T,
    plan: &Plan,
    bytes: usize,
) -> Result<Cluster, TransportError> {
    let neighbours = link::neighbours(transport)?;
    let cores = cores::measure(transport, &neighbours)?.unwrap_or(1);
    let local = link::measure(transport, neighbours.near)?;
    let network = link::measure(transport, neighbours.far)?;
    let mut groups = vec![(neighbours.here.clone(), collective::ALL)];
    groups.extend(neighbours.far.map(|_| ((0..transport.ranks()).collect(), collective::LARGE)));
    let collectives = collective::measure(transport, &groups, bytes)?;
    let here = (neighbours.here.len() as u32).min(transport.ranks()).max(1);
    let crowd = (f64::from(here) / f64::from(cores)).max(1.0);
    let codecs = codecs::measure(transport, crowd, bytes)?;
    let mut cluster = plan.cluster.clone();
    let memory = available_memory().unwrap_or(cluster.device.memory);
    let on_all_hosts = neighbours.far.is_some();
    cluster.name = if on_all_hosts { "these machines".into() } else { "this machine".into() };
    cluster.device.memory =
        Bytes(memory.0 / u64::from(if on_all_hosts { here } else { plan.ranks() }));
    cluster.devices_per_node = cores;
    cluster.nodes = transport.ranks().div_ceil(here);
    cluster.ranks_per_node = if on_all_hosts { here } else { plan.ranks().max(cores) };
    cluster.local = local.unwrap_or(cluster.local);
    cluster.network = network.unwrap_or(cluster.network);
    cluster.device_link = None;
    cluster.collectives = collectives[0];
    cluster.network_collectives = collectives.get(1).copied().flatten();
    cluster.adapters = 1;
    cluster.codecs = codecs;
    cluster.receivers_copy = true;
    cluster.blocking_sends = false;
    Ok(cluster)
}

/// Writes the cluster file and says the most important of it.
fn write(args: &ProfileArgs, plan: &Plan, cluster: &Cluster) -> Result<(), Failure> {
    report(plan, cluster);
    let text = serde_json::to_string_pretty(cluster).expect("plain data") + "\n";
    super::write_text(&args.output, &text)
}

fn report(plan: &Plan, cluster: &Cluster) {
    let Some(profile) = &cluster.profile else { return };
    let sum = |of: fn(&Sample) -> Nanos| -> Nanos {
        profile.nodes.iter().filter_map(|n| n.samples.last()).map(of).sum()
    };
    note!(
        "{} with micro-batches of {}: forward {}, backward {}, update {}",
        profile.model,
        counted(plan.samples(), "sample"),
        sum(|s| s.forward_ns),
        sum(|s| s.input_gradient_ns + s.weight_gradient_ns + s.sum_gradients_ns),
        sum(|s| s.update_ns),
    );
    let far = cluster.nodes > 1;
    for (name, link) in [
        ("link", Some(&cluster.local)),
        ("all-reduce, as over a link", cluster.collectives.as_ref()),
        ("network", Some(&cluster.network).filter(|_| far)),
        (
            "all-reduce between hosts, as over a link",
            cluster.network_collectives.as_ref().filter(|_| far),
        ),
    ] {
        if let Some(link) = link {
            note!("{name}: {} a message, {:.3} GB/s", link.latency_ns, link.bytes_per_sec / 1e9);
        }
    }
    let speed = |codec: &CodecSpeed| {
        let [encode, decode] = [codec.encode_bytes_per_sec, codec.decode_bytes_per_sec];
        format!("{} {:.1} {:.1}", codec.codec, encode / 1e9, decode / 1e9)
    };
    let speeds: Vec<String> = cluster.codecs.iter().map(speed).collect();
    note!("encode and decode, GB/s of single precision a core: {}", speeds.join(", "));
    let exposed = 100.0 * cluster.codec_exposure;
    note!("wire and codecs overlap but for {exposed:.0} % of the shorter one");
}
