//! CIFAR-10's binary version (A. Krizhevsky, "Learning Multiple Layers of Features from Tiny
//! Images", 2009): files of records without any header.
//!
//! ```text
//! record  0: label   1: 1024 red pixels, row by row   1025: green   2049: blue   3073: the next
//! ```

use super::DataError;
use super::stored::{Stored, check_labels, check_shape, read};
use std::fs;
use std::path::{Path, PathBuf};

/// Channels, rows, columns.
const IMAGE: [u64; 3] = [3, 32, 32];
/// Bytes of one image.
const PIXELS: usize = 3 * 32 * 32;
/// Bytes of one label and its image.
const RECORD: usize = 1 + PIXELS;

/// The splits [train, test] in folder `dir`.
pub(super) fn open(dir: &Path, model: &[u64], classes: u32) -> Result<[Stored; 2], DataError> {
    check_shape(dir, &IMAGE, model)?;
    let train = load(&training_files(dir)?, classes)?;
    let test = load(&[dir.join("test_batch.bin")], classes)?;
    Ok([train, test])
}

/// `data_batch_N.bin` in the order of N: however many there are, all ranks agree on the order.
fn training_files(dir: &Path) -> Result<Vec<PathBuf>, DataError> {
    let io = |source| DataError::Io { path: dir.into(), source };
    if !dir.exists() {
        return Err(DataError::Missing { path: dir.into(), expected: "a folder".into() });
    }
    let mut numbers: Vec<u32> = vec![];
    for entry in fs::read_dir(dir).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        let number = name.to_str().and_then(batch_number);
        numbers.extend(number);
    }
    numbers.sort_unstable();
    if numbers.is_empty() {
        let unpacked = dir.join("cifar-10-batches-bin");
        let hint = if unpacked.exists() {
            format!("; they may be in {}", unpacked.display())
        } else {
            String::new()
        };
        let expected = format!("CIFAR-10's binary version, data_batch_1.bin and so on{hint}");
        return Err(DataError::Missing { path: dir.join("data_batch_1.bin"), expected });
    }
    Ok(numbers.iter().map(|n| dir.join(format!("data_batch_{n}.bin"))).collect())
}

/// The N of `data_batch_N.bin`, written as we would write it.
fn batch_number(name: &str) -> Option<u32> {
    let number = name.strip_prefix("data_batch_")?.strip_suffix(".bin")?.parse().ok()?;
    (name == format!("data_batch_{number}.bin")).then_some(number)
}

fn load(files: &[PathBuf], classes: u32) -> Result<Stored, DataError> {
    let mut bytes = vec![];
    let mut labels = vec![];
    for file in files {
        let part = read(file, "CIFAR-10's binary version")?;
        labels.extend(file_labels(file, &part, classes)?);
        // The first file becomes the buffer; the others are appended, one at a time in memory.
        if bytes.is_empty() {
            bytes = part;
        } else {
            bytes.extend(part);
        }
    }
    Ok(Stored { bytes, first: 1, stride: RECORD, elements: PIXELS, labels })
}

/// Checks one file and returns its labels.
fn file_labels(file: &Path, bytes: &[u8], classes: u32) -> Result<Vec<u8>, DataError> {
    let spare = bytes.len() % RECORD;
    if spare != 0 {
        return Err(DataError::Format {
            file: file.into(),
            offset: (bytes.len() - spare) as u64,
            expected: format!("a record of {RECORD} bytes"),
            found: format!("{spare} bytes until the end of the file"),
        });
    }
    if bytes.is_empty() {
        return Err(DataError::Empty { what: file.display().to_string() });
    }
    let labels: Vec<u8> = bytes.iter().copied().step_by(RECORD).collect();
    check_labels(file, &labels, classes, |index| index * RECORD as u64)?;
    Ok(labels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn records(labels: &[u8]) -> Vec<u8> {
        labels
            .iter()
            .flat_map(|&l| std::iter::once(l).chain((0..PIXELS).map(|i| i as u8)))
            .collect()
    }

    fn check(bytes: &[u8]) -> Result<Vec<u8>, String> {
        file_labels(Path::new("b"), bytes, 10).map_err(|error| error.to_string())
    }

    #[test]
    fn truncation_at_every_byte_names_the_broken_record() {
        let whole = records(&[1, 2]);
        assert_eq!(check(&whole).unwrap(), [1, 2]);
        assert_eq!(check(&whole[..RECORD]).unwrap(), [1], "no header can tell a missing record");
        assert_eq!(check(&[]).unwrap_err(), "b holds no samples");
        for end in (1..whole.len()).filter(|&end| end != RECORD) {
            let (start, spare) = (end / RECORD * RECORD, end % RECORD);
            let expected = format!(
                "b, byte {start}: expected a record of 3073 bytes, \
                 found {spare} bytes until the end of the file"
            );
            assert_eq!(check(&whole[..end]).unwrap_err(), expected);
        }
    }

    #[test]
    fn a_label_out_of_range_is_found_at_its_byte() {
        let error = check(&records(&[0, 9, 10])).unwrap_err();
        assert!(error.starts_with("b, byte 6146: expected a label below 10"), "{error}");
    }

    #[test]
    fn batch_files_are_those_with_plain_numbers() {
        assert_eq!(batch_number("data_batch_10.bin"), Some(10));
        for name in
            ["data_batch_.bin", "data_batch_01.bin", "data_batch_1.bin.gz", "test_batch.bin"]
        {
            assert_eq!(batch_number(name), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(
            records in 0usize..3, spare in 0usize..RECORD, whole: bool, fill: u8,
        ) {
            let _ = check(&vec![fill; records * RECORD + if whole { 0 } else { spare }]);
        }
    }
}
