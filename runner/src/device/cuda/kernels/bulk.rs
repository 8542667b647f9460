//! Launches over many tensors at once: updates of parameters, sums of squares, codecs of buckets.
//!
//! The host writes the tables (tensors, chunks, pieces) to the device once, and the numbers of a step
//! before each, so that launches can be recorded and replayed.

use super::{Codec, DevicePtr, Float8, Launch, Optimizer, Source, Squares, Storage};
use crate::device::cpu::decimal;
use pipewright_core::compress::{CodecKind, Rounding, Scale};
use pipewright_core::plan;
use smallvec::SmallVec;

/// Elements of a tensor that a block takes.
pub const CHUNK: u64 = 4096;

/// A parameter with what belongs to it, all f32 but `copy`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tensor {
    /// Its values.
    pub weight: DevicePtr,
    /// Its gradient; zero afterwards.
    pub gradient: DevicePtr,
    /// What the optimizer keeps, in the order of its names; none where it keeps less.
    pub state: [DevicePtr; 2],
    /// The values in the storage type; none where that is f32.
    pub copy: DevicePtr,
    /// Elements.
    pub count: u64,
    /// LARS's rate, an f64: -1 for tensors of one axis, which have none. Not for other optimizers.
    pub local: DevicePtr,
}

/// The table of tensors.
pub fn tensors(list: &[Tensor]) -> Vec<u8> {
    let words = list.iter().flat_map(|t| {
        let [first, second] = t.state;
        [t.weight.0, t.gradient.0, first.0, second.0, t.copy.0, t.count, t.local.0]
    });
    words.flat_map(u64::to_ne_bytes).collect()
}

/// The table of chunks, and how many there are.
pub fn chunks(list: &[Tensor]) -> (Vec<u8>, u32) {
    let mut bytes = vec![];
    for (tensor, Tensor { count, .. }) in (0u32..).zip(list) {
        for chunk in 0..count.div_ceil(CHUNK) as u32 {
            bytes.extend(tensor.to_ne_bytes());
            bytes.extend(chunk.to_ne_bytes());
        }
    }
    let number = (bytes.len() / 8) as u32;
    (bytes, number)
}

/// The numbers of a step: learning rate, updates so far from 1, factor of gradients. A skipped step
/// only clears gradients.
pub fn numbers(
    optimizer: plan::Optimizer,
    rate: f64,
    update: u64,
    scale: f32,
    skip: bool,
) -> Vec<u8> {
    let power = |base: f64| base.powi(i32::try_from(update).unwrap_or(i32::MAX));
    let (mut keep, mut root_correction, mut size) = (1.0, 1.0, rate);
    if let plan::Optimizer::Adam { beta1, beta2, weight_decay, .. }
    | plan::Optimizer::AdamW { beta1, beta2, weight_decay, .. } = optimizer
    {
        root_correction = (1.0 - power(decimal(beta2))).sqrt();
        size = rate / (1.0 - power(decimal(beta1)));
        if matches!(optimizer, plan::Optimizer::AdamW { .. }) {
            keep = 1.0 - rate * decimal(weight_decay);
        }
    }
    let floats = [rate as f32, scale, keep as f32, root_correction as f32, size as f32];
    let mut bytes: Vec<u8> = floats.into_iter().flat_map(f32::to_ne_bytes).collect();
    bytes.extend(u32::from(skip).to_ne_bytes());
    bytes
}

/// Where the tables are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tables {
    /// What [`tensors`] made.
    pub tensors: DevicePtr,
    /// How many they are.
    pub tensor_count: u32,
    /// What [`chunks`] made.
    pub chunks: DevicePtr,
    /// How many they are.
    pub chunk_count: u32,
    /// What [`numbers`] made.
    pub numbers: DevicePtr,
}

/// Updates all tensors. LARS needs [`local_rates`] before.
pub fn update(optimizer: plan::Optimizer, storage: Storage, tables: &Tables) -> Launch {
    let args = Optimizer {
        tensors: tables.tensors,
        chunks: tables.chunks,
        numbers: tables.numbers,
        ..Optimizer::default()
    };
    let (kernel, args) = match optimizer {
        plan::Optimizer::Sgd { momentum, nesterov, weight_decay, .. } => {
            let nesterov = nesterov.into();
            ("momentum_step", Optimizer { momentum, nesterov, decay: weight_decay, ..args })
        }
        plan::Optimizer::Lars { momentum, weight_decay, .. } => {
            ("momentum_step", Optimizer { momentum, decay: weight_decay, ..args })
        }
        plan::Optimizer::Adam { beta1, beta2, weight_decay, eps, .. }
        | plan::Optimizer::AdamW { beta1, beta2, weight_decay, eps, .. } => {
            let decoupled = matches!(optimizer, plan::Optimizer::AdamW { .. });
            let decay = if decoupled { 0.0 } else { decimal(weight_decay) as f32 };
            let (beta1, beta2) = (decimal(beta1), decimal(beta2));
            let args = Optimizer {
                decay,
                new_mean: (1.0 - beta1) as f32,
                beta2: beta2 as f32,
                new_square: (1.0 - beta2) as f32,
                eps,
                ..args
            };
            ("adam_step", args)
        }
    };
    let kernel = format!("{kernel}_{}", storage.suffix());
    Launch::blocks(Source::Optimizer, kernel, tables.chunk_count.into(), &args)
}

fn sums(tables: &Tables, scratch: DevicePtr) -> Squares {
    Squares {
        tensors: tables.tensors,
        chunks: tables.chunks,
        numbers: tables.numbers,
        scratch,
        number: tables.chunk_count.into(),
        ..Squares::default()
    }
}

/// Writes the sum of the squares of all gradients to `total`, an f64: finite if all of them are.
/// Scratch: 16 bytes a chunk.
pub fn squares(tables: &Tables, scratch: DevicePtr, total: DevicePtr) -> [Launch; 2] {
    let args = Squares { total, ..sums(tables, scratch) };
    let launch =
        |kernel: &str, blocks| Launch::blocks(Source::Optimizer, kernel.into(), blocks, &args);
    [launch("chunk_squares", tables.chunk_count.into()), launch("all_squares", 1)]
}

/// LARS's rates, of what `chunk_squares` of [`squares`] left in scratch.
pub fn local_rates(tables: &Tables, scratch: DevicePtr, (trust, decay): (f32, f32)) -> Launch {
    let args = Squares { trust, decay, ..sums(tables, scratch) };
    Launch::blocks(Source::Optimizer, "local_rates".into(), tables.tensor_count.into(), &args)
}

/// What is encoded by itself: where its values and its message begin, in values and in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First value in the bucket.
    pub values: u64,
    /// Values.
    pub count: u64,
    /// First byte of its message.
    pub wire: u64,
}

/// Values of a piece that a block takes: whole ones of those that share a scale.
fn chunk(kind: CodecKind) -> u64 {
    const MOST: u64 = 8192;
    match kind {
        CodecKind::Fp8E5m2 { scale: Scale::Block(block), .. }
        | CodecKind::Fp8E4m3 { scale: Scale::Block(block) } => {
            let block = u64::from(block.max(1));
            (MOST / block).max(1) * block
        }
        _ => MOST,
    }
}

/// The tables of pieces and of their chunks for a codec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PieceTables {
    /// The table of pieces.
    pub pieces: Vec<u8>,
    /// How many they are.
    pub count: u32,
    /// The table of chunks.
    pub chunks: Vec<u8>,
    /// How many they are.
    pub chunk_count: u32,
}

impl PieceTables {
    /// Of a codec's pieces.
    pub fn new(kind: CodecKind, list: &[Piece]) -> Self {
        let (mut pieces, mut chunks, each) = (vec![], vec![], chunk(kind));
        for (number, Piece { values, count, wire }) in (0u32..).zip(list) {
            let first = (chunks.len() / 8) as u64;
            pieces.extend([*values, *count, *wire, first].into_iter().flat_map(u64::to_ne_bytes));
            for index in 0..count.div_ceil(each) as u32 {
                chunks.extend([number, index].into_iter().flat_map(u32::to_ne_bytes));
            }
        }
        let (count, chunk_count) = (list.len() as u32, (chunks.len() / 8) as u32);
        Self { pieces, count, chunks, chunk_count }
    }

    /// Bytes of scratch that encoding takes: what is seen of pieces and of chunks.
    pub fn scratch(&self) -> u64 {
        // Sizes of PieceStats and ChunkStats in pieces.cuh.
        const OF_PIECE: u64 = 4 * (6 + 2 * 128);
        const OF_CHUNK: u64 = 16 + 8 * 8 * 3;
        OF_PIECE * u64::from(self.count) + OF_CHUNK * u64::from(self.chunk_count)
    }
}

/// Where a bucket's values and messages are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bucket {
    /// The table of pieces.
    pub pieces: DevicePtr,
    /// How many they are.
    pub count: u32,
    /// The table of chunks.
    pub chunks: DevicePtr,
    /// How many they are.
    pub chunk_count: u32,
    /// [`PieceTables::scratch`], for encoding.
    pub scratch: DevicePtr,
    /// Values to encode.
    pub values: DevicePtr,
    /// What was lost before and is lost now; none without error feedback.
    pub residual: DevicePtr,
    /// Messages.
    pub wire: DevicePtr,
    /// Where decoded values go; when encoding, none if nobody wants them.
    pub decoded: DevicePtr,
}

/// Encodes all pieces: launches, one after the other. None for codecs that have no kernel.
pub fn encode(kind: CodecKind, bucket: &Bucket) -> Option<SmallVec<[Launch; 3]>> {
    let (name, source, args) = codec(kind, bucket)?;
    let sorts = args.width != 0 || args.percentile != 0;
    // Without error feedback, numbers that need nothing else of their piece are encoded at once.
    let alone = name == "fp8" && args.block != u64::MAX;
    let looks = !alone || bucket.residual != DevicePtr::NULL;
    let args = Codec { looks: looks.into(), sums: u32::from(name == "one_bit"), ..args };
    let launch = |kernel: String, blocks: u32| Launch::blocks(source, kernel, blocks.into(), &args);
    let mut all = SmallVec::new();
    if looks {
        all.push(launch("chunk_stats".into(), bucket.chunk_count));
        let shared = if sorts { SAMPLE } else { 0 };
        all.push(Launch { shared, ..launch(format!("{name}_piece"), bucket.count) });
    }
    all.push(launch(format!("{name}_encode"), bucket.chunk_count));
    Some(all)
}

/// Decodes all pieces, or adds what they say; none for codecs that have no kernel.
pub fn decode(kind: CodecKind, bucket: &Bucket, add: bool) -> Option<Launch> {
    let (name, source, args) = codec(kind, bucket)?;
    let args = Codec { add: add.into(), ..args };
    Some(Launch::blocks(source, format!("{name}_decode"), bucket.chunk_count.into(), &args))
}

/// Adds the E5M2 codes at `wire` to those at `decoded`; chunks are those of unscaled codes.
pub fn add_codes(rounding: Rounding, bucket: &Bucket) -> Launch {
    let kind = CodecKind::Fp8E5m2 { rounding, scale: Scale::None };
    let args = Codec { format: format(rounding) as u32, ..places(kind, bucket) };
    Launch::blocks(Source::Codecs, "e5m2_add".into(), bucket.chunk_count.into(), &args)
}

fn places(kind: CodecKind, bucket: &Bucket) -> Codec {
    Codec {
        pieces: bucket.pieces,
        chunks: bucket.chunks,
        scratch: bucket.scratch,
        values: bucket.values,
        residual: bucket.residual,
        wire: bucket.wire,
        decoded: bucket.decoded,
        count: bucket.count.into(),
        chunk: chunk(kind),
        ..Codec::default()
    }
}

fn format(rounding: Rounding) -> Float8 {
    match rounding {
        Rounding::Truncate => Float8::Truncate,
        Rounding::NearestEven => Float8::NearestEven,
        Rounding::Saturating => Float8::Saturating,
    }
}

/// Bytes of a sample that is sorted.
const SAMPLE: u32 = 4 * 4096;

/// How names of its kernels begin, where they are, and their arguments.
fn codec(kind: CodecKind, bucket: &Bucket) -> Option<(&'static str, Source, Codec)> {
    let args = places(kind, bucket);
    Some(match kind {
        CodecKind::Fp8E5m2 { rounding, scale } => {
            ("fp8", Source::Codecs, scaled(args, format(rounding), scale))
        }
        CodecKind::Fp8E4m3 { scale } => ("fp8", Source::Codecs, scaled(args, Float8::E4m3, scale)),
        CodecKind::Table { bits } => {
            ("table", Source::Levels, Codec { width: bits.into(), ..args })
        }
        CodecKind::OneBit { threshold } if threshold == Default::default() => {
            ("one_bit", Source::Levels, args)
        }
        _ => return None,
    })
}

fn scaled(args: Codec, format: Float8, scale: Scale) -> Codec {
    let (block, percentile) = match scale {
        Scale::None => (0, 0),
        Scale::PowerOfTwo => (u64::MAX, 0),
        Scale::Percentile => (u64::MAX, 1),
        Scale::Block(block) => (block.max(1).into(), 0),
    };
    Codec { format: format as u32, block, percentile, ..args }
}
