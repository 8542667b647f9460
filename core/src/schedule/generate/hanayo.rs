//! Hanayo: a micro-batch goes forth and back through the lanes, W times (Liu et al., SC 2023). With
//! one wave it is Chimera's pattern with one copy of the weights.
//!
//! ```text
//! 2 lanes, 1 wave: lane 0 holds stages 0 and 3, lane 1 holds 1 and 2
//! lane 0  0F0 0F1     3F0 3B0 --- 3F1 3B1 --- 0B0 --- 0B1 ---
//! lane 1      1F0 2F0 1F1 2F1     2B0 --- 1B0 --- 2B1 --- 1B1 ---
//! ```
//! Even stages with B = 2 F, m = p: a bubble of at most (2p-2)/(3pW+p-1); no more than p
//! micro-batches are in flight. Known limit: with more micro-batches the order found is not better
//! than p of them at a time.

use super::greedy::{self, Limits};
use super::{Order, Pipe};

pub(super) fn order(pipe: Pipe) -> Order {
    let limits = Limits { in_flight: &|_| pipe.lanes, backward: 2 };
    Order::of(greedy::lanes(pipe, &limits))
}
