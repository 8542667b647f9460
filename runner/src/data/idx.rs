//! MNIST's files, the IDX format (Y. LeCun, "The MNIST database of handwritten digits"):
//!
//! ```text
//! images  0: 00 00 08 03   4: count   8: rows   12: columns   16: pixels, a byte each
//! labels  0: 00 00 08 01   4: count   8: labels, a byte each
//! ```
//!
//! Numbers are big-endian. `08` says unsigned bytes, `03` and `01` the number of axes.

use super::column::{Array, Block};
use super::element::Element;
use super::file::Mapped;
use super::split_part::SplitPart;
use super::{DataError, Targets};
use std::path::Path;

/// What the errors of this format say about the folder.
const EXPECTED: &str = "a file in MNIST's IDX layout";

/// The halves [train, test] in folder `dir`.
pub(super) fn open(dir: &Path, targets: Targets) -> Result<[SplitPart; 2], DataError> {
    Ok([half(dir, "train", targets)?, half(dir, "t10k", targets)?])
}

fn half(dir: &Path, name: &str, targets: Targets) -> Result<SplitPart, DataError> {
    let images = dir.join(format!("{name}-images-idx3-ubyte"));
    let labels = dir.join(format!("{name}-labels-idx1-ubyte"));
    let x = array::<3>(&images, "images")?;
    Ok(SplitPart { x, y: targets.find(|| array::<1>(&labels, "labels"))? })
}

/// An IDX file with `AXES` axes, the first of which counts the samples.
fn array<const AXES: usize>(path: &Path, what: &str) -> Result<Array, DataError> {
    let file = Mapped::open(path, EXPECTED)?;
    let sizes: [u64; AXES] = header(path, file.bytes(), what)?;
    let stride = sizes[1..].iter().product();
    let block = Block { file, first: 4 + 4 * AXES as u64, stride, samples: sizes[0] };
    Ok(Array {
        what: path.display().to_string(),
        blocks: vec![block],
        element: Element::U8,
        shape: sizes[1..].to_vec(),
        classes: None,
    })
}

/// Reads the `AXES` sizes and checks that they account for every byte of the file.
fn header<const AXES: usize>(
    file: &Path,
    bytes: &[u8],
    what: &str,
) -> Result<[u64; AXES], DataError> {
    let refuse = |offset: usize, expected: String, found: String| {
        Err(DataError::Format { file: file.into(), offset: offset as u64, expected, found })
    };
    let word = |at: usize| -> Option<u32> {
        Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
    };
    let magic = 0x0800 + AXES as u32;
    match word(0) {
        Some(found) if found == magic => {}
        Some(found) => {
            let expected = format!("the magic number {magic:#010x} of IDX {what}");
            return refuse(0, expected, format!("{found:#010x}{}", guess(found)));
        }
        None => {
            let expected = format!("the 4 bytes of the magic number {magic:#010x}");
            return refuse(bytes.len(), expected, "the end of the file".into());
        }
    }
    let mut sizes = [0; AXES];
    for (axis, size) in sizes.iter_mut().enumerate() {
        let at = 4 + 4 * axis;
        match word(at) {
            Some(found) => *size = u64::from(found),
            None => {
                let expected = format!("a size of 4 bytes at {at}");
                return refuse(bytes.len(), expected, "the end of the file".into());
            }
        }
    }
    let start = 4 + 4 * AXES;
    let payload = (bytes.len() - start) as u64;
    // Three 32-bit sizes can exceed 64 bits together; no file can.
    let wanted = sizes.iter().try_fold(1u64, |n, &size| n.checked_mul(size)).unwrap_or(u64::MAX);
    if payload < wanted {
        let expected = format!("{wanted} bytes of {what} {sizes:?} from byte {start}");
        return refuse(bytes.len(), expected, format!("the end of the file after {payload}"));
    }
    if payload > wanted {
        let expected = format!("the end of the file after {what} {sizes:?}");
        let extra = payload - wanted;
        return refuse(start + wanted as usize, expected, format!("{extra} more bytes"));
    }
    Ok(sizes)
}

/// What a wrong magic number probably is.
fn guess(magic: u32) -> &'static str {
    match magic {
        0x0801 => " (IDX labels)",
        0x0803 => " (IDX images)",
        0x0108_0000 | 0x0308_0000 => " (IDX with its bytes swapped)",
        _ if magic >> 16 == 0x1f8b => " (a gzip file: unpack it)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Folder, classes, values};
    use super::super::{DataSet, open};
    use super::*;
    use pipewright_core::plan::Data;
    use proptest::prelude::*;

    fn images(count: u32, rows: u32, columns: u32) -> Vec<u8> {
        let mut bytes = vec![0, 0, 8, 3];
        for size in [count, rows, columns] {
            bytes.extend(size.to_be_bytes());
        }
        bytes.extend((0..count * rows * columns).map(|i| i as u8));
        bytes
    }

    fn labels(of: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0, 0, 8, 1];
        bytes.extend((of.len() as u32).to_be_bytes());
        bytes.extend(of);
        bytes
    }

    /// Opens both files as both halves; paths in errors lose the folder.
    fn load(images: &[u8], labels: &[u8], model: &[u64]) -> Result<DataSet, String> {
        let folder = Folder::new("idx");
        for half in ["train", "t10k"] {
            folder.write(&format!("{half}-images-idx3-ubyte"), images);
            folder.write(&format!("{half}-labels-idx1-ubyte"), labels);
        }
        let short = |text: String| {
            let text = text.replace(&format!("{}/", folder.text()), "");
            text.replace("train-images-idx3-ubyte", "i").replace("train-labels-idx1-ubyte", "l")
        };
        open(&Data::Idx { dir: folder.text() }, &classes(model, 10), 0)
            .map_err(|error| short(error.to_string()))
    }

    #[test]
    fn a_whole_pair_of_files_is_read() {
        let set = load(&images(3, 2, 2), &labels(&[9, 0, 4]), &[1, 2, 2]).unwrap();
        assert_eq!((set.train.len(), set.train.label(2)), (3, 4));
        assert_eq!(values(&set.train, 1), [4.0 / 255.0, 5.0 / 255.0, 6.0 / 255.0, 7.0 / 255.0]);
    }

    #[test]
    fn every_truncation_is_refused_at_its_end() {
        let (whole_images, whole_labels) = (images(3, 2, 2), labels(&[1, 2, 3]));
        for end in 0..whole_images.len() {
            let error = load(&whole_images[..end], &whole_labels, &[4]).unwrap_err();
            assert!(error.starts_with(&format!("i, byte {end}: expected ")), "{error}");
            assert!(error.contains("found the end of the file"), "{error}");
        }
        for end in 0..whole_labels.len() {
            let error = load(&whole_images, &whole_labels[..end], &[4]).unwrap_err();
            assert!(error.starts_with(&format!("l, byte {end}: expected ")), "{error}");
        }
    }

    #[test]
    fn errors_say_where_and_what() {
        let fails = |images: &[u8], labels: &[u8]| load(images, labels, &[2, 2]).unwrap_err();
        let mut long = images(1, 2, 2);
        long.extend([0; 5]);
        assert_eq!(
            fails(&long, &labels(&[0])),
            "i, byte 20: expected the end of the file after images [1, 2, 2], found 5 more bytes"
        );
        assert_eq!(
            fails(&images(2, 2, 2), &labels(&[9, 10])),
            "l, byte 9: expected a label below 10, the model's number of classes, found 10"
        );
        assert_eq!(
            fails(&labels(&[0]), &labels(&[0])),
            "i, byte 0: expected the magic number 0x00000803 of IDX images, \
             found 0x00000801 (IDX labels)"
        );
        assert_eq!(
            fails(&images(1, 2, 2), &labels(&[1, 2])),
            "i holds 1 samples, l holds 2 targets"
        );
        assert_eq!(fails(&images(0, 2, 2), &labels(&[])), "i holds no samples");
        assert_eq!(
            fails(&images(1, 1, 4), &labels(&[0])),
            "i holds samples of shape [1, 4], the model takes [2, 2]: both must be equal but for \
             axes of size 1, or the model must take 4 flat values"
        );
    }

    #[test]
    fn sizes_that_overflow_are_a_short_file() {
        let mut huge = vec![0, 0, 8, 3];
        huge.extend([0xff; 12]);
        let error = load(&huge, &labels(&[0]), &[4]).unwrap_err();
        assert!(error.starts_with("i, byte 16: expected 18446744073709551615 bytes"), "{error}");
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = header::<3>(Path::new("i"), &bytes, "images");
            let _ = header::<1>(Path::new("l"), &bytes, "labels");
        }
    }
}
