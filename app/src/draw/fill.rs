//! Fill of a lane's memory as a word, a sign and a colour.

use pipewright_core::units::Bytes;

/// How near a lane is to its capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    Fine,
    /// From 90 %.
    Tight,
    Over,
}

impl Fill {
    pub fn of(peak: Bytes, capacity: Bytes) -> Self {
        if peak > capacity {
            Fill::Over
        } else if peak.0 as f64 > 0.9 * capacity.0 as f64 {
            Fill::Tight
        } else {
            Fill::Fine
        }
    }

    /// Never colour alone.
    pub fn sign(self) -> &'static str {
        match self {
            Fill::Fine => "",
            Fill::Tight => "▲ ",
            Fill::Over => "✕ ",
        }
    }

    /// The style sheet's word for its colour.
    pub fn class(self) -> &'static str {
        match self {
            Fill::Fine => "",
            Fill::Tight => "warn",
            Fill::Over => "bad",
        }
    }
}
