//! A bucket's places, cut into what is encoded by itself.

use pipewright_core::compress::CodecKind;
use pipewright_core::compress::division::{Chunk, Division, total};
use pipewright_core::compress::share::Share;
use std::ops::Range;

/// Values that are encoded by themselves: all of one tensor.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    /// Places in the bucket.
    pub range: Range<usize>,
    /// Place of the first among all values that this rank exchanges: where residuals and codes of the
    /// operator lie.
    pub at: usize,
    /// Which tensor of [`Share::tensors`].
    pub tensor: usize,
}

impl Piece {
    /// Its places among all values that this rank exchanges.
    pub fn dense(&self) -> Range<usize> {
        self.at..self.at + self.range.len()
    }
}

/// By part, by chunk.
pub(super) type Parts = Vec<Vec<Vec<Piece>>>;

/// The pieces of a division of what `share` exchanges.
pub(super) fn parts(share: &Share, division: &Division) -> Parts {
    let mut at = 0;
    let mut piece = |range: &Range<usize>| {
        let tensor =
            share.tensors.iter().position(|t| t.start <= range.start && range.end <= t.end);
        let piece = Piece { range: range.clone(), at, tensor: tensor.expect("of one tensor") };
        at += range.len();
        piece
    };
    let mut chunk = |chunk: &Chunk| chunk.pieces.iter().map(&mut piece).collect();
    division.parts.iter().map(|part| part.iter().map(&mut chunk).collect()).collect()
}

/// Where the messages of a two-shot sum lie, for one codec.
pub(super) struct Layout {
    /// By part and chunk: this rank's values, among what goes out.
    pub first: Vec<Vec<Range<usize>>>,
    /// By chunk of this rank's part: the sum, behind them.
    pub sum: Vec<Range<usize>>,
    /// By rank and chunk of this rank's part: the rank's values, among what comes in. Nothing for this
    /// rank itself.
    pub arriving: Vec<Vec<Range<usize>>>,
    /// By part and chunk: the sums of other ranks, behind them.
    pub sums: Vec<Vec<Range<usize>>>,
}

impl Layout {
    pub fn new(division: &Division, own: usize, codec: CodecKind) -> Self {
        let lay = |end: &mut usize, part: &Vec<Chunk>| -> Vec<Range<usize>> {
            let place = |chunk: &Chunk| {
                let start = *end;
                *end += chunk.wire_bytes(codec) as usize;
                start..*end
            };
            part.iter().map(place).collect()
        };
        let parts = &division.parts;
        let (mut out, mut incoming) = (0, 0);
        let first = parts.iter().map(|part| lay(&mut out, part)).collect();
        let sum = lay(&mut out, &parts[own]);
        let others = |at: usize| at != own;
        let arriving = (0..parts.len())
            .map(|rank| if others(rank) { lay(&mut incoming, &parts[own]) } else { vec![] })
            .collect();
        let sums = (0..parts.len())
            .map(|rank| if others(rank) { lay(&mut incoming, &parts[rank]) } else { vec![] })
            .collect();
        Self { first, sum, arriving, sums }
    }
}

/// Codes of a call of the operator, at most: 1 MiB. Encoding, calls and decoding overlap.
const SEGMENT: usize = 1 << 20;

/// Places in `pieces` of what one call of the operator takes.
pub(super) fn segments(pieces: &[Piece]) -> Vec<Range<usize>> {
    let mut segments: Vec<Range<usize>> = vec![];
    let mut values = 0;
    for (at, piece) in pieces.iter().enumerate() {
        values += piece.range.len();
        match segments.last_mut() {
            Some(last) if values <= SEGMENT => last.end = at + 1,
            _ => {
                segments.push(at..at + 1);
                values = piece.range.len();
            }
        }
    }
    segments
}

/// The span of the places of some tensors, with whatever lies between them.
pub(super) fn span(tensors: &[Range<usize>]) -> Range<usize> {
    match (tensors.first(), tensors.last()) {
        (Some(first), Some(last)) if total(tensors) > 0 => first.start..last.end,
        _ => 0..0,
    }
}
