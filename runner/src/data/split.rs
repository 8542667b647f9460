//! One half of a data set.

use super::DataError;
use super::column::Column;
use super::images::Images;
use super::reader::PADDING;
use super::shapes::Shapes;
use super::synthetic::Synthetic;
use super::window::Window;
use pipewright_core::graph::SampleSpec;
use std::sync::Arc;

/// One half of a data set. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Split {
    contents: Arc<Contents>,
    /// Samples that count.
    len: u64,
    input_words: usize,
    target_words: usize,
}

#[derive(Debug)]
enum Contents {
    None,
    Synthetic(Synthetic),
    Shapes(Shapes),
    Columns { input: Column, target: Option<Column> },
    Window(Window),
    Images(Images),
}

impl Contents {
    fn len(&self) -> u64 {
        match self {
            Contents::None => 0,
            Contents::Synthetic(samples) => samples.len(),
            Contents::Shapes(images) => images.len(),
            Contents::Columns { input, .. } => input.len(),
            Contents::Window(_) => 1,
            Contents::Images(images) => images.len(),
        }
    }
}

impl Split {
    fn new(contents: Contents, sample: &SampleSpec) -> Self {
        Self {
            len: contents.len(),
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

    pub(super) fn columns(input: Column, target: Option<Column>, sample: &SampleSpec) -> Self {
        Self::new(Contents::Columns { input, target }, sample)
    }

    pub(super) fn images(images: Images, sample: &SampleSpec) -> Self {
        Self::new(Contents::Images(images), sample)
    }

    /// One sample without a target, which is what `window` shows when it is read.
    pub fn window(window: Window, sample: &SampleSpec) -> Self {
        Self::new(Contents::Window(window), sample)
    }

    /// The first `most` samples, or all where there are no more.
    #[must_use]
    pub fn first(self, most: u64) -> Self {
        Self { len: self.len.min(most), ..self }
    }

    /// Number of samples.
    pub fn len(&self) -> u64 {
        self.len
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
            Contents::Window(window) => window.write(out),
            Contents::Images(images) => images.write(index, bytemuck::cast_slice_mut(out))?,
        }
        Ok(())
    }

    /// Writes what sample `index` should give: classes, below the model's number of them, or
    /// single-precision values, as words; padding where there are no targets.
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
            Contents::Columns { target: Some(target), .. } => target.write(index, out)?,
            Contents::Columns { target: None, .. } | Contents::Window(_) => out.fill(PADDING),
            Contents::Images(images) => out[0] = images.class(index),
        }
        Ok(())
    }
}
