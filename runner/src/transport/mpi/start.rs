//! From nothing to a running MPI with synchronised clocks.

use super::Settings;
use super::comm::{self, Comm};
use super::request::Wait;
use super::survive::Survivors;
use crate::hash::fnv1a;
use crate::transport::TransportError;
use crate::transport::clock::{clock_domain, monotonic_ns, wake_in_time};
use crate::transport::launch::{launched_by_mpi, ranks_on_this_host};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{env, fs, thread};

/// Round trips of one clock measurement; the fastest counts.
const ROUND_TRIPS: usize = 32;

/// What a transport consists of.
pub(super) struct Started {
    pub data: Comm,
    pub control: Comm,
    pub peers: Option<Peers>,
    pub survivors: Option<Survivors>,
    pub rank: u32,
    pub ranks: u32,
    pub host: String,
    pub clock: ClockOffset,
    /// Whether several threads may call MPI.
    pub threaded: bool,
}

/// The way from this process's clock to rank 0's, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockOffset {
    /// What to add.
    pub offset_ns: i64,
    /// How far off that may be; 0 where both read the same clock.
    pub error_ns: u64,
}

pub(super) fn start(settings: Settings) -> Result<Started, TransportError> {
    static STARTED: AtomicBool = AtomicBool::new(false);
    assert!(!STARTED.swap(true, Ordering::Relaxed), "MPI starts once per process");
    wake_in_time();
    let wait = wait();
    sums();
    messages();
    let threaded = comm::init(settings.threads)?;
    let data = Comm::world(settings.piece_bytes, wait)?;
    let control = Comm::world(settings.piece_bytes, wait)?;
    let survivors = Survivors::of_world(settings, wait)?;
    let (rank, ranks) = control.place()?;
    let (data, control, peers) = crews(data, control, rank, ranks, settings.crew)?;
    let (rank, ranks) = control.place()?;
    let host = comm::processor_name()?;
    let clock = clock(&control, rank, ranks, &host, settings.measure_clock)?;
    Ok(Started { data, control, peers, survivors, rank, ranks, host, clock, threaded })
}

/// The way to rank 0's clock from that of `host`, measured even where both are the same if so wanted.
/// Collective.
pub(super) fn clock(
    control: &Comm,
    rank: u32,
    ranks: u32,
    host: &str,
    measure: bool,
) -> Result<ClockOffset, TransportError> {
    let domain = fnv1a(clock_domain(host).as_bytes());
    synchronise(control, rank, ranks, domain, measure)
}

/// The ranks of one number in all crews.
#[derive(Debug)]
pub(super) struct Peers {
    comm: Comm,
    pub crew: u32,
    pub crews: u32,
}

impl Peers {
    /// All get the bytes that crew `from`'s rank has.
    pub(super) fn share(&self, from: u32, bytes: &mut [u8]) -> Result<(), TransportError> {
        if self.crew != from {
            return self.comm.recv(from, 0, bytes);
        }
        let mut others = (0..self.crews).filter(|crew| *crew != from);
        others.try_for_each(|crew| self.comm.send(crew, 0, bytes))
    }
}

/// Parts the world into crews of `size` consecutive ranks each.
fn crews(
    data: Comm,
    control: Comm,
    rank: u32,
    ranks: u32,
    size: Option<u32>,
) -> Result<(Comm, Comm, Option<Peers>), TransportError> {
    let several = |size: &u32| *size > 0 && *size < ranks && ranks.is_multiple_of(*size);
    let Some(size) = size.filter(several) else { return Ok((data, control, None)) };
    let (crew, place) = (rank / size, rank % size);
    let own: Vec<u32> = (crew * size..(crew + 1) * size).collect();
    let alike: Vec<u32> = (0..ranks / size).map(|crew| crew * size + place).collect();
    let comm = control.group(&alike, ranks + place)?;
    let peers = Peers { comm, crew, crews: ranks / size };
    Ok((data.group(&own, crew)?, control.group(&own, crew)?, Some(peers)))
}

/// Ranks that outnumber cores wait asleep, and where MPI itself waits they give their core to
/// others: without that 16 ranks on 2 cores ran 28 times slower. Open MPI reads the variable when
/// it starts.
///
/// Under core binding the operating system shows us one core, and we may ask for yielding
/// without need; that costs a microsecond a wait, its absence would cost milliseconds. Sleeping
/// costs a hundred: there we go by the machine's cores.
fn wait() -> Wait {
    let cores = thread::available_parallelism().map_or(1, |n| n.get());
    let crowded = ranks_on_this_host().is_some_and(|ranks| ranks as usize > cores);
    if crowded {
        ask("OMPI_MCA_mpi_yield_when_idle", "1");
    }
    // Hosts of `scripts/hosts.sh` share the machine's cores, which no rank on them can see.
    if env::var("PIPEWRIGHT_WAIT").is_ok_and(|how| how == "asleep") {
        return Wait::Asleep;
    }
    let cores = if cores == 1 { machine_cores().unwrap_or(cores) } else { cores };
    let crowded = ranks_on_this_host().is_some_and(|ranks| ranks as usize > cores);
    if crowded { Wait::Asleep } else { Wait::Awake }
}

/// Sums of four ranks and more go around a ring. Open MPI does so by itself, but not for sums in place:
/// at 250 Mbit/s, 16 MiB took four hosts 2.9 s by its trees and 1.1 s around the ring; in shared
/// memory 64 MiB took four ranks 92 ms and 69.
fn sums() {
    if launched_by_mpi().is_some_and(|ranks| ranks >= 4) {
        ask("OMPI_MCA_coll_libnbc_iallreduce_algorithm", "1");
    }
}

/// Chunks of encoded sums travel at once, not after the receiver has been asked: their receives are
/// posted long before. A chunk of bf16 is as long as Open MPI's own limit; at 250 Mbit/s 16 MiB took four
/// hosts 520 ms with that and 453 with this, and other sums the same.
fn messages() {
    ask("OMPI_MCA_btl_tcp_eager_limit", "131072");
}

/// Sets a variable that Open MPI reads when it starts, unless the user did, or cannot be told.
fn ask(name: &str, value: &str) {
    if env::var_os(name).is_none() && alone() {
        // SAFETY: no other thread exists that could read the environment meanwhile.
        unsafe { env::set_var(name, value) };
    }
}

/// Cores of the machine, whichever of them are ours.
fn machine_cores() -> Option<usize> {
    let info = fs::read_to_string("/proc/cpuinfo").ok()?;
    let cores = info.lines().filter(|line| line.starts_with("processor")).count();
    (cores > 0).then_some(cores)
}

/// Whether this is the only thread of the process; `false` where that cannot be told.
fn alone() -> bool {
    fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() == 1)
}

/// Finds the way to rank 0's clock. Collective: one rank after another talks
/// to rank 0.
///
/// The reply of rank 0 lies between our two readings of our clock; taking it for their middle errs
/// by at most half the round trip (Cristian 1989), so the fastest of many is the one to trust.
fn synchronise(
    control: &Comm,
    rank: u32,
    ranks: u32,
    domain: u64,
    measure_always: bool,
) -> Result<ClockOffset, TransportError> {
    if rank == 0 {
        for peer in 1..ranks {
            control.send(peer, 0, &domain.to_le_bytes())?;
            let mut measures = [0];
            control.recv(peer, 0, &mut measures)?;
            for _ in 0..usize::from(measures[0]) * ROUND_TRIPS {
                control.recv(peer, 0, &mut [])?;
                control.send(peer, 0, &monotonic_ns().to_le_bytes())?;
            }
        }
        return Ok(ClockOffset::default());
    }
    let mut theirs = [0; 8];
    control.recv(0, 0, &mut theirs)?;
    let measure = measure_always || u64::from_le_bytes(theirs) != domain;
    control.send(0, 0, &[u8::from(measure)])?;
    let (mut fastest, mut clock) = (u64::MAX, ClockOffset::default());
    for _ in 0..usize::from(measure) * ROUND_TRIPS {
        let before = monotonic_ns();
        control.send(0, 0, &[])?;
        control.recv(0, 0, &mut theirs)?;
        let round_trip = monotonic_ns() - before;
        if round_trip < fastest {
            fastest = round_trip;
            let here = before + round_trip / 2;
            let offset_ns = u64::from_le_bytes(theirs).wrapping_sub(here).cast_signed();
            clock = ClockOffset { offset_ns, error_ns: round_trip.div_ceil(2) };
        }
    }
    Ok(clock)
}
