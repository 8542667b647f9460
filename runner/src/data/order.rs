//! Order of training samples: the sample at each position of the endless sequence.
//!
//! The sequence is one permutation of the samples after another, one per epoch. A permutation of
//! 10⁹ samples must not cost 8 GB on every rank, so it is computed, not stored: a Feistel network
//! (Luby and Rackoff 1988) keyed by (seed, epoch) permutes the smallest power of four that holds
//! all samples, and walking along its cycle until an index below `len` comes up restricts it to
//! exactly the samples (Black and Rogaway 2002, "cycle walking").
//!
//! Cost: O(1) memory; fewer than four rounds of the network on average, since the domain has
//! fewer than four times as many elements as there are samples. Limit: statistically random, not
//! secret; a domain of four elements does not reach all of its permutations equally often.

use pipewright_core::elastic::Origin;

/// Rounds of the network. Three suffice in theory with random functions; small domains mix
/// slower, and eight cost 20 ns.
const ROUNDS: usize = 8;

/// The sample at each place of each mini-batch: a pure function, equal on every rank and platform.
/// Replicas and resumed runs need no conversation to agree on who loads what, and a mini-batch
/// holds the same samples however it is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// How the samples follow each other.
    pub sequence: Sequence,
    /// How many there are.
    pub samples: u64,
    /// Samples of a mini-batch.
    pub mini_batch: u64,
    /// The steps before the first one, which may have been of other mini-batches.
    pub origin: Origin,
}

/// How samples follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sequence {
    /// One permutation after another, without end; a mini-batch may lie across two epochs.
    Shuffled {
        /// The plan's seed.
        seed: u64,
    },
    /// As they lie in their files, again and again.
    Repeated,
    /// As they lie in their files, once: to test on.
    Once,
}

impl Order {
    /// From the beginning on, by mini-batches of one size.
    pub fn new(sequence: Sequence, samples: u64, mini_batch: u64) -> Self {
        Self { sequence, samples, mini_batch, origin: Origin::default() }
    }

    /// The sample at `place` of mini-batch `step`; none past the end of [`Sequence::Once`]. Of R
    /// replicas, replica r takes the places from r · `mini_batch` / R on.
    ///
    /// # Panics
    /// When there are no samples, or the step is before the origin.
    pub fn index(&self, step: u64, place: u64) -> Option<u64> {
        assert!(self.samples > 0, "a sequence over no samples");
        let position = self.origin.position(self.mini_batch, step, place);
        let position = position.expect("a step that is not before the first");
        let samples = u128::from(self.samples);
        let (epoch, place) = ((position / samples) as u64, (position % samples) as u64);
        match self.sequence {
            Sequence::Shuffled { seed } => {
                Some(Permutation::new(seed, epoch, self.samples).apply(place))
            }
            Sequence::Repeated => Some(place),
            Sequence::Once => (position < samples).then_some(place),
        }
    }
}

/// One epoch's order.
pub(super) struct Permutation {
    len: u64,
    /// Bits of one half of the network's input.
    half: u32,
    keys: [u64; ROUNDS],
}

impl Permutation {
    pub(super) fn new(seed: u64, epoch: u64, len: u64) -> Self {
        // Bits of the largest index, rounded up to an even number, at least two.
        let bits = 64 - (len - 1).leading_zeros();
        let half = bits.div_ceil(2).max(1);
        let base = mix(mix(seed).wrapping_add(epoch));
        let keys = std::array::from_fn(|round| mix(base.wrapping_add(round as u64 + 1)));
        Self { len, half, keys }
    }

    pub(super) fn apply(&self, place: u64) -> u64 {
        let mut index = self.network(place);
        // Ends: `place` itself is below `len` and lies on the same cycle.
        while index >= self.len {
            index = self.network(index);
        }
        index
    }

    /// A bijection of 0..4^half: each round can be undone, whatever `mix` does.
    fn network(&self, value: u64) -> u64 {
        let mask = (1 << self.half) - 1;
        let (mut left, mut right) = (value >> self.half, value & mask);
        for key in self.keys {
            (left, right) = (right, left ^ (mix(right ^ key) & mask));
        }
        left << self.half | right
    }
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood 2014), after its increment.
fn mix(value: u64) -> u64 {
    let z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The sample at `position` of the endless sequence.
    fn sample_index(seed: u64, samples: u64, position: u64) -> u64 {
        let order = Order::new(Sequence::Shuffled { seed }, samples, 1);
        order.index(position, 0).unwrap()
    }

    proptest! {
        #[test]
        fn each_epoch_is_a_permutation(seed: u64, epoch in 0u64..1000, len in 1u64..3000) {
            let mut seen = vec![false; len as usize];
            for place in 0..len {
                let index = sample_index(seed, len, epoch * len + place) as usize;
                prop_assert!(!std::mem::replace(&mut seen[index], true), "{} twice", index);
            }
        }

        #[test]
        fn huge_sets_stay_in_range(seed: u64, len in 1u64.., position: u64) {
            prop_assert!(sample_index(seed, len, position) < len);
        }

        #[test]
        fn steps_and_places_are_one_sequence(
            seed: u64, samples in 1u64..500, mini_batch in 1u64..100, step in 0u64..1000,
        ) {
            for sequence in [Sequence::Shuffled { seed }, Sequence::Repeated, Sequence::Once] {
                let order = Order::new(sequence, samples, mini_batch);
                let single = Order { mini_batch: 1, ..order };
                for place in 0..mini_batch {
                    let position = step * mini_batch + place;
                    prop_assert_eq!(order.index(step, place), single.index(position, 0));
                }
            }
        }
    }

    /// Mini-batches of other sizes go on in the same sequence.
    #[test]
    fn a_mini_batch_that_changes_leaves_no_sample_out() {
        let sequence = Sequence::Shuffled { seed: 5 };
        let mut order = Order::new(sequence, 40, 8);
        let mut taken = vec![];
        for (mini_batch, until) in [(8, 3), (4, 6), (16, 8), (8, 10)] {
            order.mini_batch = mini_batch;
            for step in order.origin.step..until {
                taken.extend((0..mini_batch).map(|place| order.index(step, place).unwrap()));
            }
            order.origin = order.origin.after(mini_batch, until);
        }
        let single = Order::new(sequence, 40, 1);
        let expected: Vec<u64> = (0..84).map(|step| single.index(step, 0).unwrap()).collect();
        assert_eq!(taken, expected);
        let mut epoch = taken[40..80].to_vec();
        epoch.sort_unstable();
        assert!(epoch.into_iter().eq(0..40), "each sample once");
    }

    #[test]
    fn the_order_is_fixed_for_ever() {
        let order: Vec<u64> = (0..12).map(|i| sample_index(7, 6, i)).collect();
        assert_eq!(order, [0, 2, 1, 3, 5, 4, 2, 4, 3, 1, 5, 0]);
        assert_eq!(sample_index(7, 1_281_167, 123_456_789), 122982);
    }

    #[test]
    fn epochs_and_seeds_differ() {
        let order = |seed: u64, epoch: u64| -> Vec<u64> {
            (0..100).map(|i| sample_index(seed, 100, epoch * 100 + i)).collect()
        };
        assert_ne!(order(1, 0), order(1, 1));
        assert_ne!(order(1, 0), order(2, 0));
        // Seed and epoch do not add up: (1, 1) is no shifted (2, 0).
        assert_ne!(order(1, 1), order(2, 0));
    }

    #[test]
    fn every_sample_comes_first_about_equally_often() {
        for len in [3u64, 5, 10] {
            let mut counts = vec![0u32; len as usize];
            let epochs = 3000 * len;
            for epoch in 0..epochs {
                counts[sample_index(11, len, epoch * len) as usize] += 1;
            }
            // Binomial with mean 3000: six deviations are 330.
            assert!(counts.iter().all(|&c| c.abs_diff(3000) < 330), "{counts:?}");
        }
    }

    #[test]
    fn without_shuffling_samples_come_as_they_lie() {
        let order = Order::new(Sequence::Repeated, 5, 4);
        let second: Vec<_> = (0..4).map(|place| order.index(1, place).unwrap()).collect();
        assert_eq!(second, [4, 0, 1, 2]);
        let once = Order { sequence: Sequence::Once, ..order };
        let second: Vec<_> = (0..4).map(|place| once.index(1, place)).collect();
        assert_eq!(second, [Some(4), None, None, None]);
        let far = Order::new(Sequence::Repeated, 7, u64::MAX);
        assert!(far.index(u64::MAX, u64::MAX).unwrap() < 7, "no overflow");
    }
}
