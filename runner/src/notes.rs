//! Notes for whoever watches, on standard error: what `--quiet` leaves out. Warnings and errors are none.

use std::sync::atomic::{AtomicBool, Ordering};

/// Prints a note, unless nobody wants any.
macro_rules! note {
    ($($text:tt)*) => {
        if !$crate::notes::are_unwanted() {
            eprintln!($($text)*);
        }
    };
}

static UNWANTED: AtomicBool = AtomicBool::new(false);

/// From now on nothing is noted in this process.
pub fn leave_out() {
    UNWANTED.store(true, Ordering::Relaxed);
}

/// Whether notes, progress and summaries are left out.
pub fn are_unwanted() -> bool {
    UNWANTED.load(Ordering::Relaxed)
}
