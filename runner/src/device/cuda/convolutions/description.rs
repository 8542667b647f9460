//! Convolutions as cuDNN has them: sizes of images and weights, `int`s throughout.

use crate::device::cuda::kernels::{ConvolutionShape, ConvolutionStep, Storage};

/// A convolution whose tensors lie row by row, one axis in the other: `NCHW`, weights `KCRS`, or with channels
/// innermost `NHWC` and `KRSC`. Sizes are told in the first order whatever it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    /// Samples, channels, rows, columns of the image that windows slide over.
    pub x: [i32; 4],
    /// Outputs, channels of a group, rows, columns.
    pub weight: [i32; 4],
    /// Samples, outputs, rows, columns.
    pub y: [i32; 4],
    /// Groups.
    pub groups: i32,
    /// Pairs are (rows, columns).
    pub padding: [i32; 2],
    /// From a window to the next.
    pub stride: [i32; 2],
    /// From an element of a window to the next.
    pub dilation: [i32; 2],
    /// Whether channels are innermost.
    pub channels_last: bool,
}

/// Sizes as the library takes them; `None` where the tensor has 2^31 elements or more, which its
/// kernels do not count.
fn sizes(of: [u64; 4]) -> Option<[i32; 4]> {
    let all = of.into_iter().try_fold(1, u64::checked_mul)?;
    i32::try_from(all).is_ok().then(|| of.map(|size| size as i32))
}

impl Description {
    /// That of a convolution; `None` where its tensors are too large for the library.
    pub fn of(shape: &ConvolutionShape, channels_last: bool) -> Option<Self> {
        let ConvolutionShape { samples, size, out_size, kernel, .. } = *shape;
        let [groups, channels, outputs] =
            [shape.groups, shape.channels, shape.outputs].map(u64::from);
        let image = |channels: u64, [rows, columns]: [u32; 2]| {
            sizes([samples, groups * channels, rows.into(), columns.into()])
        };
        let pair = |sizes: [u32; 2]| sizes.map(|size| size as i32);
        let [rows, columns] = kernel.map(u64::from);
        Some(Self {
            x: image(channels, size)?,
            weight: sizes([groups * outputs, channels, rows, columns])?,
            y: image(outputs, out_size)?,
            groups: shape.groups as i32,
            padding: pair(shape.padding),
            stride: pair(shape.stride),
            dilation: pair(shape.dilation),
            channels_last,
        })
    }
}

/// Whether the library is asked at all. Depthwise convolutions in single precision are quicker by direct
/// kernels (PyTorch takes its own for the same reason).
pub fn is_for_the_library(step: &ConvolutionStep, storage: Storage) -> bool {
    !(step.shape.is_depthwise() && storage == Storage::F32)
}

/// One answer of `cudnnGetConvolution*Algorithm_v7`, whose three structs are one but for the type of
/// their first field. Numbers instead of enumerations: a newer library may know more.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Answer {
    /// The algorithm's number.
    pub algorithm: i32,
    /// 0 if it can be taken.
    pub status: i32,
    /// Expected milliseconds; answers come with the quickest first.
    pub time: f32,
    /// Bytes of workspace.
    pub memory: usize,
    /// 1 if it gives the same bits in every run.
    pub determinism: i32,
    /// The math type that its time holds for.
    pub math: i32,
    /// Nothing.
    pub reserved: [i32; 3],
}

/// The answers that always give the same bits and need at most `most` bytes, which `workspace` says of an answer; and
/// these bytes.
pub fn usable(
    answers: &[Answer],
    most: u64,
    mut workspace: impl FnMut(&Answer) -> Option<u64>,
) -> impl Iterator<Item = (Answer, u64)> {
    let can_be_taken = |answer: &&Answer| answer.status == 0 && answer.determinism == 1;
    answers.iter().filter(can_be_taken).filter_map(move |answer| {
        let bytes = workspace(answer).filter(|bytes| *bytes <= most)?;
        Some((*answer, bytes))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::cuda::Library;
    use crate::device::cuda::convolutions::choose::describe;
    use crate::device::cuda::kernels::ConvolutionPass;
    use cudarc::cudnn::sys;
    use pipewright_core::graph::autodiff::ComputationKind;
    use pipewright_core::graph::{Op, TensorSpec};
    use pipewright_core::plan::Precision;
    use pipewright_kernels::{Call, Draw, Phase, Shard, Turn};

    /// A pair of each kind is another number, so that none can stand for its neighbour.
    fn conv(groups: u64) -> Op {
        Op::Conv2d {
            out_channels: 24,
            kernel: [3, 5],
            stride: [2, 1],
            padding: [1, 4],
            dilation: [3, 2],
            groups,
            bias: true,
        }
    }

    fn transposed(groups: u64) -> Op {
        Op::ConvTranspose2d {
            out_channels: 24,
            kernel: [3, 2],
            stride: [2, 4],
            padding: [1, 0],
            output_padding: [1, 3],
            groups,
            bias: false,
        }
    }

    fn step(op: &Op, image: [u64; 3], samples: u64, kind: ComputationKind) -> ConvolutionStep {
        let input = TensorSpec::f32(image.to_vec());
        let output = op.infer(&[&input]).expect("shapes fit");
        let call = Call {
            op,
            kind,
            inputs: &[&input],
            output: &output,
            samples,
            phase: Phase::Train,
            loss_scale: 1.0,
            wanted: 1,
            threads: 1,
            draw: Draw::default(),
            turn: Turn::default(),
            shard: Shard::default(),
            precision: Precision::F32,
        };
        ConvolutionStep::new(&call, Storage::F32)
    }

    fn description(op: &Op, image: [u64; 3], samples: u64) -> Description {
        let shape = step(op, image, samples, ComputationKind::Forward).shape;
        Description::of(&shape, false).unwrap()
    }

    #[test]
    fn rows_before_columns() {
        let found = description(&conv(4), [8, 30, 20], 7);
        let expected = Description {
            x: [7, 8, 30, 20],
            weight: [24, 2, 3, 5],
            // (30 + 2 - 7) / 2 + 1, 20 + 8 - 9 + 1
            y: [7, 24, 13, 20],
            groups: 4,
            padding: [1, 4],
            stride: [2, 1],
            dilation: [3, 2],
            channels_last: false,
        };
        assert_eq!(found, expected);
    }

    /// What a transposed convolution reads is the other one's result.
    #[test]
    fn transposed_ones_the_other_way_round() {
        let found = description(&transposed(2), [8, 10, 6], 3);
        let expected = Description {
            // 9 x 2 - 2 + 3 + 1, 5 x 4 + 2 + 3
            x: [3, 24, 20, 25],
            weight: [8, 12, 3, 2],
            y: [3, 8, 10, 6],
            groups: 2,
            padding: [1, 0],
            stride: [2, 4],
            dilation: [1, 1],
            channels_last: false,
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn each_pass_is_what_it_computes() {
        use ComputationKind as Kind;
        use ConvolutionPass::{Forward, InputGradient, WeightGradient};
        let passes = |op: &Op| {
            let kinds = [Kind::Forward, Kind::InputGradient, Kind::WeightGradient];
            kinds.map(|kind| step(op, [8, 9, 9], 1, kind).pass)
        };
        assert_eq!(passes(&conv(1)), [Forward, InputGradient, WeightGradient]);
        assert_eq!(passes(&transposed(1)), [InputGradient, Forward, WeightGradient]);
    }

    #[test]
    fn rows_of_one_line_and_depthwise_ones() {
        let line = Op::Conv2d {
            out_channels: 6,
            kernel: [1, 3],
            stride: [1, 2],
            padding: [0, 1],
            dilation: [1, 1],
            groups: 6,
            bias: false,
        };
        let found = description(&line, [6, 1, 100], 2);
        assert_eq!((found.x, found.weight), ([2, 6, 1, 100], [6, 1, 1, 3]));
        assert_eq!((found.y, found.groups), ([2, 6, 1, 50], 6));
        let step = step(&line, [6, 1, 100], 2, ComputationKind::Forward);
        let asked = [Storage::F32, Storage::Bf16].map(|s| is_for_the_library(&step, s));
        assert_eq!(asked, [false, true], "in single precision by our own kernel");
    }

    #[test]
    fn what_the_library_does_not_count() {
        let shape = step(&conv(1), [8, 100, 100], 1, ComputationKind::Forward).shape;
        let of = |samples| Description::of(&ConvolutionShape { samples, ..shape }, false).is_some();
        // y is the largest: 24 x 48 x 100 elements a sample.
        assert!(of((1 << 31) / (24 * 48 * 100)));
        assert!(!of((1 << 31) / (24 * 48 * 100) + 1));
    }

    #[test]
    fn quick_ones_that_give_other_bits_are_left_out() {
        let answer = |algorithm, status, determinism| Answer {
            algorithm,
            status,
            determinism,
            ..Answer::default()
        };
        let answers = [
            answer(4, 3000, 1),
            answer(0, 0, 0),
            answer(6, 0, 1),
            answer(2, 0, 1),
            answer(1, 0, 1),
        ];
        let workspace = |answer: &Answer| match answer.algorithm {
            6 => Some(5000),
            2 => None,
            _ => Some(300),
        };
        let usable = |most| -> Vec<(i32, u64)> {
            let usable = usable(&answers, most, workspace);
            usable.map(|(answer, bytes)| (answer.algorithm, bytes)).collect()
        };
        assert_eq!(usable(10_000), [(6, 5000), (1, 300)], "the quickest first");
        assert_eq!(usable(4000), [(1, 300)], "those that have room");
        assert_eq!(usable(299), []);
    }

    /// The library itself says which sizes come out; this needs no GPU, only the library.
    #[test]
    fn the_library_expects_the_same_results() {
        if !Library::Cudnn.is_present() || Library::Cudnn.unusable().is_some() {
            return pipewright::tools::refused("cuDNN 9 is not on this machine");
        }
        let cases = [(conv(1), [8, 30, 20]), (conv(4), [8, 31, 19]), (transposed(2), [8, 10, 6])];
        for (op, image) in cases {
            let kinds = [Storage::F32, Storage::Bf16, Storage::F16];
            for (storage, channels_last) in kinds.map(|kind| [(kind, false), (kind, true)]).concat()
            {
                let expected = Description { channels_last, ..description(&op, image, 7) };
                let of = describe(&expected, storage, false).unwrap();
                let [mut n, mut c, mut h, mut w] = [0; 4];
                // SAFETY: descriptions live; it writes four numbers.
                let said = unsafe {
                    sys::cudnnGetConvolution2dForwardOutputDim(
                        of.convolution,
                        of.x,
                        of.weight,
                        &raw mut n,
                        &raw mut c,
                        &raw mut h,
                        &raw mut w,
                    )
                };
                assert_eq!(said.result(), Ok(()));
                assert_eq!([n, c, h, w], expected.y, "{op:?}");
            }
        }
    }
}
