//! Launches over many tensors at once: updates of parameters, sums of squares, codecs of buckets.
//!
//! The host writes the tables (tensors, chunks, pieces) to the device once, and the numbers of a step
//! before each, so that launches can be recorded and replayed.

use super::{BLOCK, Codec, DevicePtr, Float8, Launch, Optimizer, Source, Squares, Storage};
use crate::device::Coded;
use pipewright_core::compress::{CodecKind, Rounding, Scale};
use pipewright_core::plan;
use pipewright_kernels::decimal;
use smallvec::SmallVec;

/// Elements of a tensor that a block takes.
pub const CHUNK: u64 = 4096;

/// A parameter with what belongs to it, all f32 but `copy`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tensor {
    /// Its values; none where only its gradient is of interest.
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

/// Finds the squares of each chunk's gradients, and of its weights, those that are there: in scratch, 16
/// bytes a chunk.
pub fn chunk_squares(tables: &Tables, scratch: DevicePtr) -> Launch {
    let args = sums(tables, scratch);
    Launch::blocks(Source::Optimizer, "chunk_squares".into(), tables.chunk_count.into(), &args)
}

/// Writes the sum of the squares of each gradient to `totals`, an f64 a tensor: finite if all of its
/// values are. Of what [`chunk_squares`] left in scratch.
pub fn tensor_squares(tables: &Tables, scratch: DevicePtr, totals: DevicePtr) -> Launch {
    let args = Squares { totals, ..sums(tables, scratch) };
    Launch::blocks(Source::Optimizer, "tensor_squares".into(), tables.tensor_count.into(), &args)
}

/// LARS's rates, of what [`chunk_squares`] left in scratch.
pub fn local_rates(tables: &Tables, scratch: DevicePtr, trust: f32, decay: f32) -> Launch {
    let args = Squares { trust, decay, ..sums(tables, scratch) };
    Launch::blocks(Source::Optimizer, "local_rates".into(), tables.tensor_count.into(), &args)
}

/// Bytes of scratch that encoding takes: what is seen of pieces and of chunks.
pub fn scratch(coded: &Coded) -> u64 {
    // Sizes of PieceStats, and of Seen and ChunkSums, in pieces.cuh.
    const OF_PIECE: u64 = 4 * (6 + 2 + 2 * 128);
    const OF_CHUNK: u64 = 8 + 8 * (8 + 1) * 3;
    OF_PIECE * u64::from(coded.count) + OF_CHUNK * u64::from(coded.chunks)
}

/// Launches, one after the other.
pub type Launches = SmallVec<[Launch; 4]>;

/// Encodes all pieces, with [`scratch`]; none for codecs that have no kernel.
pub fn encode(kind: CodecKind, coded: &Coded, scratch: DevicePtr) -> Option<Launches> {
    let (names, args) = codec(kind, coded)?;
    let args = Codec { scratch, scales: DevicePtr::NULL, ..args };
    // Without error feedback, numbers that need nothing else of their piece are encoded at once.
    let alone = names.name.starts_with("bf") || names.name.starts_with("fp");
    let looks = !alone || args.block == u64::MAX || coded.residual != DevicePtr::NULL;
    Some(encoding(&names, looks, args, coded))
}

fn encoding(names: &Names, looks: bool, args: Codec, coded: &Coded) -> Launches {
    let sums = u32::from(names.name == "one_bit");
    let sorts = looks && (args.width != 0 || args.percentile != 0);
    let samples = if sorts { coded.count } else { 0 };
    let shared = if sorts { SAMPLE } else { 0 };
    let args = Codec { looks: looks.into(), sums, samples, ..args };
    let launch = |kernel: &str, blocks: u32| {
        Launch::blocks(names.source, kernel.into(), blocks.into(), &args)
    };
    let mut all = Launches::new();
    if looks {
        // Half of a larger block would have no unit to add up.
        let block = if sums != 0 { BLOCK / 2 } else { BLOCK };
        all.push(Launch { shared, block, ..launch("chunk_stats", samples + coded.chunks) });
        if sums != 0 {
            all.push(launch("one_bit_groups", coded.chunks / GROUP_CHUNKS + coded.count));
        }
        let block = if names.joins == "carry_piece" { BLOCK } else { LARGEST_BLOCK };
        all.push(Launch { shared, block, ..launch(names.joins, coded.count) });
    }
    all.push(launch(&format!("{}_encode", names.name), coded.chunks));
    all
}

/// Decodes all pieces, or adds what they say; none for codecs that have no kernel.
pub fn decode(kind: CodecKind, coded: &Coded, add: bool) -> Option<Launch> {
    let (names, args) = codec(kind, coded)?;
    let args = Codec { add: add.into(), scales: DevicePtr::NULL, ..args };
    let kernel = format!("{}_decode", names.name);
    Some(Launch::blocks(names.source, kernel, coded.chunks.into(), &args))
}

/// Writes the largest magnitude of each piece to `scales`, of values with what was lost of them before.
pub fn measure(coded: &Coded, scratch: DevicePtr) -> [Launch; 2] {
    let args = Codec { scratch, ..places(coded) };
    let launch = |kernel: &str, blocks: u32| {
        Launch::blocks(Source::Codecs, kernel.into(), blocks.into(), &args)
    };
    [launch("chunk_stats", coded.chunks), launch("measure_piece", coded.count)]
}

/// Encodes as E5M2 with the scales that there are.
pub fn encode_scaled(rounding: Rounding, coded: &Coded, scratch: DevicePtr) -> Launches {
    let args = Codec { scratch, format: format(rounding) as u32, ..places(coded) };
    let names = Names { name: "fp8", joins: "carry_piece", source: Source::Codecs };
    encoding(&names, coded.residual != DevicePtr::NULL, args, coded)
}

/// Decodes what [`encode_scaled`] wrote.
pub fn decode_scaled(coded: &Coded) -> Launch {
    // All roundings decode alike.
    let format = Float8::NearestEven as u32;
    let args = Codec { format, ..places(coded) };
    Launch::blocks(Source::Codecs, "fp8_decode".into(), coded.chunks.into(), &args)
}

fn places(coded: &Coded) -> Codec {
    Codec {
        pieces: coded.pieces,
        values: coded.values,
        residual: coded.residual,
        wire: coded.wire,
        decoded: coded.decoded,
        scales: coded.scales,
        count: coded.count.into(),
        chunks: coded.chunks,
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

/// Chunks whose sums make one, and threads of a block that has a whole piece: see pieces.cuh.
const GROUP_CHUNKS: u32 = 64;
const LARGEST_BLOCK: u32 = 1024;

/// Bytes of a sample that is sorted.
const SAMPLE: u32 = 4 * 4096;

/// A codec's kernels: how their names begin, the one that joins what was seen of a piece, where they are.
struct Names {
    name: &'static str,
    joins: &'static str,
    source: Source,
}

fn codec(kind: CodecKind, coded: &Coded) -> Option<(Names, Codec)> {
    let args = places(coded);
    let (name, joins, args) = match kind {
        CodecKind::Bf16 => ("bf16", "carry_piece", args),
        CodecKind::Fp16 => ("fp16", "carry_piece", args),
        CodecKind::Fp8E5m2 { rounding, scale } => {
            ("fp8", "fp8_piece", scaled(args, format(rounding), scale))
        }
        CodecKind::Fp8E4m3 { scale } => ("fp8", "fp8_piece", scaled(args, Float8::E4m3, scale)),
        CodecKind::Table { bits } => ("table", "table_piece", Codec { width: bits.into(), ..args }),
        CodecKind::OneBit { threshold } if threshold == Default::default() => {
            ("one_bit", "one_bit_piece", args)
        }
        _ => return None,
    };
    let of_levels = ["table", "one_bit"].contains(&name);
    let source = if of_levels { Source::Levels } else { Source::Codecs };
    Some((Names { name, joins, source }, args))
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
