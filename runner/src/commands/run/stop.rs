//! Signals that end a run after its step.

use crate::failure::{Code, Failure};
use crate::signals;
use crate::train::StopFlag;
use signal_hook::consts::{SIGHUP, SIGINT, SIGUSR1, SIGXFSZ};
use signal_hook::iterator::Signals;
use std::sync::atomic::Ordering;

/// A flag that SIGINT, SIGTERM, SIGHUP and SIGUSR1 set; the second SIGINT ends the process at once. SIGUSR1
/// is the one that mpirun passes on to its ranks without ending them a second later.
pub(in crate::commands) fn stop_flag() -> Result<StopFlag, Failure> {
    let flag = StopFlag::default();
    let now = i32::from(Code::Interrupted as u8);
    let register = || -> std::io::Result<()> {
        signal_hook::flag::register_conditional_shutdown(SIGINT, now, flag.clone())?;
        let ends = signals::ends();
        for signal in ends.iter().copied().filter(|signal| *signal != SIGHUP).chain([SIGUSR1]) {
            signal_hook::flag::register(signal, flag.clone())?;
        }
        if ends.contains(&SIGHUP) {
            let (mut hung_up, flag) = (Signals::new([SIGHUP])?, flag.clone());
            std::thread::spawn(move || {
                hung_up.forever().for_each(|_| {
                    signals::without_terminal();
                    flag.store(true, Ordering::Relaxed);
                });
            });
        }
        // A file at its size limit is an error of the write, not the end of the process.
        signal_hook::flag::register(SIGXFSZ, StopFlag::default())?;
        Ok(())
    };
    register().map_err(|e| Failure::new(Code::Failed, format!("signals: {e}")))?;
    Ok(flag)
}
