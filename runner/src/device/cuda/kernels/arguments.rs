//! Kernel arguments: structs that exist once, here; C declarations are made of them.

use super::DevicePtr;

/// The one argument of a kernel.
pub trait Arguments {
    /// As C lays it out.
    fn bytes(&self) -> Vec<u8>;
}

/// A field of an argument.
trait Field {
    /// Its alignment: the size of a number.
    const ALIGN: usize;

    /// Its declaration in C.
    fn declare(name: &str) -> String;

    /// Appends its bytes.
    fn put(&self, bytes: &mut Vec<u8>);
}

macro_rules! numbers {
    ($($type:ty: $c:literal,)*) => {$(
        impl Field for $type {
            const ALIGN: usize = size_of::<$type>();

            fn declare(name: &str) -> String {
                format!(concat!($c, " {};"), name)
            }

            fn put(&self, bytes: &mut Vec<u8>) {
                bytes.extend(self.to_ne_bytes());
            }
        }
    )*};
}

numbers! {
    u32: "u32",
    u64: "u64",
    f32: "f32",
}

impl Field for DevicePtr {
    const ALIGN: usize = 8;

    fn declare(name: &str) -> String {
        format!("void *{name};")
    }

    fn put(&self, bytes: &mut Vec<u8>) {
        self.0.put(bytes);
    }
}

impl<F: Field, const N: usize> Field for [F; N] {
    const ALIGN: usize = F::ALIGN;

    fn declare(name: &str) -> String {
        F::declare(&format!("{name}[{N}]"))
    }

    fn put(&self, bytes: &mut Vec<u8>) {
        self.iter().for_each(|field| field.put(bytes));
    }
}

/// A struct in a struct: one that begins with addresses.
impl Field for Tail {
    const ALIGN: usize = 8;

    fn declare(name: &str) -> String {
        format!("Tail {name};")
    }

    fn put(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.bytes());
    }
}

fn put<F: Field>(bytes: &mut Vec<u8>, field: &F) {
    bytes.resize(bytes.len().next_multiple_of(F::ALIGN), 0);
    field.put(bytes);
}

/// Structs of arguments, with addresses first: C pads their ends to 8 bytes.
macro_rules! arguments {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, Default, PartialEq)]
            #[allow(missing_docs)]
            pub struct $name {
                $(pub $field: $type,)*
            }

            impl Arguments for $name {
                fn bytes(&self) -> Vec<u8> {
                    let mut bytes = Vec::new();
                    $(put(&mut bytes, &self.$field);)*
                    bytes.resize(bytes.len().next_multiple_of(8), 0);
                    bytes
                }
            }
        )*

        /// All structs as C.
        fn structs() -> String {
            let mut text = String::new();
            $(
                text += concat!("struct ", stringify!($name), " {\n");
                $(text += &format!("    {}\n", <$type as Field>::declare(stringify!($field)));)*
                text += "};\n";
            )*
            text
        }
    };
}

/// Enumerations that kernels switch by.
macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident { $($code:ident,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
            #[allow(missing_docs)]
            pub enum $name {
                $($code,)*
            }
        )*

        /// All enumerations as C.
        fn enumerations() -> String {
            let mut text = String::new();
            $(
                text += "enum {\n";
                $(text += concat!("    ", stringify!($name), "_", stringify!($code), ",\n");)*
                text += "};\n";
            )*
            text
        }
    };
}

/// What every source is given besides its own text.
pub fn declarations() -> String {
    enumerations() + structs().as_str()
}

codes! {
    /// What `map` computes.
    Map { Copy, Relu, ReluGradient, Affine, Clip, ClipGradient, SwiGlu, SwiGluGate, }

    /// What `activation` computes: one a function of the graph.
    Curve {
        Gelu, Silu, Tanh, LeakyRelu, GeluTanh, Sigmoid, Exp, Log, HardSwish, HardSigmoid, Erf, Square,
        Sqrt, Reciprocal,
    }

    /// What `broadcast` and `reduce` make of two operands and, in gradients, of the output's gradient.
    Combine {
        Sum, Difference, Product, Quotient, Same, Negative, ProductLeft, ProductRight, QuotientLeft,
        QuotientRight,
    }

    /// What is done with a value at once: bits of [`Tail::does`].
    Then { Sum, Relu, Mask, }

    /// How eight-bit floats round.
    Float8 { Truncate, NearestEven, Saturating, E4m3, }
}

/// Most axes of a walk, neighbouring ones that every tensor runs through in one go being one.
pub const MOST_AXES: usize = 8;

/// Most terms of one sum.
pub const MOST_TERMS: usize = 8;

/// Most ranks that share a device and read each other's memory.
pub const MOST_PEERS: usize = 16;

arguments! {
    /// What else is done with a kernel's value, in this order: it is stored at `own`, `other` is added, the
    /// sum is stored at `between`, it is rectified, or it is masked where `other` is not positive. Where
    /// there is nothing to do, all is zero.
    Tail { own: DevicePtr, other: DevicePtr, between: DevicePtr, does: u32, }

    /// Of up to three tensors to one, each of `count` elements; `p` and `q` are the operation's.
    Elementwise {
        x: DevicePtr, y: DevicePtr, z: DevicePtr, out: DevicePtr,
        count: u64, op: u32, p: f32, q: f32,
    }

    /// `number` tensors of `count` elements, added in order.
    SumTerms { terms: [DevicePtr; MOST_TERMS], out: DevicePtr, tail: Tail, count: u64, number: u32, }

    /// `step` is the address of a u64, so that a recorded launch can be replayed in every step. Of each sample `elements`
    /// from `first` on are here.
    Dropout {
        x: DevicePtr, out: DevicePtr, step: DevicePtr,
        first: u64, elements: u64, samples: u64, key: [u32; 2], first_sample: u32, limit: u32, scale: f32,
    }

    /// `out [sizes]` from two tensors with strides along these axes.
    Broadcast {
        a: DevicePtr, b: DevicePtr, out: DevicePtr,
        count: u64, a_strides: [u64; MOST_AXES], b_strides: [u64; MOST_AXES],
        sizes: [u32; MOST_AXES], rank: u32, op: u32,
    }

    /// A copy between strides, times `scale`.
    Strided {
        x: DevicePtr, out: DevicePtr,
        count: u64, from: [u64; MOST_AXES], to: [u64; MOST_AXES],
        sizes: [u32; MOST_AXES], rank: u32, scale: f32,
    }

    /// A copy between strides; along axis `read` elements of `x` are neighbours, along axis `write` those
    /// of `out`.
    Transposed {
        x: DevicePtr, out: DevicePtr,
        tiles: u64, from: [u64; MOST_AXES], to: [u64; MOST_AXES],
        sizes: [u32; MOST_AXES], rank: u32, read: u32, write: u32,
    }

    /// The first `kept` axes are the output's, the others are summed.
    Reduce {
        a: DevicePtr, b: DevicePtr, g: DevicePtr, out: DevicePtr,
        outputs: u64, terms: u64,
        a_strides: [u64; MOST_AXES], b_strides: [u64; MOST_AXES], g_strides: [u64; MOST_AXES],
        sizes: [u32; MOST_AXES], kept: u32, rank: u32, op: u32, accumulate: u32, scale: f32,
    }

    /// Backwards `table` is the gradient that came and `out` the table's. The table has `entries` tokens, from `first`
    /// on: others are nothing here.
    Embedding {
        tokens: DevicePtr, table: DevicePtr, positions: DevicePtr, kinds: DevicePtr, out: DevicePtr,
        rows: u64, length: u64, features: u64, first: u64, entries: u64,
    }

    /// Forwards `from` is `[samples, length, features]`; backwards `out` is, and zero. `largest` is for the
    /// largest token instead of `token`.
    TokenPosition {
        tokens: DevicePtr, from: DevicePtr, out: DevicePtr,
        samples: u64, length: u64, features: u64, token: u32, largest: u32, backward: u32,
    }

    /// `vectors` of `width` elements, positions repeating after `length`.
    Rope {
        x: DevicePtr, table: DevicePtr, out: DevicePtr,
        vectors: u64, length: u64, width: u64, base: f32, sign: f32,
        factor: f32, low: f32, high: f32, original: f32,
    }

    /// One group of `samples` images, which begin `sample_stride` elements apart. In the unfolded form
    /// rows and samples begin `row` and `sample` elements apart.
    Unfold {
        x: DevicePtr, out: DevicePtr,
        samples: u64, sample_stride: u64, row: u64, sample: u64, channels: u32,
        size: [u32; 2], out_size: [u32; 2], kernel: [u32; 2], stride: [u32; 2], padding: [u32; 2],
        dilation: [u32; 2],
    }

    /// Rows of `n` elements.
    Rows { x: DevicePtr, gy: DevicePtr, out: DevicePtr, rows: u64, n: u64, logarithm: u32, }

    /// Rows of `n` logits, the shares of whose `k` largest are of all or, normalised, of those alone.
    TopK {
        x: DevicePtr, y: DevicePtr, gy: DevicePtr, out: DevicePtr,
        rows: u64, n: u64, k: u32, normalize: u32,
    }

    /// Shares `[samples, tokens, all]`, rows `[samples, experts, capacity, features]`, of experts from `first` on; which row a token has is in
    /// `places`, which token a row is of in `sources`. Where it is `weighted`, shares count.
    Routing {
        shares: DevicePtr, places: DevicePtr, sources: DevicePtr, x: DevicePtr, gy: DevicePtr, out: DevicePtr,
        samples: u64, tokens: u64, features: u64, experts: u64, first: u64, all: u64, capacity: u64, weighted: u32,
    }

    /// Rows of `bytes` bytes that begin `from` bytes apart, copied to where they begin `to` bytes apart.
    PitchedRows { x: DevicePtr, out: DevicePtr, rows: u64, bytes: u64, from: u64, to: u64, }

    /// Rows that are normalised, each by itself. Where there are `terms`, `x` is first written as their sum.
    NormRows {
        x: DevicePtr, gy: DevicePtr, out: DevicePtr, weight: DevicePtr, bias: DevicePtr,
        saved: DevicePtr, terms: [DevicePtr; 2], tail: Tail, rows: u64, n: u64, eps: f32, centred: u32,
    }

    /// Sums over rows, in `parts` that are added up afterwards; where there are `factors`, `apart` elements from
    /// a row's to the next one's, of rows times their factors.
    ColumnSums {
        x: DevicePtr, gy: DevicePtr, saved: DevicePtr, plain: DevicePtr, along: DevicePtr,
        factors: DevicePtr, scratch: DevicePtr, rows: u64, n: u64, parts: u64, apart: u64, centred: u32,
    }

    /// Rows of `n` with their targets; `scratch` has what each row says until `tally` adds it up.
    Loss {
        x: DevicePtr, target: DevicePtr, saved: DevicePtr, out: DevicePtr, loss: DevicePtr, scratch: DevicePtr,
        rows: u64, n: u64, scale: f32, smoothing: f32, divisor: f32,
    }

    /// Rows of `n` logits, `own` of which are classes, from `first` on, of `all` of a tensor group; `numbers` has what its
    /// ranks tell of each row, rank by rank.
    VocabularyLoss {
        x: DevicePtr, target: DevicePtr, numbers: DevicePtr, saved: DevicePtr, out: DevicePtr, scratch: DevicePtr,
        rows: u64, n: u64, own: u64, first: u64, all: u64, ranks: u32, tensor_rank: u32,
        scale: f32, smoothing: f32,
    }

    /// Images whose channels are normalised over samples and positions, each in `parts` whose sums are in
    /// `scratch`, two f64 each; `width` elements are loaded at once. Where there are `terms`, `number` of them,
    /// `gy` is first written as their sum with the tail done; else the tail is that of the output.
    NormChannels {
        x: DevicePtr, gy: DevicePtr, out: DevicePtr, weight: DevicePtr, bias: DevicePtr,
        saved: DevicePtr, running_mean: DevicePtr, running_variance: DevicePtr,
        all_mean: DevicePtr, all_variance: DevicePtr,
        weight_gradient: DevicePtr, bias_gradient: DevicePtr, scratch: DevicePtr,
        terms: [DevicePtr; MOST_TERMS], tail: Tail,
        samples: u64, channels: u64, plane: u64, parts: u64, width: u64, eps: f32, momentum: f32,
        update: u32, turn: u32, turns: u32, number: u32,
    }

    /// Images of which `together` channels of a sample are normalised; `groups` of all samples.
    NormGroups {
        x: DevicePtr, gy: DevicePtr, out: DevicePtr, weight: DevicePtr, bias: DevicePtr,
        saved: DevicePtr, weight_gradient: DevicePtr, bias_gradient: DevicePtr,
        groups: u64, together: u64, channels: u64, plane: u64, eps: f32,
    }

    /// `share` is alpha / size.
    LocalResponse {
        x: DevicePtr, gy: DevicePtr, out: DevicePtr, saved: DevicePtr,
        count: u64, channels: u64, plane: u64, size: u32, share: f32, beta: f32, k: f32,
    }

    /// `planes` images. With channels innermost, `width` of the channels are taken at once.
    Pool {
        x: DevicePtr, out: DevicePtr, positions: DevicePtr, tail: Tail,
        planes: u64, channels: u64, width: u64, size: [u32; 2], out_size: [u32; 2], kernel: [u32; 2], stride: [u32; 2],
        padding: [u32; 2], count_padding: u32,
    }

    /// Images `[samples, channels, plane]`, or with channels innermost.
    Relayout { x: DevicePtr, out: DevicePtr, samples: u64, channels: u64, plane: u64, }

    /// `size` is that of the smaller image.
    Bilinear { x: DevicePtr, out: DevicePtr, planes: u64, size: [u32; 2], factor: u32, }

    /// `multiplier` outputs a channel.
    Depthwise {
        x: DevicePtr, gy: DevicePtr, weight: DevicePtr, bias: DevicePtr, out: DevicePtr,
        samples: u64, channels: u64, multiplier: u32,
        size: [u32; 2], out_size: [u32; 2], kernel: [u32; 2], stride: [u32; 2], padding: [u32; 2],
        dilation: [u32; 2],
    }

    /// Strides are those of samples, heads and positions; gradients lie as what they belong to.
    Attention {
        q: DevicePtr, k: DevicePtr, v: DevicePtr, y: DevicePtr, gy: DevicePtr, saved: DevicePtr,
        gq: DevicePtr, gk: DevicePtr, gv: DevicePtr, means: DevicePtr,
        q_strides: [u64; 3], k_strides: [u64; 3], v_strides: [u64; 3], y_strides: [u64; 3],
        n: u32, s: u32, d: u32, e: u32, heads: u32, heads_together: u32, causal: u32, scale: f32,
    }

    /// `c [m, n] = a [m, k] b [k, n]`, plus `c` where it accumulates. Strides of rows, then of columns;
    /// a batch has two axes.
    Product {
        a: DevicePtr, b: DevicePtr, c: DevicePtr,
        a_strides: [u64; 2], b_strides: [u64; 2], c_strides: [u64; 2],
        a_batch: [u64; 2], b_batch: [u64; 2], c_batch: [u64; 2],
        m: u32, n: u32, k: u32, batch: [u32; 2], accumulate: u32,
    }

    /// Tables of tensors and of their chunks, and the numbers of the step; see `bulk.rs`.
    Optimizer {
        tensors: DevicePtr, chunks: DevicePtr, numbers: DevicePtr,
        momentum: f32, decay: f32, new_mean: f32, beta2: f32, new_square: f32, eps: f32,
        nesterov: u32,
    }

    /// `scratch` has two f64 for each of `number` chunks, `totals` one for each tensor.
    Squares {
        tensors: DevicePtr, chunks: DevicePtr, numbers: DevicePtr, scratch: DevicePtr,
        totals: DevicePtr, number: u64, trust: f32, decay: f32,
    }

    /// `count` pieces of a bucket, of so many `chunks`. Values that share a scale are `block`: of eight-bit floats, 0 for no
    /// scale that is sent, all ones for one a piece. Encoding looks before, then `scratch` has what was
    /// seen, with sums or without, and percentiles of so many `samples`.
    Codec {
        pieces: DevicePtr, scratch: DevicePtr,
        values: DevicePtr, residual: DevicePtr, wire: DevicePtr, decoded: DevicePtr,
        scales: DevicePtr, count: u64, block: u64, format: u32, percentile: u32, width: u32,
        add: u32, looks: u32, sums: u32, samples: u32, chunks: u32,
    }

    /// Of the first `number` ranks: where a rank has a place, its values begin `from` bytes, in a circle, behind its base and
    /// the number there, else at its base.
    Peers {
        bases: [DevicePtr; MOST_PEERS], places: [DevicePtr; MOST_PEERS], out: DevicePtr,
        count: u64, from: u64, number: u32,
    }

    /// A matrix of bf16, rows one behind the other, that becomes codes of eight bits, the rows of which are
    /// `pitch` apart: those of the matrix, or its columns. `parts` has the largest magnitudes of `number`
    /// parts, `back` what codes are to be multiplied by.
    Eight {
        x: DevicePtr, parts: DevicePtr, back: DevicePtr, out: DevicePtr,
        rows: u64, columns: u64, pitch: u64, number: u32, format: u32,
    }
}
