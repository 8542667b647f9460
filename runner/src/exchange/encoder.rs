//! Encoding and decoding, on this processor ([`host_codec`](super::host_codec)) or on the device that has
//! the values ([`device_codec`](super::device_codec)). Messages are sent and received by the host either way.

use crate::transport::TransportError;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::ops::Range;

/// Lengths of messages, in bytes.
pub(super) type Lengths = SmallVec<[usize; 8]>;

/// Who does so in two-shot sums.
pub(super) trait TwoShotCodec {
    /// Most chunks that are worth being taken together.
    fn at_once(&self) -> usize;

    /// Whether this rank's values are there.
    fn ready(&mut self) -> Result<bool, TransportError>;

    /// Encodes this rank's values of some chunks of a part, to where they are sent from.
    fn encode(&mut self, part: usize, chunks: Range<usize>) -> Result<Lengths, TransportError>;

    /// Sums chunks of the own part over all ranks, in their order, and encodes the sums to where they
    /// are sent from. By rank: the lengths of what it sent of these chunks, and of later ones.
    fn sum(
        &mut self,
        chunks: Range<usize>,
        arrived: &[VecDeque<usize>],
    ) -> Result<Lengths, TransportError>;

    /// Decodes sums of another rank's part, which have come.
    fn decode(
        &mut self,
        part: usize,
        chunks: Range<usize>,
        lengths: &[usize],
    ) -> Result<(), TransportError>;
}

/// Who does so for sums of codes. Pieces are all of this rank's, by their numbers; scales are those of
/// tensors.
pub(super) trait OperatorCodec {
    /// Most pieces that are worth being taken together.
    fn at_once(&self) -> usize;

    /// Whether this rank's values are there.
    fn ready(&mut self) -> Result<bool, TransportError>;

    /// Adds what is carried over, and raises the scales to the largest magnitudes unless they are
    /// `agreed` on.
    fn measure(&mut self, pieces: Range<usize>, agreed: bool) -> Result<(), TransportError>;

    /// Encodes with the scales.
    fn encode(&mut self, pieces: Range<usize>) -> Result<(), TransportError>;

    /// Decodes the sums of codes with the scales.
    fn decode(&mut self, pieces: Range<usize>) -> Result<(), TransportError>;

    /// The scales.
    fn scales(&mut self) -> &mut [f32];
}
