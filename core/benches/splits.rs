//! Steps with the balanced and the best split, side by side: presets, profiles, ONNX files.
//! `cargo bench -p pipewright-core --bench splits [FILE.onnx ..]`.

use pipewright_core::cost::{Cluster, import};
use pipewright_core::graph::Graph;
use pipewright_core::onnx;
use pipewright_core::plan::{Draft, Model, ScheduleText};
use pipewright_core::predict::{BestSplit, USUAL, best_split};
use pipewright_core::schedule::ScheduleKind;
use std::path::{Path, PathBuf};
use std::time::Instant;

const PRESETS: [&str; 24] = [
    "fc32:512", "digits-cnn", "caffenet-mini", "googlenet-mini", "alexnet", "vgg16", "vgg19", "googlenet",
    "resnet18", "resnet18:64", "resnet50", "resnet101", "resnet152", "unet", "amoebanet-d", "bert-base",
    "bert-large", "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "gpt3-175b", "llama-7b", "llama-13b",
];
const CLUSTERS: [&str; 3] = ["dgx-a100", "dgx-1-p100", "laptop"];
const STAGES: [u32; 4] = [2, 4, 8, 16];

/// A network with the samples that a micro-batch of it has.
struct Network {
    name: String,
    model: Model,
    profile: Option<pipewright_core::cost::Profile>,
    samples: u64,
}

/// A row and column of the table.
struct Cell {
    best: BestSplit,
    ms: f64,
    skips: bool,
}

fn main() {
    let files = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    let files: Vec<PathBuf> = files.map(PathBuf::from).collect();
    let mut networks = presets();
    networks.extend(profiles());
    networks.extend(files.iter().map(|file| of_onnx(file)));
    let mut cells = vec![];
    for cluster in CLUSTERS {
        println!("\n1F1B on {cluster}: balanced -> best ms (at most so much from the best), 2 to 16 stages\n");
        for network in &networks {
            let row: Vec<Option<Cell>> =
                STAGES.iter().map(|stages| cell(network, cluster, *stages)).collect();
            println!("{:28}{}", network.name, row.iter().map(words).collect::<String>());
            cells.extend(row.into_iter().flatten());
        }
    }
    println!();
    summary("all", cells.iter());
    summary("with skip connections", cells.iter().filter(|cell| cell.skips));
    summary("without", cells.iter().filter(|cell| !cell.skips));
}

fn presets() -> Vec<Network> {
    let preset = |name: &&str| Network {
        name: (*name).into(),
        model: Model::Preset(name.parse().expect("a preset")),
        profile: None,
        samples: 4,
    };
    PRESETS.iter().map(preset).collect()
}

/// The published profiles that are networks.
fn profiles() -> Vec<Network> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/profiles"));
    let mut found = vec![];
    for folder in ["pipedream", "dapple", "piper", "dnn-partitioning"] {
        let entries = std::fs::read_dir(root.join(folder)).expect("a folder of profiles");
        let mut paths: Vec<PathBuf> = entries.map(|e| e.expect("an entry").path()).collect();
        paths.sort();
        for path in paths {
            let stem = path.file_stem().expect("a name").to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path).expect("a profile");
            let Ok(work) = import::read(&stem, &text) else { continue };
            let Ok((graph, profile)) = work.network() else { continue };
            found.push(Network {
                name: format!("{folder} {}", stem.trim_end_matches(".graph")),
                model: Model::Graph(graph),
                profile: Some(profile),
                samples: work.samples.max(1),
            });
        }
    }
    found
}

fn of_onnx(path: &Path) -> Network {
    let bytes = std::fs::read(path).expect("an ONNX file");
    let stem = path.file_stem().expect("a name").to_string_lossy().into_owned();
    let imported = onnx::read(bytes, &onnx::Options::default()).expect("a network");
    let name = format!("onnx {stem}");
    Network { name, model: Model::Graph(imported.graph), profile: None, samples: 4 }
}

/// Values with a reader behind the next layer.
fn skips(graph: &Graph) -> bool {
    let layer_of = |node: u32| graph.layers().partition_point(|l| l.first_node.0 <= node);
    let mut readers = vec![0; graph.nodes().len()];
    for node in graph.nodes() {
        node.inputs.iter().for_each(|input| readers[input.index()] += 1);
    }
    let _ = layer_of;
    readers.iter().any(|count| *count > 1)
}

fn cell(network: &Network, cluster: &str, stages: u32) -> Option<Cell> {
    let mut cluster = Cluster::preset(cluster).expect("a preset");
    cluster.profile.clone_from(&network.profile);
    let graph = network.model.graph().expect("a network");
    let mut draft = Draft::new(network.model.clone(), cluster, vec![]);
    draft.micro_batches = 2 * stages;
    draft.mini_batch = u64::from(draft.micro_batches) * network.samples;
    let order = ScheduleText::of(ScheduleKind::OneFOneB, stages, draft.micro_batches);
    let begin = Instant::now();
    let best = best_split(&draft, &order.expect("any numbers do"), USUAL).ok()?;
    let ms = begin.elapsed().as_secs_f64() * 1e3;
    assert!(best.step <= best.balanced || !best.balanced_fits || best.fits, "never slower");
    Some(Cell { best, ms, skips: skips(&graph) })
}

fn gain(cell: &Cell) -> f64 {
    100.0 * (cell.best.balanced.secs() / cell.best.step.secs() - 1.0)
}

fn words(cell: &Option<Cell>) -> String {
    let Some(cell) = cell else { return format!("{:>34}", "-") };
    let best = &cell.best;
    let off = 100.0 * (best.step.secs() / best.bound.secs() - 1.0);
    let times = [best.balanced, best.step].map(|t| format!("{:.4}", 1e3 * t.secs()));
    let over = if best.balanced_fits || !best.fits { "" } else { "*" };
    format!("  {:>10}{over} -> {:>10} ({off:.1} %) {:.0}ms", times[0], times[1], cell.ms)
}

fn summary<'a>(what: &str, cells: impl Iterator<Item = &'a Cell>) {
    let cells: Vec<&Cell> = cells.filter(|cell| cell.best.balanced_fits || !cell.best.fits).collect();
    let mut gains: Vec<f64> = cells.iter().map(|cell| gain(cell)).collect();
    gains.sort_by(f64::total_cmp);
    let at = |share: f64| gains[((gains.len() - 1) as f64 * share) as usize];
    let slower = gains.iter().filter(|gain| **gain < 0.0).count();
    let mut ms: Vec<f64> = cells.iter().map(|cell| cell.ms).collect();
    ms.sort_by(f64::total_cmp);
    println!(
        "{what}: {} rows, gain median {:.1} %, 90th percentile {:.1} %, largest {:.1} %; {slower} slower; slowest search {:.0} ms",
        gains.len(), at(0.5), at(0.9), at(1.0), ms[ms.len() - 1]
    );
}
