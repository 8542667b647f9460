//! The trained weights of a run as one file.

use crate::failure::Failure;
use crate::files::Beside;
use crate::tensor_file::{Tensor, write};
use crate::weights::{WeightsError, open_tensors};
use std::path::Path;

/// Writes the parameters of a checkpoint, running statistics included, as PyTorch's `state_dict`
/// has them. Holds all of them in memory.
pub(super) fn weights(checkpoint: &Path, file: &Path) -> Result<(), Failure> {
    let refused = |e: WeightsError| Failure::usage(format!("weights {e}"));
    let source = open_tensors(checkpoint).map_err(refused)?;
    let names = source.names();
    let shapes: Vec<Vec<u64>> =
        names.iter().map(|name| source.shape(name).unwrap_or_default()).collect();
    let read = |(name, shape): (&String, &Vec<u64>)| -> Result<Vec<f32>, WeightsError> {
        let mut values = vec![0.0; shape.iter().product::<u64>() as usize];
        source.read(name, &mut values)?;
        Ok(values)
    };
    let values: Vec<Vec<f32>> =
        names.iter().zip(&shapes).map(read).collect::<Result<_, _>>().map_err(refused)?;
    let tensors: Vec<Tensor> = names
        .iter()
        .zip(shapes.iter().zip(&values))
        .map(|(name, (shape, values))| Tensor { name, shape, values })
        .collect();
    let failed = |e: std::io::Error| Failure::file(file, &e);
    let beside = Beside::new(file).map_err(failed)?;
    write(beside.path(), &tensors).map_err(|e| Failure::usage(e.to_string()))?;
    beside.commit().map_err(failed)
}
