//! Synthetic samples are fixed for ever, and there is something to learn in them.

use super::super::open;
use super::super::random::{Purpose, bell, stream};
use super::super::tests::{classes, language, regression, target, tokens, values};
use super::super::{DataSet, Split};
use super::Patterns;
use pipewright_core::graph::{InputSpec, SampleSpec, TargetSpec};
use pipewright_core::plan::Data;
use rand_chacha::rand_core::Rng;

fn set(lens: [u64; 2], sample: &SampleSpec, seed: u64) -> DataSet {
    open(&Data::Synthetic { train: lens[0], test: lens[1] }, sample, seed).unwrap()
}

#[test]
fn samples_are_fixed_for_ever() {
    let set = set([10, 10], &classes(&[3], 2), 5);
    // Computed by a second implementation, in Python.
    assert_eq!(tokens(&set.train, 0), [3216741319, 3196274922, 3212016033]);
    assert_eq!(tokens(&set.train, 9), [1061872479, 1058496640, 3217566003]);
    assert_eq!(tokens(&set.test, 0), [3207591784, 1070989234, 1074588380]);
}

/// How many test samples lie nearest to the mean of their own class's training samples.
fn nearest(set: &DataSet, classes: usize, class: impl Fn(&Split, u64) -> usize) -> usize {
    let mut means = vec![vec![0.0; set.train.input_words()]; classes];
    // The means of the training samples of each class, as a linear model would find them.
    for i in 0..set.train.len() {
        let mean = &mut means[class(&set.train, i)];
        for (m, v) in mean.iter_mut().zip(values(&set.train, i)) {
            *m += v * classes as f32 / set.train.len() as f32;
        }
    }
    let distance = |mean: &[f32], x: &[f32]| -> f32 {
        mean.iter().zip(x).map(|(a, b)| (a - b) * (a - b)).sum()
    };
    let right = |&i: &u64| {
        let x = values(&set.test, i);
        let by_distance =
            |&a: &usize, &b: &usize| distance(&means[a], &x).total_cmp(&distance(&means[b], &x));
        (0..classes).min_by(by_distance) == Some(class(&set.test, i))
    };
    (0..set.test.len()).filter(right).count()
}

#[test]
fn a_nearest_pattern_classifier_beats_chance_by_far() {
    for shape in [&[64][..], &[1, 8, 8], &[3, 32, 32], &[1, 1, 7, 5]] {
        let set = set([1000, 200], &classes(shape, 10), 42);
        let right = nearest(&set, 10, |split, i| split.label(i) as usize);
        assert!(right > 160, "{shape:?}: {right} of 200");
    }
}

#[test]
fn the_next_token_follows_from_the_last() {
    for (length, vocabulary) in [(32, 65), (16, 50257)] {
        let set = set([400, 100], &language(length, vocabulary), 3);
        // The most frequent successor of each token.
        let mut follows = vec![[0u32; 256]; 256];
        for i in 0..set.train.len() {
            let (x, y) = (tokens(&set.train, i), target(&set.train, i));
            assert_eq!(x[1..], y[..y.len() - 1], "the same sentence, one further on");
            x.iter().zip(&y).for_each(|(x, y)| follows[*x as usize][*y as usize] += 1);
        }
        let next = |token: u32| (0..256).max_by_key(|&y| follows[token as usize][y]).unwrap();
        let (mut right, mut all) = (0, 0);
        for i in 0..set.test.len() {
            let (x, y) = (tokens(&set.test, i), target(&set.test, i));
            right += x.iter().zip(&y).filter(|(x, y)| next(**x) == **y as usize).count();
            all += x.len();
        }
        assert!(right * 3 > all * 2, "{right} of {all} with {vocabulary} tokens");
    }
}

#[test]
fn tokens_tell_their_class() {
    let sample = SampleSpec {
        input: InputSpec::Tokens { length: 20, vocabulary: 100 },
        target: TargetSpec::Classes { count: 1, classes: 7 },
    };
    let set = set([70, 70], &sample, 1);
    for i in 0..70 {
        let class = target(&set.test, i)[0];
        assert_eq!(u64::from(class), i % 7);
        let own = |t: &&u32| **t / 4 == class;
        assert!(tokens(&set.test, i).iter().filter(own).count() >= 10);
        assert!(tokens(&set.test, i).iter().all(|t| *t < 100));
    }
    assert_ne!(tokens(&set.test, 0), tokens(&set.train, 0));
}

#[test]
fn target_values_and_positions_follow_the_hidden_class() {
    let set_of_values = set([500, 100], &regression(&[3, 16, 16], &[2, 5]), 7);
    let hidden = |_: &Split, i: u64| (i % 10) as usize;
    assert!(nearest(&set_of_values, 10, hidden) > 80);
    let values_of = |split: &Split, i| -> Vec<f32> {
        target(split, i).into_iter().map(f32::from_bits).collect()
    };
    let first = values_of(&set_of_values.train, 3);
    assert_eq!(first, values_of(&set_of_values.test, 13), "the same class, the same answer");
    assert!(first.iter().all(|v| (-1.0..1.0).contains(v)));
    assert_ne!(first, values_of(&set_of_values.train, 4));

    let pixels = SampleSpec {
        input: InputSpec::Values { shape: vec![3, 8, 8] },
        target: TargetSpec::Classes { count: 64, classes: 5 },
    };
    let set = set([10, 0], &pixels, 7);
    let classes: Vec<u32> = (0..10).flat_map(|i| target(&set.train, i)).collect();
    assert!((0..5).all(|class| classes.contains(&class)) && classes.iter().all(|c| *c < 5));
    // A cell of the pattern is 2 x 2 pixels.
    let one = target(&set.train, 0);
    assert_eq!([one[1], one[8], one[9]], [one[0]; 3]);
}

#[test]
fn the_smallest_shapes_work() {
    for shape in [&[][..], &[1], &[1, 1], &[2, 1, 1]] {
        let set = set([4, 0], &classes(shape, 3), 1);
        assert!(values(&set.train, 3).iter().all(|v| v.is_finite()));
        assert_eq!(set.train.label(3), 0);
    }
    let set = set([4, 4], &language(1, 1), 1);
    assert_eq!((tokens(&set.train, 0), target(&set.test, 3)), (vec![0], vec![0]));
}

/// Drawn all at once or word by word, run by run or place by place.
#[test]
fn samples_are_words_of_a_stream_on_a_pattern() {
    for shape in [&[3, 37, 41][..], &[1, 2, 3], &[2, 4, 4], &[130], &[63], &[5, 9]] {
        let patterns = Patterns::new(Purpose::Centre, shape, 3, 8);
        let set = set([7, 1], &classes(shape, 3), 8);
        for index in [0, 5] {
            let mut words = stream(Purpose::TrainNoise, 8, index);
            let class = (index % 3) as u32;
            let place = |element| patterns.at(class, element) + bell(words.next_u32());
            let expected: Vec<f32> = (0..patterns.elements()).map(place).collect();
            assert_eq!(values(&set.train, index), expected, "{shape:?}");
        }
    }
}
