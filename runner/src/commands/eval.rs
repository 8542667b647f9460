//! `runner eval`: loss and accuracy of trained weights on a data set.

use super::infer::{Network, Process, Samples, Work, on_ranks, plan, samples};
use crate::args::{EvalArgs, NamedSplit};
use crate::data;
use crate::execute::Rank;
use crate::failure::Failure;
use crate::report::Tested;
use crate::train::{Evaluation, TrainError, evaluate, predictions};
use crate::transport::Transport;
use serde::Serialize;

/// Runs the command.
pub fn eval(args: &EvalArgs) -> Result<(), Failure> {
    let network = &args.network;
    let prepare = |process: Option<Process>| {
        let plan = plan(network, process)?;
        let Samples { split, half } = samples(network, &plan, data::open)?;
        Ok((Network::new(network, plan, split, process)?, Evaluate { half }))
    };
    on_ranks(prepare, |_, record: Record| {
        match network.json {
            true => say!("{}", serde_json::to_string_pretty(&record).expect("plain data")),
            false => say!("{}", record.text()),
        }
        Ok(())
    })
}

struct Evaluate {
    half: NamedSplit,
}

/// What was found.
#[derive(Serialize)]
struct Record {
    /// The half of the data set.
    split: &'static str,
    samples: u64,
    /// Mean over the samples; JSON has no word for one that is no number.
    loss: f64,
    /// Share of correct predictions; none where nothing is classified, as for what follows.
    accuracy: Option<f64>,
    correct: Option<u64>,
    predictions: Option<u64>,
}

impl Record {
    fn text(&self) -> String {
        let Self { split, samples, loss, accuracy, correct, predictions } = self;
        let end = if *samples == 1 { "" } else { "s" };
        let mut text = format!("{samples} {split} sample{end}: loss {loss:.6}");
        if let (Some(accuracy), Some(correct), Some(all)) = (accuracy, correct, predictions) {
            text += &format!(", accuracy {:.2} % ({correct}/{all})", 100.0 * accuracy);
        }
        text
    }
}

impl Work for Evaluate {
    type Made = Record;

    fn on<T: Transport>(
        &self,
        network: &Network,
        rank: &mut Rank<T>,
    ) -> Result<Option<Record>, TrainError> {
        let evaluation = Evaluation {
            plan: &network.plan,
            instructions: &network.instructions,
            samples: network.data.test.len(),
            predictions: predictions(&network.prediction.graph),
            stop: &network.stop,
        };
        let Some(tested) = evaluate(rank, &evaluation, 0)? else { return Ok(None) };
        let accuracy = tested.accuracy();
        let Tested { samples, loss, correct } = tested;
        let (correct, predictions) = correct.unzip();
        let split = self.half.name();
        Ok(Some(Record { split, samples, loss, accuracy, correct, predictions }))
    }
}
