//! One unit for a whole axis of bytes.

/// A unit of bytes, and how many it is worth.
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
