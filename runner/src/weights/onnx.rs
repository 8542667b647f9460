//! Weights in an ONNX file, or in the file that it names.

use super::WeightSource;
use crate::onnx::OnnxFile;
use crate::tensor_file::TensorFileError;
use std::io;
use std::path::Path;

impl WeightSource for OnnxFile {
    fn path(&self) -> &Path {
        self.path()
    }

    fn names(&self) -> Vec<String> {
        self.names()
    }

    fn shape(&self, name: &str) -> Option<Vec<u64>> {
        self.shape(name)
    }

    fn read(&self, name: &str, into: &mut [f32]) -> Result<(), TensorFileError> {
        let values = self.values(name).map_err(|error| TensorFileError::Read {
            path: self.path().into(),
            source: io::Error::other(error),
        })?;
        into.copy_from_slice(&values);
        Ok(())
    }
}
