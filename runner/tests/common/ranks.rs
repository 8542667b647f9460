//! Ranks as threads that may fail or hang.

use pipewright_runner::transport::Transport;
use pipewright_runner::transport::local::LocalTransport;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// After so long without news ranks hang.
const PATIENCE: Duration = Duration::from_secs(300);

/// Runs `body` on each rank. The result says which ranks panicked.
pub fn on_ranks(
    transports: Vec<LocalTransport>,
    body: impl Fn(&mut LocalTransport) + Send + Clone + 'static,
) -> Vec<u32> {
    let (ranks, (done, results)) = (transports.len(), channel());
    for mut transport in transports {
        let (done, body) = (done.clone(), body.clone());
        thread::spawn(move || {
            let rank = transport.rank();
            // In its own thread, so that the transport is dropped by the unwinding.
            let ended = thread::spawn(move || body(&mut transport)).join();
            done.send((rank, ended.is_err())).unwrap();
        });
    }
    drop(done);
    let mut panicked = vec![];
    loop {
        match results.recv_timeout(PATIENCE) {
            Ok((rank, true)) => panicked.push(rank),
            Ok((_, false)) => {}
            Err(RecvTimeoutError::Disconnected) => return panicked,
            Err(RecvTimeoutError::Timeout) => panic!("{ranks} ranks hang"),
        }
    }
}
