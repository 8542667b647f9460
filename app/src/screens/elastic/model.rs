//! The Elastic view's models: what becomes of a job when nodes come and go.
//!
//! | file | what it knows |
//! |---|---|
//! | `scenario`, `link` | what a person draws and chooses; the same as text |
//! | `presets` | four things to look at |
//! | `time` | times as people write them |
//! | `simulate` | which sizes a plan can have, and what a policy makes of a scenario |
//! | `moments` | what happened, one sentence each |
//! | `totals` | figures of a whole life, two of them side by side |
//! | `csv` | the same for spreadsheets |
//!
//! Lives, policies and sizes are core's own; a recorded job and a simulated one have the same type.

pub mod csv;
mod link;
pub mod moments;
pub mod presets;
pub mod scenario;
pub mod simulate;
pub mod time;
pub mod totals;

use pipewright_core::elastic::life::Life;

/// A job's `run.jsonl`.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// The file's name.
    pub name: String,
    /// What it tells; without the length of an epoch (0) where its runner did not write that.
    pub life: Life,
}

/// Whether the first bytes of a file are those of a `run.jsonl`.
pub fn is_record(head: &[u8]) -> bool {
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let has = |word: &[u8]| line.windows(word.len()).any(|part| part == word);
    line.trim_ascii_start().starts_with(b"{") && has(b"\"event\"") && has(b"\"at_ms\"")
}

/// Reads a job's records.
///
/// # Errors
/// The line that is no record, without a full stop.
pub fn read(name: &str, text: &str) -> Result<Recorded, String> {
    // The last line may lack its end only while it is written.
    let life = Life::read(text, 0).map_err(|why| why.to_string())?;
    Ok(Recorded { name: name.to_owned(), life })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_recognised_by_their_first_line() {
        let text = include_str!("../../../../tests/data/elastic/run.jsonl");
        assert!(is_record(text.as_bytes()) && is_record(&text.as_bytes()[..200]));
        for other in
            ["", "{}", "{\"step\":0,\"step_ns\":5}", "{\"traceEvents\":[]}", "\n{\"event\":1}"]
        {
            assert!(!is_record(other.as_bytes()), "{other}");
        }
        let read = read("run.jsonl", text).unwrap();
        assert_eq!((read.life.generations.len(), read.life.steps()), (3, 1358));
        assert!(super::read("x", "{\"event\":1,\"at_ms\":2}\n").unwrap_err().starts_with("line 1"));
    }
}
