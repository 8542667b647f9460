//! `runner tune`.

use super::{DeviceKind, RunArgs};
use clap::{Args, FromArgMatches};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// `runner tune`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  runner tune plan.json --trials 3
  mpirun -n 2 runner tune plan.json --budget 20s -o tuned.json --history tune.jsonl

Plans are searched over cuts, micro-batches, schedules and replicas, with the plan's ranks and mini-batch;
they train the same network in the same way. The given plan is measured first, and is what is written
where none is faster. Plans whose steps are close are measured again in turns.")]
pub struct TuneArgs {
    /// The plan to begin with.
    pub plan: PathBuf,
    /// The file for the fastest plan that was measured, with what was measured. Default: beside the plan,
    /// plan-tuned.json for plan.json.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// A file for the history: a JSON object a line for each run, in their order.
    #[arg(long, value_name = "FILE")]
    pub history: Option<PathBuf>,
    /// Different plans to measure at most, the given one included; measuring one again is no trial.
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub trials: u32,
    /// Time after which no run begins, such as 60s, 5min or 1h, profiling and planning included; default:
    /// no limit.
    #[arg(long, value_name = "TIME")]
    pub budget: Option<Span>,
    /// Steps of a run; default: as many as take about a second, 5 to 200.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub steps: Option<u64>,
    /// Times each operation is measured where the plan has no profile.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub repeats: u32,
    /// What computes: cpu or cuda.
    #[arg(long, value_enum, default_value = "cpu")]
    pub device: DeviceKind,
    /// Threads that each rank computes with, at most four for each core; 0 shares the cores among the ranks.
    #[arg(long, default_value_t = 0)]
    pub threads: usize,
    /// Print one JSON object instead of text: see docs/json.md.
    #[arg(long)]
    pub json: bool,
}

impl TuneArgs {
    /// Where the best plan goes.
    pub fn output(&self) -> PathBuf {
        self.output.clone().unwrap_or_else(|| beside(&self.plan))
    }

    /// How each plan is run: as `runner run PLAN --no-eval` does.
    pub fn run(&self) -> RunArgs {
        let command = RunArgs::augment_args(clap::Command::new("run"));
        let matches = command.get_matches_from(["run", "plan.json", "--no-eval", "--json"]);
        let args = RunArgs::from_arg_matches(&matches).expect("these are its arguments");
        RunArgs { device: self.device, threads: self.threads, ..args }
    }
}

/// `plan-tuned.json` for `plan.json`.
fn beside(plan: &Path) -> PathBuf {
    let mut name = plan.file_stem().unwrap_or_default().to_owned();
    name.push("-tuned.json");
    plan.with_file_name(name)
}

/// A time as people write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub Duration);

impl FromStr for Span {
    type Err = String;

    /// A number with s, min (or m) or h; without a unit seconds.
    fn from_str(text: &str) -> Result<Self, String> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let seconds = match unit.trim() {
            "" | "s" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            _ => 0.0,
        } * number.parse::<f64>().unwrap_or(0.0);
        match Duration::try_from_secs_f64(seconds) {
            Ok(time) if (0.001..=1e7).contains(&seconds) => Ok(Self(time)),
            _ => Err("give a time like 60s, 5min or 1h, of at least a millisecond".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, seconds) in
            [("60s", 60.0), ("60", 60.0), ("1.5 min", 90.0), ("5m", 300.0), ("0.5h", 1800.0)]
        {
            assert_eq!(text.parse(), Ok(Span(Duration::from_secs_f64(seconds))), "{text}");
        }
        for text in ["", "s", "0", "-1s", "1d", "1e9h", "nan", "1.2.3s", "99999999s"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_tuned_plan_lies_beside_the_given_one() {
        assert_eq!(beside(Path::new("a/plan.json")), Path::new("a/plan-tuned.json"));
        assert_eq!(beside(Path::new("plan")), Path::new("plan-tuned.json"));
    }
}
