//! Machines: what one device computes, what its links carry.

use super::{CLUSTERS, CodecSpeed, Profile, TransformerRates};
use crate::graph::Precision;
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

/// Shares of the peaks that one kind of operation reaches, where it differs from the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Efficiencies {
    /// Of the arithmetic peak, by convolutions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub convolution: Option<f64>,
    /// Of the arithmetic peak, by linear layers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linear: Option<f64>,
    /// Of the memory bandwidth, by all operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<f64>,
}

/// How a device computes with values that are stored in two bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halves {
    /// Its kernels read and write them where they lie.
    AsTheyLie,
    /// Its kernels know single precision alone: what a computation reads is unpacked before, what it writes packed
    /// behind it.
    Unpacked,
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
    /// Peak of products in bf16 and fp16; a device without it computes in single precision whatever
    /// is stored in two bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_flops_per_sec: Option<f64>,
    /// Peak of products in fp8; a device without it multiplies such numbers in two bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fp8_flops_per_sec: Option<f64>,
    /// Share of the peak that matrix products reach.
    pub efficiency: f64,
    /// Memory bandwidth.
    pub memory_bytes_per_sec: f64,
    /// Memory.
    pub memory: Bytes,
    /// Constant time of each computation: launch, dispatch, gradient accumulation.
    pub overhead_ns: Nanos,
    /// Exceptions from `efficiency`, and the share of the memory bandwidth (else all of it).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub efficiencies: Option<Efficiencies>,
    /// Measured: what it reaches on networks with attention; without it they are priced as all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transformers: Option<TransformerRates>,
}

impl Device {
    /// Peak of products in a precision, floating-point operations a second.
    pub fn peak(&self, precision: Precision) -> f64 {
        let half = self.half_flops_per_sec.filter(|_| precision.is_half());
        let eight = half.and(self.fp8_flops_per_sec).filter(|_| precision == Precision::Fp8);
        eight.or(half).unwrap_or(self.flops_per_sec)
    }

    /// How it computes with what is stored in two bytes.
    pub fn halves(&self) -> Halves {
        match self.half_flops_per_sec {
            Some(_) => Halves::AsTheyLie,
            None => Halves::Unpacked,
        }
    }

    /// Share of the memory bandwidth that operations reach.
    pub fn memory_efficiency(&self) -> f64 {
        self.efficiencies.and_then(|e| e.memory).unwrap_or(1.0)
    }
}

/// How near two ranks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// They share a device.
    Device,
    /// They share a node.
    Node,
    /// The network is between them.
    Network,
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
    /// Between ranks that share a device; without it they use `local`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_link: Option<Link>,
    /// Between devices of one node.
    pub local: Link,
    /// Between nodes.
    pub network: Link,
    /// Ranks placed on one node before the next node is used; more than `devices_per_node` means
    /// that ranks share devices, and then they take turns.
    pub ranks_per_node: u32,
    /// A rank computes nothing while its message travels, as under blocking sends.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub blocking_sends: bool,
    /// The receiver's processor moves a message's bytes, once it comes for them: messages between
    /// processes of one machine. Only the latency passes while it computes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub receivers_copy: bool,
    /// The link for which formulas of collective calls meet what was measured, within a node;
    /// without it they use `local`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collectives: Option<Link>,
    /// The same between nodes; without it they use `network`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_collectives: Option<Link>,
    /// Adapters of a node, each with the bandwidth of `network`: the ranks of a node that talk to
    /// other nodes at the same time share them.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub adapters: u32,
    /// Measured speeds of codecs; those of others follow from the device's memory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub codecs: Vec<CodecSpeed>,
    /// Measured: which share of the shorter of wire and codecs an encoded sum does *not* hide behind the
    /// longer, in 0..=1; 0 where hosts have their processors to themselves.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub codec_exposure: f64,
    /// Measured node times; they replace the computed ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
}

fn one() -> u32 {
    1
}

fn is_nothing(share: &f64) -> bool {
    *share == 0.0
}

fn is_one(adapters: &u32) -> bool {
    *adapters == 1
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
    #[error("no cluster is called `{0}`; known: {known}, or a file", known = CLUSTERS.join(", "))]
    Unknown(String),
}

impl Cluster {
    /// Checks every number.
    ///
    /// # Errors
    /// The first field out of range.
    pub fn check(&self) -> Result<(), ClusterError> {
        let refuse = |field, value: String, must| {
            Err(ClusterError::Value { cluster: self.name.clone(), field, value, must })
        };
        let across = self.network_collectives.unwrap_or(self.network);
        let half = self.device.half_flops_per_sec.unwrap_or(self.device.flops_per_sec);
        let rates = [
            ("device.flops_per_sec", self.device.flops_per_sec),
            ("device.half_flops_per_sec", half),
            ("device.fp8_flops_per_sec", self.device.fp8_flops_per_sec.unwrap_or(half)),
            ("device.memory_bytes_per_sec", self.device.memory_bytes_per_sec),
            ("local.bytes_per_sec", self.local.bytes_per_sec),
            ("network.bytes_per_sec", self.network.bytes_per_sec),
            ("device_link.bytes_per_sec", self.link_of(Level::Device).bytes_per_sec),
            ("collectives.bytes_per_sec", self.collectives.unwrap_or(self.local).bytes_per_sec),
            ("network_collectives.bytes_per_sec", across.bytes_per_sec),
        ];
        for (field, value) in rates {
            if !(value.is_finite() && value >= 1.0) {
                return refuse(field, value.to_string(), "a number of at least 1");
            }
        }
        let by_kind = self.device.efficiencies.unwrap_or_default();
        let shares = [
            ("device.efficiency", Some(self.device.efficiency)),
            ("device.efficiencies.convolution", by_kind.convolution),
            ("device.efficiencies.linear", by_kind.linear),
            ("device.efficiencies.memory", by_kind.memory),
        ];
        for (field, share) in shares {
            if share.is_some_and(|share| !(share > 0.0 && share <= 1.0)) {
                let value = share.unwrap_or_default().to_string();
                return refuse(field, value, "in (0, 1]");
            }
        }
        if !(0.0..=1.0).contains(&self.codec_exposure) {
            return refuse("codec_exposure", self.codec_exposure.to_string(), "between 0 and 1");
        }
        if self.device.memory.0 == 0 {
            return refuse("device.memory", "0".into(), "at least 1 byte");
        }
        let times = [
            ("device.overhead_ns", self.device.overhead_ns),
            ("local.latency_ns", self.local.latency_ns),
            ("network.latency_ns", self.network.latency_ns),
            ("device_link.latency_ns", self.link_of(Level::Device).latency_ns),
            ("collectives.latency_ns", self.collectives.unwrap_or(self.local).latency_ns),
            ("network_collectives.latency_ns", across.latency_ns),
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
            ("adapters", self.adapters),
        ] {
            if !(1..=1_000_000).contains(&value) {
                return refuse(field, value.to_string(), "between 1 and a million");
            }
        }
        if let Some(rates) = &self.device.transformers {
            rates.check(&self.name)?;
        }
        self.check_codecs()
    }

    /// The machine's node that a lane's rank runs on: ranks fill a node before the next, and those beyond the
    /// last one begin at the first again.
    pub fn node_of(&self, lane: LaneId) -> u32 {
        lane.0 / self.ranks_per_node % self.nodes
    }

    /// The device of its node that a lane's rank runs on: neighbours share where ranks are more
    /// than devices.
    pub fn device_of(&self, lane: LaneId) -> u32 {
        let rank = u64::from(lane.0 % self.ranks_per_node);
        let devices = u64::from(self.devices_per_node.min(self.ranks_per_node));
        (rank * devices / u64::from(self.ranks_per_node)) as u32
    }

    /// How near two lanes are.
    pub fn level(&self, a: LaneId, b: LaneId) -> Level {
        if self.node_of(a) != self.node_of(b) {
            Level::Network
        } else if self.device_of(a) != self.device_of(b) {
            Level::Node
        } else {
            Level::Device
        }
    }

    /// The link of a level.
    pub fn link_of(&self, level: Level) -> &Link {
        match level {
            Level::Device => self.device_link.as_ref().unwrap_or(&self.local),
            Level::Node => &self.local,
            Level::Network => &self.network,
        }
    }

    /// The link between two lanes.
    pub fn link(&self, a: LaneId, b: LaneId) -> &Link {
        self.link_of(self.level(a, b))
    }

    /// The link that collective calls of a group use whose first and last ranks these are.
    pub fn collective_link(&self, first: LaneId, last: LaneId) -> &Link {
        match self.level(first, last) {
            Level::Network => self.network_collectives.as_ref().unwrap_or(&self.network),
            level => self.collectives.as_ref().unwrap_or_else(|| self.link_of(level)),
        }
    }

    /// Devices, so ranks that have one for themselves.
    pub fn devices(&self) -> u64 {
        u64::from(self.nodes) * u64::from(self.devices_per_node.min(self.ranks_per_node))
    }

    /// The same machine with a tensor group of so many neighbours in the place of each device, for plans that speak of
    /// groups. The ranks of a group share the adapters of their node.
    pub fn of_groups(&self, degree: u32) -> Self {
        let within = degree.min(self.ranks_per_node);
        let across = degree.div_ceil(self.ranks_per_node);
        let mut groups = Self {
            devices_per_node: (self.devices_per_node / within).max(1),
            ranks_per_node: self.ranks_per_node / within,
            nodes: (self.nodes / across).max(1),
            adapters: (self.adapters / within).max(1),
            ..self.clone()
        };
        let share = f64::from(self.adapters) / f64::from(within);
        let links = std::iter::once(&mut groups.network).chain(&mut groups.network_collectives);
        links.for_each(|link| link.bytes_per_sec *= share.min(1.0));
        groups
    }

    /// Ranks that the cluster has room for; where they are more than [`Cluster::devices`], some share one.
    pub fn ranks(&self) -> u64 {
        u64::from(self.nodes) * u64::from(self.ranks_per_node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn a_tensor_group_stands_for_a_device() {
        let cluster = Cluster::preset("dgx-a100").unwrap();
        for (degree, groups) in [(1, 32), (2, 16), (4, 8), (8, 4), (16, 2)] {
            assert_eq!(cluster.of_groups(degree).devices(), groups, "{degree}");
        }
        assert_eq!(cluster.of_groups(8).network, cluster.network, "an adapter for each rank");
        let one_adapter = Cluster { adapters: 1, ..cluster };
        let shared = one_adapter.of_groups(4).network.bytes_per_sec;
        assert_eq!(shared, one_adapter.network.bytes_per_sec / 4.0);
    }

    #[test]
    fn ranks_that_share_a_device_have_their_own_link() {
        let mut cluster = Cluster::preset("laptop").unwrap();
        (cluster.nodes, cluster.devices_per_node, cluster.ranks_per_node) = (2, 2, 6);
        let devices: Vec<u32> = (0..6).map(|lane| cluster.device_of(LaneId(lane))).collect();
        assert_eq!(devices, [0, 0, 0, 1, 1, 1]);
        assert_eq!(cluster.level(LaneId(0), LaneId(2)), Level::Device);
        assert_eq!(cluster.level(LaneId(2), LaneId(3)), Level::Node);
        assert_eq!(cluster.level(LaneId(5), LaneId(6)), Level::Network);
        assert_eq!(cluster.level(LaneId(0), LaneId(12)), Level::Device, "beyond the last node");
        assert_eq!(cluster.link(LaneId(0), LaneId(2)), &cluster.local, "none given");
        let memory = Link { latency_ns: Nanos(100), bytes_per_sec: 20e9 };
        cluster.device_link = Some(memory);
        assert_eq!(cluster.link(LaneId(0), LaneId(2)), &memory);
        // Fewer ranks than devices: everyone has its own.
        (cluster.devices_per_node, cluster.ranks_per_node) = (8, 3);
        let devices: Vec<u32> = (0..4).map(|lane| cluster.device_of(LaneId(lane))).collect();
        assert_eq!(devices, [0, 1, 2, 0]);
        let text = serde_json::to_string(&cluster).unwrap();
        assert_eq!(serde_json::from_str::<Cluster>(&text).unwrap(), cluster);
    }

    #[test]
    fn efficiencies_are_optional_and_checked() {
        let mut cluster = Cluster::preset("laptop").unwrap();
        assert!(!serde_json::to_string(&cluster).unwrap().contains("efficiencies"));
        cluster.device.efficiencies =
            Some(Efficiencies { convolution: Some(1.5), ..Efficiencies::default() });
        let message = cluster.check().unwrap_err().to_string();
        assert!(message.contains("device.efficiencies.convolution is 1.5"), "{message}");
    }
}
