//! Sizes of convolutions with fewer multiplications: tiles of 2 x 2 outputs of a 3 x 3 kernel by 16 products instead
//! of 36 (Lavin and Gray 2016, after Winograd 1980).

use crate::graph::{Op, Pair, TensorSpec};

/// Elements of a tile between its transforms, and so matrix products of a pass.
pub const FREQUENCIES: u64 = 16;

/// Least number of channels on either side: with fewer the transforms take longer than what they save.
const LEAST_CHANNELS: u64 = 64;

/// Least number of tiles in a row: they are transformed row by row.
const LEAST_COLUMNS: u64 = 4;

/// Least product of the two: where both are small it takes as long as before.
const LEAST_WORK: u64 = 448;

/// Least number of tiles whose products make up for transforming the weights.
const LEAST_TILES: u64 = 64;

/// Tiles of one block, about: 1 MiB with 64 channels on either side, which stays in the second-level cache.
const TILES: u64 = 192;

/// Words that the blocks of all threads together may take; one has what it needs.
const BLOCKS_WORDS: u64 = 1 << 21;

/// Threads that have a block each, at most.
const MOST_BLOCKS: u64 = 8;

/// A convolution that can be computed so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Winograd {
    /// Groups of channels.
    pub groups: u64,
    /// Channels of a group, and output channels.
    pub channels: [u64; 2],
    /// Rows and columns of the input, and of the output.
    pub sizes: [Pair; 2],
}

/// Tiles that are multiplied at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileBlock {
    /// Rows and columns of tiles of an image.
    pub tiles: Pair,
    /// Rows of tiles of a block, those of one sample behind those of another.
    pub rows: u64,
    /// Samples of which blocks are made together.
    pub samples: u64,
}

impl TileBlock {
    /// The blocks of images of `size`.
    pub fn new(size: Pair) -> Self {
        let tiles = size.map(|size| size.div_ceil(2).max(1));
        let samples = (TILES / (tiles[0] * tiles[1])).max(1);
        let rows = samples * tiles[0];
        // Blocks of about the same height.
        let blocks = rows.div_ceil((TILES / tiles[1]).max(1));
        let rows = if samples > 1 { rows } else { rows.div_ceil(blocks) };
        Self { tiles, rows, samples }
    }
}

/// Numbers that the processor takes at a time, or more.
const LINE: u64 = 16;

impl Winograd {
    /// None where `op` is no convolution of this kind, or a narrow one.
    pub fn new(op: &Op, input: &TensorSpec, output: &TensorSpec) -> Option<Self> {
        let Op::Conv2d { kernel, stride, padding, dilation, groups, .. } = op else { return None };
        let channels = [input, output].map(|spec| spec.shape[0] / groups);
        let sizes = [input, output].map(|spec| [spec.shape[1], spec.shape[2]]);
        let fits = *kernel == [3, 3]
            && [stride, dilation].iter().all(|pair| **pair == [1, 1])
            && padding.iter().all(|padding| *padding <= 2)
            && channels.iter().all(|channels| *channels >= LEAST_CHANNELS);
        let columns = sizes.map(|size| size[1].div_ceil(2));
        let columns = columns[0].min(columns[1]);
        let enough = columns >= LEAST_COLUMNS
            && columns.saturating_mul(channels[0].min(channels[1])) >= LEAST_WORK;
        (fits && enough).then_some(Self { groups: *groups, channels, sizes })
    }

    /// Words between the frequencies of so many tiles: whole lines, and one into which their transform may run over.
    pub fn stride(tiles: u64) -> u64 {
        tiles.next_multiple_of(LINE) + LINE
    }

    /// Words between the channels: a line more, so that channels do not fall upon each other in the caches.
    pub fn pitch(tiles: u64) -> u64 {
        FREQUENCIES * Self::stride(tiles) + LINE
    }

    /// Whether so many samples have enough tiles.
    pub fn pays(&self, samples: u64) -> bool {
        let tiles = self.sizes.map(|size| TileBlock::new(size).tiles.iter().product::<u64>());
        tiles.iter().all(|tiles| samples.saturating_mul(*tiles) >= LEAST_TILES)
    }

    /// Words of the transformed weights of all groups.
    pub fn weights(&self) -> u64 {
        self.groups * self.channels[1] * Self::pitch(self.channels[0])
    }

    /// Words of a transformed block, inputs and outputs.
    pub fn block(&self) -> u64 {
        let words =
            self.sizes.map(TileBlock::new).map(|block| Self::pitch(block.rows * block.tiles[1]));
        words[0].max(words[1]) * (self.channels[0] + self.channels[1])
    }

    /// Words of scratch.
    pub fn workspace(&self) -> u64 {
        let block = self.block();
        self.weights() + block * (BLOCKS_WORDS / block).clamp(1, MOST_BLOCKS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_large_and_of_small_images() {
        let block = |size| {
            let block = TileBlock::new(size);
            (block.rows, block.samples)
        };
        assert_eq!(block([56, 56]), (6, 1));
        assert_eq!(block([14, 14]), (21, 3));
        assert_eq!(block([7, 7]), (48, 12));
        assert_eq!(block([600, 600]), (1, 1));
    }

    #[test]
    fn wide_layers_have_one_block_and_narrow_ones_several() {
        let of = |channels: u64, size: u64| Winograd {
            groups: 1,
            channels: [channels; 2],
            sizes: [[size; 2]; 2],
        };
        let blocks = |w: Winograd| (w.workspace() - w.weights()) / w.block();
        assert_eq!(blocks(of(64, 56)), 5);
        assert_eq!(blocks(of(512, 7)), 1);
        assert!(of(64, 16).pays(1) && !of(64, 7).pays(3) && of(64, 7).pays(4));
    }

    #[test]
    fn small_images_need_many_channels() {
        let of = |channels: u64, size: u64, kernel: u64, stride: u64| {
            let op = Op::Conv2d {
                out_channels: channels,
                kernel: [kernel; 2],
                stride: [stride; 2],
                padding: [kernel / 2; 2],
                dilation: [1; 2],
                groups: 1,
                bias: false,
            };
            let input = TensorSpec::f32(vec![channels, size, size]);
            let output = op.infer(&[&input]).unwrap();
            Winograd::new(&op, &input, &output).is_some()
        };
        assert!(of(64, 14, 3, 1) && !of(64, 8, 3, 1) && !of(32, 56, 3, 1));
        assert!(of(128, 7, 3, 1) && !of(512, 6, 3, 1));
        assert!(!of(64, 56, 3, 2) && !of(64, 56, 1, 1) && !of(64, 56, 5, 1));
    }
}
