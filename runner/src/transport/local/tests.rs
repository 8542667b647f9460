//! Tests that need private access; the conformance suite is in `runner/tests`.

use super::*;
use std::sync::mpsc::channel;
use std::time::Duration;

#[test]
fn leaving_waits_for_a_copy_that_has_begun() {
    let mut transports = local(2, 1);
    let bytes = [7u8; 4];
    // SAFETY: `bytes` outlives the transports.
    unsafe { transports[0].start_send(1, 0, &bytes, 0) }.unwrap();
    let shared = transports[0].shared.clone();
    // As far as rank 1's `recv` gets before it copies.
    let message = shared.lock().outboxes[0].take(1, 0).unwrap();
    let (done, ended) = channel();
    let leaver = std::thread::spawn(move || {
        drop(transports.remove(0));
        done.send(()).unwrap();
    });
    assert!(ended.recv_timeout(Duration::from_millis(50)).is_err(), "left during the copy");
    shared.lock().outboxes[0].free(message);
    shared.wake[0].notify_all();
    ended.recv_timeout(Duration::from_secs(30)).unwrap();
    leaver.join().unwrap();
}
