//! Norms of channels, pooling, bilinear images.

use super::{
    BLOCK, Bilinear, Buffers, DevicePtr, Images, Launch, LocalResponse, MOST_TERMS, NormChannels,
    NormGroups, Plan, Pool, Source, Storage, Tail,
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

/// Bytes that a thread takes at once: planes of 14 x 14 are multiples of eight in two bytes an element.
const WIDTHS: [u64; 2] = [16, 8];

/// Channels innermost: most runs of a block's strip of channels; see `channels_last.cu`.
const LANES: u64 = 32;

/// Channels innermost: fewest lines of each thread of a block.
const LINES: u64 = 8;

/// Elements, of so many bytes each, of the widest run that divides neighbours and the places of tensors; one where
/// none does. (Tensors of an arena begin at multiples of 64 bytes.)
fn width(neighbours: u64, bytes: u64, tensors: &[DevicePtr]) -> u64 {
    let fits = |run: &u64| {
        (neighbours * bytes).is_multiple_of(*run)
            && tensors.iter().all(|tensor| tensor.0.is_multiple_of(*run))
    };
    WIDTHS.into_iter().find(fits).map_or(1, |run| run / bytes)
}

/// Kernels of channels, each of them in parts: how many there are follows from the shape alone.
struct Channels<'a> {
    plan: &'a mut Plan,
    args: NormChannels,
    /// Whether channels lie innermost.
    last: bool,
}

impl<'a> Channels<'a> {
    /// Of tensors with these addresses.
    fn new(call: &Call, plan: &'a mut Plan, args: NormChannels, last: bool) -> Self {
        let [channels, rows, columns] = call.output.shape[..] else {
            unreachable!("an image has three axes");
        };
        let args = NormChannels { samples: call.samples, channels, plane: rows * columns, ..args };
        Self::of(plan, args, last)
    }

    /// Of tensors and sizes.
    fn of(plan: &'a mut Plan, args: NormChannels, last: bool) -> Self {
        let Tail { own, other, between, .. } = args.tail;
        let tensors = [args.x, args.gy, args.out, args.bias, own, other, between];
        let tensors = [&tensors[..], &args.terms].concat();
        let width = width(if last { args.channels } else { args.plane }, plan.bytes(), &tensors);
        let mut channels = Self { plan, args: NormChannels { width, ..args }, last };
        channels.divide(ENOUGH);
        channels
    }

    /// Runs of a block's strip of channels, and strips.
    fn strips(&self) -> [u64; 2] {
        let runs = self.args.channels / self.args.width;
        let lanes = runs.min(LANES);
        [lanes, runs.div_ceil(lanes)]
    }

    /// In so many blocks, if each has enough to do.
    fn divide(&mut self, blocks: u64) {
        let NormChannels { samples, channels, plane, .. } = self.args;
        self.args.parts = if self.last {
            let [lanes, strips] = self.strips();
            let least = LINES * (u64::from(BLOCK) / lanes);
            let all = samples * plane;
            all.div_ceil(all.div_ceil((blocks / strips).max(1)).max(least))
        } else {
            (blocks / channels).clamp(1, (samples * plane / PART).max(1))
        };
    }

    /// A kernel with a block for each part.
    fn each_part(&mut self, kernel: &str) {
        let parts = self.args.parts;
        if self.last {
            let (kernel, blocks) = (format!("last_{kernel}"), parts * self.strips()[1]);
            self.plan.blocks(Source::ChannelsLast, &kernel, blocks, self.args);
        } else {
            let blocks = self.args.channels * parts;
            self.plan.blocks(Source::Channels, kernel, blocks, self.args);
        }
    }

    /// A kernel that goes over elements with what is known of channels.
    fn each_element(&mut self, kernel: &str) {
        if self.last {
            self.divide(4 * ENOUGH);
        }
        self.each_part(kernel);
    }

    /// A kernel with a thread for each channel.
    fn each_channel(&mut self, kernel: &str) {
        let (kernel, channels) = (kernel.into(), self.args.channels);
        self.plan.plain(Launch::over(Source::Channels, kernel, channels, &self.args));
    }

    /// A kernel whose parts tell two numbers each. Channels innermost, `joined` puts them together at once,
    /// in the place of the blocks that use them: these have many channels.
    fn tell(&mut self, kernel: &str, joined: &str) {
        let NormChannels { channels, parts, .. } = self.args;
        let of_parts = 16 * channels * parts;
        self.args.scratch = self.plan.scratch(of_parts + if self.last { 16 * channels } else { 0 });
        self.each_part(kernel);
        if self.last {
            let threads = 32 * channels;
            self.plan.plain(Launch::over(Source::ChannelsLast, joined.into(), threads, &self.args));
            self.args.scratch = self.args.scratch.after(of_parts);
        }
    }

    /// The sums over channels of the gradient that comes, and with `x`, and what follows from them alone: the
    /// gradients of weights.
    fn tell_sums(&mut self) {
        self.tell("channel_gradient_sums", "last_sums");
    }

    /// Gradients of weights, from these sums. Channels innermost they are there already.
    fn weights(&mut self) {
        if !self.last {
            self.each_channel("channel_weights");
        }
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
    let mut channels = Channels::new(call, plan, args, buffers.channels_last);
    match call.phase {
        Phase::Evaluate => channels.each_channel("running_statistics"),
        _ => channels.tell("channel_statistics", "last_statistics"),
    }
    channels.each_element("channel_norm");
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
    let mut channels = Channels::new(call, plan, args, buffers.channels_last);
    channels.tell_sums();
    channels.each_element("channel_norm_gradient");
    if !weights.is_empty() {
        channels.weights();
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
    let args = NormChannels { x, gy, saved, ..args };
    let mut channels = Channels::new(call, plan, args, buffers.channels_last);
    channels.tell_sums();
    channels.weights();
}

/// Adds the sums of `gy` over each channel to the gradient of a convolution's bias.
pub fn channel_sums(call: &Call, buffers: &Buffers, gy: DevicePtr, plan: &mut Plan) {
    let Some(bias_gradient) = buffers.gradients.get(1).copied() else { return };
    let args = NormChannels { gy, bias_gradient, ..NormChannels::default() };
    let mut channels = Channels::new(call, plan, args, buffers.channels_last);
    channels.tell_sums();
    channels.weights();
}

/// Adds a bias to the channels of images that lie innermost.
pub fn last_bias(storage: Storage, images: Images, [bias, out]: [DevicePtr; 2]) -> Launch {
    let Images { samples, channels, plane } = images;
    let args = NormChannels { out, bias, samples, channels, plane, ..NormChannels::default() };
    let mut plan = Plan::new(storage, false, &Buffers::default());
    Channels::of(&mut plan, args, true).each_element("bias");
    plan.last().clone()
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
        channels: call.output.shape[0],
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

/// A pooling's launch: a thread an element, or with channels innermost a run of them.
fn launch_pool(kernel: &str, pixels: u64, pool: Pool, (buffers, plan): (&Buffers, &mut Plan)) {
    let items = pool.planes * pixels;
    if !buffers.channels_last {
        return plan.over(Source::Channels, kernel, items, pool);
    }
    let Tail { own, other, between, .. } = pool.tail;
    let width = width(pool.channels, plan.bytes(), &[pool.x, pool.out, own, other, between]);
    let (kernel, pool) = (format!("last_{kernel}"), Pool { width, ..pool });
    plan.over(Source::ChannelsLast, &kernel, items / width, pool);
}

pub fn pool(call: &Call, buffers: &Buffers, plan: &mut Plan) {
    let (pool, max) = window(call);
    let (x, out, positions) = (buffers.reads[0], buffers.writes[0], at(buffers.writes, 1));
    let kernel = if max { "max_pool" } else { "average_pool" };
    let pixels = call.output.elements() / pool.channels;
    launch_pool(kernel, pixels, Pool { x, out, positions, ..pool }, (buffers, plan));
}

pub fn pool_gradient(call: &Call, buffers: &Buffers, tail: Tail, plan: &mut Plan) {
    let (pool, max) = window(call);
    let (kernel, positions, x) = match *buffers.reads {
        [positions, gy] if max => ("max_pool_gradient", positions, gy),
        [gy] => ("average_pool_gradient", DevicePtr::NULL, gy),
        _ => unreachable!("a pooling's gradient reads gy, of maxima their positions too"),
    };
    let pixels = call.inputs[0].elements() / pool.channels;
    let pool = Pool { x, out: buffers.writes[0], positions, tail, ..pool };
    launch_pool(kernel, pixels, pool, (buffers, plan));
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
