//! Stops of a slider, and where its keys lead.

/// Position on the slider: allowed values without gaps are their own positions, so that the
/// slider's value reads as the number that it means.
pub fn position(values: &[u64], value: u64) -> u64 {
    let first = values.first().copied().unwrap_or(0);
    if contiguous(values) {
        return value.clamp(first, *values.last().unwrap_or(&first));
    }
    values.partition_point(|v| *v < value).min(values.len().saturating_sub(1)) as u64
}

pub fn value_at(values: &[u64], position: u64) -> u64 {
    if contiguous(values) {
        return position;
    }
    values.get(position as usize).or(values.last()).copied().unwrap_or(position)
}

pub fn contiguous(values: &[u64]) -> bool {
    let first = values.first().copied().unwrap_or(0);
    values.last().is_some_and(|last| last - first + 1 == values.len() as u64)
}

/// The value that a key leads to, where the browser's own steps are not what people expect.
pub fn jump(values: &[u64], value: u64, key: &str, shift: bool) -> Option<u64> {
    let at = values.partition_point(|v| *v < value);
    let by_index = |i: usize| values.get(i.min(values.len() - 1)).copied();
    match (key, shift) {
        ("ArrowRight" | "ArrowUp", true) => by_index(at + 10),
        ("ArrowLeft" | "ArrowDown", true) => by_index(at.saturating_sub(10)),
        ("PageUp", _) => by_index(values.partition_point(|v| *v < value * 2)),
        ("PageDown", _) => by_index(values.partition_point(|v| *v <= value / 2).saturating_sub(1)),
        _ => None,
    }
}

/// Mini-batches that divide into `m` micro-batches of a usual size.
pub fn multiples(m: u64) -> Vec<u64> {
    let sizes = (0..=10).flat_map(|k| [4u64 << k, 5 << k, 6 << k, 7 << k]);
    [1, 2, 3]
        .into_iter()
        .chain(sizes)
        .map(|size| size * m.max(1))
        .filter(|n| *n <= 65_536)
        .collect()
}

/// The divisors of `n` up to `most`, ascending.
pub fn divisors(n: u64, most: u64) -> Vec<u64> {
    (1..=n.min(most)).filter(|m| n.is_multiple_of(*m)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_of_dense_values_are_the_values() {
        let dense: Vec<u64> = (1..=8).collect();
        assert_eq!((position(&dense, 5), value_at(&dense, 5)), (5, 5));
        let sparse = [1, 2, 4, 8, 16];
        assert_eq!((position(&sparse, 8), value_at(&sparse, 3)), (3, 8));
        assert_eq!(position(&sparse, 7), 3);
        assert_eq!(position(&sparse, 99), 4);
    }

    #[test]
    fn keys_double_halve_and_jump() {
        let values = [1, 2, 3, 4, 6, 8, 12, 24];
        assert_eq!(jump(&values, 4, "PageUp", false), Some(8));
        assert_eq!(jump(&values, 24, "PageUp", false), Some(24));
        assert_eq!(jump(&values, 8, "PageDown", false), Some(4));
        assert_eq!(jump(&values, 1, "PageDown", false), Some(1));
        assert_eq!(jump(&values, 1, "ArrowRight", true), Some(24));
        assert_eq!(jump(&values, 1, "ArrowRight", false), None);
    }

    #[test]
    fn mini_batches_divide_and_ascend() {
        for m in [1, 7, 8, 600] {
            let values = multiples(m);
            assert!(values.iter().all(|n| n % m == 0) && values.is_sorted(), "{m}: {values:?}");
        }
    }

    #[test]
    fn divisors_ascend_and_divide() {
        assert_eq!(divisors(12, 100), [1, 2, 3, 4, 6, 12]);
        assert_eq!(divisors(1200, 10), [1, 2, 3, 4, 5, 6, 8, 10]);
    }
}
