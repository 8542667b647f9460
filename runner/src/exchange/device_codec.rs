//! Encoding and decoding on the device that has the values: codes alone travel between its memory and the
//! host's. A device takes as many chunks together as there are: a launch has a block for each piece.

use super::encoder::{self, Lengths};
use super::memory::MessageBuffer;
use super::pieces::{Layout, Parts, Piece};
use super::residual::Residuals;
use super::resources::Resources;
use crate::device::{self, Coded, Coder, DeviceError, DevicePtr};
use crate::transport::TransportError;
use pipewright_core::compress::share::Share;
use pipewright_core::compress::{CodecError, CodecKind, Method, Reduction, Rounding};
use std::collections::VecDeque;
use std::ops::Range;

/// Whether the device sums by a reduction: it has kernels for the codec, and what the host sums before, if
/// anything, is summed by devices (`inside`). All else is this processor's.
pub(super) fn takes(
    coder: &dyn Coder,
    share: &Share,
    intra_node: bool,
    reduction: &Reduction,
) -> bool {
    let encodes = match share.intra_node {
        None => !share.across.is_empty(),
        // Also where this rank has no shard, and so nothing to encode.
        Some(_) => intra_node,
    };
    encodes && !reduction.is_plain() && coder.knows(reduction.method.codec)
}

/// What a bucket has on its device.
pub(super) struct DeviceCodec {
    /// Its first value.
    values: DevicePtr,
    /// What goes out and what comes in, where the host has them too.
    out: DevicePtr,
    incoming: DevicePtr,
    /// Scales of pieces.
    scales: DevicePtr,
    /// By reduction; none for those that the host takes.
    tables: Vec<Option<Tables>>,
    /// Marks: when the values are there, and when the sum is.
    marks: [usize; 2],
}

/// Tables of pieces: of two-shot sums one for each part, of the operator one of all.
struct Tables(Vec<Table>);

struct Table {
    at: DevicePtr,
    /// Pieces before each chunk and the device's own chunks of them, and all.
    ends: Vec<(u32, u32)>,
    /// Place of the first value among those that this rank exchanges.
    first: usize,
}

impl Table {
    /// Of chunks of pieces with the places of their messages, bytes from the first one's.
    fn new(chunks: &[Vec<(&Piece, usize)>], coder: &mut dyn Coder) -> Result<Self, DeviceError> {
        let first = chunks.iter().flatten().next().map_or(0, |(piece, _)| piece.at);
        let entry = |(piece, wire): &(&Piece, usize)| device::Piece {
            values: piece.range.start as u64,
            count: piece.range.len() as u64,
            residual: (piece.at - first) as u64,
            wire: *wire as u64,
        };
        let list: Vec<device::Piece> = chunks.iter().flatten().map(entry).collect();
        let at = coder.allocate(device::Piece::BYTES * list.len() as u64)?;
        if !list.is_empty() {
            coder.upload(at, &device::Piece::table(&list))?;
        }
        let (mut ends, mut pieces) = (vec![(0, 0)], 0);
        for chunk in chunks {
            pieces += chunk.len();
            ends.push((pieces as u32, device::Piece::chunks(&list[..pieces])));
        }
        Ok(Self { at, ends, first })
    }

    /// The pieces of some chunks.
    fn coded(&self, chunks: &Range<usize>) -> Coded {
        let ((begin, before), (end, all)) = (self.ends[chunks.start], self.ends[chunks.end]);
        let pieces = self.at.after(device::Piece::BYTES * u64::from(begin));
        Coded { pieces, count: end - begin, chunks: all - before, ..Coded::default() }
    }
}

impl DeviceCodec {
    /// For a bucket whose first value is at `values`, where the device takes one of its reductions:
    /// those with `taken`.
    pub fn new(
        (reductions, layouts, on_device): (&[Reduction], &[Option<Layout>], &[bool]),
        (share, parts): (&Share, &Parts),
        (values, marks): (DevicePtr, [usize; 2]),
        coder: &mut dyn Coder,
    ) -> Result<Option<Self>, DeviceError> {
        let mut tables = vec![];
        for ((reduction, layout), on_device) in reductions.iter().zip(layouts).zip(on_device) {
            tables.push(match (on_device, layout) {
                (false, _) => None,
                (true, Some(_)) => Some(of_parts(parts, reduction.method.codec, coder)?),
                (true, None) => Some(of_all(parts, coder)?),
            });
        }
        if tables.iter().all(Option::is_none) {
            return Ok(None);
        }
        let buffers = share.buffers(reductions);
        let pieces = parts.iter().flatten().flatten().count() as u64;
        let scales = if buffers.scales > 0 { 4 * pieces } else { 0 };
        let [out, incoming, scales] =
            [buffers.out, buffers.incoming, scales].map(|bytes| coder.allocate(bytes));
        Ok(Some(Self { values, out: out?, incoming: incoming?, scales: scales?, tables, marks }))
    }

    /// Notes that the device was asked for all of a sum.
    pub fn asked(&self, coder: &mut dyn Coder) -> Result<(), DeviceError> {
        coder.mark(self.marks[1])
    }

    /// Whether it has done all of it.
    pub fn has_done(&self, coder: &mut dyn Coder) -> Result<bool, DeviceError> {
        coder.reached(self.marks[1])
    }
}

fn of_parts(parts: &Parts, codec: CodecKind, coder: &mut dyn Coder) -> Result<Tables, DeviceError> {
    let table = |part: &Vec<Vec<Piece>>| {
        let mut end = 0;
        let mut place = |piece: &Piece| {
            let start = end;
            end += codec.wire_bytes(piece.range.len() as u64) as usize;
            start
        };
        let chunks: Vec<Vec<(&Piece, usize)>> = part
            .iter()
            .map(|chunk| chunk.iter().map(|piece| (piece, place(piece))).collect())
            .collect();
        Table::new(&chunks, coder)
    };
    Ok(Tables(parts.iter().map(table).collect::<Result<_, _>>()?))
}

/// Each piece is a chunk.
fn of_all(parts: &Parts, coder: &mut dyn Coder) -> Result<Tables, DeviceError> {
    let pieces = parts.iter().flatten().flatten();
    let chunks: Vec<Vec<(&Piece, usize)>> = pieces.map(|piece| vec![(piece, piece.at)]).collect();
    Ok(Tables(vec![Table::new(&chunks, coder)?]))
}

/// For two-shot sums.
pub(super) struct DeviceTwoShot<'a> {
    pub bucket: usize,
    pub reduction: usize,
    /// Ranks of the group, and this rank's place there.
    pub ranks: &'a [u32],
    pub own: usize,
    pub parts: &'a Parts,
    pub layout: &'a Layout,
    pub method: Method,
    /// The codec's name.
    pub codec: &'static str,
    pub device_codec: &'a DeviceCodec,
    pub coder: &'a mut dyn Coder,
    pub out: &'a MessageBuffer,
    pub incoming: &'a MessageBuffer,
    pub residuals: &'a Residuals,
}

impl DeviceTwoShot<'_> {
    fn table(&self, part: usize) -> &Table {
        &self.device_codec.tables[self.reduction].as_ref().expect("the device takes it").0[part]
    }

    /// Chunks of a part, whose values lie where all do.
    fn coded(&self, part: usize, chunks: &Range<usize>) -> Coded {
        let values = self.device_codec.values;
        Coded { values, decoded: values, ..self.table(part).coded(chunks) }
    }

    /// Refuses messages of the `rank`-th rank that are not as long as values of these chunks are.
    fn check(
        &self,
        rank: usize,
        part: usize,
        chunks: &Range<usize>,
        lengths: impl Iterator<Item = usize>,
    ) -> Result<(), TransportError> {
        for (chunk, got) in chunks.clone().zip(lengths) {
            let needed = self.layout.first[part][chunk].len();
            if got != needed {
                let values = self.parts[part][chunk].iter().map(|piece| piece.range.len()).sum();
                let (codec, needed) = (self.codec, needed as u64);
                let source = CodecError::WrongLength { codec, values, needed, got };
                return Err(Resources::fault(self.bucket, self.ranks[rank], source));
            }
        }
        Ok(())
    }

    /// Hands messages that have come over to the device.
    fn hand_over(&mut self, messages: Range<usize>) -> Result<(), DeviceError> {
        // SAFETY: the messages are there, and nobody writes to them.
        let bytes = unsafe { self.incoming.read(messages.clone()) };
        self.coder.upload(self.device_codec.incoming.after(messages.start as u64), bytes)
    }

    /// Fetches messages that are to be sent.
    fn fetch(&mut self, messages: Range<usize>) -> Result<(), DeviceError> {
        // SAFETY: nothing else uses these bytes before they are sent, when this has returned.
        let bytes = unsafe { self.out.write(messages.clone()) };
        self.coder.download(self.device_codec.out.after(messages.start as u64), bytes)
    }
}

/// Where the messages of some chunks lie.
fn span(places: &[Range<usize>], chunks: &Range<usize>) -> Range<usize> {
    places[chunks.start].start..places[chunks.end - 1].end
}

/// Where messages begin in the device's memory.
fn wire(at: DevicePtr, places: &[Range<usize>]) -> DevicePtr {
    at.after(places[0].start as u64)
}

impl encoder::TwoShotCodec for DeviceTwoShot<'_> {
    fn at_once(&self) -> usize {
        usize::MAX
    }

    fn ready(&mut self) -> Result<bool, TransportError> {
        Ok(self.coder.reached(self.device_codec.marks[0])?)
    }

    fn encode(&mut self, part: usize, chunks: Range<usize>) -> Result<Lengths, TransportError> {
        let places = &self.layout.first[part];
        let mut coded = self.coded(part, &chunks);
        (coded.decoded, coded.wire) = (DevicePtr::NULL, wire(self.device_codec.out, places));
        if self.method.feedback {
            [coded.residual, _] = self.residuals.on_device(self.table(part).first);
        }
        self.coder.encode(self.method.codec, &coded)?;
        if part != self.own {
            self.fetch(span(places, &chunks))?;
        }
        Ok(places[chunks].iter().map(Range::len).collect())
    }

    fn sum(
        &mut self,
        chunks: Range<usize>,
        arrived: &[VecDeque<usize>],
    ) -> Result<Lengths, TransportError> {
        let (own, layout, codec) = (self.own, self.layout, self.method.codec);
        for (rank, lengths) in arrived.iter().enumerate() {
            let mut coded = self.coded(own, &chunks);
            if rank == own {
                coded.wire = wire(self.device_codec.out, &layout.first[own]);
            } else {
                self.check(rank, own, &chunks, lengths.iter().copied())?;
                self.hand_over(span(&layout.arriving[rank], &chunks))?;
                coded.wire = wire(self.device_codec.incoming, &layout.arriving[rank]);
            }
            // The own values that were here are encoded.
            self.coder.decode(codec, &coded, rank > 0)?;
        }
        let mut coded = self.coded(own, &chunks);
        coded.wire = wire(self.device_codec.out, &layout.sum);
        if self.method.feedback {
            [_, coded.residual] = self.residuals.on_device(0);
        }
        self.coder.encode(codec, &coded)?;
        self.fetch(span(&layout.sum, &chunks))?;
        Ok(layout.sum[chunks].iter().map(Range::len).collect())
    }

    fn decode(
        &mut self,
        part: usize,
        chunks: Range<usize>,
        lengths: &[usize],
    ) -> Result<(), TransportError> {
        let places = &self.layout.sums[part];
        self.check(part, part, &chunks, lengths.iter().copied())?;
        self.hand_over(span(places, &chunks))?;
        let mut coded = self.coded(part, &chunks);
        coded.wire = wire(self.device_codec.incoming, places);
        Ok(self.coder.decode(self.method.codec, &coded, false)?)
    }
}

/// For sums of codes.
pub(super) struct DeviceOperator<'a> {
    pub reduction: usize,
    pub pieces: &'a [Piece],
    pub feedback: bool,
    pub rounding: Rounding,
    pub device_codec: &'a DeviceCodec,
    pub coder: &'a mut dyn Coder,
    pub codes: &'a MessageBuffer,
    pub scales: &'a mut [f32],
    pub residuals: &'a Residuals,
}

impl DeviceOperator<'_> {
    /// Pieces with all that belongs to them.
    fn coded(&self, pieces: &Range<usize>) -> Coded {
        let DeviceCodec { values, out, scales, .. } = *self.device_codec;
        let tables =
            self.device_codec.tables[self.reduction].as_ref().expect("the device takes it");
        let mut coded = Coded { values, wire: out, ..tables.0[0].coded(pieces) };
        coded.scales = scales.after(4 * pieces.start as u64);
        if self.feedback {
            [coded.residual, _] = self.residuals.on_device(0);
        }
        coded
    }

    fn span(&self, pieces: &Range<usize>) -> Range<usize> {
        self.pieces[pieces.start].at..self.pieces[pieces.end - 1].dense().end
    }
}

impl encoder::OperatorCodec for DeviceOperator<'_> {
    fn at_once(&self) -> usize {
        usize::MAX
    }

    fn ready(&mut self) -> Result<bool, TransportError> {
        Ok(self.coder.reached(self.device_codec.marks[0])?)
    }

    fn measure(&mut self, pieces: Range<usize>, agreed: bool) -> Result<(), TransportError> {
        if agreed {
            return Ok(());
        }
        let coded = self.coded(&pieces);
        self.coder.measure(&coded)?;
        let mut largest = vec![0.0_f32; pieces.len()];
        self.coder.download(coded.scales, bytemuck::cast_slice_mut(&mut largest))?;
        for (piece, largest) in self.pieces[pieces].iter().zip(largest) {
            let scale = &mut self.scales[piece.tensor];
            *scale = scale.max(largest);
        }
        Ok(())
    }

    fn encode(&mut self, pieces: Range<usize>) -> Result<(), TransportError> {
        let scale = |piece: &Piece| self.scales[piece.tensor];
        let scales: Vec<f32> = self.pieces[pieces.clone()].iter().map(scale).collect();
        let coded = self.coded(&pieces);
        self.coder.upload(coded.scales, bytemuck::cast_slice(&scales))?;
        self.coder.encode_scaled(self.rounding, &coded)?;
        let span = self.span(&pieces);
        // SAFETY: no call on these codes has begun.
        let codes = unsafe { self.codes.write(span.clone()) };
        Ok(self.coder.download(self.device_codec.out.after(span.start as u64), codes)?)
    }

    fn decode(&mut self, pieces: Range<usize>) -> Result<(), TransportError> {
        let span = self.span(&pieces);
        // SAFETY: the call on these codes has ended.
        let codes = unsafe { self.codes.read(span.clone()) };
        self.coder.upload(self.device_codec.out.after(span.start as u64), codes)?;
        let coded = Coded { decoded: self.device_codec.values, ..self.coded(&pieces) };
        Ok(self.coder.decode_scaled(&coded)?)
    }

    fn scales(&mut self) -> &mut [f32] {
        self.scales
    }
}
