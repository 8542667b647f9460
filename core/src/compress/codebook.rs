//! Magnitudes that stand for all magnitudes of a tensor: Oyama's percentiles, or means of cells.

use super::sample::{self, percentile};

/// How a table's magnitudes are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Levels {
    /// Oyama's table(N): the percentiles 99·i/m, i = 1..m, of the sampled magnitudes. Most values
    /// grow: a normal gradient to twice its size with one magnitude.
    Percentiles,
    /// Ours: each magnitude is the mean of those that it stands for, found from the percentiles by
    /// Lloyd's iteration on the sample. The sum of the sample's magnitudes stays what it was.
    Means,
}

/// Most magnitudes of a codebook: seven bits, and one for the sign.
pub const MOST: usize = 128;

/// Rounds of Lloyd's iteration: the distortion changes by less than a percent after these.
const ROUNDS: usize = 8;

/// Magnitudes, ascending, and where one gives way to the next.
#[derive(Clone, Debug)]
pub struct Codebook {
    magnitudes: [f32; MOST],
    /// Largest magnitude that is nearer to the i-th than to the next; infinity behind the last.
    borders: [f32; MOST],
    count: usize,
    /// Sums of the sample's first 0, 1, 2, ... magnitudes.
    sums: Vec<f64>,
}

impl Codebook {
    /// A codebook of `count` magnitudes, all zero until [`Codebook::choose`].
    pub fn new(count: usize) -> Self {
        let sums = Vec::with_capacity(sample::MOST + 1);
        Self { magnitudes: [0.0; MOST], borders: [f32::INFINITY; MOST], count, sums }
    }

    /// The magnitudes.
    pub fn magnitudes(&self) -> &[f32] {
        &self.magnitudes[..self.count]
    }

    /// The borders: `magnitude > borders[i]` says that it belongs behind i.
    pub fn borders(&self) -> &[f32; MOST] {
        &self.borders
    }

    /// Chooses magnitudes for the sorted sample.
    pub fn choose(&mut self, sorted: &[f32], levels: Levels) {
        let count = self.count as f64;
        for (i, magnitude) in self.magnitudes[..self.count].iter_mut().enumerate() {
            *magnitude = percentile(sorted, 99.0 * (i + 1) as f64 / count) as f32;
        }
        self.place_borders();
        if levels == Levels::Means {
            self.add_up(sorted);
            for _ in 1..ROUNDS {
                self.move_to_means(sorted);
                self.place_borders();
            }
            // The borders stay: magnitudes are the means of just the cells that are encoded.
            self.move_to_means(sorted);
        }
    }

    /// Borders half way; a tie goes to the smaller magnitude.
    fn place_borders(&mut self) {
        self.borders = [f32::INFINITY; MOST];
        let pairs = self.magnitudes[..self.count].windows(2);
        for (border, pair) in self.borders.iter_mut().zip(pairs) {
            let middle = (f64::from(pair[0]) + f64::from(pair[1])) / 2.0; // exact
            let rounded = middle as f32;
            let above = f64::from(rounded) > middle;
            *border = if above { rounded.next_down() } else { rounded };
        }
    }

    fn add_up(&mut self, sorted: &[f32]) {
        let mut total = 0.0;
        self.sums.clear();
        self.sums.push(total);
        self.sums.extend(sorted.iter().map(|magnitude| {
            total += f64::from(*magnitude);
            total
        }));
    }

    /// Each magnitude becomes the mean of its cell; an empty cell keeps its own.
    fn move_to_means(&mut self, sorted: &[f32]) {
        let mut from = 0;
        for (magnitude, border) in self.magnitudes[..self.count].iter_mut().zip(self.borders) {
            let until = from + sorted[from..].partition_point(|m| *m <= border);
            if until > from {
                let sum = self.sums[until] - self.sums[from];
                *magnitude = (sum / (until - from) as f64) as f32;
            }
            from = until;
        }
    }
}
