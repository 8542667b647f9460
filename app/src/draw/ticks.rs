//! Round numbers for axes.

/// The smallest of 1, 2, 2.5 and 5 times a power of ten that is at least `least`.
pub fn step(least: f64) -> f64 {
    if !(least.is_finite() && least > 0.0) {
        return 1.0;
    }
    let power = 10f64.powf(least.log10().floor());
    let fits =
        [1.0, 2.0, 2.5, 5.0].into_iter().map(|k| k * power).find(|s| *s >= least * 0.999_999);
    fits.unwrap_or(10.0 * power)
}

/// Multiples of `step` in `from..=to`.
pub fn multiples(from: f64, to: f64, step: f64) -> impl Iterator<Item = f64> {
    let first = (from / step - 1e-9).ceil() as i64;
    let last = (to / step + 1e-9).floor() as i64;
    // Steps have two digits: what is behind them is of the multiplication.
    let digits = 10f64.powf((1.0 - step.log10().floor()).max(0.0));
    (first..=last).map(move |k| (k as f64 * step * digits).round() / digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round() {
        let steps: Vec<f64> = [0.9, 1.0, 1.3, 2.1, 3.0, 7.0, 130.0].map(step).into();
        assert_eq!(steps, [1.0, 1.0, 2.0, 2.5, 5.0, 10.0, 200.0]);
        assert_eq!(step(0.0), 1.0);
    }

    #[test]
    fn multiples_include_both_ends() {
        assert_eq!(multiples(0.0, 1.0, 0.5).collect::<Vec<_>>(), [0.0, 0.5, 1.0]);
        assert_eq!(multiples(0.3, 0.9, 0.5).collect::<Vec<_>>(), [0.5]);
        assert_eq!(multiples(0.5, 0.9, 0.2).collect::<Vec<_>>(), [0.6, 0.8]);
        assert_eq!(multiples(0.0, 8e9, 2.5e9).collect::<Vec<_>>(), [0.0, 2.5e9, 5e9, 7.5e9]);
    }
}
