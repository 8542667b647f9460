//! Memory that messages are sent from and received into while other parts of it are in use.

use std::cell::UnsafeCell;
use std::ops::Range;

/// Bytes that are borrowed piece by piece. Whoever asks for a piece sees to it that nobody else uses
/// the same bytes meanwhile: neither another borrow nor a message on its way.
pub(super) struct MessageBuffer(Box<[UnsafeCell<u8>]>);

impl MessageBuffer {
    pub(super) fn new(bytes: usize) -> Self {
        Self((0..bytes).map(|_| UnsafeCell::new(0)).collect())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Where a piece lies.
    ///
    /// # Panics
    /// When it does not.
    pub(super) fn place(&self, at: Range<usize>) -> *mut [u8] {
        let cells: *const [UnsafeCell<u8>] = &self.0[at];
        // A cell allows writes through a shared reference, and has the layout of what it holds.
        cells as *mut [u8]
    }

    /// # Safety
    /// Nobody writes these bytes while the slice lives.
    pub(super) unsafe fn read(&self, at: Range<usize>) -> &[u8] {
        // SAFETY: bytes of ours that nobody writes.
        unsafe { &*self.place(at) }
    }

    /// # Safety
    /// Nobody else uses these bytes while the slice lives.
    #[allow(clippy::mut_from_ref, reason = "pieces are apart, as the caller promises")]
    pub(super) unsafe fn write(&self, at: Range<usize>) -> &mut [u8] {
        // SAFETY: bytes of ours that nobody else uses.
        unsafe { &mut *self.place(at) }
    }
}

/// The values of a bucket that is under way: the caller's, who leaves them alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Values {
    at: *mut f32,
    len: usize,
}

// SAFETY: the address is only data here; `piece` argues for its use. Behind it are plain numbers.
unsafe impl Send for Values {}

impl Values {
    /// # Safety
    /// The values stay valid, and are neither read nor written by others, for as long as any copy of
    /// this is used.
    pub(super) unsafe fn new(values: &mut [f32]) -> Self {
        Self { at: values.as_mut_ptr(), len: values.len() }
    }

    pub(super) fn len(self) -> usize {
        self.len
    }

    /// Where a piece lies.
    pub(super) fn place(self, at: &Range<usize>) -> *mut f32 {
        assert!(at.start <= at.end && at.end <= self.len, "{at:?} of {} values", self.len);
        // SAFETY: within the caller's values, as just seen.
        unsafe { self.at.add(at.start) }
    }

    /// # Safety
    /// No other slice of these values lives meanwhile, and no call on them is under way.
    pub(super) unsafe fn piece<'a>(self, at: &Range<usize>) -> &'a mut [f32] {
        // SAFETY: `new` keeps others away, our caller keeps us from doing it twice.
        unsafe { std::slice::from_raw_parts_mut(self.place(at), at.len()) }
    }
}
