//! Sizes of a training: numbers of devices, and what it takes and costs on each.

use super::Throughput;
use crate::cost::{Cluster, ClusterError};
use crate::graph::{Graph, InputSpec};
use std::str::FromStr;

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

/// A number of samples or tokens as people write large ones: 300e9.
///
/// # Errors
/// What it must be.
pub fn amount(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| (1.0..=1e18).contains(number));
    number.ok_or_else(|| "give a number from 1 to 1e18, as 300e9".into())
}

/// Hours of a day.
const HOURS: f64 = 24.0;

/// What so many devices get done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    /// How many.
    pub devices: u32,
    /// All of them together.
    pub throughput: Throughput,
}

impl Speed {
    /// Samples per second and device, as a share of another size's.
    pub fn efficiency(&self, base: &Speed) -> f64 {
        let each = |size: &Speed| size.throughput.samples_per_sec / f64::from(size.devices.max(1));
        each(self) / each(base)
    }
}

impl Throughput {
    /// Days of training on so many samples.
    pub fn days(&self, samples: f64) -> f64 {
        samples / self.samples_per_sec / (HOURS * 3600.0)
    }
}

impl Price {
    /// What so many devices cost for so many days.
    pub fn of(self, devices: u32, days: f64) -> f64 {
        self.0 * f64::from(devices) * days * HOURS
    }
}

impl Cluster {
    /// The cluster with as many hosts as so many devices need; one that is not full has devices to spare.
    ///
    /// # Errors
    /// Where no cluster can be so large.
    pub fn grown(&self, devices: u32) -> Result<Cluster, ClusterError> {
        let nodes = devices.div_ceil(self.devices_per_node.max(1));
        let grown = Cluster { nodes, ..self.clone() };
        grown.check()?;
        Ok(grown)
    }
}

/// How many samples have so many tokens; `None` for a network that takes none.
pub fn samples_of(graph: &Graph, tokens: f64) -> Option<f64> {
    match graph.sample()?.input {
        InputSpec::Tokens { length, .. } => Some(tokens / length as f64),
        _ => None,
    }
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
        assert_eq!(amount("300e9"), Ok(3e11));
        for text in ["0", "-5", "nan", "1e30", "300B"] {
            assert!(amount(text).is_err(), "{text}");
        }
    }

    #[test]
    fn twice_the_devices_at_the_same_speed_cost_twice_as_much() {
        let of = |samples_per_sec| Throughput {
            samples_per_sec,
            tokens_per_sec: None,
            device_flops_per_sec: None,
            mfu: None,
        };
        let small = Speed { devices: 8, throughput: of(100.0) };
        let large = Speed { devices: 16, throughput: of(150.0) };
        assert_eq!(large.efficiency(&small), 0.75);
        assert_eq!(small.throughput.days(8_640_000.0), 1.0);
        assert_eq!(Price(2.5).of(8, 1.0), 480.0);
        let cluster = Cluster::preset("dgx-a100").unwrap();
        let nodes = |devices| cluster.grown(devices).map(|grown| grown.nodes);
        assert_eq!([1, 8, 9, 64].map(nodes), [Ok(1), Ok(1), Ok(2), Ok(8)]);
    }
}
