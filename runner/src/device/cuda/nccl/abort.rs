//! Giving communicators up.

use crate::failure::Code;
use crate::transport::TransportError;
use std::sync::mpsc;
use std::time::Duration;

/// How long is waited for what.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For a line to be connected, and for all to be ended in order.
    pub connect: Duration,
    /// For communicators to be given up.
    pub abort: Duration,
    /// What is done where that takes longer, because of what.
    pub hangs: fn(&TransportError),
}

impl Default for Limits {
    /// The process ends where communicators cannot be given up: whatever it waits for will not come.
    fn default() -> Self {
        Self { connect: Duration::from_secs(30), abort: Duration::from_secs(2), hangs: end_process }
    }
}

fn end_process(error: &TransportError) {
    error!("{error}; NCCL could not be stopped within 2 s, and this process ends");
    std::process::exit(i32::from(Code::Peers as u8));
}

/// Does work on a thread of its own; whether it was done in time.
pub(super) fn within(limit: Duration, work: Box<dyn FnOnce() + Send>) -> bool {
    let (tell, told) = mpsc::channel();
    let thread = std::thread::Builder::new().name("abort".into());
    let started = thread.spawn(move || {
        work();
        // Who waited longer than the limit does not listen any more.
        let _ = tell.send(());
    });
    started.is_ok() && told.recv_timeout(limit).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[test]
    fn what_hangs_is_not_waited_for() {
        assert!(within(Duration::from_secs(600), Box::new(|| ())));
        let gate = Arc::new(Mutex::new(()));
        let (shut, behind) = (gate.lock().unwrap(), gate.clone());
        let work = Box::new(move || drop(behind.lock()));
        assert!(!within(Duration::from_millis(1), work));
        drop(shut);
    }
}
