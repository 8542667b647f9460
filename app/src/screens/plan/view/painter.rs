//! Draws the timeline's two canvases, once per animation frame at most.

use crate::base::format::Clock;
use crate::base::meter;
use crate::base::shared::Shared;
use crate::draw::bars::{self, Raster, Scene};
use crate::draw::canvas::Canvas;
use crate::draw::frame::{self, Frame};
use crate::draw::layout::{AXIS, Layout, MINIMAP, Scale};
use crate::draw::overlay::{self, Marks};
use crate::draw::palette::{ColourBy, Palette};
use crate::draw::raster::Image;
use crate::draw::strips::{self, Strips};
use crate::screens::plan::state::PlanState;
use crate::state::State;
use leptos::prelude::*;
use pipewright_core::timeline::Timeline;
use std::cell::RefCell;
use std::rc::Rc;

/// Canvases, colours and buffers that outlive a frame.
struct Tools {
    base: Canvas,
    marks: Canvas,
    /// Pixels on their way to the base canvas.
    pixels: Canvas,
    /// The whole step, kept until the timeline changes.
    minimap: Canvas,
    image: Image,
    palette: Palette,
    theme: u32,
    drawn: Option<(Shared<crate::planner::engine::Solved>, u64, u32)>,
    size: (f64, f64),
}

impl Tools {
    fn new(base: web_sys::HtmlCanvasElement, marks: web_sys::HtmlCanvasElement) -> Option<Self> {
        Some(Self {
            base: Canvas::new(base)?,
            marks: Canvas::new(marks)?,
            pixels: Canvas::offscreen()?,
            minimap: Canvas::offscreen()?,
            image: Image::default(),
            palette: Palette::read(),
            theme: 0,
            drawn: None,
            size: (0.0, 0.0),
        })
    }
}

/// Asks for frames and draws them.
#[derive(Clone)]
pub struct Painter {
    tools: Rc<RefCell<Option<Tools>>>,
    pending: Rc<RefCell<Pending>>,
    state: State,
    own: PlanState,
}

#[derive(Default)]
struct Pending {
    asked: bool,
    base: bool,
}

impl Painter {
    pub fn new(state: State, own: PlanState) -> Self {
        Self { tools: Rc::default(), pending: Rc::default(), state, own }
    }

    /// Takes the two canvases once they exist.
    pub fn attach(&self, base: web_sys::HtmlCanvasElement, marks: web_sys::HtmlCanvasElement) {
        *self.tools.borrow_mut() = Tools::new(base, marks);
    }

    /// The size that the canvases have on the page changed.
    pub fn resize(&self, width: f64, height: f64) {
        if let Some(tools) = self.tools.borrow_mut().as_mut() {
            tools.size = (width, height);
        }
        self.ask(true);
    }

    /// The skeleton of the picture on screen.
    pub fn layout(&self) -> Option<Layout> {
        let tools = self.tools.borrow();
        let (width, height) = tools.as_ref()?.size;
        let lanes = self.state.shown.with_untracked(|s| s.solved.timeline.lanes.len());
        let rows = untrack(|| self.own.scroll.rows(self.state, 0.0));
        (width > 0.0).then(|| Layout::new(width, height, lanes, rows))
    }

    /// The time axis of the picture on screen.
    pub fn scale(&self) -> Option<Scale> {
        let view = untrack(|| self.state.visible());
        Some(self.layout()?.scale(view.from, view.to))
    }

    /// Draws in the next frame: the marks, or everything.
    pub fn ask(&self, base: bool) {
        let mut pending = self.pending.borrow_mut();
        pending.base |= base;
        if std::mem::replace(&mut pending.asked, true) {
            return;
        }
        let painter = self.clone();
        request_animation_frame(move || {
            let base = {
                let mut pending = painter.pending.borrow_mut();
                pending.asked = false;
                std::mem::take(&mut pending.base)
            };
            let from = meter::now();
            painter.draw(base);
            if base {
                meter::drawn(from);
            }
        });
    }

    fn draw(&self, base: bool) {
        let Some(layout) = self.layout() else { return };
        self.own.scroll.fit(&layout);
        let mut tools = self.tools.borrow_mut();
        let Some(tools) = tools.as_mut() else { return };
        untrack(|| {
            let theme = self.state.theme.get();
            if tools.theme != theme {
                tools.palette = Palette::read();
                tools.theme = theme;
            }
            if base {
                self.draw_base(tools, &layout);
            }
            self.draw_marks(tools, &layout);
        });
    }

    fn draw_base(&self, tools: &mut Tools, layout: &Layout) {
        let state = self.state;
        let (shown, arrivals) = (state.shown.get(), state.arrivals.get());
        let timeline = &shown.solved.timeline;
        let view = state.visible();
        let scale = layout.scale(view.from, view.to);
        let clock = Clock::of(timeline.step);
        let full = state.full();
        tools.base.resize(layout.width, layout.height);
        self.refresh_minimap(tools, layout, &shown.solved, full);
        let Tools { base, pixels, minimap, image, palette, .. } = tools;
        let frame = Frame { canvas: base, palette, layout, scale, full, clock };
        frame::minimap(&frame, minimap);
        frame::axis(&frame);
        // What is scrolled goes under the axis.
        let top = MINIMAP + AXIS;
        let _under = base.clip(0.0, top, layout.width, layout.height - top);
        frame::names(&frame, timeline);
        let colour_by = state.look.colour_by.get();
        let scene = Scene {
            canvas: base,
            palette,
            layout,
            scale,
            timeline,
            arrivals: &arrivals,
            colour_by,
            clock,
        };
        let whole = view.from == 0.0 && view.to == full && colour_by == ColourBy::Kind;
        bars::draw(
            &scene,
            if whole { Raster::Drawn(minimap) } else { Raster::Empty(pixels, image) },
        );
        bars::exchanged(&scene, &shown.solved.exchanged);
        if let Some(measured) = state.overlay() {
            bars::measured(&scene, &measured);
        }
        if state.look.critical.get() {
            bars::critical(&scene, &state.path.get());
        }
        let (persistent, capacity) = (&shown.solved.persistent[..], shown.solved.capacity);
        let strips =
            Strips { canvas: base, palette, layout, scale, timeline, persistent, capacity };
        strips::draw(&strips, pixels, image);
    }

    /// The minimap shows the whole step: it only changes with the timeline, size or theme.
    fn refresh_minimap(
        &self,
        tools: &mut Tools,
        layout: &Layout,
        solved: &Shared<crate::planner::engine::Solved>,
        full: f64,
    ) {
        let width = layout.columns(tools.base.ratio);
        let key =
            (solved.clone(), (width as u64) << 40 | (full as u64 & 0xff_ffff_ffff), tools.theme);
        if tools.drawn.as_ref() == Some(&key) {
            return;
        }
        let timeline: &Timeline = &solved.timeline;
        bars::minimap(timeline, full, width, &tools.palette, &mut tools.image);
        tools.minimap.put(width, timeline.lanes.len(), &tools.image.pixels);
        tools.drawn = Some(key);
    }

    fn draw_marks(&self, tools: &mut Tools, layout: &Layout) {
        let state = self.state;
        let (shown, arrivals) = (state.shown.get(), state.arrivals.get());
        let view = state.visible();
        tools.marks.resize(layout.width, layout.height);
        let scene = Scene {
            canvas: &tools.marks,
            palette: &tools.palette,
            layout,
            scale: layout.scale(view.from, view.to),
            timeline: &shown.solved.timeline,
            arrivals: &arrivals,
            colour_by: state.look.colour_by.get(),
            clock: Clock::of(shown.solved.timeline.step),
        };
        let marks = Marks {
            selected: state.look.selected.get(),
            hovered: self.own.hovered.get(),
            range: state.look.range.get(),
        };
        overlay::draw(&scene, marks);
    }
}
