//! `runner bench allreduce`: sums over ranks, by all algorithms, in one run. Bandwidths are those of
//! nccl-tests.

use super::gradient::{gradient, relative_error};
use super::{gigabytes, prints_table, write_json};
use crate::args::{AllreduceArgs, ClusterChanges, SumAlgorithm};
use crate::commands::cluster::read_cluster;
use crate::exchange::{BucketSpec, Exchange};
use crate::execute::available_memory;
use crate::failure::{Code, Failure};
use crate::transport::local::local;
use crate::transport::{Collective, REDUCE_MAX, ReduceOp, Transport, TransportError};
use pipewright_core::compress::share::Share;
use pipewright_core::compress::{Algorithm, Reduction};
use pipewright_core::cost::collective::{Group, Price, price};
use pipewright_core::cost::{self, Cluster};
use pipewright_core::ids::LaneId;
use pipewright_core::units::Bytes;
use serde::Serialize;
use std::time::Instant;

/// One line of the table.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Row {
    /// Bytes of values in single precision, a rank.
    bytes: u64,
    ranks: u32,
    hierarchical: bool,
    algorithm: &'static str,
    codec: String,
    /// Median over the times of the slowest rank.
    seconds: f64,
    times: usize,
    /// What the planner expects on the given cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    predicted_seconds: Option<f64>,
    /// Bytes of single precision a second.
    algorithm_bandwidth: f64,
    /// What links carried at least if values travelled in single precision.
    bus_bandwidth: f64,
    /// What they carried: bytes counted.
    wire_bus_bandwidth: Option<f64>,
    /// Bytes of messages that the rank with most of them sent in one sum, as the transport counted
    /// them. Collective calls of MPI do not say theirs.
    wire_bytes: Option<u64>,
    /// Relative L2 error beside the sum in single precision.
    error: f64,
}

/// Runs the command.
pub(super) fn allreduce(args: &AllreduceArgs) -> Result<(), Failure> {
    if sums(args).is_empty() {
        return Err(Failure::usage("none of --codecs can be summed by any of --algorithms"));
    }
    fits(args)?;
    let read = |name: &str| read_cluster(name, &ClusterChanges::default());
    let cluster = args.cluster.as_deref().map(read).transpose()?;
    match crate::transport::launched_by_mpi() {
        Some(_) => processes(args, cluster.as_ref()),
        None => threads(args, cluster.as_ref()),
    }
}

/// Refuses sizes whose values alone this machine has no memory for.
fn fits(args: &AllreduceArgs) -> Result<(), Failure> {
    let ranks = match crate::transport::launched_by_mpi() {
        Some(_) => 1,
        None => u64::from(args.ranks),
    };
    let largest = args.common.sizes().last().copied().unwrap_or_default();
    let takes = largest * ranks;
    match available_memory().filter(|available| takes > *available) {
        None => Ok(()),
        Some(available) => Err(Failure::new(
            Code::Hardware,
            format!(
                "the values of the largest size would take {takes}, and {available} are left; give a smaller --max"
            ),
        )),
    }
}

fn threads(args: &AllreduceArgs, cluster: Option<&Cluster>) -> Result<(), Failure> {
    let rows = std::thread::scope(|scope| {
        let start = |mut transport| scope.spawn(move || ranks(args, cluster, &mut transport));
        let threads: Vec<_> = local(args.ranks, 1).into_iter().map(start).collect();
        let ended: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        ended.into_iter().next().expect("there are ranks")
    });
    let rows = rows.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    write_json(args.common.json.as_deref(), &rows.map_err(lost)?)
}

#[cfg(feature = "mpi")]
fn processes(args: &AllreduceArgs, cluster: Option<&Cluster>) -> Result<(), Failure> {
    use crate::transport::mpi::{MpiTransport, Settings};
    let settings = Settings { threads: !args.one_thread, ..Settings::new(1) };
    let mut transport = MpiTransport::start(settings).map_err(lost)?;
    let rank = transport.rank();
    let rows = ranks(args, cluster, &mut transport).map_err(lost)?;
    transport.finish().map_err(lost)?;
    if rank == 0 { write_json(args.common.json.as_deref(), &rows) } else { Ok(()) }
}

/// This build has no MPI.
#[cfg(not(feature = "mpi"))]
fn processes(_: &AllreduceArgs, _: Option<&Cluster>) -> Result<(), Failure> {
    Err(Failure::new(Code::Hardware, "this runner was built without MPI: run it without mpirun"))
}

fn lost(error: TransportError) -> Failure {
    Failure::new(Code::Failed, error.to_string())
}

/// What is measured for each size.
fn sums(args: &AllreduceArgs) -> Vec<Reduction> {
    let has = |way| args.algorithms.contains(&way);
    let ways = |reduction: Reduction| {
        let two_shot = Reduction { algorithm: Algorithm::TwoShot, ..reduction };
        let operator = Reduction { algorithm: Algorithm::Operator, ..reduction };
        let named = reduction.algorithm == Algorithm::Operator;
        let list = [
            (two_shot, two_shot.is_plain() && has(SumAlgorithm::Plain)),
            (two_shot, !two_shot.is_plain() && has(SumAlgorithm::TwoShot) && !named),
            (operator, !two_shot.is_plain() && has(SumAlgorithm::Operator)),
        ];
        list.into_iter().filter(|(r, wanted)| *wanted && r.fault().is_none()).map(|(r, _)| r)
    };
    args.common.codecs().into_iter().flat_map(ways).collect()
}

/// All sizes, on one rank; rank 0 prints. Every rank has the same rows.
fn ranks<T: Transport>(
    args: &AllreduceArgs,
    cluster: Option<&Cluster>,
    t: &mut T,
) -> Result<Vec<Row>, TransportError> {
    let table = prints_table(args.common.json.as_deref()) && t.rank() == 0;
    if table {
        say!("{} ranks{}", t.ranks(), if args.hierarchical { ", hierarchical" } else { "" });
        say!(
            "{:>10}  {:<9} {:<26} {:>11} {:>11} {:>11} {:>11} {:>12} {:>9}",
            "size",
            "algorithm",
            "codec",
            "time ms",
            "alg GB/s",
            "bus GB/s",
            "wire GB/s",
            "wire bytes",
            "error"
        );
    }
    let group: Vec<u32> = (0..t.ranks()).collect();
    t.connect(std::slice::from_ref(&group), 1)?;
    let mut rows = vec![];
    for size in args.common.sizes() {
        let len = (size.0 / 4) as usize;
        let tensors = std::iter::once(0..len).collect();
        let spec = BucketSpec { group: group.clone(), tensors, len, reductions: sums(args) };
        if let Some(why) = too_large(args, &spec, t)? {
            if table {
                say!("{:>10}  {why}", size.to_string());
            }
            break;
        }
        let mut bench = Bench::new(args, spec, t)?;
        for number in 0..bench.spec.reductions.len() {
            let mut row = bench.row(args, number, t)?;
            row.predicted_seconds = cluster.map(|cluster| {
                let way = bench.spec.reductions[number];
                predicted(args, cluster, &bench.spec, way).seconds
            });
            if table {
                say!("{row}");
            }
            rows.push(row);
        }
    }
    Ok(rows)
}

/// What the planner expects of one sum.
fn predicted(args: &AllreduceArgs, cluster: &Cluster, spec: &BucketSpec, way: Reduction) -> Price {
    let ranks: Vec<LaneId> = spec.group.iter().copied().map(LaneId).collect();
    let group = Group::new(cluster, &ranks, ranks.len() as u32);
    price(cluster, &group, args.hierarchical, way, 4.0 * spec.len as f64)
}

/// Why a size cannot be measured: all ranks of a host have its memory together.
fn too_large<T: Transport>(
    args: &AllreduceArgs,
    spec: &BucketSpec,
    t: &mut T,
) -> Result<Option<String>, TransportError> {
    let hosts = t.hosts()?;
    let own = hosts[t.rank() as usize];
    let together = hosts.iter().filter(|host| **host == own).count() as u64;
    let share = match args.hierarchical {
        true => Share::hierarchical(&spec.group, &spec.tensors, t.rank(), |r| hosts[r as usize]),
        false => Share::flat(&spec.group, &spec.tensors, t.rank()),
    };
    // Values, their source and the exact sum; a quarter for what MPI keeps of its own.
    let needed = (12 * spec.len as u64 + share.bytes(&spec.reductions, false)) * together * 5 / 4;
    let available = crate::execute::available_memory();
    let lacks = available.is_some_and(|available| needed > available.0);
    let mut worst = [if lacks { needed as f64 } else { 0.0 }];
    t.all_reduce(&mut worst, ReduceOp::Max)?;
    let bytes = Bytes(worst[0] as u64);
    Ok((worst[0] > 0.0)
        .then(|| format!("needs {bytes} on a host, more than it has left: not measured")))
}

/// One size.
struct Bench {
    spec: BucketSpec,
    // Before the values: it takes back what is under way before they go.
    exchange: Exchange,
    source: Vec<f32>,
    values: Vec<f32>,
    exact: Vec<f32>,
}

impl Bench {
    fn new<T: Transport>(
        args: &AllreduceArgs,
        spec: BucketSpec,
        t: &mut T,
    ) -> Result<Self, TransportError> {
        let source = gradient(spec.len, t.rank());
        let exchange = Exchange::new(t, std::slice::from_ref(&spec), args.hierarchical)?;
        let (values, exact) = (source.clone(), source.clone());
        let mut bench = Self { spec, exchange, source, values, exact };
        plain(t, &mut bench.exact)?;
        Ok(bench)
    }

    fn row<T: Transport>(
        &mut self,
        args: &AllreduceArgs,
        number: usize,
        t: &mut T,
    ) -> Result<Row, TransportError> {
        let reduction = self.spec.reductions[number];
        let before = self.exchange.sent_bytes();
        let first = self.once(number, t)?;
        let sent = (self.exchange.sent_bytes() - before) as f64;
        let mut figures = [sent, relative_error(&self.values, &self.exact), first];
        t.all_reduce(&mut figures, ReduceOp::Max)?;
        // The first one fills caches and connections: it only says how many the time is for.
        let times =
            (args.common.seconds / figures[2].max(1e-9)).ceil().clamp(3.0, REDUCE_MAX as f64);
        let mut seconds = vec![0.0; times as usize];
        for seconds in &mut seconds {
            *seconds = self.once(number, t)?;
        }
        t.all_reduce(&mut seconds, ReduceOp::Max)?;
        seconds.sort_by(f64::total_cmp);
        let [sent, error, _] = figures;
        Ok(self.figures(args, reduction, seconds[seconds.len() / 2], seconds.len(), sent, error))
    }

    /// Seconds of one sum on this rank.
    fn once<T: Transport>(&mut self, number: usize, t: &mut T) -> Result<f64, TransportError> {
        self.values.copy_from_slice(&self.source);
        t.barrier()?;
        let begin = Instant::now();
        if self.spec.reductions[number].is_plain() {
            plain(t, &mut self.values)?;
        } else {
            // SAFETY: waited for in the next line; after an error the exchange goes before its values.
            unsafe { self.exchange.start(0, number, &mut self.values)? };
            self.exchange.wait(0)?;
        }
        Ok(begin.elapsed().as_secs_f64())
    }

    fn figures(
        &self,
        args: &AllreduceArgs,
        reduction: Reduction,
        seconds: f64,
        times: usize,
        sent: f64,
        error: f64,
    ) -> Row {
        let (bytes, ranks) = (4 * self.spec.len as u64, self.spec.group.len() as u32);
        let bus = |bytes: f64| {
            cost::collective::bus_bandwidth(
                cost::collective::Collective::AllReduce,
                ranks,
                bytes,
                seconds,
            )
        };
        let counted = (sent > 0.0).then_some(sent);
        let algorithm = match reduction.algorithm {
            _ if reduction.is_plain() => "plain",
            Algorithm::TwoShot => "two-shot",
            Algorithm::Operator => "operator",
        };
        Row {
            bytes,
            ranks,
            hierarchical: args.hierarchical,
            algorithm,
            codec: reduction.method.to_string(),
            seconds,
            times,
            predicted_seconds: None,
            algorithm_bandwidth: bytes as f64 / seconds,
            bus_bandwidth: bus(bytes as f64),
            // What a rank sends is what its link carries.
            wire_bus_bandwidth: counted.map(|sent| sent / seconds),
            wire_bytes: counted.map(|sent| sent as u64),
            error,
        }
    }
}

/// The transport's own sum.
fn plain<T: Transport>(t: &mut T, values: &mut [f32]) -> Result<(), TransportError> {
    // SAFETY: waited for in the next line. After an error threads no longer touch the values, and MPI
    // is not called again but to end the process.
    unsafe { t.start_collective(Collective::AllReduce, 0, values, 0)? };
    t.wait_collective(0)
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(
            f,
            "{:>10}  {:<9} {:<26} {:>11.3} {:>11} {:>11} {:>11} {:>12} {:>9.2e}",
            Bytes(self.bytes).to_string(),
            self.algorithm,
            self.codec,
            self.seconds * 1e3,
            gigabytes(self.algorithm_bandwidth),
            gigabytes(self.bus_bandwidth),
            self.wire_bus_bandwidth.map_or("-".into(), gigabytes),
            self.wire_bytes.map_or("-".into(), |bytes| bytes.to_string()),
            self.error,
        )?;
        match self.predicted_seconds {
            Some(predicted) => {
                let off = 100.0 * (predicted / self.seconds - 1.0);
                write!(f, "  predicted {:>10.3} ms ({off:+.0} %)", predicted * 1e3)
            }
            None => Ok(()),
        }
    }
}
