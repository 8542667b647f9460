//! The allocator of this program: counts what a thread takes, and what all of them take.
//!
//! `gemm` makes a packing buffer (aligned to two cache lines) and a list of flags (single bytes, zeroed) in
//! every call. They are told by their layout, so that what is left can be counted by itself.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    /// Allocations of this thread.
    static COUNT: Cell<u64> = const { Cell::new(0) };
    /// Those of them that are not `gemm`'s.
    static OURS: Cell<u64> = const { Cell::new(0) };
    /// Bytes that this thread has allocated and not freed.
    static HELD: Cell<i64> = const { Cell::new(0) };
    /// Bytes of its largest allocation.
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

/// Allocations of all threads.
static COUNT_OF_ALL: AtomicU64 = AtomicU64::new(0);
/// Bytes that all threads have allocated so far.
static TOTAL_OF_ALL: AtomicU64 = AtomicU64::new(0);
/// Bytes that are held.
static HELD_BY_ALL: AtomicU64 = AtomicU64::new(0);
/// The most that was held since somebody set it.
static MOST_BY_ALL: AtomicU64 = AtomicU64::new(0);

fn taken(bytes: usize, ours: bool) {
    COUNT.set(COUNT.get() + 1);
    OURS.set(OURS.get() + u64::from(ours));
    HELD.set(HELD.get() + bytes as i64);
    LARGEST.set(LARGEST.get().max(bytes));
    COUNT_OF_ALL.fetch_add(1, Relaxed);
    TOTAL_OF_ALL.fetch_add(bytes as u64, Relaxed);
    let held = HELD_BY_ALL.fetch_add(bytes as u64, Relaxed) + bytes as u64;
    MOST_BY_ALL.fetch_max(held, Relaxed);
}

fn given_back(bytes: usize) {
    HELD.set(HELD.get() - bytes as i64);
    HELD_BY_ALL.fetch_sub(bytes as u64, Relaxed);
}

// SAFETY: all work is `System`'s; counting does not allocate (`const` thread-locals without drop).
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // Packing buffers; nothing of ours asks for that.
        taken(layout.size(), layout.align() < 128);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // Flags: one byte per panel of rows. Tensors have words, hence a larger alignment.
        taken(layout.size(), layout.align() > 1);
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        taken(size, true);
        given_back(layout.size());
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        given_back(layout.size());
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(block, layout) }
    }
}

/// Allocations of `work` in this thread.
pub fn allocations(work: impl FnOnce()) -> u64 {
    let before = COUNT.get();
    work();
    COUNT.get() - before
}

/// Allocations of `work` in this thread that are not `gemm`'s.
pub fn our_allocations(work: impl FnOnce()) -> u64 {
    let before = OURS.get();
    work();
    OURS.get() - before
}

/// Bytes of the largest allocation of `work` in this thread.
pub fn largest_allocation(work: impl FnOnce()) -> usize {
    LARGEST.set(0);
    work();
    LARGEST.get()
}

/// Bytes that this thread has allocated and not freed.
pub fn held() -> i64 {
    HELD.get()
}

/// Counters of all threads. They tell what a test does where it has a process of its own.
pub mod of_all {
    use super::{COUNT_OF_ALL, HELD_BY_ALL, MOST_BY_ALL, Relaxed, TOTAL_OF_ALL};

    /// Allocations so far.
    pub fn count() -> u64 {
        COUNT_OF_ALL.load(Relaxed)
    }

    /// Bytes allocated so far.
    pub fn total() -> u64 {
        TOTAL_OF_ALL.load(Relaxed)
    }

    /// Bytes that are held.
    pub fn held() -> u64 {
        HELD_BY_ALL.load(Relaxed)
    }

    /// The most that was held since [`watch_most`].
    pub fn most() -> u64 {
        MOST_BY_ALL.load(Relaxed)
    }

    /// Begins to look for the most that is held; so much is held now.
    pub fn watch_most(held: u64) {
        MOST_BY_ALL.store(held, Relaxed);
    }
}
