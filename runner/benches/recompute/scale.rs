//! Growth of the search with the graph: transformers made up here, of 12 to 200 layers.

use pipewright_core::recompute::{Goal, Node, Problem, Search, cost, without_recomputation};
use std::time::Instant;

const MIB: u64 = 1 << 20;

/// Layers of the networks, the first of which the others are compared with.
const LAYERS: [usize; 5] = [12, 22, 48, 96, 204];

/// How near an answer is to the best one of the first network, in per cent of the time.
const NEAR: f64 = 0.5;

/// For every network: when a budget is met first, when about as well as for the first network,
/// and what is reached in the end.
pub fn grow(seconds: f64, slice: u64) {
    for part in [2, 8] {
        within(part, seconds, slice);
    }
}

/// Within a `part` of the memory.
fn within(part: u64, seconds: f64, slice: u64) {
    println!("a {part}th of the memory of transformers, one core, at most {seconds} s\n");
    println!("| layers | nodes | first answer | near the 12 layers' | moves | time in the end |");
    println!("|---|---|---|---|---|---|");
    let mut goal = None;
    for layers in LAYERS {
        let problem = transformer(layers);
        let base = cost(&problem, &without_recomputation(&problem));
        let limit = base.peak / part;
        let begin = Instant::now();
        let spent = || begin.elapsed().as_secs_f64();
        let mut search = Search::new(&problem, Goal::Budget(limit), 1);
        let (mut first, mut near) = (None, None);
        let percent = |search: &Search| 100.0 * search.best().cost.time / base.time;
        while spent() < seconds && search.advance(slice) {
            if search.best().cost.peak > limit {
                continue;
            }
            first = first.or(Some(spent()));
            if goal.is_some_and(|goal| percent(&search) <= goal + NEAR) {
                near = near.or(Some((spent(), search.moves())));
            }
        }
        let reached = percent(&search);
        if goal.is_none() {
            goal = Some(reached);
            // The same once more, now that it is known what is near.
            let begin = Instant::now();
            let mut again = Search::new(&problem, Goal::Budget(limit), 1);
            let found = |search: &Search| {
                search.best().cost.peak <= limit && percent(search) <= reached + NEAR
            };
            while !found(&again) && again.advance(slice) {}
            near = Some((begin.elapsed().as_secs_f64(), again.moves()));
        }
        let text = |time: Option<f64>| time.map_or("-".into(), |time| format!("{time:.2} s"));
        println!(
            "| {layers} | {} | {} | {} | {} | {reached:.2} % |",
            problem.len(),
            text(first),
            text(near.map(|near| near.0)),
            near.map_or(0, |near| near.1)
        );
    }
    println!();
}

/// The forward and backward pass of `layers` decoder layers with eager attention: 8 x 1024 tokens,
/// 768 wide, 12 heads, times of a roofline in microseconds. 48 nodes a layer.
fn transformer(layers: usize) -> Problem {
    let mut net = Net { nodes: vec![] };
    let mut x = net.add(24, 60.0, &[]);
    let mut passed = vec![];
    for _ in 0..layers {
        let layer = net.forward(x);
        x = layer.out;
        passed.push(layer);
    }
    let loss = net.add(0, 2.0, &[x]);
    net.nodes[loss as usize].output = true;
    let mut gradient = net.add(24, 60.0, &[loss, x]);
    for layer in passed.iter().rev() {
        gradient = net.backward(layer, gradient);
    }
    net.weights(24, 60.0, &[gradient]);
    Problem::new(net.nodes).expect("a graph")
}

struct Net {
    nodes: Vec<Node>,
}

/// What the backward pass of a layer reads.
struct Layer {
    x: u32,
    norm: u32,
    query: u32,
    key: u32,
    value: u32,
    soft: u32,
    mask: u32,
    dropped: u32,
    mixed: u32,
    sum: u32,
    norm2: u32,
    hidden: u32,
    tanh: u32,
    active: u32,
    out: u32,
}

impl Net {
    fn add(&mut self, mib: u64, time: f64, inputs: &[u32]) -> u32 {
        let (bytes, inputs) = ((mib * MIB).max(4), inputs.to_vec());
        self.nodes.push(Node { bytes, time, inputs, ..Node::default() });
        self.nodes.len() as u32 - 1
    }

    /// A gradient of weights: computed, and then put down elsewhere.
    fn weights(&mut self, mib: u64, time: f64, inputs: &[u32]) {
        let node = self.add(mib, time, inputs);
        self.nodes[node as usize].output = true;
    }

    fn forward(&mut self, x: u32) -> Layer {
        let norm = self.add(24, 36.0, &[x]);
        let product = self.add(72, 188.0, &[norm]);
        let query = self.add(24, 36.0, &[product]);
        let key = self.add(24, 36.0, &[product]);
        let scores = self.add(384, 304.0, &[query, key]);
        let scaled = self.add(384, 539.0, &[scores]);
        let causal = self.add(384, 540.0, &[scaled]);
        let soft = self.add(384, 539.0, &[causal]);
        let mask = self.add(96, 69.0, &[]);
        let dropped = self.add(384, 606.0, &[soft, mask]);
        let value = self.add(24, 36.0, &[product]);
        let mixed = self.add(24, 304.0, &[dropped, value]);
        let projected = self.add(24, 64.0, &[mixed]);
        let sum = self.add(24, 52.0, &[x, projected]);
        let norm2 = self.add(24, 36.0, &[sum]);
        let hidden = self.add(96, 250.0, &[norm2]);
        let cube = self.add(96, 136.0, &[hidden]);
        let inner = self.add(96, 203.0, &[hidden, cube]);
        let tanh = self.add(96, 136.0, &[inner]);
        let active = self.add(96, 203.0, &[hidden, tanh]);
        let back = self.add(24, 250.0, &[active]);
        let out = self.add(24, 52.0, &[sum, back]);
        Layer {
            x,
            norm,
            query,
            key,
            value,
            soft,
            mask,
            dropped,
            mixed,
            sum,
            norm2,
            hidden,
            tanh,
            active,
            out,
        }
    }

    fn backward(&mut self, l: &Layer, gradient: u32) -> u32 {
        let active = self.add(96, 250.0, &[gradient]);
        self.weights(9, 250.0, &[l.active, gradient]);
        let tanh = self.add(96, 203.0, &[active, l.hidden]);
        let direct = self.add(96, 203.0, &[active, l.tanh]);
        let inner = self.add(96, 203.0, &[tanh, l.tanh]);
        let square = self.add(96, 136.0, &[l.hidden]);
        let cubed = self.add(96, 203.0, &[inner, square]);
        let hidden = self.add(96, 203.0, &[direct, cubed]);
        let norm2 = self.add(24, 250.0, &[hidden]);
        self.weights(9, 250.0, &[l.norm2, hidden]);
        let before = self.add(24, 52.0, &[norm2, l.sum, l.norm2]);
        let sum = self.add(24, 52.0, &[gradient, before]);
        let mixed = self.add(24, 64.0, &[sum]);
        self.weights(2, 64.0, &[l.mixed, sum]);
        let value = self.add(24, 304.0, &[l.dropped, mixed]);
        let dropped = self.add(384, 304.0, &[mixed, l.value]);
        let soft = self.add(384, 606.0, &[dropped, l.mask]);
        let causal = self.add(384, 807.0, &[soft, l.soft]);
        let scaled = self.add(384, 540.0, &[causal]);
        let scores = self.add(384, 539.0, &[scaled]);
        let query = self.add(24, 304.0, &[scores, l.key]);
        let key = self.add(24, 304.0, &[scores, l.query]);
        let product = self.add(72, 103.0, &[query, key, value]);
        let norm = self.add(24, 188.0, &[product]);
        self.weights(7, 188.0, &[l.norm, product]);
        let before = self.add(24, 52.0, &[norm, l.x, l.norm]);
        self.add(24, 52.0, &[sum, before])
    }
}
