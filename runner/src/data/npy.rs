//! NumPy's `.npy` files (NEP 1): `x.npy` and `y.npy`, whose first axis counts the samples, and
//! perhaps `x_test.npy` and `y_test.npy`.
//!
//! ```text
//! 0: 93 "NUMPY"  6: version  8: header length (2 bytes, from version 2 on 4)
//! then the header, a dictionary in Python's notation:
//! {'descr': '<f4', 'fortran_order': False, 'shape': (60000, 784), }
//! then the numbers
//! ```

use super::column::{Array, Block};
use super::element::Element;
use super::file::Mapped;
use super::split_part::SplitPart;
use super::{DataError, Targets};
use std::path::Path;

/// Longer headers belong to structured arrays.
const HEADER_MAX: u64 = 1 << 16;

/// The halves of a folder; the second one where it is there. Without targets also a file of samples.
pub(super) fn open(
    dir: &Path,
    targets: Targets,
) -> Result<(SplitPart, Option<SplitPart>), DataError> {
    if targets == Targets::Unwanted && dir.is_file() {
        return Ok((SplitPart { x: array(dir)?, y: None }, None));
    }
    let half = |x: &str, y: &str| {
        let x = array(&dir.join(x))?;
        Ok(SplitPart { x, y: targets.find(|| array(&dir.join(y)))? })
    };
    let train = half("x.npy", "y.npy")?;
    let exists = |name: &str| dir.join(name).exists();
    let test = exists("x_test.npy") || targets == Targets::Wanted && exists("y_test.npy");
    Ok((train, test.then(|| half("x_test.npy", "y_test.npy")).transpose()?))
}

fn array(path: &Path) -> Result<Array, DataError> {
    let file = Mapped::open(path, "a NumPy array")?;
    let refuse = |offset: u64, expected: String, found: String| DataError::Format {
        file: path.into(),
        offset,
        expected,
        found,
    };
    let (start, first) = header_range(path, file.bytes())?;
    let text = String::from_utf8_lossy(&file.bytes()[start as usize..first as usize]);
    let header = parse(&text).map_err(|(expected, found)| refuse(start, expected, found))?;
    let [samples, shape @ ..] = header.shape.as_slice() else {
        let expected = "an array whose first axis counts the samples".into();
        return Err(refuse(start, expected, "a single number".into()));
    };
    // Sizes may be anything in a damaged file.
    let width = header.element.bytes() as u64;
    let stride = shape.iter().fold(width, |n, size| n.saturating_mul(*size));
    let (wanted, payload) = (stride.saturating_mul(*samples), file.len() - first);
    if payload < wanted {
        let expected = format!("{wanted} bytes of {:?} from byte {first}", header.shape);
        return Err(refuse(file.len(), expected, format!("the end of the file after {payload}")));
    }
    if payload > wanted {
        let expected = format!("the end of the file after {:?}", header.shape);
        return Err(refuse(first + wanted, expected, format!("{} more bytes", payload - wanted)));
    }
    let (samples, shape) = (*samples, shape.to_vec());
    let what = path.display().to_string();
    let blocks = vec![Block { file, first, stride, samples }];
    Ok(Array { what, blocks, element: header.element, shape, classes: None })
}

/// Where the header's text begins and where it ends.
fn header_range(path: &Path, bytes: &[u8]) -> Result<(u64, u64), DataError> {
    let refuse = |offset: u64, expected: &str, found: String| {
        Err(DataError::Format { file: path.into(), offset, expected: expected.into(), found })
    };
    let end = bytes.len() as u64;
    if !bytes.starts_with(b"\x93NUMPY") {
        let first = &bytes[..bytes.len().min(6)];
        return refuse(0, "the bytes 93 \"NUMPY\" of a NumPy array", format!("{first:02x?}"));
    }
    let (start, length) = match bytes[6..] {
        [1, _, a, b, ..] => (10, u64::from(u16::from_le_bytes([a, b]))),
        [2 | 3, _, a, b, c, d, ..] => (12, u64::from(u32::from_le_bytes([a, b, c, d]))),
        [version, ..] if !(1..=3).contains(&version) => {
            return refuse(6, "version 1, 2 or 3 of the format", version.to_string());
        }
        _ => return refuse(end, "the length of the header", "the end of the file".into()),
    };
    if length > HEADER_MAX {
        return refuse(8, "a header of at most 64 KiB", format!("{length} bytes"));
    }
    if start + length > end {
        return refuse(end, "the whole header", "the end of the file".into());
    }
    Ok((start, start + length))
}

#[derive(Debug, PartialEq)]
struct Header {
    element: Element,
    shape: Vec<u64>,
}

/// Reads the dictionary; an error is what was expected and what was found.
fn parse(text: &str) -> Result<Header, (String, String)> {
    let value = |key: &str| -> Result<&str, (String, String)> {
        let at = [format!("'{key}':"), format!("\"{key}\":")]
            .iter()
            .find_map(|key| Some(text.find(key.as_str())? + key.len()));
        at.map(|at| text[at..].trim_start())
            .ok_or_else(|| (format!("`{key}` in the header"), text.trim_end().into()))
    };
    let order = value("fortran_order")?;
    if !order.starts_with("False") {
        let expected = "rows one after the other ('fortran_order': False); save the array with \
                        numpy.ascontiguousarray";
        return Err((expected.into(), order.chars().take(8).collect()));
    }
    let descr = value("descr")?;
    let name: String = descr.chars().skip(1).take_while(|c| !matches!(c, '\'' | '"')).collect();
    let element = element(&name).ok_or_else(|| {
        let expected = "'descr' of little-endian numbers: '<f4', '<f8', '|u1', '<i4', '<i8' or so";
        (expected.to_owned(), descr.chars().take(24).collect::<String>())
    })?;
    let shape = value("shape")?;
    let wrong = || ("'shape' as (4, 3)".to_owned(), shape.trim_end().to_owned());
    let inner = shape.strip_prefix('(').and_then(|s| s.split_once(')')).ok_or_else(wrong)?.0;
    let sizes = inner.split(',').map(str::trim).filter(|size| !size.is_empty());
    let shape = sizes.map(|size| size.parse().map_err(|_| wrong())).collect::<Result<_, _>>()?;
    Ok(Header { element, shape })
}

fn element(descr: &str) -> Option<Element> {
    Some(match descr {
        "|u1" | "<u1" => Element::U8,
        "|i1" | "<i1" => Element::I8,
        "<u2" => Element::U16,
        "<i2" => Element::I16,
        "<u4" => Element::U32,
        "<i4" => Element::I32,
        "<u8" => Element::U64,
        "<i8" => Element::I64,
        "<f2" => Element::F16,
        "<f4" => Element::F32,
        "<f8" => Element::F64,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::open;
    use super::super::tests::{Folder, classes, error, language, target, tokens, values};
    use super::*;
    use pipewright_core::plan::Data;
    use proptest::prelude::*;

    /// As `numpy.save` writes it: the header padded so that the numbers begin at a multiple of 64.
    fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
        let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
        let length = (10 + text.len() + 1).next_multiple_of(64) - 10;
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((length as u16).to_le_bytes());
        bytes.extend(format!("{text:<width$}\n", width = length - 1).bytes());
        bytes.extend(data);
        bytes
    }

    fn floats(values: &[f64]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    #[test]
    fn arrays_of_two_types() {
        let folder = Folder::new("npy");
        folder.write("x.npy", &npy("<f8", "(2, 3)", &floats(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])));
        folder.write("y.npy", &npy("|u1", "(2,)", &[1, 0]));
        let data = Data::Npy { dir: folder.text() };
        let set = open(&data, &classes(&[3], 2), 0).unwrap();
        assert_eq!((set.train.len(), set.test.len()), (2, 0));
        assert_eq!((values(&set.train, 1), set.train.label(0)), (vec![4.0, 5.0, 6.0], 1));
        folder.write("x_test.npy", &npy("|u1", "(1, 3)", &[0, 51, 255]));
        let text = error(&data, &classes(&[3], 2));
        assert!(text.contains("y_test.npy: not found; expected a NumPy array"), "{text}");
        folder.write("y_test.npy", &npy("<i8", "(1,)", &1i64.to_le_bytes()));
        let set = open(&data, &classes(&[3], 2), 0).unwrap();
        assert_eq!((values(&set.test, 0), set.test.label(0)), (vec![0.0, 0.2, 1.0], 1));
    }

    #[test]
    fn tokens_and_a_class_for_each() {
        let folder = Folder::new("npy-tokens");
        let ints = |v: &[i32]| -> Vec<u8> { v.iter().flat_map(|v| v.to_le_bytes()).collect() };
        folder.write("x.npy", &npy("<i4", "(2, 2)", &ints(&[1, 2, 3, 4])));
        folder.write("y.npy", &npy("<i4", "(2, 2)", &ints(&[2, 3, 4, 5])));
        let data = Data::Npy { dir: folder.text() };
        let set = open(&data, &language(2, 6), 0).unwrap();
        assert_eq!((tokens(&set.train, 1), target(&set.train, 0)), (vec![3, 4], vec![2, 3]));
        let text = error(&data, &language(2, 5));
        assert!(text.contains("y.npy, byte 140: expected a label below 5"), "{text}");
        folder.write("x.npy", &npy("<f4", "(2, 2)", &[0; 16]));
        let text = error(&data, &language(2, 6));
        assert!(text.ends_with("holds fractions, the model takes 2 tokens below 6"), "{text}");
    }

    #[test]
    fn what_is_wrong_is_said() {
        let folder = Folder::new("bad-npy");
        folder.write("y.npy", &npy("|u1", "(2,)", &[1, 0]));
        let fails = |x: &[u8]| {
            folder.write("x.npy", x);
            error(&Data::Npy { dir: folder.text() }, &classes(&[3], 2))
        };
        let good = npy("|u1", "(2, 3)", &[0; 6]);
        for end in 0..good.len() {
            let text = fails(&good[..end]);
            assert!(text.contains("x.npy, byte ") && text.contains(": expected "), "{text}");
        }
        let mut long = good.clone();
        long.push(0);
        assert!(
            fails(&long).ends_with("expected the end of the file after [2, 3], found 1 more bytes")
        );
        assert!(fails(&npy(">f4", "(2, 3)", &[0; 24])).contains("found '>f4'"));
        assert!(fails(&npy("|O", "(2, 3)", &[0; 24])).contains("found '|O'"));
        assert!(fails(&npy("|u1", "(2, -3)", &[0; 6])).contains("expected 'shape' as (4, 3)"));
        assert!(fails(&npy("|u1", "()", &[0])).contains("found a single number"));
        let text = fails(&npy("<f8", "(99999999999, 99999999999)", &[0; 6]));
        assert!(text.contains("expected 18446744073709551615 bytes"), "{text}");
        let fortran = String::from_utf8_lossy(&good[10..]).replace("False", "True ");
        let mut bytes = good[..10].to_vec();
        bytes.extend(fortran.bytes());
        assert!(fails(&bytes).contains("numpy.ascontiguousarray"), "{}", fails(&bytes));
        assert!(fails(b"\x93NUMPY\x09\x00....").contains("byte 6: expected version 1, 2 or 3"));
    }

    proptest! {
        #[test]
        fn damaged_headers_never_panic(text in "[{}'a-z_:(), 0-9<|]{0,80}", at in 0usize..90, with: u8) {
            let _ = parse(&text);
            let mut bytes = npy("<f4", "(2, 3)", &[0; 24]);
            bytes[at] = with;
            if let Ok((start, end)) = header_range(Path::new("x"), &bytes) {
                let _ = parse(&String::from_utf8_lossy(&bytes[start as usize..end as usize]));
            }
        }
    }
}
