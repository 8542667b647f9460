//! Convolutions by cuDNN.
//!
//! By the interface that was there before its graphs: three calls, an algorithm each, and a workspace
//! that is ours, so that calls can be captured. Only algorithms that always give the same bits are
//! taken: the quickest by the library's own expectation, which follows from shapes, device and version alone, or by
//! times that were measured once ([`Choices`]).

mod choose;
mod description;

use super::choices::Choices;
use super::kernels::{
    ConvolutionPass, ConvolutionShape, ConvolutionStep, DevicePtr, Launch, Storage,
};
use crate::device::DeviceError;
use choose::{Algorithm, Chosen, Descriptors, Way};
use cudarc::cudnn::result::{self, CudnnError};
use cudarc::cudnn::sys;
use cudarc::driver::sys::CUstream;
use description::is_for_the_library;
use pipewright_core::units::Bytes;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr;
use std::sync::Once;

/// What stays from convolution to convolution: the library's handle, and what it chose for shapes that
/// it has seen.
pub struct Convolutions {
    device: String,
    /// The library's; null where it is not used.
    handle: sys::cudnnHandle_t,
    chosen: BTreeMap<Key, Option<Chosen>>,
    /// Most bytes of workspace.
    most: u64,
    choices: Option<Choices>,
}

/// Most ways that are measured for a shape: all that a pass has.
const MEASURED: usize = 8;

/// All that the choice depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    pass: ConvolutionPass,
    shape: ConvolutionShape,
    storage: Storage,
    tf32: bool,
    bias: bool,
    channels_last: bool,
}

impl Key {
    fn of(step: &ConvolutionStep, storage: Storage) -> Self {
        let bias = step.bias != DevicePtr::NULL;
        let ConvolutionStep { pass, shape, tf32, channels_last, .. } = *step;
        Self { pass, shape, storage, tf32, bias, channels_last }
    }
}

/// The largest workspace. On the tensor cores channels lie innermost, and the library turns images round in it
/// where they do not: those of a large mini-batch take some gibibytes.
const MOST: u64 = 4 << 30;

impl Convolutions {
    /// For a device that is current and has so much memory; all calls go to `stream`. Where the library
    /// is there and cannot be used, a warning says why.
    pub fn new(device: &str, memory: Bytes, stream: CUstream) -> Self {
        let begin = || -> Result<sys::cudnnHandle_t, String> {
            let library = super::Library::Cudnn;
            if let Some(why) = library.unusable() {
                return Err(why);
            }
            let told = |error: CudnnError| format!("it does not begin: {:?}", error.0);
            let handle = result::create_handle().map_err(told)?;
            // SAFETY: both live.
            unsafe { result::set_stream(handle, stream.cast()) }.map_err(told)?;
            Ok(handle)
        };
        let mut handle = ptr::null_mut();
        if super::Library::Cudnn.is_present() {
            handle = begin().unwrap_or_else(|why| {
                // Ranks of one process have the same reason.
                static SAID: Once = Once::new();
                SAID.call_once(|| warn!("convolutions run without cuDNN: {why}"));
                ptr::null_mut()
            });
        }
        // A part of the device that does not depend on what is left of it: nor does the choice, then.
        let most = MOST.min(memory.0 / 16);
        Self { device: device.into(), handle, chosen: BTreeMap::new(), most, choices: None }
    }

    /// From now on takes what is quickest by its time.
    pub fn choose_by(&mut self, choices: Choices) {
        self.choices = Some(choices);
    }

    /// What is chosen by time.
    pub fn choices(&mut self) -> Option<&mut Choices> {
        self.choices.as_mut()
    }

    /// Whether the library is used.
    pub fn is_there(&self) -> bool {
        !self.handle.is_null()
    }

    /// Bytes of workspace that the library needs for a convolution; `None` where it is not here or has
    /// nothing for it.
    ///
    /// # Errors
    /// When the library fails.
    pub fn workspace(
        &mut self,
        step: &ConvolutionStep,
        storage: Storage,
    ) -> Result<Option<u64>, DeviceError> {
        if self.handle.is_null() || !is_for_the_library(step, storage) {
            return Ok(None);
        }
        let key = Key::of(step, storage);
        if !self.chosen.contains_key(&key) {
            let count = if self.choices.is_some() { MEASURED } else { 1 };
            let chosen = match choose::choose(self.handle, &key, self.most, count) {
                // There is another way to ask.
                Err(_) if step.channels_last => None,
                chosen => chosen.map_err(|e| failed(&self.device, "choose how to convolve", e))?,
            };
            self.chosen.insert(key, chosen);
        }
        let chosen = self.chosen.get(&key).and_then(Option::as_ref);
        Ok(chosen.map(Chosen::workspace))
    }

    /// Asks for a convolution with a workspace of as many bytes as it needs, and gives what remains to be
    /// launched after it; `None` where the library turns out to have nothing for it.
    ///
    /// # Errors
    /// When the library fails.
    pub fn convolve(
        &mut self,
        step: &ConvolutionStep,
        storage: Storage,
        workspace: DevicePtr,
    ) -> Result<Option<Vec<Launch>>, DeviceError> {
        let key = Key::of(step, storage);
        self.measure(&key, step, workspace)?;
        let Some(entry) = self.chosen.get_mut(&key) else { return Ok(None) };
        let Some(chosen) = entry else { return Ok(None) };
        if chosen.way.identity.is_some() {
            match with_bias(self.handle, chosen, step, workspace) {
                Ok(()) => return Ok(Some(vec![])),
                Err(error) if is_refused(error, step) => chosen.way.identity = None,
                Err(error) => return Err(failed(&self.device, "convolve", error)),
            }
        }
        let apart = apart(chosen, workspace);
        match plain(self.handle, chosen, step, workspace, apart) {
            Ok(()) => {}
            Err(error) if is_refused(error, step) => {
                *entry = None;
                return Ok(None);
            }
            Err(error) => return Err(failed(&self.device, "convolve", error)),
        }
        let add = apart.map(|gradient| step.add_gradient(gradient, storage));
        Ok(Some(step.add_bias(storage).into_iter().chain(add).collect()))
    }
}

impl Convolutions {
    /// Takes the quickest of several ways, where nobody has looked so far.
    fn measure(
        &mut self,
        key: &Key,
        step: &ConvolutionStep,
        workspace: DevicePtr,
    ) -> Result<(), DeviceError> {
        let Some(choices) = &mut self.choices else { return Ok(()) };
        let Some(Some(chosen)) = self.chosen.get_mut(key) else { return Ok(()) };
        if chosen.others.is_empty() {
            return Ok(());
        }
        let ways: Vec<Way> = [chosen.way].into_iter().chain(chosen.others.drain(..)).collect();
        let bytes: Vec<Vec<u8>> = ways.iter().map(Way::bytes).collect();
        let mut run = |way: usize| {
            chosen.take(ways[way]).map_err(|e| failed(&self.device, "choose a way", e))?;
            let asked = match chosen.way.identity {
                Some(_) => with_bias(self.handle, chosen, step, workspace),
                None => plain(self.handle, chosen, step, workspace, apart(chosen, workspace)),
            };
            match asked {
                Ok(()) => Ok(true),
                Err(error) if is_refused(error, step) => Ok(false),
                Err(error) => Err(failed(&self.device, "convolve", error)),
            }
        };
        let way = choices.among((&format!("{key:?}"), &named(key)), &bytes, &mut run)?;
        chosen.take(ways[way]).map_err(|e| failed(&self.device, "choose a way", e))
    }
}

/// A convolution in words.
fn named(key: &Key) -> String {
    let pass = match key.pass {
        ConvolutionPass::Forward => "forward",
        ConvolutionPass::InputGradient => "input gradient",
        ConvolutionPass::WeightGradient => "weight gradient",
    };
    let kind = if key.tf32 { "tf32" } else { key.storage.suffix() };
    let order = if key.channels_last { "nhwc" } else { "nchw" };
    let ConvolutionShape { samples, kernel: [rows, columns], .. } = key.shape;
    let [of_x, of_y] = key.shape.images();
    format!(
        "convolution {rows} x {columns}, {samples} x {} to {} elements, {pass}, {kind}, {order}",
        of_x.elements() / samples.max(1),
        of_y.elements() / samples.max(1),
    )
}

impl Drop for Convolutions {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: made here, and nothing runs any more. A library that fails now harms nobody.
            let _ = unsafe { result::destroy_handle(self.handle) };
        }
    }
}

fn failed(device: &str, what: &str, error: CudnnError) -> DeviceError {
    let (device, what) = (device.into(), format!("cuDNN: {what}"));
    DeviceError::Failed { device, what, why: format!("{:?}", error.0) }
}

/// Whether an error says that there is nothing for a shape, rather than that something is wrong.
fn is_unsupported(error: CudnnError) -> bool {
    (3000..4000).contains(&(error.0 as u32))
}

/// Whether a step is to be done in another way. Where images can be turned round for the library, whatever it
/// says: what is wrong with the device shows then as well.
fn is_refused(error: CudnnError, step: &ConvolutionStep) -> bool {
    is_unsupported(error) || step.channels_last
}

fn address(at: DevicePtr) -> *mut c_void {
    at.0 as *mut c_void
}

/// Where a gradient goes to which the library cannot add: behind the library's workspace.
fn apart(chosen: &Chosen, workspace: DevicePtr) -> Option<DevicePtr> {
    (chosen.gradient_bytes > 0).then(|| workspace.after(chosen.way.library_bytes))
}

/// A forward pass that adds the bias on its way.
fn with_bias(
    handle: sys::cudnnHandle_t,
    chosen: &Chosen,
    step: &ConvolutionStep,
    workspace: DevicePtr,
) -> Result<(), CudnnError> {
    let (Algorithm::Forward(algorithm), Some((identity, bias))) =
        (chosen.way.algorithm, chosen.way.identity)
    else {
        unreachable!("biases are added by forward passes");
    };
    let of = chosen.of;
    let (one, zero) = (1.0_f32, 0.0_f32);
    // SAFETY: descriptions are those of the tensors, whose addresses are allocated; the factors are read
    // before the call returns.
    unsafe {
        result::convolution_bias_activation_forward(
            handle,
            (&raw const one).cast(),
            of.x,
            address(step.x),
            of.weight,
            address(step.weight),
            of.convolution,
            algorithm,
            address(workspace),
            chosen.way.library_bytes as usize,
            (&raw const zero).cast(),
            of.y,
            address(step.y),
            bias,
            address(step.bias),
            identity,
            of.y,
            address(step.y),
        )
    }
}

/// A pass without a bias. A weight gradient is added to, unless it goes somewhere `apart`.
fn plain(
    handle: sys::cudnnHandle_t,
    chosen: &Chosen,
    step: &ConvolutionStep,
    workspace: DevicePtr,
    apart: Option<DevicePtr>,
) -> Result<(), CudnnError> {
    let [x, weight, y] = [step.x, apart.unwrap_or(step.weight), step.y].map(address);
    let adds = step.pass == ConvolutionPass::WeightGradient && apart.is_none();
    let (alpha, beta) = (1.0_f32, if adds { 1.0_f32 } else { 0.0 });
    let (alpha, beta) = ((&raw const alpha).cast(), (&raw const beta).cast());
    let Descriptors { x: of_x, weight: of_weight, y: of_y, convolution } = chosen.of;
    let (workspace, bytes) = (address(workspace), chosen.way.library_bytes as usize);
    // SAFETY: as above.
    unsafe {
        match chosen.way.algorithm {
            Algorithm::Forward(algorithm) => result::convolution_forward(
                handle,
                alpha,
                of_x,
                x,
                of_weight,
                weight,
                convolution,
                algorithm,
                workspace,
                bytes,
                beta,
                of_y,
                y,
            ),
            Algorithm::InputGradient(algorithm) => result::convolution_backward_data(
                handle,
                alpha,
                of_weight,
                weight,
                of_y,
                y,
                convolution,
                algorithm,
                workspace,
                bytes,
                beta,
                of_x,
                x,
            ),
            Algorithm::WeightGradient(algorithm) => result::convolution_backward_filter(
                handle,
                alpha,
                of_x,
                x,
                of_y,
                y,
                convolution,
                algorithm,
                workspace,
                bytes,
                beta,
                of_weight,
                weight,
            ),
        }
    }
}
