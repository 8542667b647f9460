//! The state of the page: what all screens share, what each has, and what is around them.

use super::here::seen::Seen;
use super::kinds::Kind;
use crate::base::screen::Screen;
use crate::base::settings;
use crate::planner::inputs::Inputs;
use crate::planner::link::{self, Asked};
use crate::screens::elastic::state::ElasticState;
use crate::screens::plan::state::PlanState;
use crate::screens::playground::state::PlaygroundState;
use crate::screens::recompute::state::{RecomputeState, Source};
use crate::screens::run::state::RunState;
use crate::state::State;
use crate::state::history::History;
use crate::state::request::Request;
use leptos::prelude::*;

/// Everything that can change. Copied into every part of the page.
#[derive(Clone, Copy)]
pub struct Page {
    pub state: State,
    pub plan: PlanState,
    pub run: RunState,
    pub recompute: RecomputeState,
    pub playground: PlaygroundState,
    pub elastic: ElasticState,
    /// Whether the list of keys is open.
    pub help: RwSignal<bool>,
    /// Whether the command palette is open.
    pub palette: RwSignal<bool>,
    /// Whether keys without Ctrl act outside of a widget (WCAG 2.1.4).
    pub number_keys: RwSignal<bool>,
    /// Files that are shown beside the plan, which the browser keeps with it.
    pub beside: StoredValue<Vec<(Kind, web_sys::File)>, LocalStorage>,
    /// How often some were opened.
    opened: RwSignal<usize>,
    /// What the machine offers that serves the page.
    pub here: Seen,
}

impl Page {
    /// The first choices; `requests` does what screens ask the page for.
    pub fn new(first: Inputs, requests: fn(Request)) -> Self {
        let run = RunState::new();
        Self {
            state: State::new(first, requests),
            plan: PlanState::new(),
            run,
            recompute: RecomputeState::new(Asked::default().keep),
            playground: PlaygroundState::new(),
            elastic: ElasticState::new(),
            help: RwSignal::new(false),
            palette: RwSignal::new(false),
            number_keys: RwSignal::new(settings::number_keys()),
            beside: StoredValue::new_local(vec![]),
            opened: RwSignal::new(0),
            here: Seen::new(run.offered),
        }
    }

    /// Files of such a kind are going to be shown, instead of others of it; metrics of several runs are shown together.
    pub fn shows(self, kind: Kind, files: Vec<web_sys::File>) {
        let more = kind == Kind::Metrics && self.run.runs.with_untracked(|runs| !runs.is_empty());
        self.beside.update_value(|beside| {
            beside.retain(|(other, _)| *other != kind || more);
            beside.extend(files.into_iter().map(|file| (kind, file)));
        });
        self.opened.update(|opened| *opened += 1);
    }

    /// How much of each kind of files is shown beside the plan: traces, metrics, tunings, jobs, graphs; last how often
    /// some were opened.
    pub fn shown_files(self) -> [usize; 6] {
        let graph = self.recompute.source.with(|source| matches!(source, Source::File(_)));
        [
            self.state.look.measured.with(|m| m.is_some().into()),
            self.run.runs.with(Vec::len),
            self.run.tuned.with(|tuned| tuned.is_some().into()),
            self.elastic.record.with(|record| record.is_some().into()),
            graph.into(),
            self.opened.get(),
        ]
    }

    /// Whether [`Page::undo`] (0) or [`Page::redo`] (1) would change something.
    pub fn can_travel(self, way: usize) -> bool {
        match self.state.screen.get() {
            Screen::Elastic => self.elastic.can_travel(way),
            _ if way == 0 => self.state.history.with(History::can_undo),
            _ => self.state.history.with(History::can_redo),
        }
    }

    /// Takes back what was done last on the screen that is seen.
    pub fn undo(self) {
        match self.state.screen.get_untracked() {
            Screen::Elastic => self.elastic.travel(self.state, 0),
            _ => self.state.undo(),
        }
    }

    /// Does again what was taken back.
    pub fn redo(self) {
        match self.state.screen.get_untracked() {
            Screen::Elastic => self.elastic.travel(self.state, 1),
            _ => self.state.redo(),
        }
    }

    /// Inputs, and what the screen that is seen is asked.
    pub fn link(self) -> String {
        let stage = match self.recompute.source.get_untracked() {
            Source::Stage(stage) => stage,
            // A file stays with the person.
            Source::File(_) => 0,
        };
        let asked = Asked { stage, keep: self.recompute.keep.get_untracked() };
        let screen = self.state.screen.get_untracked();
        let ground = self.state.ground.get_untracked();
        let write = |inputs: &Inputs| link::write(inputs, Some(&ground), screen, asked);
        let mut link = self.state.inputs.with_untracked(write);
        let play = self.playground.play.get_untracked();
        if screen == Screen::Playground && !play.is_empty() {
            link = link + "&play=" + play.as_str();
        }
        let job = self.elastic.job.get_untracked();
        if screen == Screen::Elastic && !job.is_empty() {
            link = link + "&job=" + job.as_str();
        }
        link
    }
}
