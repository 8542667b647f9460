//! Order of waits between GPUs, and their ends when something goes wrong.

use super::device;
use super::wires::Emulated;
use super::world::World;
use pipewright_core::plan::{Precision, Region};
use pipewright_core::units::Bytes;
use pipewright_runner::device::cuda::nccl::{
    Communicators, Limits, Line, Refusal, Routes, connect,
};
use pipewright_runner::device::{Fabric, Rooted};
use pipewright_runner::transport::local::{LocalTransport, local};
use pipewright_runner::transport::{Collective, Transport, TransportError};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(300);

fn limits() -> Limits {
    Limits { connect: LONG, abort: LONG, hangs: |error| panic!("{error}") }
}

fn region(offset: u64) -> Region {
    Region { offset: Bytes(offset), bytes: Bytes(64) }
}

/// Two ranks: edges 0 there and 1 back, sums, and sums inside of a host.
fn routes() -> Routes {
    let edge = |from, to, edge| Line::Edge { from, to, edge };
    let group = Line::Group { group: 0, ranks: vec![0, 1] };
    let intra_node = |hands_out| Line::IntraNode { group: 0, ranks: vec![0, 1], hands_out };
    let lines = vec![edge(0, 1, 0), edge(1, 0, 1), group, intra_node(false), intra_node(true)];
    Routes { lines, micro_batches: 4 }
}

/// Starts a sum.
fn sum(nccl: &mut Communicators<Emulated>, offset: u64, slot: usize) {
    let values = [Rooted { root: 0, region: region(offset) }];
    nccl.join(Collective::AllReduce, 0, &values, Precision::F32, slot).unwrap();
}

type Connected = Result<Communicators<Emulated>, (Refusal, Option<TransportError>)>;

/// Runs both ranks.
fn both<T: Send>(
    world: &Arc<World>,
    limits: Limits,
    stop: &Arc<AtomicBool>,
    rank: impl Fn(u32, Connected) -> T + Sync,
) -> Vec<T> {
    let on_rank = |mut transport: LocalTransport| {
        let number = transport.rank();
        let (_device, wires) = device(world, number, Bytes(1024));
        let stop = stop.clone();
        let given_up = move || {
            let why = "it is meant to".into();
            stop.load(Ordering::Relaxed).then_some(TransportError::Aborted { rank: 7, why })
        };
        let how = (Box::new(given_up) as Box<_>, limits);
        rank(number, connect(wires, &mut transport, &routes(), how).unwrap())
    };
    std::thread::scope(|scope| {
        let ranks: Vec<_> = local(2, 4).into_iter().map(|t| scope.spawn(|| on_rank(t))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// Each stream waits for what the data demands, and for nothing else.
#[test]
fn what_waits_for_what() {
    let world = World::new(true);
    both(&world, limits(), &Arc::default(), |rank, connected| {
        let mut nccl = connected.map_err(|e| e.0).unwrap();
        let expect = |calls: &[&str]| assert_eq!(world.calls(rank), calls, "rank {rank}");
        world.calls(rank);
        // 64 events are marks; every line has two, of what was before and what comes after.
        if rank == 0 {
            nccl.send(1, 3, region(64), 5).unwrap();
            let before = ["record 64 on 0", "1 waits for 64"];
            expect(&[before[0], before[1], "send 64 on 1", "record 74 on 1"]);
            nccl.sent(5).unwrap();
            expect(&["0 waits for 74"]);
            nccl.sent(4).unwrap();
            expect(&[]);
            nccl.receive(1, 4, region(128), 0).unwrap();
            expect(&["receive 128 on 2", "record 67 on 2", "0 waits for 67"]);
        } else {
            assert_eq!(nccl.mark().unwrap(), 1);
            expect(&["record 1 on 0"]);
            // Nothing has touched the region since the mark, whatever was computed.
            nccl.receive(0, 3, region(192), 1).unwrap();
            expect(&["1 waits for 1", "receive 192 on 1", "record 65 on 1", "0 waits for 65"]);
            nccl.send(0, 4, region(192), 0).unwrap();
            expect(&["record 66 on 0", "2 waits for 66", "send 192 on 2", "record 74 on 2"]);
            nccl.sent(0).unwrap();
            expect(&["0 waits for 74"]);
        }
        sum(&mut nccl, 256, 1);
        expect(&["record 68 on 0", "3 waits for 68", "join 256 on 3", "record 75 on 3"]);
        nccl.joined(1).unwrap();
        expect(&["0 waits for 75"]);
        let slices = [(0, 256), (1, 320)].map(|(root, at)| Rooted { root, region: region(at) });
        nccl.join(Collective::Broadcast, 0, &slices, Precision::Bf16, 1).unwrap();
        expect(&["record 68 on 0", "3 waits for 68", "join 256 320 on 3", "record 75 on 3"]);
        // The mark is behind what is added up; what is handed out comes after it.
        let shards = [region(256), region(320)];
        nccl.reduce_intra_node(0, &shards, 2, 9).unwrap();
        let before = ["record 70 on 0", "4 waits for 70"];
        let [reduce, after] = ["Reduce [256, 320] on 4", "record 76 on 4"];
        expect(&[before[0], before[1], reduce, after, "mark 9 on 4"]);
        nccl.reduce_intra_node(0, &shards, 3, 8).unwrap();
        world.calls(rank);
        // What was begun later is not waited for.
        nccl.broadcast_intra_node(0, &shards, 2).unwrap();
        expect(&["5 waits for 76", "Broadcast [256, 320] on 5", "record 76 on 5"]);
        nccl.joined(2).unwrap();
        expect(&["0 waits for 76"]);
        nccl.settle().unwrap();
        assert_eq!(world.reached(rank, 9), Some(false), "who asks once does not wait");
        assert_eq!([9, 7].map(|mark| world.reached(rank, mark)), [Some(true), None]);
    });
    assert!(world.aborted().is_empty(), "it ended in order");
}

/// The wait is ended by the loss, not by a limit.
#[test]
fn a_peer_dies_while_its_message_is_waited_for() {
    let world = World::new(false);
    let errors = both(&world, limits(), &Arc::default(), |rank, connected| {
        let mut nccl = connected.map_err(|e| e.0).unwrap();
        if rank == 1 {
            let asked = 3;
            world.until_asked(0, asked);
            world.kill(1);
            return None;
        }
        nccl.receive(1, 4, region(64), 0).unwrap();
        let error = nccl.settle().unwrap_err();
        let again = [nccl.send(1, 0, region(0), 0), nccl.sent(0), nccl.joined(0), nccl.settle()];
        assert!(again.iter().all(|said| said.as_ref() == Err(&error)), "{again:?}");
        Some(error)
    });
    let Some(TransportError::Devices { what, why, lost: true }) = &errors[0] else {
        panic!("{errors:?}")
    };
    // Both edges and the sums have lost it; the first that is looked at is told.
    assert_eq!(what, "rank 0, messages of edge 0 from rank 0 to rank 1");
    assert_eq!(why, "a peer has gone");
    assert!(world.aborted().contains(&0));
}

/// What is waited for elsewhere and fails ends this as well: others wait for what was begun here.
#[test]
fn a_wait_that_fails() {
    let (world, begun) = (World::new(false), Barrier::new(2));
    let errors = both(&world, limits(), &Arc::default(), |rank, connected| {
        let mut nccl = connected.map_err(|e| e.0).unwrap();
        if rank == 1 {
            sum(&mut nccl, 64, 0);
            nccl.joined(0).unwrap();
            begun.wait();
            return nccl.settle().unwrap_err();
        }
        begun.wait();
        let gone = TransportError::Gone { rank: 7, call: "a test" };
        let mut asked = 0;
        let mut fails = || {
            asked += 1;
            if asked < 40 { Ok(false) } else { Err(gone.clone()) }
        };
        let error = nccl.wait_until(&mut fails).unwrap_err();
        assert_eq!([nccl.settle(), nccl.joined(0)], [Err(gone.clone()), Err(gone)]);
        error
    });
    assert_eq!(errors[0], TransportError::Gone { rank: 7, call: "a test" });
    assert!(matches!(errors[1], TransportError::Devices { lost: true, .. }), "{errors:?}");
    assert_eq!(world.aborted(), [0, 1]);
}

#[test]
fn a_run_that_is_given_up() {
    let (world, stop) = (World::new(false), Arc::<AtomicBool>::default());
    let errors = both(&world, limits(), &stop, |rank, connected| {
        let mut nccl = connected.map_err(|e| e.0).unwrap();
        if rank == 1 {
            world.until_asked(0, 3);
            stop.store(true, Ordering::Relaxed);
            world.until_aborted(0);
            return None;
        }
        sum(&mut nccl, 64, 0);
        nccl.joined(0).unwrap();
        nccl.settle().err()
    });
    assert!(matches!(errors[0], Some(TransportError::Aborted { rank: 7, .. })), "{errors:?}");
}

/// Where giving up takes too long, what is then to be done is done: the process ends.
#[test]
fn giving_up_that_hangs() {
    static HUNG: AtomicU32 = AtomicU32::new(0);
    let world = World::new(false);
    let limits = Limits {
        connect: LONG,
        abort: Duration::from_millis(50),
        hangs: |_| {
            HUNG.fetch_add(1, Ordering::Relaxed);
        },
    };
    both(&world, limits, &Arc::default(), |rank, connected| {
        let mut nccl = connected.map_err(|e| e.0).unwrap();
        world.hang(true);
        if rank == 1 {
            world.until_asked(0, 1);
            world.kill(1);
            // Until the other one has noticed: this one's end would be another.
            world.until_asked(1, 1);
            return;
        }
        nccl.receive(1, 4, region(64), 0).unwrap();
        nccl.settle().unwrap_err();
        assert_eq!(HUNG.load(Ordering::Relaxed), 1);
        world.hang(false);
        world.note_asked(1);
    });
}

/// One rank cannot: none does, and all know which one.
#[test]
fn all_connect_or_none() {
    let world = World::new(true);
    world.without_ids(1);
    let said = both(&world, limits(), &Arc::default(), |_, connected| connected.err().unwrap());
    let refusals: Vec<Refusal> = said.iter().map(|(refusal, _)| *refusal).collect();
    assert_eq!(refusals, [Refusal::Failed(1); 2]);
    let texts: Vec<String> =
        said.into_iter().map(|(_, error)| error.unwrap().to_string()).collect();
    assert_eq!(texts, ["rank 0: another rank could not make an id", "rank 1: no network"]);
}
