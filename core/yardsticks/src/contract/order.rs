//! The order of a group's computations that needs the least memory.
//!
//! After Kadono's "graph contraction preprocessing" (2023). The states are sets of values that must
//! be there at one moment. Forwards one would start with nothing and compute or free one value at a
//! time; Dijkstra's algorithm with the largest memory on the way as distance then sees nearly all
//! 2^n sets. Backwards one starts with the result and asks what was computed *last*: a value of the
//! set leaves it, and what it reads joins it. That has shortcuts that lose nothing, so that a state
//! with one has no other successor:
//!
//! - a value whose inputs are all in the set leaves at once: any way on from the larger set is a way
//!   on from the smaller one;
//! - so does a value whose inputs are together no larger than itself, if reading them needs no more
//!   than was needed already: until the value leaves on any other way, its inputs in its place take
//!   no more room than it does.
//!
//! Both only where no value of the set was made from it, else it would be computed twice. With them
//! groups of 50 nodes of real networks take some hundred states, and chains nearly none.
//!
//! | symbol | meaning |
//! |---|---|
//! | S | set of values that must be there, bits of a number |
//! | c | the value computed last before that |

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

/// Most values of a group that is searched.
pub const MOST_MEMBERS: usize = 128;

/// Values of a group, in an order in which they can be computed; the last is the result. Values from
/// outside are there all the time and do not count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Bytes of each value.
    pub bytes: Vec<u64>,
    /// Time of each computation, in any unit.
    pub ticks: Vec<u64>,
    /// What each reads in the group, each once.
    pub inputs: Vec<Vec<u32>>,
}

/// An order of computations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Indices of values, the last one the result's.
    pub items: Vec<u32>,
    /// Most bytes that are there at one moment.
    pub peak: u64,
    /// Whether no order needs less.
    pub exact: bool,
}

/// A state and the way to it.
struct Label {
    set: u128,
    /// All that was computed after this moment.
    done: u128,
    computed: u32,
    parent: u32,
}

/// What is looked at first: the least peak, then the least time of repeated computations, then the
/// longest way.
type Key = (u64, u64, Reverse<u32>, Reverse<u32>);

struct Search<'g> {
    group: &'g Group,
    /// What each value reads, as bits.
    inputs: Vec<u128>,
    /// Values made from each, directly or not.
    made_from: Vec<u128>,
    labels: Vec<Label>,
    queue: BinaryHeap<Reverse<Key>>,
    seen: BTreeSet<u128>,
}

/// The order that needs the least memory at its worst moment; a value may be computed more than
/// once. At most `states` sets that have several successors are looked at. Where that does not do,
/// and for groups of more than [`MOST_MEMBERS`], the order is the best of two guesses: the given
/// one, and backwards the value that needs the least memory at that moment.
///
/// O(states x members x log states).
pub fn best_order(group: &Group, states: usize) -> Order {
    if group.bytes.len() <= MOST_MEMBERS {
        let mut search = Search::new(group);
        if let Some(order) = search.run(states) {
            return order;
        }
        let greedy = search.greedy();
        let given = given(group);
        return if greedy.peak < given.peak { greedy } else { given };
    }
    given(group)
}

impl<'g> Search<'g> {
    fn new(group: &'g Group) -> Self {
        let bits = |list: &Vec<u32>| list.iter().fold(0u128, |set, value| set | 1 << value);
        let inputs: Vec<u128> = group.inputs.iter().map(bits).collect();
        let mut made_from = vec![0u128; inputs.len()];
        for value in (0..made_from.len()).rev() {
            let below = made_from[value] | 1 << value;
            members(inputs[value]).for_each(|input| made_from[input] |= below);
        }
        let (labels, queue, seen) = (vec![], BinaryHeap::new(), BTreeSet::new());
        Self { group, inputs, made_from, labels, queue, seen }
    }

    fn run(&mut self, states: usize) -> Option<Order> {
        let result = self.group.bytes.len() - 1;
        let nothing = Label { set: 1 << result, done: 0, computed: 0, parent: 0 };
        self.labels.push(nothing);
        self.step((0, 0, Reverse(0), Reverse(0)), result);
        let mut branched = 0;
        while let Some(Reverse(key)) = self.queue.pop() {
            let label = key.3.0 as usize;
            let set = self.labels[label].set;
            if set == 0 {
                return Some(Order { items: self.way(label), peak: key.0, exact: true });
            }
            if !self.seen.insert(set) {
                continue;
            }
            if let Some(last) = self.shortcut(set, key.0) {
                self.step(key, last);
                continue;
            }
            branched += usize::from(set.count_ones() > 1);
            if branched > states {
                return None;
            }
            members(set).for_each(|last| self.step(key, last));
        }
        None
    }

    /// A value that leaves the set without loss.
    fn shortcut(&self, set: u128, peak: u64) -> Option<usize> {
        let group = self.group;
        members(set).find(|&value| {
            let inputs = self.inputs[value];
            let smaller =
                || group.sum(inputs) <= group.bytes[value] && group.sum(set | inputs) <= peak;
            self.made_from[value] & set == 0 && (inputs & !set == 0 || smaller())
        })
    }

    /// Queues the state before `last` was computed.
    fn step(&mut self, (peak, again, depth, label): Key, last: usize) {
        let Label { set, done, .. } = self.labels[label.0 as usize];
        let before = set & !(1 << last) | self.inputs[last];
        if self.seen.contains(&before) {
            return;
        }
        let peak = peak.max(self.group.sum(set | self.inputs[last]));
        let repeated = if done >> last & 1 == 1 { self.group.ticks[last] } else { 0 };
        let done = done | 1 << last;
        let number = self.labels.len() as u32;
        self.labels.push(Label { set: before, done, computed: last as u32, parent: label.0 });
        let key = (peak, again + repeated, Reverse(depth.0 + 1), Reverse(number));
        self.queue.push(Reverse(key));
    }

    /// The computations from a state to the end.
    fn way(&self, mut label: usize) -> Vec<u32> {
        let mut items = vec![];
        while label != 0 {
            items.push(self.labels[label].computed);
            label = self.labels[label].parent as usize;
        }
        items
    }

    /// Backwards, each time what needs the least memory, nothing twice.
    fn greedy(&self) -> Order {
        let group = self.group;
        let mut set = 1u128 << (group.bytes.len() - 1);
        let (mut items, mut peak) = (vec![], 0);
        while set != 0 {
            let last = members(set)
                .filter(|value| self.made_from[*value] & set == 0)
                .min_by_key(|value| {
                    let during = set | self.inputs[*value];
                    let before = group.sum(during) - group.bytes[*value];
                    (peak.max(group.sum(during)), before, Reverse(*value))
                })
                .expect("the latest value of the set is in no other's history");
            peak = peak.max(group.sum(set | self.inputs[last]));
            set = set & !(1 << last) | self.inputs[last];
            items.push(last as u32);
        }
        items.reverse();
        Order { items, peak, exact: false }
    }
}

impl Group {
    /// Bytes of a set.
    fn sum(&self, set: u128) -> u64 {
        members(set).map(|value| self.bytes[value]).sum()
    }
}

/// The order in which the values are given.
fn given(group: &Group) -> Order {
    let count = group.bytes.len();
    let mut last: Vec<usize> = (0..count).collect();
    for (reader, inputs) in group.inputs.iter().enumerate() {
        inputs.iter().for_each(|input| last[*input as usize] = reader);
    }
    let (mut held, mut peak) = (0, 0);
    let mut ends = vec![0; count];
    for value in 0..count {
        held += group.bytes[value];
        ends[last[value]] += group.bytes[value];
        peak = peak.max(held);
        held -= ends[value];
    }
    Order { items: (0..count as u32).collect(), peak, exact: false }
}

/// Indices of the bits of a set.
fn members(mut set: u128) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let member = set.trailing_zeros() as usize;
        set &= set.wrapping_sub(1);
        (member < 128).then_some(member)
    })
}
