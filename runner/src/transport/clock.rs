//! The clock and the identity of a machine.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the system's monotonic clock: the same clock for all processes of one boot.
pub(super) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Time since boot: never negative, and 584 years fit.
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Has this thread, and those that it starts from now on, woken when a sleep ends. Linux may end sleeps some 50
/// microseconds late, to wake several threads at once: as long as a message takes between ranks that wait
/// asleep.
pub(super) fn wake_in_time() {
    #[cfg(target_os = "linux")]
    // Where it is refused sleeps end later, no more.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1_000));
}

/// Name of this machine, as `uname -n` prints it.
pub(super) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Equal on two processes only if they read the same monotonic clock.
///
/// Linux draws an id per boot. It is better than the host's name, which clones and containers
/// share without sharing a clock; elsewhere `name` has to do.
#[cfg(feature = "mpi")]
pub(super) fn clock_domain(name: &str) -> String {
    match std::fs::read_to_string("/proc/sys/kernel/random/boot_id") {
        Ok(id) => id.trim().to_owned(),
        Err(_) => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_counts_nanoseconds() {
        let before = monotonic_ns();
        std::thread::sleep(std::time::Duration::from_millis(5));
        let passed = monotonic_ns() - before;
        assert!(passed >= 5_000_000, "{passed}");
        assert!(!host_name().is_empty());
    }
}
