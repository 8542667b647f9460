//! Updates of measured lanes, as a plan has them: other programs update all parameters of a rank at once.

use super::{Lane, Span, Timeline, Trace, Work};
use crate::order::sort_by_numbers;
use crate::units::Nanos;

impl Trace {
    /// The same with each lane's updates those of a plan's prediction. One update of all stages of a lane is
    /// divided as the plan's are; a lane without any gets empty ones at its end. What the runner wrote stays.
    pub fn with_updates_of(mut self, planned: &Timeline) -> Self {
        let lanes = planned.lanes.len();
        for step in &mut self.steps {
            for (at, lane) in step.timeline.lanes.iter_mut().enumerate() {
                if lanes > 0 {
                    align(lane, &planned.lanes[at % lanes]);
                }
            }
        }
        self
    }
}

fn align(lane: &mut Lane, planned: &Lane) {
    let is_update = |span: &&Span| matches!(span.work, Work::Optimizer(_));
    let wanted: Vec<&Span> = planned.spans.iter().filter(is_update).collect();
    let ran: Vec<Span> = lane.spans.iter().filter(is_update).copied().collect();
    let same = |(a, b): (&Span, &&Span)| a.work == b.work;
    if wanted.is_empty() || ran.len() > 1 && ran.len() != wanted.len() {
        return;
    }
    if ran.len() == wanted.len() && ran.iter().zip(&wanted).all(same) {
        return;
    }
    lane.spans.retain(|span| !is_update(&span));
    let end = lane.spans.last().map_or(Nanos::ZERO, |span| span.end);
    let whole: u64 = wanted.iter().map(|span| (span.end - span.start).0.max(1)).sum();
    let (mut done, first) = (0, ran.first().copied());
    for (at, span) in wanted.iter().enumerate() {
        let place = |share: u64, of: Span| {
            of.start
                + Nanos(
                    ((of.end - of.start).0 as u128 * u128::from(share) / u128::from(whole)) as u64,
                )
        };
        let (start, finish) = match (ran.len() == wanted.len(), first) {
            (true, _) => (ran[at].start, ran[at].end),
            (false, Some(all)) => {
                let before = done;
                done += (span.end - span.start).0.max(1);
                (place(before, all), place(done, all))
            }
            (false, None) => (end, end),
        };
        lane.spans.push(Span { start, end: finish, work: span.work });
    }
    sort_by_numbers(&mut lane.spans, |span| [span.start.0, span.end.0]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::StageId;
    use crate::schedule::{Action, ActionKind};
    use crate::timeline::Step;

    fn run(start: u64, end: u64) -> Span {
        let work = Work::Run(Action::new(0, ActionKind::Forward, 0));
        Span { start: Nanos(start), end: Nanos(end), work }
    }

    fn update(stage: u32, start: u64, end: u64) -> Span {
        Span { start: Nanos(start), end: Nanos(end), work: Work::Optimizer(StageId(stage)) }
    }

    fn aligned(ran: Vec<Span>, planned: Vec<Span>) -> Vec<Span> {
        let timeline = |spans| Timeline {
            lanes: vec![Lane { spans, ..Lane::default() }],
            ..Timeline::default()
        };
        let step = Step { timeline: timeline(ran), ..Step::default() };
        let trace = Trace { model: "x".into(), steps: vec![step] };
        let mut trace = trace.with_updates_of(&timeline(planned));
        trace.steps.remove(0).timeline.lanes.remove(0).spans
    }

    #[test]
    fn one_update_is_divided_as_the_plans_are() {
        let planned = vec![run(0, 5), update(0, 5, 6), update(3, 6, 9)];
        let spans = aligned(vec![run(0, 10), update(0, 20, 60)], planned.clone());
        assert_eq!(spans, [run(0, 10), update(0, 20, 30), update(3, 30, 60)]);
        // None at all: they take no time.
        let spans = aligned(vec![run(0, 10)], planned.clone());
        assert_eq!(spans, [run(0, 10), update(0, 10, 10), update(3, 10, 10)]);
        // The lane's number in place of the stage's.
        let spans = aligned(vec![run(0, 10), update(1, 10, 30)], vec![run(0, 5), update(2, 5, 6)]);
        assert_eq!(spans, [run(0, 10), update(2, 10, 30)]);
        // What is as the plan has it stays, also where it is more than can be understood.
        let own = vec![run(0, 10), update(0, 11, 12), update(3, 12, 13)];
        assert_eq!(aligned(own.clone(), planned.clone()), own);
        let more = vec![update(0, 1, 2), update(1, 2, 3), update(2, 3, 4)];
        assert_eq!(aligned(more.clone(), planned), more);
        assert_eq!(aligned(own.clone(), vec![run(0, 1)]), own);
    }
}
