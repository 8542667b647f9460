//! The largest value of a concave function of a few numbers, by the ellipsoid method.
//!
//! Shor 1977, Yudin and Nemirovski 1976: an ellipsoid that holds the best point is halved through its
//! middle, along a supergradient, and the smallest one around that half is next. Cuts are deep: what is
//! known to be below the best value so far goes too. It needs no step sizes, and no smoothness.

/// A concave function at a point: its value, and how it grows at most in each direction.
#[derive(Clone, Debug)]
pub(in super::super) struct Slope {
    pub value: f64,
    pub rise: Vec<f64>,
}

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Effort {
    /// Values, at most.
    pub steps: u32,
    /// The share of the largest value that may be missing.
    pub close: f64,
}

/// The largest value of a concave function of two or more numbers between 0 and 1, or `best`, which is
/// known already.
pub(in super::super) fn largest(
    numbers: usize,
    effort: Effort,
    mut best: f64,
    mut function: impl FnMut(&[f64]) -> Slope,
) -> f64 {
    let n = numbers as f64;
    let mut middle = vec![0.5; numbers];
    // The ball around the cube, as the square of an ellipsoid's axes.
    let mut axes: Vec<Vec<f64>> = vec![vec![0.0; numbers]; numbers];
    (0..numbers).for_each(|i| axes[i][i] = n / 4.0);
    for _ in 0..effort.steps {
        // Where to go, and how far at least.
        let outside = middle.iter().position(|x| !(0.0..=1.0).contains(x));
        let (rise, depth) = match outside {
            Some(i) if middle[i] < 0.0 => (unit(numbers, i, 1.0), -middle[i]),
            Some(i) => (unit(numbers, i, -1.0), middle[i] - 1.0),
            None => {
                let slope = function(&middle);
                best = best.max(slope.value);
                (slope.rise, best - slope.value)
            }
        };
        let along: Vec<f64> = axes.iter().map(|row| dot(row, &rise)).collect();
        let reach = dot(&along, &rise).max(0.0).sqrt();
        if reach <= depth || outside.is_none() && reach - depth <= effort.close * best {
            break;
        }
        let depth = depth / reach;
        let way = (1.0 + n * depth) / (n + 1.0);
        middle.iter_mut().zip(&along).for_each(|(x, along)| *x += way * along / reach);
        let grown = n * n / (n * n - 1.0) * (1.0 - depth * depth);
        let narrowed = 2.0 * way / (1.0 + depth) / (reach * reach);
        for (row, a) in axes.iter_mut().zip(&along) {
            row.iter_mut().zip(&along).for_each(|(x, b)| *x = grown * (*x - narrowed * a * b));
        }
    }
    best
}

fn unit(numbers: usize, at: usize, length: f64) -> Vec<f64> {
    (0..numbers).map(|i| if i == at { length } else { 0.0 }).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
