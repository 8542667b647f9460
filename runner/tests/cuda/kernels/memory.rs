//! Computations of the training graph on the emulator: operands are copied to a device's memory that
//! is the processor's, surrounded by words that nobody may change and that are no number.

use crate::emulator;
use half::{bf16, f16};
use pipewright_kernels::{Call, Operands};
use pipewright_runner::device::cuda::kernels::{
    Buffers, DevicePtr, Operand, Step, Storage, is_stored, steps,
};

/// Words around a tensor: no number, and a token that is in no table.
const GUARD: usize = 16;

/// Shared memory of a block of the emulator's.
const MOST_SHARED: u32 = 96 << 10;

/// What tensors of a device begin at multiples of, in words.
const ALIGN: usize = 16;

/// A tensor on the device.
pub struct Tensor {
    memory: Vec<u128>,
    /// Words before it.
    start: usize,
    bytes: usize,
}

impl Tensor {
    /// Bytes that are no number.
    pub fn new(bytes: usize) -> Self {
        let memory = vec![u128::MAX; bytes.div_ceil(16) + 2 * GUARD + ALIGN];
        let first = memory[GUARD..].as_ptr() as usize / 16;
        Self { start: GUARD + first.next_multiple_of(ALIGN) - first, memory, bytes }
    }

    pub fn from(bytes: &[u8]) -> Self {
        let mut tensor = Self::new(bytes.len());
        bytemuck::cast_slice_mut(&mut tensor.memory[tensor.start..])[..bytes.len()]
            .copy_from_slice(bytes);
        tensor
    }

    /// Where it is. Kernels write through it while nobody holds a reference.
    pub fn at(&mut self) -> DevicePtr {
        DevicePtr(self.memory[self.start..].as_mut_ptr() as u64)
    }

    /// Its bytes.
    ///
    /// # Panics
    /// When somebody wrote around it.
    pub fn bytes(&self) -> &[u8] {
        let all: &[u8] = bytemuck::cast_slice(&self.memory);
        let (before, rest) = all.split_at(16 * self.start);
        let (own, after) = rest.split_at(self.bytes);
        assert!(before.iter().chain(after).all(|byte| *byte == 0xff), "written around a tensor");
        own
    }
}

/// Numbers as they are stored.
pub fn stored(storage: Storage, values: &[f32]) -> Vec<u8> {
    match storage {
        Storage::F32 => bytemuck::cast_slice(values).to_vec(),
        Storage::Bf16 => {
            values.iter().flat_map(|v| bf16::from_f32(*v).to_bits().to_ne_bytes()).collect()
        }
        Storage::F16 => {
            values.iter().flat_map(|v| f16::from_f32(*v).to_bits().to_ne_bytes()).collect()
        }
    }
}

/// Numbers from what was stored.
pub fn numbers(storage: Storage, bytes: &[u8]) -> Vec<f32> {
    let halves = || bytes.chunks_exact(2).map(|b| u16::from_ne_bytes([b[0], b[1]]));
    match storage {
        Storage::F32 => bytemuck::pod_collect_to_vec(bytes),
        Storage::Bf16 => halves().map(|bits| bf16::from_bits(bits).to_f32()).collect(),
        Storage::F16 => halves().map(|bits| f16::from_bits(bits).to_f32()).collect(),
    }
}

/// The tensors of one list of operands, and how each is stored.
struct List(Vec<(Tensor, Storage)>);

impl List {
    /// Copies of what is there, or room for it.
    fn new(
        storage: Storage,
        tensors: &[&[f32]],
        keep: bool,
        is_stored: impl Fn(usize) -> bool,
    ) -> Self {
        let one = |(i, values): (usize, &&[f32])| {
            let storage = if is_stored(i) { storage } else { Storage::F32 };
            let bytes = stored(storage, values);
            (if keep { Tensor::from(&bytes) } else { Tensor::new(bytes.len()) }, storage)
        };
        Self(tensors.iter().enumerate().map(one).collect())
    }

    fn places(&mut self) -> Vec<DevicePtr> {
        self.0.iter_mut().map(|(tensor, _)| tensor.at()).collect()
    }

    fn read_back(&self, into: &mut [&mut [f32]]) {
        for ((tensor, storage), into) in self.0.iter().zip(into) {
            into.copy_from_slice(&numbers(*storage, tensor.bytes()));
        }
    }
}

fn shared<'a>(tensors: &'a [&mut [f32]]) -> Vec<&'a [f32]> {
    tensors.iter().map(|tensor| &**tensor).collect()
}

/// A step by our own kernels.
pub fn run(step: &Step, storage: Storage) {
    match step {
        Step::Kernel(launch) => emulator::run(launch),
        Step::Product(product) => product.launches(storage).iter().for_each(emulator::run),
        Step::Convolution(convolution) => {
            convolution.steps(storage).iter().for_each(|step| run(step, storage));
        }
    }
}

/// As the processor's `launch`, with tensors of the storage type on the device.
pub fn on_the_emulator(storage: Storage, call: &Call, operands: Operands) {
    on_the_emulator_by(storage, call, operands, &|step| run(step, storage));
}

/// As [`on_the_emulator`], with what does a step.
pub fn on_the_emulator_by(
    storage: Storage,
    call: &Call,
    operands: Operands,
    perform: &dyn Fn(&Step),
) {
    on_blocks_of(MOST_SHARED, storage, call, operands, perform);
}

/// As [`on_the_emulator_by`], with so many bytes of shared memory in a block.
pub fn on_blocks_of(
    most_shared: u32,
    storage: Storage,
    call: &Call,
    operands: Operands,
    perform: &dyn Fn(&Step),
) {
    let is = |operand: fn(usize) -> Operand| move |i| is_stored(call, operand(i));
    let list = |tensors: &[&mut [f32]], keep, stored: &dyn Fn(usize) -> bool| {
        List::new(storage, &shared(tensors), keep, stored)
    };
    let mut reads = List::new(storage, operands.reads, true, is(Operand::Read));
    // What is written over something begins as that.
    let is_over = operands.reads.first().is_some_and(|read| read.is_empty());
    let mut writes = list(operands.writes, is_over, &is(Operand::Write));
    let mut read_at = reads.places();
    if is_over {
        read_at[0] = writes.places()[0];
    }
    let mut params = list(operands.params, true, &is(Operand::Param));
    let mut gradients = list(operands.gradients, true, &|_| false);
    let mut deferred = list(operands.deferred, true, &|_| false);
    let mut step = Tensor::from(&call.draw.step.to_ne_bytes());
    let needed = steps(
        call,
        &Buffers {
            reads: &read_at,
            writes: &writes.places(),
            params: &params.places(),
            gradients: &gradients.places(),
            most_shared,
            matrix_units: true,
            ..Buffers::default()
        },
        storage,
    );
    let mut scratch = Tensor::new(needed.scratch.max(needed.unfolding) as usize);
    let buffers = Buffers {
        reads: &read_at,
        writes: &writes.places(),
        params: &params.places(),
        gradients: &gradients.places(),
        deferred: &deferred.places(),
        scratch: scratch.at(),
        most_shared,
        matrix_units: true,
        step: step.at(),
        channels_last: false,
        ..Buffers::default()
    };
    for step in steps(call, &buffers, storage).steps {
        perform(&step);
    }
    writes.read_back(operands.writes);
    gradients.read_back(operands.gradients);
    deferred.read_back(operands.deferred);
    scratch.bytes();
    // Of parameters only statistics change.
    for (i, param) in operands.params.iter_mut().enumerate() {
        let (tensor, storage) = &params.0[i];
        let now = numbers(*storage, tensor.bytes());
        if !is_stored(call, Operand::Param(i)) {
            param.copy_from_slice(&now);
        }
    }
}
