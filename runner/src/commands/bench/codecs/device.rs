//! The same on a GPU, by its own clock.

use super::super::gradient::relative_error;
use super::Row;
use crate::device::cuda::Backend;
use crate::device::cuda::kernels::Launch;
use crate::device::cuda::kernels::bulk::{decode, encode, scratch};
use crate::device::{Coded, DeviceError, DevicePtr, Piece};
use pipewright_core::compress::Method;

/// Times of one launch; the best counts, as where processors encode.
const TIMES: usize = 20;

/// Codes of `values` as one tensor; `None` where the device has no kernel for the codec.
pub(super) fn measure(
    device: &mut impl Backend,
    method: Method,
    values: &[f32],
) -> Result<Option<Row>, DeviceError> {
    let kind = method.codec;
    let count = values.len() as u64;
    let (bytes, wire_bytes) = (4 * count, kind.wire_bytes(count));
    let mut put = |bytes: &[u8]| -> Result<DevicePtr, DeviceError> {
        let at = device.allocate(bytes.len() as u64, "values to be encoded")?;
        device.upload(at, bytes)?;
        Ok(at)
    };
    let pieces = [Piece { values: 0, count, residual: 0, wire: 0 }];
    let table = put(&Piece::table(&pieces))?;
    let values_at = put(bytemuck::cast_slice(values))?;
    let mut room = |bytes| device.allocate(bytes, "codes");
    let (wire, decoded) = (room(wire_bytes)?, room(bytes)?);
    let coded = Coded {
        pieces: table,
        count: 1,
        chunks: Piece::chunks(&pieces),
        values: values_at,
        residual: if method.feedback { room(bytes)? } else { DevicePtr::NULL },
        wire,
        ..Coded::default()
    };
    let scratch = room(scratch(&coded))?;
    let Some(encoding) = encode(kind, &coded, scratch) else { return Ok(None) };
    let decoding = decode(kind, &Coded { decoded, ..coded }, false);
    let decoding = decoding.expect("what it encodes it decodes");
    let run = |launches: &[Launch], device: &mut dyn Backend| {
        launches.iter().try_for_each(|launch| device.launch(launch))
    };
    let copy = best(device, |device| device.copy(values_at, decoded, bytes))?;
    let encode = best(device, |device| run(&encoding, device))?;
    let decode = best(device, |device| run(std::slice::from_ref(&decoding), device))?;
    let mut seen = vec![0f32; values.len()];
    device.download(decoded, bytemuck::cast_slice_mut(&mut seen))?;
    Ok(Some(Row {
        bytes,
        codec: method.to_string(),
        encode_per_second: bytes as f64 / encode,
        decode_per_second: bytes as f64 / decode,
        copy_per_second: bytes as f64 / copy,
        wire_share: wire_bytes as f64 / bytes as f64,
        error: relative_error(&seen, values),
    }))
}

/// Seconds of one `work` on the device.
fn best<B: Backend>(
    device: &mut B,
    mut work: impl FnMut(&mut B) -> Result<(), DeviceError>,
) -> Result<f64, DeviceError> {
    for time in 0..TIMES {
        device.moment(time)?;
        work(device)?;
    }
    device.moment(TIMES)?;
    let mut ages = vec![];
    device.ages(TIMES + 1, &mut ages)?;
    let shortest = ages.windows(2).map(|pair| pair[0] - pair[1]).min().unwrap_or(0);
    Ok(shortest.max(1) as f64 / 1e9)
}
