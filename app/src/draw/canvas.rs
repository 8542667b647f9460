//! A canvas in CSS pixels, sharp on every screen, and the few shapes that all charts use.

use super::palette::Colour;
use leptos::prelude::{document, window};
use wasm_bindgen::{Clamped, JsCast, JsValue};
use web_sys::{CanvasPattern, CanvasRenderingContext2d, HtmlCanvasElement, ImageData};

/// A canvas and its context.
#[derive(Clone)]
pub struct Canvas {
    pub element: HtmlCanvasElement,
    pub ctx: CanvasRenderingContext2d,
    /// Device pixels per CSS pixel.
    pub ratio: f64,
}

/// Where text hangs on its position.
#[derive(Clone, Copy)]
pub enum Align {
    Left,
    Centre,
    Right,
}

impl Canvas {
    pub fn new(element: HtmlCanvasElement) -> Option<Self> {
        let ctx = element.get_context("2d").ok()??.dyn_into().ok()?;
        Some(Self { element, ctx, ratio: 1.0 })
    }

    /// An invisible one.
    pub fn offscreen() -> Option<Self> {
        Self::new(document().create_element("canvas").ok()?.dyn_into().ok()?)
    }

    /// Takes a size in CSS pixels and clears.
    pub fn resize(&mut self, width: f64, height: f64) {
        self.ratio = window().device_pixel_ratio().clamp(1.0, 3.0);
        let (w, h) = ((width * self.ratio).round() as u32, (height * self.ratio).round() as u32);
        // Setting the size, even to the same, throws the buffer away: only when it changed.
        if self.element.width() != w || self.element.height() != h {
            self.element.set_width(w.max(1));
            self.element.set_height(h.max(1));
        }
        let _ = self.ctx.set_transform(self.ratio, 0.0, 0.0, self.ratio, 0.0, 0.0);
        self.ctx.clear_rect(0.0, 0.0, width, height);
    }

    /// Restricts drawing to a rectangle until the returned guard is dropped.
    pub fn clip(&self, x: f64, y: f64, w: f64, h: f64) -> Clip<'_> {
        self.ctx.save();
        self.ctx.begin_path();
        self.ctx.rect(x, y, w, h);
        self.ctx.clip();
        Clip(&self.ctx)
    }

    pub fn fill(&self, colour: &Colour) {
        self.ctx.set_fill_style_str(&colour.css);
    }

    pub fn stroke(&self, colour: &Colour, width: f64) {
        self.ctx.set_stroke_style_str(&colour.css);
        self.ctx.set_line_width(width);
    }

    pub fn rect(&self, x: f64, y: f64, w: f64, h: f64) {
        self.ctx.fill_rect(x, y, w, h);
    }

    /// A filled rectangle with round corners.
    pub fn round(&self, x: f64, y: f64, w: f64, h: f64, r: f64) {
        self.ctx.begin_path();
        let _ = self.ctx.round_rect_with_f64(x, y, w, h, r);
        self.ctx.fill();
    }

    /// The outline of one.
    pub fn outline(&self, x: f64, y: f64, w: f64, h: f64, r: f64) {
        self.ctx.begin_path();
        let _ = self.ctx.round_rect_with_f64(x, y, w, h, r);
        self.ctx.stroke();
    }

    /// A straight line.
    pub fn line(&self, x0: f64, y0: f64, x1: f64, y1: f64) {
        self.ctx.begin_path();
        self.ctx.move_to(x0, y0);
        self.ctx.line_to(x1, y1);
        self.ctx.stroke();
    }

    pub fn dashed(&self, on: bool) {
        let dashes = js_sys::Array::new();
        if on {
            dashes.push(&JsValue::from_f64(3.0));
            dashes.push(&JsValue::from_f64(3.0));
        }
        let _ = self.ctx.set_line_dash(&dashes);
    }

    pub fn font(&self, weight: u16, size: u8, family: &str) {
        self.ctx.set_font(&format!("{weight} {size}px {family}"));
    }

    pub fn text(&self, text: &str, x: f64, y: f64, align: Align) {
        self.ctx.set_text_align(match align {
            Align::Left => "left",
            Align::Centre => "center",
            Align::Right => "right",
        });
        let _ = self.ctx.fill_text(text, x, y);
    }

    pub fn width_of(&self, text: &str) -> f64 {
        self.ctx.measure_text(text).map_or(0.0, |m| m.width())
    }

    /// Diagonal lines, 7 px apart, as a fill.
    pub fn hatch(&self, colour: &Colour) -> Option<CanvasPattern> {
        let size = (7.0 * self.ratio).round();
        let tile = Canvas::offscreen()?;
        tile.element.set_width(size as u32);
        tile.element.set_height(size as u32);
        tile.stroke(colour, self.ratio);
        for shift in [-size, 0.0, size] {
            tile.line(shift - 1.0, size + 1.0, shift + size + 1.0, -1.0);
        }
        self.ctx.create_pattern_with_html_canvas_element(&tile.element, "repeat").ok().flatten()
    }

    /// Replaces the content by an image of device pixels.
    pub fn put(&self, width: usize, rows: usize, pixels: &[u8]) {
        if self.element.width() != width as u32 || self.element.height() != rows as u32 {
            self.element.set_width(width as u32);
            self.element.set_height(rows as u32);
        }
        let image =
            ImageData::new_with_u8_clamped_array_and_sh(Clamped(pixels), width as u32, rows as u32);
        if let Ok(image) = image {
            let _ = self.ctx.put_image_data(&image, 0.0, 0.0);
        }
    }

    /// Row `row` of `source`, stretched over a rectangle without smoothing.
    pub fn stretch(&self, source: &Canvas, row: usize, rows: usize, to: [f64; 4]) {
        let [x, y, w, h] = to;
        self.ctx.set_image_smoothing_enabled(false);
        let (sw, sy, sh) = (f64::from(source.element.width()), row as f64, rows as f64);
        let _ =
            self.ctx.draw_image_with_html_canvas_element_and_sw_and_sh_and_dx_and_dy_and_dw_and_dh(
                &source.element,
                0.0,
                sy,
                sw,
                sh,
                x,
                y,
                w,
                h,
            );
    }
}

/// Ends the clipping.
pub struct Clip<'a>(&'a CanvasRenderingContext2d);

impl Drop for Clip<'_> {
    fn drop(&mut self) {
        self.0.restore();
    }
}
