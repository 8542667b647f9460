//! The state that all screens share: one signal of inputs, one memo for each arrow that follows from it.
//!
//! ```text
//! inputs -> graph, cluster -> costs -> solved -> arrivals -> critical path
//!    \-> before the last edit -> figures      \-> A: pinned, or split by layer count -> figures
//! ```

pub mod history;
mod look;
pub mod request;

use crate::base::meter;
use crate::base::screen::Screen;
use crate::base::shared::Shared;
use crate::draw::layout::View;
use crate::planner::choices::ModelChoice;
use crate::planner::engine::{self, Figures, Ground, LayerTime, Shown};
use crate::planner::inputs::Inputs;
use crate::planner::kept;
use history::History;
use leptos::prelude::*;
use look::Look;
use pipewright_core::cost::{Cluster, Costs};
use pipewright_core::graph::Graph;
use pipewright_core::schedule::ScheduleKind;
use pipewright_core::timeline::Timeline;
use pipewright_core::timeline::causes::{self, Arrivals};
use request::Request;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::Duration;

/// A line for the person: what happened, or what is wrong and what to do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Note {
    pub text: String,
    pub bad: bool,
    /// Lanes that a button offers instead of those that were refused, and with which schedule.
    pub instead: Option<(u32, ScheduleKind)>,
}

/// What can change for several screens. Copied into every view.
#[derive(Clone, Copy)]
pub struct State {
    pub inputs: RwSignal<Inputs>,
    pub history: RwSignal<History>,
    pub graph: Memo<Shared<Graph>>,
    pub cluster: Memo<Shared<Cluster>>,
    pub ground: Memo<Ground>,
    pub layers: Memo<Shared<Vec<LayerTime>>>,
    pub shown: Memo<Shown>,
    pub before: Memo<Option<Figures>>,
    pub baseline: Memo<Option<Figures>>,
    pub arrivals: Memo<Shared<Arrivals>>,
    pub path: Memo<Shared<Vec<(usize, usize)>>>,
    pub look: Look,
    pub note: RwSignal<Note>,
    pub sheet: RwSignal<bool>,
    pub screen: RwSignal<Screen>,
    /// Changes when colours do.
    pub theme: RwSignal<u32>,
    /// What the page does when it is asked.
    requests: fn(Request),
}

impl State {
    /// The first choices, and what does what the page is asked for.
    pub fn new(first: Inputs, requests: fn(Request)) -> Self {
        let inputs = RwSignal::new(first);
        let history = RwSignal::new(History::default());
        let model = Memo::new(move |_| inputs.with(|i| i.model.clone()));
        let machine = Memo::new(move |_| inputs.with(|i| (i.cluster.clone(), i.typed().cloned())));
        let graph = Memo::new(move |_| model.with(ModelChoice::graph));
        let cluster = Memo::new(move |_| {
            // Reading it also makes it follow the inputs; tracking alone does not.
            machine.with(|_| inputs.with_untracked(Inputs::cluster))
        });
        let ground = ground(inputs, graph, cluster);
        let layers = Memo::new(move |_| {
            ground.with(|g| Shared::new(engine::layer_times(&g.graph, &g.costs)))
        });
        let shown = shown(inputs, ground);
        // Of another model's step a change says nothing.
        let edited = move || {
            let last = history.with(|h| h.before().cloned());
            last.filter(|last| inputs.with(|inputs| inputs.model == last.model))
        };
        let before = figures(Box::new(edited), ground);
        let calm = when_calm(move || inputs.with(|i| graph.with(|g| engine::baseline(i, g))));
        let baseline = figures(Box::new(move || calm.get()), ground);
        let arrivals = Memo::new(move |_| shown.with(|s| Shared::new(s.solved.arrivals())));
        let path = Memo::new(move |_| {
            let found =
                shown.with(|s| arrivals.with(|a| causes::critical_path(&s.solved.timeline, a)));
            Shared::new(found)
        });
        Self {
            inputs,
            history,
            graph,
            cluster,
            ground,
            layers,
            shown,
            before,
            baseline,
            arrivals,
            path,
            look: Look::new(),
            note: RwSignal::new(Note::default()),
            sheet: RwSignal::new(false),
            screen: RwSignal::new(Screen::Plan),
            theme: RwSignal::new(0),
            requests,
        }
    }

    /// A position of a drag: shown at once, a step of undo only when released.
    pub fn drag(self, change: impl FnOnce(&mut Inputs)) {
        let mut next = self.inputs.get_untracked();
        change(&mut next);
        self.drag_to(next);
    }

    /// The same for all kinds of changes: as many copies of it would be a part of the page that is felt.
    fn drag_to(self, next: Inputs) {
        let now = self.inputs.get_untracked();
        if next == now {
            return;
        }
        meter::start();
        kept::keep(&now, &next);
        if !self.history.with_untracked(History::dragging) {
            self.history.update(|h| h.drag(&now));
        }
        self.inputs.set(next);
        self.request(Request::Follow);
    }

    /// The drag is over.
    pub fn release(self) {
        if !self.history.with_untracked(History::dragging) {
            return;
        }
        let now = self.inputs.get_untracked();
        let mut changed = false;
        self.history.update(|h| changed = h.release(&now));
        if changed {
            self.request(Request::Remember);
        }
    }

    /// The drag was for nothing: what there was before it is there again.
    pub fn abandon(self) {
        let start = self.history.with_untracked(|h| h.before().filter(|_| h.dragging()).cloned());
        if let Some(start) = start {
            self.drag_to(start);
            self.release();
        }
    }

    /// A change at once.
    pub fn edit(self, change: impl FnOnce(&mut Inputs)) {
        self.drag(change);
        self.release();
    }

    /// Another plan altogether, from a file or an example; A stays.
    pub fn load(self, inputs: Inputs) {
        self.look.view.set(None);
        self.look.range.set(None);
        self.replace(inputs);
    }

    /// Other choices for the same purpose; A stays.
    pub fn replace(self, inputs: Inputs) {
        self.edit(move |i| *i = Inputs { a: i.a.take(), ..inputs });
    }

    /// Another A; none: the plan itself, split by layer count.
    pub fn pin(self, a: Option<Inputs>) {
        self.edit(|i| i.a = a.map(|a| Box::new(a.alone())));
    }

    /// A becomes what is edited, and what was edited A.
    pub fn swap(self) {
        let other = self
            .inputs
            .with_untracked(|i| self.graph.with_untracked(|graph| engine::baseline(i, graph)));
        if let Some(other) = other {
            self.edit(|i| *i = Inputs { a: Some(Box::new(i.alone())), ..other });
        }
    }

    pub fn undo(self) {
        self.travel(|history, now| history.undo(now));
    }

    pub fn redo(self) {
        self.travel(|history, now| history.redo(now));
    }

    fn travel(self, step: impl FnOnce(&mut History, &Inputs) -> Option<Inputs>) {
        let now = self.inputs.get_untracked();
        let mut to = None;
        self.history.update(|h| to = step(h, &now));
        if let Some(inputs) = to {
            meter::start();
            self.inputs.set(inputs);
            self.request(Request::Remember);
        }
    }

    pub fn say(self, text: impl Into<String>) {
        self.note.set(Note { text: text.into(), ..Note::default() });
    }

    pub fn complain(self, text: impl Into<String>) {
        self.note.set(Note { text: text.into(), bad: true, instead: None });
    }

    /// Refuses a number of lanes with this schedule, and offers the most that the model has layers for.
    pub fn offer(self, text: String, most: u32, kind: ScheduleKind) {
        self.note.set(Note { text, bad: true, instead: Some((most, kind)) });
    }

    /// The measured step, when it is to be shown and has the plan's lanes.
    pub fn overlay(self) -> Option<Shared<Timeline>> {
        let lanes = self.shown.with(|s| s.solved.timeline.lanes.len());
        let measured = self.look.measured.get().filter(|_| self.look.show_measured.get())?;
        (measured.timeline.lanes.len() == lanes).then_some(measured.timeline)
    }

    /// Where the time axis ends when everything is seen: a hair after the last bar.
    pub fn full(self) -> f64 {
        let predicted = self.shown.with(|s| s.solved.timeline.step.0);
        let measured = self.overlay().map_or(0, |m| m.step.0);
        predicted.max(measured).max(1) as f64 * 1.006
    }

    /// The visible part of the time axis.
    pub fn visible(self) -> View {
        let full = self.full();
        let kept = self.look.view.get().filter(|v| v.from < full);
        kept.unwrap_or(View { from: 0.0, to: full })
    }

    /// Asks the page for something.
    pub fn request(self, request: Request) {
        (self.requests)(request);
    }

    /// Another screen, as a step of the browser's history.
    pub fn go(self, screen: Screen) {
        if self.screen.get_untracked() != screen {
            self.screen.set(screen);
            self.request(Request::Remember);
        }
    }
}

/// What the inputs are solved on; `graph` and `cluster` are theirs.
fn ground(
    inputs: RwSignal<Inputs>,
    graph: Memo<Shared<Graph>>,
    cluster: Memo<Shared<Cluster>>,
) -> Memo<Ground> {
    let samples = Memo::new(move |_| inputs.with(engine::samples));
    let precision = Memo::new(move |_| inputs.with(|i| i.rest.training.precision));
    let divided = Memo::new(move |_| inputs.with(|i| engine::Divided::of(&i.rest)));
    let network = Memo::new(move |_| engine::Network::new(graph.get(), divided.get()));
    Memo::new(move |_| {
        let (network, cluster, precision) = (network.get(), cluster.get(), precision.get());
        let graph = network.shard.clone();
        let costs = Costs::new(&graph, &cluster, samples.get(), precision);
        let times = inputs.with_untracked(|i| i.typed().cloned());
        Ground { graph, network, cluster, precision, costs: Shared::new(costs), times }
    })
}

/// The last plan that worked, and why the newest one does not.
fn shown(inputs: RwSignal<Inputs>, ground: Memo<Ground>) -> Memo<Shown> {
    Memo::new(move |old: Option<&Shown>| {
        let solved = inputs.with(|i| ground.with(|g| meter::solving(|| engine::solve(i, g))));
        match (solved, old) {
            (Ok(solved), _) => {
                remember(&solved.inputs, solved.figures);
                Shown { solved: Shared::new(solved), problem: None, stands_in: false }
            }
            (Err(why), Some(old)) => Shown { problem: Some(why), ..old.clone() },
            // A first state that does not fit together: links are repaired as far as they can be.
            (Err(why), None) => {
                let solved = Shared::new(inputs.with(engine::possible));
                Shown { solved, problem: Some(why), stands_in: true }
            }
        }
    })
}

thread_local! {
    /// Figures of the last states: what was shown before an edit need not be computed again.
    static KNOWN: RefCell<VecDeque<(Inputs, Figures)>> = const { RefCell::new(VecDeque::new()) };
}

const KNOWN_MAX: usize = 12;

fn remember(inputs: &Inputs, figures: Figures) {
    KNOWN.with_borrow_mut(|known| {
        known.push_front((inputs.alone(), figures));
        known.truncate(KNOWN_MAX);
    });
}

/// The figures of other inputs than those shown; computed again only when these change.
fn figures(
    other: Box<dyn Fn() -> Option<Inputs> + Send + Sync>,
    ground: Memo<Ground>,
) -> Memo<Option<Figures>> {
    let inputs = Memo::new(move |_| other().map(|inputs| inputs.alone()));
    Memo::new(move |_| {
        let inputs = inputs.get()?;
        let known = KNOWN.with_borrow(|k| k.iter().find(|(i, _)| *i == inputs).map(|(_, f)| *f));
        if known.is_some() {
            return known;
        }
        let ground = ground.with_untracked(|now| Ground::near(&inputs, now));
        let figures = engine::solve(&inputs, &ground).ok()?.figures;
        remember(&inputs, figures);
        Some(figures)
    })
}

/// The newest value at once where plans are solved quickly; where they are not, once the hand
/// rests, so that comparing does not halve the frame rate of a drag.
fn when_calm(
    newest: impl Fn() -> Option<Inputs> + Send + Sync + 'static,
) -> RwSignal<Option<Inputs>> {
    let newest = Memo::new(move |_| newest());
    let calm = RwSignal::new(newest.get_untracked());
    Effect::new(move |_| {
        let value = newest.get();
        if meter::last_solve() < SOLVE_QUICK_MS {
            calm.set(value);
            return;
        }
        let set = move || {
            if newest.with_untracked(|n| *n == value) {
                calm.set(value);
            }
        };
        set_timeout(set, Duration::from_millis(150));
    });
    calm
}

const SOLVE_QUICK_MS: f64 = 4.0;
