//! The picture of a life: lanes of nodes, generations, the policy's answers, throughput, progress.

use super::lanes::{stays, works};
use super::rates::{progress, rates};
use super::scale::{ANSWERS, BAND, CURVE, LEFT, RIGHT, Rows, Scale};
use crate::base::format::{escape, scaled};
use crate::base::texts::{t, tr};
use crate::draw::ticks;
use crate::screens::elastic::model::moments::{self, Kind};
use pipewright_core::elastic::life::{Generation, Life};
use pipewright_core::elastic::{Occasion, Verdict};
use std::fmt::Write;

/// What progress is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Epochs of the life.
    Epochs,
    /// Steps, where nobody knows how long an epoch is.
    Steps,
}

impl Unit {
    fn caption(self) -> &'static str {
        match self {
            Unit::Epochs => t("epochs"),
            Unit::Steps => t("steps"),
        }
    }
}

/// What is drawn.
pub struct Picture<'a> {
    /// The life.
    pub life: &'a Life,
    /// Lanes, from above; empty: none.
    pub nodes: &'a [String],
    /// The time that is seen.
    pub scale: Scale,
    /// Upwards.
    pub unit: Unit,
    /// Samples a second at the top of the throughput, so that pictures can be compared.
    pub most: f64,
    /// In words: what it shows.
    pub label: String,
}

impl Picture<'_> {
    fn rows(&self) -> Rows {
        Rows::of(self.nodes.len())
    }
}

/// Draws it.
pub fn draw(picture: &Picture) -> String {
    let (rows, width) = (picture.rows(), picture.scale.width);
    let height = rows.height();
    let mut out = format!(
        "<svg width='{width}' height='{height}' viewBox='0 0 {width} {height}' role='img' aria-label=\"{}\">",
        escape(&picture.label)
    );
    axis(picture, &mut out);
    for (at, node) in picture.nodes.iter().enumerate() {
        lane(picture, at, node, &mut out);
    }
    names(&rows, picture.unit, &mut out);
    for (at, generation) in picture.life.generations.iter().enumerate() {
        band(picture, at, generation, &mut out);
    }
    answers(picture, &mut out);
    throughput(picture, &mut out);
    rising(picture, &mut out);
    out + "</svg>"
}

/// Writes into a picture; a String takes everything.
macro_rules! put {
    ($out:expr, $($rest:tt)*) => { let _ = write!($out, $($rest)*); };
}

fn axis(picture: &Picture, out: &mut String) {
    let rows = picture.rows();
    let (bottom, right) = (rows.bottom(), picture.scale.width - RIGHT);
    for (x, text) in picture.scale.marks() {
        let anchor = if x > right - 24.0 { "end" } else { "middle" };
        put!(
            out,
            "<path d='M{x:.1} 0V{bottom:.1}' class='gr'/><text x='{x:.1}' y='{:.1}' text-anchor='{anchor}' class='ax'>{text}</text>",
            bottom + 15.0
        );
    }
    for generation in picture.life.generations.iter().filter(|g| g.loss.is_some()) {
        let Some((at, _)) = generation.ended else { continue };
        if picture.scale.sees(at.0 as f64, at.0 as f64) {
            put!(
                out,
                "<path d='M{:.1} 0V{bottom:.1}' class='lost'/>",
                picture.scale.x(at.0 as f64)
            );
        }
    }
}

fn lane(picture: &Picture, at: usize, node: &str, out: &mut String) {
    let (rows, scale) = (picture.rows(), picture.scale);
    let (y, height) = (rows.lane(at), rows.bar());
    let middle = y + height / 2.0;
    put!(out, "<path d='M{LEFT} {middle:.1}H{:.1}' class='gr'/>", scale.width - RIGHT);
    if rows.pitch > 12.0 || at.is_multiple_of(2) {
        let name: String = node.chars().take(10).collect();
        put!(
            out,
            "<text x='{}' y='{:.1}' text-anchor='end' class='tx'>{}</text>",
            LEFT - 16.0,
            middle + 4.0,
            escape(&name)
        );
    }
    let bar = |out: &mut String, from: f64, to: f64, class: &str| {
        if scale.sees(from, to) {
            let (x, end) = (scale.clamped(from), scale.clamped(to));
            put!(
                out,
                "<rect x='{x:.1}' y='{y:.1}' width='{:.1}' height='{height:.1}' rx='2' class='{class}'/>",
                (end - x).max(1.0)
            );
        }
    };
    for stay in stays(picture.life, node) {
        bar(out, stay.from, stay.to, "there");
    }
    for (from, to) in works(picture.life, node) {
        bar(out, from, to, "works");
    }
}

/// What the rows under the lanes are.
fn names(rows: &Rows, unit: Unit, out: &mut String) {
    let [first, second] = rows.curves();
    let all = [
        (rows.band() + BAND / 2.0 + 4.0, t("ranks")),
        (rows.answers() + 4.0, t("policy")),
        (first - 4.0, t("samples/s")),
        (second - 4.0, unit.caption()),
    ];
    for (y, name) in all {
        put!(
            out,
            "<text x='{}' y='{y:.1}' text-anchor='end' class='cap'>{name}</text>",
            LEFT - 8.0
        );
    }
}

fn band(picture: &Picture, at: usize, generation: &Generation, out: &mut String) {
    let (scale, y) = (picture.scale, picture.rows().band());
    let end = generation.ended.map_or(picture.life.until, |(at, _)| at).0 as f64;
    let begin = generation.launched.0 as f64;
    if !scale.sees(begin, end) {
        return;
    }
    let trains = generation.training.map_or(end, |at| (at.0 as f64).min(end));
    let [x, from, to] = [begin, trains, end].map(|nanos| scale.clamped(nanos));
    let class = if at.is_multiple_of(2) { "gen" } else { "gen odd" };
    put!(
        out,
        "<rect x='{x:.1}' y='{y:.1}' width='{:.1}' height='{BAND}' class='start'/>\
         <rect x='{from:.1}' y='{y:.1}' width='{:.1}' height='{BAND}' class='{class}'/>",
        (from - x).max(0.0),
        (to - from).max(0.8)
    );
    if let Some(loss) = generation.loss.and(generation.ended) {
        let x = scale.clamped(loss.0.0 as f64);
        put!(out, "<path d='M{x:.1} {y:.1}v{BAND}' class='gone'/>");
    }
    let text = generation.ranks.to_string();
    let room = to - from;
    let text = if room > 74.0 { tr!("{ranks} ranks", ranks = text) } else { text };
    if room > 8.0 * text.chars().count() as f64 + 4.0 {
        put!(
            out,
            "<text x='{:.1}' y='{:.1}' text-anchor='middle' class='gt'>{text}</text>",
            (from + to) / 2.0,
            y + BAND / 2.0 + 4.0
        );
    }
}

/// The policy's answers; of those that fall into one pixel the gravest.
fn answers(picture: &Picture, out: &mut String) {
    let (scale, y) = (picture.scale, picture.rows().answers());
    let mut last = f64::NEG_INFINITY;
    let mut before: Option<&Verdict> = None;
    for asked in &picture.life.asked {
        let at = asked.at.0 as f64;
        let again = asked.occasion == Occasion::Timer && before == Some(&asked.verdict);
        before = Some(&asked.verdict);
        let kind = match asked.verdict {
            Verdict::Run { .. } => Kind::Run,
            Verdict::Wait { .. } => Kind::Wait,
            Verdict::Fail { .. } => Kind::Fail,
        };
        let x = scale.x(at);
        if again || !scale.sees(at, at) || (x - last < 5.0 && kind == Kind::Run) {
            continue;
        }
        last = x;
        let (class, r) = (kind.class(), ANSWERS / 2.0 - 4.0);
        let shape = match kind {
            Kind::Wait => format!(
                "M{:.1} {:.1}h4v12h-4zM{:.1} {:.1}h4v12h-4z",
                x - 5.0,
                y - r,
                x + 1.0,
                y - r
            ),
            Kind::Fail => format!("M{:.1} {:.1}l12 12m0 -12l-12 12", x - r, y - r),
            _ => format!("M{:.1} {:.1}v12l10 -6z", x - 3.0, y - r),
        };
        put!(out, "<path d='{shape}' class='ans {class}'/>");
    }
}

/// The frame of a curve: its caption and levels, the most that its axis shows.
fn levels(picture: &Picture, top: f64, most: f64, out: &mut String) -> f64 {
    let step = ticks::step(most / 2.2);
    let full = most.max(step) * 1.04;
    for value in ticks::multiples(step, full, step) {
        let y = top + CURVE - value / full * CURVE;
        put!(
            out,
            "<path d='M{LEFT} {y:.1}H{:.1}' class='gr'/><text x='{}' y='{:.1}' text-anchor='end' class='ax'>{}</text>",
            picture.scale.width - RIGHT,
            LEFT - 8.0,
            y + 4.0,
            short(value)
        );
    }
    put!(
        out,
        "<path d='M{LEFT} {:.1}H{:.1}' class='base'/>",
        top + CURVE,
        picture.scale.width - RIGHT
    );
    full
}

/// `12.5 k` without useless zeros.
fn short(value: f64) -> String {
    let text = scaled(value);
    let (number, prefix) = text.split_once(' ').unwrap_or((&text, ""));
    let number = match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    };
    format!("{number}{prefix}")
}

fn throughput(picture: &Picture, out: &mut String) {
    let (scale, top) = (picture.scale, picture.rows().curves()[0]);
    let full = levels(picture, top, picture.most, out).max(1e-9);
    let (bottom, height) = (top + CURVE, CURVE);
    let mut path = String::new();
    let mut at = f64::NEG_INFINITY;
    for rate in rates(picture.life, 3.0 * scale.pixel()) {
        if !scale.sees(rate.from, rate.to) {
            continue;
        }
        let (x, end) = (scale.clamped(rate.from), scale.clamped(rate.to));
        let y = bottom - rate.rate / full * height;
        if x > at + 0.5 {
            put!(path, "M{x:.1} {bottom:.1}");
        }
        put!(path, "L{x:.1} {y:.1}L{end:.1} {y:.1}");
        at = end;
        put!(path, "L{end:.1} {bottom:.1}M{end:.1} {bottom:.1}");
    }
    put!(out, "<path d='{path}' class='rate'/>");
}

fn rising(picture: &Picture, out: &mut String) {
    let (scale, life) = (picture.scale, picture.life);
    let top = picture.rows().curves()[1];
    let per = match picture.unit {
        Unit::Epochs => life.samples_epoch.max(1) as f64,
        // Steps of the size that the job began with: sizes may differ in their mini-batch.
        Unit::Steps => life.generations.first().map_or(1, |g| g.mini_batch.max(1)) as f64,
    };
    let most = life.samples_total.max(life.samples()).max(1) as f64 / per;
    let full = levels(picture, top, most, out);
    let y = |samples: f64| top + CURVE - samples / per / full * CURVE;
    let line = progress(life, scale.pixel());
    let mut path = String::new();
    for pair in line.windows(2) {
        let [(from, low), (to, high)] = [pair[0], pair[1]];
        if !scale.sees(from, to) {
            continue;
        }
        // Where the line crosses the edges of what is seen.
        let cut =
            |at: f64| low + (high - low) * ((at - from) / (to - from).max(1.0)).clamp(0.0, 1.0);
        let (a, b) = (from.max(scale.from), to.min(scale.to));
        if path.is_empty() {
            put!(path, "M{:.1} {:.1}", scale.x(a), y(cut(a)));
        }
        put!(path, "L{:.1} {:.1}", scale.x(b), y(cut(b)));
    }
    put!(out, "<path d='{path}' class='work'/>");
}

/// What is so at a moment, in words.
pub fn state_at(life: &Life, at: f64) -> String {
    let members = life.members.iter().rev().find(|(then, _)| then.0 as f64 <= at);
    let nodes = members.map_or(0, |(_, members)| members.len());
    let slots: u32 = members.map_or(0, |(_, members)| members.iter().map(|m| m.slots).sum());
    let ran = life.generations.iter().rev().find(|g| g.launched.0 as f64 <= at);
    let runs = ran.filter(|g| g.ended.is_none_or(|(end, _)| at < end.0 as f64));
    let does = match runs {
        Some(g) if g.training.is_some_and(|begin| begin.0 as f64 <= at) => {
            tr!("{title}, trains", title = moments::title(g))
        }
        Some(g) => tr!("{title}, starts", title = moments::title(g)),
        None => t("no ranks").to_owned(),
    };
    tr!("nodes: {nodes}, slots: {slots}; {does}", nodes, slots, does)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screens::elastic::chart::lanes;

    fn life() -> Life {
        let text = include_str!("../../../../../tests/data/elastic/losses.jsonl");
        crate::screens::elastic::model::read("losses.jsonl", text).unwrap().life
    }

    fn picture<'a>(life: &'a Life, nodes: &'a [String], from: f64, to: f64) -> Picture<'a> {
        let scale = Scale { from, to, width: 800.0 };
        Picture { life, nodes, scale, unit: Unit::Steps, most: 8000.0, label: "<a job>".into() }
    }

    #[test]
    fn everything_of_a_recorded_job_is_drawn_and_lies_inside() {
        let life = life();
        let nodes = lanes::nodes(&life);
        let until = life.until.0 as f64;
        let drawn = draw(&picture(&life, &nodes, 0.0, until));
        assert_eq!(drawn.matches("class='gen").count(), life.generations.len());
        let lost = life.generations.iter().filter(|g| g.loss.is_some()).count();
        assert_eq!(
            (drawn.matches("class='gone'").count(), drawn.matches("class='lost'").count()),
            (lost, lost)
        );
        assert!(drawn.contains("&lt;a job&gt;") && drawn.contains(">vm<"));
        assert!(drawn.matches("class='ans").count() >= 2 && drawn.contains("class='works'"));
        for bad in ["NaN", "inf", "='-"] {
            assert!(!drawn.contains(bad), "{bad} in {drawn}");
        }
        // Zoomed in on a second, or where nothing is.
        for (from, to) in [(until * 0.5, until * 0.5 + 1e9), (until * 3.0, until * 4.0)] {
            let near = draw(&picture(&life, &nodes, from, to));
            assert!(near.len() < drawn.len() && !near.contains("NaN"));
        }
        // A life of nothing.
        let none = Life::default();
        assert!(!draw(&picture(&none, &[], 0.0, 1.0)).contains("NaN"));
    }

    #[test]
    fn the_state_at_a_moment_is_said() {
        let life = life();
        let first = &life.generations[0];
        assert!(state_at(&life, 0.0).ends_with("no ranks"));
        let text = state_at(&life, first.training.unwrap().0 as f64 + 1.0);
        assert!(text.starts_with("nodes: 1, slots: 4; generation 1: 4 ranks"), "{text}");
        assert!(text.ends_with("trains"));
    }

    #[test]
    fn numbers_of_axes_are_short() {
        assert_eq!([0.5, 20.0, 2500.0, 1e6].map(short), ["0.5", "20", "2.5k", "1M"]);
    }
}
