//! The published formulas at fixed points, and what must hold everywhere.

use super::*;
use proptest::prelude::*;

const FLAT: Channel = Channel { alpha: 5e-6, beta: 1e-10, gamma: 0.0 };
const LOCAL: Channel = Channel { alpha: 2e-6, beta: 1.0 / 200e9, gamma: 0.0 };

/// p, n, then ring, recursive doubling, Rabenseifner, binomial, double tree, torus 4 x (p / 4),
/// hierarchical with 4 ranks a node; worked out by hand from the sources of the formulas.
const TABLE: [(u32, f64, [f64; 7]); 7] = [
    (4, 1e3, [3.015e-5, 1.02e-5, 2.015e-5, 2.04e-5, 2.02e-5, 3.015e-5, 1.20075e-5]),
    (16, 1e3, [1.501875e-4, 2.04e-5, 4.01875e-5, 4.08e-5, 4.02e-5, 6.01875e-5, 4.2045e-5]),
    (16, 1e6, [3.375e-4, 4.2e-4, 2.275e-4, 8.4e-4, 2.4e-4, 2.475e-4, 8.7e-5]),
    (16, 1e9, [1.8765e-1, 4.0002e-1, 1.8754e-1, 8.0004e-1, 2.0004e-1, 1.8756e-1, 4.5042e-2]),
    (64, 1e6, [8.26875e-4, 6.3e-4, 2.56875e-4, 1.26e-3, 2.6e-4, 3.76875e-4, 2.16375e-4]),
    (64, 1e9, [1.97505e-1, 6.0003e-1, 1.96935e-1, 1.20006, 2.0006e-1, 1.97055e-1, 5.4537e-2]),
    (
        12,
        1e6,
        [2.933_333_3e-4, 4.2e-4, 4.233_333_3e-4, 8.4e-4, 2.4e-4, 2.333_333_3e-4, 7.283_333_3e-5],
    ),
];

#[test]
fn every_number_of_the_table() {
    for (p, n, expected) in TABLE {
        let mut found = Algorithm::ALL.map(|a| all_reduce(a, p, n, FLAT)).to_vec();
        found.push(torus(4, p / 4, n, FLAT));
        found.push(hierarchical(4, p / 4, n, LOCAL, FLAT));
        for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
            let error = (found / expected - 1.0).abs();
            assert!(error < 1e-6, "p {p}, n {n}, column {i}: {found}, not {expected}");
        }
    }
}

#[test]
fn the_ring_loses_on_latency_and_wins_on_bytes() {
    assert_eq!(best_all_reduce(16, 1e3, FLAT).0, Algorithm::RecursiveDoubling);
    assert_eq!(best_all_reduce(64, 1e9, FLAT).0, Algorithm::Rabenseifner);
    assert_eq!(best_all_reduce(12, 1e9, FLAT).0, Algorithm::Ring);
    let slower = |p| {
        all_reduce(Algorithm::Ring, p, 0.0, FLAT)
            / all_reduce(Algorithm::RecursiveDoubling, p, 0.0, FLAT)
    };
    assert!([4, 8, 16, 32, 64].windows(2).all(|pair| slower(pair[0]) < slower(pair[1])));
}

#[test]
fn bus_bandwidth_of_a_ring_is_the_links() {
    for p in [2, 3, 8, 100] {
        let wire = Channel { alpha: 0.0, ..FLAT };
        let secs = all_reduce(Algorithm::Ring, p, 1e8, wire);
        assert!((bus_bandwidth(Collective::AllReduce, p, 1e8, secs) / 1e10 - 1.0).abs() < 1e-12);
        for c in [Collective::AllGather, Collective::ReduceScatter, Collective::Scatter] {
            let secs = time(c, p, 1e8, wire);
            assert!((bus_bandwidth(c, p, 1e8, secs) / 1e10 - 1.0).abs() < 1e-12, "{c:?}");
        }
    }
}

#[test]
fn one_inter_node_reduction_carries_the_whole_array() {
    // Without codec and with free links inside, Oyama's form is a flat ring of the leaders.
    let free = Channel { alpha: 0.0, beta: 0.0, gamma: 0.0 };
    let form = oyama(4, 16, 1e9, 1.0, free, FLAT);
    assert!((form / all_reduce(Algorithm::Ring, 16, 1e9, FLAT) - 1.0).abs() < 1e-12);
    assert!(form > 3.9 * hierarchical(4, 16, 1e9, free, FLAT));
    assert_eq!(oyama(1, 1, 1e9, 1.0, free, FLAT), 0.0);
}

fn channel() -> impl Strategy<Value = Channel> {
    (0.0..1e-3f64, 1e-12..1e-6f64, 0.0..1e-8f64).prop_map(|(alpha, beta, gamma)| Channel {
        alpha,
        beta,
        gamma,
    })
}

const COLLECTIVES: [Collective; 8] = [
    Collective::AllReduce,
    Collective::ReduceScatter,
    Collective::AllGather,
    Collective::AllToAll,
    Collective::Broadcast,
    Collective::Reduce,
    Collective::Scatter,
    Collective::Gather,
];

proptest! {
    #[test]
    fn alone_nothing_costs_anything(n in 0.0..1e12f64, over in channel()) {
        for algorithm in Algorithm::ALL {
            prop_assert_eq!(all_reduce(algorithm, 1, n, over), 0.0);
        }
        for collective in COLLECTIVES {
            prop_assert_eq!(time(collective, 1, n, over), 0.0);
        }
        prop_assert_eq!(torus(1, 1, n, over), 0.0);
        prop_assert_eq!(two_shot(1, n, 0.25, over), 0.0);
        prop_assert_eq!(compressed_all_gather(1, n, 0.25, over), 0.0);
    }

    #[test]
    fn more_bytes_never_cost_less(
        p in 1u32..300, n in 0.0..1e10f64, more in 0.0..1e10f64, over in channel(),
    ) {
        for algorithm in Algorithm::ALL {
            prop_assert!(
                all_reduce(algorithm, p, n, over) <= all_reduce(algorithm, p, n + more, over)
            );
        }
        for collective in COLLECTIVES {
            prop_assert!(time(collective, p, n, over) <= time(collective, p, n + more, over));
        }
        prop_assert!(two_shot(p, n, 0.25, over) <= two_shot(p, n + more, 0.25, over));
    }

    #[test]
    fn ring_torus_and_rabenseifner_send_the_fewest_bytes(
        x in 1u32..20, y in 1u32..20, k in 0u32..9, n in 1.0..1e10f64, beta in 1e-12..1e-6f64,
    ) {
        let wire = Channel { alpha: 0.0, beta, gamma: 0.0 };
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b;
        prop_assert!(near(torus(x, y, n, wire), all_reduce(Algorithm::Ring, x * y, n, wire)));
        // Alike links: the hierarchy has the flat ring's bandwidth term.
        prop_assert!(near(
            hierarchical(x, y, n, wire, wire),
            all_reduce(Algorithm::Ring, x * y, n, wire)
        ));
        prop_assert!(near(
            all_reduce(Algorithm::Rabenseifner, 1 << k, n, wire),
            all_reduce(Algorithm::Ring, 1 << k, n, wire)
        ));
        for algorithm in Algorithm::ALL {
            let least = wire_bytes(Algorithm::Ring, x * y, n) * (1.0 - 1e-12);
            let sent = wire_bytes(algorithm, x * y, n);
            // A binomial tree's root sends lg p times, its leaves once.
            prop_assert!(sent >= least || algorithm == Algorithm::Binomial, "{algorithm:?}");
        }
    }

    #[test]
    fn an_all_reduce_is_a_reduce_scatter_and_an_all_gather(
        p in 2u32..200, n in 1.0..1e10f64, over in channel(),
    ) {
        let ring = all_reduce(Algorithm::Ring, p, n, over);
        let halves = time(Collective::ReduceScatter, p, n, over)
            + time(Collective::AllGather, p, n, over);
        // Powers of two need fewer messages.
        prop_assert!(halves <= ring * (1.0 + 1e-9));
        prop_assert!(best_all_reduce(p, n, over).1 <= ring);
    }

    #[test]
    fn two_shot_beats_all_gather_from_three_ranks_on(
        p in 3u32..100, ratio in 0.01..1.0f64, beta in 1e-12..1e-6f64,
    ) {
        let wire = Channel { alpha: 0.0, beta, gamma: 0.0 };
        prop_assert!(two_shot(p, 1e8, ratio, wire) < compressed_all_gather(p, 1e8, ratio, wire));
        // And the all-gather beats a plain ring only for p < 2 / r.
        let gathered = compressed_all_gather(p, 1e8, ratio, wire);
        let faster = gathered < all_reduce(Algorithm::Ring, p, 1e8, wire);
        let boundary = (f64::from(p) * ratio / 2.0 - 1.0).abs() < 1e-6;
        prop_assert!(boundary || faster == (f64::from(p) < 2.0 / ratio));
    }
}
