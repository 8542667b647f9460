//! table(N): a sign and the nearest of 2^(N-1) magnitudes (Oyama; our reading where it is silent).
//!
//! Wire: the magnitudes, then the codes: `N` bits each, the first in a byte's lowest bits; the sign
//! is a code's highest bit (1: negative), the magnitude's index the others. A tensor that is not
//! finite has NaN for magnitudes.
//!
//! Three and seven bits of index are looked up: the upper 16 bits of a magnitude (256 cells an octave) give
//! the number of borders below its cell, and one comparison whether it is above the border in the
//! cell. Codebooks with different borders in one cell, and few values, are compared through or
//! searched by halves.
//! Decoding looks up all values of a byte at once.

use super::codebook::{Codebook, Levels, MOST};
use super::pack::pack;
use super::sample::Sample;
use super::{Codec, CodecError, wire};

/// Values that are encoded at a time.
const BLOCK: usize = 256;

/// Cells of the look-up.
const CELLS: usize = 1 << 16;

/// Fewest values for which filling the look-up pays.
const LOOK_UP_FROM: usize = 1 << 14;

/// The nearest magnitude of a table, N bits a value.
#[derive(Clone, Debug)]
pub struct Table {
    bits: u8,
    levels: Levels,
    sample: Sample,
    codebook: Codebook,
    /// Borders below each cell; empty for tables that are compared through.
    cells: Vec<u8>,
    /// For the first of equal borders, how many are not above it.
    behind: [u8; MOST],
}

/// How magnitudes find their index.
enum Search<'a> {
    Compare,
    Cells(&'a [u8; CELLS]),
    Halves,
}

impl Table {
    /// A table of 2^(`bits`-1) magnitudes; `bits` is 1, 2, 4 or 8.
    pub fn new(bits: u8, levels: Levels) -> Result<Self, CodecError> {
        if ![1, 2, 4, 8].contains(&bits) {
            return Err(CodecError::Settings { codec: "table", what: "bits are 1, 2, 4 or 8" });
        }
        let cells = if bits >= 4 { vec![0; CELLS] } else { Vec::new() };
        let codebook = Codebook::new(1 << (bits - 1));
        Ok(Self { bits, levels, sample: Sample::new(), codebook, cells, behind: [0; MOST] })
    }

    fn header(&self) -> usize {
        4 * self.codebook.magnitudes().len()
    }

    /// Fills the look-up; false if a cell has borders that differ.
    fn fill_cells(&mut self) -> bool {
        let borders = &self.codebook.borders()[..self.codebook.magnitudes().len() - 1];
        let (mut from, mut first) = (0, 0);
        for equal in borders.chunk_by(|a, b| a == b) {
            let cell = cell_of(equal[0]);
            if cell < from {
                return false;
            }
            self.cells[from..=cell].fill(first as u8);
            from = cell + 1;
            let behind = first + equal.len();
            self.behind[first] = behind as u8;
            first = behind;
        }
        self.cells[from..].fill(first as u8);
        true
    }

    /// Encodes all values in blocks; false if one is not finite.
    fn encode_blocks<const BITS: u32>(
        &self,
        values: &[f32],
        wire: &mut [u8],
        index: impl Fn(&[f32], &mut [u8]),
    ) -> bool {
        let mut worst = 0;
        let mut codes = [0; BLOCK];
        let places = wire.chunks_mut(BLOCK * BITS as usize / 8);
        for (values, place) in values.chunks(BLOCK).zip(places) {
            let codes = &mut codes[..values.len()];
            index(values, codes);
            for (code, value) in codes.iter_mut().zip(values) {
                *code |= ((value.to_bits() >> 31) << (BITS - 1)) as u8;
                worst = worst.max((value.to_bits() & 0x7fff_ffff) as i32);
            }
            pack::<BITS>(codes, place);
        }
        worst < 0x7f80_0000
    }

    fn encode_by<const BITS: u32, const COUNT: usize>(
        &self,
        values: &[f32],
        wire: &mut [u8],
        search: &Search,
    ) -> bool {
        let borders = self.codebook.borders();
        match search {
            Search::Compare => self.encode_blocks::<BITS>(values, wire, |values, codes| {
                for (code, value) in codes.iter_mut().zip(values) {
                    let above = borders[..COUNT].iter().map(|b| u32::from(value.abs() > *b));
                    *code = above.sum::<u32>() as u8;
                }
            }),
            Search::Cells(cells) => self.encode_blocks::<BITS>(values, wire, |values, codes| {
                for (code, value) in codes.iter_mut().zip(values) {
                    *code = look_up(value.abs(), cells, borders, &self.behind);
                }
            }),
            Search::Halves => self.encode_blocks::<BITS>(values, wire, |values, codes| {
                for (code, value) in codes.iter_mut().zip(values) {
                    *code = borders[..COUNT].partition_point(|b| value.abs() > *b) as u8;
                }
            }),
        }
    }

    /// Decodes bytes of `PER_BYTE` codes each.
    fn decode_by<const PER_BYTE: usize>(wire: &[u8], values: &mut [f32], signed: &[f32; 256]) {
        let bits = 8 / PER_BYTE;
        let mut decoded = [[0f32; PER_BYTE]; 256];
        for (byte, decoded) in decoded.iter_mut().enumerate() {
            for (i, value) in decoded.iter_mut().enumerate() {
                *value = signed[(byte >> (i * bits)) & ((1 << bits) - 1)];
            }
        }
        let (groups, rest) = values.as_chunks_mut::<PER_BYTE>();
        for (group, byte) in groups.iter_mut().zip(wire) {
            *group = decoded[*byte as usize];
        }
        if let Some(byte) = wire.get(groups.len()) {
            rest.copy_from_slice(&decoded[*byte as usize][..rest.len()]);
        }
    }

    /// The values of all codes, from the head of a message.
    fn read_codebook(&self, head: &[u8]) -> Result<[f32; 256], CodecError> {
        let count = head.len() / 4;
        let mut signed = [0.0; 256];
        wire::read_f32s(head, &mut signed[..count]);
        let magnitudes = &signed[..count];
        let number =
            magnitudes.iter().all(|m| m.is_finite() && *m >= 0.0) && magnitudes.is_sorted();
        if !number && !magnitudes.iter().all(|m| m.is_nan()) {
            let what = "its magnitudes do not ascend from 0";
            return Err(CodecError::Damaged { codec: self.name(), what });
        }
        let (positive, negative) = signed.split_at_mut(count);
        for (n, p) in negative.iter_mut().zip(positive) {
            *n = -*p;
        }
        Ok(signed)
    }
}

/// The cell of a magnitude.
#[inline(always)]
fn cell_of(magnitude: f32) -> usize {
    (magnitude.to_bits() >> 15) as usize
}

#[inline(always)]
fn look_up(magnitude: f32, cells: &[u8; CELLS], borders: &[f32; MOST], behind: &[u8; MOST]) -> u8 {
    let index = cells[cell_of(magnitude) % CELLS];
    // At most 127, and behind the last border is infinity: the remainders only spare checks.
    let at = index as usize % MOST;
    // A mask by the difference of the bits, which are in the order of the magnitudes: of a
    // comparison the compiler makes a branch, foretold wrongly for every fourth value.
    let above = ((borders[at].to_bits() as i32 - magnitude.to_bits() as i32) >> 31) as u8;
    index ^ ((index ^ behind[at]) & above)
}

impl Codec for Table {
    fn name(&self) -> &'static str {
        match self.levels {
            Levels::Percentiles => "table",
            Levels::Means => "table-mean",
        }
    }

    fn wire_bytes(&self, values: u64) -> u64 {
        self.header() as u64 + (values * u64::from(self.bits)).div_ceil(8)
    }

    fn encode(&mut self, values: &[f32], wire: &mut [u8]) -> Result<usize, CodecError> {
        let wire = wire::space(self, values.len(), wire)?;
        self.codebook.choose(self.sample.take(values), self.levels);
        let many = self.bits >= 4 && values.len() >= LOOK_UP_FROM;
        let simple = many && self.fill_cells();
        let (head, codes) = wire.split_at_mut(self.header());
        let cells = self.cells.first_chunk().filter(|_| simple);
        let finite = match self.bits {
            1 => self.encode_by::<1, 0>(values, codes, &Search::Compare),
            2 => self.encode_by::<2, 1>(values, codes, &Search::Compare),
            4 => {
                let search = cells.map_or(Search::Compare, Search::Cells);
                self.encode_by::<4, 7>(values, codes, &search)
            }
            _ => {
                let search = cells.map_or(Search::Halves, Search::Cells);
                self.encode_by::<8, 127>(values, codes, &search)
            }
        };
        wire::write_f32s(self.codebook.magnitudes(), head);
        if !finite {
            head.as_chunks_mut().0.fill(f32::NAN.to_le_bytes());
        }
        Ok(wire.len())
    }

    fn decode(&self, wire: &[u8], values: &mut [f32]) -> Result<(), CodecError> {
        wire::whole(self, wire, values.len())?;
        let (head, codes) = wire.split_at(self.header());
        let signed = self.read_codebook(head)?;
        match self.bits {
            1 => Self::decode_by::<8>(codes, values, &signed),
            2 => Self::decode_by::<4>(codes, values, &signed),
            4 => Self::decode_by::<2>(codes, values, &signed),
            _ => Self::decode_by::<1>(codes, values, &signed),
        }
        Ok(())
    }
}
