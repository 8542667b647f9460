//! `runner bench`: what is measured.

use super::DeviceKind;
use clap::{Args, Subcommand, ValueEnum};
use pipewright_core::compress::{CodecKind, Method, Reduction, Rounding, Scale, Threshold};
use pipewright_core::units::Bytes;
use std::path::PathBuf;
use std::str::FromStr;

/// `runner bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// What is measured.
    #[command(subcommand)]
    pub what: Bench,
}

/// What can be measured.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Sums of gradients over ranks: mpirun -n 4 runner bench allreduce --max 64MiB
    Allreduce(AllreduceArgs),
    /// Codecs on one core: runner bench codecs --sizes 1MiB..16MiB
    Codecs(CodecsArgs),
}

/// `runner bench allreduce`.
#[derive(Debug, Args)]
pub struct AllreduceArgs {
    /// Sizes and codecs.
    #[command(flatten)]
    pub common: CommonArgs,
    /// Ways to sum.
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["plain", "two-shot", "operator"])]
    pub algorithms: Vec<SumAlgorithm>,
    /// Ranks of a host sum in single precision first, and only hosts exchange encoded values.
    #[arg(long)]
    pub hierarchical: bool,
    /// Ranks, as threads of this process, where mpirun starts none.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub ranks: u32,
    /// A cluster file as `runner profile` writes it on these hosts, whose prediction is to stand beside
    /// each time.
    #[arg(long, value_name = "FILE")]
    pub cluster: Option<String>,
    /// Under mpirun: the main thread does the work of the sums while it waits, and MPI is started for
    /// one thread.
    #[arg(long)]
    pub one_thread: bool,
}

/// `runner bench codecs`.
#[derive(Debug, Args)]
pub struct CodecsArgs {
    /// Sizes and codecs.
    #[command(flatten)]
    pub common: CommonArgs,
    /// What encodes: cpu, one core, or cuda, the first GPU, each size as one tensor.
    #[arg(long, value_enum, default_value = "cpu")]
    pub device: DeviceKind,
}

/// What both have.
#[derive(Debug, Args)]
pub struct CommonArgs {
    /// Bytes of values in single precision: a size such as 64MiB, or the first and the last of several.
    #[arg(long, value_name = "SIZES", default_value = "1KiB..1GiB")]
    pub sizes: Sizes,
    /// The largest size, in place of the last.
    #[arg(long, value_name = "SIZE")]
    pub max: Option<Bytes>,
    /// Each size is so many times the one before.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(2..))]
    pub factor: u64,
    /// Codecs, as table:1,fp8-e5m2:truncate or as a JSON array of a plan's reductions; default: a choice.
    #[arg(long, value_name = "LIST")]
    pub codecs: Option<Codecs>,
    /// Seconds that each measurement lasts, about.
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    pub seconds: f64,
    /// Also write the table as JSON; `-` prints it in place of the table.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl CommonArgs {
    /// All sizes, ascending.
    pub fn sizes(&self) -> Vec<Bytes> {
        let last = self.max.unwrap_or(self.sizes.last).0;
        let sizes = std::iter::successors(Some(self.sizes.first.0), |s| s.checked_mul(self.factor));
        sizes.take_while(|size| *size <= last).map(Bytes).collect()
    }

    /// The codecs, or a choice.
    pub fn codecs(&self) -> Vec<Reduction> {
        let given = self.codecs.as_ref().map(|codecs| codecs.0.clone());
        given.unwrap_or_else(|| {
            let (rounding, scale) = (Rounding::NearestEven, Scale::PowerOfTwo);
            let threshold = Threshold::Zero;
            [
                CodecKind::Fp32,
                CodecKind::Bf16,
                CodecKind::Fp8E5m2 { rounding, scale },
                CodecKind::Int8 { block: Some(256) },
                CodecKind::Table { bits: 4 },
                CodecKind::Table { bits: 1 },
                CodecKind::OneBit { threshold },
            ]
            .map(Reduction::of)
            .to_vec()
        })
    }

    /// The codecs with or without feedback, whatever sums them.
    pub fn methods(&self) -> Vec<Method> {
        self.codecs().into_iter().map(|reduction| reduction.method).collect()
    }
}

/// How values are summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SumAlgorithm {
    /// The transport's own all-reduce in single precision.
    Plain,
    /// Encoded values to the owner of each part, encoded sums to all.
    TwoShot,
    /// MPI's all-reduce of fp8-e5m2 codes with an operator of ours.
    Operator,
}

/// The first and the last of several sizes.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    first: Bytes,
    last: Bytes,
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once("..").unwrap_or((text, text));
        let size = |text: &str| text.parse::<Bytes>().map_err(|error| error.to_string());
        let (first, last) = (size(first)?, size(last)?);
        if first.0 < 4 || last < first {
            return Err("sizes ascend from 4 B, one value, on".into());
        }
        Ok(Self { first, last })
    }
}

/// Several codecs.
#[derive(Clone, Debug)]
pub struct Codecs(Vec<Reduction>);

impl FromStr for Codecs {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim_start().starts_with('[') {
            return serde_json::from_str(text).map(Self).map_err(|error| error.to_string());
        }
        let named = text.split(',').map(|name| name.parse().map_err(|e| format!("{e}")));
        named.collect::<Result<_, String>>().map(Self)
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds, from 0 to 3600".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    fn parse(args: &str) -> Result<CommonArgs, String> {
        let words = ["runner", "bench", "codecs"].into_iter().chain(args.split_whitespace());
        let cli = Cli::try_parse_from(words).map_err(|e| e.to_string())?;
        match cli.command {
            Command::Bench(BenchArgs { what: Bench::Codecs(args) }) => Ok(args.common),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn sizes_grow_by_a_factor() {
        let sizes = |args| parse(args).unwrap().sizes().iter().map(|s| s.0).collect::<Vec<_>>();
        assert_eq!(sizes("--sizes 64MiB"), [64 << 20]);
        assert_eq!(sizes("--sizes 1KiB..8KiB --factor 2"), [1024, 2048, 4096, 8192]);
        assert_eq!(sizes("--max 20KiB"), [1024, 4096, 16384]);
        assert_eq!(sizes("").last(), Some(&(1 << 30)));
        for bad in ["--sizes 2B", "--sizes 8KiB..1KiB", "--sizes many", "--seconds -1"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn codecs_are_names_or_json() {
        let codecs = |args| parse(args).unwrap().codecs();
        let (named, json) = (
            "table:1,one-bit+feedback",
            r#"[{"codec":"table","bits":1},{"codec":"one-bit","feedback":true}]"#,
        );
        assert_eq!(codecs(&format!("--codecs {named}")), codecs(&format!("--codecs {json}")));
        assert!(parse("--codecs fp9").unwrap_err().contains("fp8-e5m2"));
    }
}
