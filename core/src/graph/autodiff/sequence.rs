//! Recomputation: a stage's computations in another order, some of them more than once.
//!
//! Every repetition writes fresh values, and what follows reads the newest, so that lifetimes say by
//! themselves what is kept and what is forgotten in between. The passes stay what they were:
//!
//! ```text
//! sequence:   forward, once each + again ..  |  input gradients, once each + again ..  |  weight gradients + again ..
//!                               forward_end -+                   input_gradient_end  -+
//! ```
//! A mark stands right behind the last computation of its pass that was not done before; what is
//! repeated from there on belongs to the next pass. Hence the forward pass computes all that it did,
//! sends included, and a repetition runs in the pass of its first reader or before it.

#[cfg(test)]
mod tests;

use super::{Computation, ComputationKind, Port, TrainingGraph};
use crate::ids::ValueId;
use thiserror::Error;

/// Why an order of a stage's computations is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SequenceError {
    /// There is no such computation.
    #[error("position {position} names computation {computation}, the stage has {count} from 0 on")]
    Unknown {
        /// Where in the sequence.
        position: u32,
        /// What stands there.
        computation: u32,
        /// Computations of the stage.
        count: u32,
    },
    /// It reads what nobody has computed yet.
    #[error(
        "position {position}: computation {computation} reads what {missing} has yet to compute"
    )]
    Input {
        /// Where in the sequence.
        position: u32,
        /// What stands there.
        computation: u32,
        /// The computation that writes what it reads.
        missing: u32,
    },
    /// It belongs to a pass that begins later.
    #[error(
        "position {position}: computation {computation} belongs to a later pass than {missing}, \
         which has yet to be computed"
    )]
    Pass {
        /// Where in the sequence.
        position: u32,
        /// What stands there.
        computation: u32,
        /// The first one of the passes before that is still missing.
        missing: u32,
    },
    /// A weight gradient is added to what is there: twice is too much.
    #[error("position {position}: weight gradient {computation} would be added a second time")]
    AddedTwice {
        /// Where in the sequence.
        position: u32,
        /// What stands there.
        computation: u32,
    },
    /// It is never computed.
    #[error("computation {computation} is missing")]
    Missing {
        /// The first that is.
        computation: u32,
    },
}

/// A part of a training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Up to the activations that are sent.
    Forward,
    /// Up to the gradients that are sent.
    InputGradient,
    /// The rest.
    WeightGradient,
}

impl TrainingGraph {
    /// The part of the step that the time of computation `at` counts in: where it runs, and in a
    /// fused backward pass what it is.
    pub fn part(&self, at: u32) -> Part {
        let kind = self.computations[at as usize].kind;
        if at < self.forward_end {
            Part::Forward
        } else if kind == ComputationKind::WeightGradient || at >= self.input_gradient_end {
            Part::WeightGradient
        } else {
            Part::InputGradient
        }
    }

    /// The same stage with its computations in the order of `sequence`, indexes of
    /// [`Self::computations`] with repetitions. Each kernel sees the numbers that it saw before, and
    /// weight gradients of one parameter are one computation, so results have the same bits.
    ///
    /// Linear in the sequence and what it reads.
    ///
    /// # Errors
    /// The first position that cannot be computed, or what is never computed.
    pub fn in_sequence(&self, sequence: &[u32]) -> Result<Self, SequenceError> {
        let mut rewriting = Rewriting::new(self);
        for (position, &computation) in (0..).zip(sequence) {
            rewriting.take(position, computation)?;
        }
        rewriting.finish()
    }

    /// The pass of a computation that is done for the first time: 0 to 2.
    fn pass(&self, computation: u32) -> usize {
        usize::from(computation >= self.forward_end)
            + usize::from(computation >= self.input_gradient_end)
    }
}

/// A training graph that is being rewritten.
struct Rewriting<'a> {
    base: &'a TrainingGraph,
    out: TrainingGraph,
    /// By value of `base`: the one that later computations read.
    newest: Vec<Option<ValueId>>,
    /// By value of `base`: who writes it.
    writer: Vec<u32>,
    done: Vec<bool>,
    /// Computations that each pass still has to do.
    left: [u32; 3],
    /// Passes that are complete.
    passes: usize,
}

impl<'a> Rewriting<'a> {
    fn new(base: &'a TrainingGraph) -> Self {
        let count = base.computations.len() as u32;
        let (forward, input) = (base.forward_end, base.input_gradient_end);
        let mut writer = vec![count; base.values.len()];
        for (at, computation) in (0..).zip(&base.computations) {
            computation.writes.iter().for_each(|value| writer[value.index()] = at);
        }
        // What is loaded or received is there.
        let there = |(index, writer): (u32, &u32)| (*writer == count).then_some(ValueId(index));
        let newest = (0..).zip(&writer).map(there).collect();
        let out = TrainingGraph { computations: vec![], ..base.clone() };
        let left = [forward, input - forward, count - input];
        let done = vec![false; count as usize];
        let mut rewriting = Self { base, out, newest, writer, done, left, passes: 0 };
        rewriting.end_passes();
        rewriting
    }

    fn take(&mut self, position: u32, computation: u32) -> Result<(), SequenceError> {
        let count = self.base.computations.len() as u32;
        let Some(of) = self.base.computations.get(computation as usize) else {
            return Err(SequenceError::Unknown { position, computation, count });
        };
        let again = self.done[computation as usize];
        if again && of.kind == ComputationKind::WeightGradient {
            return Err(SequenceError::AddedTwice { position, computation });
        }
        if self.base.pass(computation) > self.passes {
            let missing = self.first_missing();
            return Err(SequenceError::Pass { position, computation, missing });
        }
        let read = |value: &ValueId| {
            let missing = self.writer[value.index()];
            self.newest[value.index()].ok_or(SequenceError::Input {
                position,
                computation,
                missing,
            })
        };
        let reads = of.reads.iter().map(read).collect::<Result<_, _>>()?;
        let writes = of.writes.iter().map(|value| self.write(*value, again)).collect();
        self.out.computations.push(Computation { reads, writes, again, ..of.clone() });
        if !again {
            self.done[computation as usize] = true;
            self.left[self.base.pass(computation)] -= 1;
            self.end_passes();
        }
        Ok(())
    }

    /// The value that `value` of the base becomes when it is written now.
    fn write(&mut self, value: ValueId, again: bool) -> ValueId {
        let mut id = value;
        if again {
            id = ValueId(self.out.values.len() as u32);
            self.out.values.push(self.base.values[value.index()]);
        }
        self.newest[value.index()] = Some(id);
        id
    }

    /// Sets the marks that are reached, and what is handed on there.
    fn end_passes(&mut self) {
        let newest = |ports: &mut Vec<Port>, newest: &[Option<ValueId>]| {
            let ports = ports.iter_mut();
            ports.for_each(|port| port.value = newest[port.value.index()].unwrap_or(port.value));
        };
        let at = self.out.computations.len() as u32;
        while self.passes < 2 && self.left[self.passes] == 0 {
            self.passes += 1;
            if self.passes == 1 {
                self.out.forward_end = at;
                newest(&mut self.out.sends, &self.newest);
                let loss = |value: ValueId| self.newest[value.index()].unwrap_or(value);
                self.out.loss = self.base.loss.map(loss);
            } else {
                self.out.input_gradient_end = at;
                newest(&mut self.out.gradient_sends, &self.newest);
            }
        }
    }

    fn first_missing(&self) -> u32 {
        self.done.iter().position(|done| !done).unwrap_or(self.done.len()) as u32
    }

    fn finish(mut self) -> Result<TrainingGraph, SequenceError> {
        if self.left != [0; 3] {
            return Err(SequenceError::Missing { computation: self.first_missing() });
        }
        // A fused backward pass has no second mark.
        if self.base.input_gradient_end as usize == self.base.computations.len() {
            self.out.input_gradient_end = self.out.computations.len() as u32;
        }
        Ok(self.out)
    }
}
