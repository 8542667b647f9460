//! Geometry of charts, above all of the speed-up chart: m to the right, speed-up upwards.

use super::ticks;

/// Plot area and ranges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chart {
    pub width: f64,
    pub height: f64,
    pub m_max: f64,
    pub top: f64,
    pub log: bool,
}

pub const LEFT: f64 = 46.0;
pub const RIGHT: f64 = 20.0;
pub const ABOVE: f64 = 10.0;
pub const BELOW: f64 = 34.0;

impl Chart {
    pub fn x(&self, m: f64) -> f64 {
        let span = self.width - LEFT - RIGHT;
        let share = if self.log {
            m.max(1.0).ln() / self.m_max.max(2.0).ln()
        } else {
            m / self.m_max.max(1.0)
        };
        LEFT + share * span
    }

    pub fn y(&self, speedup: f64) -> f64 {
        let span = self.height - ABOVE - BELOW;
        ABOVE + (1.0 - speedup / self.top) * span
    }

    /// Values of m that are written under the axis.
    pub fn marks_m(&self) -> Vec<u64> {
        if self.log {
            let all = [1u64, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000];
            return all.into_iter().filter(|m| *m as f64 <= self.m_max * 1.001).collect();
        }
        let step = ticks::step(self.m_max / (self.width / 80.0).max(2.0)).max(1.0);
        ticks::multiples(0.0, self.m_max, step).map(|m| m as u64).collect()
    }

    /// Values of the speed-up that are written beside the axis.
    pub fn marks_speedup(&self) -> Vec<f64> {
        let step = ticks::step(self.top / (self.height / 38.0).max(2.0));
        ticks::multiples(0.0, self.top * 0.999, step).collect()
    }
}

/// A place in a chart's frame, in pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    pub x: f64,
    pub y: f64,
}

impl Place {
    /// To another one, in pixels.
    pub fn distance(self, other: Self) -> f64 {
        (self.x - other.x).hypot(self.y - other.y)
    }
}

/// A mark of a chart: where it is, and what it says.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    pub at: Place,
    pub text: String,
}

/// Moves labels upwards, or below everything at the top, until none stands on another or on what is `fixed`. The
/// lowest goes first, so that names stand in the order of what they name; of marks at the same place the last is
/// lowest.
pub fn place(
    wanted: &[(f64, f64)],
    fixed: &[(f64, f64)],
    (width, height): (f64, f64),
    top: f64,
) -> Vec<(f64, f64)> {
    let mut left: Vec<usize> = (0..wanted.len()).collect();
    let mut placed = fixed.to_vec();
    let mut found = vec![(0.0, 0.0); wanted.len()];
    // They are few, and a sort would be a part of every chunk that draws.
    let lowest = |left: &[usize]| {
        let low = |a: &usize, b: &usize| wanted[left[*a]].1.total_cmp(&wanted[left[*b]].1);
        (0..left.len()).max_by(low)
    };
    while let Some(at) = lowest(&left) {
        let at = left.remove(at);
        let (x, wish) = wanted[at];
        let clash = |y: f64, placed: &[(f64, f64)]| {
            placed.iter().any(|(a, b)| (a - x).abs() < width && (b - y).abs() < height)
        };
        let steps = |sign: f64| (0..20).map(move |k| wish + sign * f64::from(k) * height / 2.0);
        let upwards = steps(-1.0).find(|y| *y >= top && !clash(*y, &placed));
        let y = upwards.or_else(|| steps(1.0).find(|y| !clash(*y, &placed))).unwrap_or(wish);
        placed.push((x, y));
        found[at] = (x, y);
    }
    found
}

/// A thin line from a curve to its label, where that stands more than its own height from where it would.
pub fn leader(curve: Place, label: Place, height: f64) -> String {
    match (label.y - curve.y).abs() > height {
        true => format!(
            "<path d='M{:.1} {:.1}L{:.1} {:.1}' class='ld'/>",
            curve.x, curve.y, label.x, label.y
        ),
        false => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_axes_span_the_plot() {
        for log in [false, true] {
            let c = Chart { width: 500.0, height: 200.0, m_max: 600.0, top: 4.0, log };
            assert!((c.x(600.0) - (500.0 - RIGHT)).abs() < 1e-9);
            assert_eq!((c.y(4.0), c.y(0.0)), (ABOVE, 200.0 - BELOW));
            assert!(c.marks_m().len() > 3 && c.marks_speedup().len() > 2);
        }
        let c = Chart { width: 500.0, height: 200.0, m_max: 600.0, top: 4.0, log: true };
        assert_eq!(c.x(1.0), LEFT);
    }

    #[test]
    fn labels_do_not_stand_on_each_other() {
        let wanted = [(10.0, 50.0), (20.0, 52.0), (200.0, 50.0), (15.0, 12.0), (15.0, 12.0)];
        let placed = place(&wanted, &[], (40.0, 12.0), 10.0);
        assert_eq!(placed[1], (20.0, 52.0), "the lower one stays");
        assert!(placed[0].1 <= 40.0, "the higher one goes up: {placed:?}");
        assert_eq!(placed[2], (200.0, 50.0));
        let beside = place(&wanted[2..3], &[(190.0, 55.0)], (40.0, 12.0), 10.0);
        assert!(beside[0].1 <= 43.0, "{beside:?}");
        for (i, a) in placed.iter().enumerate() {
            for b in &placed[..i] {
                let apart = (a.0 - b.0).abs() >= 40.0 || (a.1 - b.1).abs() >= 12.0;
                assert!(apart, "{placed:?}");
            }
        }
    }
}
