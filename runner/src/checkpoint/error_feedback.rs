//! Error-feedback residuals in files of their own: one a rank.

use super::{CheckpointError, FileRecord, Manifest};
use crate::execute::{Rank, residual_param};
use crate::tensor_file::{Tensor, TensorFile, write};
use crate::transport::Transport;
use std::collections::BTreeMap;
use std::path::Path;

/// Writes what this rank carries, if anything.
///
/// # Errors
/// When the disk does not take it.
pub(super) fn write_residuals<T: Transport>(
    rank: &mut Rank<T>,
    folder: &Path,
) -> Result<Option<FileRecord>, CheckpointError> {
    let carried = rank.carried();
    if carried.is_empty() {
        return Ok(None);
    }
    let tensors = carried.iter().map(|tensor| tensor.name.clone()).collect();
    let contents: Vec<Tensor> = carried
        .iter()
        .map(|t| Tensor { name: &t.name, shape: &t.shape, values: &t.values })
        .collect();
    let name = format!("residuals-rank-{:03}.safetensors", rank.transport.rank());
    let written = write(&folder.join(&name), &contents)?;
    Ok(Some(FileRecord { name, bytes: written.bytes, crc32c: written.crc32c, tensors }))
}

/// Gives this rank its part of what the checkpoint carries: what it had, where everything is spread
/// as it was (`same` split), else a share of all.
///
/// # Errors
/// When a file cannot be read.
pub(super) fn read_residuals<T: Transport>(
    rank: &mut Rank<T>,
    folder: &Path,
    manifest: &Manifest,
    same: bool,
) -> Result<(), CheckpointError> {
    if manifest.carried.is_none() {
        return Ok(());
    }
    let same = same && manifest.carried == rank.carried_layout();
    let own = format!("@rank-{}", rank.transport.rank());
    let graph_params = rank.held_params();
    let held: BTreeMap<String, usize> =
        graph_params.into_iter().map(|(name, elements)| (name.to_owned(), elements)).collect();
    let mut tensors: BTreeMap<String, Vec<f32>> = BTreeMap::new();
    for file in &manifest.files {
        let mut open = None;
        for name in &file.tensors {
            let Some(param) = residual_param(name).filter(|param| held.contains_key(*param)) else {
                continue;
            };
            if same && !name.ends_with(&own) {
                continue;
            }
            let file = match &open {
                Some(file) => file,
                None => open.insert(TensorFile::open(&folder.join(&file.name))?),
            };
            let shape = file.shape(name).unwrap_or_default();
            let elements = shape.iter().product::<u64>() as usize;
            if elements != held[param] {
                let why = format!("tensor `{name}` has another shape than the parameter");
                return Err(CheckpointError::Damaged { path: file.path().into(), why });
            }
            let mut values = vec![0.0; elements];
            file.read(name, &mut values)?;
            let key = if same { name.clone() } else { param.to_owned() };
            match tensors.get_mut(&key) {
                Some(sum) => sum.iter_mut().zip(&values).for_each(|(sum, value)| *sum += value),
                None => drop(tensors.insert(key, values)),
            }
        }
    }
    match same {
        true => rank.carry(&tensors),
        false => rank.take_over(&tensors),
    }
    Ok(())
}
