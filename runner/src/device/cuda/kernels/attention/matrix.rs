//! Attention on the matrix units: halves, heads of whole runs of eight elements.

use super::{Attention, DevicePtr, Plan, Source, Storage, each_sample};

/// Warps of a block; `WARPS` of attention_matrix.cu.
const WARPS: u32 = 4;

/// Elements between rows of a tile beside a head's width.
const APART: u32 = 8;

/// Sizes of kernels for heads of some width, as attention_matrix.cu has them.
struct Sizes {
    wide: u32,
    /// Rows of queries in a block; of keys there are always 16 a warp.
    queries: u32,
    /// Rows of a tile.
    forward_tile: u32,
    backward_tile: u32,
    /// Blocks that share the columns of the gradients of keys and values.
    shares: u32,
}

impl Sizes {
    fn of(args: &Attention) -> Self {
        let wide = match args.d.max(args.e) {
            0..=32 => 32,
            33..=64 => 64,
            65..=128 => 128,
            _ => 256,
        };
        let strips = if wide <= 64 { 2 } else { 1 };
        Self {
            wide,
            queries: 16 * strips * WARPS,
            forward_tile: if wide <= 128 { 64 } else { 32 },
            backward_tile: if wide <= 64 { 64 } else { 32 },
            shares: if wide <= 128 { 1 } else { 2 },
        }
    }

    /// Bytes of rows of halves.
    fn rows(&self, count: u32) -> u32 {
        2 * count * (self.wide + APART)
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
    let strides = [args.q_strides, args.k_strides, args.v_strides, args.y_strides];
    let places = [args.q, args.k, args.v, args.y, args.gy, args.gq, args.gk, args.gv];
    plan.matrix_units()
        && plan.storage() != Storage::F32
        && Sizes::of(args).most_bytes() <= plan.most_shared()
        && [args.d, args.e].iter().all(|width| width.is_multiple_of(8))
        && strides.iter().flatten().all(|stride| stride.is_multiple_of(8))
        && places.iter().all(|place| place.0.is_multiple_of(16))
}

fn launch(plan: &mut Plan, name: &str, grid: [u32; 2], shared: u32, of: (Attention, u64)) {
    let [blocks, heads] = grid;
    each_sample(plan, of, |plan, args, count| {
        plan.blocks(Source::AttentionMatrix, name, 1, args);
        let launch = plan.last();
        launch.grid = [blocks, heads, count];
        (launch.block, launch.shared) = (32 * WARPS, shared);
    });
}

pub fn forward(args: Attention, items: u64, plan: &mut Plan) {
    let sizes = Sizes::of(&args);
    let name = format!("attention_matrix_{}", sizes.wide);
    let grid = [args.n.div_ceil(sizes.queries), args.heads];
    launch(plan, &name, grid, sizes.forward_bytes(), (args, items));
}

/// The gradients that have a place; scratch has a number for each query.
pub fn gradients(args: Attention, items: u64, plan: &mut Plan) {
    let sizes = Sizes::of(&args);
    let means = plan.scratch(4 * items * u64::from(args.heads) * u64::from(args.n));
    let args = Attention { means, ..args };
    each_sample(plan, (args, items), |plan, args, count| {
        plan.blocks(Source::AttentionMatrix, "attention_means", 1, args);
        let launch = plan.last();
        launch.grid = [args.n.div_ceil(launch.block / 8), args.heads, count];
    });
    if args.gq != DevicePtr::NULL {
        let name = format!("attention_matrix_queries_{}", sizes.wide);
        let grid = [args.n.div_ceil(sizes.queries), args.heads];
        launch(plan, &name, grid, sizes.queries_bytes(), (args, items));
    }
    if args.gk != DevicePtr::NULL || args.gv != DevicePtr::NULL {
        let name = format!("attention_matrix_keys_{}", sizes.wide);
        let blocks = args.s.div_ceil(16 * WARPS) * sizes.shares;
        let grid = [blocks, args.heads / args.heads_together];
        launch(plan, &name, grid, sizes.keys_bytes(), (args, items));
    }
}
