//! Residuals of error feedback: one store a bucket, whatever codec it has, on the host or on the device.

use super::pieces::{Parts, Piece};
use crate::device::{Coder, DeviceError, DevicePtr};
use std::ops::Range;

/// Whose values a residual belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Residual {
    /// This rank's own.
    Worker,
    /// The sums of the part that this rank owns.
    Server,
}

/// The residuals of a bucket; empty without feedback.
pub(super) struct Residuals {
    host: HostResiduals,
    /// The device's, as long, where it encodes too.
    device: Option<DeviceResiduals>,
    /// Whether those of the device are the ones that count.
    on_device: bool,
    /// Where the own part begins among those of the worker.
    own: usize,
    before: Option<Before>,
}

/// All values that this rank exchanges, one tensor behind the other; those of its own part.
#[derive(Clone)]
struct HostResiduals {
    worker: Vec<f32>,
    server: Vec<f32>,
}

/// The same in the device's memory.
#[derive(Clone, Copy)]
struct DeviceResiduals {
    worker: DevicePtr,
    server: DevicePtr,
}

/// Both as they were before a sum.
struct Before {
    host: HostResiduals,
    device: Option<DeviceResiduals>,
    /// Where they were copied since they were settled, and whether that was on the device.
    copied: Option<bool>,
}

impl HostResiduals {
    fn copy_from(&mut self, other: &Self) {
        self.worker.copy_from_slice(&other.worker);
        self.server.copy_from_slice(&other.server);
    }

    /// Bytes of both.
    fn bytes(&self) -> [u64; 2] {
        [&self.worker, &self.server].map(|values| 4 * values.len() as u64)
    }
}

impl DeviceResiduals {
    fn new(bytes: [u64; 2], coder: &mut dyn Coder) -> Result<Self, DeviceError> {
        let [worker, server] = bytes.map(|bytes| match bytes {
            0 => Ok(DevicePtr::NULL),
            _ => coder.allocate(bytes),
        });
        Ok(Self { worker: worker?, server: server? })
    }

    fn copy_from(
        self,
        other: Self,
        bytes: [u64; 2],
        coder: &mut dyn Coder,
    ) -> Result<(), DeviceError> {
        let pairs = [(other.worker, self.worker), (other.server, self.server)];
        let some = pairs.into_iter().zip(bytes).filter(|(_, bytes)| *bytes > 0);
        some.into_iter().try_for_each(|((from, to), bytes)| coder.copy(from, to, bytes))
    }
}

impl Residuals {
    /// For so many values of a worker, and of the server of part `own`.
    pub fn new(worker: usize, server: usize, parts: &Parts, own: usize) -> Self {
        let first = parts.get(own).into_iter().flatten().flatten().next();
        let own = first.map_or(0, |piece| piece.at);
        let host = HostResiduals { worker: vec![0.0; worker], server: vec![0.0; server] };
        Self { host, device: None, on_device: false, own, before: None }
    }

    /// The device encodes too; nothing was lost so far.
    pub fn take_room(&mut self, coder: &mut dyn Coder) -> Result<(), DeviceError> {
        // Zeros there and here.
        self.device = Some(DeviceResiduals::new(self.host.bytes(), coder)?);
        self.on_device = true;
        Ok(())
    }

    pub fn worker(&mut self, piece: &Piece) -> &mut [f32] {
        &mut self.host.worker[piece.dense()]
    }

    pub fn server(&mut self, piece: &Piece) -> &mut [f32] {
        let dense = piece.dense();
        &mut self.host.server[dense.start - self.own..dense.end - self.own]
    }

    /// Those of the worker on the device, from its `at`-th value on, and those of the server.
    pub fn on_device(&self, at: usize) -> [DevicePtr; 2] {
        let none = DeviceResiduals { worker: DevicePtr::NULL, server: DevicePtr::NULL };
        let device = self.device.unwrap_or(none);
        [device.worker.after(4 * at as u64), device.server]
    }

    pub fn bytes(&self) -> u64 {
        let copies = 1 + u64::from(self.before.is_some());
        copies * self.host.bytes().iter().sum::<u64>()
    }

    /// Takes memory for a copy.
    pub fn allow_undo(&mut self, coder: Option<&mut dyn Coder>) -> Result<(), DeviceError> {
        let device = match coder.filter(|_| self.device.is_some()) {
            Some(coder) => Some(DeviceResiduals::new(self.host.bytes(), coder)?),
            None => None,
        };
        self.before = Some(Before { host: self.host.clone(), device, copied: None });
        Ok(())
    }

    /// A sum begins, by the device or by this processor.
    pub fn begin(
        &mut self,
        on_device: bool,
        coder: Option<&mut dyn Coder>,
    ) -> Result<(), DeviceError> {
        match (on_device, self.device, coder) {
            (true, Some(device), Some(coder)) => {
                self.send(device, coder)?;
                if let Some(Before { device: Some(before), copied, .. }) = &mut self.before {
                    *copied = Some(true);
                    before.copy_from(device, self.host.bytes(), coder)?;
                }
            }
            (_, _, coder) => {
                self.fetch(coder)?;
                if let Some(before) = &mut self.before {
                    before.copied = Some(false);
                    before.host.copy_from(&self.host);
                }
            }
        }
        Ok(())
    }

    /// Those of the device are the ones that count.
    fn send(&mut self, device: DeviceResiduals, coder: &mut dyn Coder) -> Result<(), DeviceError> {
        if !std::mem::replace(&mut self.on_device, true) {
            for (to, values) in
                [(device.worker, &self.host.worker), (device.server, &self.host.server)]
            {
                if !values.is_empty() {
                    coder.upload(to, bytemuck::cast_slice(values))?;
                }
            }
        }
        Ok(())
    }

    /// Those of this processor are the ones that count.
    fn fetch(&mut self, coder: Option<&mut dyn Coder>) -> Result<(), DeviceError> {
        if let (true, Some(device), Some(coder)) = (self.on_device, self.device, coder) {
            for (from, values) in
                [(device.worker, &mut self.host.worker), (device.server, &mut self.host.server)]
            {
                if !values.is_empty() {
                    coder.download(from, bytemuck::cast_slice_mut(values))?;
                }
            }
        }
        self.on_device = false;
        Ok(())
    }

    /// What sums since the last call made stays, or is what it was before them.
    pub fn settle(&mut self, undo: bool, coder: Option<&mut dyn Coder>) -> Result<(), DeviceError> {
        let Some(before) = &mut self.before else { return Ok(()) };
        let Some(on_device) = before.copied.take().filter(|_| undo) else { return Ok(()) };
        self.on_device = on_device;
        match (on_device, self.device, before.device, coder) {
            (true, Some(device), Some(copy), Some(coder)) => {
                device.copy_from(copy, self.host.bytes(), coder)
            }
            _ => {
                self.host.copy_from(&before.host);
                Ok(())
            }
        }
    }

    /// Shows the residuals of each piece, with its places in the bucket.
    pub fn visit(
        &mut self,
        parts: &Parts,
        own: usize,
        coder: Option<&mut dyn Coder>,
        mut visit: impl FnMut(Residual, Range<usize>, &mut [f32]),
    ) -> Result<(), DeviceError> {
        self.fetch(coder)?;
        let pieces = |part: &Vec<Vec<Piece>>| part.clone().into_iter().flatten();
        if !self.host.worker.is_empty() {
            for piece in parts.iter().flat_map(pieces) {
                visit(Residual::Worker, piece.range.clone(), self.worker(&piece));
            }
        }
        if !self.host.server.is_empty() {
            for piece in parts.get(own).into_iter().flat_map(pieces) {
                visit(Residual::Server, piece.range.clone(), self.server(&piece));
            }
        }
        Ok(())
    }
}
