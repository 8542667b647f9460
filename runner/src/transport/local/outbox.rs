//! The outbox of a rank, read by others: the one place where threads share raw memory.
//!
//! Life of a slot; all changes happen under the lock of the shared state:
//!
//! ```text
//! Free --post--> Posted --take--> Taken --free--> Free        Posted --withdraw--> Free
//! ```

/// The sends of one rank that are not received yet.
#[derive(Debug)]
pub(super) struct Outbox {
    slots: Vec<Slot>,
    /// Slots in state Posted, oldest first: messages of one tag must not overtake each other.
    /// Never longer than `slots`, so pushing never allocates.
    queue: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
enum Slot {
    Free,
    Posted(Post),
    /// The receiver copies, outside of the lock.
    Taken {
        to: u32,
    },
}

#[derive(Clone, Copy, Debug)]
struct Post {
    to: u32,
    tag: u32,
    bytes: *const u8,
    len: usize,
}

// SAFETY: the address is only data here. It is read in one place, `Message::copy_into`, which
// argues for itself. The memory behind it is plain bytes, readable from any thread.
unsafe impl Send for Post {}

/// A message taken from an outbox, to be copied and then given back with [`Outbox::free`].
///
/// Neither `Clone` nor `Copy`, and only [`Outbox::take`] makes one: whoever has it knows that its
/// slot is Taken.
#[derive(Debug)]
pub(super) struct Message {
    slot: usize,
    post: Post,
}

impl Message {
    /// Copies the bytes to the beginning of `into` if they fit. Returns their number.
    pub(super) fn copy_into(&self, into: &mut [u8]) -> usize {
        let Post { bytes, len, .. } = self.post;
        if len <= into.len() {
            // SAFETY: `bytes` was a `&[u8]` of `len` bytes. `Outbox::post` demands that it stays
            // valid and unchanged until the slot is Free. This slot is Taken until `free` gets
            // this very message, so it is now. The lock under which we took it orders the
            // sender's writes before this read, and the lock of `free` orders this read before
            // the sender's next writes. The ranges do not overlap: `into` is borrowed
            // exclusively, even where a rank sends to itself.
            unsafe { std::ptr::copy_nonoverlapping(bytes, into.as_mut_ptr(), len) };
        }
        len
    }
}

impl Outbox {
    pub(super) fn new(slots: usize) -> Self {
        Self { slots: vec![Slot::Free; slots], queue: Vec::with_capacity(slots) }
    }

    /// Makes sure that there is a slot of that number.
    pub(super) fn reach(&mut self, slot: usize) {
        if slot >= self.slots.len() {
            self.slots.resize(slot + 1, Slot::Free);
            self.queue.reserve(self.slots.len() - self.queue.len());
        }
    }

    /// Offers `bytes` to rank `to`. The slot must be Free.
    ///
    /// # Safety
    /// `bytes` must stay valid and unchanged until the slot is Free again.
    pub(super) unsafe fn post(&mut self, to: u32, tag: u32, bytes: &[u8], slot: usize) {
        debug_assert!(matches!(self.slots[slot], Slot::Free));
        let post = Post { to, tag, bytes: bytes.as_ptr(), len: bytes.len() };
        self.slots[slot] = Slot::Posted(post);
        self.queue.push(slot);
    }

    /// Takes the oldest message of `tag` for rank `to`.
    pub(super) fn take(&mut self, to: u32, tag: u32) -> Option<Message> {
        let (place, message) =
            self.queue.iter().enumerate().find_map(|(place, &slot)| match self.slots[slot] {
                Slot::Posted(post) if post.to == to && post.tag == tag => {
                    Some((place, Message { slot, post }))
                }
                Slot::Posted(_) | Slot::Free | Slot::Taken { .. } => None,
            })?;
        self.queue.remove(place);
        self.slots[message.slot] = Slot::Taken { to };
        Some(message)
    }

    /// Ends what [`Outbox::take`] began.
    pub(super) fn free(&mut self, message: Message) {
        debug_assert!(matches!(self.slots[message.slot], Slot::Taken { .. }));
        self.slots[message.slot] = Slot::Free;
    }

    /// Who has not yet received what `slot` holds.
    pub(super) fn receiver(&self, slot: usize) -> Option<u32> {
        match self.slots[slot] {
            Slot::Free => None,
            Slot::Posted(Post { to, .. }) | Slot::Taken { to } => Some(to),
        }
    }

    /// Whether somebody copies from `slot` now.
    pub(super) fn is_taken(&self, slot: usize) -> bool {
        matches!(self.slots[slot], Slot::Taken { .. })
    }

    /// Takes back every message that nobody has begun to copy.
    pub(super) fn withdraw(&mut self) {
        for slot in self.queue.drain(..) {
            self.slots[slot] = Slot::Free;
        }
    }

    /// Whether somebody copies from any slot now. Such a copy cannot block: it ends by itself.
    pub(super) fn being_read(&self) -> bool {
        self.slots.iter().any(|slot| matches!(slot, Slot::Taken { .. }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_one_tag_keep_their_order_whatever_their_slots() {
        let mut outbox = Outbox::new(4);
        let data = [1u8, 2, 3, 4];
        for (i, slot) in [3, 0, 2, 1].into_iter().enumerate() {
            // SAFETY: `data` outlives the outbox.
            unsafe { outbox.post(7, (i % 2) as u32, &data[i..=i], slot) };
        }
        assert!(outbox.take(6, 0).is_none());
        let mut received = vec![];
        for tag in [1, 0, 0, 1] {
            let message = outbox.take(7, tag).unwrap();
            let mut byte = [0];
            assert!(outbox.being_read());
            assert_eq!(message.copy_into(&mut byte), 1);
            outbox.free(message);
            received.push(byte[0]);
        }
        assert_eq!(received, [2, 1, 3, 4]);
        assert!(!outbox.being_read() && outbox.take(7, 0).is_none());
    }

    #[test]
    fn withdrawing_spares_what_is_being_read() {
        let mut outbox = Outbox::new(2);
        let data = [0u8; 8];
        // SAFETY: `data` outlives the outbox.
        unsafe {
            outbox.post(1, 0, &data, 0);
            outbox.post(1, 0, &data, 1);
        }
        let message = outbox.take(1, 0).unwrap();
        outbox.withdraw();
        assert_eq!((outbox.receiver(0), outbox.receiver(1)), (Some(1), None));
        assert!(outbox.is_taken(0));
        outbox.free(message);
        assert!(!outbox.being_read());
    }
}
