//! The largest prefix sum of a changing array: bytes in use over time.
//!
//! A value that lives from slot `a` to slot `b` adds its bytes at `a` and takes them away at
//! `b + 1`; the memory at a slot is the sum up to it, its peak the largest prefix sum. A value
//! costs O(log slots), the peak O(1).

/// Sum of a part, and the largest sum of a prefix of it that is not empty.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Part {
    sum: i64,
    most: i64,
}

/// The array; its length is a power of two.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    /// Node `i` has the children `2 i` and `2 i + 1`; leaves are the last half.
    parts: Vec<Part>,
    leaves: usize,
}

impl Tree {
    /// Zeros, at least `slots` of them.
    pub fn new(slots: usize) -> Self {
        let leaves = slots.next_power_of_two().max(2);
        Self { parts: vec![Part::default(); 2 * leaves], leaves }
    }

    /// Adds `bytes` at the slots from `from` to before `to`; takes them away from `to` to before
    /// `from` if that is the later one.
    pub fn add(&mut self, from: usize, to: usize, bytes: i64) {
        if from == to {
            return;
        }
        let (mut i, mut j) = (from + self.leaves, to + self.leaves);
        self.change_leaf(i, bytes);
        self.change_leaf(j, -bytes);
        while i / 2 != j / 2 {
            (i, j) = (i / 2, j / 2);
            self.join(i);
            self.join(j);
        }
        // From here on both are in the same part: its sum is what it was, and if its largest
        // prefix sum is, so are all above.
        while i > 1 {
            i /= 2;
            if !self.join(i) {
                break;
            }
        }
    }

    fn change_leaf(&mut self, i: usize, bytes: i64) {
        let leaf = &mut self.parts[i];
        leaf.sum += bytes;
        leaf.most += bytes;
    }

    /// Makes a part from its halves; whether it changed.
    fn join(&mut self, i: usize) -> bool {
        let (left, right) = (self.parts[2 * i], self.parts[2 * i + 1]);
        let sum = left.sum + right.sum;
        let part = Part { sum, most: left.most.max(left.sum + right.most) };
        std::mem::replace(&mut self.parts[i], part) != part
    }

    /// The largest prefix sum.
    pub fn peak(&self) -> i64 {
        self.parts[1].most
    }

    /// The first slot at which it is reached.
    pub fn peak_at(&self) -> usize {
        let mut i = 1;
        while i < self.leaves {
            let (left, right) = (self.parts[2 * i], self.parts[2 * i + 1]);
            i = if left.most >= left.sum + right.most { 2 * i } else { 2 * i + 1 };
        }
        i - self.leaves
    }

    /// The largest prefix sum that ends at one of the slots `from..to`, which are not empty.
    pub fn most(&self, from: usize, to: usize) -> i64 {
        let (mut left, mut right) = (from + self.leaves, to + self.leaves);
        // Parts on the left side in order, parts on the right side from the end.
        let (mut head, mut tail): (Option<Part>, Option<Part>) = (None, None);
        let join = |a: Option<Part>, b: Option<Part>| match (a, b) {
            (Some(a), Some(b)) => {
                Some(Part { sum: a.sum + b.sum, most: a.most.max(a.sum + b.most) })
            }
            (a, b) => a.or(b),
        };
        while left < right {
            if left & 1 == 1 {
                head = join(head, Some(self.parts[left]));
                left += 1;
            }
            if right & 1 == 1 {
                right -= 1;
                tail = join(Some(self.parts[right]), tail);
            }
            left /= 2;
            right /= 2;
        }
        self.before(from) + join(head, tail).expect("the range is not empty").most
    }

    /// Sum of all slots before `at`.
    fn before(&self, at: usize) -> i64 {
        let mut i = at + self.leaves;
        let mut sum = 0;
        while i > 1 {
            if i & 1 == 1 {
                sum += self.parts[i - 1].sum;
            }
            i /= 2;
        }
        sum
    }
}
