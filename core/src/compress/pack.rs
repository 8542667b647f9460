//! Codes of 1, 2 or 4 bits, several in a byte; codes of 8 bits as they are.
//!
//! Eight codes, one a byte, are a number of 64 bits; three steps move neighbours together (pairs,
//! fours, eights) until the codes fill the low bits. Codes are in the order of the number's bytes:
//! little endian puts the first into the lowest bits, big endian into the highest (numpy's
//! `packbits`).

/// Codes that one number holds.
pub const GROUP: usize = 8;

/// The least significant `BITS` of each byte of `codes`, side by side in the low bits.
#[inline(always)]
pub fn squeeze<const BITS: u32>(codes: u64) -> u64 {
    let gap = 8 - BITS;
    let pairs = (codes | (codes >> gap)) & (((1 << (2 * BITS)) - 1) * 0x0001_0001_0001_0001);
    let fours = (pairs | (pairs >> (2 * gap))) & (((1 << (4 * BITS)) - 1) * 0x0000_0001_0000_0001);
    let all = fours | (fours >> (4 * gap));
    all & ((1 << (8 * BITS % 64)) - 1)
}

/// Packs `codes` into just as many bytes as they fill, the first in the lowest bits; places behind
/// the last code are zero.
#[inline(always)]
pub fn pack<const BITS: u32>(codes: &[u8], wire: &mut [u8]) {
    if BITS == 8 {
        return wire.copy_from_slice(codes);
    }
    let (groups, rest) = codes.as_chunks::<GROUP>();
    let mut places = wire.chunks_exact_mut(BITS as usize);
    for (group, place) in groups.iter().zip(&mut places) {
        let bits = squeeze::<BITS>(u64::from_le_bytes(*group));
        place.copy_from_slice(&bits.to_le_bytes()[..BITS as usize]);
    }
    if !rest.is_empty() {
        let mut group = [0; GROUP];
        group[..rest.len()].copy_from_slice(rest);
        let bytes = squeeze::<BITS>(u64::from_le_bytes(group)).to_le_bytes();
        let at = groups.len() * BITS as usize;
        let place = &mut wire[at..];
        let len = place.len().min(BITS as usize);
        place[..len].copy_from_slice(&bytes[..len]);
    }
}
