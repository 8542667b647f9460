//! Collective calls of a group of threads on memory of their own.
//!
//! A call is under way once all members have posted where their values lie. Then each member works
//! on its share of the elements, for all members: shares are apart, so nobody waits for anybody
//! until all are done. As in [`outbox`](super::outbox) everything but the work is under one lock.

use crate::transport::{Collective, CollectiveOp, PartCollective};
use pipewright_core::compress::e5m2_sum;
use pipewright_core::plan::part;
use smallvec::{SmallVec, smallvec};
use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;

/// One thing for each member; few enough not to be allocated, since training calls in every step.
type Each<T> = SmallVec<[T; 8]>;

/// Ranks that call together.
#[derive(Debug)]
pub(super) struct Group {
    ranks: Vec<u32>,
    /// Calls that somebody has posted and not everybody left, oldest first.
    calls: VecDeque<Call>,
    /// Number of the first of them.
    first: u64,
    /// By member: the number of its next call.
    next: Vec<u64>,
}

#[derive(Debug)]
struct Call {
    /// By member.
    posts: Each<Option<Post>>,
    /// Shares in progress.
    computing: u32,
    /// By member: whether its share is done.
    done: Each<bool>,
    left: u32,
    /// A member withdrew: no share begins any more.
    dead: bool,
}

/// What members call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum GroupCall {
    /// On all values.
    All(CollectiveOp),
    /// On a part for each member, in single precision.
    Parts(PartCollective),
}

impl fmt::Debug for GroupCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All(op) => op.fmt(f),
            Self::Parts(call) => call.fmt(f),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Post {
    op: GroupCall,
    /// `len` elements of the type that `op` says.
    values: *mut u8,
    len: usize,
}

// SAFETY: the address is only data here. It is used in one place, `Share::compute`, which argues
// for itself. The memory behind it is plain numbers.
unsafe impl Send for Post {}

/// One member's part of the work, to be given back with [`Group::end`].
#[derive(Debug)]
pub(super) struct Share {
    member: usize,
    posts: Each<Post>,
}

impl Group {
    /// Room for `slots` calls at a time.
    pub(super) fn new(ranks: &[u32], slots: usize) -> Self {
        let calls = VecDeque::with_capacity(slots + 1);
        Self { ranks: ranks.to_vec(), calls, first: 0, next: vec![0; ranks.len()] }
    }

    /// Room for as many calls at a time as another group has it for.
    pub(super) fn make_room(&mut self, other: &Self) {
        self.calls.reserve(other.calls.capacity());
    }

    fn member(&self, rank: u32) -> Option<usize> {
        self.ranks.iter().position(|other| *other == rank)
    }

    fn call(&self, number: u64) -> &Call {
        &self.calls[(number - self.first) as usize]
    }

    fn call_mut(&mut self, number: u64) -> &mut Call {
        &mut self.calls[(number - self.first) as usize]
    }

    /// Says where the `len` values of `rank` lie; returns the call's number.
    ///
    /// # Safety
    /// They are of the type that `op` says, and must stay valid and untouched until
    /// [`Group::leave`] has been true for the call, or the rank has withdrawn and nothing is
    /// [`Group::being_computed`].
    pub(super) unsafe fn post(
        &mut self,
        op: GroupCall,
        rank: u32,
        values: *mut u8,
        len: usize,
    ) -> u64 {
        let member = self.member(rank).expect("a rank calls in its own groups");
        let number = self.next[member];
        self.next[member] += 1;
        let members = self.ranks.len();
        while self.first + (self.calls.len() as u64) <= number {
            self.calls.push_back(Call {
                posts: smallvec![None; members],
                computing: 0,
                done: smallvec![false; members],
                left: 0,
                dead: false,
            });
        }
        self.call_mut(number).posts[member] = Some(Post { op, values, len });
        number
    }

    /// The share of `rank`, once all members have come and mean the same.
    pub(super) fn begin(&mut self, number: u64, rank: u32) -> Option<Share> {
        let member = self.member(rank)?;
        let call = self.call_mut(number);
        if call.dead || call.disagreement().is_some() {
            return None;
        }
        let posts: Each<Post> = call.posts.iter().copied().collect::<Option<_>>()?;
        call.computing += 1;
        Some(Share { member, posts })
    }

    /// What members of a call do not agree on.
    pub(super) fn disagreement(&self, number: u64) -> Option<String> {
        self.call(number).disagreement()
    }

    /// Members without whom the call cannot go on: those that have not come, or all of them when
    /// one withdrew.
    pub(super) fn needed(&self, number: u64) -> impl Iterator<Item = u32> {
        let call = self.call(number);
        let members = call.posts.iter().zip(&self.ranks);
        members.filter(|(post, _)| call.dead || post.is_none()).map(|(_, rank)| *rank)
    }

    /// Ends what [`Group::begin`] began.
    pub(super) fn end(&mut self, number: u64, share: Share) {
        let call = self.call_mut(number);
        call.computing -= 1;
        call.done[share.member] = true;
    }

    /// Whether the call lacks the share of `rank`.
    pub(super) fn waits_for(&self, number: u64, rank: u32) -> bool {
        self.member(rank).is_some_and(|member| !self.call(number).done[member])
    }

    /// Leaves the call, if all shares are done.
    pub(super) fn leave(&mut self, number: u64) -> bool {
        let members = self.ranks.len() as u32;
        let call = self.call_mut(number);
        if !call.done.iter().all(|done| *done) {
            return false;
        }
        call.left += 1;
        while self.calls.front().is_some_and(|call| call.left == members) {
            self.calls.pop_front();
            self.first += 1;
        }
        true
    }

    /// From now on no share touches the values of `rank`, except those in progress.
    pub(super) fn withdraw(&mut self, rank: u32) {
        let Some(member) = self.member(rank) else { return };
        for call in self.calls.iter_mut().filter(|call| call.posts[member].is_some()) {
            call.dead = true;
        }
    }

    /// Whether a share in progress touches the values of `rank`.
    pub(super) fn being_computed(&self, rank: u32) -> bool {
        let Some(member) = self.member(rank) else { return false };
        self.calls.iter().any(|call| call.posts[member].is_some() && call.computing > 0)
    }
}

impl Call {
    fn disagreement(&self) -> Option<String> {
        let mut posts = self.posts.iter().flatten();
        let first = posts.next()?;
        let other = posts.find(|post| (post.op, post.len) != (first.op, first.len))?;
        Some(format!(
            "ranks of a group call {:?} of {} and {:?} of {} values",
            first.op, first.len, other.op, other.len
        ))
    }
}

/// Elements of a share that are worked on at a time: they stay in the first-level cache.
const BLOCK: usize = 2048;

impl Share {
    /// Does the work.
    pub(super) fn compute(&self) {
        let float = |sum: &mut f32, value: &f32| *sum += value;
        let max = |most: &mut f32, value: &f32| *most = if value > most { *value } else { *most };
        let op = match self.posts[0].op {
            GroupCall::All(op) => op,
            GroupCall::Parts(call) => return self.parts(call),
        };
        match op {
            CollectiveOp::Float(Collective::AllReduce) => {
                self.each(|root, values| join(root, values, float), true)
            }
            CollectiveOp::Float(Collective::Reduce) => {
                self.each(|root, values| join(root, values, float), false)
            }
            CollectiveOp::Float(Collective::Broadcast) => self.each(|_: &mut [f32], _| (), true),
            CollectiveOp::Max => self.each(|root, values| join(root, values, max), true),
            CollectiveOp::Codes(rounding) => {
                self.each(|totals, codes| e5m2_sum::add(codes, totals, rounding), true);
            }
        }
    }

    /// Joins all members' values into the first one's, in their order, and copies the result `back`.
    fn each<T: Copy>(&self, join: impl Fn(&mut [T], &[T]), back: bool) {
        let (members, len) = (self.posts.len(), self.posts[0].len);
        let own = len * self.member / members..len * (self.member + 1) / members;
        for at in blocks(own) {
            // SAFETY: shares do not overlap, and one slice of a member lives at a time.
            let part = |member: usize| unsafe { self.slice::<T>(member, &at) };
            let root = part(0);
            (1..members).for_each(|member| join(root, part(member)));
            if back {
                (1..members).for_each(|member| part(member).copy_from_slice(root));
            }
        }
    }

    /// This member's part: summed in the order of members, or handed to the others.
    fn parts(&self, call: PartCollective) {
        let (members, own) = (self.posts.len(), self.member);
        for at in blocks(part(self.posts[0].len, members, own)) {
            // SAFETY: parts do not overlap, and one slice of a member lives at a time.
            let part = |member: usize| unsafe { self.slice::<f32>(member, &at) };
            let root = part(if call == PartCollective::AllGather { own } else { 0 });
            match call {
                PartCollective::ReduceScatter => {
                    let add = |sum: &mut f32, value: &f32| *sum += value;
                    (1..members).for_each(|member| join(root, part(member), add));
                    if own > 0 {
                        part(own).copy_from_slice(root);
                    }
                }
                PartCollective::AllGather => {
                    let others = (0..members).filter(|member| *member != own);
                    others.for_each(|member| part(member).copy_from_slice(root));
                }
            }
        }
    }

    /// Some elements of a member.
    ///
    /// # Safety
    /// They are of this type and of this share, and no other slice of them lives.
    #[allow(clippy::mut_from_ref, reason = "elements are apart, as the caller promises")]
    unsafe fn slice<T>(&self, member: usize, at: &Range<usize>) -> &mut [T] {
        // SAFETY: every member posted so many valid values that it leaves alone until all shares
        // are done or, after a failure, none is in progress; `Group::end` gets this share only when
        // `compute` has returned. Members' values are apart, and the lock under which we got the
        // addresses orders their writes before ours.
        unsafe {
            let values = self.posts[member].values.cast::<T>();
            std::slice::from_raw_parts_mut(values.add(at.start), at.len())
        }
    }
}

/// Some elements, block by block.
fn blocks(all: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = all.end;
    all.step_by(BLOCK).map(move |start| start..end.min(start + BLOCK))
}

fn join<T>(root: &mut [T], values: &[T], one: impl Fn(&mut T, &T)) {
    root.iter_mut().zip(values).for_each(|(root, value)| one(root, value));
}
