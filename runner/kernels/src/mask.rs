//! Mask: which elements dropout drops, in the numbers that do not change from sample to sample.

use crate::Draw;

/// What does not change from sample to sample and from step to step.
#[derive(Clone, Copy, Debug)]
pub struct Mask {
    /// Key of the random numbers.
    pub key: [u32; 2],
    /// Below it, of 65536, an element is dropped.
    pub limit: u32,
    /// Factor of what is kept.
    pub scale: f32,
}

impl Mask {
    /// The share that is dropped is `probability` to the nearest 65536th, which the scale allows for.
    pub fn new(draw: &Draw, probability: f32) -> Self {
        let key = mix(draw.seed ^ mix(u64::from(draw.node)));
        let limit = (f64::from(probability) * 65_536.0).round().min(65_535.0);
        let scale = (65_536.0 / (65_536.0 - limit)) as f32;
        Self { key: [key as u32, (key >> 32) as u32], limit: limit as u32, scale }
    }
}

/// SplitMix64's output function: neighbouring seeds and nodes get keys that have nothing in common.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
