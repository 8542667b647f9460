//! One number or more for each sample, at regular places of memory-mapped files.
//!
//! A format says where its samples and targets lie ([`Array`]); the model says what they are
//! ([`Column::input`], [`Column::target`]). That every format reads through the same few lines is
//! why each is checked alike.

use super::DataError;
use super::element::Element;
use super::file::Mapped;
use pipewright_core::graph::{InputSpec, TargetSpec};
use std::sync::Arc;

/// Indexes in more bytes than these are checked when they are read, not when the file is opened:
/// a check of the whole file would take longer than anyone waits.
const SCAN_MAX: u64 = 64 << 20;

/// Consecutive samples of one file.
#[derive(Debug)]
pub(super) struct Block {
    pub file: Arc<Mapped>,
    /// Byte of the first sample.
    pub first: u64,
    /// Bytes from one sample to the next.
    pub stride: u64,
    /// Number of samples.
    pub samples: u64,
}

/// What a format found: numbers of one type and, for each sample, of one shape. The format has
/// checked that they lie within their files.
#[derive(Debug)]
pub(super) struct Array {
    /// Its name in messages.
    pub what: String,
    pub blocks: Vec<Block>,
    pub element: Element,
    /// Shape of one sample.
    pub shape: Vec<u64>,
    /// Classes of its kind of data set, whatever the model has.
    pub classes: Option<u64>,
}

/// An array that fits the model.
#[derive(Debug)]
pub(super) struct Column {
    blocks: Vec<Block>,
    element: Element,
    /// Numbers of one sample.
    words: usize,
    meaning: Meaning,
}

#[derive(Clone, Copy, Debug)]
enum Meaning {
    /// Single precision.
    Values,
    /// Indexes below a limit, called so in messages.
    Indexes { below: u32, name: &'static str, limit: &'static str },
}

impl Array {
    pub(super) fn samples(&self) -> u64 {
        self.blocks.iter().map(|block| block.samples).sum()
    }

    fn column(self, meaning: Meaning) -> Column {
        let words = self.shape.iter().product::<u64>() as usize;
        Column { blocks: self.blocks, element: self.element, words, meaning }
    }

    fn indexes(self, wanted: String, meaning: Meaning) -> Result<Column, DataError> {
        if !self.element.is_integer() {
            let found = "fractions".into();
            return Err(DataError::Kind { what: self.what, found, wanted });
        }
        let column = self.column(meaning);
        column.scan()?;
        Ok(column)
    }
}

impl Column {
    /// The samples of a model.
    pub(super) fn input(array: Array, input: &InputSpec) -> Result<Self, DataError> {
        match input {
            InputSpec::Values { shape } => {
                check_shape(&array.what, &array.shape, shape)?;
                Ok(array.column(Meaning::Values))
            }
            InputSpec::Tokens { length, vocabulary } => {
                check_shape(&array.what, &array.shape, &[*length])?;
                let (name, limit) = ("token", "the model's vocabulary");
                let meaning = Meaning::Indexes { below: *vocabulary as u32, name, limit };
                array.indexes(input.to_string(), meaning)
            }
        }
    }

    /// The targets of a model.
    pub(super) fn target(array: Array, target: &TargetSpec) -> Result<Self, DataError> {
        match target {
            TargetSpec::Classes { count, classes } => {
                check_shape(&array.what, &array.shape, &[*count])?;
                let of_kind = array.classes.filter(|of_kind| of_kind < classes);
                let limit = match of_kind {
                    Some(_) => "the data set's number of classes",
                    None => "the model's number of classes",
                };
                let below = of_kind.unwrap_or(*classes) as u32;
                let meaning = Meaning::Indexes { below, name: "label", limit };
                array.indexes(target.to_string(), meaning)
            }
            TargetSpec::Values { shape } => {
                check_shape(&array.what, &array.shape, shape)?;
                Ok(array.column(Meaning::Values))
            }
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.blocks.iter().map(|block| block.samples).sum()
    }

    /// Writes what sample `index` has: floats, or indexes, as words.
    ///
    /// # Errors
    /// A file that became shorter, an index that the model has not, a value that is no number.
    pub(super) fn write(&self, index: u64, out: &mut [u32]) -> Result<(), DataError> {
        let (block, index) = self.find(index);
        block.file.check_whole()?;
        self.convert(block, index, out)
    }

    /// The block of a sample, and the sample's index in it.
    fn find(&self, mut index: u64) -> (&Block, u64) {
        for block in &self.blocks {
            if index < block.samples {
                return (block, index);
            }
            index -= block.samples;
        }
        panic!("a sample {index} past the last one");
    }

    fn convert(&self, block: &Block, index: u64, out: &mut [u32]) -> Result<(), DataError> {
        assert_eq!(out.len(), self.words, "length of a sample");
        let first = block.first + index * block.stride;
        let bytes = &block.file.bytes()[first as usize..][..self.words * self.element.bytes()];
        let wrong = match self.meaning {
            Meaning::Values => {
                let values: &mut [f32] = bytemuck::cast_slice_mut(out);
                self.element.values(bytes, values);
                match self.element.is_integer() {
                    true => None,
                    false => values.iter().position(|value| !value.is_finite()),
                }
            }
            Meaning::Indexes { below, .. } => {
                self.element.indexes(bytes, out);
                out.iter().position(|&index| index >= below)
            }
        };
        match wrong {
            None => Ok(()),
            Some(at) => Err(self.refuse(block, first, bytes, at)),
        }
    }

    /// The error for number `at` of a sample that begins at byte `first`.
    fn refuse(&self, block: &Block, first: u64, bytes: &[u8], at: usize) -> DataError {
        let at = at * self.element.bytes();
        let expected = match self.meaning {
            Meaning::Values => "a finite number of single precision".into(),
            Meaning::Indexes { below, name, limit } => format!("a {name} below {below}, {limit}"),
        };
        DataError::Format {
            file: block.file.path().into(),
            offset: first + at as u64,
            expected,
            found: self.element.text(&bytes[at..]),
        }
    }

    /// Checks all indexes, where there are not too many.
    fn scan(&self) -> Result<(), DataError> {
        let of_one = (self.words * self.element.bytes()) as u64;
        if self.len().saturating_mul(of_one) > SCAN_MAX {
            return Ok(());
        }
        let mut scratch = vec![0; self.words];
        for block in &self.blocks {
            for index in 0..block.samples {
                self.convert(block, index, &mut scratch)?;
            }
        }
        Ok(())
    }
}

/// Checks that the model takes such samples: as they are, with axes of size 1 more or less, or
/// as one flat vector.
pub(super) fn check_shape(what: &str, found: &[u64], model: &[u64]) -> Result<(), DataError> {
    let squeezed =
        |shape: &[u64]| -> Vec<u64> { shape.iter().copied().filter(|&size| size != 1).collect() };
    // Products of a file's sizes may overflow; a wrong shape must be an error, not a panic.
    let flat = match model {
        [elements] => found.iter().try_fold(1u64, |n, &s| n.checked_mul(s)) == Some(*elements),
        _ => false,
    };
    if flat || squeezed(found) == squeezed(model) {
        return Ok(());
    }
    Err(DataError::Shape { what: what.into(), found: found.to_vec(), wanted: model.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_fit_but_for_ones_and_flattening() {
        let fits = |found: &[u64], model: &[u64]| check_shape("f", found, model).is_ok();
        assert!(fits(&[28, 28], &[1, 28, 28]));
        assert!(fits(&[28, 28], &[28, 28]));
        assert!(fits(&[28, 28], &[784]));
        assert!(fits(&[3, 32, 32], &[3, 32, 32]));
        assert!(fits(&[1, 1], &[]));
        assert!(fits(&[], &[1]));
        assert!(!fits(&[28, 28], &[1, 14, 56]));
        assert!(!fits(&[28, 28], &[783]));
        assert!(!fits(&[3, 32, 32], &[32, 32, 3]));
        assert!(!fits(&[28, 28], &[784, 2]));
        assert!(!fits(&[u64::MAX, 2], &[4]));
    }
}
