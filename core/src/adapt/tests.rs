//! Solver and derivatives, which nobody outside can reach.

use super::curve::Curve;
use super::least_squares::{Equations, fit};
use super::two_stage::Point;
use super::weights::non_negative;

#[test]
fn derivatives_are_those_of_the_values() {
    for curve in Curve::ALL {
        let at = curve.start();
        for x in [1.0, 7.0, 300.0] {
            let (value, gradient) = curve.with_gradient(&at, x);
            assert_eq!(value, curve.value(&at, x));
            for i in 0..4 {
                let moved = |by: f64| {
                    let mut at = at;
                    at[i] += by;
                    curve.value(&at, x)
                };
                let slope = (moved(1e-6) - moved(-1e-6)) / 2e-6;
                assert!((slope - gradient[i]).abs() < 1e-6, "{curve:?} at {x}, parameter {i}");
            }
        }
    }
}

#[test]
fn dependent_unknowns_have_no_solution() {
    let equations = |off| Equations { left: [[4.0, 0.0], [2.0, 1.0 + off]], right: [8.0, 5.0] };
    assert_eq!(equations(0.0).solve(2, 1e-13), None);
    let solution = equations(1.0).solve(2, 1e-13).unwrap();
    // 4 a + 2 b = 8, 2 a + 2 b = 5
    assert!((solution[0] - 1.5).abs() < 1e-12 && (solution[1] - 1.0).abs() < 1e-12);
}

#[test]
fn weights_are_never_negative() {
    let (a, b) = (vec![1.0, 2.0, 3.0], vec![1.0, 1.0, 1.0]);
    let weights = non_negative(&[a.clone(), b.clone()], &[3.0, 5.0, 7.0]);
    assert!((weights[0] - 2.0).abs() < 1e-9 && (weights[1] - 1.0).abs() < 1e-9);
    // Freely, 2 a - b; without b, the projection on a: (1 + 6 + 15) / 14.
    let weights = non_negative(&[a.clone(), b], &[1.0, 3.0, 5.0]);
    assert!((weights[0] - 22.0 / 14.0).abs() < 1e-9 && weights[1] == 0.0);
    assert_eq!(non_negative(&[a], &[-1.0, -1.0, -1.0]), [0.0; 5]);
}

#[test]
fn noise_free_curves_are_found() {
    let truths = [
        (Curve::Vap, [-0.3, -2.0, 0.01, 0.0]),
        (Curve::Pow3, [0.8, 0.7, 0.5, 0.0]),
        (Curve::LogPower, [0.75, 2.2, -0.9, 0.0]),
        (Curve::Ilog2, [0.85, 0.45, 0.0, 0.0]),
        (Curve::Weibull, [0.73, 0.05, (0.06f64).ln(), 0.9]),
    ];
    for (curve, truth) in truths {
        let point = |x| Point { x, accuracy: curve.value(&truth, x) };
        let points: Vec<Point> = (1..=40).map(|x| point(f64::from(x))).collect();
        let (found, squares) = fit(curve, &points).unwrap();
        assert!(squares < 1e-12, "{curve:?}: {squares:e}");
        let off = (curve.value(&found, 120.0) - curve.value(&truth, 120.0)).abs();
        assert!(off < 1e-6, "{curve:?}: {off:e}");
    }
}
