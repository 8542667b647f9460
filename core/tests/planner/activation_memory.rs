//! Memory of activations per layer and rank against the formulas of Korthikanti et al. 2022, table 2.
//! `cargo test -p pipewright-core --test planner activation_memory -- --nocapture` prints the table of
//! docs/prediction.md.
//!
//! With s positions, b samples, hidden size h, a heads and t ranks of a tensor group the paper has, in bytes and with
//! activations of two bytes:
//!
//! ```text
//!                         without a group       tensor                    tensor + sequence
//! inputs of norms                    4 sbh       4 sbh                            4 sbh / t
//! inputs of columns                  4 sbh       4 sbh                            4 sbh / t
//! masks of dropout                   2 sbh       2 sbh                            2 sbh / t
//! q, k, v and what is between       24 sbh      24 sbh / t                       24 sbh / t
//! scores and their masks           5 a s² b     5 a s² b / t                     5 a s² b / t
//! full recomputation                 2 sbh       2 sbh                            2 sbh / t
//! ```
//!
//! Presets have no dropout, and attention keeps one number of four bytes for each head and query in place of the
//! scores: terms that are compared like with like.

use pipewright_core::cost::Cluster;
use pipewright_core::graph::autodiff::{BackwardStyle, training_graph};
use pipewright_core::graph::presets::Preset;
use pipewright_core::graph::{Graph, Precision};
use pipewright_core::ids::StageId;
use pipewright_core::plan::{Draft, Model, Sequence};
use pipewright_core::predict::predict;

const HIDDEN: u64 = 1024;
const HEADS: u64 = 16;
const POSITIONS: u64 = 512;
const SAMPLES: u64 = 2;

/// How a layer is divided, and whether it is computed again.
#[derive(Clone, Copy)]
struct Way {
    tensor: u32,
    sequence: bool,
    full: bool,
}

/// Computes each layer again when its backward pass begins: of a layer its input is kept.
fn by_layer(graph: &Graph) -> Sequence {
    let division = graph.division(&[]);
    let training = training_graph(graph, &division, StageId(0), BackwardStyle::Fused);
    let layer_of = |at: u32| {
        let node = training.computations[at as usize].node.0;
        (0..graph.layers().len()).find(|layer| graph.layer_nodes(*layer).contains(&node)).unwrap()
    };
    let (forward, all) = (training.forward_end, training.computations.len() as u32);
    let mut order: Vec<u32> = (0..forward).collect();
    let mut next = forward;
    let last = graph.layers().len() - 1;
    for layer in (0..=last).rev() {
        if layer > 0 && layer < last {
            order.extend((0..forward).filter(|at| layer_of(*at) == layer));
        }
        // What belongs to the node before a layer is done once the layer is.
        while next < all && layer_of(next) >= layer {
            order.push(next);
            next += 1;
        }
    }
    Sequence(order)
}

/// Bytes that a micro-batch keeps between its passes.
fn kept(layers: u32, way: Way) -> u64 {
    let preset = format!(
        "transformer:layers={layers},hidden={HIDDEN},heads={HEADS},sequence={POSITIONS},vocabulary=512"
    );
    let model = Model::Preset(preset.parse::<Preset>().unwrap());
    let mut draft = Draft::new(model, Cluster::preset("dgx-a100").unwrap(), vec![]);
    (draft.mini_batch, draft.micro_batches) = (SAMPLES, 1);
    (draft.tensor, draft.sequence_parallel) = (way.tensor, way.sequence);
    draft.training.precision = Precision::Bf16;
    let (mut plan, prediction) = draft.plan().unwrap();
    if way.full {
        plan.recompute = vec![by_layer(&prediction.graph)];
    }
    predict(&plan).unwrap().programs[0].stages[0].slots.bytes.0
}

/// The paper's bytes of a layer, without the masks of dropout and with what attention keeps here.
fn formula(way: Way) -> f64 {
    let sbh = (POSITIONS * SAMPLES * HIDDEN) as f64;
    let t = f64::from(way.tensor);
    let whole = if way.sequence { t } else { 1.0 };
    if way.full {
        return 2.0 * sbh / whole;
    }
    let queries = (4 * HEADS * POSITIONS * SAMPLES) as f64;
    8.0 * sbh / whole + 24.0 * sbh / t + queries / t
}

#[test]
fn a_layer_keeps_what_the_published_formulas_say() {
    println!(
        "| t | sequence | recompute | formula MB | planned MB | error |\n|---|---|---|---|---|---|"
    );
    for full in [false, true] {
        for (tensor, sequence) in
            [(1, false), (2, false), (4, false), (8, false), (2, true), (4, true), (8, true)]
        {
            let way = Way { tensor, sequence, full };
            let layer = (kept(3, way) - kept(2, way)) as f64;
            let expected = formula(way);
            let error = layer / expected - 1.0;
            println!(
                "| {tensor} | {} | {} | {:.3} | {:.3} | {:+.2} % |",
                if sequence { "yes" } else { "no" },
                if full { "full" } else { "none" },
                expected / 1e6,
                layer / 1e6,
                100.0 * error
            );
            assert!(error.abs() < 0.05, "t {tensor}, {sequence}, {full}: {layer}, {expected}");
        }
    }
}
