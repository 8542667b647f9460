//! One half of a data set.

use super::DataError;
use super::column::Column;
use super::images::Images;
use super::shapes::Shapes;
use super::synthetic::Synthetic;
use pipewright_core::graph::SampleSpec;
use std::sync::Arc;

/// One half of a data set. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Split {
    contents: Arc<Contents>,
    input_words: usize,
    target_words: usize,
}

#[derive(Debug)]
enum Contents {
    None,
    Synthetic(Synthetic),
    Shapes(Shapes),
    Columns { input: Column, target: Column },
    Images(Images),
}

impl Split {
    fn new(contents: Contents, sample: &SampleSpec) -> Self {
        Self {
            contents: Arc::new(contents),
            input_words: sample.input.words() as usize,
            target_words: sample.target.words() as usize,
        }
    }

    pub(super) fn none(sample: &SampleSpec) -> Self {
        Self::new(Contents::None, sample)
    }

    pub(super) fn synthetic(samples: Synthetic, sample: &SampleSpec) -> Self {
        Self::new(Contents::Synthetic(samples), sample)
    }

    pub(super) fn shapes(images: Shapes, sample: &SampleSpec) -> Self {
        Self::new(Contents::Shapes(images), sample)
    }

    pub(super) fn columns(input: Column, target: Column, sample: &SampleSpec) -> Self {
        Self::new(Contents::Columns { input, target }, sample)
    }

    pub(super) fn images(images: Images, sample: &SampleSpec) -> Self {
        Self::new(Contents::Images(images), sample)
    }

    /// Number of samples.
    pub fn len(&self) -> u64 {
        match &*self.contents {
            Contents::None => 0,
            Contents::Synthetic(samples) => samples.len(),
            Contents::Shapes(images) => images.len(),
            Contents::Columns { input, .. } => input.len(),
            Contents::Images(images) => images.len(),
        }
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Words of one sample.
    pub fn input_words(&self) -> usize {
        self.input_words
    }

    /// Words of one sample's target.
    pub fn target_words(&self) -> usize {
        self.target_words
    }

    /// Writes sample `index`, row-major in the model's shape: single-precision values (pixels lie
    /// in [0, 1]) or tokens, as words. Allocates nothing, but to decode an image.
    ///
    /// # Errors
    /// A file that cannot be read any more or holds something else than it should.
    ///
    /// # Panics
    /// When `index` is not below [`Split::len`] or `out` is not as long as one sample.
    pub fn input(&self, index: u64, out: &mut [u32]) -> Result<(), DataError> {
        assert!(index < self.len(), "sample {index} of {}", self.len());
        assert_eq!(out.len(), self.input_words, "length of a sample");
        match &*self.contents {
            Contents::None => unreachable!("it has no samples"),
            Contents::Synthetic(samples) => samples.input(index, out),
            Contents::Shapes(images) => images.input(index, out),
            Contents::Columns { input, .. } => input.write(index, out)?,
            Contents::Images(images) => images.write(index, bytemuck::cast_slice_mut(out))?,
        }
        Ok(())
    }

    /// Writes what sample `index` should give: classes, below the model's number of them, or
    /// single-precision values, as words.
    ///
    /// # Errors
    /// As for [`Split::input`].
    ///
    /// # Panics
    /// When `index` is not below [`Split::len`] or `out` is not as long as one target.
    pub fn target(&self, index: u64, out: &mut [u32]) -> Result<(), DataError> {
        assert!(index < self.len(), "target {index} of {}", self.len());
        assert_eq!(out.len(), self.target_words, "length of a target");
        match &*self.contents {
            Contents::None => unreachable!("it has no samples"),
            Contents::Synthetic(samples) => samples.target(index, out),
            Contents::Shapes(images) => out[0] = images.class(index),
            Contents::Columns { target, .. } => target.write(index, out)?,
            Contents::Images(images) => out[0] = images.class(index),
        }
        Ok(())
    }
}
