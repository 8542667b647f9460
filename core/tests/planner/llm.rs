//! Iteration times and memory of GPT-like models against published measurements.
//! `cargo test -p pipewright-core --test planner llm -- --nocapture` prints the tables of
//! docs/prediction.md.

use pipewright_core::cost::calibrate::Fit;
use pipewright_core::cost::memory::States;
use pipewright_core::units::{Bytes, Nanos};
use pipewright_yardsticks::transformer::{
    Accelerator, Knob, Measured, Recompute, Training, Transformer, calibrate, iteration, memory,
    workload,
};

/// Rows of a file of tests/data/vtrain; `skip` leading columns are not ours.
fn vtrain(file: &str, skip: usize) -> Vec<Measured> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/vtrain/");
    let text = std::fs::read_to_string(format!("{folder}{file}")).unwrap();
    let row = |line: &str| {
        let fields: Vec<f64> =
            line.split(',').skip(skip).map(|field| field.trim().parse().unwrap()).collect();
        let [batch, micro_batch, hidden, heads, layers, sequence, tensor, data, pipeline] =
            std::array::from_fn(|i| fields[i] as u32);
        let model = Transformer { layers, hidden, heads, sequence, vocabulary: 51_200 };
        let alone = Training::alone(batch, micro_batch);
        let training = Training { tensor, data, pipeline, ..alone };
        training.check(&model).unwrap();
        Measured { model, training, secs: fields[9] / 1e3 }
    };
    text.lines().skip(1).map(row).collect()
}

/// Relative errors.
fn errors(rows: &[Measured], on: &Accelerator) -> Vec<f64> {
    let error =
        |row: &Measured| iteration(&row.model, &row.training, on).unwrap().total() / row.secs - 1.0;
    rows.iter().map(error).collect()
}

fn mean_absolute(errors: &[f64]) -> f64 {
    errors.iter().map(|e| e.abs()).sum::<f64>() / errors.len() as f64
}

fn halves(rows: Vec<Measured>) -> (Vec<Measured>, Vec<Measured>) {
    let (mut odd, mut even) = (vec![], vec![]);
    for (i, row) in rows.into_iter().enumerate() {
        if i % 2 == 0 { odd.push(row) } else { even.push(row) }
    }
    (odd, even)
}

const SOFTWARE: [Knob; 6] = [
    Knob::Products,
    Knob::Memory,
    Knob::LaunchLayer,
    Knob::LaunchMicroBatch,
    Knob::Logits,
    Knob::DataLink,
];

fn fit_vtrain(rows: &[Measured]) -> (Accelerator, Fit) {
    // Begin with round figures, not with the preset that came out of this fit.
    let start = Accelerator {
        product_efficiency: 0.5,
        memory_efficiency: 0.7,
        launch_layer: 0.002,
        launch_micro_batch: 0.001,
        logit_bytes: 50.0,
        optimizer_bytes: 20.0,
        constant: 0.0,
        ..Accelerator::preset("a100-megatron-deepspeed").unwrap()
    };
    calibrate(&start, &SOFTWARE, rows).unwrap()
}

#[test]
fn iterations_on_one_node_fitted_on_every_second_row() {
    let rows = vtrain("ground_truth_single.csv", 1);
    let rows: Vec<Measured> = rows.into_iter().filter(|r| r.training.tensor == 1).collect();
    assert_eq!(rows.len(), 313);
    let (train, rest) = halves(rows);
    let (found, fit) = fit_vtrain(&train);
    println!("{fit}\n");
    let (seen, unseen) = (errors(&train, &found), errors(&rest, &found));
    println!("| rows | fitted on | mean error | largest |\n|---|---|---|---|");
    for (rows, errors) in [("odd", &seen), ("even, never seen", &unseen)] {
        let largest = errors.iter().fold(0.0_f64, |l, e| l.max(e.abs()));
        let (n, mean) = (errors.len(), mean_absolute(errors));
        println!("| {n} | {rows} | {:.2} % | {:.1} % |", 100.0 * mean, 100.0 * largest);
    }
    println!("\n| d | p | unseen rows | mean error | bias |\n|---|---|---|---|---|");
    for (d, p) in [(1, 2), (1, 4), (2, 1), (2, 2), (2, 4), (4, 1), (4, 2), (8, 1)] {
        let here: Vec<f64> = rest
            .iter()
            .zip(&unseen)
            .filter(|(r, _)| (r.training.data, r.training.pipeline) == (d, p))
            .map(|(_, e)| 100.0 * e)
            .collect();
        let bias = here.iter().sum::<f64>() / here.len() as f64;
        let mean = mean_absolute(&here);
        println!("| {d} | {p} | {} | {mean:.2} % | {bias:+.2} % |", here.len());
    }
    assert!(mean_absolute(&unseen) <= 0.04);
    // The preset is this fit.
    let preset = Accelerator::preset("a100-megatron-deepspeed").unwrap();
    let near = |a: f64, b: f64| (a / b - 1.0).abs() < 0.01;
    assert!(near(preset.product_efficiency, found.product_efficiency));
    assert!(near(preset.launch_layer, found.launch_layer));
    assert!(mean_absolute(&errors(&rest, &preset)) <= 0.04);
}

#[test]
fn the_other_half_gives_nearly_the_same_machine() {
    let rows = vtrain("ground_truth_single.csv", 1);
    let rows: Vec<Measured> = rows.into_iter().filter(|r| r.training.tensor == 1).collect();
    let (odd, even) = halves(rows);
    let ((a, fit), (b, _)) = (fit_vtrain(&odd), fit_vtrain(&even));
    let deviation = fit.estimates[0].deviation.unwrap();
    let apart = (a.product_efficiency - b.product_efficiency).abs();
    assert!(apart < 4.0 * deviation, "{apart} apart, deviation {deviation}");
    assert!(mean_absolute(&errors(&odd, &b)) <= 0.04);
}

#[test]
fn tensor_parallel_and_cluster_runs_are_extrapolated() {
    // Not fitted to: 407 runs with tensor parallelism and 55 on 64 to 512 devices.
    let preset = Accelerator::preset("a100-megatron-deepspeed").unwrap();
    let all = vtrain("ground_truth_single.csv", 1);
    let (without, with): (Vec<_>, Vec<_>) = all.into_iter().partition(|r| r.training.tensor == 1);
    let cluster = vtrain("ground_truth_multi.csv", 2);
    assert_eq!((without.len(), with.len(), cluster.len()), (313, 407, 55));
    for (name, rows) in [("tensor parallelism, one node", &with), ("64 to 512 devices", &cluster)] {
        let errors = errors(rows, &preset);
        let bias = errors.iter().sum::<f64>() / errors.len() as f64;
        let mean = 100.0 * mean_absolute(&errors);
        println!(
            "{name}: {} runs, mean error {mean:.1} %, bias {:+.1} %",
            rows.len(),
            100.0 * bias
        );
    }
    // With the tensor-parallel link fitted too, on every second of all rows, the single-node
    // error must be below that of the simulator which published the data (8.37 %).
    let (train, rest) = halves([without, with].concat());
    let knobs = [SOFTWARE.as_slice(), &[Knob::TensorLatency]].concat();
    let (found, fit) = calibrate(&preset, &knobs, &train).unwrap();
    let unseen = mean_absolute(&errors(&rest, &found));
    println!("all single-node runs, fitted on half:\n{fit}\nunseen half: {:.2} %", 100.0 * unseen);
    assert!(unseen < 0.0837);
}

/// Name, network, batch, micro-batch, p, v, seconds with full recompute and with sequence
/// parallelism and selective recompute: arXiv 2205.05198, tables 3 and 5; t = 8, d = 1.
type Row = (&'static str, [u32; 3], [u32; 4], [f64; 2]);

const KORTHIKANTI: [Row; 4] = [
    ("22B", [48, 6144, 64], [4, 4, 1, 1], [1.42, 1.10]),
    ("175B", [96, 12288, 96], [64, 1, 8, 3], [18.13, 13.75]),
    ("530B", [105, 20480, 128], [280, 1, 35, 3], [49.05, 37.83]),
    ("1T", [128, 25600, 160], [512, 1, 64, 1], [94.42, 71.49]),
];

fn korthikanti(index: usize) -> [Measured; 2] {
    let (_, [layers, hidden, heads], [batch, micro_batch, pipeline, chunks], secs) =
        KORTHIKANTI[index];
    let model = Transformer { layers, hidden, heads, sequence: 2048, vocabulary: 51_200 };
    let full = Training {
        tensor: 8,
        pipeline,
        chunks,
        recompute: Recompute::Full,
        ..Training::alone(batch, micro_batch)
    };
    let selective =
        Training { recompute: Recompute::Selective, sequence_parallel: true, ..full.clone() };
    [
        Measured { model: model.clone(), training: full, secs: secs[0] },
        Measured { model, training: selective, secs: secs[1] },
    ]
}

#[test]
fn eight_megatron_runs_with_one_parameter_set() {
    let rows: Vec<Measured> = (0..4).flat_map(korthikanti).collect();
    let preset = Accelerator::preset("a100-megatron").unwrap();
    let knobs = [Knob::Products, Knob::Memory];
    let start = Accelerator { product_efficiency: 0.6, memory_efficiency: 0.7, ..preset.clone() };
    let (found, fit) = calibrate(&start, &knobs, &rows).unwrap();
    println!("{fit}\n");
    println!("| model | recompute | measured s | predicted s | error | fitted without it |");
    println!("|---|---|---|---|---|---|");
    let mut left_out = vec![];
    for (i, row) in rows.iter().enumerate() {
        // A model is predicted from the other three's runs.
        let others: Vec<Measured> = rows
            .iter()
            .enumerate()
            .filter(|(k, _)| k / 2 != i / 2)
            .map(|(_, r)| r.clone())
            .collect();
        let (without, _) = calibrate(&start, &knobs, &others).unwrap();
        let blind = errors(&rows[i..=i], &without)[0];
        left_out.push(blind);
        let secs = iteration(&row.model, &row.training, &found).unwrap().total();
        let (name, how) = (KORTHIKANTI[i / 2].0, if i % 2 == 0 { "full" } else { "selective" });
        let error = 100.0 * (secs / row.secs - 1.0);
        let blind = 100.0 * blind;
        println!("| {name} | {how} | {} | {secs:.2} | {error:+.1} % | {blind:+.1} % |", row.secs);
    }
    let (mean, blind) = (fit.mean_error(), mean_absolute(&left_out));
    println!("\nmean error {:.2} %, left out {:.2} %", 100.0 * mean, 100.0 * blind);
    assert!(mean <= 0.05 && blind <= 0.05);
    assert!((preset.product_efficiency / found.product_efficiency - 1.0).abs() < 0.01);
    assert!((preset.memory_efficiency / found.memory_efficiency - 1.0).abs() < 0.01);
}

#[test]
fn memory_of_the_four_models() {
    // GiB of figure 1: activations without recompute, with sequence parallelism and selective
    // recompute, parameters with optimizer state.
    let published = [
        [59.25, 9.5625, 45.5625],
        [66.84375, 12.3515625, 45.5625],
        [114.0234375, 23.076171875, 31.640625],
        [131.25, 26.5625, 32.958984375],
    ];
    for (i, expected) in published.into_iter().enumerate() {
        let Measured { model, training, .. } = korthikanti(i)[1].clone();
        let none =
            Training { recompute: Recompute::None, sequence_parallel: false, ..training.clone() };
        let gib = |bytes: f64| bytes / f64::from(1 << 30);
        let with = memory(&model, &training, &States::MEGATRON).unwrap();
        let found = [
            gib(memory(&model, &none, &States::MEGATRON).unwrap().activations),
            gib(with.activations),
            gib(with.states),
        ];
        println!("{}: {found:.3?} GiB, published {expected:.3?}", KORTHIKANTI[i].0);
        assert!(found.iter().zip(expected).all(|(f, e)| (f / e - 1.0).abs() < 1e-3));
    }
}

#[test]
fn parameters_and_operations_are_the_published_ones() {
    let gpt3 = Transformer::GPT3_175B;
    assert!((gpt3.parameters() as f64 / 174.6e9 - 1.0).abs() < 0.001);
    let billions = [21.9, 174.6, 529.6, 1008.0];
    for (i, billions) in billions.into_iter().enumerate() {
        let found = korthikanti(i)[0].model.parameters() as f64 / 1e9;
        assert!((found / billions - 1.0).abs() < 0.01, "{found} for {billions}");
    }
    // arXiv 2104.04473, section 5.1: GPT-3 at 140 TFLOP/s on 1,024 A100s, 300 billion tokens: 34
    // days; the paper counts 8 T P / (n X).
    let tokens = 1536.0 * 2048.0;
    let flops = gpt3.flops_with_recompute(1536) / tokens * 300e9;
    let days = flops / (1024.0 * 140e12) / 86_400.0;
    assert!((33.0..36.0).contains(&days), "{days}");
}

#[test]
fn what_does_not_divide_is_refused_by_name() {
    let model = Transformer::GPT3_175B;
    let refused = |training: Training| training.check(&model).unwrap_err().to_string();
    let base = Training { tensor: 8, data: 2, pipeline: 8, ..Training::alone(64, 1) };
    base.check(&model).unwrap();
    assert!(refused(Training { data: 3, ..base.clone() }).starts_with("batch 64"));
    assert!(refused(Training { pipeline: 7, ..base.clone() }).starts_with("layers 96"));
    assert!(refused(Training { tensor: 7, ..base.clone() }).starts_with("heads 96"));
    assert!(refused(Training { micro_batch: 0, ..base.clone() }).contains("divided"));
    assert!(refused(Training { pipeline: 0, ..base.clone() }).contains("divided"));
    let interleaved = Training { chunks: 2, batch: 24, ..base };
    assert!(refused(interleaved).starts_with("micro-batches 12"));
}

#[test]
fn a_workload_takes_as_long_as_the_model_says() {
    let on = Accelerator { launch_layer: 0.0, ..Accelerator::preset("a100-megatron").unwrap() };
    let model = Transformer::GPT3_175B;
    let states = States::MEGATRON;
    let work = workload(&model, &on, 1, Recompute::Full, &[1, 2, 4, 7, 8], &states);
    assert_eq!((work.items.len(), work.edges.len()), (98, 97));
    let sharded: Vec<u32> = work.items[1].shards.iter().map(|s| s.degree).collect();
    assert_eq!(sharded, [2, 4, 8], "7 does not divide 96 heads");
    assert!(work.edges.iter().all(|e| e.from + 1 == e.to && e.bytes == Bytes(2 * 2048 * 12288)));
    let training = Training { recompute: Recompute::Full, ..Training::alone(1, 1) };
    let whole = iteration(&model, &training, &on).unwrap();
    let blocks_and_head: Nanos = work.items[1..].iter().map(|i| i.time()).sum();
    assert!((blocks_and_head.secs() / whole.work - 1.0).abs() < 1e-6);
    for item in &work.items[1..97] {
        let times: Vec<Nanos> = item.shards.iter().map(|s| s.forward + s.backward).collect();
        assert!(times[0] < item.time() && times.is_sorted_by(|a, b| a > b), "{times:?}");
    }
    // Other ways to compute a block, by degree, without recompute first.
    let open = workload(&model, &on, 1, Recompute::None, &[2], &states);
    let ways: Vec<_> = open.items[1].shards.iter().map(|s| (s.degree, s.recompute)).collect();
    assert_eq!(ways, [(1, true), (2, false), (2, true)]);
    let [whole, half, half_again] = [0, 1, 2].map(|i| &open.items[1].shards[i]);
    assert!(half.stash < open.items[1].stash && half_again.stash < half.stash);
    assert!(half_again.backward > half.backward && whole.backward > open.items[1].backward());
    assert_eq!(open.items[1].state.0, 18 * model.layer_parameters());
    let gib = work.parameters().0 as f64 / f64::from(1 << 30);
    assert!((320.0..335.0).contains(&gib), "175 billion parameters of 2 bytes: {gib} GiB");
}
