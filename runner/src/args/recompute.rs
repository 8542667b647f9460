//! `runner recompute`: what is looked for, and for how long.

use clap::{ArgGroup, Args};
use pipewright_core::units::Bytes;
use std::path::PathBuf;
use std::str::FromStr;

/// `runner recompute`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("goal").required(true).args(["budget", "device", "pareto"])))]
pub struct RecomputeArgs {
    /// A graph of the format recompute-graph/1, plain or compressed by gzip.
    pub graph: PathBuf,
    /// Memory for the computed values: a share (0.5 or 50%) of what they take without
    /// recomputation, or bytes (12345678, 8GiB, 800MB).
    #[arg(long)]
    pub budget: Option<Budget>,
    /// Fit this device: h100, a100, a cluster's name or file. Parameters, inputs and results that
    /// are put down are taken off its memory.
    #[arg(long)]
    pub device: Option<String>,
    /// All trade-offs between memory and time.
    #[arg(long)]
    pub pareto: bool,
    /// Time to search; default: 10, or as long as --moves takes.
    #[arg(long, value_parser = seconds)]
    pub seconds: Option<f64>,
    /// Moves of each search. Without --seconds the result then depends on them, the seed and the
    /// threads alone.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub moves: Option<u64>,
    /// Seed of the first search; the others count on from it.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Searches side by side, each in a thread; default: as many as there are cores, 1 with --moves.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// Also print how little time could be enough, by a proof; takes seconds on large graphs.
    #[arg(long)]
    pub bounds: bool,
    /// The sequence, or with --pareto all of them, as JSON; `-` prints it.
    #[arg(short, long, value_name = "SEQUENCE")]
    pub output: Option<PathBuf>,
    /// Memory over time, or with --pareto the trade-offs, as a picture.
    #[arg(long, value_name = "PLOT")]
    pub svg: Option<PathBuf>,
    /// Print figures as JSON in place of progress and tables.
    #[arg(long)]
    pub json: bool,
}

/// How much memory there is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Budget {
    /// So many bytes.
    Bytes(u64),
    /// A share of the peak without recomputation, from 0 to 1.
    Share(f64),
}

impl Budget {
    /// In bytes, where the peak without recomputation is `peak`.
    pub fn bytes(self, peak: u64) -> u64 {
        match self {
            Budget::Bytes(bytes) => bytes,
            Budget::Share(share) => (share * peak as f64) as u64,
        }
    }
}

impl FromStr for Budget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "give a share (0.5 or 50%) or bytes (12345678, 8GiB, 800MB)".to_string();
        let number = |text: &str| -> Result<f64, String> {
            let digits = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
            text.parse().ok().filter(|_| digits).ok_or_else(wrong)
        };
        if let Some(percent) = text.strip_suffix('%') {
            return share(number(percent.trim_end())? / 100.0);
        }
        if text.contains('.') && !text.ends_with(|c: char| c.is_ascii_alphabetic()) {
            return share(number(text)?);
        }
        text.parse().map(|Bytes(bytes)| Budget::Bytes(bytes)).map_err(|_| wrong())
    }
}

fn share(share: f64) -> Result<Budget, String> {
    let wrong = "a share is from 0 to 1 (0 to 100%); bytes are whole or have a unit, as 1.5GiB has";
    if (0.0..=1.0).contains(&share) { Ok(Budget::Share(share)) } else { Err(wrong.into()) }
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=1e6).contains(seconds));
    seconds.ok_or_else(|| "give a time from 0 to 1000000 seconds".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_read_as_people_write_them() {
        let read = |text: &str| text.parse::<Budget>();
        for (text, share) in
            [("0.5", 0.5), ("50%", 0.5), ("1.0", 1.0), (".25", 0.25), ("12.5 %", 0.125)]
        {
            assert_eq!(read(text), Ok(Budget::Share(share)), "{text}");
        }
        let bytes = [
            ("12345678", 12_345_678),
            ("0", 0),
            ("8GiB", 8 << 30),
            ("1.5 gib", 3 << 29),
            ("800MB", 800_000_000),
            ("16kb", 16_000),
            ("7B", 7),
            ("999999999TiB", u64::MAX),
        ];
        for (text, bytes) in bytes {
            assert_eq!(read(text), Ok(Budget::Bytes(bytes)), "{text}");
        }
        for text in [
            "", "x", "1.5", "101%", "-1", "-0.5", "GiB", "1e9", "inf", "nan%", "8 GiBs", "é",
            "0.5.5",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
        assert_eq!(Budget::Share(0.5).bytes(101), 50);
    }
}
