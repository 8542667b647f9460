//! From computations of the training graph to launches.

use super::channels::Incoming;
use super::{
    Arguments, Broadcast, Combine, ConvolutionStep, DevicePtr, Launch, Product, Source, Storage,
    Tail, attention, axes, channels, convolution, elementwise, embedding, experts, fp8, layout,
    rows, vocabulary,
};
use pipewright_core::graph::autodiff::ComputationKind;
use pipewright_core::graph::{DType, Interpolation, Op};
use pipewright_core::plan::Precision;
use pipewright_kernels::Call;

/// Where a computation's tensors are, as [`Operands`](pipewright_kernels::Operands) has them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Buffers<'a> {
    /// Values read, in the order of the table at `Computation`.
    pub reads: &'a [DevicePtr],
    /// Values written, likewise.
    pub writes: &'a [DevicePtr],
    /// All parameters of the node; running statistics are f32.
    pub params: &'a [DevicePtr],
    /// The weight's codes of eight bits, where they are kept: see [`fp8::WeightCodes`].
    pub codes: DevicePtr,
    /// One gradient per trainable parameter, f32; kernels add to them.
    pub gradients: &'a [DevicePtr],
    /// The mini-batch's statistics so far, when they are deferred.
    pub deferred: &'a [DevicePtr],
    /// As many bytes as [`Plan::scratch`] says.
    pub scratch: DevicePtr,
    /// Bytes of shared memory that a block of the device has at most.
    pub most_shared: u32,
    /// Whether the device has matrix units for halves and TF32, as GPUs have from sm_80 on.
    pub matrix_units: bool,
    /// The number of the training step, a u64: random numbers follow from it.
    pub step: DevicePtr,
    /// Whether all images of those values lie with their channels innermost, and so does a convolution's weight
    /// (its gradient does not).
    pub channels_last: bool,
}

/// One thing to be launched after what is before it.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// A kernel of ours.
    Kernel(Launch),
    /// A matrix product, for the library or [`ProductStep::launches`].
    Product(ProductStep),
    /// A convolution, for the library or [`ConvolutionStep::steps`].
    Convolution(ConvolutionStep),
}

/// A matrix product of tensors in the storage type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProductStep {
    /// Sizes, places and strides.
    pub args: Product,
    /// Whether the result is f32: gradients of parameters.
    pub to_f32: bool,
    /// Added to every row of the result: a linear layer's bias, of the storage type.
    pub bias: DevicePtr,
    /// Whether f32 factors may be rounded to TF32. Our own kernel does not.
    pub tf32: bool,
    /// Where both factors are codes of eight bits, and the result is of bf16 or f32.
    pub fp8: Option<fp8::Factors>,
}

impl ProductStep {
    /// Of factors in eight bits the same product in bf16, and what has to be launched before it.
    pub fn in_bf16(&self) -> Option<([Launch; 2], Self)> {
        self.fp8.as_ref().map(|factors| fp8::widened(self, factors))
    }

    /// The product by our own kernel, a bias by another.
    pub fn launches(&self, storage: Storage) -> Vec<Launch> {
        if let Some((before, product)) = self.in_bf16() {
            return before.into_iter().chain(product.launches(storage)).collect();
        }
        let (args, to) = (self.args, if self.to_f32 { "_to_f32" } else { "" });
        let kernel = format!("product_{}{to}", storage.suffix());
        let batch = args.batch[0].saturating_mul(args.batch[1]).min(1 << 15);
        let mut launches = vec![Launch {
            grid: [args.n.div_ceil(64), args.m.div_ceil(64), batch],
            ..Launch::blocks(Source::Product, kernel, 1, &args)
        }];
        if self.bias != DevicePtr::NULL {
            let count = u64::from(args.m) * u64::from(args.n);
            let mut along = axes::Axes::<2>::new();
            along.push(0, args.m.into(), [args.n.into(), 0]);
            along.push(0, args.n.into(), [1, 1]);
            let add = Broadcast {
                a: args.c,
                b: self.bias,
                out: args.c,
                count,
                a_strides: along.strides[0],
                b_strides: along.strides[1],
                sizes: along.sizes,
                rank: along.rank as u32,
                op: Combine::Sum as u32,
            };
            let kernel = format!("broadcast_{}", storage.suffix());
            launches.push(Launch::over(Source::Layout, kernel, count, &add));
        }
        launches
    }
}

/// What a computation becomes.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// In their order.
    pub steps: Vec<Step>,
    /// Bytes of scratch that they share.
    pub scratch: u64,
    /// Bytes of it that convolutions by our own kernels need: of no use to a device that has its own.
    pub unfolding: u64,
    storage: Storage,
    tf32: bool,
    base: DevicePtr,
    most_shared: u32,
    matrix_units: bool,
}

impl Plan {
    /// No step so far; scratch is that of the buffers.
    pub(super) fn new(storage: Storage, tf32: bool, buffers: &Buffers) -> Self {
        let Buffers { scratch: base, most_shared, matrix_units, .. } = *buffers;
        let (steps, scratch, unfolding) = (vec![], 0, 0);
        Self { steps, scratch, unfolding, storage, tf32, base, most_shared, matrix_units }
    }

    /// Bytes of shared memory that a block has at most.
    pub(super) fn most_shared(&self) -> u32 {
        self.most_shared
    }

    /// Whether f32 factors may be rounded to TF32.
    pub(super) fn tf32(&self) -> bool {
        self.tf32
    }

    /// Whether there are matrix units for halves and TF32.
    pub(super) fn matrix_units(&self) -> bool {
        self.matrix_units
    }

    /// The storage type.
    pub(super) fn storage(&self) -> Storage {
        self.storage
    }

    /// The storage type's bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.storage.bytes()
    }

    /// A launch whose threads go through `items`.
    pub(super) fn over(&mut self, source: Source, kernel: &str, items: u64, args: impl Arguments) {
        let kernel = format!("{kernel}_{}", self.storage.suffix());
        self.steps.push(Step::Kernel(Launch::over(source, kernel, items, &args)));
    }

    /// A launch with a block for each of `blocks`.
    pub(super) fn blocks(
        &mut self,
        source: Source,
        kernel: &str,
        blocks: u64,
        args: impl Arguments,
    ) {
        let kernel = format!("{kernel}_{}", self.storage.suffix());
        self.steps.push(Step::Kernel(Launch::blocks(source, kernel, blocks, &args)));
    }

    /// The launch that was added last.
    pub(super) fn last(&mut self) -> &mut Launch {
        match self.steps.last_mut() {
            Some(Step::Kernel(launch)) => launch,
            _ => unreachable!("a launch was added"),
        }
    }

    /// A kernel that knows no storage type.
    pub(super) fn plain(&mut self, launch: Launch) {
        self.steps.push(Step::Kernel(launch));
    }

    pub(super) fn product(&mut self, args: Product, to_f32: bool) {
        self.multiply(args, DevicePtr::NULL, to_f32, None);
    }

    /// A product with a bias, or none, of factors in the storage type or in eight bits.
    pub(super) fn multiply(
        &mut self,
        args: Product,
        bias: DevicePtr,
        to_f32: bool,
        fp8: Option<fp8::Factors>,
    ) {
        let tf32 = self.tf32;
        self.steps.push(Step::Product(ProductStep { args, to_f32, bias, tf32, fp8 }));
    }

    /// Adds a convolution.
    pub(super) fn convolution(&mut self, step: ConvolutionStep) {
        self.unfolding = self.unfolding.max(step.scratch_bytes(self.storage));
        let scratch = self.base;
        self.steps.push(Step::Convolution(ConvolutionStep { scratch, ..step }));
    }

    /// Scratch of so many bytes from the beginning on: valid until the next computation.
    pub(super) fn scratch(&mut self, bytes: u64) -> DevicePtr {
        self.scratch = self.scratch.max(bytes);
        self.base
    }
}

/// What no kernel computes of `call` on a device whose blocks have so many bytes of shared memory, if there
/// is something: the rest of [`steps`] holds for all others.
pub fn missing(call: &Call, most_shared: u32) -> Option<String> {
    match call.op {
        Op::Attention { .. } | Op::ScaledDotProduct { .. } => attention::missing(call, most_shared),
        _ => None,
    }
}

/// What `call` becomes. With addresses of nothing it still says how much scratch is needed.
///
/// # Panics
/// On a computation that autodiff never makes, as the processor's `launch`.
pub fn steps(call: &Call, buffers: &Buffers, storage: Storage) -> Plan {
    let tf32 = call.precision == Precision::Tf32;
    let mut plan = Plan::new(storage, tf32, buffers);
    match call.kind {
        ComputationKind::Forward => forward(call, buffers, &mut plan),
        ComputationKind::InputGradient => input_gradient(call, buffers, &mut plan),
        ComputationKind::WeightGradient => weight_gradient(call, buffers, &mut plan),
        ComputationKind::SumGradients => elementwise::sum(call, buffers, &mut plan),
        ComputationKind::PartialLoss => vocabulary::partial(call, buffers, &mut plan),
        ComputationKind::AllGather
        | ComputationKind::ReduceScatter
        | ComputationKind::Scatter
        | ComputationKind::RowsToExperts
        | ComputationKind::RowsToTokens => never(call),
    }
    plan
}

fn forward(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    match call.op {
        Op::Linear { .. } | Op::TiedLinear { .. } => convolution::linear(call, buffers, plan),
        Op::Conv2d { .. } => convolution::forward(call, buffers, plan),
        Op::ConvTranspose2d { .. } => convolution::transposed_forward(call, buffers, plan),
        Op::MaxPool2d { .. } | Op::AvgPool2d { .. } => channels::pool(call, buffers, plan),
        Op::GlobalAvgPool => layout::global_mean(call, buffers, plan),
        Op::Upsample { factor, mode: Interpolation::Nearest } => {
            layout::nearest(call, *factor, buffers, plan);
        }
        Op::Upsample { mode: Interpolation::Bilinear, .. } => {
            channels::bilinear(call, buffers, plan);
        }
        Op::Relu
        | Op::Activation { .. }
        | Op::Clip { .. }
        | Op::Affine { .. }
        | Op::SwiGlu
        | Op::Dropout { .. } => elementwise::forward(call, buffers, plan),
        Op::BatchNorm2d { .. } => channels::batch_norm(call, buffers, Tail::default(), plan),
        Op::LayerNorm { .. } | Op::RmsNorm { .. } => {
            rows::norm(call, buffers, [DevicePtr::NULL; 2], plan);
        }
        Op::GroupNorm { .. } | Op::InstanceNorm2d { .. } => {
            channels::group_norm(call, buffers, plan);
        }
        Op::LocalResponseNorm { .. } => channels::local_response(call, buffers, plan),
        Op::Slice { .. }
        | Op::Permute { .. }
        | Op::Concat { .. }
        | Op::FirstPosition
        | Op::Parameter { .. } => layout::forward(call, buffers, plan),
        Op::Add | Op::Subtract | Op::Multiply | Op::Divide => layout::binary(call, buffers, plan),
        Op::ReduceMean { axes, .. } => layout::mean(call, axes, buffers, plan),
        Op::MatMul { .. } => convolution::matmul(call, buffers, plan),
        Op::Softmax | Op::LogSoftmax => rows::softmax(call, buffers, plan),
        Op::TopKSoftmax { .. } => experts::top_k(call, buffers, plan),
        Op::Dispatch { .. } => experts::dispatch(call, buffers, plan),
        Op::GroupedLinear { .. } => experts::grouped_linear(call, buffers, plan),
        Op::Combine => experts::combine(call, buffers, plan),
        Op::Attention { .. } | Op::ScaledDotProduct { .. } => {
            attention::forward(call, buffers, plan);
        }
        Op::Rope { base, scaling } => layout::rope(call, *base, *scaling, 1.0, buffers, plan),
        Op::TokenPosition { token } => layout::token(call, *token, buffers, plan),
        Op::Embedding { .. } => embedding::embedding(call, buffers, plan),
        Op::SoftmaxCrossEntropy { .. } if call.shard.degree > 1 => {
            vocabulary::loss(call, buffers, plan);
        }
        Op::SoftmaxCrossEntropy { .. } | Op::SigmoidCrossEntropy | Op::MeanSquaredError => {
            rows::loss(call, buffers, plan);
        }
        _ => never(call),
    }
}

fn input_gradient(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    match call.op {
        Op::Linear { .. } | Op::TiedLinear { .. } => {
            convolution::linear_input_gradient(call, buffers, plan);
        }
        Op::Conv2d { .. } => convolution::input_gradient(call, buffers, plan),
        Op::ConvTranspose2d { .. } => {
            convolution::transposed_input_gradient(call, buffers, plan);
        }
        Op::MaxPool2d { .. } | Op::AvgPool2d { .. } => {
            channels::pool_gradient(call, buffers, Tail::default(), plan);
        }
        Op::GlobalAvgPool => layout::global_mean_gradient(call, buffers, plan),
        Op::Upsample { factor, mode: Interpolation::Nearest } => {
            layout::nearest_gradient(call, *factor, buffers, plan);
        }
        Op::Upsample { mode: Interpolation::Bilinear, .. } => {
            channels::bilinear_gradient(call, buffers, plan);
        }
        Op::Relu
        | Op::Activation { .. }
        | Op::Clip { .. }
        | Op::Affine { .. }
        | Op::SwiGlu
        | Op::Dropout { .. } => elementwise::input_gradient(call, buffers, plan),
        Op::BatchNorm2d { .. } => {
            channels::batch_norm_gradient(call, buffers, &Incoming::default(), plan);
        }
        Op::LayerNorm { .. } | Op::RmsNorm { .. } => {
            rows::norm_gradient(call, buffers, Tail::default(), plan);
        }
        Op::GroupNorm { .. } | Op::InstanceNorm2d { .. } => {
            channels::group_norm_gradient(call, buffers, plan);
        }
        Op::LocalResponseNorm { .. } => channels::local_response_gradient(call, buffers, plan),
        Op::Slice { .. } | Op::Permute { .. } | Op::Concat { .. } | Op::FirstPosition => {
            layout::input_gradient(call, buffers, plan);
        }
        Op::Add | Op::Subtract | Op::Multiply | Op::Divide => {
            layout::binary_gradient(call, buffers, plan);
        }
        Op::ReduceMean { axes, .. } => layout::mean_gradient(call, axes, buffers, plan),
        Op::MatMul { .. } => convolution::matmul_gradient(call, buffers, plan),
        Op::Softmax | Op::LogSoftmax => rows::softmax_gradient(call, buffers, plan),
        Op::TopKSoftmax { .. } => experts::top_k_gradient(call, buffers, plan),
        Op::Dispatch { .. } => experts::dispatch_gradient(call, buffers, plan),
        Op::GroupedLinear { .. } => experts::grouped_linear_gradient(call, buffers, plan),
        Op::Combine => experts::combine_gradient(call, buffers, plan),
        Op::Attention { .. } | Op::ScaledDotProduct { .. } => {
            attention::input_gradient(call, buffers, plan);
        }
        Op::Rope { base, scaling } => layout::rope(call, *base, *scaling, -1.0, buffers, plan),
        Op::TokenPosition { token } => layout::token_gradient(call, *token, buffers, plan),
        Op::SoftmaxCrossEntropy { .. } if call.shard.degree > 1 => {
            vocabulary::loss_gradient(call, buffers, plan);
        }
        Op::SoftmaxCrossEntropy { .. } | Op::SigmoidCrossEntropy | Op::MeanSquaredError => {
            rows::loss_gradient(call, buffers, plan);
        }
        _ => never(call),
    }
}

fn weight_gradient(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    match call.op {
        Op::Linear { .. } | Op::TiedLinear { .. } => {
            convolution::linear_weight_gradient(call, buffers, plan);
        }
        Op::GroupedLinear { .. } => experts::grouped_linear_weights(call, buffers, plan),
        Op::Conv2d { .. } => convolution::weight_gradient(call, buffers, plan),
        Op::ConvTranspose2d { .. } => {
            convolution::transposed_weight_gradient(call, buffers, plan);
        }
        Op::BatchNorm2d { .. } => channels::batch_norm_weights(call, buffers, plan),
        Op::LayerNorm { .. } | Op::RmsNorm { .. } => rows::norm_weights(call, buffers, plan),
        Op::GroupNorm { .. } => channels::group_norm_weights(call, buffers, plan),
        Op::Embedding { .. } => embedding::embedding_gradient(call, buffers, plan),
        Op::Parameter { .. } => layout::parameter_gradient(call, buffers, plan),
        _ => never(call),
    }
}

fn never(call: &Call) {
    unreachable!("no {:?} of {} in a training graph", call.kind, call.op.name())
}

/// One of a computation's operands, by its place in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A value that is read.
    Read(usize),
    /// A value that is written.
    Write(usize),
    /// A parameter.
    Param(usize),
}

/// Whether an operand is of the storage type; the others are words of 4 bytes, f32 or u32.
pub fn is_stored(call: &Call, operand: Operand) -> bool {
    use ComputationKind::{Forward, InputGradient, PartialLoss, WeightGradient};
    let statistics = matches!(
        call.op,
        Op::BatchNorm2d { .. }
            | Op::LayerNorm { .. }
            | Op::RmsNorm { .. }
            | Op::GroupNorm { .. }
            | Op::InstanceNorm2d { .. }
            | Op::LocalResponseNorm { .. }
    );
    let index = |i: usize| call.inputs.get(i).is_some_and(|spec| spec.dtype == DType::U32);
    match (operand, call.kind) {
        (Operand::Param(i), _) => i < 2 || !matches!(call.op, Op::BatchNorm2d { .. }),
        // Predictions; targets are words, classes or numbers, and statistics and what ranks tell f32.
        (Operand::Read(i), Forward | PartialLoss | InputGradient) if call.op.is_loss() => i == 0,
        (Operand::Read(i), Forward) => !index(i),
        (Operand::Read(i), WeightGradient) => !(index(i) || statistics && i == 2),
        (Operand::Read(i), InputGradient) => match call.op {
            // Places of maxima, tokens.
            Op::MaxPool2d { .. } | Op::TokenPosition { .. } => i != 0,
            Op::Attention { .. } => i != 3,
            Op::ScaledDotProduct { .. } => i != 5,
            _ => !(statistics && i == 2),
        },
        (Operand::Write(_), PartialLoss) => false,
        (Operand::Write(i), Forward) => i == 0 && !call.op.is_loss(),
        _ => true,
    }
}
