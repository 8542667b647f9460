//! What the Playground's regions share: the choice, the trainings, and the loop that runs them in slices
//! of a frame.

use crate::charts::palette::Palette;
use crate::charts::playground::curves::{Across, Up};
use crate::meter;
use crate::playground::choice::{Choice, Problem};
use crate::playground::presets;
use crate::playground::race::Race;
use crate::screen::Screen;
use crate::state::State;
use crate::texts::tr;
use leptos::prelude::*;

/// How fast the trainings run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// About ten steps a second.
    Slow,
    /// A step a frame.
    Steady,
    /// As many as fit into a frame.
    Fast,
}

/// Milliseconds of a frame for training: what is left draws.
const SLICE_MS: f64 = 5.0;
/// Frames between two steps at the slow pace.
const SLOW: u64 = 6;
/// Frames between two drawings of what is not a picture of a network.
const CALM: u64 = 4;
/// Steps after which trainings pause by themselves.
const ENOUGH: u64 = 1500;

/// Copied into every region.
#[derive(Clone, Copy)]
pub struct Lab {
    pub page: State,
    pub choice: RwSignal<Choice>,
    pub problem: RwSignal<Option<Problem>>,
    pub playing: RwSignal<bool>,
    pub pace: RwSignal<Pace>,
    pub across: RwSignal<Across>,
    pub up: RwSignal<Up>,
    race: StoredValue<Option<Race>, LocalStorage>,
    palette: StoredValue<(u32, Palette), LocalStorage>,
    /// The frame, and which network's picture is to be drawn in it; all without.
    pub turn: RwSignal<(u64, Option<usize>)>,
    /// Changes when numbers and curves are to be read again.
    pub seen: RwSignal<u64>,
    /// Whether a frame is asked for.
    asked: StoredValue<bool>,
    /// The step at which trainings pause.
    until: StoredValue<u64>,
}

impl Lab {
    pub fn new(page: State) -> Self {
        let lab = Self {
            page,
            choice: RwSignal::new(Choice::default()),
            problem: RwSignal::new(None),
            playing: RwSignal::new(false),
            pace: RwSignal::new(Pace::Steady),
            across: RwSignal::new(Across::Steps),
            up: RwSignal::new(Up::Accuracy),
            race: StoredValue::new_local(None),
            palette: StoredValue::new_local((page.theme.get_untracked(), Palette::read())),
            turn: RwSignal::new((0, None)),
            seen: RwSignal::new(0),
            asked: StoredValue::new(false),
            until: StoredValue::new(0),
        };
        lab.restart();
        // Links, and the browser's own back and forward.
        Effect::new(move |_| {
            let text = page.play.get();
            if text != lab.choice.with_untracked(Choice::to_link) {
                let (choice, problems) = Choice::of_link(&text);
                if !problems.is_empty() {
                    let list = problems.join("; ");
                    page.complain(tr!("Not everything in the link could be used: {list}.", list));
                }
                lab.choice.set(choice);
                lab.restart();
            }
        });
        // What nobody looks at does not run.
        Effect::new(move |_| {
            if page.screen.get() == Screen::Playground && lab.playing.get() {
                lab.ask();
            }
        });
        Effect::new(move |_| {
            page.theme.track();
            lab.palette.set_value((page.theme.get_untracked(), Palette::read()));
            lab.show_all();
        });
        if !calm() {
            lab.play(true);
        }
        lab
    }

    /// Looks at the trainings; none when the first choice does not fit together.
    pub fn with<T>(self, look: impl FnOnce(&Race) -> T) -> Option<T> {
        self.race.with_value(|race| race.as_ref().map(look))
    }

    /// The colours that hold.
    pub fn with_palette<T>(self, look: impl FnOnce(&Palette) -> T) -> T {
        self.palette.with_value(|(_, palette)| look(palette))
    }

    /// Changes the choice and begins anew; a step of the browser's history unless the hand is dragging.
    pub fn edit(self, dragging: bool, change: impl FnOnce(&mut Choice)) {
        let before = self.choice.get_untracked();
        let mut choice = before.clone();
        change(&mut choice);
        if choice != before {
            let text = choice.to_link();
            self.choice.set(choice);
            self.page.play.set(text);
            self.restart();
        }
        if dragging {
            crate::address::replace_soon(self.page);
        } else {
            crate::address::push(self.page);
        }
    }

    /// Back to the first weights. What does not fit together is said; the last trainings stay.
    pub fn restart(self) {
        match Race::new(&self.choice.get_untracked()) {
            Ok(race) => {
                self.race.set_value(Some(race));
                self.problem.set(None);
                self.until.set_value(ENOUGH);
            }
            Err(problem) => {
                self.problem.set(Some(problem));
                self.playing.set(false);
            }
        }
        self.show_all();
    }

    /// One step, by hand.
    pub fn step(self) {
        self.playing.set(false);
        self.advance();
        self.show_all();
    }

    /// Runs or pauses.
    pub fn play(self, on: bool) {
        let fits = self.problem.with_untracked(Option::is_none);
        if on && fits {
            let step = self.with(|race| race.step).unwrap_or(0);
            self.until.set_value(step + ENOUGH);
        }
        self.playing.set(on && fits);
        if !on {
            self.show_all();
        }
    }

    fn show_all(self) {
        self.turn.update(|turn| *turn = (turn.0 + 1, None));
        self.seen.update(|seen| *seen += 1);
    }

    fn advance(self) {
        if self.problem.with_untracked(Option::is_none) {
            self.race.update_value(|race| race.iter_mut().for_each(Race::advance));
        }
    }

    /// Asks for a frame, once.
    fn ask(self) {
        if !self.asked.get_value() {
            self.asked.set_value(true);
            request_animation_frame(move || self.frame());
        }
    }

    /// A slice of training, and one of the pictures.
    fn frame(self) {
        // The region may have gone since.
        if self.asked.try_set_value(false).is_some() {
            return;
        }
        let looked_at = self.page.screen.get_untracked() == Screen::Playground;
        if !looked_at || !self.playing.get_untracked() {
            return;
        }
        let (from, frame) = (meter::now(), self.turn.get_untracked().0);
        match self.pace.get_untracked() {
            Pace::Slow if frame.is_multiple_of(SLOW) => self.advance(),
            Pace::Slow => {}
            Pace::Steady => self.advance(),
            Pace::Fast => {
                self.advance();
                while meter::now() - from < SLICE_MS {
                    self.advance();
                }
            }
        }
        let (step, runs) = self.with(|race| (race.step, race.runs.len())).unwrap_or((0, 1));
        let turn = frame as usize % runs.max(1);
        self.turn.set((frame + 1, Some(turn)));
        if frame.is_multiple_of(CALM) {
            self.seen.update(|seen| *seen += 1);
        }
        meter::trained(from);
        if step >= self.until.get_value() {
            self.play(false);
        } else {
            self.ask();
        }
    }

    /// The preset that the choice is, if it is one.
    pub fn preset(self) -> Option<usize> {
        self.choice.with(|now| presets::ALL.iter().position(|preset| preset.choice() == *now))
    }
}

/// Whether the person asked for less motion: then nothing runs unasked.
fn calm() -> bool {
    let asked = window().match_media("(prefers-reduced-motion: reduce)").ok().flatten();
    asked.is_some_and(|media| media.matches())
}
