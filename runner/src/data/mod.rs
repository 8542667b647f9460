//! Samples: where they come from and in which order training sees them.
//!
//! [`open`] is the only door: a [`DataSet`] has the model's shapes, its labels are classes of the
//! model, and its files were whole. What can still go wrong later is an error of the read: a file
//! that was cut short meanwhile, a broken image, a token that no scan had time to find.
//!
//! [`Reader`] brings samples into the order of training.

mod buffer;
mod cifar;
mod classes;
mod column;
mod element;
mod error;
mod feed;
mod file;
mod idx;
mod images;
mod npy;
mod order;
pub(crate) mod random;
mod reader;
mod remarks;
mod shapes;
mod split;
mod split_part;
mod synthetic;
mod tensors;
mod tokens;
mod window;

pub use buffer::{SampleBuffer, plain};
pub use classes::classes;
pub use error::DataError;
pub use feed::Feed;
pub use order::{Order, Sequence};
pub use random::draw;
pub use reader::{Load, Reader};
pub use remarks::remarks;
pub use split::Split;
pub use window::Window;

use element::Element;
use pipewright_core::graph::{InputSpec, SampleSpec, TargetSpec};
use pipewright_core::plan::Data;
use split_part::{SplitPart, data_set};
use std::path::Path;

/// Samples to train on and samples to test on.
#[derive(Clone, Debug)]
pub struct DataSet {
    /// What training draws from; never empty.
    pub train: Split,
    /// What evaluation draws from; empty where the data set has nothing to test on.
    pub test: Split,
}

/// Opens a plan's data set for a model that trains on `sample`.
///
/// Files are memory-mapped. Paths are relative to where the process runs. `seed` is the plan's;
/// only synthetic samples depend on it.
///
/// # Errors
/// The first thing that does not fit, with file and byte: see [`DataError`].
pub fn open(data: &Data, sample: &SampleSpec, seed: u64) -> Result<DataSet, DataError> {
    open_with(data, sample, seed, Targets::Wanted)
}

/// Opens the samples of a data set alone: there may be no targets, and if there are, nobody looks at
/// them. Beyond what [`open`] takes: the name of a `.npy` file, and images in no class's folder.
///
/// # Errors
/// As [`open`].
pub fn open_samples(data: &Data, sample: &SampleSpec, seed: u64) -> Result<DataSet, DataError> {
    open_with(data, sample, seed, Targets::Unwanted)
}

/// Whether samples need targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Targets {
    Wanted,
    Unwanted,
}

impl Targets {
    /// Looks for targets where they are wanted.
    fn find<T>(self, find: impl FnOnce() -> Result<T, DataError>) -> Result<Option<T>, DataError> {
        match self {
            Targets::Wanted => find().map(Some),
            Targets::Unwanted => Ok(None),
        }
    }
}

fn open_with(
    data: &Data,
    sample: &SampleSpec,
    seed: u64,
    targets: Targets,
) -> Result<DataSet, DataError> {
    check_model(sample)?;
    let both = |halves: [SplitPart; 2]| {
        let [train, test] = halves.map(|half| half.with(targets));
        data_set(train, Some(test), sample)
    };
    let perhaps = |(train, test)| data_set(train, test, sample);
    match data {
        Data::Synthetic { train, test } => {
            if *train == 0 {
                return Err(DataError::Empty { what: "the synthetic training set".into() });
            }
            let [train, test] = synthetic::pair([*train, *test], sample, seed);
            Ok(DataSet {
                train: Split::synthetic(train, sample),
                test: Split::synthetic(test, sample),
            })
        }
        Data::Shapes { train, test } => {
            if *train == 0 {
                return Err(DataError::Empty { what: "the training set of shapes".into() });
            }
            let [train, test] = shapes::pair([*train, *test], sample, seed)?;
            Ok(DataSet { train: Split::shapes(train, sample), test: Split::shapes(test, sample) })
        }
        Data::Idx { dir } => both(idx::open(Path::new(dir), targets)?),
        Data::Cifar10 { dir } => both(cifar::open_10(Path::new(dir))?),
        Data::Cifar100 { dir } => both(cifar::open_100(Path::new(dir))?),
        Data::Images { dir } => images::open(Path::new(dir), sample, targets),
        Data::Tokens16 { path } => {
            perhaps(tokens::open(Path::new(path), Element::U16, sample, targets)?)
        }
        Data::Tokens32 { path } => {
            perhaps(tokens::open(Path::new(path), Element::U32, sample, targets)?)
        }
        Data::Npy { dir } => perhaps(npy::open(Path::new(dir), targets)?),
        Data::Safetensors { file } => perhaps(tensors::open(Path::new(file), targets)?),
    }
}

/// Refuses what no data set has. The largest number of 32 bits is no index: it marks padding.
fn check_model(sample: &SampleSpec) -> Result<(), DataError> {
    const INDEXES: std::ops::Range<u64> = 1..u32::MAX as u64;
    let whole = |shape: &[u64]| !shape.contains(&0);
    let input = match &sample.input {
        InputSpec::Values { shape } => whole(shape),
        InputSpec::Tokens { length, vocabulary } => *length > 0 && INDEXES.contains(vocabulary),
    };
    let target = match &sample.target {
        TargetSpec::Classes { count, classes } => *count > 0 && INDEXES.contains(classes),
        TargetSpec::Values { shape } => whole(shape),
    };
    match input && target {
        true => Ok(()),
        false => Err(DataError::Model { sample: sample.to_string() }),
    }
}

#[cfg(test)]
mod tests;
