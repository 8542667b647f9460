//! The Elastic view at work: the scenario, what follows from it, and what is looked at.

use super::scripts::{Asked, compile};
use super::show;
use crate::base::screen::Screen;
use crate::base::texts::tr;
use crate::base::{later, meter};
use crate::planner::inputs::Inputs;
use crate::screens::elastic::chart::lanes;
use crate::screens::elastic::chart::scale::Scale;
use crate::screens::elastic::model::moments::{self, Moment};
use crate::screens::elastic::model::scenario::{Chosen, Scenario};
use crate::screens::elastic::model::simulate::{self, predict, replica, wanted};
use crate::screens::elastic::state::ElasticState;
use crate::state::State;
use leptos::prelude::*;
use leptos::task::spawn_local;
use pipewright_core::elastic::life::Life;
use pipewright_core::elastic::{BatchRule, Size};
use pipewright_core::plan::Plan;

/// Milliseconds of predicting between two breaths of the page.
const SLICE_MS: f64 = 30.0;

/// A life with what is told of it.
pub struct Told {
    pub life: Life,
    pub moments: Vec<Moment>,
}

impl Told {
    pub fn new(life: Life) -> Self {
        Self { moments: moments::of(&life), life }
    }
}

/// What lives are simulated on: the plan of the page at every size.
pub struct Ground {
    inputs: Inputs,
    rule: BatchRule,
    slots: u32,
    pub plan: Plan,
    pub sizes: Vec<Size>,
}

/// A policy that was read, or why it was not.
type Read = Option<(Chosen, Result<Asked, String>)>;

/// An event that is being dragged.
pub struct Drag {
    pub event: usize,
    /// Where the pointer went down, and the event's time then.
    pub from: (f64, u64),
    pub moved: bool,
}

/// Everything that changes.
pub struct Inner {
    pub scenario: Scenario,
    pub ground: Option<Ground>,
    pub policies: [Read; 2],
    pub lives: [Option<Told>; 2],
    pub record: Option<(String, Told)>,
    /// Whether the record is shown, and not the simulation.
    pub recorded: bool,
    /// Why nothing can be simulated, or what is being done.
    pub busy: String,
    /// The time that is seen, in nanoseconds; none: all.
    pub view: Option<(f64, f64)>,
    /// The life whose moments are listed, and the one that is looked at.
    pub listed: usize,
    pub selected: Option<usize>,
    pub drag: Option<Drag>,
    /// Lanes of nodes that have no event yet.
    pub spare: Vec<String>,
    /// What was last written, by element.
    pub written: Vec<(String, String)>,
    /// Number of the newest wish to simulate.
    turn: u64,
}

impl Inner {
    /// The lives that are shown.
    pub fn shown(&self) -> [Option<&Told>; 2] {
        match (&self.record, self.recorded) {
            (Some((_, told)), true) => [Some(told), None],
            _ => self.lives.each_ref().map(Option::as_ref),
        }
    }

    /// Ranks of one pipeline of the plan.
    pub fn replica(&self) -> u32 {
        self.ground.as_ref().map_or(1, |ground| replica(&ground.plan))
    }

    /// Lanes of the picture.
    pub fn nodes(&self) -> Vec<String> {
        if self.recorded {
            return self.record.as_ref().map_or(vec![], |(_, told)| lanes::nodes(&told.life));
        }
        let mut nodes = self.scenario.nodes();
        nodes.extend(
            self.spare.iter().filter(|name| !nodes.contains(name)).cloned().collect::<Vec<_>>(),
        );
        nodes
    }

    /// The end of all that can be seen, in nanoseconds.
    pub fn full(&self) -> f64 {
        let ends = self.shown().into_iter().flatten().map(|told| told.life.until.0 as f64);
        let events = self.scenario.events.iter().map(|event| event.at as f64 * 1e6);
        let last = ends.fold(0.0, f64::max);
        let last = if self.recorded { last } else { events.fold(last, f64::max) };
        (last * 1.02).max(1e9)
    }

    /// The axis for a picture of a width.
    pub fn scale(&self, width: f64) -> Scale {
        let full = self.full();
        let (from, to) = self.view.filter(|(from, _)| *from < full).unwrap_or((0.0, full));
        Scale { from, to, width }
    }

    /// The moments of the life that is listed.
    pub fn moments(&self) -> &[Moment] {
        let listed = if self.recorded { 0 } else { self.listed };
        self.shown()[listed].map_or(&[], |told| &told.moments)
    }
}

/// A handle to all of it.
#[derive(Clone, Copy)]
pub struct Lab {
    pub page: State,
    own: ElasticState,
    inner: StoredValue<Inner, LocalStorage>,
}

impl Lab {
    pub fn new(page: State, own: ElasticState) -> Self {
        let inner = Inner {
            scenario: Scenario::default(),
            ground: None,
            policies: [None, None],
            lives: [None, None],
            record: None,
            recorded: false,
            busy: String::new(),
            view: None,
            listed: 0,
            selected: None,
            drag: None,
            spare: vec![],
            written: vec![],
            turn: 0,
        };
        Self { page, own, inner: StoredValue::new_local(inner) }
    }

    /// Works on what changes; nothing once the region has gone.
    pub fn with<T>(self, work: impl FnOnce(&mut Inner) -> T) -> Option<T> {
        self.inner.try_update_value(work)
    }

    /// The regions are on the page: follows links, files, the plan and the size of the window.
    pub fn start(self) {
        let (page, own) = (self.page, self.own);
        Effect::new(move |before: Option<()>| {
            let text = own.job.get();
            let old = self.with(|lab| lab.scenario.to_link()).unwrap_or_default();
            if before.is_none() || text != old {
                let (scenario, problems) = Scenario::of_link(&text);
                if !problems.is_empty() {
                    let list = problems.join("; ");
                    page.complain(tr!("Not everything in the link could be used: {list}.", list));
                }
                self.with(|lab| (lab.scenario, lab.spare) = (scenario, vec![]));
                self.show();
                self.simulate();
            }
        });
        Effect::new(move |_| {
            if let Some(record) = own.record.get() {
                self.with(|lab| {
                    lab.record = Some((record.name.clone(), Told::new(record.life.clone())));
                    (lab.recorded, lab.view, lab.selected) = (true, None, None);
                });
                self.show();
            }
        });
        // Another plan has other sizes; it waits until somebody looks.
        Effect::new(move |_| {
            page.inputs.track();
            if page.screen.get() == Screen::Elastic {
                self.simulate();
            }
        });
        Effect::new(move |_| show::sheet(page.sheet.get()));
        show::follow_size(self);
    }

    /// Changes the scenario; a step of undo unless the hand is still moving.
    pub fn edit(self, moving: bool, change: impl FnOnce(&mut Scenario)) {
        let changed = self.with(|lab| {
            let before = lab.scenario.clone();
            change(&mut lab.scenario);
            lab.scenario != before
        });
        // The link follows when the hand rests.
        if !moving {
            self.commit();
        }
        if changed == Some(true) {
            self.show();
            self.simulate();
        }
    }

    /// What is on the page becomes what is in the link: a step of undo.
    pub fn commit(self) {
        let text = self.with(|lab| lab.scenario.to_link()).unwrap_or_default();
        if text != self.own.job.get_untracked() {
            self.own.ask(self.page, text);
        }
    }

    /// Simulates both lives, once sizes and policies are known. The newest wish wins.
    pub fn simulate(self) {
        spawn_local(async move { self.run().await });
    }

    async fn run(self) {
        let begun = self.with(|lab| {
            lab.turn += 1;
            (lab.turn, lab.scenario.clone())
        });
        let Some((turn, scenario)) = begun else { return };
        for at in 0..2 {
            self.read_policy(at, &scenario.policies[at]).await;
        }
        if !self.is(turn) || !self.find_sizes(turn, &scenario).await {
            return;
        }
        self.with(|lab| {
            lab.busy.clear();
            let Some(ground) = &lab.ground else { return };
            let job = simulate::job(&scenario, &ground.plan, &ground.sizes);
            let replica = replica(&ground.plan);
            for at in 0..2 {
                lab.lives[at] = match &lab.policies[at] {
                    Some((_, Ok(policy))) => {
                        let life =
                            simulate::simulate(&scenario, replica, &job, &**policy, &meter::now);
                        Some(Told::new(life))
                    }
                    // What is wrong is said at the policy; its last life stays.
                    _ => lab.lives[at].take(),
                };
            }
            let count = lab.moments().len();
            lab.selected = lab.selected.filter(|at| *at < count);
        });
        self.show();
    }

    fn is(self, turn: u64) -> bool {
        self.with(|lab| lab.turn == turn).unwrap_or(false)
    }

    async fn read_policy(self, at: usize, chosen: &Chosen) {
        let known = self.with(|lab| lab.policies[at].as_ref().is_some_and(|(of, _)| of == chosen));
        if known != Some(false) {
            return;
        }
        let read = match chosen {
            Chosen::Text(text) => Chosen::built_in(text).map(|policy| Box::new(policy) as Asked),
            Chosen::Script(text) => {
                compile(text.clone()).await.unwrap_or_else(|missing| Err(missing.to_string()))
            }
        };
        self.with(|lab| lab.policies[at] = Some((chosen.clone(), read)));
    }

    /// Predicts every size that the plan can have, with breaths between; whether this is still wanted
    /// afterwards.
    async fn find_sizes(self, turn: u64, scenario: &Scenario) -> bool {
        let inputs = self.page.inputs.get_untracked().alone();
        let slots = scenario.most_slots(inputs.ranks_of_replica());
        let known = |ground: &Ground| {
            ground.inputs == inputs && ground.rule == scenario.rule && ground.slots >= slots
        };
        if self.with(|lab| lab.ground.as_ref().is_some_and(known)) == Some(true) {
            return true;
        }
        let plan = match inputs.plan() {
            Ok((plan, _)) => plan,
            Err(why) => {
                self.with(|lab| {
                    lab.busy = tr!("The plan cannot be simulated: {why}.", why);
                    (lab.ground, lab.lives) = (None, [None, None]);
                });
                self.show();
                return false;
            }
        };
        let (all, mut sizes) = (wanted(&plan, slots), vec![]);
        let mut since = meter::now();
        for (number, ranks) in all.iter().enumerate() {
            predict(&plan, *ranks, scenario, &mut sizes);
            if meter::now() - since > SLICE_MS {
                let (done, of) = (number + 1, all.len());
                self.with(|lab| {
                    lab.busy = tr!("Predicting the sizes of this plan: {done} of {of}", done, of)
                });
                self.show();
                later::breathe().await;
                since = meter::now();
                if !self.is(turn) {
                    return false;
                }
            }
        }
        let rule = scenario.rule;
        self.with(|lab| lab.ground = Some(Ground { inputs, rule, slots, plan, sizes }));
        true
    }

    /// Another part of the time.
    pub fn look(self, change: impl FnOnce(Scale, f64) -> Option<Scale>) {
        self.with(|lab| {
            let (scale, full) = (lab.scale(show::width(0)), lab.full());
            lab.view =
                change(scale, full).map(|s| (s.from, s.to)).filter(|(from, to)| to - from < full);
        });
        self.show();
    }

    /// The moment before or after the one that is looked at, or a given one.
    pub fn select(self, at: Option<usize>) {
        self.with(|lab| {
            lab.selected = at.filter(|at| *at < lab.moments().len());
            // What is looked at is seen.
            let when = lab.selected.map(|at| lab.moments()[at].at.0 as f64);
            if let (Some(when), Some((from, to))) = (when, lab.view)
                && (when < from || when > to)
            {
                let half = (to - from) / 2.0;
                let from = (when - half).clamp(0.0, (lab.full() - 2.0 * half).max(0.0));
                lab.view = Some((from, from + 2.0 * half));
            }
        });
        self.show();
    }

    /// Writes everything anew.
    pub fn show(self) {
        self.with(show::all);
    }
}
