//! Traces of `torch.profiler` (Kineto): a file a rank, in which `torch.distributed.pipelining` names the actions of
//! its schedule (`PP:0F1`).
//!
//! A file says nothing of the network, of memory and of messages. Of an action that a GPU computed the
//! time on the device counts, not that of its launch.

use super::read::{TraceError, nanos};
use super::scan::json;
use crate::ids::StageId;
use crate::schedule::Action;
use crate::timeline::{Lane, Span, Step, Timeline, Trace, Work};
use crate::units::Nanos;
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::BTreeMap;
use thiserror::Error;

/// What a rank did, as its profiler saw it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankTrace {
    /// Its rank; 0 where the file does not say.
    pub rank: u32,
    pub(super) base: u64,
    /// Whose clock it is, where ranks of other files have another one.
    pub(super) session: Option<(u64, u64)>,
    /// `ProfilerStep#7`: number, begin and end.
    pub(super) steps: Vec<(u64, Nanos, Nanos)>,
    pub(super) host: Vec<Timed>,
    pub(super) device: Vec<Timed>,
}

/// An action, or the optimizer's update.
pub(super) type Timed = (Option<Action>, Nanos, Nanos);

/// Begin and end of each step, by number.
type Extents = BTreeMap<u64, (Nanos, Nanos)>;

/// The same on the clock that all ranks share.
struct Clocked {
    work: Vec<Timed>,
    steps: Extents,
}

/// Why ranks' traces make no timeline.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum JoinError {
    /// Nothing in them is named as an action.
    #[error(
        "it names no actions of a pipeline (`PP:0F1`): torch.distributed.pipelining does in schedules of several \
         stages a rank since 2.9; `pipewright.record` does in all"
    )]
    NoActions,
    /// An action of a stage that the plan has not.
    #[error("it has {0}, a stage that the plan has not")]
    Stage(Action),
    /// A lane of the plan without a trace.
    #[error("there is no trace of lane {0}: drop the files of all ranks together")]
    Lane(usize),
    /// Reports of Nsight Systems that were recorded apart.
    #[error(
        "its ranks have no clock in common: record all of them in one report (`nsys profile torchrun ..`)"
    )]
    Clock,
    /// Ranks that were recorded in different steps.
    #[error("the ranks have no step in common: record the same steps on all")]
    NoStep,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(default, borrow)]
    cat: Cow<'a, str>,
    ts: f64,
    #[serde(default)]
    dur: f64,
}

#[derive(Deserialize)]
struct Distributed {
    rank: u32,
}

impl RankTrace {
    /// Whether the file has shown itself to be of this kind.
    pub(super) fn is_any(&self) -> bool {
        self.base > 0 || !self.host.is_empty() || !self.steps.is_empty()
    }

    /// A field of the file beside the events.
    pub(super) fn field(&mut self, name: &str, text: &[u8]) {
        match name {
            "distributedInfo" => {
                let read = serde_json::from_slice::<Distributed>(text);
                self.rank = read.map_or(0, |info| info.rank);
            }
            "baseTimeNanoseconds" => self.base = serde_json::from_slice(text).unwrap_or(0),
            _ => {}
        }
    }

    /// An event, where it is one of interest; most are not, and are not read.
    pub(super) fn event(&mut self, index: u32, text: &[u8]) -> Result<(), TraceError> {
        const MARKS: [&[u8]; 3] = [b"\"PP:", b"\"ProfilerStep#", b"\"Optimizer.step#"];
        if !MARKS.iter().any(|mark| text.windows(mark.len()).any(|part| part == *mark)) {
            return Ok(());
        }
        let event: Event =
            serde_json::from_slice(text).map_err(|e| json(format!("event {index}: {e}")))?;
        let refuse = |why| TraceError::Event { index: index as usize, why };
        let start = nanos(event.ts).map_err(refuse)?;
        let end = start + nanos(event.dur).map_err(refuse)?;
        match &*event.cat {
            "user_annotation" => self.named(&event.name, (start, end), false),
            "gpu_user_annotation" => self.named(&event.name, (start, end), true),
            _ => {}
        }
        Ok(())
    }

    /// Whether something with this name is of interest.
    pub(super) fn is_named(name: &str) -> bool {
        ["PP:", "ProfilerStep#", "Optimizer.step#"].iter().any(|mark| name.starts_with(mark))
    }

    /// Something with a name, on the host or on the device.
    pub(super) fn named(&mut self, name: &str, (start, end): (Nanos, Nanos), on_device: bool) {
        let onto = if on_device { &mut self.device } else { &mut self.host };
        if let Some(number) = name.strip_prefix("ProfilerStep#") {
            if let (Ok(number), false) = (number.parse(), on_device) {
                self.steps.push((number, start, end));
            }
        } else if let Some(action) = name.strip_prefix("PP:") {
            // Others are messages, waits and what is gathered.
            if let Ok(action) = action.parse() {
                onto.push((Some(action), start, end));
            }
        } else if name.starts_with("Optimizer.step#") {
            onto.push((None, start, end));
        }
    }

    /// What it did, in the order of time, from the clock that all ranks share.
    fn work(&self) -> Vec<Timed> {
        let runs = |found: &[Timed]| found.iter().any(|(action, ..)| action.is_some());
        let mut work = if runs(&self.device) { self.device.clone() } else { self.host.clone() };
        for (_, start, end) in &mut work {
            (*start, *end) = (*start + Nanos(self.base), *end + Nanos(self.base));
        }
        work.sort_by_key(|(_, start, _)| *start);
        work
    }

    /// Its steps by number; without marks of the profiler the n-th time that an action runs is step n.
    fn steps(&self, work: &[Timed]) -> Extents {
        let marked = self.steps.iter();
        let mut steps: Extents = marked
            .map(|&(number, start, end)| {
                (number, (start + Nanos(self.base), end + Nanos(self.base)))
            })
            .collect();
        if steps.is_empty() {
            let mut times: BTreeMap<Action, u64> = BTreeMap::new();
            for (action, start, end) in work {
                let Some(action) = action else {
                    // The update belongs to the actions before it.
                    if let Some(mut last) = steps.last_entry() {
                        last.get_mut().1 = last.get().1.max(*end);
                    }
                    continue;
                };
                let number = times.entry(*action).or_default();
                let step = steps.entry(*number).or_insert((*start, *end));
                *step = (step.0.min(*start), step.1.max(*end));
                *number += 1;
            }
        }
        steps
    }
}

/// The timelines of `lanes` lanes out of their ranks' traces; `lane_of` says where a plan has a stage. Of replicas
/// the first that comes is taken. Steps are those that all ranks have. O(events x log events).
///
/// # Errors
/// What is missing, or of another plan.
pub fn join(
    ranks: &[RankTrace],
    model: &str,
    lanes: usize,
    lane_of: impl Fn(StageId) -> Option<usize>,
) -> Result<Trace, JoinError> {
    if ranks.iter().any(|rank| rank.session != ranks[0].session) {
        return Err(JoinError::Clock);
    }
    let mut found: Vec<Option<Clocked>> = (0..lanes).map(|_| None).collect();
    for rank in ranks {
        let work = rank.work();
        let first = work.iter().find_map(|(action, ..)| *action).ok_or(JoinError::NoActions)?;
        let lane = lane_of(first.stage).filter(|lane| *lane < lanes);
        let lane = lane.ok_or(JoinError::Stage(first))?;
        if found[lane].is_none() {
            let steps = rank.steps(&work);
            found[lane] = Some(Clocked { work, steps });
        }
    }
    if let Some(lane) = found.iter().position(Option::is_none) {
        return Err(JoinError::Lane(lane));
    }
    let found: Vec<_> = found.into_iter().flatten().collect();
    let common = |number: &&u64| found.iter().all(|rank| rank.steps.contains_key(number));
    let numbers: Vec<u64> = found[0].steps.keys().filter(common).copied().collect();
    let first = numbers.first().ok_or(JoinError::NoStep)?;
    let origin = found.iter().map(|rank| rank.steps[first].0).min().unwrap_or_default();
    let step = |number: u64| {
        let start = found.iter().map(|rank| rank.steps[&number].0).min().unwrap_or_default();
        let end = found.iter().map(|rank| rank.steps[&number].1).max().unwrap_or_default();
        let lane = |rank: &Clocked| {
            let extent = rank.steps[&number];
            Lane { spans: spans(&rank.work, extent, start), ..Lane::default() }
        };
        let lanes = found.iter().map(lane).collect();
        let timeline = Timeline { lanes, step: end - start, ..Timeline::default() };
        Step { number, start: start - origin, timeline }
    };
    Ok(Trace { model: model.into(), steps: numbers.into_iter().map(step).collect() })
}

/// What begins in an extent, from the begin of the step.
fn spans(work: &[Timed], (from, to): (Nanos, Nanos), start: Nanos) -> Vec<Span> {
    let stage = work.iter().find_map(|(action, ..)| *action).map_or(StageId(0), |a| a.stage);
    let inside = work.iter().filter(|(_, begin, _)| (from..=to).contains(begin));
    let mut spans: Vec<Span> = vec![];
    for &(action, begin, end) in inside {
        // Annotations may nest; a lane's processor does one thing at a time.
        let begin = spans.last().map_or(begin, |last| begin.max(last.end + start));
        if end <= begin {
            continue;
        }
        let work = action.map_or(Work::Optimizer(stage), Work::Run);
        spans.push(Span { start: begin - start, end: end - start, work });
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::super::{Opened, Reader};
    use super::*;
    use crate::schedule::ActionKind;

    fn rank(text: &str) -> Result<RankTrace, TraceError> {
        let mut reader = Reader::default();
        for piece in text.as_bytes().chunks(97) {
            reader.push(piece)?;
        }
        match reader.finish_any()? {
            Opened::Ranks(mut ranks) => Ok(ranks.remove(0)),
            Opened::Run(_) => panic!("taken for one of ours"),
        }
    }

    /// What torch 2.15 wrote of an interleaved 1F1B of 4 stages on 2 gloo ranks.
    fn torchs() -> [RankTrace; 2] {
        [
            include_str!("../../../../tests/data/kineto/interleaved-rank0.json"),
            include_str!("../../../../tests/data/kineto/interleaved-rank1.json"),
        ]
        .map(|text| rank(text).unwrap())
    }

    fn lane(stage: StageId) -> Option<usize> {
        (stage.index() < 4).then_some(stage.index() % 2)
    }

    #[test]
    fn torchs_own_traces_become_a_timeline() {
        let [a, b] = torchs();
        assert_eq!((a.rank, b.rank), (0, 1));
        // The order of the files does not matter.
        let trace = join(&[b.clone(), a.clone()], "x", 2, lane).unwrap();
        assert_eq!(trace, join(&[a.clone(), b], "x", 2, lane).unwrap());
        assert_eq!(trace.steps.iter().map(|s| s.number).collect::<Vec<_>>(), [2, 3, 4]);
        for step in &trace.steps {
            let timeline = &step.timeline;
            for (lane, content) in timeline.lanes.iter().enumerate() {
                let actions: Vec<Action> = content
                    .spans
                    .iter()
                    .filter_map(|s| match s.work {
                        Work::Run(action) => Some(action),
                        Work::Optimizer(_) => None,
                    })
                    .collect();
                assert_eq!(actions.len(), 16, "2 stages, 4 micro-batches, forward and backward");
                assert!(actions.iter().all(|a| a.stage.index() % 2 == lane));
                assert!(actions.contains(&Action::new(lane as u32 + 2, ActionKind::Backward, 3)));
                assert_eq!(content.spans.len(), 17, "and the update");
                assert!(content.spans.windows(2).all(|w| w[0].end <= w[1].start));
                assert!(content.spans.iter().all(|s| s.end <= timeline.step));
            }
            assert!(timeline.bubble() > 0.0 && timeline.bubble() < 1.0);
        }
        let alone = [a];
        assert_eq!(join(&alone, "x", 2, lane), Err(JoinError::Lane(1)));
        let nowhere = join(&alone, "x", 2, |_| None).unwrap_err().to_string();
        assert!(nowhere.starts_with("it has 0F0, a stage"), "{nowhere}");
    }

    fn file(events: &str) -> String {
        format!("{{\"schemaVersion\":1,\"baseTimeNanoseconds\":5,\"traceEvents\":[{events}]}}")
    }

    fn event(name: &str, cat: &str, ts: f64, dur: f64) -> String {
        format!(
            r#"{{"ph":"X","cat":"{cat}","name":"{name}","pid":"a","tid":1,"ts":{ts},"dur":{dur}}}"#
        )
    }

    #[test]
    fn times_on_the_device_count_and_steps_are_told_without_marks() {
        let events = [
            event("PP:0F0", "user_annotation", 1.0, 1.0),
            event("PP:0F0", "gpu_user_annotation", 3.0, 4.0),
            event("PP:0B0", "gpu_user_annotation", 8.0, 2.0),
            event("PP:0SEND_F0", "gpu_user_annotation", 7.0, 1.0),
            event("PP:0F0", "gpu_user_annotation", 20.0, 4.0),
        ];
        let trace = join(&[rank(&file(&events.join(","))).unwrap()], "x", 1, |_| Some(0)).unwrap();
        assert_eq!(trace.steps.len(), 2);
        let first = &trace.steps[0].timeline;
        let times = |s: &Span| (s.start.0, s.end.0);
        assert_eq!(
            first.lanes[0].spans.iter().map(times).collect::<Vec<_>>(),
            [(0, 4000), (5000, 7000)]
        );
        assert_eq!((first.step, trace.steps[1].start), (Nanos(7000), Nanos(17_000)));
    }

    #[test]
    fn a_lane_does_one_thing_at_a_time() {
        let events = [
            event("PP:0F0", "user_annotation", 10.0, 4.0),
            event("PP:0B0", "user_annotation", 12.0, 5.0),
            event("PP:0F1", "user_annotation", 13.0, 2.0),
        ];
        let trace = join(&[rank(&file(&events.join(","))).unwrap()], "x", 1, |_| Some(0)).unwrap();
        let times = |s: &Span| (s.start.0, s.end.0);
        let spans = &trace.steps[0].timeline.lanes[0].spans;
        assert_eq!(spans.iter().map(times).collect::<Vec<_>>(), [(0, 4000), (4000, 7000)]);
    }

    #[test]
    fn what_names_no_actions_says_so() {
        let none = rank(&file(&event("aten::mm", "cpu_op", 1.0, 2.0))).unwrap();
        assert_eq!(join(&[none], "x", 1, |_| Some(0)), Err(JoinError::NoActions));
        let ours = Reader::default();
        assert!(matches!(ours.finish_any(), Err(TraceError::Json(_))));
        let bad = rank(&file(&event("PP:0F0", "user_annotation", -4.0, 2.0))).unwrap_err();
        assert!(bad.to_string().contains("-4 µs"), "{bad}");
    }
}
