//! Top-k and PowerSGD.

use super::{encode, pass, relative_error};
use pipewright_core::compress::{Codec, CodecKind, ErrorFeedback, PowerSgd, TopK, orthogonalise};

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
    let mut codec = TopK::with_momentum(count, 50, momentum).unwrap();
    let (mut u, mut v) = (vec![0f32; count], vec![0f32; count]);
    for step in 0..30 {
        let gradient = wave(count, step);
        let (decoded, _) = encode(&mut codec, &gradient);
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
    let (rows, columns) = (60, 40);
    let (a, b) = (wave(rows * 2, 1), wave(columns * 2, 2));
    let element = |r: usize, c: usize| a[2 * r] * b[2 * c] + a[2 * r + 1] * b[2 * c + 1];
    let matrix: Vec<f32> = (0..rows * columns).map(|i| element(i / columns, i % columns)).collect();
    let mut codec = PowerSgd::matrix(rows, columns, 2).unwrap();
    let (decoded, wire) = encode(&mut codec, &matrix);
    assert_eq!(wire.len(), 4 * 2 * (rows + columns));
    assert!(relative_error(&decoded, &matrix) < 1e-5);
    // A step of the distributed form, with one rank, restores the same.
    let mut parts = PowerSgd::matrix(rows, columns, 2).unwrap();
    parts.project(&matrix);
    parts.project_back(&matrix);
    let mut restored = vec![0.0; matrix.len()];
    parts.restore(&mut restored);
    assert_eq!(restored, decoded);
    let (zeros, _) = encode(&mut codec, &vec![0.0; matrix.len()]);
    assert!(zeros.iter().all(|v| *v == 0.0));
    let (again, _) = encode(&mut codec, &matrix);
    assert!(relative_error(&again, &matrix) < 1e-5, "zeros do not end it");
}

#[test]
fn small_matrices_are_sent_as_they_are() {
    let values = wave(64, 3);
    let (decoded, wire) = pass(CodecKind::PowerSgd { rank: 4 }, &values);
    assert_eq!((decoded, wire.len()), (values, 256));
}

#[test]
fn columns_become_orthonormal() {
    let mut matrix = wave(50 * 3, 4);
    orthogonalise(&mut matrix, 3);
    let dot = |i: usize, j: usize| matrix.chunks(3).map(|r| r[i] * r[j]).sum::<f32>();
    for i in 0..3 {
        for j in 0..3 {
            let expected = if i == j { 1.0 } else { 0.0 };
            assert!((dot(i, j) - expected).abs() < 1e-5, "columns {i} and {j}: {}", dot(i, j));
        }
    }
    let mut zero = vec![0.0; 6];
    orthogonalise(&mut zero, 2);
    assert_eq!(zero, vec![0.0; 6]);
}

/// A codec whose state was saved and loaded goes on as if nothing had happened.
#[test]
fn state_can_be_saved() {
    let momentum = || TopK::with_momentum(400, 40, 0.9).unwrap();
    let rank = || ErrorFeedback::new(PowerSgd::flat(400, 2).unwrap(), 400);
    let make: [&dyn Fn() -> Box<dyn Codec>; 2] = [&|| Box::new(momentum()), &|| Box::new(rank())];
    for make in make {
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
