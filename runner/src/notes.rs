//! Lines on standard error: warnings, errors, and the notes that `--quiet` leaves out.
//!
//! Ranks and the supervisor of a job share one standard error. Each line goes out in one write, so that theirs
//! never mix: [`eprintln`] writes piece by piece.

use std::fmt::Arguments;
use std::io::{Write, stderr};
use std::sync::atomic::{AtomicBool, Ordering};

/// Prints a note, unless nobody wants any.
macro_rules! note {
    ($($text:tt)*) => {
        if !$crate::notes::are_unwanted() {
            $crate::notes::print("", format_args!($($text)*));
        }
    };
}

/// Prints a warning.
macro_rules! warn {
    ($($text:tt)*) => { $crate::notes::print("warning: ", format_args!($($text)*)) };
}

/// Prints an error.
macro_rules! error {
    ($($text:tt)*) => { $crate::notes::print("error: ", format_args!($($text)*)) };
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

/// Prints a text and the end of its line in one write. Where standard error is closed nobody listens, and
/// nothing is lost.
pub fn print(kind: &str, text: Arguments<'_>) {
    let line = format!("{kind}{text}\n");
    let _ = stderr().lock().write_all(line.as_bytes());
}
