//! Rewritten stages against hand-derived ones, and every way in which a sequence is none.

use super::*;
use crate::graph::autodiff::{BackwardStyle, training_graph};
use crate::graph::{Graph, GraphBuilder};
use crate::ids::StageId;

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

fn stage(cuts: &[u32], stage: u32, style: BackwardStyle) -> TrainingGraph {
    let graph = chain();
    training_graph(&graph, &graph.division(cuts), StageId(stage), style)
}

/// Computations 0..9 are F1 F2 F3 F5 I5 I3 W3 I2 W1.
fn fused() -> TrainingGraph {
    stage(&[], 0, BackwardStyle::Fused)
}

/// Computations 0..9 are F1 F2 F3 F5 I5 I3 I2 W3 W1.
fn split() -> TrainingGraph {
    stage(&[], 0, BackwardStyle::Split)
}

#[test]
fn each_once_in_order_is_the_graph_itself() {
    for graph in [fused(), split(), stage(&[3], 0, BackwardStyle::Fused)] {
        let all: Vec<u32> = (0..graph.computations.len() as u32).collect();
        assert_eq!(graph.in_sequence(&all), Ok(graph));
    }
}

#[test]
fn what_is_computed_again_is_read_from_there_on() {
    let base = fused();
    // F1 F2 F3 F5 | I5 F1 F2 I3 W3 I2 W1
    let found = base.in_sequence(&[0, 1, 2, 3, 4, 0, 1, 5, 6, 7, 8]).unwrap();
    assert_eq!((found.forward_end, found.input_gradient_end), (4, 11));
    let again: Vec<bool> = found.computations.iter().map(|c| c.again).collect();
    assert_eq!(again.iter().filter(|again| **again).count(), 2);
    assert!(again[5] && again[6]);
    assert_eq!(found.values.len(), base.values.len() + 2);
    let (linear, relu) = (&found.computations[5], &found.computations[6]);
    // Only the sample lives from the forward pass to the backward pass.
    assert_eq!(linear.reads, base.computations[0].reads);
    assert_eq!(relu.reads, linear.writes);
    let fresh = relu.writes[0];
    assert!(fresh.index() >= base.values.len());
    assert_eq!(found.values[fresh.index()], base.values[base.computations[1].writes[0].index()]);
    // W3 reads the rectifier's output first, I2 likewise.
    assert_eq!((found.computations[8].reads[0], found.computations[9].reads[0]), (fresh, fresh));
    assert_eq!(found.loss, base.loss);
}

#[test]
fn time_counts_where_a_computation_runs() {
    use Part::{Forward as F, InputGradient as I, WeightGradient as W};
    let parts = |graph: TrainingGraph| -> Vec<Part> {
        (0..graph.computations.len() as u32).map(|at| graph.part(at)).collect()
    };
    let of_fused = fused().in_sequence(&[0, 1, 0, 1, 2, 3, 4, 0, 1, 5, 6, 7, 8]).unwrap();
    assert_eq!(parts(of_fused), [F, F, F, F, F, F, I, I, I, I, W, I, W]);
    // A rectifier for I2, another for W3.
    let of_split = split().in_sequence(&[0, 1, 2, 3, 4, 5, 0, 1, 6, 0, 1, 7, 8]).unwrap();
    assert_eq!((of_split.forward_end, of_split.input_gradient_end), (4, 9));
    assert_eq!(parts(of_split), [F, F, F, F, I, I, I, I, I, W, W, W, W]);
}

#[test]
fn what_is_sent_was_there_at_the_mark() {
    let base = stage(&[3], 0, BackwardStyle::Fused);
    // F1 F2 F1 F2: the pass ends with the first F2, and sends what that wrote.
    let late = base.in_sequence(&[0, 1, 0, 1, 2, 3]).unwrap();
    assert_eq!((late.forward_end, late.sends[0]), (2, base.sends[0]));
    // F3 F3 F5: the loss reads the second one.
    let base = stage(&[3], 1, BackwardStyle::Split);
    let found = base.in_sequence(&[0, 0, 1, 2, 3, 4]).unwrap();
    assert_eq!(found.computations[2].reads[0], found.computations[1].writes[0]);
    assert_eq!((found.forward_end, found.loss), (3, base.loss));
    // I5 I5 I3 I3 W3: the same with gradients.
    let found = base.in_sequence(&[0, 1, 2, 2, 3, 3, 4]).unwrap();
    assert_eq!(found.input_gradient_end, 5);
    assert_eq!(found.gradient_sends[0].value, base.gradient_sends[0].value);
    let gradient = found.computations[3].writes[0];
    assert_eq!(found.computations[4].reads, [gradient]);
}

#[test]
fn orders_that_are_none() {
    use SequenceError::{AddedTwice, Input, Missing, Pass, Unknown};
    let fused = fused();
    let refused = |sequence: &[u32]| fused.in_sequence(sequence).unwrap_err();
    let unknown = Unknown { position: 2, computation: 9, count: 9 };
    assert_eq!(refused(&[0, 1, 9]), unknown);
    assert_eq!(refused(&[0, 2]), Input { position: 1, computation: 2, missing: 1 });
    assert_eq!(refused(&[0, 1, 2, 4]), Pass { position: 3, computation: 4, missing: 3 });
    let twice = [0, 1, 2, 3, 4, 5, 6, 6];
    assert_eq!(refused(&twice), AddedTwice { position: 7, computation: 6 });
    assert_eq!(refused(&[0, 1, 2, 3, 4, 5, 7, 8]), Missing { computation: 6 });
    assert_eq!(refused(&[]), Missing { computation: 0 });
    // A weight gradient waits for the input part, where that is another action.
    let early = split().in_sequence(&[0, 1, 2, 3, 4, 7]).unwrap_err();
    assert_eq!(early, Pass { position: 5, computation: 7, missing: 5 });
    let text = "position 5: computation 7 belongs to a later pass than 5, which has yet to be \
                computed";
    assert_eq!(early.to_string(), text);
}
