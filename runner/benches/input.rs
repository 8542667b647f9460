//! Time that a step loses to its input, with samples read ahead and without: photographs of 500 x 375
//! that are decoded, cut and scaled for ResNet-18, on one thread. And how long synthetic images take to draw,
//! beside a loop that makes one value after the other.
//!
//! `cargo bench -p pipewright-runner --bench input`

use image::codecs::jpeg::JpegEncoder;
use image::{Rgb, RgbImage};
use pipewright_core::cost::Cluster;
use pipewright_core::graph::presets::Preset;
use pipewright_core::graph::{InputSpec, SampleSpec, TargetSpec};
use pipewright_core::plan::{Data, Draft, Model, Plan, Source};
use pipewright_core::predict::{Prediction, predict};
use pipewright_core::schedule::ScheduleKind;
use pipewright_runner::data::{DataSet, Load, Order, Reader, Sequence, open};
use pipewright_runner::execute::Rank;
use pipewright_runner::transport::Transport;
use pipewright_runner::transport::local::local;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::fs;
use std::path::Path;
use std::time::Instant;

/// Photographs in each of two classes.
const IMAGES: u32 = 32;
/// Steps that are measured, after one that is not.
const STEPS: u64 = 6;

fn main() {
    let dir = pipewright::tools::scratch("bench-input").expect("a folder to write to");
    for class in 0..2 {
        photographs(&dir.join(format!("class-{class}")), class);
    }
    let plan = plan(Data::Images { dir: dir.to_str().expect("plain text").into() });
    let prediction = predict(&plan).expect("a plan that was just made");
    let sample = prediction.graph.sample().expect("a classifier");
    let data = open(&plan.data, &sample, plan.seed).expect("images that were just written");
    println!("{:22} {:>10} {:>10} {:>8}", "resnet18, 8 images", "step ms", "input ms", "share");
    for (name, ahead) in [("read when needed", false), ("read ahead", true)] {
        let (step, input) = measure(&plan, &prediction, &data, ahead);
        println!("{name:22} {step:>10.1} {input:>10.2} {:>7.2}%", 100.0 * input / step);
    }
    fs::remove_dir_all(dir).ok();
    draw();
}

/// Nanoseconds a value of images of 3 x 224 x 224, the least of several times.
fn draw() {
    const SAMPLES: usize = 16;
    const VALUES: usize = SAMPLES * 3 * 224 * 224;
    let sample = SampleSpec {
        input: InputSpec::Values { shape: vec![3, 224, 224] },
        target: TargetSpec::Classes { count: 1, classes: 1000 },
    };
    let data = Data::Synthetic { train: SAMPLES as u64, test: 1 };
    let split = open(&data, &sample, 1).expect("samples that are drawn").train;
    let order = Order::new(Sequence::Repeated, SAMPLES as u64, SAMPLES as u64);
    let load = Load { source: Source::Input, first: 0, words: VALUES };
    let mut values = vec![0; VALUES];
    let mut least = |draw: &mut dyn FnMut(&mut [u32])| {
        let times = (0..5).map(|_| {
            let begin = Instant::now();
            draw(&mut values);
            begin.elapsed().as_nanos() as f64 / VALUES as f64
        });
        times.fold(f64::INFINITY, f64::min)
    };
    println!("\n{:22} {:>10}", "3 x 224 x 224, drawn", "ns a value");
    println!("{:22} {:>10.2}", "one after the other", least(&mut one_by_one));
    for threads in [1, 2, 4, 8, 16] {
        let reader = Reader::new(split.clone(), order).with_threads(threads);
        let mut draw = |out: &mut [u32]| reader.read(0, load, out).expect("samples");
        println!("{:22} {:>10.2}", format!("{threads} threads"), least(&mut draw));
        if threads >= std::thread::available_parallelism().map_or(1, usize::from) {
            break;
        }
    }
}

/// A word of the generator and a division for each value.
fn one_by_one(out: &mut [u32]) {
    let mut source = ChaCha8Rng::from_seed([7; 32]);
    let cells = std::hint::black_box([0.25_f32; 4]);
    for row in out.chunks_exact_mut(std::hint::black_box(224)) {
        let columns = row.len();
        for (x, value) in row.iter_mut().enumerate() {
            let sum: i32 =
                source.next_u32().to_le_bytes().iter().map(|&byte| i32::from(byte)).sum();
            let noise = (sum - 510) as f32 * (1.0 / 147.80);
            *value = (cells[x * 4 / columns] + noise).to_bits();
        }
    }
}

/// Noise over a gradient: neither easier nor harder to decode than a photograph.
fn photographs(dir: &Path, class: u32) {
    fs::create_dir_all(dir).expect("a folder to write to");
    for index in 0..IMAGES {
        let mut state = class * IMAGES + index + 1;
        let image = RgbImage::from_fn(500, 375, |x, y| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            Rgb([x / 2, y / 2, 128].map(|v| (v + (state >> 28)).min(255) as u8))
        });
        let file = fs::File::create(dir.join(format!("{index}.jpg"))).expect("a file to write to");
        JpegEncoder::new_with_quality(file, 90).encode_image(&image).expect("an encoder");
    }
}

fn plan(data: Data) -> Plan {
    let cluster = Cluster::preset("laptop").expect("a known cluster");
    let mut draft = Draft::new(Model::Preset(Preset::Resnet18), cluster, vec![]);
    draft.schedule = ScheduleKind::OneFOneB;
    (draft.mini_batch, draft.micro_batches, draft.data) = (8, 2, data);
    draft.plan().expect("a sound plan").0
}

/// Mean time of a step and of its input, in milliseconds.
fn measure(plan: &Plan, prediction: &Prediction, data: &DataSet, ahead: bool) -> (f64, f64) {
    let program = &prediction.programs[0];
    let transport = local(1, program.handles as usize).remove(0);
    let mut rank = Rank::new((plan, &prediction.graph, program), data, transport, 1);
    rank.set_read_ahead(ahead);
    rank.step(0).expect("a step");
    let begin = rank.transport.now_ns();
    let input: u64 = (1..=STEPS).map(|step| rank.step(step).expect("a step").input_ns).sum();
    let steps = (rank.transport.now_ns() - begin) as f64;
    (steps / STEPS as f64 / 1e6, input as f64 / STEPS as f64 / 1e6)
}
