//! Curves of trainings over steps, bytes or time; each with a line of its own, named at its end.

use crate::base::format;
use crate::base::texts::{n, t};
use crate::draw::chart::{Place, leader, place};
use crate::draw::ticks;
use crate::screens::playground::model::race::Moment;
use pipewright_core::units::Bytes;
use std::fmt::Write;

/// What is to the right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Across {
    /// Steps.
    #[default]
    Steps,
    /// Bytes that a rank has sent.
    Sent,
    /// Time over the link.
    Time,
}

/// What is upwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Up {
    /// Share of test points that are right.
    #[default]
    Accuracy,
    /// Loss of the training, on a logarithmic axis.
    Loss,
    /// What feedback carries over.
    Carried,
}

impl Across {
    /// In the order of their buttons.
    pub const ALL: [(Across, &'static str); 3] =
        [(Across::Steps, n("Steps")), (Across::Sent, n("Bytes sent")), (Across::Time, n("Time"))];

    fn of(self, moment: &Moment) -> f64 {
        match self {
            Across::Steps => moment.step as f64,
            Across::Sent => moment.sent,
            Across::Time => moment.time,
        }
    }

    fn mark(self, value: f64) -> String {
        match self {
            Across::Steps | Across::Time => format!("{value:.0}"),
            Across::Sent => format::bytes_text(Bytes(value as u64)),
        }
    }

    fn caption(self) -> &'static str {
        match self {
            Across::Steps => t("steps →"),
            Across::Sent => t("bytes sent by a rank →"),
            Across::Time => t("time, in steps' computing →"),
        }
    }
}

impl Up {
    /// In the order of their buttons.
    pub const ALL: [(Up, &'static str); 3] =
        [(Up::Accuracy, n("Accuracy")), (Up::Loss, n("Loss")), (Up::Carried, n("Carried error"))];

    fn of(self, moment: &Moment) -> f64 {
        match self {
            Up::Accuracy => moment.accuracy,
            Up::Loss => moment.loss,
            Up::Carried => moment.carried,
        }
    }

    fn caption(self) -> &'static str {
        match self {
            Up::Accuracy => t("↑ test accuracy"),
            Up::Loss => t("↑ training loss, smoothed"),
            Up::Carried => t("↑ carried error, relative to a gradient"),
        }
    }
}

/// A training's curve.
pub struct Line<'a> {
    /// Its codec.
    pub name: String,
    /// From the beginning on.
    pub points: &'a [Moment],
}

const LEFT: f64 = 52.0;
const RIGHT: f64 = 16.0;
const ABOVE: f64 = 22.0;
const BELOW: f64 = 34.0;
/// How far the axis goes on behind the end of the shortest curve, as a multiple of it.
const BEYOND: f64 = 2.5;
/// How much of a smoothed loss is the newest.
const NEWEST: f64 = 0.25;

struct Frame {
    across: Across,
    up: Up,
    width: f64,
    height: f64,
    /// Least and most upwards; logarithms of losses.
    range: (f64, f64),
    most: f64,
}

impl Frame {
    fn new(lines: &[Line], across: Across, up: Up, (width, height): (f64, f64)) -> Self {
        let moments = || lines.iter().flat_map(|line| line.points);
        let most = moments().map(|m| across.of(m)).fold(0.0, f64::max);
        // Where trainings get along at very different speeds the slowest ends early: what is compared
        // is what all have reached.
        let ends = lines.iter().filter_map(|line| line.points.last()).map(|m| across.of(m));
        let most = most.min(BEYOND * ends.filter(|end| *end > 0.0).fold(f64::INFINITY, f64::min));
        let values = || moments().map(|m| up.of(m)).filter(|v| v.is_finite());
        let range = match up {
            Up::Accuracy => (values().fold(0.5, f64::min), 1.0),
            Up::Loss => {
                let least = values().fold(0.3, f64::min).max(1e-4);
                (least.log10(), values().fold(1.0, f64::max).log10())
            }
            Up::Carried => (0.0, values().fold(1.0, f64::max) * 1.05),
        };
        // At the beginning a curve does not jump over the whole width with every step.
        let least = match across {
            Across::Steps => 100.0,
            Across::Sent => most.max(1.0),
            Across::Time => 100.0,
        };
        Self { across, up, width, height, range, most: most.max(least) }
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + value / self.most * (self.width - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        let value = if self.up == Up::Loss { value.max(1e-6).log10() } else { value };
        let share = (value - self.range.0) / (self.range.1 - self.range.0).max(1e-9);
        self.height - BELOW - share.clamp(-0.02, 1.02) * (self.height - ABOVE - BELOW)
    }

    /// Where the moments of a curve lie, as far as the axis goes; losses are smoothed.
    fn points(&self, moments: &[Moment]) -> Vec<(f64, f64)> {
        let mut kept = None;
        let mut points = vec![];
        for moment in moments.iter().filter(|m| self.across.of(m) <= self.most) {
            let value = self.up.of(moment);
            if !value.is_finite() {
                continue;
            }
            let smooth = match (self.up, kept) {
                (Up::Loss, Some(before)) => before + NEWEST * (value - before),
                _ => value,
            };
            kept = Some(smooth);
            points.push((self.x(self.across.of(moment)), self.y(smooth)));
        }
        points
    }

    fn marks(&self) -> Vec<(f64, String)> {
        let (least, most) = self.range;
        let room = ((self.height - ABOVE - BELOW) / 34.0).max(2.0);
        match self.up {
            Up::Accuracy => {
                let step = ticks::step((most - least) / room);
                ticks::multiples(least, most, step)
                    .map(|v| (v, format!("{} %", format::percent(v, usize::from(step < 0.01)))))
                    .collect()
            }
            Up::Loss => (least.floor() as i32..=most.ceil() as i32)
                .map(|power| 10f64.powi(power))
                .filter(|v| (least..=most).contains(&v.log10()))
                .map(|v| (v, format!("{v}")))
                .collect(),
            Up::Carried => {
                let step = ticks::step(most / room);
                ticks::multiples(0.0, most, step).map(|v| (v, format!("{v}"))).collect()
            }
        }
    }
}

/// Draws the curves.
pub fn draw(lines: &[Line], across: Across, up: Up, size: (f64, f64)) -> String {
    let frame = Frame::new(lines, across, up, size);
    let (width, height) = size;
    let mut out = format!(
        "<svg width='{width}' height='{height}' viewBox='0 0 {width} {height}' role='img' aria-label=\"{}\">",
        format::escape(t("Curves of the runs; the table beside them has the latest numbers"))
    );
    axes(&frame, &mut out);
    let mut ends = vec![];
    for (at, line) in lines.iter().enumerate() {
        let points = frame.points(line.points);
        let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        if let Some(&(x, y)) = points.last() {
            ends.push((at, x, y));
            let _ = write!(out, "<path d='M{}' class='pl p{at}'/>", path.join("L"));
            let _ = write!(out, "<circle cx='{x:.1}' cy='{y:.1}' r='3' class='pe p{at}'/>");
        }
    }
    let wanted: Vec<(f64, f64)> =
        ends.iter().map(|(_, x, y)| (x.min(width - RIGHT) - 7.0, y + 16.0)).collect();
    let placed = place(&wanted, &[], (width, 14.0), ABOVE + 8.0);
    for ((at, end, high), (x, y)) in ends.iter().zip(placed) {
        let y = y.min(height - BELOW - 4.0);
        let name = format::escape(&lines[*at].name);
        // At the beginning there is no room to the left.
        let (x, anchor) = if x < LEFT + 160.0 { (x + 14.0, "start") } else { (x, "end") };
        out.push_str(&leader(Place { x: *end, y: *high }, Place { x: x + 3.0, y: y - 4.0 }, 20.0));
        let _ = write!(
            out,
            "<text x='{x:.1}' y='{y:.1}' class='pn' text-anchor='{anchor}'>{name}</text>"
        );
    }
    out + "</svg>"
}

fn axes(frame: &Frame, out: &mut String) {
    let (bottom, right) = (frame.height - BELOW, frame.width - RIGHT);
    let step = match frame.across {
        // Halves of powers of two read better as bytes.
        Across::Sent => {
            let least = frame.most / (frame.width / 110.0).max(2.0);
            2f64.powf(least.max(1.0).log2().ceil())
        }
        _ => ticks::step(frame.most / (frame.width / 80.0).max(2.0)),
    };
    for value in ticks::multiples(0.0, frame.most, step) {
        let (x, y) = (frame.x(value), bottom + 15.0);
        let text = frame.across.mark(value);
        let anchor = if x > right - 20.0 { "end" } else { "middle" };
        let _ = write!(
            out,
            "<path d='M{x:.1} {ABOVE}V{bottom:.1}' class='gr'/><text x='{x:.1}' y='{y:.1}' \
             text-anchor='{anchor}' class='ax'>{text}</text>"
        );
    }
    for (value, text) in frame.marks() {
        let y = frame.y(value);
        let _ = write!(
            out,
            "<path d='M{LEFT} {y:.1}H{right:.1}' class='gr'/><text x='{}' y='{:.1}' \
             text-anchor='end' class='ax'>{text}</text>",
            LEFT - 6.0,
            y + 3.5
        );
    }
    let _ = write!(
        out,
        "<text x='{LEFT}' y='12' class='cap'>{}</text><text x='{right:.1}' y='{:.1}' \
         text-anchor='end' class='cap'>{}</text>",
        frame.up.caption(),
        frame.height - 5.0,
        frame.across.caption()
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve() -> Vec<Moment> {
        let moment = |step: u64| Moment {
            step,
            sent: 500.0 * step as f64,
            time: 9.0 * step as f64,
            loss: 0.7 / (step + 1) as f64,
            accuracy: 1.0 - 0.5 / (step + 1) as f64,
            carried: 2.0,
        };
        (0..200).map(moment).collect()
    }

    #[test]
    fn every_axis_gives_lines_with_names() {
        let points = curve();
        for (across, _) in Across::ALL {
            for (up, _) in Up::ALL {
                let line = |name: &str| Line { name: name.into(), points: &points };
                let svg = draw(&[line("fp32"), line("one-bit")], across, up, (600.0, 300.0));
                assert_eq!(svg.matches("class='pl ").count(), 2);
                assert!(svg.contains(">fp32<") && svg.contains(">one-bit<"));
                assert!(svg.matches("class='gr'").count() > 5, "{svg}");
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            }
        }
    }

    #[test]
    fn names_that_had_to_move_are_joined_to_their_ends() {
        let points = curve();
        let drawn = |names: &[&str]| {
            let lines: Vec<Line> =
                names.iter().map(|name| Line { name: (*name).into(), points: &points }).collect();
            draw(&lines, Across::Steps, Up::Loss, (600.0, 300.0))
        };
        assert!(!drawn(&["fp32"]).contains("class='ld'"));
        assert!(drawn(&["fp32", "bf16", "int8", "one-bit"]).contains("class='ld'"));
    }

    #[test]
    fn the_axis_ends_soon_after_the_shortest_curve() {
        let (long, short) = (curve(), curve());
        let lines = [&long[..], &short[..20]].map(|points| Line { name: "x".into(), points });
        let frame = Frame::new(&lines, Across::Sent, Up::Loss, (600.0, 300.0));
        assert_eq!(frame.most, 2.5 * short[19].sent);
        assert!(frame.points(&long).len() < 60 && frame.points(&short[..20]).len() == 20);
    }

    #[test]
    fn what_is_no_number_is_left_out() {
        let lost = [Moment { accuracy: f64::NAN, loss: f64::NAN, ..Moment::default() }; 3];
        let line = Line { name: "<b>".into(), points: &lost };
        for (up, _) in Up::ALL {
            let svg =
                draw(&[Line { name: line.name.clone(), ..line }], Across::Sent, up, (300.0, 90.0));
            assert!(!svg.contains("NaN") && !svg.contains("<b>"), "{svg}");
        }
        assert!(draw(&[], Across::Steps, Up::Loss, (300.0, 90.0)).ends_with("</svg>"));
    }
}
