//! Error feedback: what a codec lost in a step is added to the values of the next.

use super::wire::all_finite;
use super::{Codec, CodecError};

/// A codec that makes up for what it lost (Seide et al. 2014; Karimireddy et al. 2019).
///
/// After a step, residual + decoded = values + residual before it, each to one unit in the last
/// place of the largest of the three. Values that are not finite are encoded as they are and leave
/// the residual; what overflows in the codec stays in the residual whole.
#[derive(Clone, Debug)]
pub struct ErrorFeedback<C> {
    codec: C,
    residual: Vec<f32>,
    decoded: Vec<f32>,
}

impl<C: Codec> ErrorFeedback<C> {
    /// Feedback around `codec` for `values` values, with nothing lost yet.
    pub fn new(codec: C, values: usize) -> Self {
        Self { codec, residual: vec![0.0; values], decoded: vec![0.0; values] }
    }

    /// What is to be made up for.
    pub fn residual(&self) -> &[f32] {
        &self.residual
    }
}

impl<C: Codec> Codec for ErrorFeedback<C> {
    fn name(&self) -> &'static str {
        self.codec.name()
    }

    fn wire_bytes(&self, values: u64) -> u64 {
        self.codec.wire_bytes(values)
    }

    fn encode(&mut self, values: &[f32], wire: &mut [u8]) -> Result<usize, CodecError> {
        let (expected, got) = (self.residual.len(), values.len());
        if expected != got {
            return Err(CodecError::WrongCount { codec: self.name(), expected, got });
        }
        if !all_finite(values) {
            return self.codec.encode(values, wire);
        }
        super::wire::space(&self.codec, got, wire)?; // before the residual changes
        for (residual, value) in self.residual.iter_mut().zip(values) {
            *residual += value;
        }
        let used = self.codec.encode(&self.residual, wire)?;
        self.codec.decode(&wire[..used], &mut self.decoded)?;
        for (residual, decoded) in self.residual.iter_mut().zip(&self.decoded) {
            let lost = *residual - decoded;
            let whole = if residual.is_finite() { *residual } else { 0.0 };
            *residual = if lost.is_finite() { lost } else { whole };
        }
        Ok(used)
    }

    fn decode(&self, wire: &[u8], values: &mut [f32]) -> Result<(), CodecError> {
        self.codec.decode(wire, values)
    }

    fn visit_state(&mut self, visit: &mut dyn FnMut(&'static str, &mut [f32])) {
        visit("residual", &mut self.residual);
        self.codec.visit_state(visit);
    }
}
