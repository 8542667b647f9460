//! Random numbers from counters: Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as
//! easy as 1, 2, 3"). Any number can be made at any time from its counter and a key, so nothing
//! needs to be stored or kept in order.

/// Blocks made side by side: so many that the compiler keeps the loop over them, and turns it into
/// vector code.
pub const LANES: usize = 32;

/// Numbers of one call: four words from each block.
pub const WORDS: usize = 4 * LANES;

const ROUNDS: u32 = 10;
const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// The blocks of counters `[first + lane, counter[0], counter[1], counter[2]]`: word `w` of block
/// `lane` is at `w * LANES + lane`.
pub fn blocks(key: [u32; 2], first: u32, counter: [u32; 3]) -> [u32; WORDS] {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has what the function was compiled for.
        return unsafe { blocks_avx2(key, first, counter) };
    }
    blocks_here(key, first, counter)
}

/// The same with the vectors that almost every processor has: four times as fast.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn blocks_avx2(key: [u32; 2], first: u32, counter: [u32; 3]) -> [u32; WORDS] {
    blocks_here(key, first, counter)
}

#[inline(always)]
fn blocks_here(key: [u32; 2], first: u32, counter: [u32; 3]) -> [u32; WORDS] {
    let mut a = [0u32; LANES];
    for (lane, word) in (0..).zip(&mut a) {
        *word = first.wrapping_add(lane);
    }
    let [mut b, mut c, mut d] = counter.map(|word| [word; LANES]);
    let mut key = key;
    for _ in 0..ROUNDS {
        for lane in 0..LANES {
            let even = u64::from(MULTIPLIERS[0]) * u64::from(a[lane]);
            let odd = u64::from(MULTIPLIERS[1]) * u64::from(c[lane]);
            a[lane] = (odd >> 32) as u32 ^ b[lane] ^ key[0];
            c[lane] = (even >> 32) as u32 ^ d[lane] ^ key[1];
            b[lane] = odd as u32;
            d[lane] = even as u32;
        }
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    let mut out = [0; WORDS];
    for (out, words) in out.chunks_exact_mut(LANES).zip([a, b, c, d]) {
        out.copy_from_slice(&words);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers that the paper's authors publish with their Random123 library.
    #[test]
    fn known_answers() {
        let first = |key, counter: [u32; 4]| {
            let words = blocks(key, counter[0], [counter[1], counter[2], counter[3]]);
            [words[0], words[LANES], words[2 * LANES], words[3 * LANES]]
        };
        assert_eq!(first([0; 2], [0; 4]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            first([u32::MAX; 2], [u32::MAX; 4]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            first([0xa409_3822, 0x299f_31d0], [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn a_block_does_not_depend_on_its_neighbours() {
        let (low, high) = (blocks([1, 2], 8, [3, 4, 5]), blocks([1, 2], 11, [3, 4, 5]));
        for word in 0..4 {
            let (low, high) = (&low[word * LANES..][3..LANES], &high[word * LANES..]);
            assert_eq!(low, &high[..LANES - 3]);
        }
        assert_eq!(blocks([1, 2], 8, [3, 4, 5]), blocks_here([1, 2], 8, [3, 4, 5]));
    }
}
