//! Graphs like those of training steps, of any size.

use pipewright_core::recompute::{Node, Problem};

/// Forward nodes of a layer.
const LAYER: usize = 20;

/// A network of layers with shortcuts, forward and backward: a backward node reads the gradient
/// after it and what its forward node read; every third makes a weight gradient besides.
pub fn training_like(nodes: usize) -> Problem {
    let forward = nodes * 3 / 7;
    let mut all: Vec<Node> = vec![];
    let mut seed = 1u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % below
    };
    for i in 0..forward {
        let mut inputs: Vec<u32> =
            i.checked_sub(1).map(|before| before as u32).into_iter().collect();
        if i % LAYER == LAYER - 1 || (i >= 4 && random(4) == 0) {
            inputs.push((i - (i % LAYER).min(1 + random(6) as usize).max(1)) as u32);
        }
        all.push(node(&mut random, inputs));
    }
    let mut gradient = vec![u32::MAX; forward];
    for i in (0..forward).rev() {
        let mut inputs = all[i].inputs.clone();
        inputs.push(if i + 1 == forward { i as u32 } else { gradient[i + 1] });
        let mut backward = node(&mut random, inputs.clone());
        backward.output = i == 0;
        gradient[i] = all.len() as u32;
        all.push(backward);
        if i % 3 == 0 {
            let weight = Node { bytes: 1 << 16, output: true, ..node(&mut random, inputs) };
            all.push(weight);
        }
    }
    Problem::new(all).expect("a graph in order")
}

fn node(random: &mut impl FnMut(u64) -> u64, inputs: Vec<u32>) -> Node {
    let bytes = (1 << 20) * (1 + random(16));
    Node { bytes, time: 2.0 + random(200) as f64, inputs, ..Node::default() }
}
