//! A plan under every schedule: one simulation after the other, each with a small picture.

use crate::protocol::{Drawn, Order, Orders, Reply, THUMBNAIL};
use pipewright_core::plan::{Plan, ScheduleText, Sequence};
use pipewright_core::predict::{AUTOMATIC, automatic_plan, outline, steady};
use pipewright_core::schedule::ScheduleKind;
use pipewright_core::timeline::{Timeline, Work};
use pipewright_core::units::Nanos;
use std::collections::VecDeque;

/// Actions of a plan beyond which an order of its own takes too long to be made unasked.
const AUTOMATIC_MOST: u64 = 512;

/// A plan and the schedules that are left.
pub struct Ordering {
    plan: Plan,
    left: VecDeque<Order>,
    ready: Vec<Drawn>,
}

impl Ordering {
    /// Of a plan's text.
    ///
    /// # Errors
    /// A sentence for the person.
    pub fn new(plan: &str, orders: Vec<Order>) -> Result<Self, String> {
        let plan = Plan::from_json(plan).map_err(|e| e.to_string())?;
        Ok(Self { plan, left: orders.into(), ready: vec![] })
    }

    /// One schedule; whether there is more to do.
    pub fn step(&mut self) -> bool {
        if let Some(order) = self.left.pop_front() {
            let schedule = order.schedule.clone();
            let drawn = self.draw(order).unwrap_or_else(|why| Drawn {
                schedule,
                why: Some(why),
                ..Drawn::default()
            });
            self.ready.push(drawn);
        }
        !self.left.is_empty()
    }

    /// What was simulated since the last report.
    pub fn report(&mut self) -> Reply {
        let drawn = std::mem::take(&mut self.ready);
        Reply::Orders(Orders { drawn, done: self.left.is_empty() })
    }

    fn draw(&self, order: Order) -> Result<Drawn, String> {
        let (plan, timeline) = match order.schedule.as_str() {
            AUTOMATIC => self.automatic()?,
            _ => self.named(&order)?,
        };
        let steady = steady(&plan, &timeline).map_err(|e| e.to_string())?;
        let step = steady.map_or(timeline.step, |steady| steady.step);
        let peak = timeline.peak().map_or(0, |(_, peak)| peak.0);
        Ok(Drawn {
            schedule: order.schedule,
            step: step.0,
            length: timeline.step.0,
            bubble: bubble(&timeline, step),
            peak,
            fits: peak <= plan.cluster.device.memory.0,
            rows: rows(&timeline),
            why: None,
        })
    }

    fn named(&self, order: &Order) -> Result<(Plan, Timeline), String> {
        let kind: ScheduleKind = order.schedule.parse().map_err(|e| format!("{e}"))?;
        let stages = order.cuts.len() as u32 + 1;
        let schedule = ScheduleText::of(kind, stages, self.plan.micro_batches);
        let recompute: Result<Vec<Sequence>, _> =
            order.recompute.iter().map(|text| text.parse()).collect();
        let plan = Plan {
            schedule: schedule.map_err(|e| e.to_string())?,
            cuts: order.cuts.clone(),
            recompute: recompute.map_err(|e| format!("{e}"))?,
            ..self.plan.clone()
        };
        let timeline = outline(&plan).map_err(|e| e.to_string())?.timeline;
        Ok((plan, timeline))
    }

    fn automatic(&self) -> Result<(Plan, Timeline), String> {
        let actions = u64::from(self.plan.stages()) * u64::from(self.plan.micro_batches);
        if actions > AUTOMATIC_MOST {
            return Err(String::new());
        }
        let draft = self.plan.draft();
        let found = automatic_plan(&draft, self.plan.lanes()).map_err(|e| e.to_string())?;
        Ok((found.plan, found.prediction.timeline))
    }
}

/// The share of the step in which a lane is idle, over all lanes.
fn bubble(timeline: &Timeline, step: Nanos) -> f64 {
    let lanes = timeline.lanes.len().max(1) as f64;
    let busy: f64 = timeline.lanes.iter().map(|lane| lane.busy().secs()).sum();
    (1.0 - busy / lanes / step.secs().max(1e-12)).max(0.0)
}

/// A letter for each part of the axis: what runs longest there; of many lanes, some.
fn rows(timeline: &Timeline) -> Vec<String> {
    let lanes = timeline.lanes.len();
    let shown = lanes.min(THUMBNAIL.1);
    (0..shown).map(|row| letters(timeline, row * lanes / shown)).collect()
}

fn letters(timeline: &Timeline, lane: usize) -> String {
    const LETTERS: [char; 5] = ['F', 'B', 'I', 'W', 'O'];
    let scale = THUMBNAIL.0 as f64 / timeline.step.0.max(1) as f64;
    let mut busy = vec![[0.0; LETTERS.len()]; THUMBNAIL.0];
    for span in &timeline.lanes[lane].spans {
        let letter = match span.work {
            Work::Run(action) => action.kind.letter(),
            Work::Optimizer(_) => 'O',
        };
        let Some(at) = LETTERS.iter().position(|known| *known == letter) else { continue };
        let (from, to) = (span.start.0 as f64 * scale, span.end.0 as f64 * scale);
        let columns = busy.iter_mut().enumerate();
        for (column, parts) in columns.take(to.ceil() as usize).skip(from as usize) {
            parts[at] += to.min(column as f64 + 1.0) - from.max(column as f64);
        }
    }
    // A column in which much starts and ends is full, though nothing has half of it.
    let letter = |parts: [f64; LETTERS.len()]| {
        let most = (0..parts.len()).max_by(|a, b| parts[*a].total_cmp(&parts[*b])).unwrap_or(0);
        if parts.iter().sum::<f64>() > 0.25 { LETTERS[most] } else { ' ' }
    };
    busy.into_iter().map(letter).collect()
}
