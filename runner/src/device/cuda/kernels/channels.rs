//! Norms of channels, pooling, bilinear images.

use super::{
    Bilinear, Buffers, DevicePtr, Launch, LocalResponse, MOST_TERMS, NormChannels, NormGroups,
    Plan, Pool, Source, Tail,
};
use pipewright_core::graph::Op;
use pipewright_kernels::{Call, Phase};

pub fn pair(sizes: &[u64]) -> [u32; 2] {
    [sizes[0] as u32, sizes[1] as u32]
}

/// The pointer at a place of a list, or none.
fn at(list: &[DevicePtr], place: usize) -> DevicePtr {
    list.get(place).copied().unwrap_or_default()
}

/// Fewest elements of a part of a channel: several for each of a block's threads.
const PART: u64 = 1 << 11;

/// Blocks that keep a GPU busy.
const ENOUGH: u64 = 1 << 10;

/// Elements that a thread takes at once, at most 16 bytes: planes of 14 x 14 are multiples of four.
const WIDTHS: [u64; 3] = [8, 4, 2];

/// Kernels of channels, each of them in parts: how many there are follows from the shape alone.
/// (Tensors of an arena begin at multiples of 64 bytes, so `width` does too.)
struct Channels<'a> {
    plan: &'a mut Plan,
    args: NormChannels,
}

impl<'a> Channels<'a> {
    /// Of tensors with these addresses.
    fn new(call: &Call, plan: &'a mut Plan, args: NormChannels) -> Self {
        let [channels, rows, columns] = call.output.shape[..] else {
            unreachable!("an image has three axes");
        };
        let (samples, plane) = (call.samples, rows * columns);
        let parts = (ENOUGH / channels).clamp(1, (samples * plane / PART).max(1));
        let Tail { own, other, between, .. } = args.tail;
        let tensors = [args.x, args.gy, args.out, own, other, between];
        let lie = |width: &u64| {
            let bytes = width * plan.bytes();
            bytes <= 16
                && plane.is_multiple_of(*width)
                && tensors.iter().chain(&args.terms).all(|tensor| tensor.0.is_multiple_of(bytes))
        };
        let width = WIDTHS.into_iter().find(lie).unwrap_or(1);
        let args = NormChannels { samples, channels, plane, parts, width, ..args };
        Self { plan, args }
    }

    /// A kernel with a block for each part.
    fn each_part(&mut self, kernel: &str) {
        let blocks = self.args.channels * self.args.parts;
        self.plan.blocks(Source::Channels, kernel, blocks, self.args);
    }

    /// A kernel with a thread for each channel.
    fn each_channel(&mut self, kernel: &str) {
        let (kernel, channels) = (kernel.into(), self.args.channels);
        self.plan.plain(Launch::over(Source::Channels, kernel, channels, &self.args));
    }

    /// A kernel whose parts tell two numbers each.
    fn tell(&mut self, kernel: &str) {
        self.args.scratch = self.plan.scratch(16 * self.args.channels * self.args.parts);
        self.each_part(kernel);
    }
}

/// The norm, and what is done with its value.
pub fn batch_norm(call: &Call, buffers: &Buffers, tail: Tail, plan: &mut Plan) {
    let Op::BatchNorm2d { eps, momentum } = *call.op else {
        unreachable!("{} is no batch normalisation", call.op.name());
    };
    let args = NormChannels {
        x: buffers.reads[0],
        out: buffers.writes[0],
        saved: buffers.writes[1],
        weight: buffers.params[0],
        bias: buffers.params[1],
        running_mean: buffers.params[2],
        running_variance: buffers.params[3],
        all_mean: at(buffers.deferred, 0),
        all_variance: at(buffers.deferred, 1),
        tail,
        eps,
        momentum,
        update: (call.phase == Phase::Train).into(),
        turn: call.turn.index,
        turns: call.turn.count,
        ..NormChannels::default()
    };
    let mut channels = Channels::new(call, plan, args);
    match call.phase {
        Phase::Evaluate => channels.each_channel("running_statistics"),
        _ => channels.tell("channel_statistics"),
    }
    channels.each_part("channel_norm");
}

/// What a batch normalisation's gradient is made of besides what it reads, where it is made on the way.
#[derive(Default)]
pub struct Incoming<'a> {
    /// Gradients that are added; none where their sum lies there already.
    pub terms: &'a [DevicePtr],
    /// What is done with the sum.
    pub tail: Tail,
    /// Where the gradients of weights are added to, from the same sums.
    pub weights: &'a [DevicePtr],
}

pub fn batch_norm_gradient(call: &Call, buffers: &Buffers, incoming: &Incoming, plan: &mut Plan) {
    let [x, gy, saved] = *buffers.reads else {
        unreachable!("a batch normalisation's gradient reads x, gy and its statistics");
    };
    let Incoming { terms: all, tail, weights } = *incoming;
    let (out, weight) = (buffers.writes[0], buffers.params[0]);
    let mut terms = [DevicePtr::NULL; MOST_TERMS];
    terms[..all.len()].copy_from_slice(all);
    let (number, weight_gradient, bias_gradient) =
        (all.len() as u32, at(weights, 0), at(weights, 1));
    let args =
        NormChannels { x, gy, saved, out, weight, terms, tail, number, ..Default::default() };
    let args = NormChannels { weight_gradient, bias_gradient, ..args };
    let mut channels = Channels::new(call, plan, args);
    channels.tell("channel_gradient_sums");
    channels.each_part("channel_norm_gradient");
    if !weights.is_empty() {
        channels.each_channel("channel_weights");
    }
}

pub fn batch_norm_weights(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let [x, gy, saved] = *buffers.reads else {
        unreachable!("a batch normalisation's gradient reads x, gy and its statistics");
    };
    let [weight_gradient, bias_gradient] = *buffers.gradients else {
        unreachable!("a batch normalisation has two trainable parameters");
    };
    let args = NormChannels { weight_gradient, bias_gradient, ..NormChannels::default() };
    let mut channels = Channels::new(call, plan, NormChannels { x, gy, saved, ..args });
    channels.tell("channel_gradient_sums");
    channels.each_channel("channel_weights");
}

/// Adds the sums of `gy` over each channel to the gradient of a convolution's bias.
pub fn channel_sums(call: &Call, gy: DevicePtr, bias_gradient: DevicePtr, plan: &mut Plan) {
    let args = NormChannels { gy, bias_gradient, ..NormChannels::default() };
    let mut channels = Channels::new(call, plan, args);
    channels.tell("channel_gradient_sums");
    channels.each_channel("channel_weights");
}

fn norm_groups(call: &Call) -> NormGroups {
    let channels = call.output.shape[0];
    let (groups, eps) = match *call.op {
        Op::GroupNorm { groups, eps } => (groups, eps),
        Op::InstanceNorm2d { eps } => (channels, eps),
        ref other => unreachable!("{} does not normalise channels", other.name()),
    };
    NormGroups {
        groups: call.samples * groups,
        together: channels / groups,
        channels,
        plane: call.output.elements() / channels,
        eps,
        ..NormGroups::default()
    }
}

pub fn group_norm(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let args = NormGroups {
        x: buffers.reads[0],
        out: buffers.writes[0],
        saved: buffers.writes[1],
        weight: at(buffers.params, 0),
        bias: at(buffers.params, 1),
        ..norm_groups(call)
    };
    plan.blocks(Source::Channels, "group_norm", args.groups, args);
}

pub fn group_norm_gradient(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let [x, gy, saved] = *buffers.reads else {
        unreachable!("a normalisation's gradient reads x, gy and its statistics");
    };
    let (out, weight) = (buffers.writes[0], at(buffers.params, 0));
    let args = NormGroups { x, gy, saved, out, weight, ..norm_groups(call) };
    plan.blocks(Source::Channels, "group_norm_gradient", args.groups, args);
}

pub fn group_norm_weights(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let [x, gy, saved] = *buffers.reads else {
        unreachable!("a normalisation's gradient reads x, gy and its statistics");
    };
    let [weight_gradient, bias_gradient] = *buffers.gradients else {
        unreachable!("a normalisation of groups has a scale and a shift");
    };
    let args = NormGroups { x, gy, saved, weight_gradient, bias_gradient, ..norm_groups(call) };
    plan.blocks(Source::Channels, "group_norm_weights", args.channels, args);
}

fn response(call: &Call) -> LocalResponse {
    let Op::LocalResponseNorm { size, alpha, beta, k } = *call.op else {
        unreachable!("{} is no local response normalisation", call.op.name());
    };
    let channels = call.output.shape[0];
    LocalResponse {
        count: call.samples * call.output.elements(),
        channels,
        plane: call.output.elements() / channels,
        size: size as u32,
        share: alpha / size as f32,
        beta,
        k,
        ..LocalResponse::default()
    }
}

pub fn local_response(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let (x, out, saved) = (buffers.reads[0], buffers.writes[0], buffers.writes[1]);
    let args = LocalResponse { x, out, saved, ..response(call) };
    plan.over(Source::Channels, "local_response", args.count, args);
}

pub fn local_response_gradient(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let [x, gy, saved] = *buffers.reads else {
        unreachable!("a normalisation's gradient reads x, gy and its statistics");
    };
    let args = LocalResponse { x, gy, saved, out: buffers.writes[0], ..response(call) };
    plan.over(Source::Channels, "local_response_gradient", args.count, args);
}

/// Sizes of a pooling, and whether it takes maxima.
fn window(call: &Call) -> (Pool, bool) {
    let (window, count_padding, max) = match call.op {
        Op::MaxPool2d { window } => (window, false, true),
        Op::AvgPool2d { window, count_padding } => (window, *count_padding, false),
        other => unreachable!("{} is no pooling", other.name()),
    };
    let pool = Pool {
        planes: call.samples * call.output.shape[0],
        size: pair(&call.inputs[0].shape[1..]),
        out_size: pair(&call.output.shape[1..]),
        kernel: pair(&window.kernel),
        stride: pair(&window.stride),
        padding: pair(&window.padding),
        count_padding: count_padding.into(),
        ..Pool::default()
    };
    (pool, max)
}

pub fn pool(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let (pool, max) = window(call);
    let (x, out, positions) = (buffers.reads[0], buffers.writes[0], at(buffers.writes, 1));
    let kernel = if max { "max_pool" } else { "average_pool" };
    let items = call.samples * call.output.elements();
    plan.over(Source::Channels, kernel, items, Pool { x, out, positions, ..pool });
}

pub fn pool_gradient(call: &Call, buffers: &Buffers, tail: Tail, plan: &mut Plan) {
    let (pool, max) = window(call);
    let (kernel, positions, x) = match *buffers.reads {
        [positions, gy] if max => ("max_pool_gradient", positions, gy),
        [gy] => ("average_pool_gradient", DevicePtr::NULL, gy),
        _ => unreachable!("a pooling's gradient reads gy, of maxima their positions too"),
    };
    let items = call.samples * call.inputs[0].elements();
    plan.over(
        Source::Channels,
        kernel,
        items,
        Pool { x, out: buffers.writes[0], positions, tail, ..pool },
    );
}

fn images(call: &Call, buffers: &Buffers) -> Bilinear {
    let small = &call.inputs[0].shape;
    let Op::Upsample { factor, .. } = *call.op else {
        unreachable!("{} makes no image larger", call.op.name());
    };
    Bilinear {
        x: buffers.reads[0],
        out: buffers.writes[0],
        planes: call.samples * small[0],
        size: pair(&small[1..]),
        factor: factor as u32,
    }
}

pub fn bilinear(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let items = call.samples * call.output.elements();
    plan.over(Source::Channels, "bilinear", items, images(call, buffers));
}

pub fn bilinear_gradient(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let items = call.samples * call.inputs[0].elements();
    plan.over(Source::Channels, "bilinear_gradient", items, images(call, buffers));
}
