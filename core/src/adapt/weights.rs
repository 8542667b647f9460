//! Non-negative least squares for a few columns, by trying all sets of them.
//!
//! The best non-negative weights are the plain least squares of the columns whose weight is not
//! zero; of five columns there are 31 sets.

use super::least_squares::Equations;

/// Most columns.
pub const MOST: usize = 5;

/// Share of a column that must not follow from those before it.
const INDEPENDENT: f64 = 1e-13;

/// The weights, each at least 0, with which the sum of `columns` comes nearest to `goal`; columns
/// are at most [`MOST`] and as long as `goal`. All 0 if none of them helps.
pub fn non_negative(columns: &[Vec<f64>], goal: &[f64]) -> [f64; MOST] {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let mut best = (0.0, [0.0; MOST]);
    for set in 1u32..1 << columns.len().min(MOST) {
        let chosen: Vec<usize> = (0..columns.len()).filter(|i| set >> i & 1 == 1).collect();
        let mut equations = Equations { left: [[0.0; MOST]; MOST], right: [0.0; MOST] };
        for (i, a) in chosen.iter().enumerate() {
            equations.right[i] = dot(&columns[*a], goal);
            for (j, b) in chosen[..=i].iter().enumerate() {
                equations.left[i][j] = dot(&columns[*a], &columns[*b]);
            }
        }
        let Some(solution) = equations.solve(chosen.len(), INDEPENDENT) else { continue };
        // What least squares take off the goal's square: right side times solution.
        let gain = dot(&solution, &equations.right);
        if solution.iter().all(|w| *w >= 0.0) && gain > best.0 {
            let mut weights = [0.0; MOST];
            for (i, column) in chosen.iter().enumerate() {
                weights[*column] = solution[i];
            }
            best = (gain, weights);
        }
    }
    best.1
}
