//! Writing tensors that must survive the machine.

use super::TensorFileError;
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// A tensor to write.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    /// Its name, unique in the file.
    pub name: &'a str,
    /// Its shape.
    pub shape: &'a [u64],
    /// As many values as the shape has elements.
    pub values: &'a [f32],
}

/// A file that is on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its length.
    pub bytes: u64,
    /// Its CRC-32C.
    pub crc32c: u32,
}

/// Writes a file that PyTorch's `safetensors.torch.load_file` reads; when this returns, the disk
/// has its contents. What was written of a file that could not be finished is removed.
///
/// # Errors
/// When the disk does not take it.
///
/// # Panics
/// When two tensors share a name or one has not as many values as its shape says.
pub fn write(path: &Path, tensors: &[Tensor]) -> Result<Written, TensorFileError> {
    let places: Vec<TensorHeader> =
        tensors.iter().map(|t| TensorHeader { name: t.name, shape: t.shape }).collect();
    let header = header(&places);
    let values: usize = tensors.iter().map(|t| size_of_val(t.values)).sum();
    let bytes = (header.len() + values) as u64;
    let result = pour(path, &header, tensors);
    match result {
        Ok(crc32c) => Ok(Written { bytes, crc32c }),
        Err(source) => {
            // It may not even have been made; what counts is the first error.
            let _ = std::fs::remove_file(path);
            Err(TensorFileError::Write { path: path.into(), bytes, source })
        }
    }
}

/// Writes everything; returns the checksum.
fn pour(path: &Path, header: &[u8], tensors: &[Tensor]) -> std::io::Result<u32> {
    let mut file = BufWriter::new(File::create(path)?);
    let mut sum = 0;
    let parts = tensors.iter().map(|tensor| bytemuck::cast_slice(tensor.values));
    for part in std::iter::once(header).chain(parts) {
        sum = crc32c::crc32c_append(sum, part);
        file.write_all(part)?;
    }
    file.into_inner()?.sync_all()?;
    Ok(sum)
}

/// What the header says of a tensor of single precision.
#[derive(Clone, Copy)]
pub(super) struct TensorHeader<'a> {
    pub name: &'a str,
    pub shape: &'a [u64],
}

/// Length and JSON, padded so that values begin at a multiple of their size.
pub(super) fn header(tensors: &[TensorHeader]) -> Vec<u8> {
    let mut end = 0;
    let info = |tensor: &TensorHeader| {
        let start = end;
        let shape: Vec<usize> = tensor.shape.iter().map(|&length| length as usize).collect();
        end += size_of::<f32>() * shape.iter().product::<usize>();
        (tensor.name.into(), TensorInfo { dtype: Dtype::F32, shape, data_offsets: (start, end) })
    };
    let infos: Vec<(String, TensorInfo)> = tensors.iter().map(info).collect();
    // Hugging Face's loaders insist on this entry.
    let format = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let metadata = Metadata::new(Some(format), infos).expect("values as the shapes say");
    let mut json = serde_json::to_vec(&metadata).expect("plain data");
    json.resize(json.len().next_multiple_of(8), b' ');
    let mut header = (json.len() as u64).to_le_bytes().to_vec();
    header.extend(json);
    header
}
