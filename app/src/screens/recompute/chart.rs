//! The pictures of recomputation, as markup: a few hundred marks that change together.

pub mod cells;
pub mod memory;
pub mod progress;
pub mod trade_offs;

use crate::base::format;
use pipewright_core::units::Bytes;
use std::fmt::Write;

/// Two lines beside a mark: what it is worth, and what it is.
fn label(out: &mut String, (x, y): (f64, f64), value: &str, what: &str, anchor: &str) {
    let _ = write!(
        out,
        "<text x='{x:.1}' y='{y:.1}' text-anchor='{anchor}' class='lb'>{value}</text>\
         <text x='{x:.1}' y='{:.1}' text-anchor='{anchor}' class='ls'>{what}</text>",
        y + 15.0
    );
}

/// `9.6 GiB`
fn bytes(bytes: u64) -> String {
    format::bytes_text(Bytes(bytes))
}
