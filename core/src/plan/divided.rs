//! Division of a bucket among the ranks that sum it: each has the sum of one part, and updates the parameters there.

use super::{Bucket, ParamPlace, Program, Region, StageProgram};
use crate::units::{Bytes, Nanos};
use std::ops::Range;

/// Parts begin at multiples of so many values: a cache line.
const LINE: usize = 16;

/// What the ranks of a bucket's group divide (ZeRO-1; Rajbhandari et al. 2020).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Divided {
    /// Ranks of the group.
    pub ranks: u32,
    /// Which of them the lane's rank of the first replica is; those of the others, [`Bucket::apart`], follow.
    pub first: u32,
    /// The parameters, which lie as their gradients do in the bucket.
    pub weights: Region,
    /// What the optimizer keeps of a part, in the order of [`Optimizer::state_names`](super::Optimizer).
    pub state: [Option<Region>; 2],
    /// The rank's part of the sums of all micro-batches, as large as the largest part, where gradients are divided, too
    /// (ZeRO-2). Then a bucket is complete only while it is summed: others lie in its place before and afterwards.
    pub gradient: Option<Region>,
}

/// The part of `values` values that the rank `index` of a group of `ranks` has: equal parts of whole cache lines, but
/// for the last ones.
pub fn part(values: usize, ranks: usize, index: usize) -> Range<usize> {
    let each = values.div_ceil(ranks.max(1)).next_multiple_of(LINE);
    let place = |index: usize| index.saturating_mul(each).min(values);
    place(index)..place(index + 1)
}

/// Bytes of a part of `bytes` bytes of values.
fn part_bytes(bytes: Bytes, ranks: u32, index: u32) -> Bytes {
    Bytes(4 * part(bytes.0 as usize / 4, ranks as usize, index as usize).len() as u64)
}

impl Divided {
    /// Whether a trained parameter is one of the bucket's.
    pub fn holds(&self, place: &ParamPlace) -> bool {
        let Region { offset, bytes } = self.weights;
        place.gradient.is_some()
            && offset <= place.weight.offset
            && place.weight.offset < offset + bytes
    }

    /// Bytes of the largest part.
    pub(super) fn bytes(&self) -> Bytes {
        part_bytes(self.weights.bytes, self.ranks, 0)
    }
}

impl Bucket {
    /// The bytes of the bucket whose parameters the lane's rank of a replica updates: all, where nothing is divided.
    pub fn own(&self, replica: u32) -> Range<u64> {
        let Some(Divided { ranks, first, .. }) = self.divided else {
            return 0..self.region.bytes.0;
        };
        let values = self.region.bytes.0 as usize / 4;
        let part = part(values, ranks as usize, (first + replica / self.apart) as usize);
        4 * part.start as u64..4 * part.end as u64
    }
}

impl Bucket {
    /// The group that sums it on a rank with this place in its tensor group and of this replica: programs name the first
    /// of all.
    pub fn group_of(&self, tensor_rank: u32, replica: u32) -> u32 {
        self.group + tensor_rank * self.apart + replica % self.apart
    }

    /// What the rank keeps of its gradients, where ranks divide them.
    pub fn divided_gradient(&self) -> Option<Region> {
        self.divided?.gradient
    }
}

impl StageProgram {
    /// Whether each rank keeps a part of the gradients only: then every backward pass ends with sums of its own.
    pub fn divides_gradients(&self) -> bool {
        self.windows.bytes > Bytes::ZERO
    }

    /// Whether ranks divide the gradient of a parameter.
    fn divides_gradient(&self, place: &ParamPlace) -> bool {
        let holds = |divided: &Divided| divided.gradient.is_some() && divided.holds(place);
        self.buckets.iter().filter_map(|bucket| bucket.divided).any(|divided| holds(&divided))
    }

    /// How long a rank's share of an update takes that takes `whole` for all of the stage's parameters.
    pub fn update_share(&self, whole: Nanos) -> Nanos {
        let of = |bucket: &Bucket| bucket.divided.map(|d| (d.weights.bytes.0, d.bytes().0));
        let divided = self.buckets.iter().filter_map(of);
        let (all, own) = divided.fold((0, 0), |(all, own), (a, o)| (all + a, own + o));
        let gradients = self.params.iter().filter_map(|place| place.gradient);
        let bytes = gradients.map(|region| region.bytes.0).sum::<u64>().max(all);
        match all {
            0 => whole,
            _ => Nanos((whole.0 as f64 * ((bytes - all + own) as f64 / bytes as f64)) as u64),
        }
    }
}

impl Program {
    /// Bytes of gradients on each rank of the lane: whole ones and parts, and where buckets lie while they are summed.
    pub fn gradient_bytes(&self) -> Bytes {
        let of_stage = |stage: &StageProgram| -> Bytes {
            let whole = stage.params.iter().filter(|place| !stage.divides_gradient(place));
            let whole: Bytes = whole.filter_map(|place| place.gradient).map(|r| r.bytes).sum();
            let parts = stage.buckets.iter().filter_map(Bucket::divided_gradient);
            whole + parts.map(|part| part.bytes).sum()
        };
        let windows = self.stages.iter().map(|stage| stage.windows.bytes).max();
        self.stages.iter().map(of_stage).sum::<Bytes>() + windows.unwrap_or_default()
    }

    /// Bytes of what the optimizer keeps on each rank of the lane, with what deferred statistics keep.
    pub fn optimizer_state(&self) -> Bytes {
        let of_params = |stage: &StageProgram| -> Bytes {
            stage.params.iter().flat_map(|place| place.state).flatten().map(|r| r.bytes).sum()
        };
        let of_parts = |stage: &StageProgram| -> Bytes {
            let divided = stage.buckets.iter().filter_map(|bucket| bucket.divided);
            divided.flat_map(|divided| divided.state).flatten().map(|region| region.bytes).sum()
        };
        self.stages.iter().map(|stage| of_params(stage) + of_parts(stage)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_all_values_once_and_the_first_is_the_largest() {
        for values in [0, 1, 15, 16, 17, 160, 1000, 4099] {
            for ranks in 1..9 {
                let parts: Vec<_> = (0..ranks).map(|index| part(values, ranks, index)).collect();
                assert_eq!((parts[0].start, parts[ranks - 1].end), (0, values));
                assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start));
                assert!(parts.iter().all(|p| p.len() <= parts[0].len()));
                assert!(parts.iter().all(|p| p.start % LINE == 0 || p.is_empty()));
            }
        }
        assert_eq!(part(64, 4, 3), 48..64);
    }
}
