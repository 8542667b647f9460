//! `runner predict`: what a network gives for samples, to a file; or a text that goes on.

mod generate;
mod outputs;

use super::infer::{Network, Process, Samples, Work, agreement, on_ranks, plan, samples};
use crate::args::{NamedSplit, PredictArgs};
use crate::data;
use crate::execute::Rank;
use crate::failure::Failure;
use crate::report::ReportError;
use crate::tensor_file::{RowsFile, RowsFormat};
use crate::train::TrainError;
use crate::transport::{ReduceOp, Transport};
use outputs::{Outputs, pack, unpack};
use serde_json::json;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

/// Runs the command.
pub fn predict(args: &PredictArgs) -> Result<(), Failure> {
    let Some(output) = args.output.as_deref() else { return generate::generate(args) };
    let Some(format) = RowsFormat::of(output) else {
        return Err(Failure::usage(format!(
            "-o {}: outputs are written as .npy or .safetensors",
            output.display()
        )));
    };
    let network = &args.network;
    let prepare = |process: Option<Process>| {
        let plan = plan(network, process)?;
        let Samples { split, half } = samples(network, &plan, data::open_samples)?;
        let network = Network::new(network, plan, split, process)?;
        let file = match process.is_none_or(|process| process.rank == 0) {
            true => Some(create(output, format, &network)?),
            false => None,
        };
        let outputs = Outputs::of(&network.prediction.graph);
        Ok((network, Predict { half, outputs, file: Mutex::new(file) }))
    };
    on_ranks(prepare, |_, made| {
        let Made { shape, half } = made;
        let file = output.display();
        match network.json {
            true => say!("{}", json!({ "file": file.to_string(), "split": half, "shape": shape })),
            false => tell!("{file}: outputs of the {half} samples, {shape:?}"),
        }
        Ok(())
    })
}

/// Begins the file, so that a folder that is not there is said before anything is computed.
fn create(path: &Path, format: RowsFormat, network: &Network) -> Result<RowsFile, Failure> {
    let shape = shape(network);
    RowsFile::create(path, format, "y", &shape).map_err(|e| Failure::file(path, &e))
}

/// The shape of all outputs.
fn shape(network: &Network) -> Vec<u64> {
    let outputs = Outputs::of(&network.prediction.graph);
    [&[network.data.test.len()], &outputs.shape[..]].concat()
}

struct Predict {
    half: NamedSplit,
    outputs: Outputs,
    /// On the first rank.
    file: Mutex<Option<RowsFile>>,
}

/// What was written.
struct Made {
    shape: Vec<u64>,
    half: &'static str,
}

impl Work for Predict {
    type Made = Made;

    fn on<T: Transport>(
        &self,
        network: &Network,
        rank: &mut Rank<T>,
    ) -> Result<Option<Made>, TrainError> {
        let instructions = network.instructions_of(rank);
        rank.keep_outputs();
        for round in 0..network.data.test.len().div_ceil(network.plan.mini_batch) {
            rank.evaluate(instructions, round)?;
            let mut stop = [f64::from(u8::from(network.stop.load(Ordering::Relaxed)))];
            rank.transport.all_reduce(&mut stop, ReduceOp::Max).map_err(agreement)?;
            if stop[0] > 0.0 {
                return Ok(None);
            }
            let bytes = pack(&rank.take_outputs());
            if let Some(all) = rank.transport.gather(&bytes).map_err(agreement)? {
                self.write(|file| {
                    let values = self.outputs.in_order(unpack(&all));
                    let wanted = file.missing().min(values.len() as u64) as usize;
                    file.push(&values[..wanted])
                })?;
            }
        }
        if rank.transport.rank() == 0 {
            self.write(RowsFile::finish)?;
        }
        Ok(Some(Made { shape: shape(network), half: self.half.name() }))
    }
}

impl Predict {
    /// Does something with the file, which only the first rank has.
    fn write(
        &self,
        work: impl FnOnce(&mut RowsFile) -> std::io::Result<()>,
    ) -> Result<(), TrainError> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(file) = file.as_mut() else { return Ok(()) };
        let path = file.path().display().to_string();
        let failed = |source| ReportError::Write { path, source };
        work(file).map_err(failed).map_err(TrainError::Report)
    }
}
