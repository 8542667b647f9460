//! Memory that this process can still have.

use pipewright_core::units::Bytes;
use rustix::process::{Resource, getrlimit};

/// Memory that the machine has left without swapping, or what limits of this process leave (`ulimit -v`,
/// `ulimit -d`) if that is less; `None` where the system does not say.
pub fn available_memory() -> Option<Bytes> {
    let machine = kib("/proc/meminfo", "MemAvailable:");
    let limited = |resource, used| {
        let limit = getrlimit(resource).current?;
        Some(limit.saturating_sub(kib("/proc/self/status", used)?))
    };
    let own = [limited(Resource::As, "VmSize:"), limited(Resource::Data, "VmData:")];
    own.into_iter().flatten().chain(machine).min().map(Bytes)
}

/// The bytes in the line of a file that begins with `name`, which gives them in KiB.
fn kib(file: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}
