//! The order in which a stage computes, where it computes some things again instead of keeping
//! them; as it is written in a plan.

mod problem;

pub use problem::StageProblem;

use crate::graph::autodiff::{Computation, ComputationKind, SequenceError, TrainingGraph};
use crate::graph::{Graph, Op};
use crate::ids::ValueId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use thiserror::Error;

/// Positions that a sequence has at most. Laying a stage out is quadratic in them, and a short text
/// can ask for many.
const LONGEST: usize = 1 << 16;

/// Computations of a stage in the order in which they run, with repetitions: indexes of
/// [`TrainingGraph::computations`](crate::graph::autodiff::TrainingGraph) as they are without
/// recomputation. None at all: as they are.
///
/// Its text has runs of consecutive indexes. `0-41 42-57 6-9 58` computes 6 to 9 again before 58.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Sequence(pub Vec<u32>);

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Sequence {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Sequence".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "Computations of a stage in the order in which they run, with \
                repetitions: `0-41 6-9 42` runs 0 to 41, 6 to 9 again, then 42. Empty: each once, \
                in their own order.",
            "type": "string",
            "pattern": "^([0-9]+(-[0-9]+)?( [0-9]+(-[0-9]+)?)*)?$"
        })
    }
}

/// A text that is no sequence.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SequenceTextError {
    /// Neither a number nor two.
    #[error("`{0}` is no run of computations; write one like 7, several like 3-12")]
    Run(String),
    /// Too many positions.
    #[error("a sequence of more than {LONGEST} computations")]
    Long,
}

/// Why a plan's sequences do not fit its stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RecomputeError {
    /// One for each stage, or none at all.
    #[error(
        "there are {sequences} sequences for {stages} stages; write one a stage, \"\" for none"
    )]
    Stages {
        /// Sequences of the plan.
        sequences: usize,
        /// Its stages.
        stages: usize,
    },
    /// A stage cannot compute in this order.
    #[error("stage {stage}, {error}")]
    Sequence {
        /// The stage.
        stage: usize,
        /// What is wrong.
        error: SequenceError,
    },
}

/// Stages in the orders that a plan gives them.
///
/// # Errors
/// For another number of sequences than stages, and the first stage that cannot compute in its order.
pub fn in_sequences(
    mut graphs: Vec<TrainingGraph>,
    sequences: &[Sequence],
) -> Result<Vec<TrainingGraph>, RecomputeError> {
    if !sequences.is_empty() && sequences.len() != graphs.len() {
        let stages = graphs.len();
        return Err(RecomputeError::Stages { sequences: sequences.len(), stages });
    }
    for (stage, (graph, Sequence(order))) in graphs.iter_mut().zip(sequences).enumerate() {
        if !order.is_empty() {
            *graph = graph
                .in_sequence(order)
                .map_err(|error| RecomputeError::Sequence { stage, error })?;
        }
    }
    Ok(graphs)
}

impl Sequence {
    /// Keeps what a stage of `graph` loads, receives and sends, and computes all else again at once
    /// when its backward pass begins: what GPipe does. Linear in the computations.
    pub fn full(graph: &TrainingGraph) -> Self {
        let count = graph.computations.len() as u32;
        let (forward, backward) = (0..graph.forward_end, graph.forward_end..count);
        let again = again(graph, forward.clone(), backward.clone());
        Self(forward.chain(again).chain(backward).collect())
    }

    /// As [`Self::full`], and where the backward pass is split once more when weight gradients begin, input gradients
    /// included: nothing but what a stage loads, receives and sends lives between its parts. Linear in the computations.
    pub fn full_in_each_part(graph: &TrainingGraph) -> Self {
        let count = graph.computations.len() as u32;
        let (first, second) = (graph.forward_end, graph.input_gradient_end);
        let of_inputs = again(graph, 0..first, first..second);
        let of_weights = again(graph, 0..second, second..count);
        let both = (0..first).chain(of_inputs).chain(first..second);
        Self(both.chain(of_weights).chain(second..count).collect())
    }
}

impl Sequence {
    /// Computes attentions again, each just before the backward pass reads what they give, and keeps all else:
    /// selective recomputation (Korthikanti et al. 2022), as Megatron-LM's `--recompute-modules core_attn`. Empty where a
    /// stage has none. Linear in the computations.
    pub fn selective(network: &Graph, graph: &TrainingGraph) -> Self {
        let attends = |computation: &Computation| {
            let op = &network.node(computation.node).op;
            computation.kind == ComputationKind::Forward
                && matches!(op, Op::Attention { .. } | Op::ScaledDotProduct { .. })
        };
        let forward = &graph.computations[..graph.forward_end as usize];
        let mut gone: BTreeMap<ValueId, u32> = BTreeMap::new();
        for (at, computation) in (0..).zip(forward).filter(|(_, computation)| attends(computation))
        {
            gone.extend(computation.writes.iter().map(|value| (*value, at)));
        }
        let mut sequence: Vec<u32> = (0..graph.forward_end).collect();
        for (at, computation) in (0..).zip(&graph.computations).skip(forward.len()) {
            while let Some(again) = computation.reads.iter().find_map(|value| gone.get(value)) {
                let again = *again;
                sequence.push(again);
                gone.retain(|_, writer| *writer != again);
            }
            sequence.push(at);
        }
        match sequence.len() == graph.computations.len() {
            true => Self::default(),
            false => Self(sequence),
        }
    }
}

/// Those of the computations `of` whose results `readers` need, or what computes these again, in their order.
fn again(graph: &TrainingGraph, of: Range<u32>, readers: Range<u32>) -> Vec<u32> {
    let all = &graph.computations;
    let mut needed = vec![false; graph.values.len()];
    let read = readers.flat_map(|at| &all[at as usize].reads);
    read.for_each(|value| needed[value.index()] = true);
    let mut again = vec![];
    for at in of.rev() {
        let Computation { reads, writes, kind, .. } = &all[at as usize];
        let once = *kind == ComputationKind::WeightGradient;
        if !once && writes.iter().any(|value| needed[value.index()]) {
            reads.iter().for_each(|value| needed[value.index()] = true);
            again.push(at);
        }
    }
    again.reverse();
    again
}

impl FromStr for Sequence {
    type Err = SequenceTextError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut all = vec![];
        for word in text.split_whitespace() {
            let wrong = || SequenceTextError::Run(word.chars().take(40).collect());
            let number = |digits: &str| match digits.bytes().all(|b| b.is_ascii_digit()) {
                true => digits.parse::<u32>().map_err(|_| wrong()),
                false => Err(wrong()),
            };
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            let (first, last) = (number(first)?, number(last)?);
            let more = last.checked_sub(first).ok_or_else(wrong)? as usize;
            if all.len() + more >= LONGEST {
                return Err(SequenceTextError::Long);
            }
            all.extend(first..=last);
        }
        Ok(Self(all))
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let follows = |a: &u32, b: &u32| a.checked_add(1) == Some(*b);
        for (index, run) in self.0.chunk_by(follows).enumerate() {
            let space = if index == 0 { "" } else { " " };
            match run {
                [one] => write!(f, "{space}{one}")?,
                _ => write!(f, "{space}{}-{}", run[0], run[run.len() - 1])?,
            }
        }
        Ok(())
    }
}

impl TryFrom<String> for Sequence {
    type Error = SequenceTextError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Sequence> for String {
    fn from(sequence: Sequence) -> Self {
        sequence.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts_that_are_no_sequences() {
        let parse = |text: &str| text.parse::<Sequence>();
        for text in ["x", "3-", "-3", "5-3", "1-2-3", "1,2", "+1", "4294967296", "0--1"] {
            assert_eq!(parse(text), Err(SequenceTextError::Run(text.into())));
        }
        for text in ["0-4294967295", "0-65536", "0-65535 0"] {
            assert_eq!(parse(text), Err(SequenceTextError::Long), "{text}");
        }
        assert_eq!(parse("0-65535").map(|all| all.0.len()), Ok(1 << 16));
        assert_eq!(parse(" 4-6  6 5\n"), Ok(Sequence(vec![4, 5, 6, 6, 5])));
        assert_eq!(Sequence(vec![4, 5, 6, 6, 5]).to_string(), "4-6 6 5");
    }

    proptest! {
        #[test]
        fn texts_are_read_as_they_were_written(all in prop::collection::vec(0u32..9, 0..40)) {
            let sequence = Sequence(all);
            prop_assert_eq!(sequence.to_string().parse::<Sequence>(), Ok(sequence));
        }
    }
}
