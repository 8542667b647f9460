//! The binary versions of CIFAR-10 and CIFAR-100 (A. Krizhevsky, "Learning Multiple Layers of
//! Features from Tiny Images", 2009): files of records without any header.
//!
//! ```text
//! CIFAR-10   0: label                      1: 1024 red pixels, row by row, green, blue
//! CIFAR-100  0: coarse label, 1: fine one  2: the same
//! ```

use super::DataError;
use super::column::{Array, Block};
use super::element::Element;
use super::file::Mapped;
use super::split_part::SplitPart;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Classes of CIFAR-10.
pub(super) const CLASSES_10: u64 = 10;
/// Classes of CIFAR-100: the fine labels.
pub(super) const CLASSES_100: u64 = 100;
/// Channels, rows, columns.
const IMAGE: [u64; 3] = [3, 32, 32];
/// Bytes of one image.
const PIXELS: u64 = 3 * 32 * 32;

/// CIFAR-10's halves [train, test] in folder `dir`.
pub(super) fn open_10(dir: &Path) -> Result<[SplitPart; 2], DataError> {
    let train = half(&training_files(dir)?, dir, 1)?;
    Ok([train, half(&[dir.join("test_batch.bin")], dir, 1)?])
}

/// CIFAR-100's.
pub(super) fn open_100(dir: &Path) -> Result<[SplitPart; 2], DataError> {
    let of = |name| half(&[dir.join(name)], dir, 2);
    Ok([of("train.bin")?, of("test.bin")?])
}

/// Files of training samples as they are published.
pub(super) const FILES: usize = 5;

/// `data_batch_N.bin` in the order of N: however many there are, all ranks agree on the order.
pub(super) fn training_files(dir: &Path) -> Result<Vec<PathBuf>, DataError> {
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
    let whole = (1..).zip(&numbers).find(|(wanted, found)| wanted != *found);
    if let Some((missing, _)) = whole {
        let expected = format!("the batch before data_batch_{}.bin", numbers[numbers.len() - 1]);
        return Err(DataError::Missing {
            path: dir.join(format!("data_batch_{missing}.bin")),
            expected,
        });
    }
    Ok(numbers.iter().map(|n| dir.join(format!("data_batch_{n}.bin"))).collect())
}

/// The N of `data_batch_N.bin`, written as we would write it.
fn batch_number(name: &str) -> Option<u32> {
    let number = name.strip_prefix("data_batch_")?.strip_suffix(".bin")?.parse().ok()?;
    (name == format!("data_batch_{number}.bin")).then_some(number)
}

/// Files whose records begin with `labels` bytes, the last of which is the class.
fn half(files: &[PathBuf], dir: &Path, labels: u64) -> Result<SplitPart, DataError> {
    let stride = labels + PIXELS;
    let mut records = vec![];
    for path in files {
        let file = Mapped::open(path, "CIFAR's binary version")?;
        let spare = file.len() % stride;
        if spare != 0 {
            return Err(DataError::Format {
                file: path.into(),
                offset: file.len() - spare,
                expected: format!("a record of {stride} bytes"),
                found: format!("{spare} bytes until the end of the file"),
            });
        }
        if file.bytes().is_empty() {
            return Err(DataError::Empty { what: path.display().to_string() });
        }
        records.push(file);
    }
    let array = |first, shape: &[u64]| Array {
        what: dir.display().to_string(),
        blocks: records.iter().map(|file| block(file, first, stride)).collect(),
        element: Element::U8,
        shape: shape.to_vec(),
        classes: Some(if labels == 1 { CLASSES_10 } else { CLASSES_100 }),
    };
    Ok(SplitPart { x: array(labels, &IMAGE), y: Some(array(labels - 1, &[])) })
}

fn block(file: &Arc<Mapped>, first: u64, stride: u64) -> Block {
    Block { samples: file.len() / stride, file: Arc::clone(file), first, stride }
}

#[cfg(test)]
mod tests {
    use super::super::open;
    use super::super::tests::{Folder, classes, error, values};
    use super::*;
    use pipewright_core::plan::Data;

    const RECORD: usize = 1 + PIXELS as usize;

    fn records(labels: &[&[u8]]) -> Vec<u8> {
        let mut bytes = vec![];
        for of_one in labels {
            bytes.extend_from_slice(of_one);
            bytes.extend([of_one[of_one.len() - 1] * 20; PIXELS as usize]);
        }
        bytes
    }

    #[test]
    fn truncation_names_the_broken_record() {
        let folder = Folder::new("cifar-cut");
        let file = folder.path("test_batch.bin");
        let whole = records(&[&[1], &[2]]);
        folder.write("data_batch_1.bin", &whole);
        let data = Data::Cifar10 { dir: folder.text() };
        let check = |end: usize| {
            folder.write("test_batch.bin", &whole[..end]);
            open(&data, &classes(&IMAGE, 10), 0).map_err(|error| error.to_string())
        };
        assert_eq!(check(whole.len()).unwrap().test.len(), 2);
        assert_eq!(check(RECORD).unwrap().test.len(), 1, "no header can tell a missing record");
        assert_eq!(check(0).unwrap_err(), format!("{file} holds no samples"));
        for end in (2..whole.len()).step_by(64).chain([1, RECORD - 1, RECORD + 1]) {
            let (start, spare) = (end / RECORD * RECORD, end % RECORD);
            let expected = format!(
                "{file}, byte {start}: expected a record of 3073 bytes, \
                 found {spare} bytes until the end of the file"
            );
            assert_eq!(check(end).unwrap_err(), expected);
        }
    }

    #[test]
    fn a_label_out_of_range_is_found_at_its_byte() {
        let folder = Folder::new("cifar-label");
        folder.write("data_batch_1.bin", &records(&[&[0], &[9], &[10]]));
        folder.write("test_batch.bin", &records(&[&[0]]));
        let text = error(&Data::Cifar10 { dir: folder.text() }, &classes(&IMAGE, 10));
        assert!(text.contains("data_batch_1.bin, byte 6146: expected a label below 10"), "{text}");
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

    #[test]
    fn batches_are_joined_in_numerical_order() {
        let folder = Folder::new("cifar");
        for (number, labels) in (1..=10).map(|n: u8| (n, [n % 10])) {
            folder.write(&format!("data_batch_{number}.bin"), &records(&[&labels]));
        }
        folder.write("data_batch_2.bin", &records(&[&[3], &[5]]));
        folder.write("test_batch.bin", &records(&[&[7]]));
        let data = Data::Cifar10 { dir: folder.text() };
        let set = open(&data, &classes(&IMAGE, 10), 0).unwrap();
        assert_eq!([0, 1, 2, 3, 10].map(|i| set.train.label(i)), [1, 3, 5, 3, 0]);
        assert!(values(&set.train, 2).iter().all(|&v| v == 100.0 / 255.0));
        assert_eq!((set.test.len(), set.test.label(0)), (1, 7));
        let text = error(&data, &classes(&[32, 32, 3], 10));
        assert!(text.contains("the model takes [32, 32, 3]"), "{text}");
        fs::remove_file(folder.path("data_batch_3.bin")).unwrap();
        let text = error(&data, &classes(&IMAGE, 10));
        assert!(text.contains("data_batch_3.bin: not found; expected the batch before"), "{text}");
        folder.write("data_batch_3.bin", &records(&[&[3]]));
        fs::remove_file(folder.path("test_batch.bin")).unwrap();
        let text = error(&data, &classes(&[3072], 10));
        assert!(text.contains("test_batch.bin: not found"), "{text}");
    }

    #[test]
    fn the_classes_of_cifar_100_are_the_fine_labels() {
        let folder = Folder::new("cifar-100");
        folder.write("train.bin", &records(&[&[11, 3], &[2, 9]]));
        folder.write("test.bin", &records(&[&[0, 4]]));
        let data = Data::Cifar100 { dir: folder.text() };
        let set = open(&data, &classes(&IMAGE, 100), 0).unwrap();
        assert_eq!((set.train.len(), set.train.label(0), set.train.label(1)), (2, 3, 9));
        assert!(values(&set.test, 0).iter().all(|&v| v == 80.0 / 255.0));
        folder.write("test.bin", &records(&[&[4]]));
        let text = error(&data, &classes(&IMAGE, 100));
        assert!(text.contains("test.bin, byte 0: expected a record of 3074 bytes"), "{text}");
    }
}
