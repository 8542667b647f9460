//! What can be wrong with a data set.

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
    /// Images and labels that do not pair up.
    #[error(
        "{images} holds {image_count} images, {labels} holds {label_count} labels",
        images = images.display(),
        labels = labels.display()
    )]
    Counts {
        /// The file of the images.
        images: PathBuf,
        /// How many it holds.
        image_count: u64,
        /// The file of the labels.
        labels: PathBuf,
        /// How many it holds.
        label_count: u64,
    },
    /// Images that the model does not take.
    #[error(
        "{file} holds samples of shape {found:?}, the model takes {wanted:?}: \
         both must be equal but for axes of size 1, or the model must take {elements} flat values",
        file = file.display(),
        elements = found.iter().product::<u64>()
    )]
    Shape {
        /// The file.
        file: PathBuf,
        /// Shape of its samples.
        found: Vec<u64>,
        /// The model's input, or the training samples where only the test samples differ.
        wanted: Vec<u64>,
    },
    /// No samples at all.
    #[error("{what} holds no samples")]
    Empty {
        /// The file or set.
        what: String,
    },
    /// A model that no data set fits.
    #[error("a model with input {shape:?} and {classes} classes fits no data set")]
    Model {
        /// The model's input.
        shape: Vec<u64>,
        /// Its number of classes.
        classes: u64,
    },
}
