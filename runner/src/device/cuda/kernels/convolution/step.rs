//! A convolution as one step: what a library is asked for, and what our own kernels do where there is none.
//!
//! With one channel a group it is computed directly; else images are unfolded (im2col, see the
//! processor's) a group of some samples at a time, and multiplied:
//!
//! ```text
//! forward            y  = W U(x)
//! input gradient     gx = fold(Wᵀ gy)
//! weight gradient    gW += gy U(x)ᵀ     the samples that are unfolded together side by side: one product
//! ```

use super::{Matrix, product};
use crate::device::cuda::kernels::axes::Axes;
use crate::device::cuda::kernels::channels::last_bias;
use crate::device::cuda::kernels::{
    Broadcast, Buffers, Combine, Depthwise, DevicePtr, Images, Launch, Plan, Product, Reduce,
    Source, Step, Storage, Unfold, layout,
};
use pipewright_core::graph::Op;
use pipewright_core::graph::autodiff::ComputationKind;
use pipewright_core::plan::Precision;
use pipewright_kernels::{Call, Geometry};

/// Which of a convolution's three tensors is computed from the two others. A transposed convolution
/// is the input gradient of another one, and the other way round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConvolutionPass {
    /// `y` of `x` and the weight.
    Forward,
    /// `x` of `y` and the weight.
    InputGradient,
    /// The weight's gradient, of `x` and `y`, is added to.
    WeightGradient,
}

/// Sizes of a convolution. Pairs are (rows, columns); padding is the same on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConvolutionShape {
    /// Images.
    pub samples: u64,
    /// Channels fall into so many groups that know nothing of each other.
    pub groups: u32,
    /// Channels of a group of `x`.
    pub channels: u32,
    /// Channels of a group of `y`.
    pub outputs: u32,
    /// Of `x`.
    pub size: [u32; 2],
    /// Of `y`.
    pub out_size: [u32; 2],
    /// Of the window.
    pub kernel: [u32; 2],
    /// From a window to the next.
    pub stride: [u32; 2],
    /// Zeros around `x`.
    pub padding: [u32; 2],
    /// From an element of a window to the next.
    pub dilation: [u32; 2],
}

impl ConvolutionShape {
    /// That of a call; of a transposed convolution the one whose input gradient it is.
    pub fn new(call: &Call) -> Self {
        let g = Geometry::new(call);
        let pair = |sizes: [usize; 2]| sizes.map(|size| size as u32);
        Self {
            samples: call.samples,
            groups: g.groups as u32,
            channels: g.channels as u32,
            outputs: g.out_channels as u32,
            size: pair(g.size),
            out_size: pair(g.out),
            kernel: pair(g.kernel),
            stride: pair(g.stride),
            padding: pair(g.padding),
            dilation: pair(g.dilation),
        }
    }

    /// Whether each channel of `x` is convolved by itself.
    pub fn is_depthwise(&self) -> bool {
        self.channels == 1 && self.groups > 1
    }

    /// Whether an image is its own unfolded form.
    fn is_pointwise(&self) -> bool {
        self.kernel == [1, 1] && self.stride == [1, 1] && self.padding == [0, 0]
    }

    /// Elements of the weight.
    pub fn weights(&self) -> u64 {
        u64::from(self.groups) * u64::from(self.outputs) * self.rows()
    }

    /// Rows of the unfolded form.
    fn rows(&self) -> u64 {
        u64::from(self.channels) * u64::from(self.kernel[0]) * u64::from(self.kernel[1])
    }

    /// Elements of a channel of `x`.
    fn pixels(&self) -> u64 {
        u64::from(self.size[0]) * u64::from(self.size[1])
    }

    /// Elements of a channel of `y`, columns of the unfolded form.
    fn positions(&self) -> u64 {
        u64::from(self.out_size[0]) * u64::from(self.out_size[1])
    }

    /// Elements of a sample of `x`, and of `y`.
    fn sample(&self) -> [u64; 2] {
        let groups = u64::from(self.groups);
        [
            groups * u64::from(self.channels) * self.pixels(),
            groups * u64::from(self.outputs) * self.positions(),
        ]
    }

    /// Elements of scratch for each sample that is unfolded.
    fn unfolded(&self, pass: ConvolutionPass) -> u64 {
        let beside = match pass {
            ConvolutionPass::WeightGradient => u64::from(self.outputs),
            _ => 0,
        };
        (self.rows() + beside) * self.positions()
    }
}

/// A convolution of images in the storage type, for the library or [`ConvolutionStep::steps`].
/// Tensors lie as everywhere: `x [samples, groups x channels, size]`, `y [samples, groups x outputs,
/// out_size]`, the weight `[groups x outputs, channels, kernel]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConvolutionStep {
    /// What is computed.
    pub pass: ConvolutionPass,
    /// Sizes.
    pub shape: ConvolutionShape,
    /// The image that windows slide over.
    pub x: DevicePtr,
    /// The weight; in the weight gradient that gradient, which is f32 and is added to.
    pub weight: DevicePtr,
    /// The image that has an element a window.
    pub y: DevicePtr,
    /// Added to every element of a channel of the result, or none. Of the storage type.
    pub bias: DevicePtr,
    /// For [`ConvolutionStep::steps`]: as many bytes as [`ConvolutionStep::scratch_bytes`] says.
    pub scratch: DevicePtr,
    /// Samples that [`ConvolutionStep::steps`] unfold at a time.
    pub together: u64,
    /// Whether factors in single precision may be rounded to TF32.
    pub tf32: bool,
    /// Whether channels lie innermost: in images, and in a weight's windows. Its gradient lies as everywhere.
    pub channels_last: bool,
}

/// Bytes of unfolded images at a time.
const UNFOLDED: u64 = 256 << 20;

/// Places of what lies in scratch are multiples of so many bytes, as products like them.
const ALIGNMENT: u64 = 256;

impl ConvolutionStep {
    /// That of a computation, its tensors still nowhere.
    pub fn new(call: &Call, storage: Storage) -> Self {
        use ConvolutionPass::{Forward, InputGradient, WeightGradient};
        let is_transposed = matches!(call.op, Op::ConvTranspose2d { .. });
        let pass = match call.kind {
            ComputationKind::WeightGradient => WeightGradient,
            kind if (kind == ComputationKind::Forward) != is_transposed => Forward,
            _ => InputGradient,
        };
        let shape = ConvolutionShape::new(call);
        let each = shape.unfolded(pass) * storage.bytes();
        let nowhere = DevicePtr::NULL;
        Self {
            pass,
            shape,
            x: nowhere,
            weight: nowhere,
            y: nowhere,
            bias: nowhere,
            scratch: nowhere,
            together: (UNFOLDED / each.max(1)).clamp(1, shape.samples),
            tf32: call.precision == Precision::Tf32,
            channels_last: false,
        }
    }

    /// Bytes of scratch that our own kernels need.
    pub fn scratch_bytes(&self, storage: Storage) -> u64 {
        if self.channels_last {
            let own = Self { channels_last: false, ..*self }.scratch_bytes(storage);
            return self.reordered_bytes(storage) + own;
        }
        let side_by_side = self.pass == ConvolutionPass::WeightGradient && self.together > 1;
        if self.shape.is_depthwise() || self.shape.is_pointwise() && !side_by_side {
            return 0;
        }
        let each = match side_by_side {
            true => self.shape.unfolded(self.pass),
            false => self.shape.rows() * self.shape.positions(),
        };
        self.together * each * storage.bytes() + ALIGNMENT
    }

    /// The convolution by our own kernels and products.
    pub fn steps(&self, storage: Storage) -> Vec<Step> {
        if self.channels_last {
            let [before, after] = self.reorders(storage, self.scratch);
            let step = self.reordered(storage, self.scratch);
            let scratch = self.scratch.after(self.reordered_bytes(storage));
            let own = Self { scratch, ..step }.steps(storage);
            let launches = |all: Vec<Launch>| all.into_iter().map(Step::Kernel);
            return launches(before).chain(own).chain(launches(after)).collect();
        }
        let of = Buffers { scratch: self.scratch, ..Buffers::default() };
        let mut plan = Plan::new(storage, self.tf32, &of);
        match self.pass {
            _ if self.shape.is_depthwise() => self.depthwise(&mut plan),
            ConvolutionPass::Forward => self.forward(&mut plan),
            ConvolutionPass::InputGradient => self.input_gradient(&mut plan),
            ConvolutionPass::WeightGradient => self.weight_gradient(&mut plan),
        }
        let has_bias = self.shape.is_depthwise() && self.pass == ConvolutionPass::Forward;
        plan.steps.extend(self.add_bias(storage).filter(|_| !has_bias).map(Step::Kernel));
        plan.steps
    }

    /// Adds the bias to each channel of the result; none where there is none.
    pub fn add_bias(&self, storage: Storage) -> Option<Launch> {
        if self.bias == DevicePtr::NULL {
            return None;
        }
        let shape = &self.shape;
        let (out, channels, plane) = match self.pass {
            ConvolutionPass::Forward => (self.y, shape.outputs, shape.positions()),
            _ => (self.x, shape.channels, shape.pixels()),
        };
        let channels = u64::from(shape.groups) * u64::from(channels);
        if self.channels_last {
            let images = Images { samples: shape.samples, channels, plane };
            return Some(last_bias(storage, images, [self.bias, out]));
        }
        let mut along = Axes::<2>::new();
        along.push(0, shape.samples, [channels * plane, 0]);
        along.push(0, channels, [plane, 1]);
        along.push(0, plane, [1, 0]);
        let args = Broadcast {
            a: out,
            b: self.bias,
            out,
            count: shape.samples * channels * plane,
            a_strides: along.strides[0],
            b_strides: along.strides[1],
            sizes: along.sizes,
            rank: along.rank as u32,
            op: Combine::Sum as u32,
        };
        let kernel = format!("broadcast_{}", storage.suffix());
        Some(Launch::over(Source::Layout, kernel, args.count, &args))
    }

    /// Whether a weight has another order where channels lie innermost.
    pub fn reorders_weight(&self) -> bool {
        self.channels_last && self.shape.kernel != [1, 1]
    }

    /// Adds a weight gradient of the storage type, in the order of images, to the one in single precision.
    pub fn add_gradient(&self, gradient: DevicePtr, storage: Storage) -> Launch {
        let outputs = self.shape.weights();
        let mut along = Axes::<1>::new();
        if self.reorders_weight() {
            let axes = self.shape.windows().axes();
            for axis in 0..axes.rank {
                along.push(0, axes.sizes[axis].into(), [axes.strides[1][axis]]);
            }
        } else {
            along.push(0, outputs, [1]);
        }
        let args = Reduce {
            g: gradient,
            out: self.weight,
            outputs,
            terms: 1,
            g_strides: along.strides[0],
            sizes: along.sizes,
            kept: along.rank as u32,
            rank: along.rank as u32,
            op: Combine::Same as u32,
            accumulate: 1,
            scale: 1.0,
            ..Reduce::default()
        };
        Launch::over(Source::Layout, format!("reduce_{}", storage.suffix()), outputs, &args)
    }

    fn depthwise(&self, plan: &mut Plan) {
        let shape = &self.shape;
        let channels = u64::from(shape.groups);
        let args = Depthwise {
            samples: shape.samples,
            channels,
            multiplier: shape.outputs,
            size: shape.size,
            out_size: shape.out_size,
            kernel: shape.kernel,
            stride: shape.stride,
            padding: shape.padding,
            dilation: shape.dilation,
            ..Depthwise::default()
        };
        let Self { x, y, weight, bias, .. } = *self;
        let [of_x, of_y] = shape.sample().map(|elements| shape.samples * elements);
        match self.pass {
            ConvolutionPass::Forward => {
                let args = Depthwise { x, out: y, weight, bias, ..args };
                plan.over(Source::Depthwise, "depthwise", of_y, args);
            }
            ConvolutionPass::InputGradient => {
                let args = Depthwise { gy: y, out: x, weight, ..args };
                plan.over(Source::Depthwise, "depthwise_gradient", of_x, args);
            }
            ConvolutionPass::WeightGradient => {
                let args = Depthwise { x, gy: y, out: weight, ..args };
                plan.blocks(Source::Depthwise, "depthwise_weights", shape.weights(), args);
            }
        }
    }

    /// Steps of samples and groups.
    fn parts(&self) -> Vec<Part> {
        let starts = (0..self.shape.samples).step_by(self.together as usize);
        starts
            .flat_map(|from| (0..self.shape.groups.into()).map(move |group| (from, group)))
            .map(|(from, group)| Part {
                from,
                samples: self.together.min(self.shape.samples - from),
                group,
            })
            .collect()
    }

    /// Where a part's images begin, in `x` and in `y`.
    fn places(&self, part: Part, bytes: u64) -> [DevicePtr; 2] {
        let groups = u64::from(self.shape.groups);
        let [x, y] = self.shape.sample();
        let place = part.from * groups + part.group;
        [self.x.after(place * (x / groups) * bytes), self.y.after(place * (y / groups) * bytes)]
    }

    /// A group's weights.
    fn weight(&self, group: u64, bytes: u64) -> Matrix {
        let each = self.shape.weights() / u64::from(self.shape.groups);
        Matrix::new(self.weight.after(group * each * bytes), self.shape.rows())
    }

    /// Between a group's images and their unfolded form, whose rows and samples begin so many elements
    /// apart.
    fn columns(&self, x: DevicePtr, out: DevicePtr, part: Part, [row, sample]: [u64; 2]) -> Unfold {
        let shape = &self.shape;
        Unfold {
            x,
            out,
            samples: part.samples,
            sample_stride: shape.sample()[0],
            row,
            sample,
            channels: shape.channels,
            size: shape.size,
            out_size: shape.out_size,
            kernel: shape.kernel,
            stride: shape.stride,
            padding: shape.padding,
            dilation: shape.dilation,
        }
    }

    /// A part's `x`, unfolded sample after sample, and elements from one sample to the next.
    fn unfold(&self, x: DevicePtr, part: Part, plan: &mut Plan) -> (Matrix, u64) {
        let (rows, positions) = (self.shape.rows(), self.shape.positions());
        if self.shape.is_pointwise() {
            return (Matrix::new(x, positions), self.shape.sample()[0]);
        }
        let args = self.columns(x, self.scratch, part, [positions, rows * positions]);
        plan.over(Source::Layout, "unfold", part.samples * rows * positions, args);
        (Matrix::new(self.scratch, positions), rows * positions)
    }

    fn forward(&self, plan: &mut Plan) {
        let (rows, positions) = (self.shape.rows(), self.shape.positions());
        for part in self.parts() {
            let [x, y] = self.places(part, plan.bytes());
            let (columns, step) = self.unfold(x, part, plan);
            let weight = self.weight(part.group, plan.bytes());
            let sizes = [self.shape.outputs.into(), positions, rows];
            let args = Product {
                batch: [1, part.samples as u32],
                b_batch: [0, step],
                c_batch: [0, self.shape.sample()[1]],
                ..product(weight, columns, Matrix::new(y, positions), sizes)
            };
            plan.product(args, false);
        }
    }

    fn input_gradient(&self, plan: &mut Plan) {
        let (rows, positions) = (self.shape.rows(), self.shape.positions());
        let [of_x, of_y] = self.shape.sample();
        for part in self.parts() {
            let [x, y] = self.places(part, plan.bytes());
            let (columns, step) = match self.shape.is_pointwise() {
                true => (x, of_x),
                false => (self.scratch, rows * positions),
            };
            let weight = self.weight(part.group, plan.bytes()).transposed();
            let (y, out) = (Matrix::new(y, positions), Matrix::new(columns, positions));
            let args = Product {
                batch: [1, part.samples as u32],
                b_batch: [0, of_y],
                c_batch: [0, step],
                ..product(weight, y, out, [rows, positions, self.shape.outputs.into()])
            };
            plan.product(args, false);
            if !self.shape.is_pointwise() {
                let args = self.columns(self.scratch, x, part, [positions, step]);
                let pixels = u64::from(self.shape.channels) * self.shape.pixels();
                plan.over(Source::Layout, "fold", part.samples * pixels, args);
            }
        }
    }

    fn weight_gradient(&self, plan: &mut Plan) {
        let (rows, positions) = (self.shape.rows(), self.shape.positions());
        let (bytes, outputs) = (plan.bytes(), self.shape.outputs.into());
        let [of_x, of_y] = self.shape.sample();
        let unfolded = (self.together * rows * positions * bytes).next_multiple_of(ALIGNMENT);
        for part in self.parts() {
            let [x, y] = self.places(part, bytes);
            let depth = part.samples * positions;
            let columns = if self.shape.is_pointwise() {
                side_by_side(x, of_x, self.scratch, part, [rows, positions], plan)
            } else {
                let args = self.columns(x, self.scratch, part, [depth, positions]);
                plan.over(Source::Layout, "unfold", rows * depth, args);
                self.scratch
            };
            let beside = self.scratch.after(unfolded);
            let y = side_by_side(y, of_y, beside, part, [outputs, positions], plan);
            let (y, columns) = (Matrix::new(y, depth), Matrix::new(columns, depth).transposed());
            let args = product(y, columns, self.weight(part.group, 4), [outputs, rows, depth]);
            plan.product(Product { accumulate: 1, ..args }, true);
        }
    }
}

/// Samples of a group that are worked on at a time.
#[derive(Clone, Copy)]
struct Part {
    /// The first sample.
    from: u64,
    samples: u64,
    group: u64,
}

/// Images `[samples, channels, positions]`, samples `step` elements apart, as
/// `[channels, samples x positions]`: copied to `into`, unless one sample lies so by itself.
fn side_by_side(
    images: DevicePtr,
    step: u64,
    into: DevicePtr,
    part: Part,
    [channels, positions]: [u64; 2],
    plan: &mut Plan,
) -> DevicePtr {
    if part.samples == 1 {
        return images;
    }
    let from = [step, positions, 1];
    let to = [positions, part.samples * positions, 1];
    layout::copy(part.samples, plan, &[channels, positions], (images, &from), (into, &to), 1.0);
    into
}
