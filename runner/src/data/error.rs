//! Errors of data sets.

use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why a data set cannot be used: the file, the byte, what was expected and what is there.
#[derive(Debug, Error)]
pub enum DataError {
    /// A file or folder that is not there.
    #[error("{path}: not found; expected {expected}", path = path.display())]
    Missing {
        /// What was looked for.
        path: PathBuf,
        /// What should be there, and what to do when something close to it is.
        expected: String,
    },
    /// The operating system refused.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// What was being read.
        path: PathBuf,
        /// Its reason.
        source: io::Error,
    },
    /// Contents that are not what the format says.
    #[error("{file}, byte {offset}: expected {expected}, found {found}", file = file.display())]
    Format {
        /// The file.
        file: PathBuf,
        /// Where, counted from 0.
        offset: u64,
        /// What the format says.
        expected: String,
        /// What is there.
        found: String,
    },
    /// A file that a library cannot make sense of, or that lacks something.
    #[error("{path}: {why}", path = path.display())]
    Damaged {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A file that became shorter while it was in use.
    #[error(
        "{path} had {opened} bytes when training began and has {now} now; \
         restore the file and start again", path = path.display()
    )]
    Shrunk {
        /// The file.
        path: PathBuf,
        /// Its length at first.
        opened: u64,
        /// Its length now.
        now: u64,
    },
    /// Samples and targets that do not pair up.
    #[error("{inputs} holds {input_count} samples, {targets} holds {target_count} targets")]
    Counts {
        /// What holds the samples.
        inputs: String,
        /// How many.
        input_count: u64,
        /// What holds the targets.
        targets: String,
        /// How many.
        target_count: u64,
    },
    /// Samples or targets that the model does not take.
    #[error(
        "{what} holds samples of shape {found:?}, the model takes {wanted:?}: \
         both must be equal but for axes of size 1, or the model must take {elements} flat values",
        elements = found.iter().fold(1u64, |n, size| n.saturating_mul(*size))
    )]
    Shape {
        /// What holds them.
        what: String,
        /// Shape of one.
        found: Vec<u64>,
        /// The model's, or the training samples' where only the test samples differ.
        wanted: Vec<u64>,
    },
    /// Numbers of a kind that cannot be what the model takes.
    #[error("{what} holds {found}, the model takes {wanted}")]
    Kind {
        /// What holds them.
        what: String,
        /// The kind that is there.
        found: String,
        /// What the model takes.
        wanted: String,
    },
    /// No samples at all.
    #[error("{what} holds no samples")]
    Empty {
        /// The file or set.
        what: String,
    },
    /// A model that no data set fits.
    #[error("a model that trains on {sample} fits no data set")]
    Model {
        /// What it trains on.
        sample: String,
    },
    /// A model that does not learn shapes.
    #[error("shapes are images of 16 classes, the model trains on {sample}; use synthetic samples")]
    Shapes {
        /// What it trains on.
        sample: String,
    },
    /// The thread that reads ahead is no more.
    #[error("the thread that reads samples ended: {why}")]
    Reader {
        /// Why.
        why: String,
    },
}
