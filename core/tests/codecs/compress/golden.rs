//! Reading the reference vectors: those in `tests/data/compress`, the large ones beside the repository.

use serde_json::Value;
use std::path::Path;

/// A file of `tests/data/compress`.
pub fn file(name: &str) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/compress");
    serde_json::from_slice(&std::fs::read(folder.join(name)).unwrap()).unwrap()
}

/// A large file; none, with a word, where it is not.
pub fn large_file(name: &str) -> Option<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/golden/compress");
    let path = folder.join(name);
    if !path.exists() {
        eprintln!("skipped: {} is not there", path.display());
        return None;
    }
    Some(serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap())
}

pub fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

pub fn integers(value: &Value) -> Vec<u32> {
    list(value).iter().map(|v| v.as_u64().unwrap() as u32).collect()
}

/// Numbers given by their bits.
pub fn bits(value: &Value) -> Vec<f32> {
    integers(value).into_iter().map(f32::from_bits).collect()
}

pub fn numbers(value: &Value) -> Vec<f64> {
    list(value).iter().map(|v| v.as_f64().unwrap()).collect()
}

/// Bytes of one text of hexadecimal digits, or of several.
pub fn hex(value: &Value) -> Vec<u8> {
    if let Some(rows) = value.as_array() {
        return rows.iter().flat_map(hex).collect();
    }
    let digits = value.as_str().unwrap().as_bytes();
    let digit = |d: u8| (d as char).to_digit(16).unwrap() as u8;
    digits.chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

/// The same bits, or both NaN.
#[track_caller]
pub fn same(a: f32, b: f32, what: &str) {
    assert!(a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(), "{what}: {a:e} is not {b:e}");
}
