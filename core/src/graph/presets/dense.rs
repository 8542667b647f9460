//! Fully connected networks.

use crate::graph::{Graph, GraphBuilder, GraphError};

/// Four fully connected layers on 3 x 32 x 32 images.
pub(super) fn mlp4() -> Result<Graph, GraphError> {
    let mut g = GraphBuilder::new("mlp4");
    g.layer("fc1");
    let x = g.input(vec![3, 32, 32]);
    let mut x = g.add("flatten", crate::graph::Op::Flatten, &[x]);
    for i in 1..=4 {
        if i > 1 {
            g.layer(format!("fc{i}"));
        }
        x = g.linear(&format!("fc{i}"), x, if i == 4 { 10 } else { 3072 });
        if i < 4 {
            x = g.relu(&format!("relu{i}"), x);
        }
    }
    g.loss(x, 10);
    g.finish()
}

/// 32 fully connected layers of one width; the last has 10 outputs.
pub(super) fn fc32(width: u64) -> Result<Graph, GraphError> {
    let mut g = GraphBuilder::new(format!("fc32:{width}"));
    g.layer("fc1");
    let mut x = g.input(vec![width]);
    for i in 1..=32 {
        if i > 1 {
            g.layer(format!("fc{i}"));
        }
        x = g.linear(&format!("fc{i}"), x, if i == 32 { 10 } else { width });
        if i < 32 {
            x = g.relu(&format!("relu{i}"), x);
        }
    }
    g.loss(x, 10);
    g.finish()
}
