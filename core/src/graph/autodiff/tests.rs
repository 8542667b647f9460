//! The training graph against hand-derived ones.

use super::*;
use crate::graph::GraphBuilder;

fn kinds(t: &TrainingGraph) -> String {
    let letter = |k| match k {
        ComputationKind::Forward => "F",
        ComputationKind::InputGradient => "I",
        ComputationKind::WeightGradient => "W",
        ComputationKind::SumGradients => "+",
        ComputationKind::PartialLoss => "L",
        ComputationKind::AllGather => "G",
        ComputationKind::ReduceScatter => "R",
        ComputationKind::Scatter => "S",
        ComputationKind::RowsToExperts => "E",
        ComputationKind::RowsToTokens => "T",
    };
    let texts: Vec<String> =
        t.computations.iter().map(|c| format!("{}{}", letter(c.kind), c.node)).collect();
    texts.join(" ")
}

/// input a relu b loss(target): nodes 0..=5
fn chain() -> Graph {
    let mut g = GraphBuilder::new("chain");
    g.layer("a");
    let x = g.input(vec![4]);
    let x = g.linear("a", x, 4);
    let x = g.relu("relu", x);
    g.layer("b");
    let x = g.linear("b", x, 3);
    g.loss(x, 3);
    g.finish().unwrap()
}

#[test]
fn one_stage_of_a_chain() {
    let graph = chain();
    let division = graph.division(&[]);
    let fused = training_graph(&graph, &division, StageId(0), BackwardStyle::Fused);
    assert_eq!(kinds(&fused), "F1 F2 F3 F5 I5 I3 W3 I2 W1");
    assert_eq!((fused.forward_end, fused.input_gradient_end), (4, 9));
    let split = training_graph(&graph, &division, StageId(0), BackwardStyle::Split);
    assert_eq!(kinds(&split), "F1 F2 F3 F5 I5 I3 I2 W3 W1");
    assert_eq!((split.forward_end, split.input_gradient_end), (4, 7));
}

#[test]
fn two_stages_exchange_one_activation_and_one_gradient() {
    let graph = chain();
    let division = graph.division(&[3]);
    let first = training_graph(&graph, &division, StageId(0), BackwardStyle::Fused);
    let second = training_graph(&graph, &division, StageId(1), BackwardStyle::Fused);
    assert_eq!(kinds(&first), "F1 F2 I2 W1");
    assert_eq!(kinds(&second), "F3 F5 I5 I3 W3");
    let ends = |ports: &[Port]| -> Vec<_> {
        ports.iter().map(|p| (p.node.0, p.use_index, p.peer.0)).collect()
    };
    assert_eq!(ends(&first.sends), [(2, 0, 1)]);
    assert_eq!(ends(&second.receives), [(2, 0, 0)]);
    assert_eq!(ends(&first.gradient_receives), ends(&first.sends));
    assert_eq!(ends(&second.gradient_sends), ends(&second.receives));
}

/// input a; three linears read it; adds join them.
fn fan() -> Graph {
    let mut g = GraphBuilder::new("fan");
    g.layer("all");
    let x = g.input(vec![4]);
    let a = g.linear("a", x, 4);
    let b = g.linear("b", a, 4);
    let c = g.linear("c", a, 4);
    let d = g.linear("d", a, 4);
    let s = g.add("s", Op::Add, &[b, c]);
    let s = g.add("t", Op::Add, &[s, d]);
    g.loss(s, 4);
    g.finish().unwrap()
}

/// The order in which contributions to node 1 are added, over all stages.
fn addends(cuts: &[u32]) -> Vec<Vec<u32>> {
    let graph = fan();
    let division = graph.division(cuts);
    let mut sums = vec![];
    for stage in 0..division.stages.len() as u32 {
        let t = training_graph(&graph, &division, StageId(stage), BackwardStyle::Fused);
        for c in t.computations.iter().filter(|c| c.kind == ComputationKind::SumGradients) {
            sums.push(c.reads.iter().map(|v| v.0).collect());
        }
    }
    sums
}

#[test]
fn contributions_are_added_from_the_last_reader_whatever_the_split() {
    // One stage, or the readers together: one sum of three.
    assert_eq!(addends(&[]).iter().map(Vec::len).collect::<Vec<_>>(), [3]);
    assert_eq!(addends(&[2]).iter().map(Vec::len).collect::<Vec<_>>(), [3]);
    // b and c on a middle stage, d last: the middle stage must not add b and c by itself.
    assert_eq!(addends(&[2, 4]).iter().map(Vec::len).collect::<Vec<_>>(), [3]);
    // c and d on the last stage: (d + c) there, then + b.
    assert_eq!(addends(&[2, 3]).iter().map(Vec::len).collect::<Vec<_>>(), [2, 2]);
}

#[test]
fn views_and_sums_of_two_need_no_memory() {
    let mut g = GraphBuilder::new("views");
    g.layer("all");
    let x = g.input(vec![2, 2, 2]);
    let x = g.add("flatten", Op::Flatten, &[x]);
    let a = g.linear("a", x, 3);
    let y = g.add("y", Op::Add, &[a, a]);
    g.loss(y, 3);
    let graph = g.finish().unwrap();
    let t = training_graph(&graph, &graph.division(&[]), StageId(0), BackwardStyle::Fused);
    assert_eq!(kinds(&t), "F2 F3 F5 I5 +2 W2");
}
