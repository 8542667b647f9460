//! Time that a step loses to its input, with samples read ahead and without: photographs of 500 x 375
//! that are decoded, cut and scaled for ResNet-18, on one thread.
//!
//! `cargo bench -p pipewright-runner --bench input`

use image::codecs::jpeg::JpegEncoder;
use image::{Rgb, RgbImage};
use pipewright_core::cost::Cluster;
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::{Data, Draft, Model, Plan};
use pipewright_core::predict::{Prediction, predict};
use pipewright_core::schedule::ScheduleKind;
use pipewright_runner::data::{DataSet, open};
use pipewright_runner::execute::Rank;
use pipewright_runner::transport::Transport;
use pipewright_runner::transport::local::local;
use std::fs;
use std::path::Path;

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
