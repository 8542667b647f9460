//! Passes over the test samples.

use super::Context;
use crate::execute::{Rank, RunError};
use crate::report::Tested;
use crate::transport::{ReduceOp, Transport};
use pipewright_core::graph::{Graph, Op};
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

/// Evaluates all test samples; `None` when a signal ended it before. `step` is for messages.
///
/// # Errors
/// When a message fails.
pub(super) fn evaluate<T: Transport>(
    rank: &mut Rank<T>,
    context: &Context,
    step: u64,
) -> Result<Option<Tested>, RunError> {
    let rounds = context.test_samples.div_ceil(context.plan.mini_batch);
    let (lane, _) = context.plan.data_parallel.place(rank.transport.rank());
    let instructions = &context.evaluation[lane.index()];
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
        let stop = f64::from(u8::from(context.stop.load(Ordering::Relaxed)));
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
    let all = predictions(&context.prediction.graph).map(|each| each * context.test_samples);
    Ok(Some(Tested {
        loss: loss / context.test_samples as f64,
        correct: all.map(|all| (correct as u64, all)),
    }))
}
