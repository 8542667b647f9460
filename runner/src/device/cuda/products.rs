//! Products of matrices by cuBLASLt.

mod shape;

use super::kernels::{Float8, ProductStep, Storage};
use crate::device::DeviceError;
use cudarc::cublaslt::result::{self, CublasError};
use cudarc::cublaslt::sys;
use cudarc::driver::sys::CUstream;
use shape::{Operand, Shape};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr;

/// What stays from product to product: the library's handle, and what it chose for shapes that it has
/// seen. To choose takes some tenths of a millisecond, to multiply again nothing.
pub struct Products {
    device: String,
    /// The library's; null where it is not on this machine.
    handle: sys::cublasLtHandle_t,
    chosen: BTreeMap<Key, Option<Chosen>>,
    /// Memory of [`Self::WORKSPACE`] bytes.
    pub workspace: super::kernels::DevicePtr,
    /// Why the device multiplies nothing in eight bits, if it is so.
    pub no_eight: Option<String>,
    /// Why a product in eight bits was refused, of the first that was.
    pub refused: Option<String>,
}

/// All that the choice depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    shape: Shape,
    storage: Storage,
    to_f32: bool,
    /// Where there is one, what its address is a multiple of, as for `alignments`.
    bias: Option<u32>,
    tf32: bool,
    /// What eight bits `a` and `b` have, where they do.
    fp8: Option<[Float8; 2]>,
    /// By operand: the largest power of two that its address is a multiple of, 256 at most.
    alignments: [u32; 3],
}

/// Descriptions in the library's memory; they live as long as the process.
struct Chosen {
    operation: sys::cublasLtMatmulDesc_t,
    layouts: [sys::cublasLtMatrixLayout_t; 3],
    algorithm: sys::cublasLtMatmulAlgo_t,
}

impl Products {
    /// As much as NVIDIA recommends for Hopper.
    pub const WORKSPACE: u64 = 32 << 20;

    /// For a device that is current.
    ///
    /// # Errors
    /// When the library is there and does not begin.
    pub fn new(device: &str) -> Result<Self, DeviceError> {
        let handle = match super::Library::CublasLt.is_present() {
            true => result::create_handle().map_err(|e| failed(device, "begin", e))?,
            false => ptr::null_mut(),
        };
        let workspace = super::kernels::DevicePtr::NULL;
        let (chosen, no_eight, refused) = (BTreeMap::new(), None, None);
        Ok(Self { device: device.into(), handle, chosen, workspace, no_eight, refused })
    }

    /// Asks for a product of factors in eight bits, as [`Self::multiply`] does; says once where one is refused.
    ///
    /// # Errors
    /// When the library fails.
    pub fn multiply_eight(
        &mut self,
        product: &ProductStep,
        storage: Storage,
        stream: CUstream,
    ) -> Result<bool, DeviceError> {
        let bytes = if product.to_f32 { 4 } else { storage.bytes() };
        let lies = |shape: Shape| shape.is_for_eight(bytes);
        let is_for_eight = self.no_eight.is_none() && Shape::of(product).is_some_and(lies);
        if is_for_eight && self.multiply(product, storage, stream)? {
            return Ok(true);
        }
        if self.refused.is_none() {
            let [m, n, k] = [product.args.m, product.args.n, product.args.k];
            let no_library = || Some("cuBLASLt is not on this machine".into());
            let why =
                self.no_eight.clone().or_else(|| no_library().filter(|_| self.handle.is_null()));
            let why =
                why.unwrap_or(format!("cuBLASLt has none of {m} x {n} x {k} and perhaps others"));
            warn!("products of fp8 are made in bf16, of the same factors: {why}");
            self.refused = Some(why);
        }
        Ok(false)
    }

    /// Asks for a product, on a stream; `false` where the library is not here or has nothing for it.
    ///
    /// # Errors
    /// When the library fails.
    pub fn multiply(
        &mut self,
        product: &ProductStep,
        storage: Storage,
        stream: CUstream,
    ) -> Result<bool, DeviceError> {
        let Some(shape) = Shape::of(product).filter(|_| !self.handle.is_null()) else {
            return Ok(false);
        };
        let own = storage.bytes();
        let outer = u64::from(shape.repeats);
        for repeat in 0..outer {
            let [a, b, c] = shape.offsets(&product.args, repeat);
            let bytes = if product.to_f32 { 4 } else { own };
            let places = [
                product.args.a.after(a * own).0,
                product.args.b.after(b * own).0,
                product.args.c.after(c * bytes).0,
            ];
            if !self.multiply_once((shape, product), storage, places, stream)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn multiply_once(
        &mut self,
        (shape, product): (Shape, &ProductStep),
        storage: Storage,
        places: [u64; 3],
        stream: CUstream,
    ) -> Result<bool, DeviceError> {
        let bias = product.bias.0;
        let alignment = |place: u64| 1 << place.trailing_zeros().min(8);
        let alignments = places.map(alignment);
        let ProductStep { to_f32, tf32, .. } = *product;
        let of_bias = (bias != 0).then(|| alignment(bias));
        let fp8 = product.fp8.map(|factors| factors.formats);
        let key = Key { shape, storage, to_f32, bias: of_bias, tf32, fp8, alignments };
        if !self.chosen.contains_key(&key) {
            let chosen = self.choose(&key, bias)?;
            self.chosen.insert(key, chosen);
        }
        let Some(Some(chosen)) = self.chosen.get(&key) else { return Ok(false) };
        let told = |e| failed(&self.device, "multiply", e);
        if let Some(factors) = product.fp8 {
            let [a, b] = factors.backs.map(|back| back.0);
            let (first, second) = if shape.swapped { (b, a) } else { (a, b) };
            let of_first = Attribute::CUBLASLT_MATMUL_DESC_A_SCALE_POINTER;
            set(chosen.operation, of_first, &first).map_err(told)?;
            let of_second = Attribute::CUBLASLT_MATMUL_DESC_B_SCALE_POINTER;
            set(chosen.operation, of_second, &second).map_err(told)?;
        }
        if of_bias.is_some() {
            set(chosen.operation, Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias)
                .map_err(told)?;
        }
        let (alpha, beta) = (1.0_f32, if product.args.accumulate != 0 { 1.0_f32 } else { 0.0 });
        let [a, b, c] = places.map(|place| place as *const c_void);
        let (first, second) = if shape.swapped { (b, a) } else { (a, b) };
        let [of_first, of_second, of_result] = chosen.layouts;
        // SAFETY: descriptions are those of the operands, whose addresses are allocated; the factors are
        // read before the call returns.
        let asked = unsafe {
            result::matmul(
                self.handle,
                chosen.operation,
                (&raw const alpha).cast(),
                (&raw const beta).cast(),
                first,
                of_first,
                second,
                of_second,
                c,
                of_result,
                c.cast_mut(),
                of_result,
                &raw const chosen.algorithm,
                self.workspace.0 as *mut c_void,
                Self::WORKSPACE as usize,
                stream.cast(),
            )
        };
        asked.map_err(told).map(|()| true)
    }

    /// What the library would take for a shape, with a bias at an address; `None` where it has nothing.
    fn choose(&self, key: &Key, bias: u64) -> Result<Option<Chosen>, DeviceError> {
        let told = |e| failed(&self.device, "describe a product", e);
        let own = match key.storage {
            Storage::F32 => sys::cudaDataType::CUDA_R_32F,
            Storage::Bf16 => sys::cudaDataType::CUDA_R_16BF,
            Storage::F16 => sys::cudaDataType::CUDA_R_16F,
        };
        let [of_first, of_second] = match key.fp8 {
            Some([a, b]) if key.shape.swapped => [b, a].map(kind_of),
            Some(formats) => formats.map(kind_of),
            None => [own; 2],
        };
        let of_result = if key.to_f32 { sys::cudaDataType::CUDA_R_32F } else { own };
        let operation = describe(key, bias).map_err(told)?;
        let Shape { first, second, result: c, batch, .. } = key.shape;
        let layouts = [
            layout(of_first, &first, batch).map_err(told)?,
            layout(of_second, &second, batch).map_err(told)?,
            layout(of_result, &c, batch).map_err(told)?,
        ];
        let preference = preference(key).map_err(told)?;
        let [a, b, c] = layouts;
        // SAFETY: all descriptions live.
        let found = unsafe {
            result::get_matmul_algo_heuristic(self.handle, operation, a, b, c, c, preference)
        };
        // SAFETY: nobody has it any more.
        unsafe { result::destroy_matmul_pref(preference) }.map_err(told)?;
        match found {
            Ok(found) => Ok(Some(Chosen { operation, layouts, algorithm: found.algo })),
            // The second is what older libraries say of types and epilogues that they do not know.
            Err(CublasError(
                sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED
                | sys::cublasStatus_t::CUBLAS_STATUS_INVALID_VALUE,
            )) => Ok(None),
            Err(error) => Err(failed(&self.device, "choose how to multiply", error)),
        }
    }
}

impl Drop for Products {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: made here, and nothing runs any more. A library that fails now harms nobody.
            let _ = unsafe { result::destroy_handle(self.handle) };
        }
    }
}

use sys::cublasLtMatmulDescAttributes_t as Attribute;

fn failed(device: &str, what: &str, error: CublasError) -> DeviceError {
    let (device, what) = (device.into(), format!("cuBLASLt: {what}"));
    DeviceError::Failed { device, what, why: format!("{:?}", error.0) }
}

/// The library's name of eight bits.
fn kind_of(format: Float8) -> sys::cudaDataType {
    match format {
        Float8::E4m3 => sys::cudaDataType::CUDA_R_8F_E4M3,
        Float8::Truncate | Float8::NearestEven | Float8::Saturating => {
            sys::cudaDataType::CUDA_R_8F_E5M2
        }
    }
}

fn set<T>(
    operation: sys::cublasLtMatmulDesc_t,
    attribute: Attribute,
    value: &T,
) -> Result<(), CublasError> {
    let value = ptr::from_ref(value).cast();
    // SAFETY: the description lives; attributes are of the size of `T`, as the library's manual says.
    unsafe { result::set_matmul_desc_attribute(operation, attribute, value, size_of::<T>()) }
}

fn describe(key: &Key, bias: u64) -> Result<sys::cublasLtMatmulDesc_t, CublasError> {
    let computed = match key.tf32 {
        true => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
        false => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
    };
    let operation = result::create_matmul_desc(computed, sys::cudaDataType::CUDA_R_32F)?;
    // CUBLAS_OP_T and CUBLAS_OP_N of cublas_api.h; the bindings leave that header out.
    let of = |operand: Operand| i32::from(operand.transposed);
    set(operation, Attribute::CUBLASLT_MATMUL_DESC_TRANSA, &of(key.shape.first))?;
    set(operation, Attribute::CUBLASLT_MATMUL_DESC_TRANSB, &of(key.shape.second))?;
    if key.bias.is_some() {
        let epilogue = sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS;
        set(operation, Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue)?;
        // The heuristic looks at where it is.
        set(operation, Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias)?;
    }
    Ok(operation)
}

fn layout(
    kind: sys::cudaDataType,
    operand: &Operand,
    batch: u32,
) -> Result<sys::cublasLtMatrixLayout_t, CublasError> {
    use sys::cublasLtMatrixLayoutAttribute_t as Of;
    let layout =
        result::create_matrix_layout(kind, operand.rows, operand.columns, operand.leading as i64)?;
    if batch > 1 {
        let (count, stride) = (batch as i32, operand.stride as i64);
        // SAFETY: the description lives; the attributes are an i32 and an i64.
        unsafe {
            let count = (&raw const count).cast();
            result::set_matrix_layout_attribute(
                layout,
                Of::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                count,
                4,
            )?;
            let stride = (&raw const stride).cast();
            let attribute = Of::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET;
            result::set_matrix_layout_attribute(layout, attribute, stride, 8)?;
        }
    }
    Ok(layout)
}

fn preference(key: &Key) -> Result<sys::cublasLtMatmulPreference_t, CublasError> {
    use sys::cublasLtMatmulPreferenceAttributes_t as Of;
    let preference = result::create_matmul_pref()?;
    let most = Products::WORKSPACE;
    let [mut first, mut second, result_alignment] = key.alignments;
    if key.shape.swapped {
        (first, second) = (second, first);
    }
    let alignments = [
        (Of::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, first),
        (Of::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, second),
        (Of::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, result_alignment),
        (Of::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, result_alignment),
    ];
    // SAFETY: the description lives; the attributes are a u64 and u32s.
    unsafe {
        let workspace = Of::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        result::set_matmul_pref_attribute(preference, workspace, (&raw const most).cast(), 8)?;
        for (attribute, bytes) in alignments {
            let bytes = (&raw const bytes).cast();
            result::set_matmul_pref_attribute(preference, attribute, bytes, 4)?;
        }
    }
    Ok(preference)
}
