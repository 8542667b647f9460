//! Choice of cuDNN's algorithm for a shape.

use super::Key;
use super::description::{Answer, Description, usable};
use crate::device::cuda::kernels::{ConvolutionPass, Storage};
use cudarc::cudnn::result::{self, CudnnError};
use cudarc::cudnn::sys;
use std::mem::size_of;

/// How, by pass.
#[derive(Clone, Copy, Debug)]
pub enum Algorithm {
    Forward(sys::cudnnConvolutionFwdAlgo_t),
    InputGradient(sys::cudnnConvolutionBwdDataAlgo_t),
    WeightGradient(sys::cudnnConvolutionBwdFilterAlgo_t),
}

/// One way to convolve.
#[derive(Clone, Copy)]
pub struct Way {
    pub algorithm: Algorithm,
    pub math: sys::cudnnMathType_t,
    /// No activation, and the bias: where the library adds one on its way.
    pub identity: Option<Identity>,
    /// Workspace of the library.
    pub library_bytes: u64,
}

/// No activation, and the description of a bias.
pub type Identity = (sys::cudnnActivationDescriptor_t, sys::cudnnTensorDescriptor_t);

/// What the library takes for a shape.
pub struct Chosen {
    pub of: Descriptors,
    pub way: Way,
    /// Ways that may turn out to be quicker, until somebody has looked.
    pub others: Vec<Way>,
    /// What follows the library's workspace: the weight's gradient in the storage type, to which the library cannot add in
    /// single precision, or not in the order of parameters.
    pub gradient_bytes: u64,
}

impl Chosen {
    /// Bytes of workspace, whichever way is taken.
    pub fn workspace(&self) -> u64 {
        let ways = self.others.iter().chain([&self.way]);
        ways.map(|way| way.library_bytes).max().unwrap_or(0) + self.gradient_bytes
    }

    /// Takes a way.
    pub fn take(&mut self, way: Way) -> Result<(), CudnnError> {
        self.way = way;
        // SAFETY: the description lives.
        unsafe { result::set_convolution_math_type(self.of.convolution, way.math) }
    }
}

impl Way {
    /// What it is known by: its numbers in the library.
    pub fn bytes(&self) -> Vec<u8> {
        let number = match self.algorithm {
            Algorithm::Forward(algorithm) => algorithm as u32,
            Algorithm::InputGradient(algorithm) => algorithm as u32,
            Algorithm::WeightGradient(algorithm) => algorithm as u32,
        };
        [number, self.math as u32].iter().flat_map(|number| number.to_ne_bytes()).collect()
    }
}

/// What products may be computed with: in single precision all bits of it unless TF32 will do, of halves
/// the matrix units. Sums are of single precision. The library is asked with it, and answers with the one
/// that it means; in single precision without TF32 it stays.
fn math(storage: Storage, tf32: bool) -> sys::cudnnMathType_t {
    match storage {
        Storage::F32 if tf32 => sys::cudnnMathType_t::CUDNN_DEFAULT_MATH,
        Storage::F32 => sys::cudnnMathType_t::CUDNN_FMA_MATH,
        Storage::Bf16 | Storage::F16 => sys::cudnnMathType_t::CUDNN_TENSOR_OP_MATH,
    }
}

/// The math type of an answer; `None` of one that these bindings do not know.
fn math_of(number: i32) -> Option<sys::cudnnMathType_t> {
    [
        sys::cudnnMathType_t::CUDNN_DEFAULT_MATH,
        sys::cudnnMathType_t::CUDNN_TENSOR_OP_MATH,
        sys::cudnnMathType_t::CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION,
        sys::cudnnMathType_t::CUDNN_FMA_MATH,
    ]
    .into_iter()
    .find(|math| *math as i32 == number)
}

fn kind(storage: Storage) -> sys::cudnnDataType_t {
    match storage {
        Storage::F32 => sys::cudnnDataType_t::CUDNN_DATA_FLOAT,
        Storage::Bf16 => sys::cudnnDataType_t::CUDNN_DATA_BFLOAT16,
        Storage::F16 => sys::cudnnDataType_t::CUDNN_DATA_HALF,
    }
}

/// Descriptions of a convolution's tensors and of what it does with them, in the library's memory; they
/// live as long as the process.
#[derive(Clone, Copy)]
pub struct Descriptors {
    pub x: sys::cudnnTensorDescriptor_t,
    pub weight: sys::cudnnFilterDescriptor_t,
    pub y: sys::cudnnTensorDescriptor_t,
    pub convolution: sys::cudnnConvolutionDescriptor_t,
}

/// The order of axes in memory.
fn format(of: &Description) -> sys::cudnnTensorFormat_t {
    match of.channels_last {
        true => sys::cudnnTensorFormat_t::CUDNN_TENSOR_NHWC,
        false => sys::cudnnTensorFormat_t::CUDNN_TENSOR_NCHW,
    }
}

fn image(
    sizes: [i32; 4],
    kind: sys::cudnnDataType_t,
    format: sys::cudnnTensorFormat_t,
) -> Result<sys::cudnnTensorDescriptor_t, CudnnError> {
    let image = result::create_tensor_descriptor()?;
    // SAFETY: it was made above.
    unsafe { result::set_tensor4d_descriptor(image, format, kind, sizes) }?;
    Ok(image)
}

/// Tells the library of a convolution.
pub fn describe(of: &Description, storage: Storage, tf32: bool) -> Result<Descriptors, CudnnError> {
    let (kind, format) = (kind(storage), format(of));
    let (x, y) = (image(of.x, kind, format)?, image(of.y, kind, format)?);
    let weight = result::create_filter_descriptor()?;
    let convolution = result::create_convolution_descriptor()?;
    // SAFETY: all were made above.
    unsafe {
        result::set_filter4d_descriptor(weight, kind, format, of.weight)?;
        result::set_convolution2d_descriptor(
            convolution,
            of.padding[0],
            of.padding[1],
            of.stride[0],
            of.stride[1],
            of.dilation[0],
            of.dilation[1],
            sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION,
            sys::cudnnDataType_t::CUDNN_DATA_FLOAT,
        )?;
        result::set_convolution_group_count(convolution, of.groups)?;
        result::set_convolution_math_type(convolution, math(storage, tf32))?;
    }
    Ok(Descriptors { x, weight, y, convolution })
}

/// Most algorithms of a pass.
const ALGORITHMS: usize = 8;

const _: () = assert!(size_of::<Answer>() == size_of::<sys::cudnnConvolutionFwdAlgoPerf_t>());
const _: () = assert!(size_of::<Answer>() == size_of::<sys::cudnnConvolutionBwdDataAlgoPerf_t>());
const _: () = assert!(size_of::<Answer>() == size_of::<sys::cudnnConvolutionBwdFilterAlgoPerf_t>());

/// What the library expects of its algorithms, quickest first.
fn answers(
    handle: sys::cudnnHandle_t,
    pass: ConvolutionPass,
    Descriptors { x, weight, y, convolution }: Descriptors,
) -> Result<Vec<Answer>, CudnnError> {
    let mut answers = [Answer::default(); ALGORITHMS];
    let (most, mut count) = (ALGORITHMS as i32, 0);
    let places = answers.as_mut_ptr();
    // SAFETY: all live; answers have the fields of the library's, and there is room for `most`.
    unsafe {
        match pass {
            ConvolutionPass::Forward => result::get_convolution_forward_algorithm(
                handle,
                x,
                weight,
                convolution,
                y,
                most,
                &raw mut count,
                places.cast(),
            ),
            ConvolutionPass::InputGradient => result::get_convolution_backward_data_algorithm(
                handle,
                weight,
                y,
                convolution,
                x,
                most,
                &raw mut count,
                places.cast(),
            ),
            ConvolutionPass::WeightGradient => result::get_convolution_backward_filter_algorithm(
                handle,
                x,
                y,
                convolution,
                weight,
                most,
                &raw mut count,
                places.cast(),
            ),
        }?;
    }
    Ok(answers[..count.clamp(0, most) as usize].to_vec())
}

impl Algorithm {
    /// The one of this number; `None` of one that these bindings do not know.
    fn of(pass: ConvolutionPass, number: i32) -> Option<Self> {
        use sys::cudnnConvolutionBwdDataAlgo_t as Data;
        use sys::cudnnConvolutionBwdFilterAlgo_t as Filter;
        use sys::cudnnConvolutionFwdAlgo_t as Forward;
        let of_forward = [
            Forward::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
            Forward::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
            Forward::CUDNN_CONVOLUTION_FWD_ALGO_GEMM,
            Forward::CUDNN_CONVOLUTION_FWD_ALGO_DIRECT,
            Forward::CUDNN_CONVOLUTION_FWD_ALGO_FFT,
            Forward::CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING,
            Forward::CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD,
            Forward::CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED,
        ];
        let of_data = [
            Data::CUDNN_CONVOLUTION_BWD_DATA_ALGO_0,
            Data::CUDNN_CONVOLUTION_BWD_DATA_ALGO_1,
            Data::CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT,
            Data::CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING,
            Data::CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD,
            Data::CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED,
        ];
        let of_filter = [
            Filter::CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0,
            Filter::CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1,
            Filter::CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT,
            Filter::CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3,
            Filter::CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD,
            Filter::CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED,
            Filter::CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING,
        ];
        // Each stands at the place of its number.
        let place = usize::try_from(number).ok()?;
        match pass {
            ConvolutionPass::Forward => of_forward.get(place).copied().map(Self::Forward),
            ConvolutionPass::InputGradient => of_data.get(place).copied().map(Self::InputGradient),
            ConvolutionPass::WeightGradient => {
                of_filter.get(place).copied().map(Self::WeightGradient)
            }
        }
    }

    /// Bytes of workspace; `None` where the library does not take it after all.
    fn workspace(self, handle: sys::cudnnHandle_t, of: Descriptors) -> Option<u64> {
        let Descriptors { x, weight, y, convolution } = of;
        // SAFETY: all live.
        let bytes = unsafe {
            match self {
                Self::Forward(algorithm) => result::get_convolution_forward_workspace_size(
                    handle,
                    x,
                    weight,
                    convolution,
                    y,
                    algorithm,
                ),
                Self::InputGradient(algorithm) => {
                    result::get_convolution_backward_data_workspace_size(
                        handle,
                        weight,
                        y,
                        convolution,
                        x,
                        algorithm,
                    )
                }
                Self::WeightGradient(algorithm) => {
                    result::get_convolution_backward_filter_workspace_size(
                        handle,
                        x,
                        y,
                        convolution,
                        weight,
                        algorithm,
                    )
                }
            }
        };
        bytes.ok().map(|bytes| bytes as u64)
    }

    /// Whether the library adds biases on the way without an activation: by this algorithm alone.
    fn adds_biases(self) -> bool {
        use sys::cudnnConvolutionFwdAlgo_t as Forward;
        matches!(self, Self::Forward(Forward::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM))
    }
}

/// No activation, and a bias of so many outputs.
fn identity(of: &Description, storage: Storage) -> Result<Identity, CudnnError> {
    let identity = result::create_activation_descriptor()?;
    let mode = sys::cudnnActivationMode_t::CUDNN_ACTIVATION_IDENTITY;
    // The manual lists every other setting among what is not supported. No activation changes no number,
    // and what is none neither.
    let numbers = sys::cudnnNanPropagation_t::CUDNN_NOT_PROPAGATE_NAN;
    // SAFETY: it was made above.
    unsafe { result::set_activation_descriptor(identity, mode, numbers, 0.0) }?;
    Ok((identity, image([1, of.y[1], 1, 1], kind(storage), format(of))?))
}

/// What the library would take for a shape, at most `count` ways; `None` where it has nothing with `most` bytes of
/// workspace.
pub fn choose(
    handle: sys::cudnnHandle_t,
    key: &Key,
    most: u64,
    count: usize,
) -> Result<Option<Chosen>, CudnnError> {
    let Some(description) = Description::of(&key.shape, key.channels_last) else { return Ok(None) };
    let of = describe(&description, key.storage, key.tf32)?;
    let answers = match answers(handle, key.pass, of) {
        Err(error) if super::is_unsupported(error) => return Ok(None),
        answers => answers?,
    };
    // What an answer holds for is the pair: the algorithm may be slow, or none, with another math type.
    let exact = key.storage == Storage::F32 && !key.tf32;
    let meant = |answer: &Answer| match exact {
        true => Some(math(key.storage, false)),
        false => math_of(answer.math),
    };
    let workspace = |answer: &Answer| {
        let algorithm = Algorithm::of(key.pass, answer.algorithm)?;
        // SAFETY: the description lives.
        unsafe { result::set_convolution_math_type(of.convolution, meant(answer)?) }.ok()?;
        algorithm.workspace(handle, of)
    };
    let mut ways = vec![];
    for (answer, bytes) in usable(&answers, most, workspace).take(count) {
        let found = Algorithm::of(key.pass, answer.algorithm).zip(meant(&answer));
        let Some((algorithm, math)) = found else { continue };
        let identity = match key.bias && algorithm.adds_biases() {
            true => Some(identity(&description, key.storage)?),
            false => None,
        };
        ways.push(Way { algorithm, math, identity, library_bytes: bytes.next_multiple_of(256) });
    }
    if ways.is_empty() {
        return Ok(None);
    }
    let way = ways.remove(0);
    // Those with channels innermost are not in the order of parameters.
    let is_turned = key.channels_last && key.shape.kernel != [1, 1];
    let is_apart =
        key.pass == ConvolutionPass::WeightGradient && (key.storage != Storage::F32 || is_turned);
    let gradient_bytes = if is_apart { key.shape.weights() * key.storage.bytes() } else { 0 };
    let mut chosen = Chosen { of, way, others: ways, gradient_bytes };
    chosen.take(way)?;
    Ok(Some(chosen))
}
