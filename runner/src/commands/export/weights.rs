//! The trained weights of a run as one file.

use crate::args::ExportFormat;
use crate::failure::Failure;
use crate::files::Beside;
use crate::tensor_file::{Tensor, write};
use crate::weights::{WeightsError, open_tensors, turn};
use pipewright_core::hf::{Counterpart, Counterparts, counterparts};
use std::path::Path;

/// Values under a name.
struct Owned {
    name: String,
    shape: Vec<u64>,
    values: Vec<f32>,
}

/// Writes the parameters of a checkpoint, running statistics included, under the names that the format
/// has for them. Holds all of them in memory.
pub(super) fn weights(checkpoint: &Path, file: &Path, format: ExportFormat) -> Result<(), Failure> {
    let refused = |e: WeightsError| Failure::usage(format!("weights {e}"));
    let source = open_tensors(checkpoint).map_err(refused)?;
    let names = source.names();
    let known = counterparts(&names);
    let path = checkpoint.display();
    let known = match (format, known) {
        (ExportFormat::Hf, Ok(None)) => {
            return Err(Failure::usage(format!(
                "--format hf: the tensors of {path} are of no network of transformers that is known \
                 here (GPT-2, LLaMA's family, BERT)"
            )));
        }
        (ExportFormat::Hf, Err(why)) => {
            return Err(Failure::usage(format!("--format hf: {path}: {why}")));
        }
        (ExportFormat::Torch, Ok(Some(Counterparts { is_preset: true, .. })) | Err(_)) => {
            return Err(Failure::usage(format!(
                "--format torch: PyTorch has no module with the parameters of {path}; use --format hf"
            )));
        }
        (ExportFormat::Hf, Ok(known)) => known,
        // An import has the module's own names, and its weights the module's own layout.
        (_, Ok(known)) => known.filter(|known| !known.is_preset),
        _ => None,
    };
    let read = |name: &String| -> Result<Owned, WeightsError> {
        let shape = source.shape(name).unwrap_or_default();
        let mut values = vec![0.0; shape.iter().product::<u64>() as usize];
        source.read(name, &mut values)?;
        Ok(Owned { name: name.clone(), shape, values })
    };
    let mut all: Vec<Owned> = names.iter().map(read).collect::<Result<_, _>>().map_err(refused)?;
    if let Some(known) = known {
        all = renamed(all, &known.all);
        if format == ExportFormat::Hf {
            leave_out_tied(&mut all);
        }
    }
    let tensors: Vec<Tensor> =
        all.iter().map(|Owned { name, shape, values }| Tensor { name, shape, values }).collect();
    let failed = |e: std::io::Error| Failure::file(file, &e);
    let beside = Beside::new(file).map_err(failed)?;
    write(beside.path(), &tensors).map_err(|e| Failure::usage(e.to_string()))?;
    beside.commit().map_err(failed)
}

/// The tensors of transformers that are parameters here.
fn renamed(all: Vec<Owned>, counterparts: &[Counterpart]) -> Vec<Owned> {
    let mut made: Vec<Owned> = vec![];
    for (Owned { shape, values, .. }, Counterpart { parts, stacked, transposed, .. }) in
        all.into_iter().zip(counterparts)
    {
        let count = parts.len();
        for (part, piece) in parts.iter().zip(values.chunks_exact(values.len() / count)) {
            let mut shape = shape.clone();
            if let Some(rows) = shape.first_mut() {
                *rows /= count as u64;
            }
            if *stacked {
                shape.remove(0);
            }
            let mut values = piece.to_vec();
            if let (true, &[rows, columns]) = (transposed, &shape[..]) {
                turn(piece, [rows as usize, columns as usize], &mut values);
                shape.reverse();
            }
            made.push(Owned { name: part.clone(), shape, values });
        }
    }
    made
}

/// Drops a tied output layer, as transformers does.
fn leave_out_tied(made: &mut Vec<Owned>) {
    let bits = |tensor: &Owned| tensor.values.iter().map(|v| v.to_bits()).collect::<Vec<u32>>();
    let table = |name: &str| name.ends_with("wte.weight") || name.ends_with("embed_tokens.weight");
    let table = made.iter().find(|tensor| table(&tensor.name)).map(bits);
    made.retain(|tensor| !tensor.name.ends_with("lm_head.weight") || Some(bits(tensor)) != table);
}
