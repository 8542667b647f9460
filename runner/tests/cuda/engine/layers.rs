//! Convolutions and products of networks on a device: what its libraries compute beside what our own kernels
//! do, with times. On a GPU at real sizes, which no golden vector has: many blocks, matrix units, runs of 16
//! bytes. It prints a line of JSON for each, for `scripts/gpu/check.py`.

use crate::emulator;
use crate::graphs::emulated::Emulated;
use crate::kernels::layers::call;
use half::bf16;
use pipewright_core::graph::autodiff::{BackwardStyle, ComputationKind, training_graph};
use pipewright_core::graph::presets::Preset;
use pipewright_core::graph::{Node, Op, TensorSpec};
use pipewright_core::ids::StageId;
use pipewright_core::plan::Precision;
use pipewright_kernels::Call;
use pipewright_runner::device::cuda::kernels::{
    Buffers, ConvolutionPass, ConvolutionStep, DevicePtr, ImageOrder, Product, ProductStep, Step,
    Storage, steps,
};
use pipewright_runner::device::cuda::{Backend, Driver};
use serde_json::json;

/// Elements that tensors are made of, again and again.
const PATTERN: usize = 1 << 16;

/// How often each is timed.
const REPEATS: usize = 3;

/// A computation of a network, its tensors still nowhere.
struct Layer {
    name: String,
    step: Step,
}

/// Each distinct convolution and product of a training step.
fn layers(network: &str, samples: u64, precision: Precision) -> Vec<Layer> {
    let graph = network.parse::<Preset>().unwrap().graph().unwrap();
    let division = graph.division(&[]);
    let training = training_graph(&graph, &division, StageId(0), BackwardStyle::Fused);
    let mut found: Vec<Layer> = vec![];
    for computation in &training.computations {
        let node = graph.node(computation.node);
        let is_product =
            matches!(node.op, Op::Conv2d { .. } | Op::Linear { .. } | Op::TiedLinear { .. });
        if computation.kind == ComputationKind::SumGradients || !is_product {
            continue;
        }
        let inputs: Vec<&TensorSpec> =
            node.inputs.iter().map(|id| &graph.node(*id).output).collect();
        for step in steps_of(node, &inputs, computation.kind, samples, precision) {
            if !found.iter().any(|layer| layer.step == step) {
                found.push(Layer { name: node.name.clone(), step });
            }
        }
    }
    found
}

/// What libraries do of a computation; the places of its tensors are those of nothing.
fn steps_of(
    node: &Node,
    inputs: &[&TensorSpec],
    kind: ComputationKind,
    samples: u64,
    precision: Precision,
) -> Vec<Step> {
    let call = Call { samples, precision, ..call(&node.op, kind, inputs, &node.output) };
    let somewhere = [DevicePtr(256); 8];
    let params = node.op.params(inputs).len();
    let buffers = Buffers {
        reads: &somewhere[..2],
        writes: &somewhere[..2],
        params: &somewhere[..params],
        gradients: &somewhere[..params.min(2)],
        ..Buffers::default()
    };
    let all = steps(&call, &buffers, Storage::from(precision)).steps;
    all.into_iter().filter(|step| !matches!(step, Step::Kernel(_))).collect()
}

/// Elements from a matrix's first to its last, over all of a batch.
fn extent(sizes: [u32; 2], strides: [u64; 2], batch: [u32; 2], apart: [u64; 2]) -> u64 {
    let along = |sizes: [u32; 2], strides: [u64; 2]| -> u64 {
        sizes.iter().zip(strides).map(|(size, stride)| u64::from(size - 1) * stride).sum()
    };
    along(sizes, strides) + along(batch, apart) + 1
}

/// Elements of the two that are read and of the one that is written, in its place among x, weight and y or
/// a, b and c.
fn sizes(step: &Step) -> ([u64; 3], usize) {
    match step {
        Step::Convolution(ConvolutionStep { shape, pass, .. }) => {
            let area = |[rows, columns]: [u32; 2]| u64::from(rows) * u64::from(columns);
            let images = |channels: u32, size| {
                shape.samples * u64::from(shape.groups) * u64::from(channels) * area(size)
            };
            let all = [
                images(shape.channels, shape.size),
                shape.weights(),
                images(shape.outputs, shape.out_size),
            ];
            let written = match pass {
                ConvolutionPass::InputGradient => 0,
                ConvolutionPass::WeightGradient => 1,
                ConvolutionPass::Forward => 2,
            };
            (all, written)
        }
        Step::Product(ProductStep { args, .. }) => {
            let Product { m, n, k, batch, .. } = *args;
            let all = [
                extent([m, k], args.a_strides, batch, args.a_batch),
                extent([k, n], args.b_strides, batch, args.b_batch),
                extent([m, n], args.c_strides, batch, args.c_batch),
            ];
            (all, 2)
        }
        Step::Kernel(_) => unreachable!("no library does kernels"),
    }
}

/// Products and sums of a step.
fn flops(step: &Step) -> f64 {
    match step {
        Step::Convolution(ConvolutionStep { shape, .. }) => {
            let positions: u32 = shape.out_size.iter().product();
            2.0 * shape.samples as f64 * f64::from(positions) * shape.weights() as f64
        }
        Step::Product(ProductStep { args, .. }) => {
            let all = [args.m, args.n, args.k, args.batch[0], args.batch[1]];
            2.0 * all.into_iter().map(f64::from).product::<f64>()
        }
        Step::Kernel(_) => unreachable!("no library does kernels"),
    }
}

/// Whether it writes f32 whatever tensors are: gradients of weights.
fn writes_f32(step: &Step) -> bool {
    match step {
        Step::Convolution(step) => step.pass == ConvolutionPass::WeightGradient,
        Step::Product(step) => step.to_f32,
        Step::Kernel(_) => unreachable!("no library does kernels"),
    }
}

/// A device's memory for the tensors of one step after the other.
struct Bench<B> {
    backend: B,
    storage: Storage,
    /// Three tensors, a bias, and scratch of our own kernels, with the sizes of each.
    places: [(DevicePtr, u64); 5],
    moments: usize,
}

impl<B: Backend> Bench<B> {
    fn new(backend: B, storage: Storage) -> Self {
        Self { backend, storage, places: [(DevicePtr::NULL, 0); 5], moments: 0 }
    }

    fn place(&mut self, number: usize, bytes: u64) -> DevicePtr {
        if self.places[number].1 < bytes {
            let at = self.backend.allocate(bytes, "a tensor").unwrap();
            self.places[number] = (at, bytes);
        }
        self.places[number].0
    }

    /// Numbers between -1 and 1 that do not come again soon, of another beginning for each tensor.
    fn fill(&mut self, number: usize, elements: u64) -> DevicePtr {
        let bytes = self.storage.bytes();
        let at = self.place(number, elements * bytes);
        let values = (0..PATTERN as u32).map(|i| {
            let word = (i + 1).wrapping_mul(0x9e37_79b9).rotate_left(7 + number as u32);
            (word.wrapping_mul(0x85eb_ca6b) >> 8) as f32 / (1 << 23) as f32 - 1.0
        });
        let pattern: Vec<u8> = match self.storage {
            Storage::F32 => values.flat_map(f32::to_ne_bytes).collect(),
            _ => values.flat_map(|x| bf16::from_f32(x).to_bits().to_ne_bytes()).collect(),
        };
        let mut done = 0;
        while done < elements * bytes {
            let part = (elements * bytes - done).min(pattern.len() as u64);
            self.backend.upload(at.after(done), &pattern[..part as usize]).unwrap();
            done += part;
        }
        at
    }

    /// The step with its tensors in memory.
    fn placed(&mut self, step: &Step) -> Step {
        let ([first, second, third], written) = sizes(step);
        let mut places = [first, second, third];
        for (number, place) in places.iter_mut().enumerate() {
            *place = match number == written {
                true => self.place(number, *place * 4).0,
                false => self.fill(number, *place).0,
            };
        }
        let [a, b, c] = places.map(DevicePtr);
        match step {
            Step::Convolution(step) => {
                let bytes = step.scratch_bytes(self.storage);
                let scratch = self.place(4, bytes);
                let bias = DevicePtr::NULL;
                Step::Convolution(ConvolutionStep { x: a, weight: b, y: c, bias, scratch, ..*step })
            }
            Step::Product(step) => {
                let bias = match step.bias {
                    DevicePtr::NULL => DevicePtr::NULL,
                    _ => self.fill(3, step.args.n.into()),
                };
                let args = Product { a, b, c, ..step.args };
                Step::Product(ProductStep { args, bias, ..*step })
            }
            Step::Kernel(_) => unreachable!("no library does kernels"),
        }
    }

    /// By the device's library, where it has one, or by our own kernels.
    fn perform(&mut self, step: &Step, own: bool) {
        let (backend, storage) = (&mut self.backend, self.storage);
        match step {
            Step::Kernel(launch) => backend.launch(launch).unwrap(),
            Step::Product(product) if own => {
                product.launches(storage).iter().for_each(|launch| backend.launch(launch).unwrap());
            }
            Step::Product(product) => backend.product(product, storage).unwrap(),
            Step::Convolution(step) if own => {
                step.steps(storage).iter().for_each(|step| self.perform(step, true));
            }
            Step::Convolution(step) => backend.convolution(step, storage).unwrap(),
        }
    }

    /// What it writes, beginning with zeros.
    fn result(&mut self, step: &Step, own: bool) -> Vec<f32> {
        let (elements, written) = sizes(step);
        let (at, count) = (self.places[written].0, elements[written]);
        let is_f32 = self.storage == Storage::F32 || writes_f32(step);
        let mut bytes = vec![0_u8; (count * if is_f32 { 4 } else { 2 }) as usize];
        self.backend.zero(at, bytes.len() as u64).unwrap();
        self.perform(step, own);
        self.backend.download(at, &mut bytes).unwrap();
        match is_f32 {
            true => bytemuck::pod_collect_to_vec(&bytes),
            false => {
                let halves =
                    bytes.chunks_exact(2).map(|half| u16::from_ne_bytes([half[0], half[1]]));
                halves.map(|bits| bf16::from_bits(bits).to_f32()).collect()
            }
        }
    }

    /// The quickest of several times, in milliseconds by the device's clock.
    fn time(&mut self, step: &Step, own: bool) -> f64 {
        let mut ages = vec![];
        for _ in 0..REPEATS {
            self.backend.moment(self.moments).unwrap();
            self.perform(step, own);
            self.backend.moment(self.moments + 1).unwrap();
            self.moments += 2;
        }
        self.backend.ages(self.moments, &mut ages).unwrap();
        let last = &ages[self.moments - 2 * REPEATS..];
        let all = last.chunks_exact(2).map(|pair| pair[0].saturating_sub(pair[1]));
        all.min().expect("several") as f64 / 1e6
    }

    /// A line for a layer; how far the library is off our own kernels, by the length of the difference.
    fn measure(&mut self, layer: &Layer) -> f64 {
        let step = self.placed(&layer.step);
        let [library, own] = [false, true].map(|own| self.result(&step, own));
        let length =
            |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
        let pairs = library.iter().zip(&own);
        let apart = length(&mut pairs.map(|(a, b)| f64::from(*a) - f64::from(*b)));
        let off = apart / length(&mut own.iter().map(|x| f64::from(*x)));
        let [library_ms, own_ms] = [false, true].map(|own| self.time(&step, own));
        let pass = match &step {
            Step::Convolution(step) => format!("{:?}", step.pass),
            _ => "Product".into(),
        };
        let tflops = flops(&step) / library_ms.max(1e-6) / 1e9;
        let order = match &step {
            Step::Convolution(step) if step.channels_last => "nhwc",
            Step::Convolution(_) => "nchw",
            _ => "-",
        };
        let line = json!({
            "layer": layer.name, "pass": pass, "storage": self.storage.suffix(), "order": order,
            "library_ms": library_ms, "own_ms": own_ms, "tflops": tflops, "off": off,
        });
        println!("{line}");
        off
    }
}

/// Every layer of some networks; those that are further off than `tolerance`, or no numbers. Images lie in an order,
/// or as a run on the device has them.
fn compare<B: Backend>(
    make: impl Fn() -> B,
    networks: &[(&str, u64)],
    (precision, order): (Precision, Option<ImageOrder>),
    tolerance: f64,
) -> Vec<String> {
    let storage = Storage::from(precision);
    let mut bench = Bench::new(make(), storage);
    let is_last = |order| order == ImageOrder::ChannelsLast;
    let channels_last = order.map_or_else(|| bench.backend.channels_last(precision), is_last);
    let mut faults = vec![];
    for (network, samples) in networks {
        let all = layers(network, *samples, precision);
        assert!(all.len() > 3, "{network} has layers");
        for mut layer in all {
            if let Step::Convolution(step) = &mut layer.step {
                step.channels_last = channels_last && step.shape.groups == 1;
            }
            let off = bench.measure(&layer);
            if off.is_nan() || off >= tolerance {
                faults.push(format!(
                    "{network}, {storage:?}: {} is {off} off: {:?}",
                    layer.name, layer.step
                ));
            }
        }
    }
    faults
}

#[test]
fn layers_on_the_emulator() {
    if !emulator::is_there() {
        return;
    }
    let gpt = "transformer:layers=1,hidden=8,heads=2,sequence=6,vocabulary=11";
    for precision in [Precision::F32, Precision::Bf16] {
        let networks = [("digits-cnn", 2), (gpt, 2)];
        for order in [None, Some(ImageOrder::ChannelsLast)] {
            let how = (precision, order);
            let faults = compare(Emulated::default, &networks, how, f64::MIN_POSITIVE);
            assert!(faults.is_empty(), "the emulator has no library but our kernels: {faults:#?}");
        }
    }
}

/// Halves are rounded once each, so that results are off by their last bit; in single precision only the
/// order of sums differs.
#[test]
fn layers_on_a_gpu() {
    let Some(gpu) = super::first_gpu() else { return };
    let gpt = "transformer:layers=1,hidden=768,heads=12,sequence=1024,vocabulary=50257";
    let networks = [("resnet50", 32), ("vgg16", 16), (gpt, 4)];
    let make = || Driver::open(&gpu).unwrap();
    let mut faults = compare(make, &networks, (Precision::Bf16, None), 1e-2);
    faults.extend(compare(make, &networks, (Precision::F32, None), 1e-4));
    assert!(faults.is_empty(), "{faults:#?}");
}
