//! Cores that the ranks of one machine have together.

use super::link::Neighbours;
use crate::transport::{Transport, TransportError};
use std::collections::BTreeSet;

/// Cores that the ranks on rank 0's host may use, on rank 0; all ranks call it. mpirun may bind
/// each rank to a core of its own, so that none of them sees them all.
pub(super) fn measure<T: Transport>(
    transport: &mut T,
    neighbours: &Neighbours,
) -> Result<Option<u32>, TransportError> {
    let seen = std::thread::available_parallelism().map_or(1, usize::from) as u32;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let mine = line.unwrap_or("").trim().to_owned();
    let Some(all) = transport.gather(mine.as_bytes())? else { return Ok(None) };
    let lists = neighbours.here.iter().filter_map(|rank| all.get(*rank as usize));
    let texts: Vec<String> =
        lists.map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect();
    // Where all see the same, what the system says may be less than that: a quota.
    let differ = texts.iter().any(|text| *text != texts[0]);
    let together = texts.iter().flat_map(|text| listed(text)).collect::<BTreeSet<u32>>();
    Ok(Some(if differ { seen.max(together.len() as u32) } else { seen }))
}

/// The numbers of a list such as `0-3,8`.
fn listed(text: &str) -> Vec<u32> {
    let range = |part: &str| -> Option<std::ops::RangeInclusive<u32>> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    text.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cores() {
        assert_eq!(listed("0-3,8"), [0, 1, 2, 3, 8]);
        assert_eq!(listed("5"), [5]);
        assert!(listed("").is_empty());
    }
}
