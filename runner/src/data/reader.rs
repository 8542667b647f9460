//! Reads what a rank loads, in the order of training.

use super::{DataError, Order, Sequence, Split};
use pipewright_core::elastic::Origin;
use pipewright_core::plan::Source;

/// Target of a sample that only fills up a mini-batch: the kernels leave it out. As a
/// single-precision value the same bits are no number.
pub(super) const PADDING: u32 = u32::MAX;

/// One load: consecutive samples of a mini-batch, or their targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Samples or targets.
    pub source: Source,
    /// Place of the first one in the mini-batch.
    pub first: u64,
    /// Words of all of them.
    pub words: usize,
}

/// Half a data set in the order of training, or of a test.
#[derive(Clone, Debug)]
pub struct Reader {
    split: Split,
    order: Order,
    threads: usize,
}

/// Words that are worth a thread of their own: some tens of microseconds to draw.
const WORDS_OF_A_THREAD: usize = 1 << 14;

impl Reader {
    /// Reads `split` in an order over as many samples.
    ///
    /// # Panics
    /// When the order is over another number of samples.
    pub fn new(split: Split, order: Order) -> Self {
        assert_eq!(split.len(), order.samples, "an order of other samples");
        Self { split, order, threads: 1 }
    }

    /// The same by up to so many threads, each with samples of its own. Samples are functions of their
    /// places, so that this changes none.
    #[must_use]
    pub fn with_threads(self, threads: usize) -> Self {
        Self { threads: threads.max(1), ..self }
    }

    /// The first sample of mini-batch `step`, where all others follow from it: mini-batches that begin
    /// alike are alike. None where samples are shuffled, or come once.
    pub fn recurring(&self, step: u64) -> Option<u64> {
        let is_repeated = self.order.sequence == Sequence::Repeated;
        is_repeated.then(|| self.order.index(step, 0)).flatten()
    }

    /// Has the sequence go on where other mini-batches ended.
    pub fn go_on_at(&mut self, origin: Origin) {
        self.order.origin = origin;
    }

    /// Fills `out` with what `load` says, for mini-batch `step`. What lies past the end is
    /// padding: zeros, and targets that no class is.
    ///
    /// # Errors
    /// A sample that cannot be read.
    ///
    /// # Panics
    /// When `out` or the load are no whole samples.
    pub fn read(&self, step: u64, load: Load, out: &mut [u32]) -> Result<(), DataError> {
        assert_eq!(out.len(), load.words, "a place as large as the load");
        let (of_one, padding) = match load.source {
            Source::Input => (self.split.input_words(), 0),
            Source::Target => (self.split.target_words(), PADDING),
        };
        assert!(load.words.is_multiple_of(of_one), "a load of whole samples");
        let samples = load.words / of_one;
        let threads = (load.words / WORDS_OF_A_THREAD).clamp(1, self.threads).min(samples);
        if threads == 1 {
            return self.read_samples(step, load, of_one, padding, out);
        }
        let each = samples.div_ceil(threads);
        std::thread::scope(|scope| {
            let mut parts = vec![];
            for (part, out) in (0..).zip(out.chunks_mut(each * of_one)) {
                let first = load.first + part * each as u64;
                let load = Load { first, words: out.len(), ..load };
                let read = move || self.read_samples(step, load, of_one, padding, out);
                parts.push(scope.spawn(read));
            }
            // The first error in the order of samples, as one thread would find it.
            let ended = parts.into_iter().map(|part| match part.join() {
                Ok(read) => read,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            ended.collect::<Vec<_>>().into_iter().collect()
        })
    }

    /// The samples of a load, one after the other.
    fn read_samples(
        &self,
        step: u64,
        load: Load,
        of_one: usize,
        padding: u32,
        out: &mut [u32],
    ) -> Result<(), DataError> {
        for (place, out) in (load.first..).zip(out.chunks_exact_mut(of_one)) {
            match (self.order.index(step, place), load.source) {
                (None, _) => out.fill(padding),
                (Some(index), Source::Input) => self.split.input(index, out)?,
                (Some(index), Source::Target) => self.split.target(index, out)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::open;
    use super::super::tests::classes;
    use super::*;
    use pipewright_core::plan::Data;

    fn reader(samples: u64, sequence: Sequence) -> (Reader, Split) {
        let data = Data::Synthetic { train: samples, test: 1 };
        let split = open(&data, &classes(&[3], 4), 1).unwrap().train;
        let reader = Reader::new(split.clone(), Order::new(sequence, samples, 4));
        (reader, split)
    }

    #[test]
    fn a_load_is_consecutive_samples() {
        let (reader, split) = reader(10, Sequence::Repeated);
        let load = Load { source: Source::Input, first: 1, words: 9 };
        let mut out = [0; 9];
        reader.read(2, load, &mut out).unwrap();
        for (at, index) in [(0, 9), (3, 0), (6, 1)] {
            let mut one = [0; 3];
            split.input(index, &mut one).unwrap();
            assert_eq!(out[at..at + 3], one);
        }
        let mut targets = [9; 2];
        let load = Load { source: Source::Target, first: 2, words: 2 };
        reader.read(0, load, &mut targets).unwrap();
        assert_eq!(targets, [2, 3]);
    }

    /// More samples than threads, fewer, and none that divides the other; an end in the middle.
    #[test]
    fn threads_change_no_sample() {
        let data = Data::Synthetic { train: 50, test: 1 };
        let split = open(&data, &classes(&[3, 70, 90], 4), 1).unwrap().train;
        for sequence in [Sequence::Once, Sequence::Shuffled { seed: 2 }] {
            let reader = Reader::new(split.clone(), Order::new(sequence, 50, 16));
            for samples in [1, 2, 13, 16] {
                let words = samples * split.input_words();
                let load = Load { source: Source::Input, first: 1, words };
                let read = |reader: &Reader| {
                    let mut out = vec![7; words];
                    reader.read(3, load, &mut out).unwrap();
                    out
                };
                let alone = read(&reader);
                for threads in [2, 3, 16] {
                    let reader = reader.clone().with_threads(threads);
                    assert!(read(&reader) == alone, "{samples} samples, {threads} threads");
                }
            }
        }
    }

    #[test]
    fn mini_batches_that_come_again_begin_alike() {
        let begin = |samples, sequence| {
            let (reader, _) = reader(samples, sequence);
            [0, 1, 2, 3].map(|step| reader.recurring(step))
        };
        assert_eq!(begin(8, Sequence::Repeated), [0, 4, 0, 4].map(Some));
        assert_eq!(begin(6, Sequence::Repeated), [0, 4, 2, 0].map(Some));
        assert_eq!(begin(8, Sequence::Shuffled { seed: 1 }), [None; 4]);
        assert_eq!(begin(8, Sequence::Once), [None; 4]);
    }

    #[test]
    fn what_lies_past_the_end_is_padding() {
        let (reader, _) = reader(6, Sequence::Once);
        let mut targets = [9; 4];
        let load = Load { source: Source::Target, first: 0, words: 4 };
        reader.read(1, load, &mut targets).unwrap();
        assert_eq!(targets, [0, 1, PADDING, PADDING]);
        let mut input = [7; 6];
        let load = Load { source: Source::Input, first: 2, words: 6 };
        reader.read(1, load, &mut input).unwrap();
        assert_eq!(input, [0; 6]);
        assert!(f32::from_bits(PADDING).is_nan());
    }
}
