//! The loop: measure, calibrate, search, until no plan promises more.

use super::beliefs::{Beliefs, MOST, Traits};
use super::candidates::{Candidate, is_same, neighbours, other_micro_batches, searched};
use super::history::{Choices, History, Record};
use super::ranks::Ranks;
use super::summary::{Summary, Tried};
use crate::args::TuneArgs;
use crate::failure::{Code, Failure};
use crate::report::Outcome;
use crate::train::StopFlag;
use pipewright_core::cost::Cluster;
use pipewright_core::graph::Graph;
use pipewright_core::plan::{Measured, Plan};
use pipewright_core::predict::{TraceFit, predict};
use pipewright_core::units::Nanos;
use serde::Serialize;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// A plan has to promise less than this share of the best step that was measured.
const WORTH: f64 = 0.99;

/// Steps that differ by a smaller share are close: busy machines differ as much from themselves.
const CLOSE: f64 = 0.05;

/// How often plans are measured whose steps are close, in turns; others that are faster than the best.
const CLOSE_RUNS: usize = 3;
const FASTER_RUNS: usize = 2;

/// Plans that are tried before the machine is calibrated and searched again.
const ROUND: usize = 4;

/// Plans that promise nothing and are tried all the same, for each that is the best.
const AROUND: usize = 3;

/// What a run is to take, and its steps within.
const RUN_SECONDS: f64 = 1.0;
const RUN_STEPS: [u64; 2] = [5, 200];

/// Why tuning ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum End {
    /// No plan promises more than 1 % over the best.
    NothingPromises,
    /// As many plans were tried as may be.
    Trials,
    /// The time is used up.
    Budget,
    /// A signal came.
    Interrupted,
}

/// Tuning under way.
pub(super) struct Tuner<'a, R> {
    args: &'a TuneArgs,
    ranks: R,
    graph: Graph,
    stop: StopFlag,
    begun: Instant,
    /// The plan as it was given.
    first: Plan,
    /// As the newest calibration has it.
    cluster: Cluster,
    /// Plans that were tried, the given one first.
    tried: Vec<Tried>,
    beliefs: Beliefs,
    history: History,
    /// The place in `tried` of the plan that the output has.
    written: Option<usize>,
}

impl<'a, R: Ranks> Tuner<'a, R> {
    pub fn new(args: &'a TuneArgs, first: Plan, ranks: R, stop: StopFlag) -> Result<Self, Failure> {
        let graph = first.model.graph().map_err(|e| Failure::new(Code::Plan, e.to_string()))?;
        Ok(Self {
            args,
            ranks,
            graph,
            stop,
            begun: Instant::now(),
            cluster: first.cluster.clone(),
            first,
            tried: vec![],
            beliefs: Beliefs::default(),
            history: History::new(args.history.clone(), args.json),
            written: None,
        })
    }

    /// Tunes. The output has the best plan so far whenever this returns after the first was measured.
    ///
    /// # Errors
    /// When the given plan does not run, ranks cannot go on together, or a file cannot be written.
    pub fn tune(&mut self) -> Result<End, Failure> {
        self.begin()?;
        let mut looked_around = None;
        let end = loop {
            if let Some(end) = self.over() {
                break end;
            }
            let best = self.best().unwrap_or(0);
            self.calibrate(best);
            let mut round = self.promising(best);
            if round.is_empty() {
                // Predictions may be wrong of what is unlike all that was measured: once for each best plan others are
                // measured that promise nothing.
                round = match looked_around == Some(best) {
                    true => vec![],
                    false => self.around(best),
                };
                looked_around = Some(best);
                if round.is_empty() {
                    break End::NothingPromises;
                }
                self.round(round, |_, _, _| true)?;
                continue;
            }
            round.truncate(ROUND);
            self.round(round, Self::promises)?;
        };
        if self.tried.is_empty() {
            return Ok(end);
        }
        if !self.is_stopped()
            && let Some(best) = self.best().filter(|best| *best > 0)
        {
            self.compare(0, best)?;
        }
        self.write()?;
        Ok(if self.is_stopped() { End::Interrupted } else { end })
    }

    /// Profiles where the plan has no times of its model's nodes, and measures the plan.
    fn begin(&mut self) -> Result<(), Failure> {
        let name = self.graph.name();
        if self.cluster.profile.as_ref().is_none_or(|profile| profile.model != name) {
            note!("measuring the operations of {name}");
            self.cluster = self.ranks.profile(&self.first)?;
        }
        if self.is_stopped() {
            return Ok(());
        }
        let plan = self.here(&self.first)?;
        let predicted = plan.prediction.step_ns;
        let first = Candidate { plan, predicted, why: "the given plan" };
        self.attempt(first)?;
        match self.tried.first_mut().and_then(|tried| tried.failed.take()) {
            None => self.write(),
            Some(why) => Err(why),
        }
    }

    /// Tries plans, the most promising first, that are `worth` it beside the best so far.
    fn round(
        &mut self,
        mut round: Vec<Candidate>,
        worth: impl Fn(&Self, &Candidate, usize) -> bool,
    ) -> Result<(), Failure> {
        while !round.is_empty() && self.over().is_none() {
            // What was measured meanwhile changes what the others promise.
            round.sort_by_key(|candidate| self.expected(candidate));
            let next = round.remove(0);
            let best = self.best().unwrap_or(0);
            if worth(self, &next, best) {
                let tried = self.attempt(next)?;
                self.compare(best, tried)?;
                self.write()?;
            }
        }
        Ok(())
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn is_late(&self) -> bool {
        self.args.budget.is_some_and(|budget| self.begun.elapsed() >= budget.0)
    }

    /// Whether nothing more is tried.
    fn over(&self) -> Option<End> {
        if self.is_stopped() {
            return Some(End::Interrupted);
        }
        if self.is_late() {
            return Some(End::Budget);
        }
        (self.tried.len() >= self.args.trials as usize).then_some(End::Trials)
    }

    /// The place of the fastest plan that was measured; of those that are equal the first.
    fn best(&self) -> Option<usize> {
        let steps = self.tried.iter().enumerate();
        steps.filter_map(|(at, tried)| Some((tried.step()?, at))).min().map(|(_, at)| at)
    }

    fn expected(&self, candidate: &Candidate) -> Nanos {
        self.beliefs.expected(&Traits::of(&candidate.plan), candidate.predicted)
    }

    /// Whether a plan may be faster than the best by more than 1 %, as far as predictions can be trusted.
    fn promises(&self, candidate: &Candidate, best: usize) -> bool {
        let Some(least) = self.tried[best].step() else { return false };
        let expected = self.expected(candidate).secs() * (1.0 - self.beliefs.doubt());
        expected < WORTH * least.secs()
    }

    /// A plan with the newest cluster and what that predicts.
    fn here(&self, plan: &Plan) -> Result<Plan, Failure> {
        let mut plan = Plan { cluster: self.cluster.clone(), ..plan.clone() };
        plan.prediction = predict(&plan)?.expectation();
        Ok(plan)
    }

    /// The cluster as the last run of a plan shows it, and what is believed of predictions by it.
    fn calibrate(&mut self, at: usize) {
        let tried = &self.tried[at];
        let fitted = tried.trace.as_ref().and_then(|trace| {
            let prediction = predict(&tried.plan).ok()?;
            TraceFit::new(trace).ok()?.cluster(&tried.plan, &prediction).ok()
        });
        if let Some(cluster) = fitted.filter(|cluster| cluster.check().is_ok()) {
            self.cluster = cluster;
        }
        self.beliefs = Beliefs::default();
        for tried in &self.tried {
            let plan = Plan { cluster: self.cluster.clone(), ..tried.plan.clone() };
            if let (Some(measured), Ok(predicted)) = (tried.step(), step(&plan)) {
                self.beliefs.learn(Traits::of(&plan), measured, predicted);
            }
        }
    }

    /// Plans that were not tried and promise something, the most promising first.
    fn promising(&self, best: usize) -> Vec<Candidate> {
        let mut found = self.searched();
        found.extend(neighbours(&self.tried[best].plan, &self.cluster));
        let mut new = self.untried(found);
        new.retain(|candidate| self.promises(candidate, best));
        new.sort_by_key(|candidate| self.expected(candidate));
        new
    }

    fn searched(&self) -> Vec<Candidate> {
        searched(&self.first, &self.graph, &self.cluster).unwrap_or_else(|why| {
            note!("nothing else is searched: {}", why.message);
            vec![]
        })
    }

    /// The best plan with other micro-batches, and plans that are divided otherwise than any that was tried, into lanes,
    /// replicas and micro-batches, the most promising of each division first; those that are expected to take at most a
    /// tenth more than the best.
    fn around(&self, best: usize) -> Vec<Candidate> {
        let Some(least) = self.tried[best].step() else { return vec![] };
        let mut found = self.untried(other_micro_batches(&self.tried[best].plan, &self.cluster));
        let mut others = self.untried(self.searched());
        others.sort_by_key(|candidate| self.expected(candidate));
        let division =
            |plan: &Plan| (plan.lanes(), plan.data_parallel.replicas, plan.micro_batches);
        let tried = self.tried.iter().map(|tried| &tried.plan);
        let mut known: Vec<_> = tried.chain(found.iter().map(|c| &c.plan)).map(division).collect();
        for candidate in others {
            let own = division(&candidate.plan);
            if !known.contains(&own) {
                known.push(own);
                found.push(candidate);
            }
        }
        found.retain(|candidate| self.expected(candidate).secs() <= (1.0 + MOST) * least.secs());
        found.truncate(AROUND);
        found
    }

    /// Those of `found` that were not tried, each once.
    fn untried(&self, found: Vec<Candidate>) -> Vec<Candidate> {
        let mut new: Vec<Candidate> = vec![];
        for candidate in found {
            let known = self.tried.iter().map(|tried| &tried.plan);
            let mut known = known.chain(new.iter().map(|other| &other.plan));
            if !known.any(|plan| is_same(plan, &candidate.plan)) {
                new.push(candidate);
            }
        }
        new
    }

    /// Runs a plan for the first time; its place.
    fn attempt(&mut self, candidate: Candidate) -> Result<usize, Failure> {
        let expected = self.expected(&candidate);
        let Candidate { plan, predicted, why } = candidate;
        self.tried.push(Tried::new(plan, predicted));
        let at = self.tried.len() - 1;
        self.run(at, expected, why)?;
        let tried = &self.tried[at];
        if let Some(measured) = tried.step() {
            self.beliefs.learn(Traits::of(&tried.plan), measured, predicted);
        }
        Ok(at)
    }

    /// Measures two plans in turns until each was measured as often as their steps ask for.
    fn compare(&mut self, best: usize, other: usize) -> Result<(), Failure> {
        loop {
            let steps = self.tried[best].step().zip(self.tried[other].step());
            let Some((a, b)) = steps.filter(|_| !self.is_late() && !self.is_stopped()) else {
                return Ok(());
            };
            let wanted = match b.secs() / a.secs() {
                ratio if (ratio - 1.0).abs() < CLOSE => CLOSE_RUNS,
                ratio if ratio < 1.0 => FASTER_RUNS,
                _ => 1,
            };
            let runs = |at: usize| self.tried[at].steps.len();
            let next = if runs(other) < runs(best) { other } else { best };
            if runs(next) >= wanted {
                return Ok(());
            }
            self.run(next, self.tried[next].step().unwrap_or_default(), "again, in turns")?;
        }
    }

    /// Runs a plan, and records how that went.
    fn run(&mut self, at: usize, expected: Nanos, why: &'static str) -> Result<(), Failure> {
        let tried = &self.tried[at];
        let steps = self.steps(expected);
        let plan = Plan { steps, ..tried.plan.clone() };
        let ended = self.ranks.run(&plan)?;
        if ended.as_ref().is_ok_and(|outcome| outcome.interrupted) {
            // Part of a run says little.
            self.stop.store(true, Ordering::Relaxed);
            if self.tried[at].steps.is_empty() {
                self.tried.truncate(at);
            }
            return Ok(());
        }
        let record = Record {
            trial: at as u32 + 1,
            run: self.history.records.len() as u32 + 1,
            choices: Choices::of(&plan, &self.graph),
            predicted_step_ns: tried.predicted,
            expected_step_ns: expected,
            measured_step_ns: ended.as_ref().ok().map(|outcome| Nanos(outcome.step_ns)),
            steps,
            memory_bytes: ended.as_ref().map_or(vec![], |outcome| outcome.arena.clone()),
            why,
            failed: ended.as_ref().err().map(|failure| failure.message.clone()),
            seconds: self.begun.elapsed().as_secs_f64(),
        };
        let tried = &mut self.tried[at];
        match ended {
            Ok(Outcome { step_ns, trace, .. }) => {
                tried.steps.push(Nanos(step_ns));
                tried.trace = trace.or(tried.trace.take());
            }
            Err(failure) => tried.failed = Some(failure),
        }
        self.history.add(record)
    }

    /// Steps of a run whose steps are expected to take so long.
    fn steps(&self, expected: Nanos) -> u64 {
        let [least, most] = RUN_STEPS;
        let fill = (RUN_SECONDS / expected.secs().max(1e-9)) as u64;
        self.args.steps.unwrap_or(fill.clamp(least, most))
    }

    /// Writes the best plan with what was measured.
    fn write(&mut self) -> Result<(), Failure> {
        let Some(best) = self.best() else { return Ok(()) };
        let (Some(step_ns), Some(first_step_ns)) = (self.tried[best].step(), self.tried[0].step())
        else {
            return Ok(());
        };
        let plans = self.tried.len() as u32;
        let mut plan = self.here(&self.tried[best].plan)?;
        plan.steps = self.first.steps;
        plan.measured = Some(Measured { step_ns, first_step_ns, plans });
        crate::commands::write_text(&self.args.output(), &plan.to_json())?;
        self.written = Some(best);
        Ok(())
    }

    /// What came of it.
    pub fn summary(&self) -> Summary {
        Summary::new(self.args, &self.tried, self.written, &self.history, self.begun.elapsed())
    }

    /// Lets the other ranks go, who end as this one does.
    pub fn finish(self, code: Option<Code>) -> Result<(), Failure> {
        self.ranks.finish(code)
    }
}

/// What a step of a plan is predicted to take, as it is measured.
fn step(plan: &Plan) -> Result<Nanos, Failure> {
    Ok(predict(plan)?.timeline.step)
}
