//! Machines: what one device computes, what its links carry.

use super::Profile;
use crate::ids::LaneId;
use crate::units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Latency and bandwidth: `time = latency + bytes / bytes_per_sec`, everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Time of an empty message.
    pub latency_ns: Nanos,
    /// Bandwidth that software reaches, not the one printed on the cable.
    pub bytes_per_sec: f64,
}

impl Link {
    /// Time of a message of `bytes` (Takisawa 2022, equation 1).
    pub fn time(&self, bytes: Bytes) -> Nanos {
        self.latency_ns + Nanos::from_secs(bytes.0 as f64 / self.bytes_per_sec)
    }
}

/// One processor that executes kernels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// For people.
    pub name: String,
    /// Single-precision peak.
    pub flops_per_sec: f64,
    /// Share of the peak that matrix products reach.
    pub efficiency: f64,
    /// Memory bandwidth.
    pub memory_bytes_per_sec: f64,
    /// Memory.
    pub memory: Bytes,
    /// Constant time of each computation: launch, dispatch, gradient accumulation.
    pub overhead_ns: Nanos,
}

/// The machine that a plan is made for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// For people.
    pub name: String,
    /// Every device is alike.
    pub device: Device,
    /// Devices (on a CPU: cores) of one node.
    pub devices_per_node: u32,
    /// Nodes.
    pub nodes: u32,
    /// Between devices of one node.
    pub local: Link,
    /// Between nodes.
    pub network: Link,
    /// Ranks placed on one node before the next node is used; more than `devices_per_node` means
    /// that ranks share devices, and then they take turns.
    pub ranks_per_node: u32,
    /// Measured node times; they replace the computed ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
}

/// Why a cluster file cannot be used.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ClusterError {
    /// A number outside of what makes sense.
    #[error("cluster `{cluster}`: {field} is {value}, must be {must}")]
    Value {
        /// Name of the cluster.
        cluster: String,
        /// The field.
        field: &'static str,
        /// What stands there.
        value: String,
        /// What may stand there.
        must: &'static str,
    },
    /// No preset has that name.
    #[error("no cluster is called `{0}`; known: reedbush-l, laptop, dgx-a100, dgx-h100, or a file")]
    Unknown(String),
}

/// The presets, in the order in which they are offered.
pub const CLUSTERS: [&str; 4] = ["reedbush-l", "laptop", "dgx-a100", "dgx-h100"];

impl Cluster {
    /// A preset.
    ///
    /// # Errors
    /// When no preset has that name.
    pub fn preset(name: &str) -> Result<Self, ClusterError> {
        let text = match name {
            "reedbush-l" => include_str!("clusters/reedbush-l.json"),
            "laptop" => include_str!("clusters/laptop.json"),
            "dgx-a100" => include_str!("clusters/dgx-a100.json"),
            "dgx-h100" => include_str!("clusters/dgx-h100.json"),
            _ => return Err(ClusterError::Unknown(name.into())),
        };
        Ok(serde_json::from_str(text).expect("presets are tested"))
    }

    /// Checks every number.
    ///
    /// # Errors
    /// The first field out of range.
    pub fn check(&self) -> Result<(), ClusterError> {
        let refuse = |field, value: String, must| {
            Err(ClusterError::Value { cluster: self.name.clone(), field, value, must })
        };
        let rates = [
            ("device.flops_per_sec", self.device.flops_per_sec),
            ("device.memory_bytes_per_sec", self.device.memory_bytes_per_sec),
            ("local.bytes_per_sec", self.local.bytes_per_sec),
            ("network.bytes_per_sec", self.network.bytes_per_sec),
        ];
        for (field, value) in rates {
            if !(value.is_finite() && value >= 1.0) {
                return refuse(field, value.to_string(), "a number of at least 1");
            }
        }
        if !(self.device.efficiency > 0.0 && self.device.efficiency <= 1.0) {
            let value = self.device.efficiency.to_string();
            return refuse("device.efficiency", value, "in (0, 1]");
        }
        let times = [
            ("device.overhead_ns", self.device.overhead_ns),
            ("local.latency_ns", self.local.latency_ns),
            ("network.latency_ns", self.network.latency_ns),
        ];
        for (field, value) in times {
            if value.0 > 60_000_000_000 {
                return refuse(field, value.0.to_string(), "at most a minute");
            }
        }
        for (field, value) in [
            ("devices_per_node", self.devices_per_node),
            ("nodes", self.nodes),
            ("ranks_per_node", self.ranks_per_node),
        ] {
            if !(1..=1_000_000).contains(&value) {
                return refuse(field, value.to_string(), "between 1 and a million");
            }
        }
        Ok(())
    }

    /// The machine's node that a lane's rank runs on: ranks fill a node before the next.
    pub fn node_of(&self, lane: LaneId) -> u32 {
        lane.0 / self.ranks_per_node
    }

    /// The link between two lanes.
    pub fn link(&self, a: LaneId, b: LaneId) -> &Link {
        if self.node_of(a) == self.node_of(b) { &self.local } else { &self.network }
    }

    /// Ranks that the cluster has room for.
    pub fn ranks(&self) -> u64 {
        u64::from(self.nodes) * u64::from(self.ranks_per_node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_sound_and_round_trip() {
        for name in CLUSTERS {
            let cluster = Cluster::preset(name).unwrap();
            cluster.check().unwrap();
            assert_eq!(cluster.name, name);
            let text = serde_json::to_string(&cluster).unwrap();
            assert_eq!(serde_json::from_str::<Cluster>(&text).unwrap(), cluster);
        }
        assert!(Cluster::preset("cray-1").is_err());
    }

    #[test]
    fn numbers_out_of_range_are_named() {
        let mut cluster = Cluster::preset("laptop").unwrap();
        cluster.local.bytes_per_sec = 0.0;
        let message = cluster.check().unwrap_err().to_string();
        assert!(message.contains("local.bytes_per_sec is 0"), "{message}");
    }

    #[test]
    fn links_follow_the_nodes() {
        let cluster = Cluster::preset("reedbush-l").unwrap();
        assert_eq!(cluster.link(LaneId(0), LaneId(0)), &cluster.local);
        assert_eq!(cluster.link(LaneId(0), LaneId(4)), &cluster.network);
    }
}
