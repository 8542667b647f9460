//! Planes of a channel, one of each sample: what threads share that take channels, not runs of memory; and what
//! normalisations do with a plane.

use super::sums::lanes;
use super::vector::vectorised;
use std::marker::PhantomData;
use std::slice::from_raw_parts_mut;

vectorised! {
    /// Sum of a plane.
    pub fn sum(x: &[f32]) -> f32 {
        lanes([x; 3], |x, _, _| x)
    }

    /// `Σ(x - mean)²`
    pub fn squares(x: &[f32], mean: f32) -> f32 {
        lanes([x; 3], |x, _, _| (x - mean) * (x - mean))
    }

    /// `y = (x - mean) scale + shift`
    pub fn line(y: &mut [f32], x: &[f32], mean: f32, scale: f32, shift: f32) {
        for (y, x) in y.iter_mut().zip(x) {
            *y = (x - mean) * scale + shift;
        }
    }
}

/// A tensor `[samples, channels, plane]`.
#[derive(Clone, Copy)]
pub struct Planes<'a> {
    data: &'a [f32],
    channels: usize,
    plane: usize,
}

impl<'a> Planes<'a> {
    pub fn new(data: &'a [f32], channels: usize, plane: usize) -> Self {
        Self { data, channels, plane }
    }

    /// A channel's planes, sample by sample.
    pub fn of(self, channel: usize) -> impl Iterator<Item = &'a [f32]> {
        self.data.chunks_exact(self.plane).skip(channel).step_by(self.channels)
    }
}

/// The same to write, each channel by one thread.
pub struct PlanesMut<'a> {
    data: *mut f32,
    samples: usize,
    channels: usize,
    plane: usize,
    lives: PhantomData<&'a mut [f32]>,
}

// SAFETY: who has it may write to channels, each of which is promised to be written by one thread.
unsafe impl Sync for PlanesMut<'_> {}

impl<'a> PlanesMut<'a> {
    pub fn new(data: &'a mut [f32], channels: usize, plane: usize) -> Self {
        let samples = data.len() / (channels * plane).max(1);
        Self { data: data.as_mut_ptr(), samples, channels, plane, lives: PhantomData }
    }

    /// A channel's planes, sample by sample.
    ///
    /// # Safety
    /// Nobody else has planes of this channel.
    pub unsafe fn of(&self, channel: usize) -> impl Iterator<Item = &'a mut [f32]> {
        assert!(channel < self.channels, "channel {channel} of {}", self.channels);
        let (data, channels, plane) = (self.data, self.channels, self.plane);
        (0..self.samples).map(move |sample| {
            // SAFETY: the tensor has this plane, which is this channel's alone.
            unsafe { from_raw_parts_mut(data.add((sample * channels + channel) * plane), plane) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_of_a_channel_are_those_of_all_samples() {
        let mut data: Vec<f32> = (0..2 * 3 * 2).map(|i| i as f32).collect();
        let planes = Planes::new(&data, 3, 2);
        assert_eq!(planes.of(1).collect::<Vec<_>>(), [[2.0, 3.0], [8.0, 9.0]]);
        let planes = PlanesMut::new(&mut data, 3, 2);
        for channel in 0..3 {
            // SAFETY: one after the other.
            unsafe { planes.of(channel) }.for_each(|plane| plane.fill(channel as f32));
        }
        assert_eq!(data, [0.0, 0.0, 1.0, 1.0, 2.0, 2.0].repeat(2));
    }
}
