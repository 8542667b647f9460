//! Losses of logits that a tensor group has divided by classes.

use super::{Buffers, Launch, Loss, Plan, Source, VocabularyLoss, rows};
use pipewright_core::graph::Op;
use pipewright_kernels::{Call, Shard};

/// Sizes, and which classes are this rank's.
fn shape(call: &Call) -> VocabularyLoss {
    let Op::SoftmaxCrossEntropy { label_smoothing: smoothing } = *call.op else {
        unreachable!("{} knows no classes of ranks", call.op.name());
    };
    let (logits, Shard { tensor_rank, degree, vocabulary: all }) = (call.inputs[0], call.shard);
    let n = logits.shape.last().copied().expect("logits have classes");
    let (rows, first) = (call.samples * logits.elements() / n, u64::from(tensor_rank) * n);
    VocabularyLoss {
        rows,
        n,
        own: all.saturating_sub(first).min(n),
        first,
        all,
        ranks: degree,
        tensor_rank,
        smoothing,
        ..VocabularyLoss::default()
    }
}

/// Positions of a sample.
fn positions(call: &Call) -> f32 {
    let logits = call.inputs[0];
    (logits.elements() / logits.shape.last().copied().unwrap_or(1)) as f32
}

fn each_row(plan: &mut Plan, kernel: &str, args: VocabularyLoss) {
    plan.blocks(Source::Vocabulary, kernel, args.rows, args);
    plan.last().block = rows::threads(plan, args.n);
}

/// What this rank tells of each position.
pub fn partial(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let [x, target] = *buffers.reads else { unreachable!("a loss reads logits and targets") };
    let args = VocabularyLoss { x, target, numbers: buffers.writes[0], ..shape(call) };
    each_row(plan, "partial_loss", args);
}

/// The loss, from what all tell.
pub fn loss(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let (&[_, target, numbers], &[loss, saved]) = (buffers.reads, buffers.writes) else {
        unreachable!("a divided loss reads logits, targets and what ranks tell");
    };
    let args = VocabularyLoss { target, numbers, saved, ..shape(call) };
    let scratch = plan.scratch(rows::TALLY * args.rows);
    let (rows, divisor) = (args.rows, positions(call));
    let args = VocabularyLoss { scratch, ..args };
    plan.plain(Launch::over(Source::Vocabulary, "divided_entropy".into(), rows, &args));
    let tally = Loss { loss, scratch, rows, divisor, ..Loss::default() };
    plan.plain(Launch::blocks(Source::Rows, "tally".into(), 1, &tally));
}

/// The gradient of this rank's logits.
pub fn loss_gradient(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let [x, target, saved] = *buffers.reads else {
        unreachable!("a loss's gradient reads logits, targets and statistics");
    };
    let scale = call.loss_scale / positions(call);
    let args = VocabularyLoss { x, target, saved, out: buffers.writes[0], scale, ..shape(call) };
    each_row(plan, "divided_entropy_gradient", args);
}
