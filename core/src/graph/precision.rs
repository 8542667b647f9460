//! Number formats of training.

use super::Op;
use super::autodiff::ComputationKind;
use crate::ids::NodeId;
use serde::{Deserialize, Serialize};

/// How activations, their gradients and messages are stored. Weights, gradients of weights and the
/// optimizer's state are always f32, and sums are always made in f32 or better; what ranks of a tensor
/// group add up travels as it is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// Four bytes.
    #[default]
    F32,
    /// As f32, but products of matrices on GPUs may round their factors to TF32: 10 bits of mantissa
    /// in place of 23. What PyTorch's `allow_tf32` and `set_float32_matmul_precision("high")` allow.
    Tf32,
    /// Two bytes: the upper half of an f32, rounded to nearest, ties to even.
    Bf16,
    /// Two bytes: IEEE half precision, rounded to nearest, ties to even; infinite from 65520 on.
    /// The loss is scaled, so that gradients do not vanish below 2^-24, by a factor that follows from
    /// what training shows: PyTorch's `GradScaler`. A step whose gradients are not finite is skipped.
    F16,
    /// As bf16, but linear layers multiply numbers of eight bits: E4M3 activations and weights, E5M2
    /// gradients, each tensor times the power of two that brings its largest value just within the
    /// format (Micikevicius et al. 2022, "FP8 formats for deep learning"). Their sums are f32. The
    /// layer that the loss judges, attention and convolutions stay in bf16.
    Fp8,
}

impl Precision {
    /// All, the widest first.
    pub const ALL: [Precision; 5] =
        [Precision::F32, Precision::Tf32, Precision::Bf16, Precision::F16, Precision::Fp8];

    /// The name in plans, links and on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::Tf32 => "tf32",
            Precision::Bf16 => "bf16",
            Precision::F16 => "f16",
            Precision::Fp8 => "fp8",
        }
    }

    /// That of a name.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|precision| precision.word() == word)
    }

    /// Whether activations, their gradients and messages take two bytes an element.
    pub fn is_half(self) -> bool {
        matches!(self, Precision::Bf16 | Precision::F16 | Precision::Fp8)
    }

    /// That of a node's computation: eight bits are for the products of linear layers but the network's
    /// `head`, all else is in bf16 then.
    pub fn of(self, node: NodeId, op: &Op, kind: ComputationKind, head: Option<NodeId>) -> Self {
        let multiplies = matches!(op, Op::Linear { .. }) && kind != ComputationKind::SumGradients;
        match self {
            Precision::Fp8 if !multiplies || head == Some(node) => Precision::Bf16,
            precision => precision,
        }
    }

    /// Whether gradients are those of a loss times a factor.
    pub fn scales_loss(self) -> bool {
        self == Precision::F16
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Node;
    use crate::graph::presets::Preset;

    /// By name, the nodes of a network whose forward pass is in eight bits.
    fn in_eight_bits(network: &str) -> Vec<String> {
        let graph = network.parse::<Preset>().unwrap().graph().unwrap();
        let nodes = graph.nodes().iter().enumerate();
        let of = |(i, node): (usize, &Node), kind| {
            let precision = Precision::Fp8.of(NodeId(i as u32), &node.op, kind, graph.head());
            assert_eq!(Precision::F16.of(NodeId(i as u32), &node.op, kind, None), Precision::F16);
            precision == Precision::Fp8
        };
        let is_sum = |node| of(node, ComputationKind::SumGradients);
        assert!(!nodes.clone().any(is_sum), "sums of gradients are no products");
        let found = nodes.filter(|node| of(*node, ComputationKind::Forward));
        found.map(|(_, node)| node.name.clone()).collect()
    }

    #[test]
    fn eight_bits_are_for_linear_layers_but_the_last() {
        assert_eq!(in_eight_bits("digits-cnn"), ["fc1"]);
        assert!(in_eight_bits("resnet18").is_empty());
        let blocks = ["h.0.attn.qkv", "h.0.attn.proj", "h.0.mlp.fc", "h.0.mlp.proj"];
        let network = "transformer:layers=1,hidden=8,heads=2,sequence=4,vocabulary=9";
        for network in [network.to_string(), format!("{network},tied")] {
            assert_eq!(in_eight_bits(&network), blocks, "{network}");
        }
    }
}
