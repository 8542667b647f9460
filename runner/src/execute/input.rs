//! Samples on their way into the arena.

use super::data_parallel::Replica;
use super::error::RunError;
use super::rank::{Batch, Rank};
use crate::data::{DataError, DataSet, Feed, Load, Order, Reader, SampleBuffer, Sequence};
use crate::transport::Transport;
use pipewright_core::elastic::Origin;
use pipewright_core::ids::MicroBatch;
use pipewright_core::plan::{Instruction, Plan, Region, Source};
use pipewright_core::units::Bytes;

/// What a rank loads from.
pub(super) struct Input {
    train: Reader,
    /// None where the data set has nothing to test on.
    test: Option<Reader>,
    /// What is read ahead: of training, or of the evaluation under way, never both.
    feed: Option<(Pass, Feed)>,
    /// Whether to read ahead at all.
    ahead: bool,
    /// Where samples of a device with memory of its own are on their way.
    staged: Staged,
    /// What is at each of its places, where that is a mini-batch that comes again.
    there: Vec<Option<Recurring>>,
    /// Nanoseconds that loads took since somebody asked.
    waited_ns: u64,
}

/// Places of samples on their way to a device. Mini-batches take turns with two sets of them, so that
/// the next one's travel while this one's are read.
#[derive(Default)]
struct Staged {
    /// Which of the two sets the mini-batch under way has.
    side: usize,
    /// Loads of it so far.
    loads: usize,
    /// Whether all of its samples were staged before it began.
    ready: bool,
    /// The next mini-batch, when its samples are staged.
    ahead: Option<Batch>,
}

impl Staged {
    /// The place of the next load.
    fn next(&mut self) -> usize {
        self.loads += 1;
        place(self.side, self.loads - 1)
    }
}

/// The place of load `number` of a mini-batch.
fn place(side: usize, number: usize) -> usize {
    2 * number + side
}

/// A load of a mini-batch that comes again: whatever the number of the step, it is the same one.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Recurring {
    pass: Pass,
    /// The first sample of the mini-batch.
    begin: u64,
    load: Load,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    Train,
    Test,
}

impl Batch {
    fn pass(self) -> Pass {
        match self {
            Batch::Train(_) => Pass::Train,
            Batch::Test(_) => Pass::Test,
        }
    }

    /// Its number.
    fn number(self) -> u64 {
        match self {
            Batch::Train(step) => step,
            Batch::Test(round) => round,
        }
    }
}

impl Input {
    pub fn new(plan: &Plan, data: &DataSet) -> Self {
        let sequence = match plan.shuffle {
            true => Sequence::Shuffled { seed: plan.seed },
            false => Sequence::Repeated,
        };
        let order = |sequence, samples| Order::new(sequence, samples, plan.mini_batch);
        let train = Reader::new(data.train.clone(), order(sequence, data.train.len()));
        let test = (!data.test.is_empty())
            .then(|| Reader::new(data.test.clone(), order(Sequence::Once, data.test.len())));
        let (staged, there) = (Staged::default(), vec![]);
        Self { train, test, feed: None, ahead: true, staged, there, waited_ns: 0 }
    }

    /// Has up to so many threads read samples: a device computes, and the processor has little to do.
    pub fn read_by(&mut self, threads: usize) {
        self.train = self.train.clone().with_threads(threads);
        self.test = self.test.take().map(|test| test.with_threads(threads));
    }

    /// The load of a mini-batch, if that comes again.
    fn recurring(&self, batch: Batch, load: Load) -> Option<Recurring> {
        let pass = batch.pass();
        let begin = self.reader(pass).recurring(batch.number())?;
        Some(Recurring { pass, begin, load })
    }

    /// Has training go on where other mini-batches ended.
    pub fn go_on_at(&mut self, origin: Origin) {
        self.feed = None;
        self.staged.ahead = None;
        self.train.go_on_at(origin);
    }

    /// A mini-batch begins.
    pub fn begin(&mut self, batch: Batch) {
        let ready = self.staged.ahead.take() == Some(batch);
        self.staged = Staged { side: 1 - self.staged.side, ready, ..Staged::default() };
    }

    /// Nanoseconds that loads took since the last call.
    pub fn waited(&mut self) -> u64 {
        std::mem::take(&mut self.waited_ns)
    }

    fn reader(&self, pass: Pass) -> &Reader {
        match pass {
            Pass::Train => &self.train,
            Pass::Test => self.test.as_ref().expect("there is something to test on"),
        }
    }

    /// Copies what `load` says, from what was read ahead where there is such a thing.
    fn load(&mut self, batch: Batch, load: Load, into: &mut [u32]) -> Result<(), DataError> {
        match &mut self.feed {
            Some((pass, feed)) if *pass == batch.pass() => feed.take(batch.number(), load, into),
            _ => self.reader(batch.pass()).read(batch.number(), load, into),
        }
    }

    /// The same into a buffer that a device takes it from, which may be exchanged for another one.
    fn load_buffer(
        &mut self,
        batch: Batch,
        load: Load,
        buffer: &mut Box<dyn SampleBuffer>,
    ) -> Result<(), DataError> {
        match &mut self.feed {
            Some((pass, feed)) if *pass == batch.pass() => {
                feed.exchange(batch.number(), load, buffer)
            }
            _ => {
                let into = &mut buffer.words()[..load.words];
                self.reader(batch.pass()).read(batch.number(), load, into)
            }
        }
    }
}

impl<T: Transport> Rank<'_, T> {
    /// Whether samples are read ahead, by a thread of their own. They are, unless told otherwise;
    /// it changes no sample.
    pub fn set_read_ahead(&mut self, ahead: bool) {
        self.input.ahead = ahead;
        self.input.feed = None;
    }

    /// Makes sure that what `instructions` load is being read ahead.
    pub(super) fn read_ahead(
        &mut self,
        instructions: &[Instruction],
        batch: Batch,
    ) -> Result<(), RunError> {
        let pass = batch.pass();
        if !self.input.ahead || self.input.feed.as_ref().is_some_and(|(of, _)| *of == pass) {
            return Ok(());
        }
        // The other pass's thread ends before this one's begins.
        self.input.feed = None;
        let loads = loads(&self.replica, instructions);
        if !loads.is_empty() {
            let step = batch.number();
            let reader = self.input.reader(pass).clone();
            let arena = &mut self.arena;
            let feed = Feed::new(reader, loads, step, &mut |words| arena.buffer(words));
            let feed = feed.map_err(|source| RunError::Data { step, source })?;
            self.input.feed = Some((pass, feed));
        }
        Ok(())
    }

    /// Copies the samples of a micro-batch, or what they should give, into the arena.
    pub(super) fn load(
        &mut self,
        batch: Batch,
        micro_batch: MicroBatch,
        what: (Source, Region),
    ) -> Result<(), DataError> {
        self.load_for(self.replica.index, batch, micro_batch, what)
    }

    /// The same for another replica.
    pub(super) fn load_for(
        &mut self,
        replica: u32,
        batch: Batch,
        micro_batch: MicroBatch,
        (source, region): (Source, Region),
    ) -> Result<(), DataError> {
        let load = load_of(&self.replica, replica, micro_batch, (source, region));
        // What is for others leaves from the host.
        if self.arena.is_distant() && replica == self.replica.index {
            let place = self.input.staged.next();
            if !self.input.staged.ready {
                self.stage(place, batch, load)?;
            }
            self.arena.take(place, region);
            return Ok(());
        }
        let start = self.transport.now_ns();
        self.input.load(batch, load, bytemuck::cast_slice_mut(self.arena.raw_mut(region)))?;
        self.loaded(start);
        Ok(())
    }

    fn loaded(&mut self, start: u64) {
        let end = self.transport.now_ns();
        self.input.waited_ns += end - start;
        self.recorder.loaded(start, end);
    }

    /// Sets samples on their way to the device, unless they are at the place from the last time that their
    /// mini-batch came: two that take turns stay there, and no step waits for any.
    fn stage(&mut self, place: usize, batch: Batch, load: Load) -> Result<(), DataError> {
        let start = self.transport.now_ns();
        let input = &mut self.input;
        let recurring = input.recurring(batch, load);
        let len = input.there.len().max(place + 1);
        input.there.resize(len, None);
        let mut done = Ok(());
        if recurring.is_none() || input.there[place] != recurring {
            input.there[place] = None;
            self.arena.stage(place, Bytes(4 * load.words as u64), &mut |buffer| {
                done = input.load_buffer(batch, load, buffer);
            });
            self.input.there[place] = recurring.filter(|_| done.is_ok());
        }
        self.loaded(start);
        done
    }

    /// Has the device make all places of a step's samples.
    pub(super) fn rehearse_input(&mut self) {
        let loads = loads(&self.replica, &self.program.train);
        for (number, load) in loads.into_iter().enumerate() {
            for side in [0, 1] {
                let bytes = Bytes(4 * load.words as u64);
                self.arena.stage(place(side, number), bytes, &mut |buffer| buffer.words().fill(0));
            }
        }
    }

    /// Stages the samples of the next step of training, while the device computes this one.
    pub(super) fn stage_ahead(&mut self, batch: Batch) {
        let Batch::Train(step) = batch else { return };
        let program = &self.program.train;
        let scatters = program.iter().any(|i| matches!(i, Instruction::Scatter { .. }));
        if !self.input.ahead || scatters || step + 1 >= self.plan.steps {
            return;
        }
        let (next, side) = (Batch::Train(step + 1), 1 - self.input.staged.side);
        let loads = loads(&self.replica, program);
        let mut all = (0..).zip(loads);
        let staged = all.try_for_each(|(number, load)| self.stage(place(side, number), next, load));
        // What cannot be read is an error of the step that needs it: there it is tried again.
        self.input.staged.ahead = Some(next).filter(|_| staged.is_ok());
    }
}

/// What a rank of `replica` loads, in order.
pub(super) fn loads(replica: &Replica, instructions: &[Instruction]) -> Vec<Load> {
    let mut loads = vec![];
    for instruction in instructions {
        match *instruction {
            Instruction::Load { micro_batch, source, region } => {
                loads.push(load_of(replica, replica.index, micro_batch, (source, region)));
            }
            Instruction::Scatter { micro_batch, source, region, .. } if replica.index == 0 => {
                let of = |other| load_of(replica, other, micro_batch, (source, region));
                loads.extend(replica.scattered().map(of));
            }
            _ => {}
        }
    }
    loads
}

/// The load of one micro-batch of replica `of`.
fn load_of(
    replica: &Replica,
    of: u32,
    micro_batch: MicroBatch,
    (source, region): (Source, Region),
) -> Load {
    let first = replica.first_sample(of, micro_batch);
    Load { source, first, words: (region.bytes.0 / 4) as usize }
}
