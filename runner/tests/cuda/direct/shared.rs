//! Ranks that share a device train as those do whose hosts send and sum, to the bit: their streams write numbers and wait for
//! them, and kernels read other ranks' memory.

use super::wires::{Emulated, Wired, wired};
use super::world::{Work, World};
use super::{Trained, draft, limits, same, train};
use crate::common::tensor_groups::{all, divided};
use crate::common::{losses, mpirun_in, runner_in, scratch, write};
use crate::distant::processor::Distant;
use crate::emulator;
use pipewright::tools;
use pipewright_core::plan::{DataParallel, DataParallelMode, Draft, Plan, Precision};
use pipewright_core::schedule::ScheduleKind;
use pipewright_core::units::Bytes;
use pipewright_runner::device::cuda::gpus;
use pipewright_runner::device::cuda::kernels::{Launch, peers};
use pipewright_runner::device::cuda::nccl::{
    Broken, Event, Member, Routes, Stream, Wires, connect,
};
use pipewright_runner::device::cuda::peers::{
    Apart, Handle, Release, SharedDevice, Streams, meet, page_bytes,
};
use pipewright_runner::device::{DevicePtr, Fabric};
use pipewright_runner::transport::Transport;
use pipewright_runner::transport::local::{LocalTransport, local};
use std::sync::{Arc, Mutex};

/// Streams of a world that write numbers, in place of the driver's.
struct Numbers {
    wires: Emulated,
    world: Arc<World>,
    rank: u32,
}

impl Streams for Numbers {
    fn stream(&mut self) -> Result<Stream, Broken> {
        self.wires.stream()
    }

    fn event(&mut self) -> Result<Event, Broken> {
        self.wires.event()
    }

    fn record(&mut self, event: Event, on: Stream) -> Result<(), Broken> {
        self.wires.record(event, on)
    }

    fn wait(&mut self, event: Event, stream: Stream) -> Result<(), Broken> {
        self.wires.wait(event, stream)
    }

    fn is_idle(&mut self, stream: Stream) -> Result<bool, Broken> {
        self.wires.is_idle(stream)
    }

    fn mark(&mut self, number: usize, on: Stream) -> Result<(), Broken> {
        self.wires.mark(number, on)
    }

    fn write(&mut self, at: DevicePtr, number: u32, on: Stream) -> Result<(), Broken> {
        self.wires.put(on, Work::Write(at, number))
    }

    fn until(&mut self, at: DevicePtr, number: u32, on: Stream) -> Result<(), Broken> {
        self.wires.put(on, Work::Until(at, number))
    }

    fn launch(&mut self, launch: &Launch, on: Stream) -> Result<(), Broken> {
        self.wires.put(on, Work::Launch(launch.clone()))
    }

    fn release(&mut self, at: DevicePtr, apart: u64, count: u64, number: u32) -> Release {
        let (world, rank) = (self.world.clone(), self.rank);
        Box::new(move || {
            world.change(|state| {
                (0..count).for_each(|each| state.write(at.after(each * apart), number));
                state.aborted.insert(rank)
            });
        })
    }

    fn close(&mut self) -> Result<(), Broken> {
        Ok(())
    }
}

/// A device, and its way to the others that share it.
pub fn connected(
    world: &Arc<World>,
    transport: &mut LocalTransport,
    routes: &Routes,
    bytes: Bytes,
) -> (Wired<Distant>, Box<dyn Fabric>) {
    let (rank, lines) = (transport.rank(), routes.lines.len());
    let mut device = Distant::new(bytes, Arc::default());
    let arena = device.address();
    let device = Arc::new(Mutex::new(device));
    let (wired, wires) = wired(world, rank, device.clone(), Box::new(device));
    let page = Box::leak(vec![0_u64; page_bytes(lines) as usize / 8].into_boxed_slice());
    let handle = |address| Handle { address, ..Handle::default() };
    let own = [handle(arena.0), handle(page.as_ptr() as u64)];
    let reach = meet(transport, &member(0), Some(own), |_| None).unwrap().unwrap();
    let streams = Numbers { wires, world: world.clone(), rank };
    let shared = SharedDevice::new(streams, rank, reach, lines);
    let how = (Box::new(|| None) as Box<_>, limits());
    let fabric = connect(shared, transport, routes, how).unwrap().map_err(|e| e.0).unwrap();
    (wired, Box::new(fabric))
}

fn member(gpu: u8) -> Member {
    Member { host: 0, pci: gpu.to_string(), uuid: [gpu + 1; 16], version: 0 }
}

/// As early and as late as it may be.
#[track_caller]
fn alike(what: &str, plan: &Plan) {
    if !emulator::is_there() {
        return;
    }
    let staged: Vec<Trained> = train(plan, None);
    for eager in [true, false] {
        same(&format!("{what}, {eager}"), &staged, &train(plan, Some(&World::shared(eager))));
    }
}

#[test]
fn pipelines() {
    for (graph, stages) in [(0, 3), (1, 3), (2, 2)] {
        alike(&format!("network {graph}"), &draft(graph, stages).plan().unwrap().0);
    }
}

#[test]
fn schedules_with_rows_of_their_own() {
    for kind in [ScheduleKind::ZbV, ScheduleKind::Chimera, ScheduleKind::Interleaved { chunks: 2 }]
    {
        let mut draft = draft(0, kind.placement().stages(2));
        draft.schedule = kind;
        alike(&kind.to_string(), &draft.plan().unwrap().0);
    }
}

#[test]
fn replicas_in_two_bytes_and_four() {
    for (stages, replicas, precision) in [(1, 3, Precision::F32), (2, 2, Precision::Bf16)] {
        let mut draft = draft(0, stages);
        draft.mini_batch = u64::from(8 * replicas);
        draft.training.precision = precision;
        draft.data_parallel =
            DataParallel { bucket: Bytes(1 << 10), ..DataParallel::ddp(replicas) };
        alike(&format!("{stages} x {replicas}, {precision:?}"), &draft.plan().unwrap().0);
    }
}

#[test]
fn through_the_first_replica() {
    let mut draft = draft(0, 1);
    draft.data_parallel = DataParallel { mode: DataParallelMode::Dp, ..DataParallel::ddp(2) };
    alike("DataParallel", &draft.plan().unwrap().0);
}

#[test]
fn tensor_groups_with_slices() {
    for (name, draft) in all(2) {
        for precision in [Precision::F32, Precision::F16] {
            let mut draft: Draft = divided(&draft, 2, true);
            draft.training.precision = precision;
            alike(&format!("{name}, {precision:?}"), &draft.plan().unwrap().0);
        }
    }
}

/// A sum of values that lie elsewhere on every rank, and a copy, in the middle of what is there.
#[test]
fn kernels_read_where_places_say() {
    if !emulator::is_there() {
        return;
    }
    let arenas: Vec<Vec<f32>> =
        (0..3).map(|rank| (0..64).map(|i| (100 * rank + i) as f32).collect()).collect();
    let places: Vec<u64> = vec![16, 32];
    let peer = |rank: usize| peers::Peer {
        base: DevicePtr(arenas[rank].as_ptr() as u64),
        place: rank
            .checked_sub(1)
            .map_or(DevicePtr::NULL, |at| DevicePtr(&raw const places[at] as u64)),
    };
    let mut out = vec![0.0_f32; 20];
    let at = DevicePtr(out.as_mut_ptr() as u64);
    let own = peers::Peer { base: peer(0).base.after(8), ..peer(0) };
    let storage = pipewright_runner::device::cuda::kernels::Storage::F32;
    emulator::run(&peers::sum(storage, &[own, peer(1), peer(2)], -8, at, 17));
    let expected = |i: usize| (2 + i) as f32 + (102 + i) as f32 + (206 + i) as f32;
    assert!((0..17).all(|i| out[i] == expected(i)) && out[17..] == [0.0; 3], "{out:?}");
    // Words that are aligned alike, and such that are not.
    for from in [0, 2, 4, 10] {
        out.fill(0.0);
        emulator::run(&peers::copy(peer(2), from, at, 58));
        let bytes: &[u8] = bytemuck::cast_slice(&out);
        let all: &[u8] = bytemuck::cast_slice(&arenas[2]);
        let begin = 32 + from as usize;
        assert_eq!(bytes[..58], all[begin..begin + 58], "from {from}");
        assert_eq!(bytes[58..], [0; 22], "from {from}");
    }
}

/// On a machine with a GPU: threads and processes that share it have the losses of ranks whose hosts send and sum.
#[test]
fn ranks_read_memory_on_a_gpu() {
    if gpus().is_err() {
        return tools::refused("this machine has no GPU");
    }
    let dir = scratch("shared-memory");
    let mut draft = draft(0, 2);
    draft.data_parallel = DataParallel::ddp(2);
    let plan = write(&dir, "plan.json", draft.plan().unwrap().0.to_json());
    let arguments = |way: &'static str, out: &'static str| {
        [plan, "--device", "cuda", "--transport", way, "--no-eval", "--out", out]
    };
    runner_in(&dir, &arguments("local", "staged")).done();
    runner_in(&dir, &arguments("ipc", "threads")).done();
    let staged = losses(&dir.join("staged"));
    assert_eq!((losses(&dir.join("threads")), staged.len()), (staged.clone(), 3));
    if let Some(ended) = mpirun_in(&dir, 4, &arguments("ipc", "processes")) {
        ended.done();
        assert_eq!(losses(&dir.join("processes")), staged);
    }
    std::fs::remove_dir_all(dir).ok();
}

/// The same answer on all ranks.
#[test]
fn who_does_not_share_is_told_why() {
    let met = |gpus: &'static [u8], failing: Option<u32>| -> Vec<Option<Apart>> {
        std::thread::scope(|scope| {
            let on_rank = |mut transport: LocalTransport| {
                let rank = transport.rank();
                let own = (failing != Some(rank)).then(<[Handle; 2]>::default);
                let gpu = member(gpus[rank as usize]);
                meet(&mut transport, &gpu, own, |_| None).unwrap().err()
            };
            let start = |transport| scope.spawn(move || on_rank(transport));
            let ranks: Vec<_> = local(gpus.len() as u32, 4).into_iter().map(start).collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        })
    };
    assert_eq!(met(&[0, 0, 0], None), [None, None, None]);
    assert_eq!(met(&[0, 0, 1], None), [(); 3].map(|()| Some(Apart::Devices(0, 2))));
    assert_eq!(met(&[0, 0, 0], Some(1)), [(); 3].map(|()| Some(Apart::Failed(1))));
    assert_eq!(met(&[0; 17], None), [(); 17].map(|()| Some(Apart::Many(17))));
    let said =
        [Apart::Devices(0, 2), Apart::Many(17), Apart::Failed(1)].map(|apart| apart.to_string());
    assert_eq!(said[0], "ranks 0 and 2 have GPUs of their own");
    assert_eq!(said[1], "17 ranks share a GPU, and at most 16 can");
    assert_eq!(said[2], "rank 1 cannot share memory with the others");
}
