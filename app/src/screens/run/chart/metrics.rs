//! Metrics of runs over steps or time: a line a run, a reading where the hand is.

use crate::base::format::{self, Clock, escape};
use crate::base::texts::{n, t, tr};
use crate::draw::ticks;
use crate::screens::run::model::metrics::{Quantity, Run, StepMetrics};
use pipewright_core::units::Nanos;
use std::fmt::Write;

/// What is drawn.
pub struct Plot<'a> {
    pub quantity: Quantity,
    pub runs: &'a [Run],
    /// Over time instead of steps.
    pub by_time: bool,
    /// What the plan says of it.
    pub predicted: Option<f64>,
    /// The step of the first run that is read.
    pub at: Option<usize>,
}

const LEFT: f64 = 58.0;
const RIGHT: f64 = 12.0;
const ABOVE: f64 = 20.0;
const BELOW: f64 = 20.0;

/// What a quantity is called, for [`t`].
pub fn title(quantity: Quantity) -> &'static str {
    match quantity {
        Quantity::Loss => n("Loss"),
        Quantity::Accuracy => n("Accuracy"),
        Quantity::StepTime => n("Step time"),
        Quantity::Bubble => n("Bubble"),
    }
}

/// A value with its unit; a dash where there is none.
pub fn value(quantity: Quantity, value: f64) -> String {
    match quantity {
        _ if !value.is_finite() => "–".into(),
        Quantity::Loss => format!("{value:.4}"),
        Quantity::Accuracy | Quantity::Bubble => format!("{} %", format::percent(value, 1)),
        Quantity::StepTime => {
            let (number, unit) = format::hero(Nanos::from_secs(value));
            format!("{number} {unit}")
        }
    }
}

/// Ranges of both axes.
struct Frame {
    width: f64,
    height: f64,
    x: (f64, f64),
    y: (f64, f64),
}

impl Frame {
    fn new(plot: &Plot, (width, height): (f64, f64)) -> Self {
        let steps = || plot.runs.iter().flat_map(|run| &run.steps);
        let range = |values: &mut dyn Iterator<Item = f64>| {
            values
                .filter(|v| v.is_finite())
                .fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)))
        };
        let mut x = range(&mut steps().map(|step| place(plot, step)));
        let tests = steps().map(|step| step.test_accuracy);
        let tests = tests.filter(|_| plot.quantity == Quantity::Accuracy);
        let values = steps().map(|step| plot.quantity.of(step));
        let mut y = range(&mut values.chain(plot.predicted).chain(tests));
        // Of times and shares zero says how much; losses and accuracies are told apart.
        if matches!(plot.quantity, Quantity::StepTime | Quantity::Bubble) {
            y.0 = 0.0;
        }
        for range in [&mut x, &mut y] {
            if range.1.partial_cmp(&range.0) != Some(std::cmp::Ordering::Greater) {
                let at = if range.0.is_finite() { range.0 } else { 0.0 };
                *range = (at, at + 1.0);
            }
        }
        let room = (y.1 - y.0) * 0.06;
        Self { width, height, x, y: (y.0, y.1 + room) }
    }

    fn px(&self, x: f64) -> f64 {
        LEFT + (x - self.x.0) / (self.x.1 - self.x.0) * (self.width - LEFT - RIGHT)
    }

    fn py(&self, y: f64) -> f64 {
        let room = self.height - ABOVE - BELOW;
        self.height - BELOW - (y - self.y.0) / (self.y.1 - self.y.0) * room
    }
}

fn place(plot: &Plot, step: &StepMetrics) -> f64 {
    if plot.by_time { step.time } else { step.step as f64 }
}

/// The picture as markup.
pub fn draw(plot: &Plot, size: (f64, f64)) -> String {
    let frame = Frame::new(plot, size);
    let (width, height) = size;
    let name = t(title(plot.quantity));
    let mut out = format!(
        "<svg width='{width}' height='{height}' viewBox='0 0 {width} {height}' role='img' aria-label='{name}'>\
         <text x='8' y='13' class='lb'>{name}</text>"
    );
    axes(plot, &frame, &mut out);
    if let Some(predicted) = plot.predicted {
        let (y, right) = (frame.py(predicted).round() + 0.5, width - RIGHT);
        let _ = write!(
            out,
            "<path d='M{LEFT} {y}H{right}' class='as-planned'/><text x='{right}' y='{:.1}' text-anchor='end' class='lb2'>{}</text>",
            // On the side where the runs are not.
            if above(plot, predicted) || y < ABOVE + 12.0 { y + 12.0 } else { y - 4.0 },
            t("predicted")
        );
    }
    for (at, run) in plot.runs.iter().enumerate() {
        line(plot, &frame, at, run, &mut out);
    }
    if let Some(step) = plot.at.and_then(|at| plot.runs.first()?.steps.get(at)) {
        let x = frame.px(place(plot, step));
        let _ = write!(out, "<path d='M{x:.1} {ABOVE}V{}' class='bd'/>", height - BELOW);
        for (_, near) in read(plot.runs, plot.by_time, step) {
            let y = plot.quantity.of(near);
            if y.is_finite() {
                let x = frame.px(place(plot, near));
                let _ =
                    write!(out, "<circle cx='{x:.1}' cy='{:.1}' r='3' class='pk'/>", frame.py(y));
            }
        }
    }
    out + "</svg>"
}

/// Whether the first run ends above a value.
fn above(plot: &Plot, than: f64) -> bool {
    let last = plot.runs.first().and_then(|run| run.steps.last());
    last.is_some_and(|step| plot.quantity.of(step) > than)
}

/// The pictures of all quantities, side by side.
pub fn plots(
    runs: &[Run],
    by_time: bool,
    at: Option<usize>,
    predicted: impl Fn(Quantity) -> Option<f64>,
    size: (f64, f64),
) -> String {
    let mut out = String::new();
    for quantity in Quantity::ALL {
        let plot = Plot { quantity, runs, by_time, predicted: predicted(quantity), at };
        let (name, svg) = (title(quantity), draw(&plot, size));
        let _ = write!(out, "<div class='plot' data-plot='{name}'>{svg}</div>");
    }
    out
}

/// Runs by name, each with the line that it is drawn with.
pub fn names(runs: &[Run]) -> String {
    let mut out = String::new();
    for (at, run) in runs.iter().enumerate() {
        let (title, steps, ranks) = (run.title(at), run.steps.len(), run.ranks);
        let text = match ranks {
            1 => tr!("{title}: {steps} steps, 1 rank", title, steps),
            _ => tr!("{title}: {steps} steps, {ranks} ranks", title, steps, ranks),
        };
        let _ = write!(
            out,
            "<span class='key'><svg width='22' height='8' aria-hidden='true'><path d='M0 4H22' class='ml m{}'/></svg>{}</span>",
            at % 4,
            escape(&text)
        );
    }
    out
}

/// What all runs say where the first one is at its step `at`, a sentence each.
pub fn said(runs: &[Run], by_time: bool, at: usize) -> Vec<String> {
    let Some(step) = runs.first().and_then(|run| run.steps.get(at)) else { return vec![] };
    let line = |(number, near): (usize, &StepMetrics)| {
        let of = |quantity: Quantity| value(quantity, quantity.of(near));
        tr!(
            "{run}, step {step}: loss {loss}, accuracy {accuracy}, {time}, bubble {bubble}",
            run = runs[number].title(number),
            step = near.step,
            loss = of(Quantity::Loss),
            accuracy = of(Quantity::Accuracy),
            time = of(Quantity::StepTime),
            bubble = of(Quantity::Bubble)
        )
    };
    read(runs, by_time, step).into_iter().map(line).collect()
}

/// The body of the table: at most so many steps, spread over the first run.
pub fn table(runs: &[Run], by_time: bool, most: usize) -> String {
    let Some(first) = runs.first() else { return String::new() };
    let every = first.steps.len().div_ceil(most).max(1);
    let mut out = String::new();
    for step in first.steps.iter().step_by(every) {
        for (number, near) in read(runs, by_time, step) {
            let name = escape(&runs[number].title(number));
            let _ =
                write!(out, "<tr><th scope='row'>{name}</th><td class='num'>{}</td>", near.step);
            for quantity in Quantity::ALL {
                let _ = write!(out, "<td class='num'>{}</td>", value(quantity, quantity.of(near)));
            }
            out += "</tr>";
        }
    }
    out
}

/// What each run says where the first one is at `step`: the last of its steps up to there.
pub fn read<'a>(
    runs: &'a [Run],
    by_time: bool,
    step: &StepMetrics,
) -> Vec<(usize, &'a StepMetrics)> {
    let near = |(at, run): (usize, &'a Run)| {
        let end = run.steps.partition_point(|other| match by_time {
            true => other.time <= step.time,
            false => other.step <= step.step,
        });
        Some((at, run.steps.get(end.checked_sub(1)?)?))
    };
    runs.iter().enumerate().filter_map(near).collect()
}

/// The step of the first run that is nearest to a place of the picture.
pub fn step_at(runs: &[Run], by_time: bool, width: f64, x: f64) -> Option<usize> {
    let steps = &runs.first()?.steps;
    let plot = Plot { quantity: Quantity::StepTime, runs, by_time, predicted: None, at: None };
    let frame = Frame::new(&plot, (width, 100.0));
    let distance = |at: &usize| (frame.px(place(&plot, &steps[*at])) - x).abs();
    (0..steps.len()).min_by(|a, b| distance(a).total_cmp(&distance(b)))
}

fn axes(plot: &Plot, frame: &Frame, out: &mut String) {
    let (right, bottom) = (frame.width - RIGHT, frame.height - BELOW);
    let step = ticks::step((frame.y.1 - frame.y.0) / ((bottom - ABOVE) / 30.0).max(2.0));
    let clock = Clock::of(Nanos::from_secs(frame.y.1));
    for v in ticks::multiples(frame.y.0, frame.y.1, step) {
        let y = frame.py(v).round() + 0.5;
        let text = match plot.quantity {
            Quantity::Loss => format::count(v),
            Quantity::StepTime => format!("{} {}", clock.axis(v * 1e9, step * 1e9), clock.unit),
            Quantity::Accuracy | Quantity::Bubble => format!("{} %", format::percent(v, 0)),
        };
        let _ = write!(
            out,
            "<path d='M{LEFT} {y}H{right}' class='gr'/><text x='{}' y='{}' text-anchor='end' class='ax'>{text}</text>",
            LEFT - 6.0,
            y + 3.5
        );
    }
    let step = ticks::step((frame.x.1 - frame.x.0) / ((right - LEFT) / 90.0).max(1.0));
    let step = if plot.by_time { step } else { step.max(1.0) };
    for v in ticks::multiples(frame.x.0, frame.x.1, step) {
        let x = frame.px(v);
        let text = if plot.by_time { format!("{} s", format::count(v)) } else { format!("{v}") };
        let anchor = if x > right - 20.0 { "end" } else { "middle" };
        let _ = write!(
            out,
            "<text x='{x:.1}' y='{}' text-anchor='{anchor}' class='ax'>{text}</text>",
            bottom + 15.0
        );
    }
}

/// A run's line, with at most two points a pixel: the least and the most of what falls on it.
fn line(plot: &Plot, frame: &Frame, number: usize, run: &Run, out: &mut String) {
    let wide = (frame.width - LEFT - RIGHT).max(1.0) as usize;
    let bucket = run.steps.len().div_ceil(wide).max(1);
    let mut path = String::new();
    let mut begin = true;
    for steps in run.steps.chunks(bucket) {
        let value = |step: &&StepMetrics| plot.quantity.of(step);
        let known = || steps.iter().filter(|step| value(step).is_finite());
        let least = known().min_by(|a, b| value(a).total_cmp(&value(b)));
        let most = known().max_by(|a, b| value(a).total_cmp(&value(b)));
        let (Some(least), Some(most)) = (least, most) else {
            begin = true;
            continue;
        };
        let mut ends = [least, most];
        ends.sort_by_key(|step| step.step);
        for step in &ends[..if bucket == 1 { 1 } else { 2 }] {
            let (x, y) = (frame.px(place(plot, step)), frame.py(value(step)));
            let _ = write!(path, "{}{x:.1} {y:.1}", if begin { "M" } else { "L" });
            begin = false;
        }
    }
    let (class, title) = (format!("ml m{}", number % 4), escape(&run.title(number)));
    if !path.is_empty() {
        let _ = write!(out, "<path d='{path}' class='{class}'><title>{title}</title></path>");
    }
    if plot.quantity == Quantity::Accuracy {
        for step in run.steps.iter().filter(|step| step.test_accuracy.is_finite()) {
            let (x, y) = (frame.px(place(plot, step)), frame.py(step.test_accuracy));
            let _ = write!(
                out,
                "<path d='M{x:.1} {:.1}l4 4-4 4-4-4z' class='pt'><title>{title}, {}: {}</title></path>",
                y - 4.0,
                t("test samples"),
                value(plot.quantity, step.test_accuracy)
            );
        }
    }
}

/// The colours of a drawing that stands alone: those of the light theme.
const STYLE: &str = "<style>text{font:11px Inter,Helvetica,Arial,sans-serif;fill:#46505d}.lb{font-weight:600;fill:#14181e}\
    .gr{stroke:#dde2e8}.pl{stroke:#0a5ea8;stroke-dasharray:4 3}.ml{fill:none;stroke:#14181e;stroke-width:1.5}\
    .m1{stroke-dasharray:6 3}.m2{stroke-dasharray:2 2}.m3{stroke-dasharray:8 3 2 3}.pt{fill:#fff;stroke:#0a5ea8}\
    .bd,.pk{display:none}</style>";

/// All pictures below each other, to be saved.
pub fn sheet(runs: &[Run], by_time: bool, predicted: impl Fn(Quantity) -> Option<f64>) -> String {
    let (width, height) = (760.0, 220.0);
    let mut out = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {}'>{STYLE}<rect width='100%' height='100%' fill='#ffffff'/>",
        height * 4.0
    );
    for (at, quantity) in Quantity::ALL.into_iter().enumerate() {
        let plot = Plot { quantity, runs, by_time, predicted: predicted(quantity), at: None };
        let y = height * at as f64;
        let _ = write!(out, "<g transform='translate(0 {y})'>{}</g>", draw(&plot, (width, height)));
    }
    out + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(count: u64) -> Run {
        let step = |step: u64| StepMetrics {
            step,
            time: step as f64 / 2.0,
            loss: 1.0 / (1.0 + step as f64),
            accuracy: f64::NAN,
            test_accuracy: if step == 3 { 0.5 } else { f64::NAN },
            step_secs: 0.5,
            bubble: 0.25,
        };
        Run { name: Some("<a>".into()), ranks: 1, steps: (0..count).map(step).collect() }
    }

    #[test]
    fn pictures_have_a_line_a_run_and_the_predicted_one() {
        let runs = [run(10), run(4)];
        for by_time in [false, true] {
            let of = |quantity, predicted| {
                let plot = Plot { quantity, runs: &runs, by_time, predicted, at: Some(9) };
                draw(&plot, (400.0, 160.0))
            };
            let loss = of(Quantity::Loss, None);
            assert_eq!(
                (loss.matches("class='ml m").count(), loss.matches("<circle").count()),
                (2, 2)
            );
            assert!(loss.contains("&lt;a&gt;") && !loss.contains("<a>"));
            let time = of(Quantity::StepTime, Some(0.4));
            assert!(time.contains("class='as-planned'") && time.contains("ms"), "{time}");
            let accuracy = of(Quantity::Accuracy, None);
            assert_eq!(accuracy.matches("class='ml m").count(), 0, "none was recorded");
            assert_eq!(accuracy.matches("class='pt'").count(), 2);
            for svg in [loss, time, accuracy] {
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            }
        }
        let empty = Plot {
            quantity: Quantity::Loss,
            runs: &[],
            by_time: true,
            predicted: None,
            at: Some(3),
        };
        assert!(!draw(&empty, (0.0, 0.0)).contains("NaN"));
    }

    #[test]
    fn long_runs_have_two_points_a_pixel_and_lose_no_peak() {
        let mut long = run(100_000);
        long.steps[54_321].loss = 7.0;
        let plot = Plot {
            quantity: Quantity::Loss,
            runs: &[long],
            by_time: false,
            predicted: None,
            at: None,
        };
        let svg = draw(&plot, (400.0, 160.0));
        assert!(svg.len() < 20_000, "{}", svg.len());
        let top = Frame::new(&plot, (400.0, 160.0)).py(7.0);
        assert!(svg.contains(&format!(" {top:.1}")), "{top}");
    }

    #[test]
    fn what_is_under_the_hand_is_read_in_all_runs() {
        let runs = [run(10), run(4)];
        let at = step_at(&runs, false, 400.0, 400.0 - RIGHT).unwrap();
        assert_eq!((at, step_at(&runs, true, 400.0, 0.0)), (9, Some(0)));
        let near: Vec<u64> =
            read(&runs, false, &runs[0].steps[at]).iter().map(|(_, s)| s.step).collect();
        assert_eq!(near, [9, 3]);
        assert_eq!(step_at(&[], false, 400.0, 5.0), None);
        assert_eq!(value(Quantity::StepTime, 0.0125), "12.50 ms");
        assert_eq!(value(Quantity::Loss, f64::NAN), "–");
        assert!(said(&runs, false, 9)[1].contains("step 3: loss 0.2500, accuracy –, 500.0 ms"));
        let table = table(&runs, false, 5);
        assert_eq!((table.matches("<tr>").count(), table.matches("<td").count()), (10, 50));
        assert!(names(&runs).contains("&lt;a&gt;: 10 steps, 1 rank"));
        let sheet = sheet(&runs, false, |_| Some(0.3));
        assert_eq!(sheet.matches("<svg").count(), 5);
        assert!(sheet.ends_with("</svg>\n"));
    }
}
