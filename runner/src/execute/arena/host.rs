//! Memory of an arena on the host.

use bytemuck::Zeroable;
use memmap2::{MmapMut, MmapOptions};
use std::ops::{Deref, DerefMut};

/// A cache line of tensor elements; gives the arena its alignment.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub struct Line([f32; 16]);

/// Its bytes.
pub const LINE: u64 = size_of::<Line>() as u64;

// SAFETY: 16 floats, 64 bytes, no padding; any bits are floats.
unsafe impl Zeroable for Line {}
// SAFETY: as above.
unsafe impl bytemuck::Pod for Line {}

/// So many zeroed lines.
pub enum Lines {
    /// All of them memory.
    Own(Vec<Line>),
    /// Pages that become memory when they are first touched, and are promised by nobody until then: most of
    /// what a device has never comes to the host, which may have less memory than the device.
    Mapped(MmapMut),
}

impl Lines {
    /// Those of a processor.
    pub fn own(count: usize) -> Self {
        Self::Own(bytemuck::zeroed_vec(count))
    }

    /// Those beside a device's. A system that maps nothing gives memory.
    pub fn beside_a_device(count: usize) -> Self {
        let mapped = MmapOptions::new().len(count * size_of::<Line>()).no_reserve_swap().map_anon();
        mapped.map_or_else(|_| Self::own(count), Self::Mapped)
    }
}

impl Deref for Lines {
    type Target = [Line];

    fn deref(&self) -> &[Line] {
        match self {
            Self::Own(lines) => lines,
            // Pages are whole lines.
            Self::Mapped(bytes) => bytemuck::cast_slice(bytes),
        }
    }
}

impl DerefMut for Lines {
    fn deref_mut(&mut self) -> &mut [Line] {
        match self {
            Self::Own(lines) => lines,
            Self::Mapped(bytes) => bytemuck::cast_slice_mut(bytes),
        }
    }
}
