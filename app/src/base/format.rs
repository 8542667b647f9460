//! Numbers as the page writes them. A quantity keeps its unit and its number of decimals while a
//! slider is dragged, so that no digit moves sideways.

use super::texts::{t, tr};
use pipewright_core::schedule::{Action, ActionKind};
use pipewright_core::units::{Bytes, Nanos};

/// How moments of one step are written: one unit for the whole picture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clock {
    pub unit: &'static str,
    nanos: f64,
    decimals: usize,
}

impl Clock {
    /// The unit in which a step of that length reads well.
    pub fn of(step: Nanos) -> Self {
        let (unit, nanos, decimals) = match step.0 {
            0..=999_999 => ("µs", 1e3, 1),
            1_000_000..=99_999_999 => ("ms", 1e6, 2),
            100_000_000..=19_999_999_999 => ("ms", 1e6, 1),
            _ => ("s", 1e9, 3),
        };
        Self { unit, nanos, decimals }
    }

    /// Nanoseconds of its unit.
    pub fn nanos(&self) -> f64 {
        self.nanos
    }

    /// `12.4`
    pub fn number(&self, t: Nanos) -> String {
        format!("{:.*}", self.decimals, t.0 as f64 / self.nanos)
    }

    /// `12.400`: a tenth of a percent of what is shown can still be told.
    pub fn precise(&self, t: Nanos) -> String {
        format!("{:.*}", self.decimals + 1, t.0 as f64 / self.nanos)
    }

    /// `12 ms`: for captions inside the picture.
    pub fn short(&self, t: Nanos) -> String {
        let value = t.0 as f64 / self.nanos;
        if value >= 20.0 {
            return format!("{value:.0} {}", self.unit);
        }
        self.text(t)
    }

    /// `12.4 ms`, in a smaller unit where this one would only show zeros.
    pub fn text(&self, t: Nanos) -> String {
        let least = 10f64.powi(-(self.decimals as i32)) * 10.0;
        if t.0 > 0 && (t.0 as f64) < least * self.nanos && t.0 < 1_000_000 {
            return format!("{:.1} µs", t.0 as f64 / 1e3);
        }
        format!("{} {}", self.number(t), self.unit)
    }

    /// `12.4 → 15.1 ms`, with enough decimals to tell the two apart.
    pub fn span(&self, from: Nanos, to: Nanos) -> String {
        let length = (to.saturating_sub(from)).0.max(1) as f64 / self.nanos;
        let needed = (1.0 - length.log10()).ceil().clamp(0.0, 6.0) as usize;
        let decimals = self.decimals.max(needed);
        let number = |t: Nanos| format!("{:.decimals$}", t.0 as f64 / self.nanos);
        format!("{} → {} {}", number(from), number(to), self.unit)
    }

    /// A moment of the axis, in the clock's unit, without useless decimals.
    pub fn axis(&self, nanos: f64, step: f64) -> String {
        let step = step / self.nanos;
        // As many as tell 2.5 from 2 and 3.
        let exact = |decimals: &usize| {
            let scaled = step * 10f64.powi(*decimals as i32);
            (scaled - scaled.round()).abs() < 1e-6 * scaled
        };
        let decimals = (0..6).find(exact).unwrap_or(6);
        format!("{:.decimals$}", nanos / self.nanos)
    }
}

/// The step time as the page's largest number: four digits and a unit.
pub fn hero(step: Nanos) -> (String, &'static str) {
    let (value, unit) = match step.0 {
        0..=999_999 => (step.0 as f64 / 1e3, "µs"),
        1_000_000..=999_999_999 => (step.0 as f64 / 1e6, "ms"),
        1_000_000_000..=119_999_999_999 => (step.0 as f64 / 1e9, "s"),
        120_000_000_000..=7_199_999_999_999 => (step.0 as f64 / 60e9, "min"),
        _ => (step.0 as f64 / 3600e9, "h"),
    };
    let decimals = match value {
        v if v >= 1000.0 => 0,
        v if v >= 100.0 => 1,
        v if v >= 10.0 => 2,
        _ => 3,
    };
    (format!("{value:.decimals$}"), unit)
}

/// A number of bytes and its unit.
pub fn bytes(b: Bytes) -> (String, &'static str) {
    let (value, unit) = match b.0 {
        0..=1023 => return (b.0.to_string(), "B"),
        1_024..=1_048_575 => (b.0 as f64 / 1024.0, "KiB"),
        1_048_576..=1_073_741_823 => (b.0 as f64 / 1_048_576.0, "MiB"),
        1_073_741_824..=1_099_511_627_775 => (b.0 as f64 / 1_073_741_824.0, "GiB"),
        _ => (b.0 as f64 / 1_099_511_627_776.0, "TiB"),
    };
    (format!("{value:.0$}", usize::from(value < 100.0) + usize::from(value < 10.0)), unit)
}

/// `10.5 GiB`
pub fn bytes_text(b: Bytes) -> String {
    let (number, unit) = bytes(b);
    format!("{number} {unit}")
}

/// `125 MB/s`: of a link.
pub fn speed(bytes_per_sec: f64) -> String {
    let (value, unit) = match bytes_per_sec {
        v if v >= 1e12 => (v / 1e12, "TB/s"),
        v if v >= 1e9 => (v / 1e9, "GB/s"),
        v => (v / 1e6, "MB/s"),
    };
    let text = format!("{value:.*}", if value < 10.0 { 2 } else { usize::from(value < 100.0) });
    let short =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{short} {unit}")
}

/// `39.6` for 0.396.
pub fn percent(share: f64, decimals: usize) -> String {
    format!("{:.decimals$}", share * 100.0)
}

/// Samples per second and other plain counts: three digits or more.
pub fn count(value: f64) -> String {
    match value {
        v if v >= 100_000.0 => format!("{:.0}k", v / 1e3),
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v if v >= 0.1 || v == 0.0 => format!("{v:.2}"),
        v => format!("{v:.1e}"),
    }
}

/// Large counts with a prefix: `138 M`, `62.3 k`, `735 T`.
pub fn scaled(value: f64) -> String {
    let (scale, prefix) = match value {
        v if v >= 1e12 => (1e12, "T"),
        v if v >= 1e9 => (1e9, "G"),
        v if v >= 1e6 => (1e6, "M"),
        v if v >= 1e3 => (1e3, "k"),
        _ => (1.0, ""),
    };
    let value = value / scale;
    let decimals = match value {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.decimals$} {prefix}")
}

/// Numbers of parameters, whose billions are called so: `138 M`, `175 B`.
pub fn parameters(value: f64) -> String {
    scaled(value).replace('G', "B")
}

/// A change since something else.
#[derive(Clone, Debug, PartialEq)]
pub enum Delta {
    /// Too small to show.
    Same,
    /// Downwards or upwards by so much.
    By { down: bool, text: String },
}

/// Change in percent of `old`.
pub fn relative(new: f64, old: f64) -> Delta {
    delta((new / old - 1.0) * 100.0, "%")
}

/// Change of a share, in percentage points.
pub fn points(new: f64, old: f64) -> Delta {
    delta((new - old) * 100.0, "pt")
}

fn delta(change: f64, unit: &str) -> Delta {
    if change.is_nan() || change.abs() < 0.05 {
        return Delta::Same;
    }
    let size = change.abs();
    let text = match size {
        s if s >= 999.5 => format!("{:.0} ×", s / 100.0 + 1.0),
        s if s >= 9.95 => format!("{s:.0} {unit}"),
        s => format!("{s:.1} {unit}"),
    };
    Delta::By { down: change < 0.0, text }
}

/// `+3.0 %`, with a real minus sign.
pub fn signed_percent(new: f64, old: f64) -> String {
    match relative(new, old) {
        Delta::Same => "0 %".into(),
        Delta::By { down, text } => format!("{}{text}", if down { '−' } else { '+' }),
    }
}

/// Text for SVG and HTML that is set as markup: names come from files.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The words for an action: `Forward of micro-batch 4`.
pub fn action_title(action: Action) -> String {
    let pass = match action.kind {
        ActionKind::Forward => t("Forward"),
        ActionKind::Backward => t("Backward"),
        ActionKind::BackwardInput => t("Input gradient"),
        ActionKind::BackwardWeight => t("Weight gradient"),
    };
    tr!("{pass} of micro-batch {number}", pass, number = action.micro_batch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_times_have_four_digits_and_a_unit() {
        assert_eq!(hero(Nanos(2_156_000_000)), ("2.156".into(), "s"));
        assert_eq!(hero(Nanos(23_456_000)), ("23.46".into(), "ms"));
        assert_eq!(hero(Nanos(456_780)), ("456.8".into(), "µs"));
        assert_eq!(hero(Nanos(600_000_000_000)), ("10.00".into(), "min"));
        assert_eq!(hero(Nanos(29_188_000_000_000)), ("8.108".into(), "h"));
    }

    #[test]
    fn large_counts_have_three_digits_and_a_prefix() {
        assert_eq!(scaled(138_357_544.0), "138 M");
        assert_eq!(scaled(62_260.0), "62.3 k");
        assert_eq!(scaled(2_350_000_000.0), "2.35 G");
        assert_eq!(scaled(735_119e9), "735 T");
        assert_eq!(parameters(175e9), "175 B");
    }

    #[test]
    fn deltas_name_their_direction() {
        assert_eq!(relative(95.0, 100.0), Delta::By { down: true, text: "5.0 %".into() });
        assert_eq!(relative(100.01, 100.0), Delta::Same);
        assert_eq!(points(0.40, 0.25), Delta::By { down: false, text: "15 pt".into() });
        assert_eq!(signed_percent(90.0, 100.0), "−10 %");
        assert_eq!(relative(1.0, 0.0), Delta::By { down: false, text: "inf ×".into() });
    }

    #[test]
    fn the_axis_writes_no_useless_decimals() {
        let clock = Clock::of(Nanos(2_000_000_000));
        assert_eq!(clock.axis(250e6, 250e6), "250");
        assert_eq!(clock.axis(0.5e6, 0.5e6), "0.5");
        assert_eq!(clock.axis(2.5e6, 2.5e6), "2.5");
        assert_eq!(clock.axis(0.25e6, 0.25e6), "0.25");
        assert_eq!(clock.text(Nanos(12_340_000)), "12.3 ms");
        assert_eq!(clock.text(Nanos(12_340)), "12.3 µs");
        assert_eq!(clock.text(Nanos(0)), "0.0 ms");
        assert_eq!(clock.span(Nanos(12_340_000), Nanos(12_350_000)), "12.340 → 12.350 ms");
    }

    #[test]
    fn bytes_keep_three_digits() {
        assert_eq!(bytes_text(Bytes(512)), "512 B");
        assert_eq!(bytes_text(Bytes(1536)), "1.50 KiB");
        assert_eq!(bytes_text(Bytes(11 << 30)), "11.0 GiB");
        assert_eq!(bytes_text(Bytes(412 << 20)), "412 MiB");
        assert_eq!(bytes_text(Bytes(64 << 40)), "64.0 TiB");
    }
}
