//! The kernels: their sources, what they are given, and the launches that each computation of the
//! training graph becomes.
//!
//! Nothing here needs a GPU or a library: [`steps`] says what to launch, the host launches it, and
//! the tests run the same launches in an emulator, against [`cpu`](pipewright_kernels::cpu).
//!
//! Storage: activations, gradients of activations and trained parameters are of one [`Storage`] type;
//! gradients of parameters, statistics (saved and running), log-sum-exps, targets of losses,
//! optimizer state and losses are f32; indexes are u32. Arithmetic is f32, sums over many terms
//! f64. A launch always gives the same bits: there are no atomics, and how sums are divided follows from
//! shapes alone.

mod arguments;
mod attention;
mod axes;
pub mod bulk;
mod channels;
mod convolution;
mod elementwise;
mod embedding;
mod experts;
pub mod fp8;
mod fused;
mod layout;
pub mod padding;
pub mod peers;
mod relayout;
mod rows;
mod steps;
mod vocabulary;

pub use crate::device::DevicePtr;
pub use arguments::*;
pub use convolution::{ConvolutionPass, ConvolutionShape, ConvolutionStep};
pub use elementwise::{narrow, widen};
pub use fused::{Computed, fused};
pub use relayout::{ImageOrder, Images, narrow_last, reorder};
pub use steps::{Buffers, Operand, Plan, ProductStep, Step, is_stored, missing, steps};

use pipewright_core::plan::Precision;

/// How tensors are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Storage {
    /// Single precision.
    F32,
    /// bfloat16.
    Bf16,
    /// IEEE half.
    F16,
}

impl Storage {
    /// Bytes of an element.
    pub fn bytes(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 2,
        }
    }

    /// How names of kernels end.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        }
    }
}

impl From<Precision> for Storage {
    fn from(precision: Precision) -> Self {
        match precision {
            Precision::F32 | Precision::Tf32 => Self::F32,
            Precision::Bf16 | Precision::Fp8 => Self::Bf16,
            Precision::F16 => Self::F16,
        }
    }
}

/// A file of kernels, compiled by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// One pass over memory.
    Elementwise,
    /// Along axes.
    Layout,
    /// Softmax, norms and losses of rows.
    Rows,
    /// Norms and pooling of images.
    Channels,
    /// The same with channels innermost.
    ChannelsLast,
    /// Convolutions of each channel by itself.
    Depthwise,
    /// Attention on the plain cores.
    Attention,
    /// Attention on the matrix units, in bf16.
    AttentionBf16,
    /// The same in f16.
    AttentionF16,
    /// The same in single precision, rounded to TF32.
    AttentionTf32,
    /// Matrix products on the plain cores.
    Product,
    /// Updates of parameters.
    Optimizer,
    /// Codecs of gradients: eight-bit floats.
    Codecs,
    /// Codecs of few levels.
    Levels,
    /// Factors of products in eight bits.
    Eight,
    /// Tokens of mixtures of experts.
    Experts,
    /// Losses of logits that a tensor group has divided.
    Vocabulary,
    /// Values of ranks that share the device.
    Peers,
}

/// Attention on the matrix units for one type: each is compiled by itself, for it takes long.
macro_rules! on_matrix_units {
    ($entry:literal) => {
        concat!(
            include_str!("kernels/attention.cuh"),
            "#line 1 \"matrix.cuh\"\n",
            include_str!("kernels/matrix.cuh"),
            "#line 1 \"attention_matrix.cu\"\n",
            include_str!("kernels/attention_matrix.cu"),
            $entry,
            "\n"
        )
    };
}

/// A file whose blocks go over rows.
macro_rules! over_rows {
    ($file:literal) => {
        concat!(
            include_str!("kernels/tail.cuh"),
            "#line 1 \"unaligned.cuh\"\n",
            include_str!("kernels/unaligned.cuh"),
            "#line 1 \"rows.cuh\"\n",
            include_str!("kernels/rows.cuh"),
            "#line 1 \"",
            $file,
            "\"\n",
            include_str!(concat!("kernels/", $file))
        )
    };
}

/// Widths of heads that kernels with a width in their names are made for.
const WIDTHS: [u32; 4] = [32, 64, 128, 256];

impl Source {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::Elementwise,
        Self::Layout,
        Self::Rows,
        Self::Channels,
        Self::ChannelsLast,
        Self::Depthwise,
        Self::Attention,
        Self::AttentionBf16,
        Self::AttentionF16,
        Self::AttentionTf32,
        Self::Product,
        Self::Optimizer,
        Self::Codecs,
        Self::Levels,
        Self::Eight,
        Self::Experts,
        Self::Vocabulary,
        Self::Peers,
    ];

    /// Its file.
    pub fn file(self) -> &'static str {
        match self {
            Self::Elementwise => "elementwise.cu",
            Self::Layout => "layout.cu",
            Self::Rows => "rows.cu",
            Self::Channels => "channels.cu",
            Self::ChannelsLast => "channels_last.cu",
            Self::Depthwise => "depthwise.cu",
            Self::Attention => "attention.cu",
            Self::AttentionBf16 => "attention_bf16.cu",
            Self::AttentionF16 => "attention_f16.cu",
            Self::AttentionTf32 => "attention_tf32.cu",
            Self::Product => "product.cu",
            Self::Optimizer => "optimizer.cu",
            Self::Codecs => "codecs.cu",
            Self::Levels => "levels.cu",
            Self::Eight => "eight.cu",
            Self::Experts => "experts.cu",
            Self::Vocabulary => "vocabulary.cu",
            Self::Peers => "peers.cu",
        }
    }

    fn own_text(self) -> &'static str {
        match self {
            Self::Elementwise => concat!(
                include_str!("kernels/tail.cuh"),
                "#line 1 \"elementwise.cu\"\n",
                include_str!("kernels/elementwise.cu")
            ),
            Self::Layout => include_str!("kernels/layout.cu"),
            Self::Rows => over_rows!("rows.cu"),
            Self::Channels => concat!(
                include_str!("kernels/tail.cuh"),
                "#line 1 \"images.cuh\"\n",
                include_str!("kernels/images.cuh"),
                "#line 1 \"channels.cu\"\n",
                include_str!("kernels/channels.cu")
            ),
            Self::ChannelsLast => concat!(
                include_str!("kernels/tail.cuh"),
                "#line 1 \"images.cuh\"\n",
                include_str!("kernels/images.cuh"),
                "#line 1 \"channels_last.cu\"\n",
                include_str!("kernels/channels_last.cu")
            ),
            Self::Depthwise => include_str!("kernels/depthwise.cu"),
            Self::Attention => concat!(
                include_str!("kernels/attention.cuh"),
                "#line 1 \"attention.cu\"\n",
                include_str!("kernels/attention.cu")
            ),
            Self::AttentionBf16 => on_matrix_units!("ENTRY(bf16, Bf16)"),
            Self::AttentionF16 => on_matrix_units!("ENTRY(f16, F16)"),
            Self::AttentionTf32 => on_matrix_units!("ENTRY(f32, float)"),
            Self::Product => include_str!("kernels/product.cu"),
            Self::Optimizer => include_str!("kernels/optimizer.cu"),
            Self::Codecs => concat!(
                include_str!("kernels/pieces.cuh"),
                "#line 1 \"floats.cuh\"\n",
                include_str!("kernels/floats.cuh"),
                "#line 1 \"codecs.cu\"\n",
                include_str!("kernels/codecs.cu")
            ),
            Self::Levels => concat!(
                include_str!("kernels/pieces.cuh"),
                "#line 1 \"levels.cu\"\n",
                include_str!("kernels/levels.cu")
            ),
            Self::Eight => concat!(
                "#line 1 \"floats.cuh\"\n",
                include_str!("kernels/floats.cuh"),
                "#line 1 \"eight.cu\"\n",
                include_str!("kernels/eight.cu")
            ),
            Self::Experts => include_str!("kernels/experts.cu"),
            Self::Vocabulary => over_rows!("vocabulary.cu"),
            Self::Peers => include_str!("kernels/peers.cu"),
        }
    }

    /// What the compiler is given: complete, without any header.
    pub fn text(self) -> String {
        let common = include_str!("kernels/common.cuh");
        let (declarations, own) = (declarations(), self.own_text());
        let file = self.file();
        format!("#line 1 \"common.cuh\"\n{common}\n{declarations}\n#line 1 \"{file}\"\n{own}")
    }

    /// Attention on the matrix units, of tensors of a type.
    pub(super) fn on_matrix_units(storage: Storage) -> Self {
        match storage {
            Storage::F32 => Self::AttentionTf32,
            Storage::Bf16 => Self::AttentionBf16,
            Storage::F16 => Self::AttentionF16,
        }
    }

    /// The types that it has kernels for, where it has some for all widths.
    fn storages(self) -> &'static [Storage] {
        match self {
            Self::AttentionBf16 => &[Storage::Bf16],
            Self::AttentionF16 => &[Storage::F16],
            Self::AttentionTf32 => &[Storage::F32],
            _ => &[Storage::F32, Storage::Bf16, Storage::F16],
        }
    }

    /// Whether there are kernels for heads so wide: on the matrix units there is no room for the widest in
    /// single precision.
    fn has_width(self, width: u32) -> bool {
        match self {
            Self::AttentionBf16 | Self::AttentionF16 => true,
            Self::AttentionTf32 => width <= 128,
            _ => width >= 64,
        }
    }

    /// Options of NVRTC besides the architecture. Products and sums are not fused, so that a kernel gives the
    /// bits that the same lines give on the processor; where matrix units multiply there are no such bits.
    pub fn options(self) -> &'static [&'static str] {
        match self {
            Self::AttentionBf16 | Self::AttentionF16 | Self::AttentionTf32 => &["--std=c++17"],
            _ => &["--std=c++17", "--fmad=false"],
        }
    }

    /// Names of its kernels.
    pub fn kernels(self) -> Vec<String> {
        let mut names = vec![];
        for line in self.own_text().lines() {
            let limited = line.split_once("KERNEL_OF(").and_then(|(_, rest)| rest.split_once(", "));
            let Some((_, rest)) = limited.or_else(|| line.split_once("KERNEL(")) else { continue };
            let name = rest.split(',').next().unwrap_or(rest);
            if name.contains("##") {
                for storage in self.storages() {
                    let name = name.replace("##", "").replace("suffix", storage.suffix());
                    if !name.contains("WIDE") {
                        names.push(name);
                        continue;
                    }
                    let widths = WIDTHS.into_iter().filter(|width| self.has_width(*width));
                    names.extend(widths.map(|width| name.replace("WIDE", &width.to_string())));
                }
            } else {
                names.push(name.to_string());
            }
        }
        names
    }
}

/// One launch of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// Where the kernel is.
    pub source: Source,
    /// Its name.
    pub kernel: String,
    /// Blocks along x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block, along x.
    pub block: u32,
    /// Bytes of dynamic shared memory; above 48 KiB the host has to ask for it.
    pub shared: u32,
    /// The one argument, as C lays it out.
    pub args: Vec<u8>,
}

/// Threads of a block where nothing speaks for another number.
pub const BLOCK: u32 = 256;

/// Most blocks of a launch whose threads go through items in steps: several times what a GPU runs
/// at once.
const MOST_BLOCKS: u64 = 1 << 12;

impl Launch {
    /// A launch whose threads go through `items` in steps.
    pub fn over(source: Source, kernel: String, items: u64, args: &impl Arguments) -> Self {
        let blocks = items.div_ceil(BLOCK.into()).clamp(1, MOST_BLOCKS) as u32;
        Self { source, kernel, grid: [blocks, 1, 1], block: BLOCK, shared: 0, args: args.bytes() }
    }

    /// A launch with a block for each of `blocks`, at most so many as a grid has.
    pub fn blocks(source: Source, kernel: String, blocks: u64, args: &impl Arguments) -> Self {
        let blocks = blocks.clamp(1, 1 << 30) as u32;
        Self { source, kernel, grid: [blocks, 1, 1], block: BLOCK, shared: 0, args: args.bytes() }
    }
}
