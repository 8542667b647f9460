//! The threads of a rank: rayon's, kept awake while a rank computes.
//!
//! A worker of rayon falls asleep some 20 microseconds after its last job, and waking it takes 50
//! to 100, as long as a kernel. Within [`awake`] the workers look for jobs without pause, and who
//! waits for the other half of a [`both`] looks as well, so that splitting a kernel costs about a
//! microsecond.

use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder, Yield};
use std::cell::OnceCell;
use std::sync::atomic::{AtomicBool, Ordering};

thread_local! {
    // Lives as long as its thread: the thread stays one of the pool's, and would wait for ever for
    // workers that have gone.
    static POOL: OnceCell<ThreadPool> = const { OnceCell::new() };
}

/// Looks for jobs before other processes are let to the core: some 50 microseconds.
const PATIENCE: u32 = 2000;

/// Makes the calling thread the first of `threads`, once in its life; kernels that it calls can
/// then be split over so many.
///
/// # Errors
/// When the system has no more threads.
pub fn join(threads: usize) -> Result<(), ThreadPoolBuildError> {
    if threads <= 1 || rayon::current_thread_index().is_some() {
        return Ok(());
    }
    let pool = ThreadPoolBuilder::new().num_threads(threads).use_current_thread().build()?;
    POOL.with(|own| own.set(pool)).expect("a thread that has a pool is one of its threads");
    Ok(())
}

/// Runs `work` while the other threads, `threads` with the caller, wait for jobs wide awake.
pub fn awake<R>(threads: usize, work: impl FnOnce() -> R) -> R {
    if threads <= 1 {
        return work();
    }
    let caller = rayon::current_thread_index();
    let over = AtomicBool::new(false);
    rayon::in_place_scope(|scope| {
        let over = &over;
        scope.spawn_broadcast(move |_, worker| {
            if Some(worker.index()) != caller && worker.index() < threads {
                until(over);
            }
        });
        // Also when `work` panics: the scope waits for all of them.
        let _end = Raise(over);
        work()
    })
}

/// Runs both, at the same time where a thread has time for the second.
pub fn both(first: impl FnOnce(), second: impl FnOnce() + Send) {
    let done = AtomicBool::new(false);
    rayon::in_place_scope(|scope| {
        let done = &done;
        scope.spawn(move |_| {
            let _end = Raise(done);
            second();
        });
        first();
        until(done);
    });
}

/// Does the pool's jobs until a flag is raised.
fn until(flag: &AtomicBool) {
    let mut idle = 0;
    while !flag.load(Ordering::Acquire) {
        if rayon::yield_now() == Some(Yield::Executed) {
            idle = 0;
        } else if idle < PATIENCE {
            idle += 1;
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}

/// Raises a flag when it goes.
struct Raise<'a>(&'a AtomicBool);

impl Drop for Raise<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    fn sum(range: std::ops::Range<u32>, total: &AtomicU32) {
        if range.len() == 1 {
            total.fetch_add(range.start, Ordering::Relaxed);
            return;
        }
        let middle = range.start.midpoint(range.end);
        both(|| sum(range.start..middle, total), || sum(middle..range.end, total));
    }

    #[test]
    fn all_halves_are_done_with_and_without_a_team() {
        for threads in [1, 2, 5] {
            let run = move || {
                join(threads).expect("threads");
                let total = AtomicU32::new(0);
                for _ in 0..100 {
                    awake(threads, || (0..10).for_each(|_| sum(0..64, &total)));
                }
                assert_eq!(total.into_inner(), 1000 * (0..64).sum::<u32>());
            };
            std::thread::spawn(run).join().expect("no panic");
        }
    }

    #[test]
    fn a_panic_passes_on_and_leaves_nobody_waiting() {
        let run = || {
            join(2).expect("threads");
            awake(2, || both(|| {}, || panic!("the second half")));
        };
        assert!(std::thread::spawn(run).join().is_err());
        let run = || {
            join(2).expect("threads");
            awake(2, || panic!("the work"));
        };
        assert!(std::thread::spawn(run).join().is_err());
    }
}
