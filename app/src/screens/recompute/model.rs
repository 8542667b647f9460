//! The state of the Recompute view, and its side of the conversation with the worker.

use super::state::{RecomputeState, Source};
use crate::base::shared::Shared;
use crate::base::texts::{t, tr};
use crate::planner::wire::Wire;
use crate::state::State;
use crate::state::request::Request as PageRequest;
use leptos::prelude::*;
use pipewright_worker::protocol::{
    Described, Opened, Point, Progress, Reply, Request, Shown, Taken,
};
use std::cell::Cell;
use std::time::Duration;

thread_local! {
    /// Workers are told apart by numbers.
    static NEXT: Cell<u32> = const { Cell::new(0) };
}

/// A worker and what it works on.
struct Talk {
    number: u32,
    source: Source,
    wire: Wire,
}

/// How long a search goes on by itself, in milliseconds.
pub const SPAN: f64 = 30_000.0;

/// Steps of the budget over the whole range.
pub const STEPS: u64 = 1000;

/// Everything that the view shows.
#[derive(Clone, Copy)]
pub struct Recompute {
    pub page: State,
    pub own: RecomputeState,
    pub opened: RwSignal<Option<Shared<Opened>>>,
    pub progress: RwSignal<Progress>,
    pub shown: RwSignal<Shared<Shown>>,
    /// The cell that is pointed at or walked to.
    pub picked: RwSignal<Option<Described>>,
    pub failed: RwSignal<Option<String>>,
    /// Bytes that are allowed.
    pub budget: RwSignal<u64>,
    pub running: RwSignal<bool>,
    /// Milliseconds that were searched since the last start, and the moves at both ends.
    pub spent: RwSignal<(f64, u64, u64)>,
    /// Moves and best time since the budget was set.
    pub history: RwSignal<Vec<(u64, f64)>>,
    /// The worker of the graph that is shown.
    wire: StoredValue<Option<Talk>, LocalStorage>,
    /// The worker that is opening another one: until it has, the old one stays.
    coming: StoredValue<Option<Talk>, LocalStorage>,
    /// The source was set back, which is no wish to open it again.
    back: StoredValue<bool>,
    begun: StoredValue<(f64, u64)>,
}

impl Recompute {
    pub fn new(page: State, own: RecomputeState) -> Self {
        let all = Self {
            page,
            own,
            opened: RwSignal::new(None),
            progress: RwSignal::new(Progress::default()),
            shown: RwSignal::new(Shared::new(Shown::default())),
            picked: RwSignal::new(None),
            failed: RwSignal::new(None),
            budget: RwSignal::new(0),
            running: RwSignal::new(false),
            spent: RwSignal::new((0.0, 0, 0)),
            history: RwSignal::new(vec![]),
            wire: StoredValue::new_local(None),
            coming: StoredValue::new_local(None),
            back: StoredValue::new(false),
            begun: StoredValue::new((0.0, 0)),
        };
        all.follow();
        all
    }

    /// Opens what the page says, anew whenever that changes and the hand rests.
    fn follow(self) {
        let newest = StoredValue::new(0u32);
        Effect::new(move |first: Option<()>| {
            let source = self.own.source.get();
            // A file stays the same whatever becomes of the plan.
            if matches!(source, Source::Stage(_)) {
                self.page.inputs.track();
            }
            if self.back.get_value() {
                return self.back.set_value(false);
            }
            newest.update_value(|n| *n += 1);
            let mine = newest.get_value();
            let open = move || {
                if newest.try_get_value() == Some(mine) {
                    self.open(&source);
                }
            };
            match first {
                None => open(),
                Some(()) => set_timeout(open, Duration::from_millis(400)),
            }
        });
    }

    /// Starts a worker for another graph.
    fn open(self, source: &Source) {
        let request = match source {
            Source::File(_) => None,
            Source::Stage(stage) => {
                let plan = self.page.inputs.with_untracked(|i| i.plan());
                match plan {
                    // What it recomputes already is no part of the question.
                    Ok((plan, _)) => {
                        let plan = pipewright_core::plan::Plan { recompute: vec![], ..plan };
                        Some(Request::Stage { plan: plan.to_json(), stage: *stage })
                    }
                    Err(why) => return self.failed.set(Some(why.to_string())),
                }
            }
        };
        let number = NEXT.get();
        NEXT.set(number + 1);
        let wire = match Wire::start(move |reply| self.hear(number, reply)) {
            Ok(wire) => wire,
            Err(why) => return self.failed.set(Some(why)),
        };
        match (request, source) {
            (Some(request), _) => wire.ask(&request),
            (None, Source::File(file)) => wire.open(file),
            (None, Source::Stage(_)) => {}
        }
        self.coming.set_value(Some(Talk { number, source: source.clone(), wire }));
    }

    /// Worker `number` says something.
    fn hear(self, number: u32, reply: Reply) {
        let is = |talk: &Option<Talk>| talk.as_ref().is_some_and(|talk| talk.number == number);
        if self.coming.with_value(is) {
            match reply {
                Reply::Opened(opened) => {
                    // The old worker ends here.
                    self.wire.set_value(self.coming.try_update_value(Option::take).flatten());
                    self.take_graph(opened);
                }
                Reply::Failed { why } => self.refuse(why),
                _ => {}
            }
            return;
        }
        if !self.wire.with_value(is) {
            return;
        }
        match reply {
            Reply::Opened(_) => {}
            Reply::Progress(progress) => self.take_progress(progress),
            Reply::Shown(shown) => self.shown.set(Shared::new(*shown)),
            Reply::Described(node) => self.picked.set(Some(node)),
            Reply::Taken(taken) => self.take_away(taken),
            Reply::Plans(_) | Reply::Advice(_) | Reply::Orders(_) | Reply::Made(_) => {}
            Reply::Failed { why } => {
                self.running.set(false);
                self.failed.set(Some(why));
            }
        }
    }

    /// What was to be opened is none: what was open stays.
    fn refuse(self, why: String) {
        self.coming.set_value(None);
        self.failed.set(Some(why));
        let before = self.wire.with_value(|talk| talk.as_ref().map(|talk| talk.source.clone()));
        if let Some(source) = before.filter(|before| *before != self.own.source.get_untracked()) {
            self.back.set_value(true);
            self.own.source.set(source);
        }
    }

    /// A new graph: the share of memory that was asked for stays, and the search starts.
    fn take_graph(self, opened: Opened) {
        let share = self.own.keep.get_untracked();
        let base = opened.base;
        self.failed.set(None);
        self.picked.set(None);
        self.history.set(vec![]);
        self.progress.set(Progress { front: vec![base], best: base, ..Progress::default() });
        self.opened.set(Some(Shared::new(opened)));
        self.set_budget((base.peak as f64 * share) as u64, false);
        // Another graph may allow what this one does not.
        self.own.keep.set(share);
        self.start();
    }

    fn take_progress(self, progress: Progress) {
        let (begun, from) = self.begun.get_value();
        let spent = crate::base::meter::now() - begun;
        if self.running.get_untracked() {
            self.spent.set((spent, from, progress.moves));
            if spent > SPAN || progress.done {
                self.stop();
            }
        }
        let fits = progress.best.peak <= self.budget.get_untracked();
        if fits {
            self.history.update(|h| {
                // A long search is a few hundred points: every other one is let go.
                if h.len() >= 400 {
                    let mut index = 0;
                    h.retain(|_| {
                        index += 1;
                        index % 2 == 0
                    });
                }
                h.push((progress.moves, progress.best.time));
            });
        }
        self.progress.set(progress);
    }

    fn ask(self, request: &Request) {
        self.wire.with_value(|talk| {
            if let Some(talk) = talk {
                talk.wire.ask(request);
            }
        });
    }

    /// Allows so many bytes; while a hand is `moving` it the answer comes from what was found.
    pub fn set_budget(self, bytes: u64, moving: bool) {
        let Some(opened) = self.opened.get_untracked() else { return };
        let bytes = bytes.clamp(opened.floor.min(opened.base.peak), opened.base.peak);
        if bytes != self.budget.get_untracked() {
            self.budget.set(bytes);
            self.history.set(vec![]);
        }
        self.own.keep.set(bytes as f64 / opened.base.peak.max(1) as f64);
        self.ask(&Request::Budget { bytes, search: !moving });
        if !moving {
            self.page.request(PageRequest::Follow);
        }
    }

    pub fn start(self) {
        let moves = self.progress.with_untracked(|p| p.moves);
        self.begun.set_value((crate::base::meter::now(), moves));
        self.spent.set((0.0, moves, moves));
        self.running.set(true);
        self.ask(&Request::Run { on: true });
    }

    /// Stops; the best answer stays.
    pub fn stop(self) {
        self.running.set(false);
        self.ask(&Request::Run { on: false });
    }

    pub fn reseed(self) {
        self.ask(&Request::Reseed);
        self.start();
    }

    pub fn describe(self, cell: Option<u32>) {
        match cell {
            Some(cell)
                if self.picked.with_untracked(|p| p.as_ref().is_some_and(|p| p.cell == cell)) => {}
            Some(cell) => self.ask(&Request::Describe { cell }),
            None => self.picked.set(None),
        }
    }

    /// Asks for the answer that is shown, to use it.
    pub fn take(self) {
        self.ask(&Request::Take);
    }

    fn take_away(self, taken: Taken) {
        let page = self.page;
        let Some(stage) = taken.stage else {
            return match crate::base::download::download("sequence.json", &taken.text) {
                Ok(()) => page.say(t("Saved sequence.json: the order of computations.")),
                Err(_) => page
                    .complain(tr!("The browser refused to save {name}.", name = "sequence.json")),
            };
        };
        match taken.text.parse() {
            Ok(sequence) => {
                page.edit(|inputs| inputs.recompute(stage, sequence));
                page.screen.set(crate::base::screen::Screen::Plan);
                page.say(tr!(
                    "Stage {stage} now computes in this sequence. Ctrl+Z undoes it.",
                    stage
                ));
            }
            Err(why) => page.complain(tr!("The sequence cannot be used: {why}.", why)),
        }
    }

    /// The trade-offs found, without those that differ by less than a hair.
    pub fn solved(self) -> Vec<Point> {
        const ROWS: usize = 6;
        let front = self.progress.with(|p| p.front.clone());
        let base = self.opened.with(|o| o.as_ref().map(|o| o.base)).unwrap_or_default();
        let late = |point: &Point| point.time > base.time * 1.6;
        let useful: Vec<Point> = front.into_iter().filter(|p| !late(p)).collect();
        let (Some(first), Some(last)) = (useful.first(), useful.last()) else { return vec![] };
        let (least, most) = (first.peak as f64, last.peak as f64);
        // Equal factors of memory, as nobody wants ten budgets between 90 and 100 %.
        let factor = (most / least.max(1.0)).powf(1.0 / ROWS as f64);
        let mut rows: Vec<Point> = (0..=ROWS)
            .filter_map(|row| {
                let limit = least * factor.powi(row as i32) * 1.000_001;
                useful.iter().rfind(|p| p.peak as f64 <= limit).copied()
            })
            .collect();
        rows.dedup();
        rows.reverse();
        rows
    }
}
