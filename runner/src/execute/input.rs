//! Samples on their way into the arena.

use super::error::RunError;
use super::rank::{Batch, Rank};
use super::replica::Replica;
use crate::data::{DataError, DataSet, Feed, Load, Order, Reader, Sequence};
use crate::transport::Transport;
use pipewright_core::elastic::Origin;
use pipewright_core::ids::MicroBatch;
use pipewright_core::plan::{Instruction, Plan, Region, Source};

/// What a rank loads from.
pub(super) struct Input {
    train: Reader,
    /// None where the data set has nothing to test on.
    test: Option<Reader>,
    /// What is read ahead: of training, or of the evaluation under way, never both.
    feed: Option<(Pass, Feed)>,
    /// Whether to read ahead at all.
    ahead: bool,
    /// Nanoseconds that loads took since somebody asked.
    waited_ns: u64,
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
        Self { train, test, feed: None, ahead: true, waited_ns: 0 }
    }

    /// Has training go on where other mini-batches ended.
    pub fn go_on_at(&mut self, origin: Origin) {
        self.feed = None;
        self.train.go_on_at(origin);
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
            let feed =
                Feed::new(reader, loads, step).map_err(|source| RunError::Data { step, source })?;
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
        let words = bytemuck::cast_slice_mut(self.arena.floats(region));
        let start = self.transport.now_ns();
        self.input.load(batch, load, words)?;
        let end = self.transport.now_ns();
        self.input.waited_ns += end - start;
        self.recorder.loaded(start, end);
        Ok(())
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
