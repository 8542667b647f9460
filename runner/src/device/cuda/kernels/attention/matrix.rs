//! Attention on the matrix units: halves and, where it will do, TF32, heads of whole runs of sixteen bytes.

use super::{Attention, DevicePtr, Plan, Source, Storage, each_sample};

/// Warps of a block; `WARPS` of attention_matrix.cu.
const WARPS: u32 = 4;

/// Bytes of a thread's copy, and between rows of a tile beside a head's width.
const PIECE: u32 = 16;

/// Elements of the widest head in single precision.
const WIDEST_TF32: u32 = 128;

/// Sizes of kernels for heads of some width, as attention_matrix.cu has them.
struct Sizes {
    wide: u32,
    /// Bytes of an element.
    bytes: u32,
    /// Rows of queries in a block; of keys there are always 16 a warp.
    queries: u32,
    /// Rows of a tile.
    forward_tile: u32,
    backward_tile: u32,
    /// Blocks that share the columns of the gradients of keys and values.
    shares: u32,
}

impl Sizes {
    fn of(args: &Attention, plan: &Plan) -> Self {
        let wide = match args.d.max(args.e) {
            0..=32 => 32,
            33..=64 => 64,
            65..=128 => 128,
            _ => 256,
        };
        let bytes = plan.bytes() as u32;
        let strips = if bytes == 2 && wide <= 64 { 2 } else { 1 };
        Self {
            wide,
            bytes,
            queries: 16 * strips * WARPS,
            forward_tile: if bytes == 2 && wide <= 128 { 64 } else { 32 },
            backward_tile: if bytes == 2 && wide <= 64 { 64 } else { 32 },
            shares: if wide <= 128 { 1 } else { 2 },
        }
    }

    /// Bytes of rows.
    fn rows(&self, count: u32) -> u32 {
        count * (self.bytes * self.wide + PIECE)
    }

    /// Queries, and two stages of keys and values.
    fn forward_bytes(&self) -> u32 {
        self.rows(self.queries + 4 * self.forward_tile)
    }

    fn queries_bytes(&self) -> u32 {
        self.rows(2 * self.queries + 4 * self.backward_tile)
    }

    /// Keys and values, and two stages of queries, of gradients, and of two numbers of each query.
    fn keys_bytes(&self) -> u32 {
        self.rows(2 * 16 * WARPS + 4 * self.backward_tile) + 2 * 8 * self.backward_tile
    }

    fn most_bytes(&self) -> u32 {
        self.forward_bytes().max(self.queries_bytes()).max(self.keys_bytes())
    }
}

/// Whether the matrix units take it: the forward and the backward pass of a shape alike.
pub fn takes(args: &Attention, plan: &Plan) -> bool {
    let (sizes, bytes) = (Sizes::of(args, plan), plan.bytes());
    let is_whole = |elements: u64| (elements * bytes).is_multiple_of(PIECE.into());
    let strides = [args.q_strides, args.k_strides, args.v_strides, args.y_strides];
    let places = [args.q, args.k, args.v, args.y, args.gy, args.gq, args.gk, args.gv];
    let has_kernels = match plan.storage() {
        Storage::F32 => plan.tf32() && sizes.wide <= WIDEST_TF32,
        Storage::Bf16 | Storage::F16 => true,
    };
    plan.matrix_units()
        && args.scale > 0.0
        && has_kernels
        && sizes.most_bytes() <= plan.most_shared()
        && [args.d, args.e].iter().all(|width| is_whole((*width).into()))
        && strides.iter().flatten().all(|stride| is_whole(*stride))
        && places.iter().all(|place| place.0.is_multiple_of(PIECE.into()))
}

fn launch(plan: &mut Plan, name: &str, grid: [u32; 2], shared: u32, args: Attention, items: u64) {
    let [blocks, heads] = grid;
    each_sample(plan, args, items, |plan, args, count| {
        plan.blocks(Source::on_matrix_units(plan.storage()), name, 1, args);
        let launch = plan.last();
        launch.grid = [blocks, heads, count];
        (launch.block, launch.shared) = (32 * WARPS, shared);
    });
}

pub fn forward(args: Attention, items: u64, plan: &mut Plan) {
    let sizes = Sizes::of(&args, plan);
    let name = format!("attention_matrix_{}", sizes.wide);
    let grid = [args.n.div_ceil(sizes.queries), args.heads];
    launch(plan, &name, grid, sizes.forward_bytes(), args, items);
}

/// The gradients that have a place; scratch has a number for each query.
pub fn gradients(args: Attention, items: u64, plan: &mut Plan) {
    let sizes = Sizes::of(&args, plan);
    let means = plan.scratch(4 * items * u64::from(args.heads) * u64::from(args.n));
    let args = Attention { means, ..args };
    each_sample(plan, args, items, |plan, args, count| {
        plan.blocks(Source::on_matrix_units(plan.storage()), "attention_means", 1, args);
        let launch = plan.last();
        launch.grid = [args.n.div_ceil(launch.block / 8), args.heads, count];
    });
    if args.gq != DevicePtr::NULL {
        let name = format!("attention_matrix_queries_{}", sizes.wide);
        let grid = [args.n.div_ceil(sizes.queries), args.heads];
        launch(plan, &name, grid, sizes.queries_bytes(), args, items);
    }
    if args.gk != DevicePtr::NULL || args.gv != DevicePtr::NULL {
        let name = format!("attention_matrix_keys_{}", sizes.wide);
        let blocks = args.s.div_ceil(16 * WARPS) * sizes.shares;
        let grid = [blocks, args.heads / args.heads_together];
        launch(plan, &name, grid, sizes.keys_bytes(), args, items);
    }
}
