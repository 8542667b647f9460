//! Small networks that tensor groups divide: blocks of transformers with divided vocabularies, dropout, mixtures of
//! experts.

use super::{draft, draft_of};
use pipewright_core::graph::{Function, Graph, GraphBuilder, Op};
use pipewright_core::plan::{DataParallel, Draft};
use pipewright_core::schedule::ScheduleKind;

/// GPT-2's blocks and LLaMA's, and one of each with experts.
pub const PRESETS: [&str; 4] = [
    "transformer:layers=2,hidden=16,heads=4,sequence=8,vocabulary=29,tied",
    "transformer:layers=1,hidden=16,heads=4,kv=4,ffn=24,sequence=8,vocabulary=30,gated",
    "transformer:layers=1,hidden=16,heads=4,sequence=8,vocabulary=29,experts=4,top_k=1,capacity=1",
    "transformer:layers=1,hidden=16,heads=4,kv=4,ffn=24,sequence=8,vocabulary=29,gated,experts=4,\
     top_k=2,capacity=1.25",
];

/// Dropout of slices and of wholes, labels that are smoothed, kinds of tokens, entries that are nobody's.
pub fn dropping() -> Graph {
    let mut g = GraphBuilder::new("dropping");
    g.layer("all");
    let (length, vocabulary) = (8, 13);
    let x = g.add("tokens", Op::Tokens { length, vocabulary }, &[]);
    let table = Op::Embedding { entries: vocabulary, features: 10, positions: length, kinds: 2 };
    let x = g.add("table", table, &[x]);
    let x = g.add("drop", Op::Dropout { probability: 0.2 }, &[x]);
    let y = g.add("norm", Op::LayerNorm { eps: 1e-5 }, &[x]);
    let y = g.linear("up", y, 32);
    let y = g.activation("gelu", Function::Gelu, y);
    let y = g.linear("down", y, 10);
    let y = g.add("drop_2", Op::Dropout { probability: 0.1 }, &[y]);
    let x = g.add("add", Op::Add, &[x, y]);
    let x = g.add("norm_2", Op::RmsNorm { eps: 1e-5 }, &[x]);
    let x = g.linear("head", x, vocabulary);
    let targets = g.add("targets", Op::Targets { count: length, classes: vocabulary }, &[]);
    g.add("loss", Op::SoftmaxCrossEntropy { label_smoothing: 0.1 }, &[x, targets]);
    g.finish().unwrap()
}

/// A name and a draft of each, on one rank: so many steps of two micro-batches.
pub fn all(steps: u64) -> Vec<(String, Draft)> {
    let presets = PRESETS.map(|text| (text.to_string(), draft(text.parse().unwrap(), 1)));
    let dropping = ("dropping".to_string(), draft_of(dropping(), 1));
    let mut all: Vec<(String, Draft)> = presets.into_iter().chain([dropping]).collect();
    for (_, draft) in &mut all {
        (draft.mini_batch, draft.micro_batches, draft.steps) = (8, 2, steps);
        // Under others two experts may be alike but for rounding, and a token go to another one.
        draft.seed = 2;
    }
    all
}

/// The same on groups of so many ranks, with slices of the sequence or without.
pub fn divided(draft: &Draft, tensor: u32, sequence_parallel: bool) -> Draft {
    Draft { tensor, sequence_parallel, ..draft.clone() }
}

/// The same in two stages and two replicas.
pub fn in_stages(draft: &Draft, schedule: ScheduleKind) -> Draft {
    let nodes = draft.model.graph().unwrap().nodes().len() as u32;
    let mut draft = Draft { cuts: vec![nodes / 2], schedule, ..draft.clone() };
    (draft.mini_batch, draft.data_parallel) = (16, DataParallel::ddp(2));
    draft
}
