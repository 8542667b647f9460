//! Steps of GPT-like models as plans and the search predict them, against vTrain's measurements on A100.
//! `cargo test -p pipewright-core --test planner vtrain -- --nocapture` prints the tables of
//! docs/planning.md.

mod plans;
mod tensor;

use pipewright_core::cost::Cluster;
use pipewright_core::graph::presets::Preset;
use pipewright_core::graph::{Graph, Precision};

/// What they were trained in.
const PRECISION: Precision = Precision::F16;

/// A measured step: the sizes of the network, how it was trained, and its seconds.
#[derive(Clone, Copy)]
struct Row {
    batch: u32,
    micro_batch: u32,
    hidden: u32,
    heads: u32,
    layers: u32,
    sequence: u32,
    tensor: u32,
    data: u32,
    pipeline: u32,
    secs: f64,
}

fn rows() -> Vec<Row> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/vtrain/ground_truth_single.csv");
    let text = std::fs::read_to_string(path).unwrap();
    let row = |line: &str| {
        let fields: Vec<f64> = line.split(',').map(|field| field.trim().parse().unwrap()).collect();
        let [_, batch, micro_batch, hidden, heads, layers, sequence, tensor, data, pipeline] =
            std::array::from_fn(|i| fields[i] as u32);
        let secs = fields[10] / 1e3;
        Row { batch, micro_batch, hidden, heads, layers, sequence, tensor, data, pipeline, secs }
    };
    text.lines().skip(1).map(row).collect()
}

/// Rows 1, 3, 5.. and rows 2, 4, 6.. of those.
fn halves(rows: &[Row]) -> [Vec<Row>; 2] {
    [0, 1].map(|first| rows.iter().skip(first).step_by(2).copied().collect())
}

impl Row {
    fn micro_batches(&self) -> u32 {
        self.batch / (self.micro_batch * self.data)
    }

    fn preset(&self) -> Preset {
        let Self { layers, hidden, heads, sequence, .. } = self;
        let text = format!(
            "transformer:layers={layers},hidden={hidden},heads={heads},sequence={sequence},\
             vocabulary=51200,tied"
        );
        text.parse().unwrap()
    }

    /// First nodes of the stages after the first: as many blocks on each.
    fn cuts(&self, graph: &Graph) -> Vec<u32> {
        let each = (self.layers / self.pipeline) as usize;
        (1..self.pipeline as usize).map(|i| graph.layers()[1 + i * each].first_node.0).collect()
    }
}

fn preset() -> Cluster {
    Cluster::preset("dgx-a100").unwrap()
}

fn mean_absolute(errors: &[f64]) -> f64 {
    errors.iter().map(|e| e.abs()).sum::<f64>() / errors.len() as f64
}

/// `| 156 | 2.60 % | +0.12 % | 6.3 % |`: rows, mean and largest error, and the mean with its sign.
fn cells(errors: &[f64]) -> String {
    let largest = errors.iter().fold(0.0_f64, |l, e| l.max(e.abs()));
    let bias = errors.iter().sum::<f64>() / errors.len() as f64;
    let [mean, bias, largest] = [mean_absolute(errors), bias, largest].map(|share| 100.0 * share);
    format!("| {} | {mean:.2} % | {bias:+.2} % | {largest:.1} % |", errors.len())
}
