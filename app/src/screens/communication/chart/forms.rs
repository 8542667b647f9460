//! A form of parallel training at a moment: its devices with what they do, arrows of what travels, and
//! the step of every device below.

use crate::screens::communication::model::forms::{doing, says, travel};
use pipewright_core::cost::forms::{Doing, FormCost};
use pipewright_core::units::Nanos;
use std::fmt::Write;

/// Height of the picture of so many devices, CSS pixels.
pub fn height(devices: u32) -> f64 {
    96.0 + ROW * f64::from(devices)
}

const ROW: f64 = 9.0;
/// Middle of the devices.
const MIDDLE: f64 = 58.0;

fn class(doing: Option<Doing>) -> &'static str {
    match doing {
        Some(Doing::Forward) => "f",
        Some(Doing::Backward) => "b",
        Some(Doing::Communication) => "c",
        Some(Doing::Update) => "u",
        None => "no",
    }
}

/// `most` is the longest step of all forms, so that their times can be compared.
pub fn draw(cost: &FormCost, at: Nanos, most: Nanos, width: f64) -> String {
    let high = height(cost.devices);
    let mut out = format!(
        "<svg width='{width:.0}' height='{high:.0}' role='img' aria-label='{}'>",
        says(cost, at)
    );
    let pitch = width / f64::from(cost.devices);
    let x = |device: u32| (f64::from(device) + 0.5) * pitch;
    let half = (pitch / 2.0 - 3.0).clamp(6.0, 18.0);
    arrows(cost, at, (&x, half), &mut out);
    for device in 0..cost.devices {
        let class = class(doing(cost, device, at));
        let _ = write!(
            out,
            "<rect x='{:.1}' y='{:.1}' width='{:.1}' height='24' rx='4' class='dev {class}'/>\
             <text x='{:.1}' y='{:.1}' text-anchor='middle' class='dn {class}'>{device}</text>",
            x(device) - half,
            MIDDLE - 12.0,
            2.0 * half,
            x(device),
            MIDDLE + 4.0
        );
    }
    lines(cost, most, width, &mut out);
    let now = at.0.min(cost.step.0) as f64 / most.0.max(1) as f64 * width;
    let _ = write!(out, "<path d='M{now:.1} 84V{high:.0}' class='now'/>");
    out + "</svg>"
}

/// Bent upwards to the right and downwards to the left, so that both directions can be seen.
fn arrows(cost: &FormCost, at: Nanos, (x, half): (&dyn Fn(u32) -> f64, f64), out: &mut String) {
    for (from, to) in travel(cost, at).pairs {
        let (a, b) = (x(from), x(to));
        let up = if b > a { -1.0 } else { 1.0 };
        let edge = MIDDLE + up * 12.0;
        let (a, b) = (a + (b - a).signum() * half / 2.0, b - (b - a).signum() * half / 2.0);
        let bend = edge + up * (10.0 + (b - a).abs() / 14.0).min(34.0);
        let _ = write!(
            out,
            "<path d='M{a:.1} {edge:.1}C{a:.1} {bend:.1} {b:.1} {bend:.1} {b:.1} {edge:.1}' class='ar'/>\
             <path d='M{:.1} {:.1}L{b:.1} {edge:.1}L{:.1} {:.1}' class='ar'/>",
            b - 4.0,
            edge + up * 6.0,
            b + 4.0,
            edge + up * 6.0
        );
    }
}

/// The step of every device on one time axis; communication beside work is a thin line.
fn lines(cost: &FormCost, most: Nanos, width: f64, out: &mut String) {
    let scale = width / most.0.max(1) as f64;
    for part in &cost.parts {
        let thin = part.doing == Doing::Communication;
        let y = 90.0 + ROW * f64::from(part.device) + if thin { 2.0 } else { 0.0 };
        let _ = write!(
            out,
            "<rect x='{:.1}' y='{y:.1}' width='{:.1}' height='{}' class='{}'/>",
            part.start.0 as f64 * scale,
            ((part.end.0 - part.start.0) as f64 * scale).max(0.5),
            if thin { 3 } else { 7 },
            class(Some(part.doing))
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::engine::Ground;
    use crate::planner::presets::first;
    use crate::screens::communication::model::forms::rows;

    #[test]
    fn every_form_is_drawn_at_every_moment() {
        let inputs = first();
        for row in rows(&inputs, &Ground::of(&inputs), 4) {
            let cost = row.cost.unwrap();
            for at in
                crate::screens::communication::model::forms::moments(&cost).into_iter().step_by(3)
            {
                let svg = draw(&cost, at, cost.step, 300.0);
                assert_eq!(svg.matches("class='dev").count(), 4);
                assert!(!svg.contains("NaN") && svg.ends_with("</svg>"), "{svg}");
            }
        }
    }
}
