//! Steps with the balanced and with the best split, side by side: presets, profiles, ONNX files.
//! `cargo bench -p pipewright-core --bench splits [FILE.onnx ..]`; with `--gains` the table of
//! docs/planning.md.

use pipewright_core::cost::{Cluster, Profile, import};
use pipewright_core::graph::Graph;
use pipewright_core::onnx;
use pipewright_core::plan::{Draft, Model, ScheduleText};
use pipewright_core::predict::{BestSplit, Borders, USUAL, best_split};
use pipewright_core::schedule::ScheduleKind;
use std::path::{Path, PathBuf};
use std::time::Instant;

const PRESETS: [&str; 24] = [
    "fc32:512",
    "digits-cnn",
    "caffenet-mini",
    "googlenet-mini",
    "alexnet",
    "vgg16",
    "vgg19",
    "googlenet",
    "resnet18",
    "resnet18:64",
    "resnet50",
    "resnet101",
    "resnet152",
    "unet",
    "amoebanet-d",
    "bert-base",
    "bert-large",
    "gpt2",
    "gpt2-medium",
    "gpt2-large",
    "gpt2-xl",
    "gpt3-175b",
    "llama-7b",
    "llama-13b",
];
const CLUSTERS: [&str; 3] = ["dgx-a100", "dgx-1-p100", "laptop"];
const STAGES: [u32; 4] = [2, 4, 8, 16];

/// A network with the samples that a micro-batch of it has.
struct Network {
    name: String,
    model: Model,
    profile: Option<Profile>,
    samples: u64,
}

/// A network on a cluster in so many stages.
struct Cell {
    best: BestSplit,
    ms: f64,
    stages: u32,
    skips: bool,
}

fn main() {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let files = given.iter().filter(|argument| !argument.starts_with("--"));
    let mut networks = presets();
    networks.extend(profiles());
    networks.extend(files.map(|file| of_onnx(Path::new(file))));
    let row = |network: &Network| -> Vec<Option<Cell>> {
        let clusters = CLUSTERS.iter().flat_map(|cluster| STAGES.map(|stages| (cluster, stages)));
        clusters.map(|(cluster, stages)| cell(network, cluster, stages)).collect()
    };
    let rows: Vec<Vec<Option<Cell>>> = networks.iter().map(row).collect();
    if given.iter().any(|argument| argument == "--gains") {
        println!("| network | {} |", CLUSTERS.map(|c| format!("{c} 2 | 4 | 8 | 16")).join(" | "));
        println!("|{}", "---|".repeat(1 + CLUSTERS.len() * STAGES.len()));
        for (network, row) in networks.iter().zip(&rows) {
            let gains: Vec<String> = row.iter().map(short).collect();
            println!("| {} | {} |", network.name, gains.join(" | "));
        }
    } else {
        both_sides(&networks, &rows);
    }
    println!();
    let cells = || rows.iter().flatten().flatten();
    summary("all", cells());
    summary("with skip connections", cells().filter(|cell| cell.skips));
    summary("chains", cells().filter(|cell| !cell.skips));
    for stages in STAGES {
        summary(&format!("{stages} stages"), cells().filter(|cell| cell.stages == stages));
    }
}

/// Both steps in ms, how far from the best the second is at most, and how long the search took.
fn both_sides(networks: &[Network], rows: &[Vec<Option<Cell>>]) {
    for (at, cluster) in CLUSTERS.iter().enumerate() {
        println!(
            "\n1F1B on {cluster}: balanced -> exact ms, % from the best at most, ms of search"
        );
        for (network, row) in networks.iter().zip(rows) {
            let cells = &row[at * STAGES.len()..][..STAGES.len()];
            println!("{:40}{}", network.name, cells.iter().map(words).collect::<String>());
        }
    }
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
    let imported = onnx::read_with(bytes, &onnx::Options::default(), &|_| None).expect("a network");
    let name = format!("onnx {stem}");
    Network { name, model: Model::Graph(imported.graph), profile: None, samples: 4 }
}

/// Whether a value of it has several readers.
fn skips(graph: &Graph) -> bool {
    let mut readers = vec![0; graph.nodes().len()];
    for node in graph.nodes().iter().filter(|node| !node.op.is_source()) {
        node.inputs.iter().for_each(|input| readers[input.index()] += 1);
    }
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
    let best = best_split(&draft, &order.expect("any numbers do"), Borders::Nodes, USUAL).ok()?;
    let ms = begin.elapsed().as_secs_f64() * 1e3;
    Some(Cell { best, ms, stages, skips: skips(&graph) })
}

fn gain(cell: &Cell) -> f64 {
    100.0 * (cell.best.balanced.secs() / cell.best.step.secs() - 1.0)
}

/// Whether the balanced split fits the devices no worse, so that the two compare.
fn compares(cell: &Cell) -> bool {
    cell.best.balanced_fits || !cell.best.fits
}

fn short(cell: &Option<Cell>) -> String {
    match cell {
        None => String::new(),
        Some(cell) if !compares(cell) => "fits".into(),
        Some(cell) => format!("{:.1}", gain(cell)),
    }
}

fn words(cell: &Option<Cell>) -> String {
    let Some(cell) = cell else { return format!("{:>38}", "-") };
    let best = &cell.best;
    let off = 100.0 * (best.step.secs() / best.bound.secs() - 1.0);
    let times = [best.balanced, best.step].map(|t| format!("{:.3}", 1e3 * t.secs()));
    let over = if compares(cell) { ' ' } else { '*' };
    format!("{:>12}{over}-> {:>11} {off:>5.1} {:>5.0}", times[0], times[1], cell.ms)
}

fn summary<'a>(what: &str, cells: impl Iterator<Item = &'a Cell>) {
    let cells: Vec<&Cell> = cells.collect();
    let fitted = cells.iter().filter(|cell| !compares(cell)).count();
    let mut gains: Vec<f64> = cells.iter().filter(|c| compares(c)).map(|cell| gain(cell)).collect();
    gains.sort_by(f64::total_cmp);
    let at = |share: f64| gains[((gains.len() - 1) as f64 * share) as usize];
    let slower = gains.iter().filter(|gain| **gain < 0.0).count();
    let mut off: Vec<f64> =
        cells.iter().map(|c| 100.0 * (c.best.step.secs() / c.best.bound.secs() - 1.0)).collect();
    off.sort_by(f64::total_cmp);
    let slowest = cells.iter().map(|cell| cell.ms).fold(0.0, f64::max);
    println!(
        "{what}: {} compared, {slower} slower, gain median {:.1} %, 90th percentile {:.1} %, largest \
         {:.1} %; {fitted} fit only now; median {:.0} % from the best at most; slowest search {slowest:.0} ms",
        gains.len(),
        at(0.5),
        at(0.9),
        at(1.0),
        off[off.len() / 2]
    );
}
