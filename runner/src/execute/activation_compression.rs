//! Values that travel between stages in fewer bytes.

use super::arena::Arena;
use pipewright_core::compress::{Codec, CodecError, CodecKind};
use pipewright_core::plan::{Encoded, Instruction, Program, Region};

/// The codecs of a rank's messages.
pub(super) struct ActivationCompression {
    codecs: Vec<(CodecKind, Box<dyn Codec>)>,
    /// What a receiver will see of a message, to compare.
    seen: Vec<f32>,
    error: ActivationError,
}

/// Squares of what messages lost and of what they were, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ActivationError {
    /// Of the differences.
    pub lost: f64,
    /// Of the values.
    pub sent: f64,
}

impl ActivationError {
    /// Length of what was lost in units of what was sent; 0 of nothing.
    pub fn relative(self) -> f64 {
        if self.sent > 0.0 { (self.lost / self.sent).sqrt() } else { 0.0 }
    }
}

impl ActivationCompression {
    /// What `program` needs.
    pub fn new(program: &Program) -> Self {
        let mut edges = Self { codecs: vec![], seen: vec![], error: ActivationError::default() };
        for instruction in &program.train {
            let (Instruction::Send { encode: Some(encoded), .. }
            | Instruction::Recv { decode: Some(encoded), .. }) = instruction
            else {
                continue;
            };
            let Encoded { codec, values } = *encoded;
            if !edges.codecs.iter().any(|(kind, _)| *kind == codec) {
                let built = codec.build(0).expect("plans are checked");
                edges.codecs.push((codec, built));
            }
            let len = values.bytes.0 as usize / 4;
            edges.seen.resize(edges.seen.len().max(len), 0.0);
        }
        edges
    }

    fn codec(&mut self, kind: CodecKind) -> &mut dyn Codec {
        let found = self.codecs.iter_mut().find(|(known, _)| *known == kind);
        &mut *found.expect("every codec of the program was built").1
    }

    /// Writes the message of `encoded.values` to `wire`. With `compare` it adds up what is lost.
    pub fn encode(
        &mut self,
        arena: &mut Arena,
        encoded: Encoded,
        wire: Region,
        compare: bool,
    ) -> Result<(), CodecError> {
        let (values, wire) = arena.values_and_bytes(encoded.values, wire);
        self.codec(encoded.codec).encode(values, wire)?;
        if !compare {
            return Ok(());
        }
        let mut seen = std::mem::take(&mut self.seen);
        let decoded = self.codec(encoded.codec).decode(wire, &mut seen[..values.len()]);
        for (value, seen) in values.iter().zip(&seen) {
            let (value, seen) = (f64::from(*value), f64::from(*seen));
            self.error.lost += (value - seen) * (value - seen);
            self.error.sent += value * value;
        }
        self.seen = seen;
        decoded
    }

    /// Reads a message that has arrived.
    pub fn decode(
        &mut self,
        arena: &mut Arena,
        encoded: Encoded,
        wire: Region,
    ) -> Result<(), CodecError> {
        let (values, wire) = arena.values_and_bytes(encoded.values, wire);
        self.codec(encoded.codec).decode(wire, values)
    }

    /// What was lost since the last call.
    pub fn take_error(&mut self) -> ActivationError {
        std::mem::take(&mut self.error)
    }
}
