//! A file of one tensor, written row by row: as NumPy's `.npy`, or as safetensors.

use super::write::{TensorHeader, header};
use crate::files::Beside;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// The file under way; it lies beside its place until it is whole. Dropped before that, it is removed.
#[derive(Debug)]
pub struct RowsFile {
    path: PathBuf,
    beside: Option<Beside>,
    /// None once it is at its place.
    file: Option<BufWriter<File>>,
    /// Values that it still lacks.
    missing: u64,
}

/// How a tensor is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowsFormat {
    /// NumPy's.
    Npy,
    /// A safetensors file.
    Safetensors,
}

impl RowsFormat {
    /// The one that a file's name asks for.
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "npy" => Some(Self::Npy),
            "safetensors" => Some(Self::Safetensors),
            _ => None,
        }
    }

    /// What stands before the values of a tensor called `name`.
    fn header(self, name: &str, shape: &[u64]) -> Vec<u8> {
        match self {
            Self::Npy => npy_header(shape),
            Self::Safetensors => header(&[TensorHeader { name, shape }]),
        }
    }
}

/// NumPy's header, version 1: values begin at a multiple of 64.
fn npy_header(shape: &[u64]) -> Vec<u8> {
    let sizes: Vec<String> = shape.iter().map(u64::to_string).collect();
    let comma = if shape.len() == 1 { "," } else { "" };
    let sizes = sizes.join(", ");
    let mut text =
        format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({sizes}{comma}), }}");
    let length = (10 + text.len() + 1).next_multiple_of(64) - 10;
    text.extend(std::iter::repeat_n(' ', length - text.len() - 1));
    text.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((length as u16).to_le_bytes());
    bytes.extend(text.bytes());
    bytes
}

impl RowsFile {
    /// Begins a file for the tensor `name` of that shape.
    ///
    /// # Errors
    /// When the system does not let it be made.
    pub fn create(
        path: &Path,
        format: RowsFormat,
        name: &str,
        shape: &[u64],
    ) -> std::io::Result<Self> {
        let beside = Beside::new(path)?;
        let mut file = BufWriter::new(File::create(beside.path())?);
        let written = file.write_all(&format.header(name, shape));
        let missing = shape.iter().product();
        let rows = Self { path: path.into(), beside: Some(beside), file: Some(file), missing };
        // What was begun is removed where it cannot go on.
        written.map(|()| rows)
    }

    /// Where the file will be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Values that it still lacks.
    pub fn missing(&self) -> u64 {
        self.missing
    }

    /// Adds the next values.
    ///
    /// # Errors
    /// When the disk does not take them.
    ///
    /// # Panics
    /// When the tensor has not as many, or the file was finished.
    pub fn push(&mut self, values: &[f32]) -> std::io::Result<()> {
        self.missing = self.missing.checked_sub(values.len() as u64).expect("room for values");
        self.file.as_mut().expect("a file under way").write_all(bytemuck::cast_slice(values))
    }

    /// Brings the file, which is whole, to its place.
    ///
    /// # Errors
    /// When the disk does not take it.
    ///
    /// # Panics
    /// When values are missing.
    pub fn finish(&mut self) -> std::io::Result<()> {
        assert_eq!(self.missing, 0, "all values are there");
        let Some(file) = &mut self.file else { return Ok(()) };
        file.flush()?;
        file.get_ref().sync_all()?;
        self.file = None;
        self.beside.take().map_or(Ok(()), Beside::commit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor_file::TensorFile;

    #[test]
    fn numpy_s_header_is_as_numpy_writes_it() {
        let header = npy_header(&[3, 2]);
        assert_eq!(header.len() % 64, 0);
        assert_eq!(header[..10], *b"\x93NUMPY\x01\x00\x76\x00");
        let text = String::from_utf8(header[10..].to_vec()).unwrap();
        assert!(text.starts_with("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }  "));
        assert!(text.ends_with(" \n"));
        assert!(String::from_utf8_lossy(&npy_header(&[7])).contains("'shape': (7,), }"));
    }

    #[test]
    fn a_file_is_at_its_place_when_it_is_whole() {
        let folder = std::env::temp_dir().join(format!("pipewright-rows-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("y.safetensors");
        std::fs::write(&path, "before").unwrap();
        let begin = || RowsFile::create(&path, RowsFormat::Safetensors, "y", &[2, 2]).unwrap();
        let mut file = begin();
        file.push(&[1.0, 2.0]).unwrap();
        drop(file);
        assert_eq!(std::fs::read(&path).unwrap(), b"before");
        let mut file = begin();
        file.push(&[1.0, 2.0]).unwrap();
        file.push(&[3.0, 4.0]).unwrap();
        file.finish().unwrap();
        let read = TensorFile::open(&path).unwrap();
        assert_eq!(read.shape("y"), Some(vec![2, 2]));
        let mut values = [0.0; 4];
        read.read("y", &mut values).unwrap();
        assert_eq!(values, [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
