//! Images kept as the bytes of their files, and the checks that all formats share.

use super::DataError;
use std::fs;
use std::io;
use std::path::Path;

/// One split of a data set in files: a byte a pixel, a byte a label.
#[derive(Debug)]
pub(super) struct Stored {
    /// The image file as it was read; not copied, since it may be large.
    pub bytes: Vec<u8>,
    /// Byte where the first image begins.
    pub first: usize,
    /// Bytes from one image to the next.
    pub stride: usize,
    /// Values of one image.
    pub elements: usize,
    /// Class of each image.
    pub labels: Vec<u8>,
}

impl Stored {
    pub(super) fn len(&self) -> u64 {
        self.labels.len() as u64
    }

    pub(super) fn label(&self, index: u64) -> u32 {
        u32::from(self.labels[index as usize])
    }

    pub(super) fn write_sample(&self, index: u64, out: &mut [f32]) {
        assert_eq!(out.len(), self.elements, "length of a sample");
        let image = &self.bytes[self.first + index as usize * self.stride..][..self.elements];
        for (value, &pixel) in out.iter_mut().zip(image) {
            // A division, not a product with 1/255: 255 becomes exactly 1, as in torchvision.
            *value = f32::from(pixel) / 255.0;
        }
    }
}

/// Reads a whole file. `expected` completes "not found; expected ..".
pub(super) fn read(path: &Path, expected: &str) -> Result<Vec<u8>, DataError> {
    fs::read(path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => missing(path, expected),
        _ => DataError::Io { path: path.into(), source },
    })
}

/// The error for a file that is not there; tells a missing folder and a packed file apart.
fn missing(path: &Path, expected: &str) -> DataError {
    if let Some(dir) = path.parent()
        && !dir.as_os_str().is_empty()
        && !dir.exists()
    {
        return DataError::Missing { path: dir.into(), expected: "a folder".into() };
    }
    let mut packed = path.as_os_str().to_owned();
    packed.push(".gz");
    let hint =
        if Path::new(&packed).exists() { "; unpack the .gz beside it: gunzip -k" } else { "" };
    DataError::Missing { path: path.into(), expected: format!("{expected}{hint}") }
}

/// Checks that the labels are classes of the model. `offset` gives a label's place in `file`.
pub(super) fn check_labels(
    file: &Path,
    labels: &[u8],
    classes: u32,
    offset: impl Fn(u64) -> u64,
) -> Result<(), DataError> {
    match labels.iter().position(|&label| u32::from(label) >= classes) {
        None => Ok(()),
        Some(index) => Err(DataError::Format {
            file: file.into(),
            offset: offset(index as u64),
            expected: format!("a label below {classes}, the model's number of classes"),
            found: labels[index].to_string(),
        }),
    }
}

/// Checks that the model takes such images: as they are, with axes of size 1 more or less, or
/// as one flat vector.
pub(super) fn check_shape(file: &Path, found: &[u64], model: &[u64]) -> Result<(), DataError> {
    let squeezed =
        |shape: &[u64]| -> Vec<u64> { shape.iter().copied().filter(|&size| size != 1).collect() };
    // Products of a plan's sizes may overflow; a wrong shape must be an error, not a panic.
    let flat = match model {
        [elements] => found.iter().try_fold(1u64, |n, &s| n.checked_mul(s)) == Some(*elements),
        _ => false,
    };
    if flat || squeezed(found) == squeezed(model) {
        return Ok(());
    }
    Err(DataError::Shape { file: file.into(), found: found.to_vec(), wanted: model.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_fit_but_for_ones_and_flattening() {
        let fits = |found: &[u64], model: &[u64]| check_shape(Path::new("f"), found, model).is_ok();
        assert!(fits(&[28, 28], &[1, 28, 28]));
        assert!(fits(&[28, 28], &[28, 28]));
        assert!(fits(&[28, 28], &[784]));
        assert!(fits(&[3, 32, 32], &[3, 32, 32]));
        assert!(fits(&[1, 1], &[]));
        assert!(!fits(&[28, 28], &[1, 14, 56]));
        assert!(!fits(&[28, 28], &[783]));
        assert!(!fits(&[3, 32, 32], &[32, 32, 3]));
        assert!(!fits(&[28, 28], &[784, 2]));
    }
}
