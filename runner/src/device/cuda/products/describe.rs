//! Descriptions of products for cuBLASLt, and what it would take for them.

use super::Key;
use super::Products;
use super::shape::{Operand, Shape};
use crate::device::cuda::kernels::{Float8, Storage};
use cudarc::cublaslt::result::{self, CublasError};
use cudarc::cublaslt::sys;
use std::ptr;
pub use sys::cublasLtMatmulDescAttributes_t as Attribute;

/// A product as the library is told of it, in its memory, which lives as long as the process.
#[derive(Clone, Copy)]
pub struct Described {
    pub operation: sys::cublasLtMatmulDesc_t,
    pub layouts: [sys::cublasLtMatrixLayout_t; 3],
}

impl Described {
    /// Tells the library of a product with a bias at an address.
    pub fn new(key: &Key, bias: u64) -> Result<Self, CublasError> {
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
        let operation = describe(key, bias)?;
        let Shape { first, second, result: c, batch, .. } = key.shape;
        let layouts = [
            layout(of_first, &first, batch)?,
            layout(of_second, &second, batch)?,
            layout(of_result, &c, batch)?,
        ];
        Ok(Self { operation, layouts })
    }

    /// The algorithms that the library would take, at most so many, quickest first by its own expectation; none where it
    /// has nothing.
    pub fn algorithms(
        &self,
        handle: sys::cublasLtHandle_t,
        key: &Key,
        most: usize,
    ) -> Result<Vec<sys::cublasLtMatmulAlgo_t>, CublasError> {
        let preference = preference(key)?;
        let [a, b, c] = self.layouts;
        // SAFETY: all bits zero are a result, of success; the library writes as many as it counts.
        let mut found: Vec<sys::cublasLtMatmulHeuristicResult_t> =
            vec![unsafe { std::mem::zeroed() }; most];
        let mut count = 0;
        // SAFETY: all descriptions live, and there is room for `most`.
        let asked = unsafe {
            sys::cublasLtMatmulAlgoGetHeuristic(
                handle,
                self.operation,
                a,
                b,
                c,
                c,
                preference,
                most as i32,
                found.as_mut_ptr(),
                &raw mut count,
            )
        };
        // SAFETY: nobody has it any more.
        unsafe { result::destroy_matmul_pref(preference) }?;
        match asked.result() {
            Ok(()) => {}
            // The second is what older libraries say of types and epilogues that they do not know.
            Err(CublasError(
                sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED
                | sys::cublasStatus_t::CUBLAS_STATUS_INVALID_VALUE,
            )) => count = 0,
            Err(error) => return Err(error),
        }
        found.truncate(count.max(0) as usize);
        let can_be_taken = |one: &&sys::cublasLtMatmulHeuristicResult_t| {
            one.state == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS
        };
        Ok(found.iter().filter(can_be_taken).map(|one| one.algo).collect())
    }
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

pub fn set<T>(
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
