//! The pictures of recomputation, as markup: a few hundred marks that change together.

pub mod cells;
pub mod memory;
pub mod progress;
pub mod trade_offs;

use crate::base::format;
use pipewright_core::units::Bytes;
use std::fmt::Write;

/// One unit for a whole axis of bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unit {
    pub name: &'static str,
    pub bytes: f64,
}

impl Unit {
    /// The unit in which `most` bytes read well.
    pub fn of(most: u64) -> Self {
        let (name, bytes) = match most {
            0..=20_479 => ("B", 1.0),
            20_480..=20_971_519 => ("KiB", 1024.0),
            20_971_520..=5_368_709_119 => ("MiB", 1_048_576.0),
            _ => ("GiB", 1_073_741_824.0),
        };
        Self { name, bytes }
    }

    /// `2.86`: three digits or more.
    pub fn number(self, bytes: u64) -> String {
        let value = bytes as f64 / self.bytes;
        let decimals = match value {
            v if v >= 100.0 || self.bytes < 2.0 => 0,
            v if v >= 10.0 => 1,
            _ => 2,
        };
        format!("{value:.decimals$}")
    }
}

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
