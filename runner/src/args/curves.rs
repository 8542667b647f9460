//! Options of `runner curves`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Measure {
    /// Correct predictions of the test samples, where they were evaluated (--eval-every).
    Test,
    /// Correct predictions of the samples that were trained on, means of a hundredth of the run.
    Train,
}

/// `runner curves`.
#[derive(Debug, Args)]
pub struct CurvesArgs {
    /// Folders of runs (--out); the first is what the others are compared with.
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<PathBuf>,
    /// What is compared.
    #[arg(long, value_enum, default_value = "test")]
    pub measure: Measure,
    /// Points below the first run's best accuracy that count as the same accuracy.
    #[arg(long, value_name = "POINTS", default_value_t = 0.5)]
    pub within: f64,
    /// Write a picture (SVG).
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}
