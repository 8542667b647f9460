//! Coherence of an arena with its copy in host memory: which of the two has the newest bytes.
//!
//! ```text
//!             the host writes            the device writes
//!   Both  --------------------> Host    Both ------------> Device
//!   Device -- the host reads -> Both    Host -- the device reads -> Both
//! ```
//! Bytes are copied when somebody needs what only the other one has, and at no other time. What is
//! written over as a whole is not copied before.

use std::collections::BTreeMap;
use std::ops::Range;

/// Who has a byte as it was written last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Host,
    Device,
}

/// Who is about to touch bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The host.
    Host,
    /// The device.
    Device,
}

/// What is about to happen to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// They are read.
    Read,
    /// They may be read, and some may be written.
    ReadWrite,
    /// All are written, none is read.
    Overwrite,
}

/// Ranges that only one side has, by their begin; both have the rest. Neighbours of one holder are one
/// range, so there are at most as many as regions of the memory plan.
#[derive(Debug, Default)]
pub(super) struct Newest {
    alone: BTreeMap<u64, (u64, Holder)>,
}

impl Newest {
    /// Takes note that `side` touches `range`, and calls `copy` for what it has to get from the other
    /// side before, in ascending order. O(log ranges + ranges touched).
    pub fn touch<E>(
        &mut self,
        range: Range<u64>,
        (side, access): (Side, Access),
        mut copy: impl FnMut(Range<u64>) -> Result<(), E>,
    ) -> Result<(), E> {
        if range.is_empty() {
            return Ok(());
        }
        let (own, other) = match side {
            Side::Host => (Holder::Host, Holder::Device),
            Side::Device => (Holder::Device, Holder::Host),
        };
        if access != Access::Overwrite {
            for missing in self.held(&range, other) {
                copy(missing.clone())?;
                self.clear(&missing);
            }
        }
        if access != Access::Read {
            self.clear(&range);
            self.set(range, own);
        }
        Ok(())
    }

    /// Nobody needs what is in `range`.
    pub fn forget(&mut self, range: &Range<u64>) {
        if !range.is_empty() {
            self.clear(range);
        }
    }

    /// Parts of `range` that `holder` alone has.
    fn held(&self, range: &Range<u64>, holder: Holder) -> Vec<Range<u64>> {
        let before = self.alone.range(..=range.start).next_back();
        let inside =
            self.alone.range(range.start..range.end).skip_while(|(b, _)| **b == range.start);
        let parts = before.into_iter().chain(inside);
        let part = |(begin, (end, _)): (&u64, &(u64, Holder))| {
            (*begin).max(range.start)..(*end).min(range.end)
        };
        parts.filter(|(_, (_, h))| *h == holder).map(part).filter(|part| !part.is_empty()).collect()
    }

    /// Both have `range` from now on.
    fn clear(&mut self, range: &Range<u64>) {
        let first = self.alone.range(..range.start).next_back().map(|(begin, _)| *begin);
        let first = first.filter(|begin| self.alone[begin].0 > range.start);
        let inside = self.alone.range(range.start..range.end).map(|(begin, _)| *begin);
        let touched: Vec<u64> = first.into_iter().chain(inside).collect();
        for begin in touched {
            let (end, holder) = self.alone.remove(&begin).expect("it was there");
            if begin < range.start {
                self.alone.insert(begin, (range.start, holder));
            }
            if end > range.end {
                self.alone.insert(range.end, (end, holder));
            }
        }
    }

    /// `holder` alone has `range`, which both had.
    fn set(&mut self, mut range: Range<u64>, holder: Holder) {
        if let Some((begin, (end, before))) = self.alone.range(..range.start).next_back()
            && (*end, *before) == (range.start, holder)
        {
            range.start = *begin;
        }
        if let Some((end, behind)) = self.alone.get(&range.end).copied()
            && behind == holder
        {
            self.alone.remove(&range.end);
            range.end = end;
        }
        self.alone.insert(range.start, (range.end, holder));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Begins and ends of what is copied.
    fn copies(newest: &mut Newest, range: Range<u64>, how: (Side, Access)) -> Vec<(u64, u64)> {
        let mut all = vec![];
        let Ok(()) = newest.touch(range, how, |part| {
            all.push((part.start, part.end));
            Ok::<_, std::convert::Infallible>(())
        });
        all
    }

    #[test]
    fn bytes_are_copied_once() {
        let mut newest = Newest::default();
        let (host, device) = (Side::Host, Side::Device);
        assert!(copies(&mut newest, 0..100, (device, Access::Read)).is_empty(), "both have them");
        assert!(copies(&mut newest, 10..30, (host, Access::Overwrite)).is_empty());
        assert!(copies(&mut newest, 30..40, (host, Access::ReadWrite)).is_empty());
        assert_eq!(copies(&mut newest, 0..100, (device, Access::Read)), [(10, 40)]);
        assert!(copies(&mut newest, 0..100, (device, Access::ReadWrite)).is_empty());
        assert_eq!(copies(&mut newest, 20..21, (host, Access::Read)), [(20, 21)]);
        assert_eq!(copies(&mut newest, 0..50, (host, Access::Read)), [(0, 20), (21, 50)]);
        assert!(copies(&mut newest, 50..100, (host, Access::Overwrite)).is_empty());
        assert_eq!(newest.alone.len(), 1);
    }

    #[test]
    fn what_was_not_copied_is_copied_the_next_time() {
        let mut newest = Newest::default();
        copies(&mut newest, 0..10, (Side::Device, Access::Overwrite));
        assert!(newest.touch(0..10, (Side::Host, Access::ReadWrite), |_| Err(())).is_err());
        assert_eq!(copies(&mut newest, 0..10, (Side::Host, Access::Read)), [(0, 10)]);
    }

    proptest! {
        /// Two memories, a third one that has what was written last.
        #[test]
        fn everybody_reads_what_was_written_last(
            steps in prop::collection::vec((0u64..40, 0u64..12, 0u8..6), 1..60),
        ) {
            let mut newest = Newest::default();
            let (mut host, mut device, mut truth) = ([0; 64], [0; 64], [0; 64]);
            for (number, (begin, len, how)) in (1..).zip(steps) {
                let range = begin..begin + len;
                let places = begin as usize..(begin + len) as usize;
                let side = if how % 2 == 0 { Side::Host } else { Side::Device };
                let access = [Access::Read, Access::ReadWrite, Access::Overwrite][how as usize / 2];
                for (begin, end) in copies(&mut newest, range, (side, access)) {
                    let part = begin as usize..end as usize;
                    match side {
                        Side::Host => host[part.clone()].copy_from_slice(&device[part]),
                        Side::Device => device[part.clone()].copy_from_slice(&host[part]),
                    }
                }
                let mine = if side == Side::Host { &mut host } else { &mut device };
                if access != Access::Overwrite {
                    prop_assert_eq!(&mine[places.clone()], &truth[places.clone()]);
                }
                // Of what may be written, every second place is.
                let every = if access == Access::ReadWrite { 2 } else { 1 };
                if access != Access::Read {
                    for place in places.step_by(every) {
                        (mine[place], truth[place]) = (number, number);
                    }
                }
                let ranges: Vec<_> = newest.alone.iter().collect();
                prop_assert!(ranges.windows(2).all(|w| w[0].1.0 <= *w[1].0));
            }
        }
    }
}
