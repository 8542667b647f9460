//! The few pieces of dense linear algebra that a fit needs; matrices are rows of equal length.

/// A column that the others before it explain.
pub(super) struct Dependent {
    /// The column.
    pub column: usize,
    /// The columns that explain it, with more than a trace.
    pub by: Vec<usize>,
}

/// Looks for a column that is (nearly) a combination of others: QR by modified Gram-Schmidt with
/// column pivoting (Golub and Van Loan, section 5.4). Columns are compared at unit length.
/// O(rows columns²).
pub(super) fn dependent(rows: &[Vec<f64>], columns: &[usize]) -> Option<Dependent> {
    // The Jacobian comes from differences: about 1e-9 of each entry is noise.
    const NOISE: f64 = 1e-6;
    let mut vectors: Vec<Vec<f64>> =
        columns.iter().map(|c| rows.iter().map(|row| row[*c]).collect()).collect();
    for (vector, column) in vectors.iter_mut().zip(columns) {
        let length = dot(vector, vector).sqrt();
        if length < 1e-12 {
            return Some(Dependent { column: *column, by: vec![] });
        }
        vector.iter_mut().for_each(|v| *v /= length);
    }
    let unit = vectors.clone();
    let mut left: Vec<usize> = (0..columns.len()).collect();
    let mut taken: Vec<usize> = vec![];
    while !left.is_empty() {
        let lengths = |i: &usize| dot(&vectors[*i], &vectors[*i]);
        let at = (0..left.len())
            .max_by(|a, b| lengths(&left[*a]).total_cmp(&lengths(&left[*b])))
            .expect("some are left");
        let pivot = left.swap_remove(at);
        let length = dot(&vectors[pivot], &vectors[pivot]).sqrt();
        if length < NOISE {
            let by = explain(&unit, &taken, pivot);
            let by = by.into_iter().map(|i| columns[i]).collect();
            return Some(Dependent { column: columns[pivot], by });
        }
        let direction: Vec<f64> = vectors[pivot].iter().map(|v| v / length).collect();
        for i in &left {
            let share = dot(&direction, &vectors[*i]);
            vectors[*i].iter_mut().zip(&direction).for_each(|(v, d)| *v -= share * d);
        }
        taken.push(pivot);
    }
    None
}

/// Which of the independent columns `basis` make up column `of`.
fn explain(unit: &[Vec<f64>], basis: &[usize], of: usize) -> Vec<usize> {
    let normal: Vec<Vec<f64>> =
        basis.iter().map(|a| basis.iter().map(|b| dot(&unit[*a], &unit[*b])).collect()).collect();
    let right: Vec<f64> = basis.iter().map(|a| dot(&unit[*a], &unit[of])).collect();
    let shares = solve(&normal, &right).unwrap_or_else(|| vec![1.0; basis.len()]);
    let mut by: Vec<usize> =
        basis.iter().zip(shares).filter(|(_, share)| share.abs() > 0.02).map(|(i, _)| *i).collect();
    by.sort_unstable();
    by
}

/// Solves `a x = b` for symmetric positive definite `a` by Cholesky; `None` where it is not.
pub(super) fn solve(a: &[Vec<f64>], b: &[f64]) -> Option<Vec<f64>> {
    let n = b.len();
    let mut l = vec![vec![0.0; n]; n];
    for i in 0..n {
        for j in 0..=i {
            let known: f64 = (0..j).map(|k| l[i][k] * l[j][k]).sum();
            let rest = a[i][j] - known;
            if i == j {
                if rest.is_nan() || rest <= 0.0 {
                    return None;
                }
                l[i][i] = rest.sqrt();
            } else {
                l[i][j] = rest / l[j][j];
            }
        }
    }
    let mut x = b.to_vec();
    for i in 0..n {
        let known: f64 = (0..i).map(|k| l[i][k] * x[k]).sum();
        x[i] = (x[i] - known) / l[i][i];
    }
    for i in (0..n).rev() {
        let known: f64 = (i + 1..n).map(|k| l[k][i] * x[k]).sum();
        x[i] = (x[i] - known) / l[i][i];
    }
    Some(x)
}

/// Scalar product.
pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_system_is_solved() {
        let a = vec![vec![4.0, 2.0, 0.0], vec![2.0, 5.0, 1.0], vec![0.0, 1.0, 3.0]];
        let x = [1.0, -2.0, 0.5];
        let b: Vec<f64> = a.iter().map(|row| dot(row, &x)).collect();
        let found = solve(&a, &b).unwrap();
        assert!(found.iter().zip(x).all(|(f, x)| (f - x).abs() < 1e-12), "{found:?}");
        assert_eq!(solve(&[vec![1.0, 2.0], vec![2.0, 1.0]], &[1.0, 1.0]), None);
    }

    #[test]
    fn the_dependent_column_is_found_with_its_explanation() {
        let rows: Vec<Vec<f64>> =
            (1..8).map(f64::from).map(|x| vec![1.0, x, x * x, 3.0 * x * x - 2.0]).collect();
        let found = dependent(&rows, &[0, 1, 2, 3]).unwrap();
        let mut all = found.by.clone();
        all.push(found.column);
        all.sort_unstable();
        assert_eq!(all, [0, 2, 3]);
        assert!(dependent(&rows, &[0, 1, 2]).is_none());
        assert!(dependent(&[vec![0.0, 1.0], vec![0.0, 2.0]], &[0, 1]).unwrap().by.is_empty());
    }
}
