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

/// Encodes `values` together with what `residual` holds, which afterwards holds what was lost, and
/// puts into `decoded` what receivers will see: three slices of one length. The residual is the
/// caller's, so that it survives a change of codec. Returns the bytes used.
///
/// # Errors
/// Those of the codec. A buffer that is too short leaves the residual as it was.
pub fn encode(
    codec: &mut (impl Codec + ?Sized),
    values: &[f32],
    residual: &mut [f32],
    wire: &mut [u8],
    decoded: &mut [f32],
) -> Result<usize, CodecError> {
    super::wire::space(codec, values.len(), wire)?;
    let carried = carry(values, residual);
    let used = codec.encode(if carried { residual } else { values }, wire)?;
    codec.decode(&wire[..used], decoded)?;
    if carried {
        keep_lost(residual, decoded);
    }
    Ok(used)
}

/// First half of [`encode`]: adds `values` to the residual, which is what to encode. If one of them
/// is not finite the residual stays, and `false` says to encode them as they are.
pub fn carry(values: &[f32], residual: &mut [f32]) -> bool {
    let finite = is_carried(values);
    if finite {
        residual.iter_mut().zip(values).for_each(|(residual, value)| *residual += value);
    }
    finite
}

/// Whether [`carry`] adds these values.
pub fn is_carried(values: &[f32]) -> bool {
    all_finite(values)
}

/// Second half of [`encode`]: takes what receivers will see from what was carried.
pub fn keep_lost(residual: &mut [f32], decoded: &[f32]) {
    for (residual, decoded) in residual.iter_mut().zip(decoded) {
        let lost = *residual - decoded;
        let whole = if residual.is_finite() { *residual } else { 0.0 };
        *residual = if lost.is_finite() { lost } else { whole };
    }
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
        encode(&mut self.codec, values, &mut self.residual, wire, &mut self.decoded)
    }

    fn decode(&self, wire: &[u8], values: &mut [f32]) -> Result<(), CodecError> {
        self.codec.decode(wire, values)
    }

    fn visit_state(&mut self, visit: &mut dyn FnMut(&'static str, &mut [f32])) {
        visit("residual", &mut self.residual);
        self.codec.visit_state(visit);
    }
}
