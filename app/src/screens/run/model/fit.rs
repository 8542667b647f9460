//! The plan with the times of a trace: what it would predict, before one takes it.

use crate::base::shared::Shared;
use crate::base::texts::tr;
use crate::planner::choices::ClusterChoice;
use crate::planner::engine::{Ground, solve};
use crate::planner::inputs::Inputs;
use crate::planner::ready::Ready;
use pipewright_core::cost::Link;
use pipewright_core::predict::TraceFit;
use pipewright_core::timeline::Trace;
use pipewright_core::units::Nanos;

/// What using a trace's times comes to.
#[derive(Clone, Debug, PartialEq)]
pub struct Fitted {
    /// The plan with the times; compared with nothing.
    pub inputs: Inputs,
    /// Its predicted step.
    pub step: Nanos,
    /// Stages that get times.
    pub stages: usize,
    /// The link, where the messages tell it.
    pub link: Option<Link>,
}

/// Whether the times of a trace are worth using.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The plan has them already.
    Used,
    /// The plan without them is as near to the measured step.
    Worse,
    /// They bring the plan nearer.
    Better,
}

impl Fitted {
    /// What the times would do to a plan that predicts this step, of which that was measured.
    pub fn verdict(&self, predicted: Nanos, measured: Nanos) -> Verdict {
        let off = |step: Nanos| step.0.abs_diff(measured.0);
        if self.step.0.abs_diff(predicted.0) * 1000 < predicted.0 {
            Verdict::Used
        } else if off(self.step) >= off(predicted) {
            Verdict::Worse
        } else {
            Verdict::Better
        }
    }

    /// Fits the costs of a plan to a trace, as `runner calibrate` does.
    ///
    /// # Errors
    /// Why it cannot, a sentence.
    pub fn new(inputs: &Inputs, ready: &Ready, trace: &Trace) -> Result<Self, String> {
        let fit = TraceFit::new(trace).map_err(|e| tr!("No times to use: {why}.", why = e))?;
        let cluster = fit.cluster(&ready.plan, &ready.prediction);
        let cluster = cluster.map_err(|e| tr!("No times to use: {why}.", why = e))?;
        cluster.check().map_err(|e| tr!("No times to use: {why}.", why = e))?;
        let link = fit.link.as_ref().ok().map(|(link, _)| *link);
        let mut stages: Vec<_> = fit.stages.iter().map(|fit| fit.stage).collect();
        stages.dedup();
        // Typed times are in the prediction that was fitted: they would count twice.
        let cluster = ClusterChoice::File(Shared::new(cluster));
        let inputs = Inputs { cluster, times: None, ..inputs.alone() };
        let step = solve(&inputs, &Ground::of(&inputs))?.figures.step;
        Ok(Self { inputs, step, stages: stages.len(), link })
    }

    /// What is said once they are used.
    pub fn said(&self, typed: bool) -> String {
        let stages = self.stages;
        match (self.link, typed) {
            (Some(link), false) => tr!(
                "{stages} stages now use measured times; link: {latency}, {speed}. Ctrl+Z \
                 undoes it.",
                stages,
                latency = link.latency_ns,
                speed = crate::base::format::speed(link.bytes_per_sec)
            ),
            (None, false) => tr!(
                "{stages} stages now use measured times; the link is unchanged. Ctrl+Z undoes \
                 it.",
                stages
            ),
            (_, true) => tr!(
                "{stages} stages now use measured times, in place of typed ones. Ctrl+Z undoes \
                 it.",
                stages
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::content::{Content, recognise};
    use crate::planner::engine;
    use crate::planner::presets::EXAMPLES;
    use pipewright_core::timeline::{Step, Timeline};

    fn trace(timeline: Timeline) -> Trace {
        let step = Step { timeline, ..Step::default() };
        Trace { model: "any".into(), steps: vec![step] }
    }

    #[test]
    fn used_times_predict_the_trace_and_go_into_the_exported_plan() {
        for example in &EXAMPLES {
            let inputs = example.inputs();
            // A machine half as fast stands for the one that ran.
            let mut slow = (*inputs.cluster()).clone();
            slow.device.flops_per_sec /= 2.0;
            slow.device.memory_bytes_per_sec /= 2.0;
            let cluster = ClusterChoice::File(Shared::new(slow));
            let slower = Inputs { cluster, ..inputs.clone() };
            let truth = solve(&slower, &Ground::of(&slower)).unwrap().timeline;
            let step = truth.step;
            let ready = Ready::new(&inputs).unwrap();
            let before = ready.prediction.timeline.step;
            let fitted = Fitted::new(&inputs, &ready, &trace(truth)).unwrap();
            assert_eq!(fitted.verdict(before, step), Verdict::Better, "{}", example.title);
            assert_eq!(fitted.verdict(fitted.step, step), Verdict::Used);
            // A plan that hits the measured step needs no other times.
            assert_eq!(fitted.verdict(before, before), Verdict::Worse, "{}", example.title);
            let off = |predicted: Nanos| (predicted.secs() / step.secs() - 1.0).abs();
            assert!(off(before) > 0.1 && off(fitted.step) < 0.02, "{}", example.title);
            let (plan, _) = fitted.inputs.plan().unwrap();
            let Ok(Content::Plan(read)) = recognise("plan.json", &plan.to_json()) else { panic!() };
            assert_eq!(engine::solve(&read, &Ground::of(&read)).unwrap().figures.step, fitted.step);
            assert_eq!(fitted.stages as u32, inputs.stages());
            assert!(fitted.said(false).contains("Ctrl+Z"));
        }
    }

    #[test]
    fn foreign_traces_give_no_times() {
        let inputs = EXAMPLES[0].inputs();
        let ready = Ready::new(&inputs).unwrap();
        let mut other = ready.prediction.timeline.clone();
        for span in other.lanes.iter_mut().flat_map(|lane| &mut lane.spans) {
            span.work =
                pipewright_core::timeline::Work::Optimizer(pipewright_core::ids::StageId(99));
        }
        let why = Fitted::new(&inputs, &ready, &trace(other)).unwrap_err();
        assert!(why.contains("stage 99"), "{why}");
        let why = Fitted::new(&inputs, &ready, &trace(Timeline::default())).unwrap_err();
        assert!(why.starts_with("No times to use"), "{why}");
    }
}
