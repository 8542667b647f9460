//! Reading tensors where they are wanted.

use super::TensorFileError;
use half::{bf16, f16};
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes that are read at a time where values are converted or summed.
const PIECE: usize = 1 << 18;

/// Longest header that is believed; the one of a model with 10⁵ tensors takes 10 MB.
const HEADER_MAX: u64 = 100_000_000;

/// A file whose header was read and whose length agrees with it.
#[derive(Debug)]
pub struct TensorFile {
    path: PathBuf,
    file: File,
    metadata: Metadata,
    /// First byte of the values.
    start: u64,
}

impl TensorFile {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// When it cannot be read, is no safetensors file, or is not as long as its header says.
    pub fn open(path: &Path) -> Result<Self, TensorFileError> {
        let path = path.to_owned();
        let read = |source| TensorFileError::Read { path: path.clone(), source };
        let broken = |why: String| TensorFileError::Header { path: path.clone(), why };
        let mut file = File::open(&path).map_err(read)?;
        let found = file.metadata().map_err(read)?.len();
        if found < 8 {
            return Err(broken(format!("it has {found} bytes")));
        }
        let mut length = [0; 8];
        file.read_exact(&mut length).map_err(read)?;
        let length = u64::from_le_bytes(length);
        if length > HEADER_MAX {
            return Err(broken(format!("its header would have {length} bytes")));
        }
        if length > found - 8 {
            return Err(TensorFileError::Length { path, expected: 8 + length, found });
        }
        let mut header = vec![0; length as usize];
        file.read_exact(&mut header).map_err(read)?;
        let metadata: Metadata =
            serde_json::from_slice(&header).map_err(|e| broken(e.to_string()))?;
        let start = 8 + length;
        let expected = start + metadata.data_len() as u64;
        if found != expected {
            return Err(TensorFileError::Length { path, expected, found });
        }
        Ok(Self { path, file, metadata, start })
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The names of its tensors, in the order of their values.
    pub fn names(&self) -> Vec<String> {
        self.metadata.offset_keys()
    }

    /// The shape of a tensor, if the file has one of that name.
    pub fn shape(&self, name: &str) -> Option<Vec<u64>> {
        let info = self.metadata.info(name)?;
        Some(info.shape.iter().map(|&length| length as u64).collect())
    }

    /// Writes the values of tensor `name` into `into`, rounded to single precision where they
    /// have more of it.
    ///
    /// # Errors
    /// When the file cannot be read any more, or its elements are no real numbers.
    ///
    /// # Panics
    /// When there is no such tensor or `into` is not as long: ask [`TensorFile::shape`] before.
    pub fn read(&self, name: &str, into: &mut [f32]) -> Result<(), TensorFileError> {
        let info = self.metadata.info(name).expect("a tensor of this file");
        let elements: usize = info.shape.iter().product();
        assert_eq!(into.len(), elements, "room for tensor {name}");
        match info.dtype {
            Dtype::F32 => {
                let at = self.start + info.data_offsets.0 as u64;
                let bytes = bytemuck::cast_slice_mut(into);
                self.file.read_exact_at(bytes, at).map_err(|e| self.refused(e))
            }
            Dtype::F16 => self.convert(info, into, |b| f16::from_le_bytes(b).to_f32()),
            Dtype::BF16 => self.convert(info, into, |b| bf16::from_le_bytes(b).to_f32()),
            Dtype::F64 => self.convert(info, into, |b| f64::from_le_bytes(b) as f32),
            other => Err(TensorFileError::Type {
                path: self.path.clone(),
                name: name.into(),
                dtype: format!("{other:?}"),
            }),
        }
    }

    /// Reads elements of `N` bytes piece by piece.
    fn convert<const N: usize>(
        &self,
        info: &TensorInfo,
        into: &mut [f32],
        value: impl Fn([u8; N]) -> f32,
    ) -> Result<(), TensorFileError> {
        let mut at = self.start + info.data_offsets.0 as u64;
        let mut piece = vec![0; PIECE.min(into.len() * N)];
        for values in into.chunks_mut(PIECE / N) {
            let bytes = &mut piece[..values.len() * N];
            self.file.read_exact_at(bytes, at).map_err(|e| self.refused(e))?;
            at += bytes.len() as u64;
            let (elements, _) = bytes.as_chunks::<N>();
            for (out, element) in values.iter_mut().zip(elements) {
                *out = value(*element);
            }
        }
        Ok(())
    }

    fn refused(&self, source: std::io::Error) -> TensorFileError {
        TensorFileError::Read { path: self.path.clone(), source }
    }
}

/// Length and CRC-32C of a file.
///
/// # Errors
/// When it cannot be read.
pub fn checksum(path: &Path) -> std::io::Result<(u64, u32)> {
    let mut file = File::open(path)?;
    let mut piece = vec![0; PIECE];
    let (mut bytes, mut sum) = (0, 0);
    loop {
        match file.read(&mut piece)? {
            0 => return Ok((bytes, sum)),
            count => {
                bytes += count as u64;
                sum = crc32c::crc32c_append(sum, &piece[..count]);
            }
        }
    }
}
