//! Regions on their way between the devices of ranks, where these can talk to each other.
//!
//! What waits for what is said on the device, so the host only has to know since when nobody uses the bytes
//! that a message will overwrite: then it may arrive while the device still computes something else.

use super::newest::Access;
use super::{Arena, Distant};
use crate::device::{DeviceError, Fabric, Mark, Rooted};
use crate::transport::{Collective, TransportError};
use pipewright_core::plan::{Instruction, Precision, Program, Region};

/// A way between devices.
pub(super) struct DeviceChannel {
    pub fabric: Box<dyn Fabric>,
    rank: u32,
    uses: Uses,
    /// By handle: what is being sent.
    sent: Vec<Region>,
    /// By slot: what is being summed.
    joined: Vec<Region>,
    /// Messages of this rank to itself that it has not received: stages of one lane send each other some.
    own: Vec<(u32, Region)>,
}

/// When the device used the regions of messages last.
struct Uses {
    /// Each with the moment after which nothing uses it.
    regions: Vec<(Region, Mark)>,
    /// The last moment that was marked.
    now: Mark,
}

impl Uses {
    fn of(program: &Program) -> Self {
        let received = program.train.iter().filter_map(|instruction| match instruction {
            Instruction::Recv { region, decode: None, .. } => Some((*region, 0)),
            _ => None,
        });
        let mut regions: Vec<(Region, Mark)> = received.collect();
        regions.sort_by_key(|(region, _)| (region.offset, region.bytes));
        regions.dedup();
        Self { regions, now: 0 }
    }

    /// The device was asked for something that uses a region.
    fn touch(&mut self, region: Region) {
        let next = self.now + 1;
        for (other, last) in &mut self.regions {
            if other.offset < region.offset + region.bytes
                && region.offset < other.offset + other.bytes
            {
                *last = next;
            }
        }
    }

    /// Whether something was used since the last moment.
    fn is_behind(&self) -> bool {
        self.regions.iter().any(|(_, last)| *last > self.now)
    }

    /// Since when a region is free; later than now where that was not marked yet.
    fn free(&self, region: Region) -> Mark {
        let found = self.regions.iter().find(|(other, _)| *other == region);
        // A message that training does not have: free when all is done.
        found.map_or(self.now + 1, |(_, last)| *last)
    }
}

impl DeviceChannel {
    /// The device was asked for something that uses regions.
    pub fn touch(&mut self, regions: &[Region]) {
        regions.iter().for_each(|region| self.uses.touch(*region));
    }

    fn mark(&mut self) -> Result<(), TransportError> {
        self.uses.now = self.fabric.mark()?;
        Ok(())
    }
}

/// Keeps what belongs to a number, below which others may not be known yet.
fn put(list: &mut Vec<Region>, at: u32, region: Region) {
    let at = at as usize;
    if list.len() <= at {
        list.resize(at + 1, Region::default());
    }
    list[at] = region;
}

impl Distant {
    /// Does something with the way to other devices, unless something failed before.
    fn talk(&mut self, work: impl FnOnce(&mut DeviceChannel) -> Result<(), TransportError>) {
        let Some(channel) = self.channel.as_mut().filter(|_| self.fault.is_none()) else { return };
        // Streams are told to wait for what the device was asked for: it must know of it.
        let flushed = self.accelerator.flush();
        let done = flushed.and_then(|()| work(channel).map_err(DeviceError::Messages));
        self.note(done);
    }
}

impl Arena {
    /// The device sends and sums by `fabric` from now on, as rank `rank` of a program.
    ///
    /// # Panics
    /// Without a device.
    pub fn talk_by(&mut self, fabric: Box<dyn Fabric>, rank: u32, program: &Program) {
        let device = self.device.as_mut().expect("devices talk");
        let uses = Uses::of(program);
        device.channel =
            Some(DeviceChannel { fabric, rank, uses, sent: vec![], joined: vec![], own: vec![] });
    }

    /// Whether the device talks to those of other ranks.
    pub fn talks(&self) -> bool {
        self.device.as_ref().is_some_and(|device| device.channel.is_some())
    }

    fn device(&mut self) -> &mut Distant {
        self.device.as_mut().expect("who talks has a device")
    }

    /// Starts to send a region. What goes wrong here and below is told by [`Arena::check`].
    pub fn send(&mut self, to: u32, tag: u32, region: Region, handle: u32) {
        let Self { lines, device } = self;
        let device = device.as_mut().expect("who talks has a device");
        device.hand_over(lines, region, Access::Read);
        device.talk(|channel| {
            put(&mut channel.sent, handle, region);
            if to == channel.rank {
                channel.own.push((tag, region));
                return Ok(());
            }
            channel.fabric.send(to, tag, region, handle as usize)
        });
    }

    /// What comes now may overwrite what was sent.
    pub fn wait_send(&mut self, handle: u32) {
        self.device().talk(|channel| {
            let region = channel.sent.get(handle as usize).copied().unwrap_or_default();
            channel.fabric.sent(handle as usize)?;
            channel.touch(&[region]);
            Ok(())
        });
    }

    /// What comes now finds a message in a region.
    pub fn receive(&mut self, from: u32, tag: u32, region: Region) {
        let own = self.device().channel.as_mut().filter(|channel| channel.rank == from).and_then(
            |channel| {
                let at = channel.own.iter().position(|(other, _)| *other == tag)?;
                Some(channel.own.swap_remove(at).1)
            },
        );
        if let Some(sent) = own {
            return self.compute(&[sent], &[region], |device| device.copy(sent, region));
        }
        let Self { lines, device } = self;
        let device = device.as_mut().expect("who talks has a device");
        device.hand_over(lines, region, Access::Overwrite);
        device.talk(|channel| {
            let free = channel.uses.free(region);
            if free > channel.uses.now {
                channel.mark()?;
            }
            channel.fabric.receive(from, tag, region, free)
        });
        device.accelerator.written(region);
    }

    /// Starts a collective call on a region in single precision, of which the group's first rank is the root.
    pub fn join(&mut self, call: Collective, group: u32, region: Region, slot: u32) {
        let values = [Rooted { root: 0, region }];
        self.join_parts(call, group, (region, &values), Precision::F32, slot);
    }

    /// The same on parts of a region, of values as `precision` stores them.
    pub fn join_parts(
        &mut self,
        call: Collective,
        group: u32,
        (whole, parts): (Region, &[Rooted]),
        precision: Precision,
        slot: u32,
    ) {
        let Self { lines, device } = self;
        let device = device.as_mut().expect("who talks has a device");
        device.hand_over(lines, whole, Access::ReadWrite);
        device.talk(|channel| {
            put(&mut channel.joined, slot, whole);
            channel.fabric.join(call, group as usize, parts, precision, slot as usize)
        });
    }

    /// Starts the host's part in the encoded sum of a region: its `shards` are added up at their owners.
    pub fn reduce_intra_node(
        &mut self,
        group: u32,
        slot: u32,
        mark: usize,
        region: Region,
        shards: &[Region],
    ) {
        let Self { lines, device } = self;
        let device = device.as_mut().expect("who talks has a device");
        device.hand_over(lines, region, Access::ReadWrite);
        device.talk(|channel| {
            put(&mut channel.joined, slot, region);
            channel.fabric.reduce_intra_node(group as usize, shards, slot as usize, mark)
        });
    }

    /// Starts to hand them out from there, for [`Self::wait_join`].
    pub fn broadcast_intra_node(&mut self, group: u32, shards: &[Region], slot: u32) {
        self.device().talk(|channel| {
            channel.fabric.broadcast_intra_node(group as usize, shards, slot as usize)
        });
    }

    /// Waits until something is so, and looks meanwhile whether other ranks' devices still live. Where it
    /// fails, the way is given up; [`Arena::check`] tells why.
    pub fn wait_until(&mut self, is_so: &mut dyn FnMut() -> Result<bool, TransportError>) {
        self.device().talk(|channel| channel.fabric.wait_until(is_so));
    }

    /// What comes now finds the result of a collective call.
    pub fn wait_join(&mut self, slot: u32) {
        let device = self.device();
        let mut written = Region::default();
        device.talk(|channel| {
            written = channel.joined.get(slot as usize).copied().unwrap_or_default();
            channel.fabric.joined(slot as usize)?;
            channel.touch(&[written]);
            Ok(())
        });
        device.accelerator.written(written);
    }

    /// A piece of work was asked for: messages that need no more than that may come from now on.
    pub fn mark(&mut self) {
        if let Some(device) = &mut self.device {
            device.talk(|channel| if channel.uses.is_behind() { channel.mark() } else { Ok(()) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pipewright_core::units::Bytes;

    fn region(offset: u64, bytes: u64) -> Region {
        Region { offset: Bytes(offset), bytes: Bytes(bytes) }
    }

    #[test]
    fn a_region_is_free_after_its_last_use() {
        let [a, b] = [region(0, 64), region(64, 64)];
        let mut uses = Uses { regions: vec![(a, 0), (b, 0)], now: 0 };
        assert!(!uses.is_behind());
        uses.touch(region(128, 8));
        assert_eq!((uses.free(a), uses.is_behind()), (0, false), "others touch something else");
        uses.touch(region(60, 8));
        assert_eq!((uses.free(a), uses.free(b), uses.is_behind()), (1, 1, true));
        uses.now = 1;
        uses.touch(b);
        assert_eq!((uses.free(a), uses.free(b)), (1, 2));
        assert_eq!(uses.free(region(0, 32)), 2, "what is not known is free when all is done");
    }
}
