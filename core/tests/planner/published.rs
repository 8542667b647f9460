//! Published tables against the closed forms: the error of every cell is printed, the shape is
//! asserted. `cargo test -p pipewright-core --test planner published -- --nocapture` prints the tables of
//! docs/prediction.md.

use pipewright_core::cost::calibrate::{Parameter, fit};
use pipewright_core::cost::memory::States;
use pipewright_yardsticks::transformer::{
    Accelerator, Recompute, Training, Transformer, iteration, memory,
};

fn mean_absolute(errors: &[f64]) -> f64 {
    errors.iter().map(|e| e.abs()).sum::<f64>() / errors.len() as f64
}

/// Micro-batches and stages of the nine cells, row by row.
const MS: [u32; 3] = [1, 4, 32];
const KS: [u32; 3] = [2, 4, 8];

fn print_table(title: &str, measured: [[f64; 3]; 3], predicted: [[f64; 3]; 3]) -> f64 {
    println!("\n{title}\n| m | n = 2 | n = 4 | n = 8 |\n|---|---|---|---|");
    let mut errors = vec![];
    for (i, m) in MS.into_iter().enumerate() {
        print!("| {m} |");
        for (p, q) in predicted[i].into_iter().zip(measured[i]) {
            errors.push(p / q - 1.0);
            print!(" {p:.2} ({q:.2}, {:+.0} %) |", 100.0 * (p / q - 1.0));
        }
        println!();
    }
    let mean = mean_absolute(&errors);
    println!("mean error {:.1} %", 100.0 * mean);
    mean
}

/// More stages and more micro-batches are faster where they are many.
fn rises(table: [[f64; 3]; 3]) -> bool {
    let in_m = (0..3).all(|k| table[0][k] <= table[1][k] && table[1][k] <= table[2][k]);
    let in_n = table[2].is_sorted();
    in_m && in_n
}

/// Huang et al. 2019, table 2.
const GPIPE_TRANSFORMER: [[f64; 3]; 3] = [[1.0, 1.07, 1.3], [1.7, 3.2, 4.8], [1.8, 3.4, 6.3]];
/// The same, AmoebaNet-D (18, 256).
const GPIPE_AMOEBA: [[f64; 3]; 3] = [[1.0, 1.13, 1.38], [1.07, 1.26, 1.72], [1.21, 1.84, 3.48]];
/// torchgpipe's documentation, AmoebaNet-D (18, 256) on Tesla P40, relative to n = 2, m = 1.
const TORCHGPIPE_AMOEBA: [[f64; 3]; 3] =
    [[1.0, 1.004, 0.932], [1.539, 1.666, 2.621], [1.773, 2.709, 4.953]];

#[test]
fn gpipe_transformer_48() {
    // Nothing is fitted: the device's absolute speed cancels in the table's ratios.
    let model =
        Transformer { layers: 48, hidden: 2048, heads: 32, sequence: 1024, vocabulary: 32_000 };
    let preset = Accelerator::preset("a100-megatron").unwrap();
    let on = Accelerator { launch_layer: 0.0, ..preset };
    let secs = |m: u32, n: u32| {
        let alone = Training::alone(32, 32 / m);
        let training = Training { pipeline: n, recompute: Recompute::Full, ..alone };
        iteration(&model, &training, &on).unwrap().total()
    };
    let predicted = MS.map(|m| KS.map(|n| secs(1, 2) / secs(m, n)));
    print_table("GPipe, Transformer-48: predicted (measured, error)", GPIPE_TRANSFORMER, predicted);
    assert!(rises(GPIPE_TRANSFORMER) && rises(predicted));
    // Without micro-batches four times the devices gain less than a third.
    assert!(predicted[0][2] < 1.34 && GPIPE_TRANSFORMER[0][2] < 1.34);
}

#[test]
fn amoebanet_of_gpipe_and_torchgpipe() {
    // A fit of four parameters to nine cells, not a prediction: the slowest stage's time of the
    // split into 2, 4 and 8, and what recompute adds (a forward pass, at most a third), which the last micro-batch is spared.
    // T = (m + n - 1) / m (1 + recompute (m - 1) / m) stage_n.
    let parameter = |name, start: f64, high| Parameter {
        name,
        start,
        low: 0.0,
        high,
        advice: "measure another m for this n",
    };
    let parameters = [
        parameter("stage of 2", 0.5, 4.0),
        parameter("stage of 4", 0.25, 4.0),
        parameter("stage of 8", 0.12, 4.0),
        parameter("recompute", 0.3, 1.0 / 3.0),
    ];
    let model = |x: &[f64]| {
        let cell = |i: usize| {
            let (m, n) = (f64::from(MS[i / 3]), f64::from(KS[i % 3]));
            (m + n - 1.0) / m * (1.0 + x[3] * (m - 1.0) / m) * x[i % 3]
        };
        (0..9).map(cell).collect::<Vec<f64>>()
    };
    for (name, table) in [("GPipe", GPIPE_AMOEBA), ("torchgpipe", TORCHGPIPE_AMOEBA)] {
        let measured: Vec<f64> = (0..9).map(|i| 1.0 / table[i / 3][i % 3]).collect();
        let found = fit(&parameters, &measured, model).unwrap();
        println!("\n{found}");
        let times = model(&found.values());
        let predicted = [0, 1, 2].map(|i| [0, 1, 2].map(|k| 1.0 / times[3 * i + k]));
        print_table(&format!("{name}, AmoebaNet-D: fitted (measured, error)"), table, predicted);
        assert!(rises(predicted) && rises(table));
        // At m = 1 more devices hardly help; at m = 32 they do.
        for table in [table, predicted] {
            assert!(table[2][2] / table[2][0] > 1.5 * table[0][2] / table[0][0]);
        }
    }
}

/// Qi et al. 2024, table 4: stages, chunks of the interleaved schedule, then per number of
/// micro-batches: throughput of ZB-2p, ZB-1p, 1F1B, interleaved 1F1B.
type ZeroBubbleRow = (&'static str, u32, u32, [(u32, [f64; 4]); 3]);

const ZERO_BUBBLE: [ZeroBubbleRow; 4] = [
    (
        "1.5B",
        8,
        3,
        [
            (24, [14.5, 12.9, 11.8, 13.1]),
            (32, [14.8, 13.4, 12.5, 13.4]),
            (64, [14.9, 14.2, 13.6, 13.9]),
        ],
    ),
    (
        "6.2B",
        8,
        4,
        [
            (24, [4.32, 3.88, 3.50, 4.01]),
            (32, [4.35, 4.00, 3.70, 4.08]),
            (64, [4.39, 4.20, 4.03, 4.19]),
        ],
    ),
    (
        "14.6B",
        16,
        3,
        [
            (48, [1.81, 1.61, 1.40, 1.54]),
            (64, [1.83, 1.67, 1.49, 1.59]),
            (128, [1.85, 1.76, 1.64, 1.66]),
        ],
    ),
    (
        "28.3B",
        32,
        2,
        [
            (96, [0.99, 0.87, 0.76, 0.82]),
            (128, [1.00, 0.90, 0.80, 0.85]),
            (256, [1.00, 0.96, 0.88, 0.90]),
        ],
    ),
];

#[test]
fn zero_bubble_throughput_ratios() {
    // Shares of ideal throughput with F, I and W alike: 1F1B idles p - 1 micro-batches, ZB-1p a
    // third of that, interleaving divides by its chunks; ZB-2p is the ideal.
    println!("| model | m | ZB-1p | 1F1B | 1F1B-I | share of ZB-2p: predicted (measured, error) |");
    println!("|---|---|---|---|---|---|");
    let mut errors = vec![];
    for (name, p, chunks, rows) in ZERO_BUBBLE {
        let mut previous = [0.0; 3];
        for (m, measured) in rows {
            let (m, idle) = (f64::from(m), f64::from(p - 1));
            let predicted = [idle / 3.0, idle, idle / f64::from(chunks)].map(|idle| m / (m + idle));
            print!("| {name} | {m} |");
            for (p, q) in predicted.into_iter().zip(&measured[1..]) {
                let q = q / measured[0];
                errors.push(p / q - 1.0);
                print!(" {p:.3} ({q:.3}, {:+.1} %) |", 100.0 * (p / q - 1.0));
            }
            println!();
            // Who beats whom: 1F1B is the slowest, ZB-2p the fastest, and m narrows the gap.
            let [zb1, one, interleaved] = predicted;
            assert!(one < zb1 && one < interleaved && zb1 < 1.0);
            assert!(measured[2] < measured[1] && measured[2] < measured[3]);
            assert!(measured[0] > measured[1] && measured[0] > measured[3]);
            assert!(predicted.iter().zip(previous).all(|(now, before)| *now > before));
            previous = predicted;
        }
    }
    println!("mean error {:.1} %", 100.0 * mean_absolute(&errors));
}

/// Narayanan et al. 2021, table 1: billions of parameters, heads, hidden, layers, t, p, devices,
/// batch, TFLOP/s per device.
const MEGATRON: [(f64, [u32; 7], f64); 10] = [
    (1.7, [24, 2304, 24, 1, 1, 32, 512], 137.0),
    (3.6, [32, 3072, 30, 2, 1, 64, 512], 138.0),
    (7.5, [32, 4096, 36, 4, 1, 128, 512], 142.0),
    (18.4, [48, 6144, 40, 8, 1, 256, 1024], 135.0),
    (39.1, [64, 8192, 48, 8, 2, 512, 1536], 138.0),
    (76.1, [80, 10240, 60, 8, 4, 1024, 1792], 140.0),
    (145.6, [96, 12288, 80, 8, 8, 1536, 2304], 148.0),
    (310.1, [128, 16384, 96, 8, 16, 1920, 2160], 155.0),
    (529.6, [128, 20480, 105, 8, 35, 2520, 2520], 163.0),
    (1008.0, [160, 25600, 128, 8, 64, 3072, 3072], 163.0),
];

#[test]
fn megatron_weak_scaling() {
    // Nothing is fitted here: the preset comes from eight runs of a later paper. The table does
    // not say micro-batch and chunks; the best that fit the memory are taken.
    let on = Accelerator::preset("a100-megatron").unwrap();
    println!(
        "| parameters | devices | b, v | measured | predicted | error |\n|---|---|---|---|---|---|"
    );
    let (mut errors, mut predicted) = (vec![], vec![]);
    for (billions, [heads, hidden, layers, tensor, pipeline, devices, batch], measured) in MEGATRON
    {
        let model = Transformer { layers, hidden, heads, sequence: 2048, vocabulary: 51_200 };
        assert!((model.parameters() as f64 / 1e9 / billions - 1.0).abs() < 0.04, "{billions}");
        let data = devices / (tensor * pipeline);
        let ways = [1, 2, 4, 8, 16].into_iter().flat_map(|b| (1..=8).map(move |v| (b, v)));
        let best = ways
            .filter_map(|(micro_batch, chunks)| {
                if pipeline == 1 && chunks > 1 {
                    return None;
                }
                let recompute = Recompute::Full;
                let alone = Training::alone(batch, micro_batch);
                let training = Training { tensor, data, pipeline, chunks, recompute, ..alone };
                let memory = memory(&model, &training, &States::MEGATRON).ok()?;
                let fits = memory.activations + memory.states < 0.9 * on.memory.0 as f64;
                let secs = iteration(&model, &training, &on).ok()?.total();
                fits.then_some((secs, micro_batch, chunks))
            })
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .unwrap();
        let tera = model.flops_with_recompute(batch) / best.0 / f64::from(devices) / 1e12;
        let error = 100.0 * (tera / measured - 1.0);
        let (b, v) = (best.1, best.2);
        println!("| {billions}B | {devices} | {b}, {v} | {measured} | {tera:.0} | {error:+.1} % |");
        errors.push(tera / measured - 1.0);
        predicted.push(tera);
    }
    println!("mean error {:.1} %", 100.0 * mean_absolute(&errors));
    // The largest networks reach the most, as measured.
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
    let measured: Vec<f64> = MEGATRON.iter().map(|row| row.2).collect();
    assert!(mean(&predicted[7..]) > mean(&predicted[..3]));
    assert!(mean(&measured[7..]) > mean(&measured[..3]));
}
