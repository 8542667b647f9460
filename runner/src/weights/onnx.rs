//! Weights from the ONNX file that a network came from.

use super::WeightSource;
use crate::onnx::OnnxFile;
use crate::tensor_file::TensorFileError;
use std::path::Path;

impl WeightSource for OnnxFile {
    fn path(&self) -> &Path {
        OnnxFile::path(self)
    }

    fn names(&self) -> Vec<String> {
        OnnxFile::names(self)
    }

    fn shape(&self, name: &str) -> Option<Vec<u64>> {
        OnnxFile::shape(self, name)
    }

    fn read(&self, name: &str, into: &mut [f32]) -> Result<(), TensorFileError> {
        let values = self.values(name).map_err(|e| TensorFileError::Onnx(Box::new(e)))?;
        into.copy_from_slice(&values);
        Ok(())
    }
}
