//! Hosts of several ranks whose devices sum first, encode then, and hand out last: the bits of the sums that
//! hosts make, and no value passes through a host.

use super::emulated::{Emulated, Reached};
use super::encoded::{AT, LEN, Steps, bits, carried, input, known, spec, steps, tensors};
use crate::common::exchange_suite::{ONE_BIT, operators};
use crate::common::ranks::on_ranks;
use crate::direct::wires::{self, Wired, wired};
use crate::direct::world::World;
use crate::emulator;
use pipewright_core::compress::division::Division;
use pipewright_core::compress::share::Share;
use pipewright_core::compress::{CodecKind, Reduction};
use pipewright_core::plan::Region;
use pipewright_core::units::Bytes;
use pipewright_runner::device::cuda::Engine;
use pipewright_runner::device::cuda::nccl::{Communicators, Limits, Line, Routes, connect};
use pipewright_runner::device::{Accelerator, Fabric};
use pipewright_runner::exchange::{Beside, Exchange};
use pipewright_runner::transport::local::{LocalTransport, local_on_hosts};
use pipewright_runner::transport::{Transport, TransportError};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

/// Nothing in these tests takes so long; where it does they fail.
pub fn limits() -> Limits {
    let long = Duration::from_secs(300);
    Limits { connect: long, abort: long, hangs: |error| panic!("{error}") }
}

/// A device whose marks may be in streams of a world.
pub fn in_world(world: &Arc<World>, rank: u32, device: &Emulated) {
    let world = world.clone();
    *device.elsewhere.lock().unwrap() = Some(Box::new(move |number| world.reached(rank, number)));
}

/// A rank's end of the sums.
struct End {
    // Before the memory that it encodes.
    exchange: Exchange,
    nccl: Communicators<wires::Emulated>,
    engine: Wired<Engine<Emulated>>,
    device: Emulated,
    shards: Vec<Region>,
}

/// Every host has a line to add up and one to hand out.
fn routes(hosts: &[u32]) -> Routes {
    let of =
        |host| (0..).zip(hosts).filter(move |(_, other)| **other == host).map(|(rank, _)| rank);
    let mut lines = vec![];
    for host in 0..=*hosts.iter().max().unwrap() {
        let ranks: Vec<u32> = of(host).collect();
        let line = |hands_out| Line::IntraNode { group: 0, ranks: ranks.clone(), hands_out };
        lines.extend([false, true].map(line));
    }
    lines.retain(|line| line.ranks().len() > 1);
    Routes { lines, micro_batches: 1 }
}

impl End {
    fn new(t: &mut LocalTransport, world: &Arc<World>, reductions: &[Reduction]) -> Self {
        let (rank, hosts) = (t.rank(), t.hosts().unwrap());
        let device = Emulated::default();
        let arena = Bytes(AT + 4 * LEN as u64);
        let mut engine = Engine::new(device.clone(), arena, "a bucket").unwrap();
        let coder = engine.coder().unwrap().expect("it has a second queue");
        let memory = Reached(device.clone(), engine.arena());
        let (engine, wires) = wired(world, rank, Arc::new(Mutex::new(engine)), Box::new(memory));
        in_world(world, rank, &device);
        let how = (Box::new(|| None) as Box<_>, limits());
        let nccl = connect(wires, t, &routes(&hosts), how).unwrap().map_err(|e| e.0).unwrap();
        let beside = Beside { coder, values: &[Bytes(AT)], intra_node: true };
        let exchange = Exchange::beside(Some(beside), t, &[spec(t, reductions)], true).unwrap();
        let shards = exchange.shards(0).iter().map(|shard| {
            let [start, bytes] = [shard.start, shard.len()].map(|count| 4 * count as u64);
            Region { offset: Bytes(AT + start), bytes: Bytes(bytes) }
        });
        let shards = shards.collect();
        Self { exchange, nccl, engine, device, shards }
    }

    /// What devices of the host sum, and what the exchange does with it.
    fn begin(&mut self, reduction: usize) -> Result<(), TransportError> {
        self.nccl.reduce_intra_node(0, &self.shards, 0, 0)?;
        self.exchange.start_there(0, reduction)?;
        self.nccl.wait_until(&mut || self.exchange.is_summed(0))
    }

    fn sum(&mut self, reduction: usize, values: &mut [f32]) -> Result<(), TransportError> {
        self.engine.upload(AT, bytemuck::cast_slice(values))?;
        self.begin(reduction)?;
        self.nccl.broadcast_intra_node(0, &self.shards, 0)?;
        self.nccl.joined(0)?;
        self.nccl.settle()?;
        Ok(self.engine.download(AT, bytemuck::cast_slice_mut(values))?)
    }
}

/// Steps by one reduction after the other.
fn steps_intra_node(t: &mut LocalTransport, reductions: &[Reduction], world: &Arc<World>) -> Steps {
    let mut end = End::new(t, world, reductions);
    let rank = t.rank();
    let step = |step: u32| {
        let mut values = input(rank, step, false);
        end.sum(step as usize % reductions.len(), &mut values).unwrap();
        let sums = tensors().into_iter().flat_map(|tensor| bits(&values[tensor])).collect();
        (sums, carried(&mut end.exchange))
    };
    (0..3).map(step).collect()
}

/// Whatever is done as early, or as late, as it may.
#[track_caller]
fn alike(hosts: &[u32], reductions: Vec<Reduction>, eager: bool) {
    let (what, world) = (format!("{reductions:?} on {hosts:?}, {eager}"), World::new(eager));
    let panicked = on_ranks(local_on_hosts(hosts, 4), move |t| {
        let here = steps(t, &reductions, false, false);
        let there = steps_intra_node(t, &reductions, &world);
        for (step, (here, there)) in here.iter().zip(&there).enumerate() {
            assert!(here.0 == there.0, "sums of step {step}, rank {}", t.rank());
            assert!(here.1 == there.1, "what is carried after step {step}, rank {}", t.rank());
        }
    });
    assert!(panicked.is_empty(), "{what}: {panicked:?} failed");
}

#[test]
fn the_bits_of_what_hosts_sum() {
    if !emulator::is_there() {
        return;
    }
    for (number, reduction) in known().into_iter().enumerate() {
        alike(&[0, 0, 1, 1], vec![reduction], number % 2 == 0);
    }
}

/// Hosts of four, of two and three, of one; ranks of a host that are not neighbours; several codecs.
#[test]
fn on_other_hosts() {
    if !emulator::is_there() {
        return;
    }
    let one_bit = Reduction::of(ONE_BIT).with_feedback();
    let both = || vec![one_bit, operators()[3]];
    for eager in [true, false] {
        alike(&[0, 0, 0, 0, 1, 1, 1, 1], both(), eager);
        alike(&[0, 1, 0, 1, 1], both(), eager);
        alike(&[0, 1, 1, 2], both(), eager);
    }
}

/// Through hosts go a shard's codes, and no more.
#[test]
fn codes_of_a_rail_travel() {
    if !emulator::is_there() {
        return;
    }
    let hosts = [0, 0, 1, 1];
    let codec = CodecKind::Fp16;
    let world = World::new(false);
    let panicked = on_ranks(local_on_hosts(&hosts, 4), move |t| {
        let mut end = End::new(t, &world, &[Reduction::of(codec)]);
        let group: Vec<u32> = (0..4).collect();
        let host = |rank: u32| hosts[rank as usize];
        let share = Share::hierarchical(&group, &tensors(), t.rank(), host);
        let mut values = input(t.rank(), 0, false);
        let traffic = end.device.traffic.clone();
        let before = traffic[1].bytes();
        end.sum(0, &mut values).unwrap();
        let [up, down] = traffic[1].bytes();
        let division = Division::new(&share.tensors, 2);
        let [all, own] = [None, Some(share.part())].map(|part| division.wire_bytes(part, codec));
        // Down: the other's part and the sum of the own. Up: the own part of the other, and its sum.
        assert_eq!([up - before[0], down - before[1]], [all, all], "rank {}", t.rank());
        assert!(all < 2 * LEN as u64 / 2 + 400 && own > 0, "half of the values: {all}");
        let values = 4 * LEN as u64;
        assert_eq!(traffic[0].bytes(), [values, values], "this test's own");
        assert_eq!(end.engine.copies.lock().unwrap().len(), 2);
    });
    assert!(panicked.is_empty());
}

/// A rank is lost before it sums, and before it hands out: all others hear of it, and give the rest up.
#[test]
fn a_rank_that_dies() {
    if !emulator::is_there() {
        return;
    }
    for begins in [false, true] {
        let (world, begun) = (World::new(false), Arc::new(Barrier::new(4)));
        let all = world.clone();
        let panicked = on_ranks(local_on_hosts(&[0, 0, 1, 1], 4), move |t| {
            let mut end = End::new(t, &world, &[Reduction::of(ONE_BIT)]);
            let mut values = input(t.rank(), 0, false);
            begun.wait();
            if t.rank() == 1 {
                end.engine.upload(AT, bytemuck::cast_slice(&values)).unwrap();
                if begins {
                    end.begin(0).unwrap();
                }
                return world.kill(1);
            }
            // The other host may have its sum by then, and ends with the next; a rank that ends is lost to
            // those that wait for it.
            let mut ends = || (0..2).find_map(|_| end.sum(0, &mut values).err());
            match ends().expect("a rank is missing") {
                TransportError::Devices { lost: true, .. }
                | TransportError::Gone { .. }
                | TransportError::Aborted { .. } => {}
                other => panic!("rank {}: {other}", t.rank()),
            }
        });
        assert!(panicked.is_empty(), "{panicked:?}");
        assert_eq!(all.aborted(), [0, 1, 2, 3], "begins: {begins}");
    }
}
