//! Messages between ranks: from host to host, or from device to device where these can talk.

use super::error::StepFault;
use super::rank::{Rank, StepCounts};
use crate::device::Fabric;
use crate::transport::{Transport, TransportError};
use pipewright_core::ids::LaneId;
use pipewright_core::plan::{Encoded, Instruction, Region};
use pipewright_core::timeline::Wait;

impl<T: Transport> Rank<'_, T> {
    /// From now on devices of ranks talk to each other: nothing has been sent yet.
    pub fn talk_by(&mut self, fabric: Box<dyn Fabric>) {
        self.arena.talk_by(fabric, self.transport.rank(), self.program);
    }

    /// Whether a message goes from device to device: it is not encoded, which hosts do.
    fn goes_directly(&self, encoded: Option<Encoded>) -> bool {
        encoded.is_none() && self.arena.talks()
    }

    pub(super) fn receive(
        &mut self,
        from: LaneId,
        tag: u32,
        region: Region,
        decode: Option<Encoded>,
        counts: &mut StepCounts,
    ) -> Result<(), StepFault> {
        let from = self.replica.peer(from);
        let end = self.waiting(Wait::Message, |rank| {
            if rank.goes_directly(decode) {
                rank.arena.receive(from, tag, region);
                return Ok(());
            }
            rank.transport.recv(from, tag, rank.arena.raw_mut(region))
        })?;
        self.recorder.received(tag, end);
        if let Some(encoded) = decode.filter(|_| self.model.is_none()) {
            self.activation_compression.decode(&mut self.arena, encoded, region)?;
            counts.busy_ns += self.transport.now_ns() - end;
        }
        Ok(())
    }

    pub(super) fn send_message(
        &mut self,
        instruction: &Instruction,
        counts: &mut StepCounts,
    ) -> Result<(), StepFault> {
        let Instruction::Send { to, tag, region, handle, encode, micro_batch, .. } = *instruction
        else {
            return Ok(());
        };
        if let Some(encoded) = encode.filter(|_| self.model.is_none()) {
            let start = self.transport.now_ns();
            let compare = micro_batch.0 == 0;
            self.activation_compression.encode(&mut self.arena, encoded, region, compare)?;
            counts.busy_ns += self.transport.now_ns() - start;
        }
        self.recorder.sent(tag, self.transport.now_ns());
        let to = self.replica.peer(to);
        match self.goes_directly(encode) {
            true => self.arena.send(to, tag, region, handle),
            false => self.send(to, tag, region, handle)?,
        }
        Ok(())
    }

    pub(super) fn wait_send(&mut self, handle: u32) -> Result<(), TransportError> {
        if self.arena.talks() {
            self.arena.wait_send(handle);
        }
        // It went by one of both ways, and the other one has nothing to wait for.
        self.waiting(Wait::Receiver, |rank| rank.transport.wait_send(handle as usize))?;
        Ok(())
    }

    pub(super) fn send(
        &mut self,
        to: u32,
        tag: u32,
        region: Region,
        handle: u32,
    ) -> Result<(), TransportError> {
        let bytes = self.arena.raw(region);
        // SAFETY: the program waits for the handle before anything writes to the region, and the
        // transport is dropped before the arena.
        unsafe { self.transport.start_send(to, tag, bytes, handle as usize) }
    }
}
