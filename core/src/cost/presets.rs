//! Machines by name, as static data: the explorer shows them before it has code that reads cluster files.

mod a100;
mod machines;

use super::{
    Cluster, ClusterError, Device, Efficiencies, Link, MeasuredAttention, MeasuredLayer,
    TensorRates, TransformerRates,
};
use crate::units::{Bytes, Nanos};
use machines::MACHINES;

/// The presets' names, in the order in which they are offered.
pub const CLUSTERS: [&str; MACHINES.len()] = {
    let mut names = [""; MACHINES.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = MACHINES[at].name;
        at += 1;
    }
    names
};

/// A [`Device`] whose texts and lists are static.
struct Chip {
    name: &'static str,
    flops_per_sec: f64,
    half_flops_per_sec: Option<f64>,
    fp8_flops_per_sec: Option<f64>,
    efficiency: f64,
    memory_bytes_per_sec: f64,
    memory: u64,
    overhead_ns: u64,
    convolution: Option<f64>,
    transformers: Option<&'static Transformers>,
}

/// A [`Cluster`] whose texts and lists are static.
struct Machine {
    name: &'static str,
    device: Chip,
    devices_per_node: u32,
    nodes: u32,
    local: Link,
    network: Link,
    ranks_per_node: u32,
    blocking_sends: bool,
    adapters: u32,
}

/// [`TransformerRates`] whose texts and lists are static.
struct Transformers {
    software: &'static str,
    products: f64,
    memory: f64,
    launch_ns: u64,
    logit_bytes: f64,
    divided_logit_bytes: Option<f64>,
    unfused_ns: u64,
    attention: &'static [MeasuredAttention],
    tensor: &'static [TensorGroup],
}

/// [`TensorRates`] whose list is static.
struct TensorGroup {
    degree: u32,
    launch_ns: u64,
    link: Link,
    layers: &'static [MeasuredLayer],
}

/// What a chip has unless its entry says otherwise.
const CHIP: Chip = Chip {
    name: "",
    flops_per_sec: 0.0,
    half_flops_per_sec: None,
    fp8_flops_per_sec: None,
    efficiency: 0.0,
    memory_bytes_per_sec: 0.0,
    memory: 0,
    overhead_ns: 0,
    convolution: None,
    transformers: None,
};

/// What a machine has unless its entry says otherwise.
const MACHINE: Machine = Machine {
    name: "",
    device: CHIP,
    devices_per_node: 1,
    nodes: 1,
    local: link(0, 0.0),
    network: link(0, 0.0),
    ranks_per_node: 1,
    blocking_sends: false,
    adapters: 1,
};

const fn link(latency_ns: u64, bytes_per_sec: f64) -> Link {
    Link { latency_ns: Nanos(latency_ns), bytes_per_sec }
}

const fn layer(hidden: u64, positions: u64, factor: f64) -> MeasuredLayer {
    MeasuredLayer { hidden, positions, factor }
}

impl Cluster {
    /// A preset.
    ///
    /// # Errors
    /// When no preset has that name.
    pub fn preset(name: &str) -> Result<Self, ClusterError> {
        let found = MACHINES.iter().find(|machine| machine.name == name);
        found.map(Machine::cluster).ok_or_else(|| ClusterError::Unknown(name.into()))
    }
}

impl Machine {
    fn cluster(&self) -> Cluster {
        Cluster {
            name: self.name.into(),
            device: self.device.device(),
            devices_per_node: self.devices_per_node,
            nodes: self.nodes,
            device_link: None,
            local: self.local,
            network: self.network,
            ranks_per_node: self.ranks_per_node,
            blocking_sends: self.blocking_sends,
            receivers_copy: false,
            collectives: None,
            network_collectives: None,
            adapters: self.adapters,
            codecs: vec![],
            codec_exposure: 0.0,
            profile: None,
        }
    }
}

impl Chip {
    fn device(&self) -> Device {
        Device {
            name: self.name.into(),
            flops_per_sec: self.flops_per_sec,
            half_flops_per_sec: self.half_flops_per_sec,
            fp8_flops_per_sec: self.fp8_flops_per_sec,
            efficiency: self.efficiency,
            memory_bytes_per_sec: self.memory_bytes_per_sec,
            memory: Bytes(self.memory),
            overhead_ns: Nanos(self.overhead_ns),
            efficiencies: self
                .convolution
                .map(|share| Efficiencies { convolution: Some(share), ..Efficiencies::default() }),
            transformers: self.transformers.map(Transformers::rates),
        }
    }
}

impl Transformers {
    fn rates(&self) -> TransformerRates {
        let tensor = self.tensor.iter().map(|group| TensorRates {
            degree: group.degree,
            launch_ns: Nanos(group.launch_ns),
            link: group.link,
            layers: group.layers.to_vec(),
        });
        TransformerRates {
            software: self.software.into(),
            products: self.products,
            memory: self.memory,
            launch_ns: Nanos(self.launch_ns),
            logit_bytes: self.logit_bytes,
            divided_logit_bytes: self.divided_logit_bytes,
            unfused_ns: Nanos(self.unfused_ns),
            attention: self.attention.to_vec(),
            tensor: tensor.collect(),
        }
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
    fn one_device_is_the_one_of_the_large_machine() {
        for (one, many) in [("a100", "dgx-a100"), ("h100", "dgx-h100"), ("rtx4090", "8x-rtx4090")] {
            let [one, many] = [one, many].map(|name| Cluster::preset(name).unwrap());
            assert_eq!(one.devices(), 1);
            assert_eq!(one.device, many.device);
        }
    }
}
