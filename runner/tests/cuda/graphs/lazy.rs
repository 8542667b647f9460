//! A device that does nothing before somebody waits for it, and makes graphs of what it is asked for.
//!
//! Bytes that are staged get to their place as late as they may, and what was there is gone as soon as it
//! may be: whoever does not say that they arrived, or were taken, reads zeros.

use super::emulated::Emulated;
use pipewright_runner::data::{SampleBuffer, plain};
use pipewright_runner::device::DeviceError;
use pipewright_runner::device::cuda::kernels::{
    ConvolutionStep, DevicePtr, Launch, ProductStep, Storage,
};
use pipewright_runner::device::cuda::{Backend, Capture, perform};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a device is asked for.
#[derive(Clone)]
pub enum Work {
    Launch(Launch),
    Copy(DevicePtr, DevicePtr, u64),
    Zero(DevicePtr, u64),
    Upload(DevicePtr, Vec<u8>),
    Arrived(usize),
    Taken(usize),
    Moment(usize),
}

/// What a test wants to know of a device.
#[derive(Default)]
pub struct Seen {
    /// How often the host waited.
    pub downloads: AtomicU64,
    /// Launches that were asked for one by one.
    pub launches: AtomicU64,
}

/// The device.
#[derive(Default)]
pub struct Lazy {
    pub device: Emulated,
    pub queue: VecDeque<Work>,
    /// The graph that is being made.
    pub capturing: Option<Vec<Work>>,
    /// By place: where it is, and what is on its way there.
    pub coming: Vec<(DevicePtr, Option<Vec<u8>>)>,
    pub seen: Arc<Seen>,
    /// Whether it makes graphs of nothing that launches a kernel.
    pub refuses: bool,
    /// Whether it makes graphs of nothing that convolves, as a library may that copies from the host.
    pub refuses_convolutions: bool,
    /// Replays until one fails.
    pub fails_after: Option<u64>,
}

impl Lazy {
    fn ask(&mut self, work: Work) -> Result<(), DeviceError> {
        match &mut self.capturing {
            Some(graph) => graph.push(work),
            None => self.queue.push_back(work),
        }
        Ok(())
    }

    fn not_while_capturing(&self) {
        assert!(self.capturing.is_none(), "no graph can be made of this");
    }

    fn failed(&self, what: &str) -> DeviceError {
        let (device, what, why) = (self.name().into(), what.into(), "it is meant to".into());
        DeviceError::Failed { device, what, why }
    }

    /// Does the first `count` things that are asked for.
    fn work(&mut self, count: usize) -> Result<(), DeviceError> {
        for work in self.queue.drain(..count).collect::<Vec<_>>() {
            match work {
                Work::Launch(launch) => self.device.launch(&launch)?,
                Work::Copy(from, to, bytes) => self.device.copy(from, to, bytes)?,
                Work::Zero(at, bytes) => self.device.zero(at, bytes)?,
                Work::Upload(to, bytes) => self.device.upload(to, &bytes)?,
                Work::Arrived(place) => {
                    let (at, coming) = &mut self.coming[place];
                    if let Some(bytes) = coming.take() {
                        self.device.upload(*at, &bytes)?;
                    }
                }
                Work::Taken(_) => {}
                Work::Moment(number) => self.device.moment(number)?,
            }
        }
        Ok(())
    }
}

impl Backend for Lazy {
    fn name(&self) -> &str {
        "lazy"
    }

    fn allocate(&mut self, bytes: u64, what: &str) -> Result<DevicePtr, DeviceError> {
        self.not_while_capturing();
        self.device.allocate(bytes, what)
    }

    fn upload(&mut self, to: DevicePtr, bytes: &[u8]) -> Result<(), DeviceError> {
        self.ask(Work::Upload(to, bytes.to_vec()))
    }

    fn download(&mut self, from: DevicePtr, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.not_while_capturing();
        self.seen.downloads.fetch_add(1, Ordering::Relaxed);
        self.work(self.queue.len())?;
        self.device.download(from, bytes)
    }

    fn copy(&mut self, from: DevicePtr, to: DevicePtr, bytes: u64) -> Result<(), DeviceError> {
        self.ask(Work::Copy(from, to, bytes))
    }

    fn zero(&mut self, at: DevicePtr, bytes: u64) -> Result<(), DeviceError> {
        self.ask(Work::Zero(at, bytes))
    }

    fn launch(&mut self, launch: &Launch) -> Result<(), DeviceError> {
        if self.capturing.is_none() {
            self.seen.launches.fetch_add(1, Ordering::Relaxed);
        } else if self.refuses {
            return Err(self.failed("capture a launch"));
        }
        self.ask(Work::Launch(launch.clone()))
    }

    fn product(&mut self, product: &ProductStep, storage: Storage) -> Result<(), DeviceError> {
        product.launches(storage).iter().try_for_each(|launch| self.launch(launch))
    }

    fn convolution(
        &mut self,
        convolution: &ConvolutionStep,
        storage: Storage,
    ) -> Result<(), DeviceError> {
        if self.refuses_convolutions && self.capturing.is_some() {
            return Err(self.failed("capture a convolution"));
        }
        convolution.steps(storage).iter().try_for_each(|step| perform(self, step, storage))
    }

    fn moment(&mut self, number: usize) -> Result<(), DeviceError> {
        self.ask(Work::Moment(number))
    }

    fn ages(&mut self, count: usize, ages: &mut Vec<u64>) -> Result<(), DeviceError> {
        self.not_while_capturing();
        self.work(self.queue.len())?;
        self.device.ages(count, ages)
    }

    fn mark(&mut self, _: usize) -> Result<(), DeviceError> {
        Ok(())
    }

    fn reached(&mut self, _: usize) -> Result<bool, DeviceError> {
        Ok(true)
    }

    fn beside(&mut self) -> Result<Option<Box<dyn Backend>>, DeviceError> {
        Ok(None)
    }

    fn stage(
        &mut self,
        place: usize,
        bytes: u64,
        fill: &mut dyn FnMut(&mut Box<dyn SampleBuffer>),
    ) -> Result<DevicePtr, DeviceError> {
        self.not_while_capturing();
        let is_taken = |work: &Work| matches!(work, Work::Taken(of) if *of == place);
        let first = self.queue.iter().rposition(is_taken).map_or(0, |last| last + 1);
        self.work(first)?;
        let at = self.device.place(place, bytes);
        self.device.zero(at, bytes)?;
        let mut coming = plain(bytes.div_ceil(4) as usize);
        fill(&mut coming);
        let coming: &[u8] = &bytemuck::cast_slice(coming.words())[..bytes as usize];
        self.coming.resize(self.coming.len().max(place + 1), (DevicePtr::NULL, None));
        self.coming[place] = (at, Some(coming.to_vec()));
        Ok(at)
    }

    fn arrived(&mut self, place: usize) -> Result<(), DeviceError> {
        self.not_while_capturing();
        self.ask(Work::Arrived(place))
    }

    fn taken(&mut self, place: usize) -> Result<(), DeviceError> {
        self.not_while_capturing();
        self.ask(Work::Taken(place))
    }
}

impl Capture for Lazy {
    type Graph = Vec<Work>;

    fn capture(
        &mut self,
        uploads: usize,
        issue: &mut dyn FnMut(&mut Self) -> Result<(), DeviceError>,
    ) -> Result<Vec<Work>, DeviceError> {
        self.not_while_capturing();
        self.capturing = Some(vec![]);
        let issued = issue(self);
        let mut graph = self.capturing.take().expect("it was begun");
        issued?;
        // The bytes of uploads are those of each replay, never these.
        let mut sum = 0;
        for work in &mut graph {
            if let Work::Upload(_, bytes) = work {
                sum += bytes.len();
                bytes.fill(0xee);
            }
        }
        assert_eq!(sum, uploads, "bytes of all uploads");
        Ok(graph)
    }

    fn replay(&mut self, graph: &mut Vec<Work>, mut uploads: &[u8]) -> Result<(), DeviceError> {
        self.not_while_capturing();
        if let Some(left) = &mut self.fails_after {
            let Some(fewer) = left.checked_sub(1) else { return Err(self.failed("replay")) };
            *left = fewer;
        }
        for work in graph {
            if let Work::Upload(_, bytes) = work {
                let (own, rest) = uploads.split_at(bytes.len());
                bytes.copy_from_slice(own);
                uploads = rest;
            }
            self.queue.push_back(work.clone());
        }
        assert!(uploads.is_empty(), "every byte is for an upload");
        Ok(())
    }
}
