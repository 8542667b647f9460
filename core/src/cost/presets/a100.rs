//! Measured rates of A100s on transformers.

use super::{MeasuredAttention, Nanos, TensorGroup, Transformers, layer, link};

/// What A100s reached on transformers: Megatron-DeepSpeed in half precision, vTrain's runs on one node.
pub(super) static A100_TRANSFORMERS: Transformers = Transformers {
    software: "Megatron-DeepSpeed, half precision: vTrain's runs on one node",
    products: 0.7313,
    memory: 0.7109,
    launch_ns: 114_440,
    logit_bytes: 102.7,
    divided_logit_bytes: Some(53.66),
    unfused_ns: 488_490,
    attention: &[MeasuredAttention { matrices: 16, more_ns: Nanos(612_490) }],
    tensor: &[
        TensorGroup {
            degree: 2,
            launch_ns: 130_690,
            link: link(85_135, 197e9),
            layers: &[
                layer(1024, 1024, 1.0101),
                layer(1024, 2048, 1.0405),
                layer(1024, 4096, 0.9232),
                layer(1024, 8192, 1.0446),
                layer(2048, 1024, 1.0276),
                layer(2048, 2048, 1.0094),
                layer(2048, 4096, 1.0530),
                layer(2048, 8192, 0.9577),
            ],
        },
        TensorGroup {
            degree: 4,
            launch_ns: 124_820,
            link: link(56_757, 222e9),
            layers: &[
                layer(1024, 1024, 1.0974),
                layer(1024, 2048, 1.0609),
                layer(1024, 4096, 1.0039),
                layer(2048, 1024, 0.9606),
                layer(2048, 2048, 0.8974),
                layer(2048, 4096, 0.9068),
                layer(2048, 8192, 1.0249),
            ],
        },
        TensorGroup {
            degree: 8,
            launch_ns: 153_630,
            link: link(36_486, 229e9),
            layers: &[
                layer(1024, 1024, 1.0126),
                layer(1024, 2048, 1.0335),
                layer(1024, 4096, 0.9646),
                layer(2048, 1024, 0.9804),
                layer(2048, 2048, 1.0054),
                layer(2048, 4096, 1.1136),
                layer(2048, 8192, 0.9044),
            ],
        },
    ],
};
