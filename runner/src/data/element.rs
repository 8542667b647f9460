//! Numbers as they lie in files, and what they become: single precision, or indexes.

use half::{bf16, f16};

/// A type of numbers, little-endian where a number has several bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F16,
    Bf16,
    F32,
    F64,
}

impl Element {
    /// Bytes of one number.
    pub(super) fn bytes(self) -> usize {
        match self {
            Element::U8 | Element::I8 => 1,
            Element::U16 | Element::I16 | Element::F16 | Element::Bf16 => 2,
            Element::U32 | Element::I32 | Element::F32 => 4,
            Element::U64 | Element::I64 | Element::F64 => 8,
        }
    }

    /// Whether the numbers can be classes or tokens.
    pub(super) fn is_integer(self) -> bool {
        !matches!(self, Element::F16 | Element::Bf16 | Element::F32 | Element::F64)
    }

    /// Converts as many numbers as `out` takes. Bytes are pixels: 0 to 255 becomes 0 to 1.
    pub(super) fn values(self, bytes: &[u8], out: &mut [f32]) {
        match self {
            // A division, not a product with 1/255: 255 becomes exactly 1, as in torchvision.
            Element::U8 => each(bytes, out, |[byte]| f32::from(byte) / 255.0),
            Element::I8 => each(bytes, out, |b| f32::from(i8::from_le_bytes(b))),
            Element::U16 => each(bytes, out, |b| f32::from(u16::from_le_bytes(b))),
            Element::I16 => each(bytes, out, |b| f32::from(i16::from_le_bytes(b))),
            Element::U32 => each(bytes, out, |b| u32::from_le_bytes(b) as f32),
            Element::I32 => each(bytes, out, |b| i32::from_le_bytes(b) as f32),
            Element::U64 => each(bytes, out, |b| u64::from_le_bytes(b) as f32),
            Element::I64 => each(bytes, out, |b| i64::from_le_bytes(b) as f32),
            Element::F16 => each(bytes, out, |b| f16::from_le_bytes(b).to_f32()),
            Element::Bf16 => each(bytes, out, |b| bf16::from_le_bytes(b).to_f32()),
            Element::F32 => each(bytes, out, f32::from_le_bytes),
            Element::F64 => each(bytes, out, |b| f64::from_le_bytes(b) as f32),
        }
    }

    /// Converts as many integers as `out` takes; what has no place in 32 bits becomes the largest
    /// number of 32 bits.
    pub(super) fn indexes(self, bytes: &[u8], out: &mut [u32]) {
        const NONE: u32 = u32::MAX;
        match self {
            Element::U8 => each(bytes, out, |[byte]| u32::from(byte)),
            Element::I8 => each(bytes, out, |b| i8::from_le_bytes(b).try_into().unwrap_or(NONE)),
            Element::U16 => each(bytes, out, |b| u16::from_le_bytes(b).into()),
            Element::I16 => each(bytes, out, |b| i16::from_le_bytes(b).try_into().unwrap_or(NONE)),
            Element::U32 => each(bytes, out, u32::from_le_bytes),
            Element::I32 => each(bytes, out, |b| i32::from_le_bytes(b).try_into().unwrap_or(NONE)),
            Element::U64 => each(bytes, out, |b| u64::from_le_bytes(b).try_into().unwrap_or(NONE)),
            Element::I64 => each(bytes, out, |b| i64::from_le_bytes(b).try_into().unwrap_or(NONE)),
            Element::F16 | Element::Bf16 | Element::F32 | Element::F64 => {
                unreachable!("fractions are refused where the file is opened")
            }
        }
    }

    /// The first number of `bytes` as text, for messages.
    pub(super) fn text(self, bytes: &[u8]) -> String {
        fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
            std::array::from_fn(|i| bytes[i])
        }
        match self {
            Element::U8 => bytes[0].to_string(),
            Element::I8 => (bytes[0] as i8).to_string(),
            Element::U16 => u16::from_le_bytes(first(bytes)).to_string(),
            Element::I16 => i16::from_le_bytes(first(bytes)).to_string(),
            Element::U32 => u32::from_le_bytes(first(bytes)).to_string(),
            Element::I32 => i32::from_le_bytes(first(bytes)).to_string(),
            Element::U64 => u64::from_le_bytes(first(bytes)).to_string(),
            Element::I64 => i64::from_le_bytes(first(bytes)).to_string(),
            Element::F16 => f16::from_le_bytes(first(bytes)).to_string(),
            Element::Bf16 => bf16::from_le_bytes(first(bytes)).to_string(),
            Element::F32 => f32::from_le_bytes(first(bytes)).to_string(),
            Element::F64 => f64::from_le_bytes(first(bytes)).to_string(),
        }
    }
}

/// Compiles to a vector loop for every type.
fn each<const N: usize, T>(bytes: &[u8], out: &mut [T], convert: impl Fn([u8; N]) -> T) {
    for (value, bytes) in out.iter_mut().zip(bytes.as_chunks::<N>().0) {
        *value = convert(*bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_values() {
        let values = |element: Element, bytes: &[u8]| {
            let mut out = vec![f32::NAN; bytes.len() / element.bytes()];
            element.values(bytes, &mut out);
            out
        };
        assert_eq!(values(Element::U8, &[0, 51, 255]), [0.0, 0.2, 1.0]);
        assert_eq!(values(Element::I8, &[0xff]), [-1.0]);
        assert_eq!(values(Element::U16, &[1, 2]), [513.0]);
        assert_eq!(values(Element::I16, &[0xfe, 0xff]), [-2.0]);
        assert_eq!(values(Element::U32, &[0, 0, 0, 0x80]), [2f32.powi(31)]);
        assert_eq!(values(Element::I32, &(-3i32).to_le_bytes()), [-3.0]);
        assert_eq!(values(Element::U64, &7u64.to_le_bytes()), [7.0]);
        assert_eq!(values(Element::I64, &(-7i64).to_le_bytes()), [-7.0]);
        assert_eq!(values(Element::F16, &[0, 0x3c, 0, 0xc0]), [1.0, -2.0]);
        assert_eq!(values(Element::Bf16, &[0x80, 0x3f]), [1.0]);
        assert_eq!(values(Element::F32, &0.3f32.to_le_bytes()), [0.3]);
        assert_eq!(values(Element::F64, &0.3f64.to_le_bytes()), [0.3]);
    }

    #[test]
    fn integers_become_indexes() {
        let index = |element: Element, bytes: &[u8]| {
            let mut out = [0];
            element.indexes(bytes, &mut out);
            (out[0], element.text(bytes))
        };
        assert_eq!(index(Element::U8, &[200]), (200, "200".into()));
        assert_eq!(index(Element::I8, &[0xff]), (u32::MAX, "-1".into()));
        assert_eq!(index(Element::U16, &[1, 2]), (513, "513".into()));
        assert_eq!(index(Element::I16, &[1, 0x80]), (u32::MAX, "-32767".into()));
        assert_eq!(index(Element::U32, &[5, 0, 0, 0]), (5, "5".into()));
        assert_eq!(index(Element::I32, &[0xff; 4]), (u32::MAX, "-1".into()));
        assert_eq!(index(Element::I64, &9i64.to_le_bytes()), (9, "9".into()));
        assert_eq!(index(Element::I64, &(1i64 << 40).to_le_bytes()).0, u32::MAX);
        assert_eq!(index(Element::U64, &[0xff; 8]), (u32::MAX, u64::MAX.to_string()));
    }
}
