//! `runner cluster`, and flags by which a machine differs from its preset or file.

use clap::Args;
use pipewright_core::cost::Cluster;
use pipewright_core::units::Bytes;
use std::path::PathBuf;
use std::str::FromStr;

/// `runner cluster`.
#[derive(Debug, Args)]
pub struct ClusterArgs {
    /// A preset or a file, which is printed as JSON; without it the presets are listed.
    pub cluster: Option<String>,
    /// What differs in it.
    #[command(flatten)]
    pub changes: ClusterChanges,
    /// The file; `-` prints it.
    #[arg(short, long, default_value = "-")]
    pub output: PathBuf,
    /// Print one JSON object instead of the table: see docs/json.md.
    #[arg(long)]
    pub json: bool,
}

/// What differs from a preset or a file.
#[derive(Clone, Copy, Debug, Default, Args)]
#[command(next_help_heading = "Changes of the cluster")]
pub struct ClusterChanges {
    /// Nodes, in place of the cluster's.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub nodes: Option<u32>,
    /// Memory of each device, such as 16GiB or 800MB, in place of the cluster's.
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub memory: Option<Bytes>,
    /// Bandwidth of each network adapter of a node, such as 100Gbit/s or 11GB/s, in place of the cluster's
    /// and of what was measured for all-reduces between nodes.
    #[arg(long, value_name = "RATE")]
    pub network: Option<Bandwidth>,
}

impl ClusterChanges {
    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_none() && self.memory.is_none() && self.network.is_none()
    }

    /// The cluster as the flags say.
    pub fn apply(&self, cluster: &mut Cluster) {
        cluster.nodes = self.nodes.unwrap_or(cluster.nodes);
        cluster.device.memory = self.memory.unwrap_or(cluster.device.memory);
        if let Some(Bandwidth(bytes_per_sec)) = self.network {
            cluster.network.bytes_per_sec = bytes_per_sec;
            cluster.network_collectives = None;
        }
    }
}

fn memory(text: &str) -> Result<Bytes, String> {
    let size: Bytes = text.parse().map_err(|e| format!("{e}"))?;
    if size > Bytes::ZERO { Ok(size) } else { Err("a device has memory: give at least 1B".into()) }
}

/// Bytes in a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bandwidth(pub f64);

impl FromStr for Bandwidth {
    type Err = String;

    /// A number with bit/s, kbit/s to Tbit/s (also Gbps and so on), B/s, kB/s to TB/s or KiB/s to TiB/s.
    /// Where bits and bytes differ in one letter, its case counts.
    fn from_str(text: &str) -> Result<Self, String> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let unit = unit.trim();
        let bits = unit.strip_suffix("bit/s").or_else(|| unit.strip_suffix("bps"));
        let (prefix, bytes) = match bits {
            Some(prefix) => (Some(prefix), 0.125),
            None => (unit.strip_suffix("B/s"), 1.0),
        };
        let factor = match prefix {
            Some("") => 1.0,
            Some("k" | "K") => 1e3,
            Some("M") => 1e6,
            Some("G") => 1e9,
            Some("T") => 1e12,
            Some("Ki") => 1024.0,
            Some("Mi") => 1024.0 * 1024.0,
            Some("Gi") => 1024.0 * 1024.0 * 1024.0,
            Some("Ti") => 1024.0 * 1024.0 * 1024.0 * 1024.0,
            _ => 0.0,
        };
        let rate = number.parse::<f64>().unwrap_or(0.0) * factor * bytes;
        if rate >= 1.0 && rate.is_finite() {
            return Ok(Self(rate));
        }
        Err("give a bandwidth like 100Gbit/s, 11GB/s or 800Mbit/s, of at least 1B/s".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidths_are_read_as_people_write_them() {
        for (text, rate) in [
            ("100Gbit/s", 12.5e9),
            ("100 Gbps", 12.5e9),
            ("11GB/s", 11e9),
            ("0.5GiB/s", 536_870_912.0),
            ("800Mbit/s", 1e8),
            ("8bit/s", 1.0),
            ("1.5TB/s", 1.5e12),
        ] {
            assert_eq!(text.parse(), Ok(Bandwidth(rate)), "{text}");
        }
        for text in [
            "",
            "100",
            "100G",
            "100gb/s",
            "0Gbit/s",
            "-1GB/s",
            "nanGB/s",
            "1e9B/s",
            "GB/s",
            "1.2.3GB/s",
            "7bit/s",
        ] {
            assert!(text.parse::<Bandwidth>().is_err(), "{text}");
        }
    }
}
