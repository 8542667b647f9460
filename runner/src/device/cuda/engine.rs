//! A rank's arena on a device: computations of the training graph become launches.

mod conversions;
mod fused_groups;
mod gradients;

use super::backend::{Backend, perform};
use super::codecs::Codecs;
use super::copies::Copies;
use super::kernels::bulk::{
    Tables, Tensor, chunk_squares, chunks, local_rates, numbers, tensors, update as launch_update,
};
use super::kernels::fp8::WeightCodes;
use super::kernels::{
    Buffers, ConvolutionShape, DevicePtr, ImageOrder, Images, Operand, Plan, Step, Storage,
    is_stored, missing, steps,
};
use crate::data::SampleBuffer;
use crate::device::{
    Accelerator, Coder, DeviceError, FusedOp, Graphs, ParameterPlaces, Place, Places,
};
use conversions::{Room, Taken, is_channels_last};
use gradients::Gradients;
use pipewright_core::graph::Op;
use pipewright_core::graph::autodiff::ComputationKind;
use pipewright_core::plan::{Optimizer, Precision, Region};
use pipewright_core::units::Bytes;
use pipewright_kernels::{Call, Rule, Update};
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
    /// What is kept beside the arena, and its size.
    kept: (DevicePtr, u64),
    /// Where what is staged lies, by place.
    staged: Vec<DevicePtr>,
    /// By the places of weights that are updated together.
    tables: BTreeMap<Vec<u64>, Table>,
    copies: Copies,
    /// Moments that were noted since they were asked for.
    moments: usize,
    gradients: Gradients,
    /// Whether chains of computations are done together.
    fuses: bool,
    /// The order of images where they have kernels for each; else the device's.
    order: Option<ImageOrder>,
}

/// Parameters that are updated together, on the device.
#[derive(Clone, Copy)]
struct Table {
    tables: Tables,
    scratch: DevicePtr,
}

type Pointers = SmallVec<[DevicePtr; 16]>;

/// The weight that a computation reads in another order where channels lie innermost.
fn turned_weight(call: &Call) -> Option<Images> {
    let reads = call.kind != ComputationKind::WeightGradient;
    let is_turned = reads && matches!(call.op, Op::Conv2d { kernel, .. } if *kernel != [1, 1]);
    is_turned.then(|| ConvolutionShape::new(call).windows())
}

impl<B: Backend> Engine<B> {
    /// An arena of so many zeroed bytes; `what` it is for, for messages.
    ///
    /// # Errors
    /// When the device has not so much memory.
    pub fn new(mut backend: B, arena: Bytes, what: &str) -> Result<Self, DeviceError> {
        let arena = backend.allocate(arena.0, what)?;
        let step = (backend.allocate(8, "the number of the step")?, None);
        let none = (DevicePtr::NULL, 0);
        let (scratch, kept, staged, tables) = (none, none, vec![], BTreeMap::new());
        let (copies, moments, gradients) = (Copies::default(), 0, Gradients::default());
        let (fuses, order) = (true, None);
        Ok(Self {
            backend,
            arena,
            scratch,
            step,
            kept,
            staged,
            tables,
            copies,
            moments,
            gradients,
            fuses,
            order,
        })
    }

    /// The same, where every computation is a launch of its own.
    pub fn without_fusion(self) -> Self {
        Self { fuses: false, ..self }
    }

    /// The same, with images in an order, whatever the device is quicker with.
    pub fn with_images(self, order: ImageOrder) -> Self {
        Self { order: Some(order), ..self }
    }

    /// Keeps up to `bytes` bytes; those that are kept already stay.
    fn keep_up_to(&mut self, bytes: u64) -> Result<(), DeviceError> {
        let (before, size) = self.kept;
        if bytes > size {
            let size = bytes.next_power_of_two().max(1 << 10);
            let now = self.backend.allocate(size, "losses")?;
            if before != DevicePtr::NULL {
                self.backend.copy(before, now, self.kept.1)?;
            }
            self.kept = (now, size);
        }
        Ok(())
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

    /// The table of parameters that are updated together, made when it is first asked for; `copies` are
    /// where their copies in the storage type are.
    fn table(
        &mut self,
        optimizer: Optimizer,
        parameters: &[ParameterPlaces],
        copies: &[DevicePtr],
    ) -> Result<Table, DeviceError> {
        const WHAT: &str = "tables of parameters";
        let key: Vec<u64> = parameters.iter().map(|p| p.weight.offset.0).collect();
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
        let tensor = |((number, p), copy): ((u64, &ParameterPlaces), &DevicePtr)| Tensor {
            weight: self.place(&p.weight),
            gradient: self.place(&p.gradient),
            state: p.state.map(|state| state.map_or(DevicePtr::NULL, |state| self.place(&state))),
            copy: *copy,
            count: p.weight.bytes.0 / 4,
            local: rates.after(8 * number),
        };
        let list: Vec<Tensor> = (0..).zip(parameters).zip(copies).map(tensor).collect();
        let (of_chunks, chunk_count) = chunks(&list);
        let tables = Tables {
            tensors: self.put(&tensors(&list), WHAT)?,
            tensor_count: list.len() as u32,
            chunks: self.put(&of_chunks, WHAT)?,
            chunk_count,
            numbers: self.put(&numbers(optimizer, 0.0, 1, 1.0, false), WHAT)?,
        };
        let scratch = self.backend.allocate(16 * u64::from(chunk_count), WHAT)?;
        let table = Table { tables, scratch };
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

    /// Where kernels find the parameters of a computation.
    fn parameters(&mut self, of: Taken, params: &[Region]) -> Result<Pointers, DeviceError> {
        let Taken { call, storage, channels_last } = of;
        let turned = channels_last.then(|| turned_weight(call)).flatten();
        let one = |(i, region): (usize, &Region)| {
            let mut at = self.arena.after(region.offset.0);
            if storage != Storage::F32 && is_stored(call, Operand::Param(i)) {
                at = self.copies.read(&mut self.backend, (region, at), storage)?;
            }
            match turned.filter(|_| i == 0) {
                Some(images) => {
                    self.copies.turned(&mut self.backend, (region, at), storage, images)
                }
                None => Ok(at),
            }
        };
        params.iter().enumerate().map(one).collect()
    }

    /// Where kernels find the weight of a computation in eight bits, if it takes it so.
    fn codes(
        &mut self,
        call: &Call,
        params: &[Region],
        at: &[DevicePtr],
    ) -> Result<DevicePtr, DeviceError> {
        let codes = at.first().and_then(|weight| WeightCodes::of(call, *weight));
        let kept = codes.map(|codes| self.copies.codes(&mut self.backend, &params[0], codes));
        kept.unwrap_or(Ok(DevicePtr::NULL))
    }

    /// What a computation becomes, with all of its scratch counted.
    fn steps(
        &self,
        of: Taken,
        places: &Places,
        (params, codes): (&[DevicePtr], DevicePtr),
    ) -> Plan {
        let Taken { call, storage, channels_last } = of;
        let mut room = Room { base: self.scratch.0, used: 0 };
        let lies = |place: &Place| self.place(&place.region);
        let (reads, odd_reads) = of.values(places.reads, lies, Operand::Read, &mut room);
        let (writes, odd_writes) = of.values(places.writes, lies, Operand::Write, &mut room);
        let (gradients, deferred) = (self.places(places.gradients), self.places(places.deferred));
        let buffers = Buffers {
            reads: &reads,
            writes: &writes,
            params,
            codes,
            gradients: &gradients,
            deferred: &deferred,
            scratch: room.take(0),
            most_shared: self.backend.most_shared(),
            matrix_units: self.backend.matrix_units(),
            step: self.step.0,
            channels_last,
        };
        let mut all = self.counted(steps(call, &buffers, storage));
        all.scratch += room.used;
        all.steps.splice(..0, odd_reads.iter().flat_map(|odd| odd.before(storage)));
        all.steps.extend(odd_writes.iter().flat_map(|odd| odd.after(storage)));
        all
    }

    /// With scratch for what convolutions do by our own kernels, where the device has none of its own.
    fn counted(&self, mut plan: Plan) -> Plan {
        if !self.backend.brings_scratch() {
            plan.scratch = plan.scratch.max(plan.unfolding);
        }
        plan
    }

    fn tell_step(&mut self, step: u64) -> Result<(), DeviceError> {
        if self.step.1 != Some(step) {
            self.backend.upload(self.step.0, &step.to_le_bytes())?;
            self.step.1 = Some(step);
        }
        Ok(())
    }

    fn run(&mut self, all: &[Step], storage: Storage) -> Result<(), DeviceError> {
        all.iter().try_for_each(|step| perform(&mut self.backend, step, storage))
    }
}

impl<B: Backend> Accelerator for Engine<B> {
    fn upload(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.copies.written(offset..offset + bytes.len() as u64);
        self.backend.upload(self.arena.after(offset), bytes)
    }

    fn download(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.backend.download(self.arena.after(offset), bytes)
    }

    fn launch(&mut self, call: &Call, places: &Places) -> Result<(), DeviceError> {
        if let Some(what) = missing(call, self.backend.most_shared()) {
            return Err(DeviceError::NoKernel { device: self.backend.name().into(), what });
        }
        let storage = Storage::from(call.precision);
        let channels_last = is_channels_last(places.reads.iter().chain(places.writes));
        let of = Taken { call, storage, channels_last };
        let params = self.parameters(of, places.params)?;
        let params = (&params[..], self.codes(call, places.params, &params)?);
        let mut all = self.steps(of, places, params);
        if all.scratch > self.scratch.1 {
            self.need(all.scratch)?;
            all = self.steps(of, places, params);
        }
        self.tell_step(call.draw.step)?;
        self.run(&all.steps, storage)
    }

    fn channels_last(&self, precision: Precision) -> bool {
        match self.order {
            Some(order) => order == ImageOrder::ChannelsLast,
            None => self.backend.channels_last(precision),
        }
    }

    fn fuses(&self) -> bool {
        self.fuses
    }

    fn launch_fused(&mut self, ops: &[FusedOp]) -> Result<(), DeviceError> {
        self.chain(ops)
    }

    fn update(
        &mut self,
        rule: &Rule,
        update: &Update,
        precision: Precision,
        parameters: &[ParameterPlaces],
    ) -> Result<(), DeviceError> {
        let (optimizer, storage) = (rule.optimizer(), Storage::from(precision));
        let copy = |p: &ParameterPlaces| match storage {
            Storage::F32 => {
                self.copies.written(p.weight.offset.0..p.weight.offset.0 + p.weight.bytes.0);
                Ok(DevicePtr::NULL)
            }
            _ => self.copies.overwritten(&mut self.backend, &p.weight, storage),
        };
        let copies: Pointers = parameters.iter().map(copy).collect::<Result<_, _>>()?;
        let table = self.table(optimizer, parameters, &copies)?;
        let now = numbers(optimizer, update.rate, update.number, update.scale, false);
        self.backend.upload(table.tables.numbers, &now)?;
        if let Optimizer::Lars { trust, weight_decay, .. } = optimizer {
            self.backend.launch(&chunk_squares(&table.tables, table.scratch))?;
            let rates = local_rates(&table.tables, table.scratch, trust, weight_decay);
            self.backend.launch(&rates)?;
        }
        self.backend.launch(&launch_update(optimizer, storage, &table.tables))
    }

    fn copy(&mut self, from: Region, into: Region) -> Result<(), DeviceError> {
        self.written(into);
        self.backend.copy(self.place(&from), self.place(&into), into.bytes.0)
    }

    fn zero(&mut self, region: Region) -> Result<(), DeviceError> {
        self.written(region);
        self.backend.zero(self.place(&region), region.bytes.0)
    }

    fn moment(&mut self) -> Result<(), DeviceError> {
        self.moments += 1;
        self.backend.moment(self.moments - 1)
    }

    fn ages(&mut self, ages: &mut Vec<u64>) -> Result<(), DeviceError> {
        self.backend.ages(std::mem::take(&mut self.moments), ages)
    }

    fn keep(&mut self, from: Region, at: u64) -> Result<(), DeviceError> {
        self.keep_up_to(at + from.bytes.0)?;
        self.backend.copy(self.place(&from), self.kept.0.after(at), from.bytes.0)
    }

    fn kept(&mut self, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.keep_up_to(bytes.len() as u64)?;
        self.backend.download(self.kept.0, bytes)
    }

    fn buffer(&mut self, words: usize) -> Result<Box<dyn SampleBuffer>, DeviceError> {
        self.backend.buffer(words)
    }

    fn rehearses(&self) -> bool {
        self.backend.rehearses()
    }

    fn stage(
        &mut self,
        place: usize,
        bytes: u64,
        fill: &mut dyn FnMut(&mut Box<dyn SampleBuffer>),
    ) -> Result<(), DeviceError> {
        let at = self.backend.stage(place, bytes, fill)?;
        if self.staged.len() <= place {
            self.staged.resize(place + 1, DevicePtr::NULL);
        }
        self.staged[place] = at;
        Ok(())
    }

    fn take(&mut self, place: usize, into: Region) -> Result<(), DeviceError> {
        self.written(into);
        self.backend.arrived(place)?;
        self.backend.copy(self.staged[place], self.place(&into), into.bytes.0)?;
        self.backend.taken(place)
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        self.backend.flush()
    }

    fn end_batch(&mut self) -> Result<(), DeviceError> {
        self.backend.flush()?;
        // So that the next mini-batch asks for the same, whatever its number.
        self.step.1 = None;
        Ok(())
    }

    fn written(&mut self, region: Region) {
        self.copies.written(region.offset.0..region.offset.0 + region.bytes.0);
    }

    fn rehearsed(&mut self) {
        self.backend.rehearsed();
    }

    fn algorithms(&mut self) -> Vec<String> {
        self.backend.algorithms()
    }

    fn no_fp8(&self) -> Option<String> {
        self.backend.no_fp8()
    }

    fn graphs(&self) -> Option<Graphs> {
        self.backend.graphs()
    }

    fn squares(&mut self, regions: &[Region], sums: &mut [f64]) -> Result<(), DeviceError> {
        self.sums_of_squares(regions, sums)
    }

    fn save(&mut self, regions: &[Region]) -> Result<(), DeviceError> {
        self.copy_kept(regions, |region, kept| (region, kept))
    }

    fn restore(&mut self, regions: &[Region]) -> Result<(), DeviceError> {
        regions.iter().for_each(|region| self.written(*region));
        self.copy_kept(regions, |region, kept| (kept, region))
    }

    fn mark(&mut self, number: usize) -> Result<(), DeviceError> {
        self.backend.mark(number)
    }

    fn coder(&mut self) -> Result<Option<Box<dyn Coder>>, DeviceError> {
        let arena = self.arena;
        let codecs = |queue| Box::new(Codecs::new(queue, arena)) as Box<dyn Coder>;
        Ok(self.backend.beside()?.map(codecs))
    }
}
