//! Files of tensors damaged by a seed, the same ones every time: an error or a file, never a panic, and no
//! more read than it has.

use crate::common::scratch;
use pipewright_runner::data::draw;
use pipewright_runner::tensor_file::TensorFile;
use safetensors::tensor::{Dtype, TensorView, serialize};

/// Numbers that end arithmetic that did not expect them.
const NUMBERS: [&str; 8] =
    ["0", "-1", "1e300", "4294967296", "9223372036854775807", "18446744073709551615", "NaN", "[]"];

/// A file with damage `round`: a byte changed, cut off, a number in its header that nobody writes, or a
/// length of the header.
fn damaged(whole: &[u8], round: u64) -> Vec<u8> {
    let pick = |what: u64, limit: usize| (draw(41, 100 * round + what) * limit as f64) as usize;
    let mut bytes = whole.to_vec();
    for kind in 0..1 + pick(0, 3) as u64 {
        let at = pick(10 + kind, bytes.len());
        match pick(20 + kind, 5) {
            0 => bytes.truncate(at),
            1 if bytes.len() >= 8 => {
                let length = [u64::MAX, 1 << 40, 0, 2, bytes.len() as u64][pick(30 + kind, 5)];
                bytes[..8].copy_from_slice(&length.to_le_bytes());
            }
            2 | 3 => {
                let digits: Vec<usize> =
                    (8..bytes.len()).filter(|at| bytes[*at].is_ascii_digit()).collect();
                let Some(start) = digits.get(pick(40 + kind, digits.len())).copied() else {
                    continue;
                };
                let number = NUMBERS[pick(50 + kind, NUMBERS.len())].bytes();
                bytes.splice(start..=start, number);
                // The header stays as long as it says, so that it is read.
                if bytes.len() >= 8 {
                    let length = u64::from_le_bytes(whole[..8].try_into().unwrap());
                    let longer = (bytes.len() as u64).wrapping_sub(whole.len() as u64);
                    bytes[..8].copy_from_slice(&length.wrapping_add(longer).to_le_bytes());
                }
            }
            _ if at < bytes.len() => bytes[at] ^= 1 << pick(60 + kind, 8),
            _ => {}
        }
    }
    bytes
}

#[test]
fn files_of_tensors() {
    let path = scratch("mutated").join("t.safetensors");
    let values: Vec<u8> = (0..24u32).flat_map(|n| (n as f32).to_le_bytes()).collect();
    let view = |shape: &[usize], bytes| TensorView::new(Dtype::F32, shape.to_vec(), bytes).unwrap();
    let tensors =
        [("fc.weight", view(&[4, 4], &values[..64])), ("fc.bias", view(&[8], &values[64..]))];
    let whole = serialize(tensors, None).unwrap();
    let mut opened = 0;
    for round in 0..1500 {
        std::fs::write(&path, damaged(&whole, round)).unwrap();
        match TensorFile::open(&path) {
            Err(error) => assert!(!error.to_string().is_empty()),
            Ok(file) => {
                opened += 1;
                for name in file.names() {
                    let elements: u64 = file.shape(&name).unwrap().iter().product();
                    assert!(elements <= whole.len() as u64, "{name} has more values than the file");
                    let _ = file.read(&name, &mut vec![0.0; elements as usize]);
                }
            }
        }
    }
    assert!(opened > 50, "{opened} files were sound enough to be read");
}
