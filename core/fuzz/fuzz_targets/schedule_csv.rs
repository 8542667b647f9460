//! PyTorch's schedule files: what is read and accepted is written and read back the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pipewright_core::schedule::{Schedule, check};

fuzz_target!(|text: &str| {
    if let Ok(schedule) = Schedule::from_csv(text)
        && check(&schedule).is_ok()
    {
        assert_eq!(Schedule::from_csv(&schedule.to_csv()).as_ref(), Ok(&schedule));
    }
});
