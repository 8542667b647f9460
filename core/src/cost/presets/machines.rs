//! The table of preset machines. `docs/clusters.md` says where the figures come from.

use super::a100::A100_TRANSFORMERS;
use super::{CHIP, Chip, MACHINE, Machine, link};

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

const P100_CHAINER: Chip = Chip {
    name: "Tesla P100 16 GB under Chainer",
    flops_per_sec: 10.6e12,
    efficiency: 0.746,
    memory_bytes_per_sec: 732e9,
    memory: 16 * GIB,
    overhead_ns: 207_790,
    convolution: Some(0.25),
    ..CHIP
};

const CPU_CORE: Chip = Chip {
    name: "one CPU core",
    flops_per_sec: 100e9,
    efficiency: 0.8,
    memory_bytes_per_sec: 10e9,
    memory: 2 * GIB,
    overhead_ns: 2_000,
    ..CHIP
};

const RTX4090: Chip = Chip {
    name: "RTX 4090 24 GB, f32 through TF32",
    flops_per_sec: 82.6e12,
    half_flops_per_sec: Some(165.2e12),
    fp8_flops_per_sec: Some(330.3e12),
    efficiency: 0.75,
    memory_bytes_per_sec: 1008e9,
    memory: 24 * GIB,
    overhead_ns: 5_000,
    ..CHIP
};

const A100_80GB: Chip = Chip {
    name: "A100 SXM 80 GB, f32 through TF32",
    flops_per_sec: 156e12,
    half_flops_per_sec: Some(312e12),
    efficiency: 0.6,
    memory_bytes_per_sec: 2039e9,
    memory: 80 * GIB,
    overhead_ns: 5_000,
    transformers: Some(&A100_TRANSFORMERS),
    ..CHIP
};

const H100: Chip = Chip {
    name: "H100 SXM 80 GB, f32 through TF32",
    flops_per_sec: 494e12,
    half_flops_per_sec: Some(989e12),
    fp8_flops_per_sec: Some(1979e12),
    efficiency: 0.55,
    memory_bytes_per_sec: 3350e9,
    memory: 80 * GIB,
    overhead_ns: 5_000,
    ..CHIP
};

const L4: Chip = Chip {
    name: "L4 24 GB, f32 through TF32",
    flops_per_sec: 60e12,
    half_flops_per_sec: Some(121e12),
    fp8_flops_per_sec: Some(242e12),
    efficiency: 0.5,
    memory_bytes_per_sec: 300e9,
    memory: 23034 * MIB,
    overhead_ns: 5_000,
    ..CHIP
};

const A10: Chip = Chip {
    name: "A10 24 GB, f32 through TF32",
    flops_per_sec: 62.5e12,
    half_flops_per_sec: Some(125e12),
    efficiency: 0.6,
    memory_bytes_per_sec: 600e9,
    memory: 23028 * MIB,
    overhead_ns: 5_000,
    ..CHIP
};

const GH200: Chip = Chip {
    name: "GH200 96 GB, f32 through TF32",
    flops_per_sec: 494e12,
    half_flops_per_sec: Some(989e12),
    fp8_flops_per_sec: Some(1979e12),
    efficiency: 0.55,
    memory_bytes_per_sec: 4000e9,
    memory: 95 * GIB,
    overhead_ns: 5_000,
    ..CHIP
};

const P100: Chip = Chip {
    name: "P100 SXM2 16 GB",
    flops_per_sec: 10.6e12,
    half_flops_per_sec: Some(21.2e12),
    efficiency: 0.85,
    memory_bytes_per_sec: 732e9,
    memory: 16 * GIB,
    overhead_ns: 7_000,
    ..CHIP
};

const V100: Chip = Chip {
    name: "V100 SXM3 32 GB",
    flops_per_sec: 15.7e12,
    half_flops_per_sec: Some(125e12),
    efficiency: 0.85,
    memory_bytes_per_sec: 900e9,
    memory: 32 * GIB,
    overhead_ns: 6_000,
    ..CHIP
};

const A100_40GB: Chip = Chip {
    name: "A100 SXM 40 GB, f32 through TF32",
    flops_per_sec: 156e12,
    half_flops_per_sec: Some(312e12),
    efficiency: 0.6,
    memory_bytes_per_sec: 1555e9,
    memory: 40 * GIB,
    overhead_ns: 5_000,
    ..CHIP
};

const H200: Chip = Chip {
    name: "H200 SXM 141 GB, f32 through TF32",
    flops_per_sec: 494e12,
    half_flops_per_sec: Some(989e12),
    fp8_flops_per_sec: Some(1979e12),
    efficiency: 0.55,
    memory_bytes_per_sec: 4800e9,
    memory: 140 * GIB,
    overhead_ns: 5_000,
    ..CHIP
};

const B200: Chip = Chip {
    name: "B200 SXM 180 GB, f32 through TF32",
    flops_per_sec: 1100e12,
    half_flops_per_sec: Some(2250e12),
    fp8_flops_per_sec: Some(4500e12),
    efficiency: 0.55,
    memory_bytes_per_sec: 8000e9,
    memory: 179 * GIB,
    overhead_ns: 5_000,
    ..CHIP
};

/// The presets, in the order in which they are offered.
pub(super) static MACHINES: [Machine; 16] = [
    Machine {
        name: "reedbush-l",
        device: P100_CHAINER,
        devices_per_node: 4,
        nodes: 64,
        local: link(20_000, 20e9),
        network: link(295_340, 1.8461e9),
        ranks_per_node: 1,
        blocking_sends: true,
        ..MACHINE
    },
    Machine {
        name: "laptop",
        device: CPU_CORE,
        devices_per_node: 4,
        nodes: 1,
        local: link(5_000, 4e9),
        network: link(50_000, 1e8),
        ranks_per_node: 64,
        ..MACHINE
    },
    Machine {
        name: "rtx4090",
        device: RTX4090,
        devices_per_node: 1,
        nodes: 1,
        local: link(20_000, 13e9),
        network: link(25_000, 11e9),
        ranks_per_node: 1,
        ..MACHINE
    },
    Machine {
        name: "a100",
        device: A100_80GB,
        devices_per_node: 1,
        nodes: 1,
        local: link(9_000, 250e9),
        network: link(15_000, 22e9),
        ranks_per_node: 1,
        ..MACHINE
    },
    Machine {
        name: "h100",
        device: H100,
        devices_per_node: 1,
        nodes: 1,
        local: link(8_000, 380e9),
        network: link(12_000, 45e9),
        ranks_per_node: 1,
        ..MACHINE
    },
    Machine {
        name: "8x-rtx4090",
        device: RTX4090,
        devices_per_node: 8,
        nodes: 1,
        local: link(20_000, 13e9),
        network: link(25_000, 11e9),
        ranks_per_node: 8,
        ..MACHINE
    },
    Machine {
        name: "8x-l4",
        device: L4,
        devices_per_node: 8,
        nodes: 1,
        local: link(12_000, 26e9),
        network: link(25_000, 11e9),
        ranks_per_node: 8,
        ..MACHINE
    },
    Machine {
        name: "8x-a10",
        device: A10,
        devices_per_node: 8,
        nodes: 1,
        local: link(12_000, 26e9),
        network: link(25_000, 11e9),
        ranks_per_node: 8,
        ..MACHINE
    },
    Machine {
        name: "4x-gh200",
        device: GH200,
        devices_per_node: 4,
        nodes: 1,
        local: link(8_000, 126e9),
        network: link(15_000, 22e9),
        ranks_per_node: 4,
        adapters: 4,
        ..MACHINE
    },
    Machine {
        name: "dgx-1-p100",
        device: P100,
        devices_per_node: 8,
        nodes: 4,
        local: link(12_000, 18e9),
        network: link(20_000, 11e9),
        ranks_per_node: 8,
        adapters: 4,
        ..MACHINE
    },
    Machine {
        name: "dgx-2",
        device: V100,
        devices_per_node: 16,
        nodes: 4,
        local: link(10_000, 120e9),
        network: link(18_000, 11e9),
        ranks_per_node: 16,
        adapters: 8,
        ..MACHINE
    },
    Machine {
        name: "dgx-a100-40gb",
        device: A100_40GB,
        devices_per_node: 8,
        nodes: 1,
        local: link(9_000, 250e9),
        network: link(15_000, 22e9),
        ranks_per_node: 8,
        adapters: 8,
        ..MACHINE
    },
    Machine {
        name: "dgx-a100",
        device: A100_80GB,
        devices_per_node: 8,
        nodes: 4,
        local: link(9_000, 250e9),
        network: link(15_000, 22e9),
        ranks_per_node: 8,
        adapters: 8,
        ..MACHINE
    },
    Machine {
        name: "dgx-h100",
        device: H100,
        devices_per_node: 8,
        nodes: 4,
        local: link(8_000, 380e9),
        network: link(12_000, 45e9),
        ranks_per_node: 8,
        adapters: 8,
        ..MACHINE
    },
    Machine {
        name: "hgx-h200",
        device: H200,
        devices_per_node: 8,
        nodes: 4,
        local: link(8_000, 380e9),
        network: link(12_000, 45e9),
        ranks_per_node: 8,
        adapters: 8,
        ..MACHINE
    },
    Machine {
        name: "hgx-b200",
        device: B200,
        devices_per_node: 8,
        nodes: 1,
        local: link(8_000, 760e9),
        network: link(12_000, 45e9),
        ranks_per_node: 8,
        adapters: 8,
        ..MACHINE
    },
];
