//! Moves of one cut, ranked by the slowest stage that they leave.

use crate::units::Nanos;

/// All moves of one cut to another place between its neighbours: which cut, and the layer that
/// begins the stage after it. `bounds` are the first layers of the stages and the number of
/// layers, `times` those of the layers. The move with the fastest slowest stage comes first.
/// O(layers x stages).
pub fn moves(bounds: &[usize], times: &[Nanos]) -> Vec<(usize, usize)> {
    let mut until = vec![Nanos::ZERO];
    for time in times {
        until.push(until[until.len() - 1] + *time);
    }
    let stage = |from: usize, to: usize| until[to].saturating_sub(until[from]);
    let mut ranked: Vec<(Nanos, usize, usize)> = vec![];
    for cut in 1..bounds.len().saturating_sub(1) {
        let others = bounds.windows(2).enumerate().filter(|(s, _)| *s != cut - 1 && *s != cut);
        let rest = others.map(|(_, w)| stage(w[0], w[1])).max().unwrap_or_default();
        for to in bounds[cut - 1] + 1..bounds[cut + 1] {
            if to != bounds[cut] {
                let (left, right) = (stage(bounds[cut - 1], to), stage(to, bounds[cut + 1]));
                ranked.push((rest.max(left).max(right), cut - 1, to));
            }
        }
    }
    ranked.sort_unstable();
    ranked.into_iter().map(|(_, cut, to)| (cut, to)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_even_move_comes_first_and_none_leaves_a_stage_empty() {
        let times = [3, 1, 1, 1, 4].map(Nanos);
        let ranked = moves(&[0, 1, 2, 5], &times);
        // Cut 1 to layer 3 or 4: stages 3, 2, 5 and 3, 3, 4.
        assert_eq!(ranked, [(1, 4), (1, 3)]);
        assert_eq!(moves(&[0, 5], &times), []);
    }
}
