//! Samples drawn from the plan's seed: a random pattern per class plus noise per element.
//!
//! A class's pattern is coarse (at most 4 x 4 cells per channel, at most 64 in a flat vector) and
//! constant within a cell. So it survives strides and pooling, which white noise would not: small
//! convolutional networks learn it as well as dense ones. The noise has variance 1 against the
//! pattern's 1/3, so a single element says little and the loss falls over tens of steps.

use super::random::{Purpose, bell, stream, symmetric};
use rand_chacha::rand_core::Rng;
use std::sync::Arc;

/// Cells of a pattern along the rows and along the columns of an image.
const IMAGE_CELLS: u64 = 4;
/// Cells of the pattern of a flat vector.
const VECTOR_CELLS: u64 = 64;

/// One split: labels and values are functions of (seed, index), nothing is stored per sample.
#[derive(Debug)]
pub(super) struct Synthetic {
    len: u64,
    noise: Purpose,
    seed: u64,
    patterns: Arc<Patterns>,
}

/// What the classes look like; both splits share it.
#[derive(Debug)]
struct Patterns {
    classes: u32,
    /// Channels, rows, columns of a sample.
    image: [usize; 3],
    /// Channels, rows, columns of a pattern.
    cells: [usize; 3],
    /// All patterns, class by class.
    values: Vec<f32>,
}

/// The splits of `lens` = [train, test] samples. Needs `classes` > 0 and no empty axis.
pub(super) fn pair(
    lens: [u64; 2],
    sample_shape: &[u64],
    classes: u32,
    seed: u64,
) -> (Synthetic, Synthetic) {
    let patterns = Arc::new(Patterns::new(sample_shape, classes, seed));
    let split = |len, noise| Synthetic { len, noise, seed, patterns: Arc::clone(&patterns) };
    (split(lens[0], Purpose::TrainNoise), split(lens[1], Purpose::TestNoise))
}

impl Synthetic {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Classes take turns: every split is balanced, and the sampler shuffles.
    pub(super) fn label(&self, index: u64) -> u32 {
        (index % u64::from(self.patterns.classes)) as u32
    }

    pub(super) fn write_sample(&self, index: u64, out: &mut [f32]) {
        let [channels, rows, columns] = self.patterns.image;
        assert_eq!(out.len(), channels * rows * columns, "length of a sample");
        let mut noise = stream(self.noise, self.seed, index);
        let pattern = self.patterns.of(self.label(index));
        let [_, cell_rows, cell_columns] = self.patterns.cells;
        for (line, row) in out.chunks_exact_mut(columns).enumerate() {
            let (channel, y) = (line / rows, line % rows);
            let cells = channel * cell_rows + y * cell_rows / rows;
            let cells = &pattern[cells * cell_columns..][..cell_columns];
            for (x, value) in row.iter_mut().enumerate() {
                *value = cells[x * cell_columns / columns] + bell(noise.next_u32());
            }
        }
    }
}

impl Patterns {
    fn new(sample_shape: &[u64], classes: u32, seed: u64) -> Self {
        let (image, cells) = match *sample_shape {
            [.., rows, columns] => {
                let channels = sample_shape[..sample_shape.len() - 2].iter().product();
                let cells = [channels, rows.min(IMAGE_CELLS), columns.min(IMAGE_CELLS)];
                ([channels, rows, columns], cells)
            }
            [columns] => ([1, 1, columns], [1, 1, columns.min(VECTOR_CELLS)]),
            [] => ([1; 3], [1; 3]),
        };
        let of_one: u64 = cells.iter().product();
        let mut values = Vec::with_capacity(classes as usize * of_one as usize);
        for class in 0..classes {
            let mut rng = stream(Purpose::Centre, seed, u64::from(class));
            values.extend((0..of_one).map(|_| symmetric(rng.next_u32())));
        }
        let sized = |sizes: [u64; 3]| sizes.map(|size| size as usize);
        Self { classes, image: sized(image), cells: sized(cells), values }
    }

    fn of(&self, class: u32) -> &[f32] {
        let cells: usize = self.cells.iter().product();
        &self.values[class as usize * cells..][..cells]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(split: &Synthetic, index: u64, len: usize) -> Vec<f32> {
        let mut out = vec![f32::NAN; len];
        split.write_sample(index, &mut out);
        out
    }

    #[test]
    fn samples_are_fixed_for_ever() {
        let (train, test) = pair([10, 10], &[3], 2, 5);
        let bits = |split, index| -> Vec<u32> {
            sample(split, index, 3).iter().map(|v| v.to_bits()).collect()
        };
        // Computed by a second implementation, in Python.
        assert_eq!(bits(&train, 0), [3216741319, 3196274922, 3212016033]);
        assert_eq!(bits(&train, 9), [1061872479, 1058496640, 3217566003]);
        assert_eq!(bits(&test, 0), [3207591784, 1070989234, 1074588380]);
    }

    #[test]
    fn a_nearest_pattern_classifier_beats_chance_by_far() {
        for shape in [&[64][..], &[1, 8, 8], &[3, 32, 32], &[1, 1, 7, 5]] {
            let elements = shape.iter().product::<u64>() as usize;
            let (train, test) = pair([1000, 200], shape, 10, 42);
            // The means of the training samples of each class, as a linear model would find them.
            let mut means = vec![vec![0.0; elements]; 10];
            for i in 0..train.len() {
                let mean = &mut means[train.label(i) as usize];
                for (m, v) in mean.iter_mut().zip(sample(&train, i, elements)) {
                    *m += v / 100.0;
                }
            }
            let distance = |a: &[f32], b: &[f32]| -> f32 {
                a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
            };
            let right = (0..test.len())
                .filter(|&i| {
                    let x = sample(&test, i, elements);
                    let nearest = (0..10)
                        .min_by(|&a, &b| {
                            distance(&means[a], &x).total_cmp(&distance(&means[b], &x))
                        })
                        .unwrap();
                    nearest == test.label(i) as usize
                })
                .count();
            assert!(right > 160, "{shape:?}: {right} of 200");
        }
    }

    #[test]
    fn the_smallest_shapes_work() {
        for shape in [&[][..], &[1], &[1, 1], &[2, 1, 1]] {
            let (train, _) = pair([4, 0], shape, 3, 1);
            let elements = shape.iter().product::<u64>() as usize;
            assert!(sample(&train, 3, elements).iter().all(|v| v.is_finite()));
            assert_eq!(train.label(3), 0);
        }
    }
}
