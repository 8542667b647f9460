//! Buffers of samples: where what was read lies until it is taken.

/// Memory of the host for samples: plain, or such that a device copies from it by itself.
pub trait SampleBuffer: Send + std::fmt::Debug {
    /// All of it, as words.
    fn words(&mut self) -> &mut [u32];
}

impl SampleBuffer for Vec<u32> {
    fn words(&mut self) -> &mut [u32] {
        self
    }
}

/// Plain memory of so many words.
pub fn plain(words: usize) -> Box<dyn SampleBuffer> {
    Box::new(vec![0; words])
}
