//! The Playground at work: the choice, the trainings, and the loop that runs them in slices of a frame.

use crate::base::meter;
use crate::base::screen::Screen;
use crate::base::texts::tr;
use crate::draw::canvas::Canvas;
use crate::draw::palette::Palette;
use crate::screens::playground::model::choice::{Choice, Problem};
use crate::screens::playground::model::race::Race;
use crate::screens::playground::state::PlaygroundState;
use crate::state::State;
use crate::state::request::Request;
use leptos::prelude::*;

/// Milliseconds of a frame for training at the fast pace: what is left draws.
const SLICE_MS: f64 = 5.0;
/// Frames between two steps at the slow pace.
const SLOW: u64 = 6;
/// Frames between two writings of what is not a picture of a network.
const CALM: u64 = 4;
/// Steps after which trainings pause by themselves.
const ENOUGH: u64 = 1500;

/// Everything that changes.
pub struct Inner {
    pub choice: Choice,
    pub problem: Option<Problem>,
    pub race: Option<Race>,
    pub playing: bool,
    /// Slow, a step a frame, as many as fit.
    pub pace: usize,
    /// Places in the tables of the chart's axes.
    pub across: usize,
    pub up: usize,
    pub palette: Palette,
    /// By training, and one for pixels on their way.
    pub canvases: Vec<Canvas>,
    pub room: Option<Canvas>,
    /// What was last written, by element.
    pub written: Vec<(String, String)>,
    frame: u64,
    /// Whether a frame is asked for.
    asked: bool,
    /// The step at which trainings pause.
    until: u64,
}

/// A handle to all of it.
#[derive(Clone, Copy)]
pub struct Lab {
    pub page: State,
    own: PlaygroundState,
    inner: StoredValue<Inner, LocalStorage>,
}

impl Lab {
    pub fn new(page: State, own: PlaygroundState) -> Self {
        let inner = Inner {
            choice: Choice::default(),
            problem: None,
            race: None,
            playing: false,
            pace: 1,
            across: 0,
            up: 0,
            palette: Palette::read(),
            canvases: vec![],
            room: Canvas::offscreen(),
            written: vec![],
            frame: 0,
            asked: false,
            until: ENOUGH,
        };
        Self { page, own, inner: StoredValue::new_local(inner) }
    }

    /// Works on what changes; nothing once the region has gone.
    pub fn with<T>(self, work: impl FnOnce(&mut Inner) -> T) -> Option<T> {
        self.inner.try_update_value(work)
    }

    /// The regions are on the page: follows links, themes, the screen; begins, unless less motion was
    /// asked for.
    pub fn start(self) {
        let (page, own) = (self.page, self.own);
        Effect::new(move |before: Option<()>| {
            let text = own.play.get();
            let old = self.with(|lab| lab.choice.to_link()).unwrap_or_default();
            if before.is_none() || text != old {
                let (choice, problems) = Choice::of_link(&text);
                if !problems.is_empty() {
                    let list = problems.join("; ");
                    page.complain(tr!("Not everything in the link could be used: {list}.", list));
                }
                self.with(|lab| lab.choice = choice);
                self.restart();
            }
        });
        Effect::new(move |_| {
            page.theme.track();
            self.with(|lab| lab.palette = Palette::read());
            self.show();
        });
        // What nobody looks at does not run; it goes on when it is seen again.
        Effect::new(move |_| {
            if page.screen.get() == Screen::Playground {
                self.show();
                self.ask();
            }
        });
        Effect::new(move |_| super::show::sheet(page.sheet.get()));
        super::show::follow_size(self);
        if !calm() {
            self.play(true);
        }
    }

    /// Changes the choice and begins anew; a step of the browser's history unless the hand is dragging.
    pub fn edit(self, dragging: bool, change: impl FnOnce(&mut Choice)) {
        let changed = self.with(|lab| {
            let before = lab.choice.to_link();
            change(&mut lab.choice);
            let now = lab.choice.to_link();
            (now != before).then_some(now)
        });
        if let Some(text) = changed.flatten() {
            self.own.play.set(text);
            self.restart();
        }
        if dragging {
            self.page.request(Request::Follow);
        } else {
            self.page.request(Request::Remember);
        }
    }

    /// Back to the first weights. What does not fit together is said; the last trainings stay.
    pub fn restart(self) {
        self.with(|lab| match Race::new(&lab.choice) {
            Ok(race) => {
                (lab.race, lab.problem, lab.until) = (Some(race), None, ENOUGH);
            }
            Err(problem) => {
                (lab.problem, lab.playing) = (Some(problem), false);
                if lab.race.as_ref().is_none_or(|race| race.runs.len() != lab.choice.ways.len()) {
                    // There is nothing from before to look at.
                    let usual = Choice { ways: lab.choice.ways.clone(), ..Choice::default() };
                    lab.race = Race::new(&usual).ok();
                }
            }
        });
        self.show();
    }

    /// One step, by hand.
    pub fn step(self) {
        self.with(|lab| {
            lab.playing = false;
            lab.advance();
        });
        self.show();
    }

    /// Runs or pauses.
    pub fn play(self, on: bool) {
        self.with(|lab| {
            lab.playing = on && lab.problem.is_none();
            lab.until = lab.race.as_ref().map_or(0, |race| race.step) + ENOUGH;
        });
        self.show();
        self.ask();
    }

    /// Writes everything anew.
    pub fn show(self) {
        self.with(|lab| {
            super::show::choice(lab);
            super::show::numbers(lab);
            (0..lab.choice.ways.len()).for_each(|at| super::show::picture(lab, at));
        });
    }

    /// Asks for a frame, once, while there is something to run.
    fn ask(self) {
        let ask = self.with(|lab| lab.playing && !std::mem::replace(&mut lab.asked, true));
        if ask == Some(true) {
            request_animation_frame(move || self.frame());
        }
    }

    /// A slice of training, and one of the pictures.
    fn frame(self) {
        let looked_at = self.page.screen.try_get_untracked() == Some(Screen::Playground);
        let from = meter::now();
        let ended = self.with(|lab| {
            lab.asked = false;
            if !looked_at || !lab.playing {
                return false;
            }
            lab.slice(from);
            let runs = lab.choice.ways.len().max(1);
            super::show::picture(lab, lab.frame as usize % runs);
            if lab.frame.is_multiple_of(CALM) {
                super::show::numbers(lab);
            }
            lab.frame += 1;
            lab.race.as_ref().is_some_and(|race| race.step >= lab.until)
        });
        meter::trained(from);
        match ended {
            Some(true) => self.play(false),
            Some(false) if looked_at => self.ask(),
            _ => {}
        }
    }
}

impl Inner {
    fn advance(&mut self) {
        if self.problem.is_none() {
            self.race.iter_mut().for_each(Race::advance);
        }
    }

    /// As many steps as the pace has in a frame that began at `from`.
    fn slice(&mut self, from: f64) {
        match self.pace {
            0 if !self.frame.is_multiple_of(SLOW) => {}
            2 => {
                self.advance();
                while meter::now() - from < SLICE_MS {
                    self.advance();
                }
            }
            _ => self.advance(),
        }
    }
}

/// Whether the person asked for less motion: then nothing runs unasked.
fn calm() -> bool {
    let asked = window().match_media("(prefers-reduced-motion: reduce)").ok().flatten();
    asked.is_some_and(|media| media.matches())
}
