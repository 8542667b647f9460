//! The page's side of a search for the best plan on each of several numbers of devices.

use super::Question;
use super::sizes::{Bill, Size, best, grown};
use crate::base::texts::tr;
use crate::planner::found::apply;
use crate::planner::inputs::Inputs;
use crate::planner::wire::Wire;
use crate::state::State;
use leptos::prelude::*;
use pipewright_core::predict::Sizes;
use pipewright_worker::protocol::{FoundPlan, Reply, Request};

/// Everything that is shown of it. Each size has a worker of its own, one after the other.
#[derive(Clone, Copy)]
pub struct SizeSearch {
    pub page: State,
    /// Numbers of devices, tokens or samples to train on, and what a device costs, as typed.
    pub sizes: RwSignal<String>,
    pub work: RwSignal<String>,
    pub price: RwSignal<String>,
    /// Sizes that are done.
    pub rows: RwSignal<Vec<Size>>,
    /// The size that is searched for.
    pub at: RwSignal<Option<u32>>,
    pub failed: RwSignal<Option<String>>,
    asked: RwSignal<Option<Question>>,
    /// Sizes to come, the next one last.
    left: StoredValue<Vec<u32>>,
    found: StoredValue<Vec<FoundPlan>>,
    wire: StoredValue<Option<Wire>, LocalStorage>,
}

impl SizeSearch {
    pub fn new(page: State) -> Self {
        let all = Self {
            page,
            sizes: RwSignal::new("8..64".into()),
            work: RwSignal::new(String::new()),
            price: RwSignal::new(String::new()),
            rows: RwSignal::new(vec![]),
            at: RwSignal::new(None),
            failed: RwSignal::new(None),
            asked: RwSignal::new(None),
            left: StoredValue::new(vec![]),
            found: StoredValue::new(vec![]),
            wire: StoredValue::new_local(None),
        };
        // Answers to another question than the page's are none; the cluster may have grown by taking a plan.
        Effect::new(move |_| {
            let now = all.page.inputs.with(|inputs| Question::of(inputs, 0));
            if all.asked.get_untracked().is_some_and(|asked| !asked.is_but_for_hosts(&now)) {
                all.stop();
                all.asked.set(None);
                all.rows.set(vec![]);
            }
        });
        all
    }

    /// Searches size after size.
    pub fn start(self) {
        self.stop();
        let sizes = match self.sizes.with_untracked(|text| text.parse::<Sizes>()) {
            Ok(Sizes(sizes)) => sizes,
            Err(why) => return self.failed.set(Some(tr!("Devices: {why}.", why))),
        };
        self.failed.set(None);
        self.rows.set(vec![]);
        self.asked.set(Some(self.page.inputs.with_untracked(|inputs| Question::of(inputs, 0))));
        self.left.set_value(sizes.into_iter().rev().collect());
        self.next();
    }

    /// Stops; sizes that are done stay.
    pub fn stop(self) {
        self.wire.set_value(None);
        self.at.set(None);
    }

    fn next(self) {
        self.stop();
        let Some(devices) = self.left.try_update_value(Vec::pop).flatten() else { return };
        let plan = self.page.inputs.with_untracked(|inputs| grown(inputs, devices)?.plan());
        let plan = match plan {
            Ok((plan, _)) => plan,
            Err(why) => return self.failed.set(Some(tr!("Nothing searched: {why}.", why))),
        };
        match Wire::start(move |reply| self.hear(devices, reply)) {
            Ok(wire) => {
                wire.ask(&Request::Plans { plan: plan.to_json(), devices });
                wire.ask(&Request::Run { on: true });
                self.wire.set_value(Some(wire));
            }
            Err(why) => return self.failed.set(Some(why)),
        }
        self.found.set_value(vec![]);
        self.at.set(Some(devices));
    }

    fn hear(self, devices: u32, reply: Reply) {
        match reply {
            Reply::Plans(plans) => {
                self.found.update_value(|found| found.extend(plans.found));
                if plans.done {
                    let size =
                        self.page.inputs.with_untracked(|inputs| match grown(inputs, devices) {
                            Ok(inputs) => {
                                self.found.with_value(|found| best(devices, found, &inputs))
                            }
                            Err(why) => Size { devices, best: Err(why) },
                        });
                    self.done(size);
                }
            }
            Reply::Failed { why } => self.done(Size { devices, best: Err(why) }),
            _ => {}
        }
    }

    fn done(self, size: Size) {
        self.rows.update(|rows| rows.push(size));
        self.next();
    }

    /// What is typed of work and price.
    pub fn bill(self) -> Result<Bill, String> {
        let graph = self.page.graph.get();
        self.work.with(|work| self.price.with(|price| Bill::read(work, price, &graph)))
    }

    /// The plan of a size becomes B, on the hosts that it needs.
    pub fn take(self, devices: u32, found: &FoundPlan) {
        let next = self.page.inputs.with_untracked(|inputs| taken(devices, found, inputs));
        match next {
            Ok(next) => {
                self.page.edit(move |inputs| *inputs = next);
                let plan = super::name(found);
                self.page.say(tr!("B is now {plan}. Ctrl+Z undoes it.", plan));
            }
            Err(why) => self.page.complain(tr!("The plan cannot be used: {why}.", why)),
        }
    }
}

/// The inputs with the plan of a size in place of theirs, on the hosts that it needs.
fn taken(devices: u32, found: &FoundPlan, inputs: &Inputs) -> Result<Inputs, String> {
    let a = inputs.a.clone().unwrap_or_else(|| Box::new(inputs.alone()));
    Ok(Inputs { a: Some(a), ..apply(found, &grown(inputs, devices)?)? })
}
