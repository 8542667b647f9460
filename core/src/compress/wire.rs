//! Checks of lengths, and numbers in wire bytes.

use super::{Codec, CodecError};

/// The first `codec.wire_bytes(values)` bytes of `wire`, or why they are not there.
pub fn space<'a>(
    codec: &(impl Codec + ?Sized),
    values: usize,
    wire: &'a mut [u8],
) -> Result<&'a mut [u8], CodecError> {
    let (needed, got) = (codec.wire_bytes(values as u64), wire.len());
    let short = CodecError::ShortBuffer { codec: codec.name(), values, needed, got };
    usize::try_from(needed).ok().and_then(|n| wire.get_mut(..n)).ok_or(short)
}

/// An error unless `wire` is as long as `values` values are.
pub fn whole(codec: &impl Codec, wire: &[u8], values: usize) -> Result<(), CodecError> {
    let (needed, got) = (codec.wire_bytes(values as u64), wire.len());
    if needed == got as u64 {
        return Ok(());
    }
    Err(CodecError::WrongLength { codec: codec.name(), values, needed, got })
}

/// The number in the first four bytes, and the bytes behind it. The caller has checked the length.
pub fn take_f32(wire: &[u8]) -> (f32, &[u8]) {
    let (number, rest) = wire.split_at(4);
    (f32::from_le_bytes([number[0], number[1], number[2], number[3]]), rest)
}

/// Writes `number` to the first four bytes and returns those behind it.
pub fn put_f32(wire: &mut [u8], number: f32) -> &mut [u8] {
    let (place, rest) = wire.split_at_mut(4);
    place.copy_from_slice(&number.to_le_bytes());
    rest
}

/// Reads as many numbers as `values` has places.
pub fn read_f32s(wire: &[u8], values: &mut [f32]) {
    for (value, bytes) in values.iter_mut().zip(wire.as_chunks::<4>().0) {
        *value = f32::from_le_bytes(*bytes);
    }
}

/// Writes all `values`, four bytes each.
pub fn write_f32s(values: &[f32], wire: &mut [u8]) {
    for (value, bytes) in values.iter().zip(wire.as_chunks_mut::<4>().0) {
        *bytes = value.to_le_bytes();
    }
}

/// Whether no value is NaN or infinite.
pub fn all_finite(values: &[f32]) -> bool {
    let mut finite = true;
    for value in values {
        finite &= ((value.to_bits() & 0x7fff_ffff) as i32) < 0x7f80_0000;
    }
    finite
}
