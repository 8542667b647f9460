//! The page's side of a search for plans.

use super::{Question, devices, name, taken, thinned};
use crate::base::texts::tr;
use crate::planner::wire::Wire;
use crate::state::State;
use leptos::prelude::*;
use pipewright_worker::protocol::{FoundPlan, Plans, Reply, Request};

/// Everything that is shown of a search. The newest question has a worker of its own; an older one
/// ends with its worker.
#[derive(Clone, Copy)]
pub struct PlanSearch {
    pub page: State,
    /// Devices to use at most; none: as many as the plan uses.
    pub devices: RwSignal<Option<u32>>,
    /// All plans that were predicted.
    pub found: RwSignal<Vec<FoundPlan>>,
    /// How many were estimated, and the best ones' numbers.
    pub progress: RwSignal<Plans>,
    pub running: RwSignal<bool>,
    pub failed: RwSignal<Option<String>>,
    asked: RwSignal<Option<Question>>,
    wire: StoredValue<Option<Wire>, LocalStorage>,
}

impl PlanSearch {
    pub fn new(page: State) -> Self {
        let all = Self {
            page,
            devices: RwSignal::new(None),
            found: RwSignal::new(vec![]),
            progress: RwSignal::new(Plans::default()),
            running: RwSignal::new(false),
            failed: RwSignal::new(None),
            asked: RwSignal::new(None),
            wire: StoredValue::new_local(None),
        };
        // Answers to another question than the page's are none.
        Effect::new(move |_| {
            let now = all.question();
            if all.asked.get_untracked().is_some_and(|asked| asked != now) {
                all.forget();
            }
        });
        all
    }

    /// Devices to use at most, as a number.
    pub fn most(self) -> u32 {
        let own = self.page.inputs.with(devices);
        match self.asked.with(|asked| asked.as_ref().map(|asked| asked.devices)) {
            // A found plan with fewer devices does not change the question.
            Some(asked) => self.devices.get().unwrap_or(asked),
            None => self.devices.get().unwrap_or(own),
        }
    }

    fn question(self) -> Question {
        let devices = self.most();
        self.page.inputs.with(|inputs| Question::of(inputs, devices))
    }

    fn forget(self) {
        self.wire.set_value(None);
        self.asked.set(None);
        self.running.set(false);
        self.failed.set(None);
        self.found.set(vec![]);
        self.progress.set(Plans::default());
    }

    /// Searches, or searches on where the question is the same.
    pub fn start(self) {
        let question = untrack(|| self.question());
        let again = self.asked.with_untracked(|asked| asked.as_ref() == Some(&question));
        if !again || self.failed.with_untracked(Option::is_some) {
            let plan = self.page.inputs.with_untracked(|i| i.alone().plan());
            let plan = match plan {
                Ok((plan, _)) => plan,
                Err(why) => return self.failed.set(Some(tr!("Nothing searched: {why}.", why))),
            };
            self.forget();
            match Wire::start(move |reply| self.hear(reply)) {
                Ok(wire) => self.wire.set_value(Some(wire)),
                Err(why) => return self.failed.set(Some(why)),
            }
            let devices = question.devices;
            self.asked.set(Some(question));
            self.ask(&Request::Plans { plan: plan.to_json(), devices });
        }
        self.running.set(true);
        self.ask(&Request::Run { on: true });
    }

    /// Stops; what was found stays.
    pub fn stop(self) {
        self.running.set(false);
        self.ask(&Request::Run { on: false });
    }

    fn ask(self, request: &Request) {
        self.wire.with_value(|wire| {
            if let Some(wire) = wire {
                wire.ask(request);
            }
        });
    }

    fn hear(self, reply: Reply) {
        match reply {
            Reply::Plans(mut plans) => {
                let new = std::mem::take(&mut plans.found);
                if !new.is_empty() {
                    self.found.update(|found| found.extend(new));
                }
                // Not what the buttons said last: a report may have been on its way.
                self.running.set(!plans.done);
                self.progress.set(plans);
            }
            Reply::Failed { why } => {
                self.running.set(false);
                self.failed.set(Some(why));
            }
            _ => {}
        }
    }

    /// The best plans, the fastest first, with their numbers; of those that hardly differ one.
    pub fn front(self) -> Vec<(u32, FoundPlan)> {
        self.found.with(|found| {
            let of = |number: &u32| Some((*number, found.get(*number as usize)?.clone()));
            thinned(self.progress.with(|p| p.front.iter().filter_map(of).collect()))
        })
    }

    /// A found plan becomes B.
    pub fn take(self, found: &FoundPlan) {
        match self.page.inputs.with_untracked(|inputs| taken(found, inputs)) {
            Ok(next) => {
                self.page.edit(move |inputs| *inputs = next);
                self.page.say(tr!("B is now {plan}. Ctrl+Z undoes it.", plan = name(found)));
            }
            Err(why) => self.page.complain(tr!("The plan cannot be used: {why}.", why)),
        }
    }
}
