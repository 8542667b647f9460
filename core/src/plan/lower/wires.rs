//! Buffers for encoded values between stages.

use super::Inputs;
use super::lane::LaneStage;
use crate::compress::CodecKind;
use crate::cost::Level;
use crate::graph::autodiff::Port;
use crate::ids::LaneId;
use crate::units::Bytes;

/// What one stage of a lane needs.
pub(super) struct Wires {
    /// By handle of its sends, from the stage's first on; empty: nothing is encoded.
    pub sent: Vec<Bytes>,
    /// The longest message that it decodes.
    pub received: Bytes,
}

impl Wires {
    pub fn new(inputs: &Inputs, lane: LaneId, stage: &LaneStage) -> Self {
        let graph = stage.graph;
        let wire = |port: &Port| {
            let values = stage.places.value(port.value).bytes;
            let peers = inputs.schedule.routes.iter().map(|route| route[port.peer.index()]);
            let codecs = peers.map(|peer| codec_between(inputs, lane, peer));
            let encoded = codecs.filter(|codec| !codec.is_lossless());
            encoded.map(|codec| wire_bytes(codec, values)).max().unwrap_or_default()
        };
        let received = graph.receives.iter().chain(&graph.gradient_receives).map(wire).max();
        let gradients: Vec<Bytes> = graph.gradient_sends.iter().map(wire).collect();
        let slot: Vec<Bytes> = graph.sends.iter().map(wire).chain(gradients.clone()).collect();
        let mut sent = slot.repeat(stage.program.slots.count as usize);
        sent.extend(gradients.repeat(stage.program.outbox.count as usize));
        debug_assert_eq!(sent.len(), stage.handle_count() as usize);
        if sent.iter().all(|bytes| *bytes == Bytes::ZERO) {
            sent.clear();
        }
        Self { sent, received: received.unwrap_or_default() }
    }
}

/// How values travel between two lanes, in whichever direction: as the farthest of their replicas
/// are from each other.
pub(super) fn codec_between(inputs: &Inputs, a: LaneId, b: LaneId) -> CodecKind {
    let edges = inputs.communication.edges;
    if a == b {
        return CodecKind::Fp32;
    }
    let mesh = inputs.mesh();
    let level = |copy| {
        let [a, b] = [a, b].map(|lane| LaneId(mesh.rank(lane, copy)));
        inputs.cluster.level(a, b)
    };
    match (0..mesh.copies()).map(level).max() {
        Some(Level::Network) => edges.across,
        Some(Level::Node | Level::Device) | None => edges.within,
    }
}

/// Bytes of a message of `values` bytes of single precision.
pub(super) fn wire_bytes(codec: CodecKind, values: Bytes) -> Bytes {
    Bytes(codec.wire_bytes(values.0 / 4))
}
