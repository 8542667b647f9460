//! Reads what a rank loads, in the order of training.

use super::{DataError, Order, Split};
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
}

impl Reader {
    /// Reads `split` in an order over as many samples.
    ///
    /// # Panics
    /// When the order is over another number of samples.
    pub fn new(split: Split, order: Order) -> Self {
        assert_eq!(split.len(), order.samples, "an order of other samples");
        Self { split, order }
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
        let samples = out.chunks_exact_mut(of_one);
        assert!(samples.len() * of_one == load.words, "a load of whole samples");
        for (place, out) in (load.first..).zip(samples) {
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
    use super::super::tests::classes;
    use super::super::{Sequence, open};
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
