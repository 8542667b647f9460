//! Codecs on a device: values and what was lost of them stay in its memory, codes travel.

use super::DeviceError;
use pipewright_core::compress::{CodecKind, Rounding};
use pipewright_core::units::Bytes;

/// An address on the device; 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DevicePtr(pub u64);

impl DevicePtr {
    /// None: a tensor that a kernel does without.
    pub const NULL: Self = Self(0);

    /// The address `bytes` further on; none stays none.
    pub fn after(self, bytes: u64) -> Self {
        Self(if self.0 == 0 { 0 } else { self.0 + bytes })
    }
}

/// What is encoded by itself, by its places in what a [`Coded`] names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First value, among the values and where they are decoded to.
    pub values: u64,
    /// Values.
    pub count: u64,
    /// First value of what was lost.
    pub residual: u64,
    /// First byte of its message.
    pub wire: u64,
}

/// Values that are encoded together: a device takes a piece by as many chunks as it has.
const CHUNK: u64 = 8192;

impl Piece {
    /// Bytes of an entry of a table.
    pub const BYTES: u64 = 5 * 8;

    /// The table of pieces, as it is on the device.
    pub fn table(list: &[Self]) -> Vec<u8> {
        let mut chunks = 0;
        let words = list.iter().flat_map(|p| {
            let before = chunks;
            chunks += p.count.div_ceil(CHUNK);
            [p.values, p.count, p.residual, p.wire, before]
        });
        words.flat_map(u64::to_ne_bytes).collect()
    }

    /// Chunks of all pieces.
    pub fn chunks(list: &[Self]) -> u32 {
        list.iter().map(|piece| piece.count.div_ceil(CHUNK) as u32).sum()
    }
}

/// Pieces that are encoded or decoded together, and where what they name begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coded {
    /// Entries of a [table](Piece::table).
    pub pieces: DevicePtr,
    /// How many they are.
    pub count: u32,
    /// [Chunks](Piece::chunks) of all of them.
    pub chunks: u32,
    /// Values to encode.
    pub values: DevicePtr,
    /// What was lost before and is lost now; none without error feedback.
    pub residual: DevicePtr,
    /// Messages.
    pub wire: DevicePtr,
    /// Where decoded values go; when encoding, none if nobody wants them.
    pub decoded: DevicePtr,
    /// A scale for each piece, f32, that somebody chose for all ranks; none where codecs choose their own
    /// and send them.
    pub scales: DevicePtr,
}

/// A device's codecs. It has a queue of work of its own beside the [`Accelerator`](super::Accelerator) that
/// it belongs to, so that another thread may encode while this one computes; addresses are the same.
///
/// # Errors
/// Every call fails when the device has failed, at this or at something before.
pub trait Coder: Send {
    /// Whether it encodes by a codec.
    fn knows(&self, codec: CodecKind) -> bool;

    /// Where the rank's arena has the byte at `offset`.
    fn arena(&self, offset: Bytes) -> DevicePtr;

    /// Zeroed memory that lives as long as this does.
    ///
    /// # Errors
    /// Also when there is not so much.
    fn allocate(&mut self, bytes: u64) -> Result<DevicePtr, DeviceError>;

    /// Writes bytes, which are the caller's again when it returns.
    fn upload(&mut self, to: DevicePtr, bytes: &[u8]) -> Result<(), DeviceError>;

    /// Reads bytes, when all that was asked for before is done.
    fn download(&mut self, from: DevicePtr, bytes: &mut [u8]) -> Result<(), DeviceError>;

    /// Copies within the device's memory.
    fn copy(&mut self, from: DevicePtr, to: DevicePtr, bytes: u64) -> Result<(), DeviceError>;

    /// Encodes by a codec that it [knows](Self::knows).
    fn encode(&mut self, codec: CodecKind, coded: &Coded) -> Result<(), DeviceError>;

    /// Decodes, or adds what messages say to what is there.
    fn decode(&mut self, codec: CodecKind, coded: &Coded, add: bool) -> Result<(), DeviceError>;

    /// Writes the largest finite magnitude of each piece to `scales`, of values with what was lost of them
    /// before.
    fn measure(&mut self, coded: &Coded) -> Result<(), DeviceError>;

    /// Encodes as E5M2 with `scales`, one byte a value.
    fn encode_scaled(&mut self, rounding: Rounding, coded: &Coded) -> Result<(), DeviceError>;

    /// Decodes what [`Self::encode_scaled`] wrote.
    fn decode_scaled(&mut self, coded: &Coded) -> Result<(), DeviceError>;

    /// What was asked for so far is mark `number`, in the place of an earlier one; numbers are small, and
    /// those of [`Accelerator::mark`](super::Accelerator::mark) too.
    fn mark(&mut self, number: usize) -> Result<(), DeviceError>;

    /// Whether all is done that a mark stands for. Marks that nobody made stand for nothing.
    fn reached(&mut self, number: usize) -> Result<bool, DeviceError>;
}
