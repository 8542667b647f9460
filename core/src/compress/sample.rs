//! A few magnitudes that stand for a tensor, sorted, and their percentiles.

/// Most values that a sample takes.
pub const MOST: usize = 4096;

/// Sorted magnitudes of evenly spaced values.
#[derive(Clone, Debug)]
pub struct Sample {
    sorted: Vec<f32>,
}

impl Sample {
    /// Room for a sample; the only allocation.
    pub fn new() -> Self {
        Self { sorted: Vec::with_capacity(MOST) }
    }

    /// Takes all of `values` if they are few, else [`MOST`] at even distances, and of these the
    /// finite ones.
    pub fn take(&mut self, values: &[f32]) -> &[f32] {
        let count = values.len().min(MOST);
        self.sorted.clear();
        // In 64 bits: the product passes 32 on a page.
        let at = |i: usize| (i as u64 * values.len() as u64 / count as u64) as usize;
        let magnitudes = (0..count).map(|i| values[at(i)].abs());
        self.sorted.extend(magnitudes.filter(|m| m.is_finite()));
        // Bits of magnitudes are in the order of the magnitudes.
        self.sorted.sort_unstable_by_key(|magnitude| magnitude.to_bits());
        &self.sorted
    }
}

/// The percentile of `sorted`, interpolated between its two neighbours; 0 of nothing.
pub fn percentile(sorted: &[f32], percent: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let place = last as f64 * percent / 100.0;
    let below = (place as usize).min(last);
    let (low, high) = (f64::from(sorted[below]), f64::from(sorted[(below + 1).min(last)]));
    low + (high - low) * (place - below as f64)
}
