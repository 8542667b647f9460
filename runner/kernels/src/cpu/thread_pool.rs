//! The threads of a rank: rayon's, kept awake while a rank computes.
//!
//! A worker of rayon falls asleep some 20 microseconds after its last job, and waking it takes 50
//! to 100, as long as a kernel. Within [`awake`] the workers look for jobs without pause, and who
//! waits for the other half of a [`both`] looks as well, so that splitting a kernel costs about a
//! microsecond.

use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder, Yield};
use std::cell::{Cell, OnceCell};
use std::sync::atomic::{AtomicBool, Ordering};

thread_local! {
    // Lives as long as its thread: the thread stays one of the pool's, and would wait for ever for
    // workers that have gone.
    static POOL: OnceCell<ThreadPool> = const { OnceCell::new() };

    /// How many [`both`] this thread is inside of.
    static HALVES: Cell<u32> = const { Cell::new(0) };
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
            // A worker that took a half before it saw this must not wait here on top of it: the
            // work would wait for that half, and the half for the end of the work.
            let busy = HALVES.get() > 0;
            if Some(worker.index()) != caller && worker.index() < threads && !busy {
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
    let _inside = Inside::enter();
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

/// Counts a [`both`] that its thread is inside of, also when it panics.
struct Inside;

impl Inside {
    fn enter() -> Self {
        HALVES.set(HALVES.get() + 1);
        Self
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        HALVES.set(HALVES.get() - 1);
    }
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

    /// A worker is in the middle of a half when it is asked to stay awake, and its own half's half was
    /// taken by the caller: it looks for jobs, finds the request, and must not stay there.
    #[test]
    fn a_worker_that_is_asked_to_stay_awake_inside_of_a_half_goes_on() {
        let run = || {
            join(2).expect("threads");
            let [begun, asked, held, over] = [const { AtomicBool::new(false) }; 4];
            let spin = |flag: &AtomicBool| {
                while !flag.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
            };
            rayon::in_place_scope(|scope| {
                scope.spawn(|_| {
                    begun.store(true, Ordering::Release);
                    spin(&asked);
                    // The caller takes the second of these, and takes its time: the worker looks for
                    // other jobs.
                    both(
                        || spin(&held),
                        || {
                            held.store(true, Ordering::Release);
                            std::thread::sleep(std::time::Duration::from_millis(50));
                        },
                    );
                    over.store(true, Ordering::Release);
                });
                spin(&begun);
                awake(2, || {
                    asked.store(true, Ordering::Release);
                    while !held.load(Ordering::Acquire) {
                        rayon::yield_now();
                    }
                    let begin = std::time::Instant::now();
                    while !over.load(Ordering::Acquire) {
                        assert!(begin.elapsed().as_secs() < 20, "the worker waits for the caller");
                        std::thread::yield_now();
                    }
                });
            });
        };
        std::thread::spawn(run).join().expect("no panic");
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
