//! Memory that this machine has left.

use pipewright_core::units::Bytes;

/// Memory that programs can still have without swapping; `None` where the system does not say.
pub fn available_memory() -> Option<Bytes> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|l| l.starts_with("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(Bytes(kib * 1024))
}
