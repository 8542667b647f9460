//! Networks whose experts replicas divide.

use super::*;
use crate::graph::autodiff::{BackwardStyle, training_graph};
use crate::graph::presets::Preset;
use crate::graph::{Function, GraphBuilder};
use crate::ids::StageId;

const GATED: &str = "transformer:layers=2,hidden=32,heads=8,kv=4,ffn=48,sequence=16,vocabulary=50,gated,experts=8,\
                     top_k=2,capacity=1.25";

fn preset(name: &str) -> Graph {
    name.parse::<Preset>().unwrap().graph().unwrap()
}

fn named<'a>(graph: &'a Graph, name: &str) -> (NodeId, &'a Node) {
    let at = graph.nodes().iter().position(|node| node.name == name).unwrap();
    (NodeId(at as u32), &graph.nodes()[at])
}

#[test]
fn rows_go_to_experts_and_products_come_back() {
    let whole = preset(GATED);
    let part = whole.clone().expert_parallel(4).unwrap();
    let shape = |name: &str| named(&part, &format!("h.1.moe.{name}")).1.output.shape.clone();
    // 2 x 16 / 8 x 1.25 rows an expert.
    assert_eq!(named(&whole, "h.1.moe.dispatch").1.output.shape, [8, 5, 32]);
    assert_eq!(shape("dispatch"), [2, 20, 32]);
    assert_eq!(shape("experts.multiply"), [2, 20, 48]);
    assert_eq!(shape("experts.proj"), [8, 5, 32]);
    let (dispatch, proj) =
        (named(&part, "h.1.moe.dispatch").0, named(&part, "h.1.moe.experts.proj").0);
    assert_eq!(part.result(dispatch).shape, [8, 5, 32]);
    assert_eq!(part.result(proj).shape, [2, 20, 32]);
    assert_eq!(part.forward_flops(), whole.forward_flops());
    assert_eq!(part.trainable_elements(), whole.trainable_elements());
    for (of_part, of_whole) in part.params().iter().zip(whole.params()) {
        let id = ParamId(part.params().iter().position(|p| p == of_part).unwrap() as u32);
        assert_eq!(
            part.is_of_experts(id),
            of_whole.name.contains(".experts."),
            "{}",
            of_whole.name
        );
        let parts = if part.is_of_experts(id) { 4 } else { 1 };
        assert_eq!(of_part.elements() * parts, of_whole.elements());
    }
}

/// With tensor groups around it each expert is on one rank of all.
#[test]
fn every_expert_is_somewhere_once() {
    let whole = preset(GATED);
    let part = whole.shard(2).unwrap().expert_parallel(4).unwrap();
    let (_, fc) = named(&part, "h.0.moe.experts.gate");
    let shards = part.shards(fc.params[0]).unwrap();
    assert_eq!((shards.degree(), &shards.shape[..]), (8, &[8, 48, 32][..]));
    let pieces: Vec<_> = (0..8).flat_map(|index| shards.pieces(index)).collect();
    let each = 48 * 32;
    assert_eq!(pieces, (0..8).map(|at| at * each..(at + 1) * each).collect::<Vec<_>>());
    assert_eq!(part.param(fc.params[0]).shape, [1, 48, 32]);
    assert_eq!(named(&part, "h.0.moe.dispatch").1.output.shape, [1, 20, 32]);
}

/// Four exchanges a mixture; those of gradients are not made twice where weights come later.
#[test]
fn passes_exchange_rows_four_times() {
    let graph = preset(GATED).expert_parallel(2).unwrap();
    let division = graph.division(&[]);
    for style in [BackwardStyle::Fused, BackwardStyle::Split] {
        let stage = training_graph(&graph, &division, StageId(0), style);
        let count = |kind| stage.computations.iter().filter(|c| c.kind == kind).count();
        assert_eq!(count(ComputationKind::RowsToExperts), 4);
        assert_eq!(count(ComputationKind::RowsToTokens), 4);
        let forward = &stage.computations[..stage.forward_end as usize];
        let kinds: Vec<_> = forward.iter().map(|c| c.kind).filter(|k| k.is_all_to_all()).collect();
        let both = [ComputationKind::RowsToExperts, ComputationKind::RowsToTokens];
        assert_eq!(kinds, [both, both].concat());
    }
}

#[test]
fn what_cannot_be_divided_is_refused() {
    let refused = |graph: Graph, degree| graph.expert_parallel(degree).unwrap_err().to_string();
    let none = preset("transformer:layers=1,hidden=16,heads=2,sequence=8,vocabulary=50");
    assert!(refused(none, 2).ends_with("has no experts, which is what expert parallelism divides"));
    let words =
        "node `h.0.moe.dispatch`: 8 experts do not divide among 3 replicas of an expert group";
    assert_eq!(refused(preset(GATED), 3), words);
    // Rows whose last operation is not linear.
    let mut g = GraphBuilder::new("apart");
    g.layer("all");
    let x = g.input(vec![4, 8]);
    let logits = g.linear("router", x, 4);
    let shares = g.add("shares", Op::TopKSoftmax { k: 1, normalize: false }, &[logits]);
    let rows = g.add("rows", Op::Dispatch { experts: 4, capacity: 2 }, &[x, shares]);
    let y = g.add("fc", Op::GroupedLinear { out_features: 8 }, &[rows]);
    let y = g.activation("gelu", Function::Gelu, y);
    g.add("sum", Op::Combine, &[shares, y]);
    assert!(refused(g.finish().unwrap(), 2).starts_with("node `sum`: experts are divided where "));
}
