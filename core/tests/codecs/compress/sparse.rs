//! Top-k and PowerSGD.

use super::{encode, pass, relative_error};
use pipewright_core::compress::{Codec, CodecKind, Method};

fn wave(count: usize, seed: usize) -> Vec<f32> {
    let value = |i: usize| ((i * 7919 + seed * 104_729) % 10_007) as f32 / 10_007.0 - 0.5;
    (0..count).map(|i| value(i).powi(3)).collect()
}

#[test]
fn the_largest_are_sent() {
    let values = wave(1000, 1);
    let (decoded, wire) = pass(CodecKind::TopK { one_in: 20, momentum: None }, &values);
    assert_eq!(wire.len(), 4 + 8 * 50);
    let mut sizes: Vec<f32> = values.iter().map(|v| v.abs()).collect();
    sizes.sort_by(|a, b| b.total_cmp(a));
    for (value, decoded) in values.iter().zip(&decoded) {
        let expected = if value.abs() >= sizes[49] { *value } else { 0.0 };
        assert_eq!(*decoded, expected);
    }
}

#[test]
fn ties_go_to_the_smaller_place_and_zeros_nowhere() {
    let (decoded, _) = pass(CodecKind::TopK { one_in: 2, momentum: None }, &[1.0, -1.0, 1.0, 2.0]);
    assert_eq!(decoded, [1.0, 0.0, 0.0, 2.0]);
    let (decoded, wire) = pass(CodecKind::TopK { one_in: 1, momentum: None }, &[0.0, -3.0, 0.0]);
    assert_eq!((decoded, wire.len()), (vec![0.0, -3.0, 0.0], 12));
}

/// The paper's algorithm written down plainly.
#[test]
fn momentum_waits_with_the_value() {
    let (count, momentum) = (200, 0.9f32);
    let kind = CodecKind::TopK { one_in: 50, momentum: Some(momentum) };
    let mut codec = kind.build(count).unwrap();
    let (mut u, mut v) = (vec![0f32; count], vec![0f32; count]);
    for step in 0..30 {
        let gradient = wave(count, step);
        let (decoded, _) = encode(&mut *codec, &gradient);
        for i in 0..count {
            u[i] = momentum * u[i] + gradient[i];
            v[i] += u[i];
        }
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by(|a, b| v[*b].abs().total_cmp(&v[*a].abs()));
        let mut expected = vec![0.0; count];
        for place in &order[..4] {
            expected[*place] = v[*place];
            (u[*place], v[*place]) = (0.0, 0.0);
        }
        assert_eq!(decoded, expected, "step {step}");
    }
}

#[test]
fn low_rank_matrices_come_through() {
    // As many values as a square matrix has: the shape that the codec gives them.
    const SIDE: usize = 49;
    let (a, b) = (wave(SIDE * 2, 1), wave(SIDE * 2, 2));
    let element = |r: usize, c: usize| a[2 * r] * b[2 * c] + a[2 * r + 1] * b[2 * c + 1];
    let matrix: Vec<f32> = (0..SIDE * SIDE).map(|i| element(i / SIDE, i % SIDE)).collect();
    let mut codec = CodecKind::PowerSgd { rank: 2 }.build(matrix.len()).unwrap();
    let (decoded, wire) = encode(&mut *codec, &matrix);
    assert_eq!(wire.len(), 4 * 2 * (SIDE + SIDE));
    assert!(relative_error(&decoded, &matrix) < 1e-5);
    let (zeros, _) = encode(&mut *codec, &vec![0.0; matrix.len()]);
    assert!(zeros.iter().all(|v| *v == 0.0));
    let (again, _) = encode(&mut *codec, &matrix);
    assert!(relative_error(&again, &matrix) < 1e-5, "zeros do not end it");
}

#[test]
fn small_matrices_are_sent_as_they_are() {
    let values = wave(64, 3);
    let (decoded, wire) = pass(CodecKind::PowerSgd { rank: 4 }, &values);
    assert_eq!((decoded, wire.len()), (values, 256));
}

/// A codec whose state was saved and loaded goes on as if nothing had happened.
#[test]
fn state_can_be_saved() {
    let momentum = CodecKind::TopK { one_in: 40, momentum: Some(0.9) };
    let rank = CodecKind::PowerSgd { rank: 2 };
    for (codec, feedback) in [(momentum, false), (rank, true)] {
        let make = || -> Box<dyn Codec> { Method { codec, feedback }.build(400).unwrap() };
        let (mut first, mut second) = (make(), make());
        encode(&mut *first, &wave(400, 1));
        let mut saved = Vec::new();
        first.visit_state(&mut |name, tensor| saved.push((name, tensor.to_vec())));
        assert_eq!(saved.len(), 2);
        let mut at = saved.iter();
        second.visit_state(&mut |name, tensor| {
            let (saved_name, values) = at.next().unwrap();
            assert_eq!(name, *saved_name);
            tensor.copy_from_slice(values);
        });
        let gradient = wave(400, 2);
        assert_eq!(encode(&mut *first, &gradient).1, encode(&mut *second, &gradient).1);
    }
}
