//! A rank's arena on a device: computations of the training graph become launches.

use super::backend::Backend;
use super::kernels::bulk::{
    Tables, Tensor, chunks, local_rates, numbers, squares, tensors, update as launch_update,
};
use super::kernels::{
    Buffers, DevicePtr, Elementwise, Launch, Source, Step, Storage, missing, steps,
};
use crate::device::cpu::{Call, Rule, Update};
use crate::device::{Accelerator, Conversion, DeviceError, ParameterPlaces, Places};
use pipewright_core::plan::{Optimizer, Region};
use pipewright_core::units::Bytes;
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// The arena on a device.
pub struct Engine<B> {
    backend: B,
    arena: DevicePtr,
    /// Scratch of a computation beside what the plan gives it, and its size.
    scratch: (DevicePtr, u64),
    /// The number of the training step, as the device knows it.
    step: (DevicePtr, Option<u64>),
    /// By the places of weights that are updated together.
    tables: BTreeMap<Vec<u64>, Table>,
}

/// Parameters that are updated together, on the device.
#[derive(Clone, Copy)]
struct Table {
    tables: Tables,
    scratch: DevicePtr,
    total: DevicePtr,
}

type Pointers = SmallVec<[DevicePtr; 16]>;

impl<B: Backend> Engine<B> {
    /// An arena of so many zeroed bytes; `what` it is for, for messages.
    ///
    /// # Errors
    /// When the device has not so much memory.
    pub fn new(mut backend: B, arena: Bytes, what: &str) -> Result<Self, DeviceError> {
        let arena = backend.allocate(arena.0, what)?;
        let step = (backend.allocate(8, "the number of the step")?, None);
        let (scratch, tables) = ((DevicePtr::NULL, 0), BTreeMap::new());
        Ok(Self { backend, arena, scratch, step, tables })
    }

    /// Where the arena begins.
    pub fn arena(&self) -> DevicePtr {
        self.arena
    }

    fn place(&self, region: &Region) -> DevicePtr {
        self.arena.after(region.offset.0)
    }

    fn places(&self, regions: &[Region]) -> Pointers {
        regions.iter().map(|region| self.place(region)).collect()
    }

    /// Memory with these bytes in it.
    fn put(&mut self, bytes: &[u8], what: &str) -> Result<DevicePtr, DeviceError> {
        let at = self.backend.allocate(bytes.len() as u64, what)?;
        self.backend.upload(at, bytes)?;
        Ok(at)
    }

    /// The table of parameters that are updated together, made when it is first asked for.
    fn table(
        &mut self,
        key: Vec<u64>,
        optimizer: Optimizer,
        parameters: &[ParameterPlaces],
    ) -> Result<Table, DeviceError> {
        const WHAT: &str = "tables of parameters";
        if let Some(table) = self.tables.get(&key) {
            return Ok(*table);
        }
        let is_lars = matches!(optimizer, Optimizer::Lars { .. });
        let mut rates = DevicePtr::NULL;
        if is_lars {
            // Those of one axis take no part.
            let rate = |p: &ParameterPlaces| if p.axes > 1 { 0.0_f64 } else { -1.0 };
            let bytes: Vec<u8> = parameters.iter().flat_map(|p| rate(p).to_ne_bytes()).collect();
            rates = self.put(&bytes, WHAT)?;
        }
        let tensor = |(number, p): (u64, &ParameterPlaces)| Tensor {
            weight: self.place(&p.weight),
            gradient: self.place(&p.gradient),
            state: p.state.map(|state| state.map_or(DevicePtr::NULL, |state| self.place(&state))),
            copy: DevicePtr::NULL,
            count: p.weight.bytes.0 / 4,
            local: rates.after(8 * number),
        };
        let list: Vec<Tensor> = (0..).zip(parameters).map(tensor).collect();
        let (of_chunks, chunk_count) = chunks(&list);
        let tables = Tables {
            tensors: self.put(&tensors(&list), WHAT)?,
            tensor_count: list.len() as u32,
            chunks: self.put(&of_chunks, WHAT)?,
            chunk_count,
            numbers: self.put(&numbers(optimizer, 0.0, 1, 1.0, false), WHAT)?,
        };
        let scratch = self.backend.allocate(16 * u64::from(chunk_count), WHAT)?;
        let total = self.backend.allocate(8, WHAT)?;
        let table = Table { tables, scratch, total };
        self.tables.insert(key, table);
        Ok(table)
    }

    /// Has so much scratch. The first computations of a run decide: nothing is freed.
    fn need(&mut self, bytes: u64) -> Result<(), DeviceError> {
        if bytes > self.scratch.1 {
            self.scratch = (self.backend.allocate(bytes, "scratch of a computation")?, bytes);
        }
        Ok(())
    }

    fn tell_step(&mut self, step: u64) -> Result<(), DeviceError> {
        if self.step.1 != Some(step) {
            self.backend.upload(self.step.0, &step.to_le_bytes())?;
            self.step.1 = Some(step);
        }
        Ok(())
    }

    fn run(&mut self, all: &[Step], storage: Storage) -> Result<(), DeviceError> {
        all.iter().try_for_each(|step| match step {
            Step::Kernel(launch) => self.backend.launch(launch),
            Step::Product(product) => self.backend.product(product, storage),
        })
    }
}

impl<B: Backend> Accelerator for Engine<B> {
    fn upload(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.backend.upload(self.arena.after(offset), bytes)
    }

    fn download(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.backend.download(self.arena.after(offset), bytes)
    }

    fn launch(&mut self, call: &Call, places: &Places) -> Result<(), DeviceError> {
        if let Some(what) = missing(call) {
            return Err(DeviceError::NoKernel { device: self.backend.name().into(), what });
        }
        let lists = [places.reads, places.writes, places.params, places.gradients, places.deferred];
        let [reads, writes, params, gradients, deferred] = lists.map(|list| self.places(list));
        let mut buffers = Buffers {
            reads: &reads,
            writes: &writes,
            params: &params,
            gradients: &gradients,
            deferred: &deferred,
            scratch: self.scratch.0,
            step: self.step.0,
        };
        let mut all = steps(call, &buffers, Storage::F32);
        if all.scratch > self.scratch.1 {
            self.need(all.scratch)?;
            buffers.scratch = self.scratch.0;
            all = steps(call, &buffers, Storage::F32);
        }
        self.tell_step(call.draw.step)?;
        self.run(&all.steps, Storage::F32)
    }

    fn update(
        &mut self,
        rule: &Rule,
        update: &Update,
        parameters: &[ParameterPlaces],
    ) -> Result<(), DeviceError> {
        let optimizer = rule.optimizer();
        let key = parameters.iter().map(|p| p.weight.offset.0).collect();
        let table = self.table(key, optimizer, parameters)?;
        let now = numbers(optimizer, update.rate, update.number, update.scale, false);
        self.backend.upload(table.tables.numbers, &now)?;
        if let Optimizer::Lars { trust, weight_decay, .. } = optimizer {
            let [of_chunks, _] = squares(&table.tables, table.scratch, table.total);
            self.backend.launch(&of_chunks)?;
            let rates = local_rates(&table.tables, table.scratch, (trust, weight_decay));
            self.backend.launch(&rates)?;
        }
        self.backend.launch(&launch_update(optimizer, Storage::F32, &table.tables))
    }

    fn convert(
        &mut self,
        from: Region,
        into: Region,
        conversion: Conversion,
    ) -> Result<(), DeviceError> {
        let (x, out) = (self.place(&from), self.place(&into));
        let (kernel, count) = match conversion {
            Conversion::Copy => return self.backend.copy(x, out, into.bytes.0),
            Conversion::Unpack => ("widen_bf16", into.bytes.0 / 4),
            Conversion::Pack => ("narrow_bf16", from.bytes.0 / 4),
        };
        let args = Elementwise { x, out, count, ..Elementwise::default() };
        self.backend.launch(&Launch::over(Source::Elementwise, kernel.into(), count, &args))
    }

    fn zero(&mut self, region: Region) -> Result<(), DeviceError> {
        self.backend.zero(self.place(&region), region.bytes.0)
    }
}
