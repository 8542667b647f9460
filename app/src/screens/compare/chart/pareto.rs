//! Plans by step time and peak memory or traffic: each a disc, what it is joined by is that no other
//! is better in both. The third measure is the disc's size. A and B stand among them.

use crate::base::format::Clock;
use crate::base::texts::tr;
use crate::draw::ticks;
use crate::draw::unit::Unit;
use crate::planner::engine::Figures;
use pipewright_core::units::Nanos;
use pipewright_worker::protocol::FoundPlan;
use std::fmt::Write;

const LEFT: f64 = 58.0;
const RIGHT: f64 = 24.0;
const ABOVE: f64 = 24.0;
const BELOW: f64 = 38.0;

/// Steps that are so many times the shortest and longer stand at the edge of the picture.
const LATEST: f64 = 6.0;

/// What stands upwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    Memory,
    Traffic,
}

/// A plan's three measures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mark {
    pub step: f64,
    pub peak: f64,
    pub traffic: f64,
}

impl From<&FoundPlan> for Mark {
    fn from(plan: &FoundPlan) -> Self {
        let FoundPlan { step, peak, traffic, .. } = *plan;
        Self { step: step as f64, peak: peak as f64, traffic: traffic as f64 }
    }
}

impl From<&Figures> for Mark {
    fn from(f: &Figures) -> Self {
        let (step, peak, traffic) = (f.step.0 as f64, f.peak.0 as f64, f.traffic.0 as f64);
        Self { step, peak, traffic }
    }
}

impl Mark {
    fn up(&self, axis: Axis) -> f64 {
        match axis {
            Axis::Memory => self.peak,
            Axis::Traffic => self.traffic,
        }
    }

    fn third(&self, axis: Axis) -> f64 {
        match axis {
            Axis::Memory => self.traffic,
            Axis::Traffic => self.peak,
        }
    }
}

/// Where marks stand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ParetoAxes {
    pub width: f64,
    pub height: f64,
    pub axis: Axis,
    /// Shortest and longest step.
    steps: (f64, f64),
    /// Least and most upwards; equal factors are equal lengths above the least.
    ups: (f64, f64),
    /// Most of the third measure.
    third: f64,
}

impl ParetoAxes {
    /// For everything that is shown; without marks some frame.
    pub fn new((width, height): (f64, f64), axis: Axis, marks: &[Mark]) -> Self {
        let range = |of: &dyn Fn(&Mark) -> f64| {
            let all = marks.iter().map(of).filter(|v| *v > 0.0);
            let (least, most) =
                all.fold((f64::MAX, 0.0), |(a, b): (f64, f64), v| (a.min(v), b.max(v)));
            if most > 0.0 { (least, most) } else { (1.0, 2.0) }
        };
        let (first, last) = range(&|m| m.step);
        let steps = (first * 0.97, (last * 1.04).min(first * LATEST));
        let (least, most) = range(&|m| m.up(axis));
        let third = range(&|m| m.third(axis)).1;
        Self { width, height, axis, steps, ups: (least * 0.8, most * 1.2), third }
    }

    /// The middle of a mark.
    pub fn at(&self, mark: &Mark) -> (f64, f64) {
        (self.x(mark.step), self.y(mark.up(self.axis)))
    }

    fn x(&self, step: f64) -> f64 {
        let share = (step / self.steps.0).ln() / (self.steps.1 / self.steps.0).ln();
        LEFT + share.clamp(0.0, 1.0) * (self.width - LEFT - RIGHT)
    }

    fn y(&self, up: f64) -> f64 {
        // Nothing sent at all stands on the axis.
        let share = (up.max(self.ups.0) / self.ups.0).ln() / (self.ups.1 / self.ups.0).ln();
        ABOVE + (1.0 - share.clamp(0.0, 1.0)) * (self.height - ABOVE - BELOW)
    }

    /// A disc's area is the third measure.
    fn radius(&self, mark: &Mark) -> f64 {
        3.0 + 4.0 * (mark.third(self.axis) / self.third).clamp(0.0, 1.0).sqrt()
    }
}

/// Round numbers of `unit` between both ends, about `count` of them.
fn marks((from, to): (f64, f64), unit: f64, count: f64) -> Vec<f64> {
    let (from, to) = (from / unit, to / unit);
    // Sums and products of tenths have digits that nobody wants to read.
    let round = |v: f64| (v * 1e6).round() / 1e6;
    if to / from < 4.0 {
        let step = ticks::step((to - from) / count);
        return ticks::multiples(from, to, step).map(round).collect();
    }
    let decades = from.log10().floor() as i32..=to.log10().ceil() as i32;
    let every: &[f64] = match to / from {
        near if near < 12.0 => &[1.0, 2.0, 3.0, 5.0, 7.0],
        far if far > 60.0 && count < 8.0 => &[1.0, 4.0],
        _ => &[1.0, 2.0, 5.0],
    };
    let all = decades.flat_map(|power| every.iter().map(move |k| k * 10f64.powi(power)));
    all.filter(|v| (from..=to).contains(v)).map(round).collect()
}

/// The chart as markup; `near` is the disc that is pointed at.
pub fn draw(
    frame: &ParetoAxes,
    found: &[Mark],
    a: Option<Mark>,
    b: Option<Mark>,
    near: Option<usize>,
) -> String {
    let ParetoAxes { width, height, .. } = *frame;
    let mut out = format!(
        "<svg width='{width}' height='{height}' role='img' aria-label='{}'>",
        match frame.axis {
            Axis::Memory => tr!("{count} plans by step time and peak memory", count = found.len()),
            Axis::Traffic => tr!("{count} plans by step time and traffic", count = found.len()),
        }
    );
    axes(frame, &mut out);
    stairs(frame, found, &mut out);
    for (at, mark) in found.iter().enumerate() {
        let ((x, y), r) = (frame.at(mark), frame.radius(mark));
        let class = if near == Some(at) { "fp on" } else { "fp" };
        let _ = write!(out, "<circle cx='{x:.1}' cy='{y:.1}' r='{r:.1}' class='{class}'/>");
    }
    if let Some((x, y)) = a.map(|a| frame.at(&a)) {
        let _ = write!(out, "<path d='M{x:.1} {:.1}l7 7-7 7-7-7z' class='pa'/>", y - 7.0);
        letter(frame, (x, y), "A", a, &mut out);
    }
    if let Some((x, y)) = b.map(|b| frame.at(&b)) {
        let _ = write!(
            out,
            "<circle cx='{x:.1}' cy='{y:.1}' r='9' class='me-o'/>\
             <circle cx='{x:.1}' cy='{y:.1}' r='3' class='me-i'/>"
        );
        letter(frame, (x, y), "B", b, &mut out);
    }
    out + "</svg>"
}

/// A's name stands above, B's below, so that both can be read where they meet.
fn letter(
    frame: &ParetoAxes,
    (x, y): (f64, f64),
    name: &str,
    mark: Option<Mark>,
    out: &mut String,
) {
    let beyond = mark.is_some_and(|mark| mark.step > frame.steps.1);
    let (anchor, arrow) = if beyond { ("end", " →") } else { ("middle", "") };
    let y = match name {
        "A" => y - 11.0,
        _ if y + 24.0 > frame.height - BELOW => y - 14.0,
        _ => y + 22.0,
    };
    let _ = write!(
        out,
        "<text x='{x:.1}' y='{y:.1}' text-anchor='{anchor}' class='me-t'>{name}{arrow}</text>"
    );
}

fn axes(frame: &ParetoAxes, out: &mut String) {
    let (right, bottom) = (frame.width - RIGHT, frame.height - BELOW);
    let unit = Unit::of(frame.ups.1 as u64);
    for up in marks(frame.ups, unit.bytes, (frame.height / 44.0).max(2.0)) {
        let y = frame.y(up * unit.bytes).round() + 0.5;
        let _ = write!(
            out,
            "<path d='M{LEFT} {y}H{right}' class='gr'/><text x='{}' y='{}' text-anchor='end' \
             class='ax'>{up}</text>",
            LEFT - 8.0,
            y + 3.5
        );
    }
    let clock = Clock::of(Nanos(frame.steps.1 as u64));
    let one = clock.nanos();
    for step in marks(frame.steps, one, (frame.width / 84.0).max(2.0)) {
        let x = frame.x(step * one);
        let _ = write!(
            out,
            "<path d='M{x:.1} {bottom}v4' class='gr'/><text x='{x:.1}' y='{}' \
             text-anchor='middle' class='ax'>{step}</text>",
            bottom + 16.0
        );
    }
    let up = match frame.axis {
        Axis::Memory => tr!("↑ peak memory, {unit}", unit = unit.name),
        Axis::Traffic => tr!("↑ traffic of a step, {unit}", unit = unit.name),
    };
    let _ = write!(
        out,
        "<path d='M{LEFT} {bottom}H{right}' class='gr'/>\
         <text x='8' y='14' class='cap'>{up}</text>\
         <text x='{right}' y='{}' text-anchor='end' class='cap'>{}</text>",
        frame.height - 6.0,
        tr!("step time, {unit}", unit = clock.unit)
    );
}

/// What is best in what is shown stays so until the next one.
fn stairs(frame: &ParetoAxes, found: &[Mark], out: &mut String) {
    let mut ordered: Vec<&Mark> = found.iter().collect();
    ordered.sort_by(|a, b| a.step.total_cmp(&b.step));
    let mut path = String::new();
    let mut least = f64::INFINITY;
    for mark in ordered {
        if mark.up(frame.axis) < least {
            least = mark.up(frame.axis);
            let (x, y) = frame.at(mark);
            let _ = match path.is_empty() {
                true => write!(path, "M{x:.1} {y:.1}"),
                false => write!(path, "H{x:.1}V{y:.1}"),
            };
        }
    }
    let _ = write!(out, "<path d='{path}' class='fl'/>");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(step: f64, peak: f64, traffic: f64) -> Mark {
        Mark { step: step * 1e9, peak: peak * 1e9, traffic: traffic * 1e9 }
    }

    fn found() -> Vec<Mark> {
        vec![mark(1.0, 60.0, 0.0), mark(1.2, 20.0, 8.0), mark(1.5, 30.0, 2.0), mark(3.0, 5.0, 9.0)]
    }

    #[test]
    fn marks_stand_inside_and_what_takes_longer_further_right() {
        let found = found();
        for axis in [Axis::Memory, Axis::Traffic] {
            let frame = ParetoAxes::new((600.0, 240.0), axis, &found);
            let at: Vec<(f64, f64)> = found.iter().map(|m| frame.at(m)).collect();
            assert!(at.windows(2).all(|two| two[0].0 < two[1].0), "{at:?}");
            assert!(
                at.iter().all(|(x, y)| (LEFT..=576.0).contains(x) && (24.0..=202.0).contains(y))
            );
        }
        let frame = ParetoAxes::new((600.0, 240.0), Axis::Memory, &found);
        assert!(frame.at(&found[0]).1 < frame.at(&found[3]).1, "more is higher");
        assert!(frame.radius(&found[3]) > frame.radius(&found[2]));
    }

    #[test]
    fn the_stairs_join_what_is_best_in_both() {
        let found = found();
        let frame = ParetoAxes::new((600.0, 240.0), Axis::Memory, &found);
        let svg = draw(&frame, &found, Some(found[1]), Some(found[2]), Some(3));
        assert_eq!(svg.matches("class='fp").count(), 4);
        assert_eq!(svg.matches("class='fp on'").count(), 1);
        let stairs = svg.split("class='fl'").next().unwrap().rsplit("d='").next().unwrap();
        assert_eq!(stairs.matches('V').count(), 2, "the third is no step: {stairs}");
        assert!(svg.contains(">A</text>") && svg.contains(">B</text>") && !svg.contains("NaN"));
    }

    #[test]
    fn an_a_that_takes_for_ever_stands_at_the_edge_and_says_so() {
        let mut all = found();
        let far = mark(90.0, 20.0, 1.0);
        all.push(far);
        let frame = ParetoAxes::new((600.0, 240.0), Axis::Memory, &all);
        assert_eq!(frame.at(&far).0, 576.0);
        assert!(draw(&frame, &found(), Some(far), None, None).contains("A →"));
    }

    #[test]
    fn nothing_is_drawn_of_nothing() {
        for axis in [Axis::Memory, Axis::Traffic] {
            let svg = draw(&ParetoAxes::new((300.0, 160.0), axis, &[]), &[], None, None, None);
            assert!(
                !svg.contains("NaN") && !svg.contains("inf") && !svg.contains("circle"),
                "{svg}"
            );
        }
        let one = [mark(1.0, 5.0, 0.0)];
        for axis in [Axis::Memory, Axis::Traffic] {
            let svg = draw(&ParetoAxes::new((300.0, 160.0), axis, &one), &one, None, None, None);
            assert!(!svg.contains("NaN") && svg.contains("circle"), "{svg}");
        }
    }

    #[test]
    fn axes_have_round_numbers() {
        assert_eq!(marks((0.97e9, 1.3e9), 1e6, 4.0), [1000.0, 1100.0, 1200.0, 1300.0]);
        assert_eq!(marks((0.9, 7.5), 1.0, 4.0), [1.0, 2.0, 3.0, 5.0, 7.0]);
        assert_eq!(marks((0.9, 22.0), 1.0, 4.0), [1.0, 2.0, 5.0, 10.0, 20.0]);
        assert_eq!(marks((0.5, 90.0), 1.0, 4.0), [1.0, 4.0, 10.0, 40.0]);
    }
}
