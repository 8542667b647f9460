//! Oyama's loop replayed on made-up trainings: what the choice costs and where it ends.
//!
//! A training here is a number, how much of what can be learned has been learned. Each method moves
//! it towards a ceiling of its own, at a pace of its own: lossy methods are fast and end lower. What the choice
//! sees of it are accuracies of mini-batches, with the noise that counting has.

use pipewright_core::adapt::{History, Round, Trial};

const STEPS: u64 = 2400;
const EVERY: u64 = 200;
const TRIAL: u64 = 20;
const BATCH: u32 = 64;

#[derive(Clone, Copy)]
struct Method {
    name: &'static str,
    /// Where it ends.
    ceiling: f64,
    /// Share of the way to the ceiling that a step makes.
    pace: f64,
    seconds: f64,
}

/// CaffeNet as the paper has it: 1.7 and 13.5 points lost, 2.3 and 2.5 times as fast.
const CAFFENET: [Method; 3] = [
    Method { name: "fp32", ceiling: 0.750, pace: 0.004, seconds: 0.100 },
    Method { name: "fp8", ceiling: 0.733, pace: 0.004, seconds: 0.043 },
    Method { name: "table(1)", ceiling: 0.615, pace: 0.004, seconds: 0.040 },
];

/// GoogLeNet: all within a point.
const GOOGLENET: [Method; 3] = [
    Method { name: "fp32", ceiling: 0.800, pace: 0.003, seconds: 0.100 },
    Method { name: "fp8", ceiling: 0.798, pace: 0.003, seconds: 0.045 },
    Method { name: "table(1)", ceiling: 0.794, pace: 0.003, seconds: 0.041 },
];

/// A method that learns nothing, and one that is no faster.
const TRAPS: [Method; 3] = [
    Method { name: "fp32", ceiling: 0.700, pace: 0.004, seconds: 0.100 },
    Method { name: "slow", ceiling: 0.690, pace: 0.004, seconds: 0.120 },
    Method { name: "deaf", ceiling: 0.060, pace: 0.010, seconds: 0.020 },
];

/// Accuracies as they are counted.
struct Counter(u64);

impl Counter {
    /// Uniform in [0, 1): splitmix64.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Samples of a step are the same whoever trains on them.
    fn count(seed: u64, step: u64, accuracy: f64) -> f64 {
        let mut draws = Self(seed << 32 | step);
        let right = (0..BATCH).filter(|_| draws.next() < accuracy).count();
        right as f64 / f64::from(BATCH)
    }
}

fn step(learned: f64, method: Method) -> f64 {
    learned + method.pace * (method.ceiling - learned)
}

/// Accuracy after all steps by one method, and its time.
fn single(method: Method) -> (f64, f64) {
    let learned = (0..STEPS).fold(1.0 / 16.0, |learned, _| step(learned, method));
    (learned, STEPS as f64 * method.seconds)
}

/// What the loop ends with: accuracy, seconds of steps and of trials that do not count.
struct Replayed {
    accuracy: f64,
    seconds: f64,
    trials: f64,
    chosen: Vec<&'static str>,
}

/// The loop, with trials side by side on `groups` groups of ranks.
fn replay(methods: &[Method], seed: u64, groups: usize) -> Replayed {
    let mut history = History::new(TRIAL / 10);
    let mut end = Replayed { accuracy: 1.0 / 16.0, seconds: 0.0, trials: 0.0, chosen: vec![] };
    let mut at = 0;
    while at < STEPS {
        let tried: Vec<Vec<(f64, f64)>> = methods
            .iter()
            .map(|method| {
                let mut learned = end.accuracy;
                let mut all = vec![];
                for at in at..at + TRIAL {
                    learned = step(learned, *method);
                    all.push((learned, Counter::count(seed, at, learned)));
                }
                all
            })
            .collect();
        let seconds: Vec<f64> = methods.iter().map(|method| method.seconds).collect();
        let spent = trial_seconds(&seconds, TRIAL, groups);
        let trial = |(method, tried): (&Method, &Vec<(f64, f64)>)| {
            let mut points = History::new(TRIAL / 10);
            (at..).zip(tried).for_each(|(step, (_, seen))| points.push(step, *seen));
            let (name, points) = (method.name.into(), points.points().to_vec());
            Trial {
                name,
                diverged: false,
                losses: vec![],
                points,
                seconds_per_step: method.seconds,
            }
        };
        let trials = methods.iter().zip(&tried).map(trial).collect();
        let history_points = history.points().to_vec();
        let round = Round {
            step: at,
            every: EVERY,
            end: STEPS,
            samples: u64::from(BATCH),
            history: history_points,
            trials,
            trial_seconds: spent,
        };
        let winner = round.decide().unwrap().winner();
        let method = methods[winner];
        end.chosen.push(method.name);
        end.trials += spent - TRIAL as f64 * method.seconds;
        for (step, (learned, seen)) in (at..).zip(&tried[winner]) {
            end.accuracy = *learned;
            history.push(step, *seen);
        }
        for at in at + TRIAL..at + EVERY {
            end.accuracy = step(end.accuracy, method);
            history.push(at, Counter::count(seed, at, end.accuracy));
        }
        end.seconds += EVERY as f64 * method.seconds;
        at += EVERY;
    }
    end.seconds += end.trials;
    end
}

#[test]
fn the_choice_never_ends_half_a_point_below_the_best_method() {
    for (name, methods) in [("caffenet", CAFFENET), ("googlenet", GOOGLENET), ("traps", TRAPS)] {
        let best = methods.map(|method| single(method).0).into_iter().fold(0.0, f64::max);
        let (mut worst, mut seconds) = (0.0f64, 0.0);
        for seed in 0..40 {
            let end = replay(&methods, seed, 1);
            let below = 100.0 * (best - end.accuracy);
            (worst, seconds) = (worst.max(below), seconds + end.seconds / 40.0);
            assert!(below <= 0.5, "{name}, seed {seed}: {below:.2} points, {:?}", end.chosen);
        }
        let plain = single(methods[0]).1;
        println!(
            "{name}: at most {worst:.2} points below, {:.2}x as fast, trials included",
            plain / seconds
        );
    }
}

#[test]
fn trials_take_time_and_less_side_by_side() {
    for seed in 0..5 {
        let alone = replay(&CAFFENET, seed, 1);
        let groups = replay(&CAFFENET, seed, 3);
        assert!(alone.trials > 0.0 && groups.trials < alone.trials);
        assert_eq!(alone.chosen.len() as u64, STEPS / EVERY);
    }
}

/// Seconds that trials of `steps` steps take, one after another or, on `groups` replica groups that are
/// spare, so many at once in the order given: each round takes as long as its slowest.
fn trial_seconds(seconds_per_step: &[f64], steps: u64, groups: usize) -> f64 {
    let rounds = seconds_per_step.chunks(groups.max(1));
    let slowest = |round: &[f64]| round.iter().copied().fold(0.0, f64::max);
    steps as f64 * rounds.map(slowest).sum::<f64>()
}

#[test]
fn trials_of_several_groups_wait_for_the_slowest() {
    let seconds = [0.1, 0.04, 0.05];
    let close = |a: f64, b: f64| (a - b).abs() < 1e-12;
    assert!(close(trial_seconds(&seconds, 10, 1), 1.9));
    assert!(
        close(trial_seconds(&seconds, 10, 2), 1.5) && close(trial_seconds(&seconds, 10, 9), 1.0)
    );
}
