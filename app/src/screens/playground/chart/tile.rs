//! One network's picture on its canvas: what it says of the plane, and the points.

use super::boundary::{between, pixels};
use crate::draw::canvas::Canvas;
use crate::draw::palette::Palette;
use crate::screens::playground::model::data::Data;
use std::f64::consts::TAU;

/// Points that are shown: more hide what is behind them.
const SHOWN: usize = 220;
/// Places of the colours of forward and backward passes in [`Palette::actions`].
const CLASSES: [usize; 2] = [0, 2];

/// Draws shares of class 1, `side` a row, with points over them, on a square of `width` pixels.
pub fn draw(
    canvas: &mut Canvas,
    room: &Canvas,
    palette: &Palette,
    (shares, side): (&[f32], usize),
    data: &Data,
    width: f64,
) {
    canvas.resize(width, width);
    let colours = CLASSES.map(|at| &palette.actions[at]);
    room.put(side, side, &pixels(shares, palette.chart.rgb, colours.map(|c| c.rgb)));
    canvas.ctx.set_image_smoothing_enabled(true);
    let whole = canvas.ctx.draw_image_with_html_canvas_element_and_dw_and_dh(
        &room.element,
        0.0,
        0.0,
        width,
        width,
    );
    if whole.is_err() {
        return;
    }
    canvas.stroke(&palette.ink, 1.5);
    canvas.ctx.begin_path();
    for [ax, ay, bx, by] in between(shares, side) {
        canvas.ctx.move_to(f64::from(ax) * width, f64::from(ay) * width);
        canvas.ctx.line_to(f64::from(bx) * width, f64::from(by) * width);
    }
    canvas.ctx.stroke();
    let size = if width < 170.0 { 2.2 } else { 2.8 };
    canvas.stroke(&palette.chart, 0.8);
    let points = data.points.as_chunks::<2>().0.iter().zip(&data.classes);
    for ([x, y], class) in points.take(SHOWN) {
        let (x, y) = (f64::from(x + 1.0) / 2.0 * width, f64::from(1.0 - y) / 2.0 * width);
        canvas.fill(colours[usize::from(*class)]);
        canvas.ctx.begin_path();
        // Classes differ in shape, too.
        if *class == 0 {
            canvas.ctx.rect(x - size, y - size, 2.0 * size, 2.0 * size);
        } else {
            let _ = canvas.ctx.arc(x, y, size * 1.15, 0.0, TAU);
        }
        canvas.ctx.fill();
        canvas.ctx.stroke();
    }
}
