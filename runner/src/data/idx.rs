//! MNIST's files, the IDX format (Y. LeCun, "The MNIST database of handwritten digits"):
//!
//! ```text
//! images  0: 00 00 08 03   4: count   8: rows   12: columns   16: pixels, a byte each
//! labels  0: 00 00 08 01   4: count   8: labels, a byte each
//! ```
//!
//! Numbers are big-endian. `08` says unsigned bytes, `03` and `01` the number of axes.

use super::DataError;
use super::stored::{Stored, check_labels, check_shape, read};
use std::path::Path;

/// What the errors of this format say about the folder.
const EXPECTED: &str = "a file in MNIST's IDX layout";

/// The splits [train, test] in folder `dir`.
pub(super) fn open(dir: &Path, model: &[u64], classes: u32) -> Result<[Stored; 2], DataError> {
    let train = split(dir, "train", model, classes)?;
    let test = split(dir, "t10k", model, classes)?;
    // A flat model takes 8 x 8 as well as 4 x 16, yet those are no halves of one data set.
    if train.image != test.image {
        let file = dir.join("t10k-images-idx3-ubyte");
        return Err(DataError::Shape {
            file,
            found: test.image.into(),
            wanted: train.image.into(),
        });
    }
    Ok([train.stored, test.stored])
}

struct IdxSplit {
    stored: Stored,
    /// Rows and columns.
    image: [u64; 2],
}

fn split(dir: &Path, name: &str, model: &[u64], classes: u32) -> Result<IdxSplit, DataError> {
    let images = dir.join(format!("{name}-images-idx3-ubyte"));
    let labels = dir.join(format!("{name}-labels-idx1-ubyte"));
    let image_bytes = read(&images, EXPECTED)?;
    let label_bytes = read(&labels, EXPECTED)?;
    parse(&images, image_bytes, &labels, label_bytes, model, classes)
}

/// Joins the two files of a split.
fn parse(
    images: &Path,
    image_bytes: Vec<u8>,
    labels: &Path,
    mut label_bytes: Vec<u8>,
    model: &[u64],
    classes: u32,
) -> Result<IdxSplit, DataError> {
    let [image_count, rows, columns] = header(images, &image_bytes, "images")?;
    let [label_count] = header(labels, &label_bytes, "labels")?;
    if image_count == 0 || rows == 0 || columns == 0 {
        return Err(DataError::Empty { what: images.display().to_string() });
    }
    check_shape(images, &[rows, columns], model)?;
    if image_count != label_count {
        let (images, labels) = (images.into(), labels.into());
        return Err(DataError::Counts { images, image_count, labels, label_count });
    }
    label_bytes.drain(..8);
    check_labels(labels, &label_bytes, classes, |index| 8 + index)?;
    let elements = (rows * columns) as usize;
    let stored =
        Stored { bytes: image_bytes, first: 16, stride: elements, elements, labels: label_bytes };
    Ok(IdxSplit { stored, image: [rows, columns] })
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
    use super::*;
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

    fn load(images: Vec<u8>, labels: Vec<u8>, model: &[u64]) -> Result<Stored, String> {
        parse(Path::new("i"), images, Path::new("l"), labels, model, 10)
            .map(|split| split.stored)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_whole_pair_of_files_is_read() {
        let stored = load(images(3, 2, 2), labels(&[9, 0, 4]), &[1, 2, 2]).unwrap();
        assert_eq!((stored.len(), stored.label(2)), (3, 4));
        let mut out = [0.0; 4];
        stored.write_sample(1, &mut out);
        assert_eq!(out, [4.0 / 255.0, 5.0 / 255.0, 6.0 / 255.0, 7.0 / 255.0]);
    }

    #[test]
    fn every_truncation_is_refused_at_its_end() {
        let (whole_images, whole_labels) = (images(3, 2, 2), labels(&[1, 2, 3]));
        for end in 0..whole_images.len() {
            let error = load(whole_images[..end].into(), whole_labels.clone(), &[4]).unwrap_err();
            assert!(error.starts_with(&format!("i, byte {end}: expected ")), "{error}");
            assert!(error.contains("found the end of the file"), "{error}");
        }
        for end in 0..whole_labels.len() {
            let error = load(whole_images.clone(), whole_labels[..end].into(), &[4]).unwrap_err();
            assert!(error.starts_with(&format!("l, byte {end}: expected ")), "{error}");
        }
    }

    #[test]
    fn errors_say_where_and_what() {
        let fails = |images, labels| load(images, labels, &[2, 2]).unwrap_err();
        let mut long = images(1, 2, 2);
        long.extend([0; 5]);
        assert_eq!(
            fails(long, labels(&[0])),
            "i, byte 20: expected the end of the file after images [1, 2, 2], found 5 more bytes"
        );
        assert_eq!(
            fails(images(2, 2, 2), labels(&[9, 10])),
            "l, byte 9: expected a label below 10, the model's number of classes, found 10"
        );
        assert_eq!(
            fails(labels(&[0]), labels(&[0])),
            "i, byte 0: expected the magic number 0x00000803 of IDX images, \
             found 0x00000801 (IDX labels)"
        );
        assert_eq!(fails(images(1, 2, 2), labels(&[1, 2])), "i holds 1 images, l holds 2 labels");
        assert_eq!(fails(images(0, 2, 2), labels(&[])), "i holds no samples");
        assert_eq!(
            fails(images(1, 1, 4), labels(&[0])),
            "i holds samples of shape [1, 4], the model takes [2, 2]: both must be equal but for \
             axes of size 1, or the model must take 4 flat values"
        );
    }

    #[test]
    fn sizes_that_overflow_are_a_short_file() {
        let mut huge = vec![0, 0, 8, 3];
        huge.extend([0xff; 12]);
        let error = load(huge, labels(&[0]), &[4]).unwrap_err();
        assert!(error.starts_with("i, byte 16: expected 18446744073709551615 bytes"), "{error}");
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(
            mut a in proptest::collection::vec(any::<u8>(), 0..64),
            mut b in proptest::collection::vec(any::<u8>(), 0..64),
            honest_magic: bool,
            small_sizes: bool,
        ) {
            // Half the cases get past the magic number, and some of them past the sizes.
            if honest_magic && a.len() >= 4 && b.len() >= 4 {
                a[..4].copy_from_slice(&[0, 0, 8, 3]);
                b[..4].copy_from_slice(&[0, 0, 8, 1]);
            }
            if small_sizes && a.len() >= 16 && b.len() >= 8 {
                for byte in a[4..16].iter_mut().chain(&mut b[4..8]) {
                    *byte &= 3;
                }
                for at in [4, 5, 6, 8, 9, 10, 12, 13, 14] {
                    a[at] = 0;
                }
                b[4..7].fill(0);
            }
            let _ = load(a, b, &[4]);
        }
    }
}
