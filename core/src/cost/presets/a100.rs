//! Measured rates of A100s on transformers.

use super::{TensorGroup, Transformers, layer, link};

/// What A100s reached on transformers: Megatron-DeepSpeed in half precision, vTrain's runs on one node.
pub(super) static A100_TRANSFORMERS: Transformers = Transformers {
    software: "Megatron-DeepSpeed, half precision: vTrain's runs on one node",
    products: 0.7313,
    memory: 0.7109,
    launch_ns: 114_440,
    logit_bytes: 102.7,
    unfused_ns: 488_223,
    tensor: &[
        TensorGroup {
            degree: 2,
            launch_ns: 128_141,
            link: link(120_398, 197e9),
            layers: &[
                layer(1024, 1024, 1.0093),
                layer(1024, 2048, 1.0321),
                layer(1024, 4096, 0.8525),
                layer(1024, 8192, 0.9056),
                layer(2048, 1024, 1.0249),
                layer(2048, 2048, 1.2308),
                layer(2048, 4096, 0.9564),
                layer(2048, 8192, 0.8921),
            ],
        },
        TensorGroup {
            degree: 4,
            launch_ns: 125_832,
            link: link(57_603, 222e9),
            layers: &[
                layer(1024, 1024, 1.0804),
                layer(1024, 2048, 1.0336),
                layer(1024, 4096, 1.1969),
                layer(2048, 1024, 0.9435),
                layer(2048, 2048, 0.8707),
                layer(2048, 4096, 1.1252),
                layer(2048, 8192, 0.9866),
            ],
        },
        TensorGroup {
            degree: 8,
            launch_ns: 153_583,
            link: link(24_687, 229e9),
            layers: &[
                layer(1024, 1024, 1.0130),
                layer(1024, 2048, 1.0314),
                layer(1024, 4096, 0.9504),
                layer(2048, 1024, 0.9807),
                layer(2048, 2048, 0.9985),
                layer(2048, 4096, 1.1777),
                layer(2048, 8192, 1.1930),
            ],
        },
    ],
};
