//! Products of matrices by cuBLASLt.

mod describe;
mod shape;

use super::choices::Choices;
use super::kernels::{Float8, ProductStep, Storage};
use crate::device::DeviceError;
use cudarc::cublaslt::result::{self, CublasError};
use cudarc::cublaslt::sys;
use cudarc::driver::sys::CUstream;
use describe::{Attribute, Described, set};
use shape::Shape;
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
    /// Where algorithms are chosen by their times; else they are those that the library expects to be quickest.
    choices: Option<Choices>,
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

/// A product as the library knows it, and how it is done.
#[derive(Clone, Copy)]
struct Chosen {
    of: Described,
    algorithm: sys::cublasLtMatmulAlgo_t,
}

/// Algorithms that are measured for a shape.
const MEASURED: usize = 8;

/// Where the operands of a product lie: two factors and the result.
type Operands = [u64; 3];

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
        let (chosen, choices, no_eight, refused) = (BTreeMap::new(), None, None, None);
        Ok(Self { device: device.into(), handle, chosen, workspace, choices, no_eight, refused })
    }

    /// From now on takes what is quickest by its time.
    pub fn choose_by(&mut self, choices: Choices) {
        self.choices = Some(choices);
    }

    /// What is chosen by time.
    pub fn choices(&mut self) -> Option<&mut Choices> {
        self.choices.as_mut()
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
            let chosen = self.choose(&key, product, places, stream)?;
            self.chosen.insert(key, chosen);
        }
        let Some(Some(chosen)) = self.chosen.get(&key) else { return Ok(false) };
        let asked = self.ask(*chosen, (&key, product), places, stream);
        asked.map_err(|e| failed(&self.device, "multiply", e)).map(|()| true)
    }

    /// Asks for a product that was chosen.
    fn ask(
        &self,
        Chosen { of, algorithm }: Chosen,
        (key, product): (&Key, &ProductStep),
        places: Operands,
        stream: CUstream,
    ) -> Result<(), CublasError> {
        if let Some(factors) = product.fp8 {
            let [a, b] = factors.backs.map(|back| back.0);
            let (first, second) = if key.shape.swapped { (b, a) } else { (a, b) };
            set(of.operation, Attribute::CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &first)?;
            set(of.operation, Attribute::CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &second)?;
        }
        if key.bias.is_some() {
            let bias = product.bias.0;
            set(of.operation, Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias)?;
        }
        let (alpha, beta) = (1.0_f32, if product.args.accumulate != 0 { 1.0_f32 } else { 0.0 });
        let [a, b, c] = places.map(|place| place as *const c_void);
        let (first, second) = if key.shape.swapped { (b, a) } else { (a, b) };
        let [of_first, of_second, of_result] = of.layouts;
        // SAFETY: descriptions are those of the operands, whose addresses are allocated; the factors are
        // read before the call returns.
        unsafe {
            result::matmul(
                self.handle,
                of.operation,
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
                &raw const algorithm,
                self.workspace.0 as *mut c_void,
                Self::WORKSPACE as usize,
                stream.cast(),
            )
        }
    }

    /// How a shape is multiplied; `None` where the library has nothing for it.
    fn choose(
        &mut self,
        key: &Key,
        product: &ProductStep,
        places: Operands,
        stream: CUstream,
    ) -> Result<Option<Chosen>, DeviceError> {
        let of = Described::new(key, product.bias.0)
            .map_err(|e| failed(&self.device, "describe a product", e))?;
        let most = if self.choices.is_some() { MEASURED } else { 1 };
        let algorithms = of
            .algorithms(self.handle, key, most)
            .map_err(|e| failed(&self.device, "choose how to multiply", e))?;
        let Some(mut choices) = self.choices.take() else {
            return Ok(algorithms.first().map(|algorithm| Chosen { of, algorithm: *algorithm }));
        };
        let bytes = |algorithm: &sys::cublasLtMatmulAlgo_t| -> Vec<u8> {
            algorithm.data.iter().flat_map(|word| word.to_ne_bytes()).collect()
        };
        let ways: Vec<Vec<u8>> = algorithms.iter().map(bytes).collect();
        let mut run = |way: usize| {
            let chosen = Chosen { of, algorithm: algorithms[way] };
            match self.ask(chosen, (key, product), places, stream) {
                Ok(()) => Ok(true),
                Err(CublasError(sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED)) => Ok(false),
                Err(error) => Err(failed(&self.device, "multiply", error)),
            }
        };
        let chosen = choices.among((&format!("{key:?}"), &named(key, product)), &ways, &mut run);
        self.choices = Some(choices);
        let algorithm = algorithms.get(chosen?);
        Ok(algorithm.map(|algorithm| Chosen { of, algorithm: *algorithm }))
    }
}

/// A product in words.
fn named(key: &Key, product: &ProductStep) -> String {
    let [m, n, k] = [product.args.m, product.args.n, product.args.k];
    let kind = match (key.fp8, key.tf32) {
        (Some(_), _) => "fp8",
        (None, true) => "tf32",
        (None, false) => key.storage.suffix(),
    };
    let batch = key.shape.batch;
    let times = if batch > 1 { format!(", {batch} of them") } else { String::new() };
    format!("product {m} x {n} x {k} {kind}{times}")
}

impl Drop for Products {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: made here, and nothing runs any more. A library that fails now harms nobody.
            let _ = unsafe { result::destroy_handle(self.handle) };
        }
    }
}

fn failed(device: &str, what: &str, error: CublasError) -> DeviceError {
    let (device, what) = (device.into(), format!("cuBLASLt: {what}"));
    DeviceError::Failed { device, what, why: format!("{:?}", error.0) }
}
