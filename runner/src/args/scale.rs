//! `runner scale`.

use super::{ClusterChanges, OnnxArgs, Order, Recompute, TrainingArgs};
use clap::Args;
use std::path::PathBuf;
use std::str::FromStr;

/// `runner scale`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  runner scale --model gpt2 --devices 8,16,32 --mini-batch 256 --price 2.5/h --tokens 10e9
  runner scale --model vgg16 --devices 1,2,4 --svg scale.svg -o plans

Every figure is of a plan that the search of `runner plan` finds for exactly so many ranks and that is then
simulated. Hosts of the cluster are as many as the devices need. The mini-batch is the same for all sizes
(strong scaling), so that all of them train the same.")]
pub struct ScaleArgs {
    /// A model by name, an ONNX file, hf:config.json or a profile file, as for `runner plan`.
    #[arg(long)]
    pub model: String,
    /// What an ONNX file leaves open.
    #[command(flatten)]
    pub onnx: OnnxArgs,
    /// Numbers of devices: powers of two from one number to another, 8..1024, or a list, 8,16,24.
    #[arg(long, value_name = "SIZES")]
    pub devices: Sizes,
    /// The machine, whose hosts become as many as are needed: a preset, all of which `runner cluster` lists,
    /// or a file.
    #[arg(long, default_value = "dgx-a100")]
    pub cluster: String,
    /// What differs in it.
    #[command(flatten)]
    pub changes: ClusterChanges,
    /// Samples of an optimizer step; default: as many as the most devices, and at least 32.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    pub mini_batch: Option<u64>,
    /// The schedule by name, or automatic; default: the fastest by name.
    #[arg(long)]
    pub schedule: Option<Order>,
    /// What stages compute again; default: nothing, or, where that does not fit, as little as does.
    #[arg(long, value_enum)]
    pub recompute: Option<Recompute>,
    /// What a device costs an hour, such as 2.5/h, in any currency.
    #[arg(long, value_name = "PRICE")]
    pub price: Option<Price>,
    /// Tokens to train on, such as 300e9: days and cost are of so many.
    #[arg(long, value_name = "TOKENS", value_parser = count, conflicts_with = "samples")]
    pub tokens: Option<f64>,
    /// Samples to train on, such as 90 epochs of 1.28e6: 115.2e6.
    #[arg(long, value_name = "SAMPLES", value_parser = count)]
    pub samples: Option<f64>,
    /// Plans to try at most for each size.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub budget: u64,
    /// How parameters change, and how training goes.
    #[command(flatten)]
    pub training: TrainingArgs,
    /// Folder for the plans, plan-8.json for 8 devices.
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// A picture: throughput over devices, beside the line of ideal scaling.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Print one JSON object instead of text: see docs/json.md.
    #[arg(long)]
    pub json: bool,
}

/// Most devices of a size.
const DEVICES_MAX: u32 = 1 << 16;

/// Most sizes.
const SIZES_MAX: usize = 64;

/// Numbers of devices, ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes(pub Vec<u32>);

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "give numbers of 1 to {DEVICES_MAX}, as 8,16,24, or powers of two from one to another, as 8..1024"
            )
        };
        let number = |text: &str| {
            let number = text.trim().parse().ok();
            number.filter(|number| (1..=DEVICES_MAX).contains(number)).ok_or_else(wrong)
        };
        let mut sizes: Vec<u32> = match text.split_once("..") {
            Some((from, to)) => {
                let (from, to) = (number(from)?, number(to.trim_start_matches('='))?);
                (0..=16).map(|power| 1 << power).filter(|size| (from..=to).contains(size)).collect()
            }
            None => text.split(',').map(number).collect::<Result<_, _>>()?,
        };
        sizes.sort_unstable();
        sizes.dedup();
        match sizes.len() {
            0 => Err(format!("there is no power of two in {text}")),
            1..=SIZES_MAX => Ok(Self(sizes)),
            _ => Err(format!("at most {SIZES_MAX} sizes")),
        }
    }
}

/// What a device costs an hour.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Price(pub f64);

impl FromStr for Price {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.trim_end_matches("/h").parse().ok();
        let number = number.filter(|price: &f64| (0.0..=1e9).contains(price));
        number.map(Self).ok_or_else(|| "give what a device costs an hour, as 2.5/h".into())
    }
}

/// A number as people write large ones: 300e9.
fn count(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| (1.0..=1e18).contains(number));
    number.ok_or_else(|| "give a number from 1 to 1e18, as 300e9".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two_or_a_list() {
        let read = |text: &str| text.parse::<Sizes>().map(|sizes| sizes.0);
        assert_eq!(read("8..64"), Ok(vec![8, 16, 32, 64]));
        assert_eq!(read("6..=20"), Ok(vec![8, 16]));
        assert_eq!(read("24,8, 16,8"), Ok(vec![8, 16, 24]));
        assert_eq!(read("1"), Ok(vec![1]));
        for text in ["", "0", "8..", "..8", "64..8", "5..7", "8,x", "-1", "70000", "1.5"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn prices_and_counts_are_read_as_people_write_them() {
        assert_eq!("2.5/h".parse(), Ok(Price(2.5)));
        assert_eq!("3".parse(), Ok(Price(3.0)));
        for text in ["", "/h", "-1/h", "2.5/day", "nan", "inf"] {
            assert!(text.parse::<Price>().is_err(), "{text}");
        }
        assert_eq!(count("300e9"), Ok(3e11));
        for text in ["0", "-5", "nan", "1e30", "300B"] {
            assert!(count(text).is_err(), "{text}");
        }
    }
}
