//! Draws both timelines, once per animation frame at most.

use super::sides::{Pair, Seen};
use crate::base::format::Clock;
use crate::draw::bars::{self, Raster, Scene};
use crate::draw::canvas::Canvas;
use crate::draw::frame::{self, Frame};
use crate::draw::layout::{AXIS, Layout, MINIMAP, Scale};
use crate::draw::overlay::{self, Marks};
use crate::draw::palette::Palette;
use crate::draw::raster::Image;
use crate::draw::strips::{self, Strips};
use leptos::prelude::*;
use pipewright_core::units::Nanos;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use web_sys::HtmlCanvasElement;

/// How two steps share the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrangement {
    /// A canvas each, one above the other.
    Stacked,
    /// One canvas: each lane has a row of the first step above one of the second.
    Joined,
}

/// A canvas.
pub(super) struct Half {
    pub canvas: Canvas,
    /// The whole step, kept until what it is of changes.
    pub minimap: Canvas,
    drawn: Option<(Seen, u64, usize, u32)>,
    size: (f64, f64),
}

/// What outlives a frame.
pub(super) struct Tools {
    pub halves: Vec<Half>,
    /// Pixels on their way to a canvas.
    pub pixels: Canvas,
    pub image: Image,
    pub palette: Palette,
    theme: u32,
}

impl Tools {
    fn new(elements: Vec<HtmlCanvasElement>) -> Option<Self> {
        let half = |element| {
            let (canvas, minimap) = (Canvas::new(element)?, Canvas::offscreen()?);
            Some(Half { canvas, minimap, drawn: None, size: (0.0, 0.0) })
        };
        let halves = elements.into_iter().map(half).collect::<Option<Vec<Half>>>()?;
        let (pixels, image) = (Canvas::offscreen()?, Image::default());
        Some(Self { halves, pixels, image, palette: Palette::read(), theme: 0 })
    }

    /// The minimap of a canvas shows this step.
    pub fn refresh_minimap(&mut self, index: usize, seen: &Seen, full: f64, layout: &Layout) {
        let half = &mut self.halves[index];
        let width = layout.columns(half.canvas.ratio);
        let key = (seen.clone(), full as u64, width, self.theme);
        if half.drawn.as_ref() != Some(&key) {
            let timeline = seen.timeline();
            bars::minimap(timeline, full, width, &self.palette, &mut self.image);
            half.minimap.put(width, timeline.lanes.len(), &self.image.pixels);
            half.drawn = Some(key);
        }
    }
}

/// Asks for frames and draws them.
#[derive(Clone)]
pub struct Painter {
    tools: Rc<RefCell<Option<Tools>>>,
    asked: Rc<Cell<bool>>,
    pub(super) state: Pair,
    arrangement: Arrangement,
}

/// Least pixels of a lane that shows two steps.
const JOINED_LANE: f64 = 32.0;

impl Painter {
    pub fn new(state: Pair, arrangement: Arrangement) -> Self {
        Self { tools: Rc::default(), asked: Rc::default(), state, arrangement }
    }

    /// Takes the canvases once they exist.
    pub fn attach(&self, elements: Vec<HtmlCanvasElement>) {
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
        let lanes = untrack(|| self.lanes(index))?;
        let view = untrack(|| self.state.visible());
        let layout = match self.arrangement {
            Arrangement::Stacked => self.whole(index)?,
            Arrangement::Joined => Layout { lanes, ..self.whole(0)?.row(index) },
        };
        Some((layout, layout.scale(view.from, view.to)))
    }

    /// The skeleton of a canvas.
    pub fn whole(&self, canvas: usize) -> Option<Layout> {
        let tools = self.tools.borrow();
        let (width, height) = tools.as_ref()?.halves.get(canvas)?.size;
        let joined = self.arrangement == Arrangement::Joined;
        untrack(|| {
            let other = self.lanes(1).filter(|_| joined).unwrap_or(0);
            let lanes = self.lanes(canvas)?.max(other);
            let least = if joined { JOINED_LANE } else { 0.0 };
            let rows = self.state.scroll[canvas].rows(self.state.page, least);
            (width > 0.0).then(|| Layout::new(width, height, lanes, rows))
        })
    }

    fn lanes(&self, index: usize) -> Option<usize> {
        self.state.sides[index].with(|seen| Some(seen.as_ref()?.timeline().lanes.len()))
    }

    /// Which step is at a height of a canvas.
    pub fn side_at(&self, canvas: usize, y: f64) -> usize {
        let joined = (self.arrangement == Arrangement::Joined).then(|| self.whole(0)).flatten();
        let Some(layout) = joined else { return canvas };
        let (upper, lower) = (layout.row(0), layout.row(1));
        let lane = layout.lane_at(y).unwrap_or(0);
        usize::from(y >= (upper.lane_y(lane) + upper.bar + lower.lane_y(lane)) / 2.0)
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
        let wholes: Vec<Option<Layout>> = match self.arrangement {
            Arrangement::Stacked => vec![self.whole(0), self.whole(1)],
            Arrangement::Joined => vec![self.whole(0)],
        };
        let mut tools = self.tools.borrow_mut();
        let Some(tools) = tools.as_mut() else { return };
        let theme = self.state.page.theme.get();
        if tools.theme != theme {
            tools.palette = Palette::read();
            tools.theme = theme;
        }
        for (index, whole) in wholes.iter().enumerate() {
            let (width, height) = tools.halves[index].size;
            tools.halves[index].canvas.resize(width, height);
            if let Some(whole) = whole {
                self.state.scroll[index].fit(whole);
            }
        }
        if self.arrangement == Arrangement::Joined {
            if let Some(whole) = &wholes[0] {
                self.joined(tools, whole, pictures);
            }
            return;
        }
        for (index, picture) in pictures.into_iter().enumerate() {
            if let (Some((layout, scale)), Some(seen)) = (picture, self.state.side(index)) {
                self.half(tools, index, &seen, &layout, scale);
            }
        }
    }

    fn half(&self, tools: &mut Tools, index: usize, seen: &Seen, layout: &Layout, scale: Scale) {
        let full = self.state.full();
        let clock = Clock::of(Nanos(full as u64));
        tools.refresh_minimap(index, seen, full, layout);
        let Tools { halves, pixels, image, palette, .. } = tools;
        let half = &halves[index];
        let timeline = seen.timeline();
        let canvas = &half.canvas;
        let frame = Frame { canvas, palette, layout, scale, full, clock };
        frame::minimap(&frame, &half.minimap);
        frame::axis(&frame);
        let top = MINIMAP + AXIS;
        let _under = canvas.clip(0.0, top, layout.width, layout.height - top);
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
