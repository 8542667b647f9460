//! Passes over the test samples.

use super::StopFlag;
use crate::execute::{Rank, RunError};
use crate::report::Tested;
use crate::transport::{ReduceOp, Transport};
use pipewright_core::graph::{Graph, Op};
use pipewright_core::plan::{Instruction, Plan};
use std::sync::atomic::Ordering;

/// How long an evaluation may go on before ranks ask each other whether a signal came.
const PATIENCE_NS: f64 = 0.4e9;

/// How many predictions a sample asks for: one of an image's class, one per token of a text; none
/// of a regression.
pub fn predictions(graph: &Graph) -> Option<u64> {
    let loss = graph.nodes().iter().find(|node| node.op.is_loss())?;
    match loss.op {
        Op::MeanSquaredError => None,
        _ => loss.inputs.get(1).map(|target| graph.node(*target).output.elements()),
    }
}

/// Samples to evaluate, and how.
pub struct Evaluation<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// What each lane does to evaluate a mini-batch.
    pub instructions: &'a [Vec<Instruction>],
    /// How many samples there are.
    pub samples: u64,
    /// Predictions that a sample asks for; none where nothing is classified.
    pub predictions: Option<u64>,
    /// Whether to stop early.
    pub stop: &'a StopFlag,
}

/// Evaluates all samples; `None` when a signal ended it before. `step` is for messages.
///
/// # Errors
/// When a message fails.
pub fn evaluate<T: Transport>(
    rank: &mut Rank<T>,
    evaluation: &Evaluation,
    step: u64,
) -> Result<Option<Tested>, RunError> {
    let Evaluation { plan, instructions, samples, predictions, stop } = evaluation;
    let rounds = samples.div_ceil(plan.mini_batch);
    let lane = plan.mesh().lane(rank.transport.rank());
    let instructions = &instructions[lane.index()];
    let agreement = |source| RunError::Agreement { step, source };
    let mut sums = [0.0, 0.0];
    // Ranks agree whether to go on. It drains the pipeline, so they do it about every `PATIENCE`:
    // the number of rounds until the next time follows from a time that all of them know.
    let (mut round, mut together) = (0, 1);
    while round < rounds {
        let begin = rank.transport.now_ns();
        let end = rounds.min(round + together);
        for round in round..end {
            let counts = rank.evaluate(instructions, round)?;
            sums[0] += counts.loss;
            sums[1] += counts.correct as f64;
        }
        let stop = f64::from(u8::from(stop.load(Ordering::Relaxed)));
        let mut news = [stop, (rank.transport.now_ns() - begin) as f64];
        rank.transport.all_reduce(&mut news, ReduceOp::Max).map_err(agreement)?;
        let [stop, time] = news;
        if stop > 0.0 {
            return Ok(None);
        }
        round = end;
        together = if time < PATIENCE_NS / 2.0 { together * 2 } else { together.div_ceil(2) };
    }
    rank.transport.all_reduce(&mut sums, ReduceOp::Sum).map_err(agreement)?;
    let [loss, correct] = sums;
    let all = predictions.map(|each| each * samples);
    let correct = all.map(|all| (correct as u64, all));
    Ok(Some(Tested { samples: *samples, loss: loss / *samples as f64, correct }))
}
