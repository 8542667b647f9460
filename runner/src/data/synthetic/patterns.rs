//! Patterns that the samples of a class share.

use super::super::random::{Purpose, stream, symmetric};
use rand_chacha::rand_core::Rng;

/// Cells of a pattern along the rows and along the columns of an image.
const IMAGE_CELLS: u64 = 4;
/// Cells of the pattern of a flat vector.
const VECTOR_CELLS: u64 = 64;

/// A coarse pattern of cells for each class, uniform in ±1.
#[derive(Debug)]
pub(super) struct Patterns {
    /// Channels, rows, columns of a sample.
    image: [usize; 3],
    /// Channels, rows, columns of a pattern.
    cells: [usize; 3],
    /// All patterns, class by class.
    values: Vec<f32>,
}

impl Patterns {
    pub(super) fn new(purpose: Purpose, shape: &[u64], classes: u32, seed: u64) -> Self {
        let (image, cells) = match *shape {
            [.., rows, columns] => {
                let channels = shape[..shape.len() - 2].iter().product();
                let cells = [channels, rows.min(IMAGE_CELLS), columns.min(IMAGE_CELLS)];
                ([channels, rows, columns], cells)
            }
            [columns] => ([1, 1, columns], [1, 1, columns.min(VECTOR_CELLS)]),
            [] => ([1; 3], [1; 3]),
        };
        let of_one: u64 = cells.iter().product();
        let mut values = Vec::with_capacity(classes as usize * of_one as usize);
        for class in 0..classes {
            let mut rng = stream(purpose, seed, u64::from(class));
            values.extend((0..of_one).map(|_| symmetric(rng.next_u32())));
        }
        let sized = |sizes: [u64; 3]| sizes.map(|size| size as usize);
        Self { image: sized(image), cells: sized(cells), values }
    }

    /// Elements of one channel.
    pub(super) fn pixels(&self) -> usize {
        self.image[1] * self.image[2]
    }

    /// Elements of one sample.
    pub(super) fn elements(&self) -> usize {
        self.image.iter().product()
    }

    /// Adds a class's pattern to a whole sample. Of a row every cell is a run: a division for each, not
    /// for each value.
    pub(super) fn add(&self, class: u32, sample: &mut [f32]) {
        let [_, rows, columns] = self.image;
        let [_, cell_rows, cell_columns] = self.cells;
        let pattern = self.of(class);
        for (line, row) in sample.chunks_exact_mut(columns).enumerate() {
            let (channel, y) = (line / rows, line % rows);
            let cells = channel * cell_rows + y * cell_rows / rows;
            let cells = &pattern[cells * cell_columns..][..cell_columns];
            let mut rest = row;
            let mut done = 0;
            for (cell, value) in cells.iter().enumerate() {
                // The first place x with x · cells / columns > cell.
                let end = ((cell + 1) * columns).div_ceil(cell_columns);
                let (run, others) = std::mem::take(&mut rest).split_at_mut(end - done);
                run.iter_mut().for_each(|x| *x += value);
                (rest, done) = (others, end);
            }
        }
    }

    /// A class's pattern at one element.
    pub(super) fn at(&self, class: u32, element: usize) -> f32 {
        let [_, rows, columns] = self.image;
        let [_, cell_rows, cell_columns] = self.cells;
        let (line, x) = (element / columns, element % columns);
        let (channel, y) = (line / rows, line % rows);
        let cells = channel * cell_rows + y * cell_rows / rows;
        self.of(class)[cells * cell_columns + x * cell_columns / columns]
    }

    fn of(&self, class: u32) -> &[f32] {
        let cells: usize = self.cells.iter().product();
        &self.values[class as usize * cells..][..cells]
    }
}
