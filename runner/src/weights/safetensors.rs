//! Weights in safetensors files: one, several with an index, a checkpoint.

use super::{WeightSource, WeightsError};
use crate::checkpoint::{Manifest, verify};
use crate::tensor_file::{TensorFile, TensorFileError};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Files of tensors, and which tensor lies in which.
pub(super) struct Safetensors {
    path: PathBuf,
    files: Vec<TensorFile>,
    /// Index in `files`, by tensor.
    places: BTreeMap<String, usize>,
}

impl Safetensors {
    /// One file with everything in it.
    pub fn file(path: &Path) -> Result<Self, WeightsError> {
        let file = TensorFile::open(path)?;
        let places = file.names().into_iter().map(|name| (name, 0)).collect();
        Ok(Self { path: path.into(), files: vec![file], places })
    }

    /// Hugging Face's index: `weight_map` names the file of each tensor, beside the index.
    pub fn index(path: &Path) -> Result<Self, WeightsError> {
        #[derive(Deserialize)]
        struct Index {
            weight_map: BTreeMap<String, String>,
        }
        let refused = |why: String| WeightsError::Index { path: path.into(), why };
        let text = std::fs::read_to_string(path)
            .map_err(|source| TensorFileError::Read { path: path.into(), source })?;
        let index: Index = serde_json::from_str(&text).map_err(|e| refused(e.to_string()))?;
        let folder = path.parent().unwrap_or(Path::new("."));
        let mut source = Self { path: path.into(), files: vec![], places: BTreeMap::new() };
        let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
        for (tensor, name) in index.weight_map {
            let number = match numbers.get(&name) {
                Some(number) => *number,
                None => {
                    source.files.push(TensorFile::open(&folder.join(&name))?);
                    numbers.insert(name.clone(), source.files.len() - 1);
                    source.files.len() - 1
                }
            };
            if source.files[number].shape(&tensor).is_none() {
                return Err(refused(format!("{name} has no tensor `{tensor}`")));
            }
            source.places.insert(tensor, number);
        }
        Ok(source)
    }

    /// The parameters of a checkpoint, whatever trained them.
    pub fn checkpoint(folder: &Path) -> Result<Self, WeightsError> {
        let manifest = Manifest::read(folder)?;
        let mut source = Self { path: folder.into(), files: vec![], places: BTreeMap::new() };
        for record in &manifest.files {
            verify(folder, record)?;
            let file = TensorFile::open(&folder.join(&record.name))?;
            // What stands behind an `@` is the optimizer's.
            let weights = file.names().into_iter().filter(|name| !name.contains('@'));
            source.places.extend(weights.map(|name| (name, source.files.len())));
            source.files.push(file);
        }
        Ok(source)
    }
}

impl WeightSource for Safetensors {
    fn path(&self) -> &Path {
        &self.path
    }

    fn names(&self) -> Vec<String> {
        self.places.keys().cloned().collect()
    }

    fn shape(&self, name: &str) -> Option<Vec<u64>> {
        self.files[*self.places.get(name)?].shape(name)
    }

    fn read(&self, name: &str, into: &mut [f32]) -> Result<(), TensorFileError> {
        let place = self.places.get(name).expect("a tensor of this source");
        self.files[*place].read(name, into)
    }
}
