//! Draws both timelines, once per animation frame at most.

use super::sides::{Pair, Seen};
use crate::base::format::Clock;
use crate::draw::bars::{self, Raster, Scene};
use crate::draw::canvas::Canvas;
use crate::draw::frame::{self, Frame};
use crate::draw::layout::{Layout, Scale};
use crate::draw::overlay::{self, Marks};
use crate::draw::palette::Palette;
use crate::draw::raster::Image;
use crate::draw::strips::{self, Strips};
use leptos::prelude::*;
use pipewright_core::units::Nanos;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use web_sys::HtmlCanvasElement;

/// One timeline's canvas.
struct Half {
    canvas: Canvas,
    /// The whole step, kept until what it is of changes.
    minimap: Canvas,
    drawn: Option<(Seen, u64, usize, u32)>,
    size: (f64, f64),
}

/// What outlives a frame.
struct Tools {
    halves: [Half; 2],
    /// Pixels on their way to a canvas.
    pixels: Canvas,
    image: Image,
    palette: Palette,
    theme: u32,
}

impl Tools {
    fn new(elements: [HtmlCanvasElement; 2]) -> Option<Self> {
        let half = |element| {
            let (canvas, minimap) = (Canvas::new(element)?, Canvas::offscreen()?);
            Some(Half { canvas, minimap, drawn: None, size: (0.0, 0.0) })
        };
        let [a, b] = elements.map(half);
        let (pixels, image) = (Canvas::offscreen()?, Image::default());
        Some(Self { halves: [a?, b?], pixels, image, palette: Palette::read(), theme: 0 })
    }
}

/// Asks for frames and draws them.
#[derive(Clone)]
pub struct Painter {
    tools: Rc<RefCell<Option<Tools>>>,
    asked: Rc<Cell<bool>>,
    state: Pair,
}

impl Painter {
    pub fn new(state: Pair) -> Self {
        Self { tools: Rc::default(), asked: Rc::default(), state }
    }

    /// Takes the two canvases once they exist.
    pub fn attach(&self, elements: [HtmlCanvasElement; 2]) {
        *self.tools.borrow_mut() = Tools::new(elements);
    }

    /// A canvas has another size on the page.
    pub fn resize(&self, index: usize, size: (f64, f64)) {
        if let Some(tools) = self.tools.borrow_mut().as_mut() {
            tools.halves[index].size = size;
        }
        self.ask();
    }

    /// Where things stand in a canvas.
    pub fn picture(&self, index: usize) -> Option<(Layout, Scale)> {
        let tools = self.tools.borrow();
        let (width, height) = tools.as_ref()?.halves[index].size;
        let seen = untrack(|| self.state.side(index))?;
        let view = untrack(|| self.state.visible());
        let layout = Layout::new(width, height, seen.timeline().lanes.len());
        (width > 0.0).then(|| (layout, layout.scale(view.from, view.to)))
    }

    /// Draws in the next frame.
    pub fn ask(&self) {
        if self.asked.replace(true) {
            return;
        }
        let painter = self.clone();
        request_animation_frame(move || {
            painter.asked.set(false);
            // The screen may have gone since, for another language.
            if painter.state.view.try_get_untracked().is_some() {
                untrack(|| painter.draw());
            }
        });
    }

    fn draw(&self) {
        let pictures = [self.picture(0), self.picture(1)];
        let mut tools = self.tools.borrow_mut();
        let Some(tools) = tools.as_mut() else { return };
        let theme = self.state.page.theme.get();
        if tools.theme != theme {
            tools.palette = Palette::read();
            tools.theme = theme;
        }
        for (index, picture) in pictures.into_iter().enumerate() {
            let (width, height) = tools.halves[index].size;
            tools.halves[index].canvas.resize(width, height);
            if let (Some((layout, scale)), Some(seen)) = (picture, self.state.side(index)) {
                self.half(tools, index, &seen, &layout, scale);
            }
        }
    }

    fn half(&self, tools: &mut Tools, index: usize, seen: &Seen, layout: &Layout, scale: Scale) {
        let full = self.state.full();
        let clock = Clock::of(Nanos(full as u64));
        let Tools { halves, pixels, image, palette, theme } = tools;
        let half = &mut halves[index];
        let timeline = seen.timeline();
        let width = layout.columns(half.canvas.ratio);
        let key = (seen.clone(), full as u64, width, *theme);
        if half.drawn.as_ref() != Some(&key) {
            bars::minimap(timeline, full, width, palette, image);
            half.minimap.put(width, timeline.lanes.len(), &image.pixels);
            half.drawn = Some(key);
        }
        let canvas = &half.canvas;
        let frame = Frame { canvas, palette, layout, scale, full, clock };
        frame::minimap(&frame, &half.minimap);
        frame::axis(&frame);
        frame::names(&frame, timeline);
        let page = self.state.page;
        let (arrivals, colour_by) = (&*seen.arrivals, page.look.colour_by.get());
        let scene = Scene { canvas, palette, layout, scale, timeline, arrivals, colour_by, clock };
        bars::draw(&scene, Raster::Empty(pixels, image));
        if page.look.critical.get() {
            bars::critical(&scene, &seen.path);
        }
        let (persistent, capacity) = (&seen.solved.persistent[..], seen.solved.capacity);
        let strips = Strips { canvas, palette, layout, scale, timeline, persistent, capacity };
        strips::draw(&strips, pixels, image);
        let selected = page.look.selected.get();
        overlay::draw(&scene, Marks { selected, hovered: None, range: None });
    }
}
