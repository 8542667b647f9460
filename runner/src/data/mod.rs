//! Samples: where they come from and in which order training sees them.
//!
//! [`open`] is the only door: a [`DataSet`] has the model's shape, its labels are classes of the
//! model, and its files were whole. Later code never checks again.

mod cifar10;
mod error;
mod idx;
pub(crate) mod random;
mod sampler;
mod stored;
mod synthetic;

pub use error::DataError;
pub use sampler::sample_index;

use pipewright_core::plan::Data;
use std::path::Path;
use stored::Stored;
use synthetic::Synthetic;

/// Samples to train on and samples to test on.
#[derive(Debug)]
pub struct DataSet {
    /// What training draws from; never empty.
    pub train: Split,
    /// What evaluation draws from; empty only where a synthetic plan asks for no test samples.
    pub test: Split,
}

/// One half of a data set. Reading samples allocates nothing.
#[derive(Debug)]
pub struct Split(Source);

#[derive(Debug)]
enum Source {
    Synthetic(Synthetic),
    Stored(Stored),
}

impl Split {
    /// Number of samples.
    pub fn len(&self) -> u64 {
        match &self.0 {
            Source::Synthetic(samples) => samples.len(),
            Source::Stored(samples) => samples.len(),
        }
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes the values of sample `index`, row-major in the model's shape; pixels lie in [0, 1].
    ///
    /// # Panics
    /// When `index` is not below [`Split::len`] or `out` is not as long as one sample.
    pub fn write_sample(&self, index: u64, out: &mut [f32]) {
        assert!(index < self.len(), "sample {index} of {}", self.len());
        match &self.0 {
            Source::Synthetic(samples) => samples.write_sample(index, out),
            Source::Stored(samples) => samples.write_sample(index, out),
        }
    }

    /// The class of sample `index`, below the model's number of classes.
    ///
    /// # Panics
    /// When `index` is not below [`Split::len`].
    pub fn label(&self, index: u64) -> u32 {
        assert!(index < self.len(), "label {index} of {}", self.len());
        match &self.0 {
            Source::Synthetic(samples) => samples.label(index),
            Source::Stored(samples) => samples.label(index),
        }
    }
}

/// Opens a plan's data set for a model that takes `sample_shape` and tells `classes` apart.
///
/// Files are read whole and kept as bytes: MNIST needs 55 MB, CIFAR-10 184 MB on each rank that
/// loads samples. Folders are relative to where the process runs. `seed` is the plan's; only
/// synthetic samples depend on it.
///
/// # Errors
/// The first thing that does not fit, with file and byte: see [`DataError`].
pub fn open(
    data: &Data,
    sample_shape: &[u64],
    classes: u64,
    seed: u64,
) -> Result<DataSet, DataError> {
    if sample_shape.contains(&0) || classes == 0 || u32::try_from(classes).is_err() {
        return Err(DataError::Model { shape: sample_shape.to_vec(), classes });
    }
    let classes = classes as u32;
    match data {
        Data::Synthetic { train, test } => {
            if *train == 0 {
                return Err(DataError::Empty { what: "the synthetic training set".into() });
            }
            let (train, test) = synthetic::pair([*train, *test], sample_shape, classes, seed);
            let split = |samples| Split(Source::Synthetic(samples));
            Ok(DataSet { train: split(train), test: split(test) })
        }
        Data::Idx { dir } => stored(idx::open(Path::new(dir), sample_shape, classes)?),
        Data::Cifar10 { dir } => stored(cifar10::open(Path::new(dir), sample_shape, classes)?),
    }
}

fn stored([train, test]: [Stored; 2]) -> Result<DataSet, DataError> {
    let split = |samples| Split(Source::Stored(samples));
    Ok(DataSet { train: split(train), test: split(test) })
}

#[cfg(test)]
mod tests;
