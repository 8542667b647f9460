//! Updates of parameters on the emulator beside the processor's.

use super::memory::{Tensor, stored};
use crate::case::Noise;
use crate::emulator;
use pipewright_core::plan::Optimizer;
use pipewright_kernels::cpu::squares;
use pipewright_kernels::{Parameter, Rule, Update};
use pipewright_runner::device::cuda::kernels::Storage;
use pipewright_runner::device::cuda::kernels::bulk::{self, Tables};

/// Sizes and axes of parameters: more than a chunk, one, an odd number.
const SHAPES: [(usize, usize); 4] = [(9001, 2), (1, 1), (4096, 2), (333, 1)];

struct Held {
    weight: Vec<f32>,
    gradient: Vec<f32>,
    state: [Vec<f32>; 2],
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    bytemuck::pod_collect_to_vec(tensor.bytes())
}

fn close(what: &str, got: &[f32], expected: &[f32]) {
    for (i, (a, b)) in got.iter().zip(expected).enumerate() {
        assert!((a - b).abs() <= 1e-6 * (1e-3 + b.abs()), "{what}[{i}]: {a}, expected {b}");
    }
}

fn held() -> Vec<Held> {
    let mut noise = Noise(9);
    let one = |(n, _)| Held {
        weight: noise.vec(n),
        gradient: noise.vec(n),
        state: [noise.vec(n), noise.vec(n).iter().map(|v| v.abs()).collect()],
    };
    SHAPES.into_iter().map(one).collect()
}

/// Weight, gradient, state, copy, LARS's rate. All but the last begin so many elements behind a multiple of
/// 16 bytes.
fn on_device(held: &Held, (n, axes): (usize, usize), shift: usize) -> [Tensor; 6] {
    let cast = |x: &[f32]| {
        let before = vec![0.0; shift];
        Tensor::from(bytemuck::cast_slice(&[&before[..], x].concat()))
    };
    let local: f64 = if axes <= 1 { -1.0 } else { 0.0 };
    let local = Tensor::from(&local.to_ne_bytes());
    let copy = Tensor::from(&vec![0; 2 * (n + shift)]);
    let [first, second] = &held.state;
    [cast(&held.weight), cast(&held.gradient), cast(first), cast(second), copy, local]
}

/// What the update leaves: weights, states and copies.
fn check(optimizer: Optimizer, skip: bool, shift: usize) -> Vec<Vec<u8>> {
    let mut held = held();
    let mut on_device: Vec<[Tensor; 6]> =
        held.iter().zip(SHAPES).map(|(held, shape)| on_device(held, shape, shift)).collect();
    let states = optimizer.state_tensors();
    let lars = matches!(optimizer, Optimizer::Lars { .. });
    let list: Vec<bulk::Tensor> = on_device
        .iter_mut()
        .zip(SHAPES)
        .map(|([weight, gradient, first, second, copy, local], (n, _))| bulk::Tensor {
            weight: weight.at().after(4 * shift as u64),
            gradient: gradient.at().after(4 * shift as u64),
            state: [
                if states > 0 { first.at().after(4 * shift as u64) } else { Default::default() },
                if states > 1 { second.at().after(4 * shift as u64) } else { Default::default() },
            ],
            copy: copy.at().after(2 * shift as u64),
            count: n as u64,
            local: if lars { local.at() } else { Default::default() },
        })
        .collect();
    let (chunks, chunk_count) = bulk::chunks(&list);
    let (rate, number, scale) = (0.05, 3, 0.5);
    let mut tables = [
        Tensor::from(&bulk::tensors(&list)),
        Tensor::from(&chunks),
        Tensor::from(&bulk::numbers(optimizer, rate, number, scale, skip)),
        Tensor::new(16 * chunk_count as usize),
        Tensor::new(8 * list.len()),
    ];
    let [tensors, chunks, numbers, scratch, totals] = tables.each_mut().map(|table| table.at());
    let tensor_count = list.len() as u32;
    let at = Tables { tensors, tensor_count, chunks, chunk_count, numbers };
    emulator::run(&bulk::chunk_squares(&at, scratch));
    emulator::run(&bulk::tensor_squares(&at, scratch, totals));
    if let Optimizer::Lars { weight_decay, trust, .. } = optimizer {
        emulator::run(&bulk::local_rates(&at, scratch, trust, weight_decay));
    }
    emulator::run(&bulk::update(optimizer, Storage::Bf16, &at));
    let sums: Vec<f64> = bytemuck::pod_collect_to_vec(tables[4].bytes());
    for (sum, expected) in sums.iter().zip(held.iter().map(|h| squares(1, &h.gradient))) {
        assert!((sum - expected).abs() <= 1e-12 * expected, "{sum}, expected {expected}");
    }
    let rule = Rule::new(optimizer);
    for ((h, (_, axes)), got) in held.iter_mut().zip(SHAPES).zip(&on_device) {
        if !skip {
            let [first, second] = &mut h.state;
            let mut state = [&mut first[..], &mut second[..]];
            let state = &mut state[..states];
            let Held { weight, gradient, .. } = h;
            let parameter = Parameter { weight, gradient, state, axes };
            rule.update(&Update { rate, number, scale, threads: 1 }, parameter);
        }
        let of = |tensor: usize| floats(&got[tensor])[shift..].to_vec();
        assert_eq!(got[4].bytes()[2 * shift..], stored(Storage::Bf16, &of(0)), "the copy");
        let what = format!("{optimizer:?}");
        close(&what, &of(0), &h.weight);
        close(&what, &of(2), &h.state[0]);
        close(&what, &of(3), &h.state[1]);
        assert!(floats(&got[1]).iter().all(|g| *g == 0.0), "gradients are cleared");
    }
    let bytes = |got: &[Tensor; 6]| {
        let floats = [0, 2, 3].map(|tensor| got[tensor].bytes()[4 * shift..].to_vec());
        [floats.concat(), got[4].bytes()[2 * shift..].to_vec()]
    };
    on_device.iter().flat_map(bytes).collect()
}

#[test]
fn updates_like_the_processor() {
    if !emulator::is_there() {
        return;
    }
    for optimizer in optimizers() {
        for skip in [false, true] {
            // Four elements at once, or one by one where tensors lie otherwise: the same bits.
            let aligned = check(optimizer, skip, 0);
            assert!(aligned == check(optimizer, skip, 1), "{optimizer:?}");
        }
    }
}

fn optimizers() -> Vec<Optimizer> {
    let (learning_rate, weight_decay) = (0.05, 0.01);
    let sgd =
        |momentum, nesterov| Optimizer::Sgd { learning_rate, momentum, weight_decay, nesterov };
    let (beta1, beta2, eps) = (0.9, 0.999, 1e-8);
    vec![
        sgd(0.0, false),
        sgd(0.9, false),
        sgd(0.9, true),
        Optimizer::Adam { learning_rate, beta1, beta2, eps, weight_decay },
        Optimizer::AdamW { learning_rate, beta1, beta2, eps, weight_decay },
        Optimizer::Lars { learning_rate, momentum: 0.9, weight_decay, trust: 0.01 },
    ]
}
