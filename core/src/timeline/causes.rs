//! Causes of each span: read from the timeline alone, so that they hold for a measured one as well.
//!
//! An action begins when its lane is free and its message has come; whichever was later is the
//! cause. Following causes back from the end of the step gives the critical path.
//!
//! Where the receiver moves a message's bytes itself (ranks of one machine, and whatever a runner measured) a
//! message is received when its receiver comes for it. One that was sent before that has not been waited for,
//! however long it lay there: [`Arrivals::taken`].

use super::{Lane, Message, Span, Timeline, Work};
use crate::cost::Cluster;
use crate::ids::{LaneId, MicroBatch};
use crate::order::{descending, sort_by_numbers};
use crate::schedule::{Action, ActionKind};
use crate::units::Nanos;

/// The messages that each lane receives for each micro-batch and direction. Built in two passes over the
/// messages, asked in the time of the few that a lane's stages receive for one micro-batch.
#[derive(Debug)]
pub struct Arrivals {
    micro_batches: usize,
    /// The first message of each lane, micro-batch and direction, or [`NONE`].
    first: Box<[u32]>,
    /// By message: the next one of the same lane, micro-batch and direction, or [`NONE`].
    next: Box<[u32]>,
    /// Whether receivers take messages when they come for them.
    taken: bool,
}

/// No message.
const NONE: u32 = u32::MAX;

/// What an action waited for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cause {
    /// The message with this index.
    Message(usize),
    /// The lane's previous work, or the start of the step.
    Lane,
}

impl Arrivals {
    /// Of a timeline in which messages arrive by themselves. Linear in the messages.
    pub fn new(timeline: &Timeline) -> Self {
        Self::of(timeline, false)
    }

    /// Of one in which receivers take messages when they come for them. Linear in the messages.
    pub fn taken(timeline: &Timeline) -> Self {
        Self::of(timeline, true)
    }

    /// Of a prediction for `cluster`. Linear in the messages.
    pub fn on(timeline: &Timeline, cluster: &Cluster) -> Self {
        Self::of(timeline, cluster.receivers_copy)
    }

    fn of(timeline: &Timeline, taken: bool) -> Self {
        let messages = &timeline.messages;
        let micro_batches = messages.iter().map(|m| m.micro_batch.index() + 1).max().unwrap_or(0);
        let slots = timeline.lanes.len() * micro_batches * 2;
        let mut first: Box<[u32]> = vec![NONE; slots].into();
        let mut next: Box<[u32]> = vec![NONE; messages.len()].into();
        // From the last to the first: each list is in the order of the messages.
        for (i, message) in messages.iter().enumerate().rev() {
            let at = message.to.index() * micro_batches + message.micro_batch.index();
            if let Some(first) = first.get_mut(at * 2 + usize::from(message.gradient)) {
                next[i] = std::mem::replace(first, i as u32);
            }
        }
        Self { micro_batches, first, next, taken }
    }

    /// The message without which `action` could not begin on `lane`: the last of those that come from
    /// stages before its own, or with gradients from stages behind it.
    pub fn message(&self, timeline: &Timeline, lane: usize, action: Action) -> Option<usize> {
        if action.micro_batch.index() >= self.micro_batches {
            return None;
        }
        let backward = action.kind != ActionKind::Forward;
        let at = (lane * self.micro_batches + action.micro_batch.index()) * 2;
        let known = |i: &u32| *i != NONE;
        let first = self.first.get(at + usize::from(backward)).copied().filter(known);
        let all = std::iter::successors(first, |i| Some(self.next[*i as usize]).filter(known));
        let here = all.map(|i| i as usize);
        let comes = |i: &usize| {
            let stage = timeline.messages[*i].stage;
            if backward { stage > action.stage } else { stage < action.stage }
        };
        here.filter(comes).max_by_key(|i| {
            let message = &timeline.messages[*i];
            if self.taken { message.sent } else { message.received }
        })
    }

    /// How long the lane was idle before its span `index`, and what it waited for.
    pub fn wait(&self, timeline: &Timeline, lane: usize, index: usize) -> (Nanos, Cause) {
        let spans = &timeline.lanes[lane].spans;
        let free = if index == 0 { Nanos::ZERO } else { spans[index - 1].end };
        let idle = spans[index].start.saturating_sub(free);
        let Work::Run(action) = spans[index].work else { return (idle, Cause::Lane) };
        match self.message(timeline, lane, action) {
            Some(i) if self.waits_for(&timeline.messages[i], free) => (idle, Cause::Message(i)),
            _ => (idle, Cause::Lane),
        }
    }

    /// Whether a lane that is free from `free` on has to wait for `message`.
    fn waits_for(&self, message: &Message, free: Nanos) -> bool {
        message.received > free && !(self.taken && message.sent <= free)
    }
}

/// The action that computed what `message` carries: its lane and the index of its span.
pub fn producer(timeline: &Timeline, message: &Message) -> Option<(usize, usize)> {
    let lane = message.from.index();
    let spans = &timeline.lanes.get(lane)?.spans;
    let produces = |span: &Span| match span.work {
        Work::Run(a) => {
            a.stage == message.stage
                && a.micro_batch == message.micro_batch
                && match a.kind {
                    ActionKind::Forward => !message.gradient,
                    ActionKind::Backward | ActionKind::BackwardInput => message.gradient,
                    ActionKind::BackwardWeight => false,
                }
        }
        Work::Optimizer(_) => false,
    };
    // Almost always the last one that ended before the message left.
    let near = spans.partition_point(|s| s.end <= message.sent);
    let recent = spans[..near].iter().rposition(produces);
    recent.or_else(|| spans.iter().position(produces)).map(|index| (lane, index))
}

/// From the start of the step to its end, each span begun by the one before it: lanes and indexes.
pub fn critical_path(timeline: &Timeline, arrivals: &Arrivals) -> Vec<(usize, usize)> {
    let last = |(lane, content): (usize, &Lane)| {
        content.spans.last().map(|span| (span.end, lane, content.spans.len() - 1))
    };
    let ends = timeline.lanes.iter().enumerate().filter_map(last);
    let Some((_, mut lane, mut index)) =
        ends.max_by_key(|(end, lane, _)| (*end, usize::MAX - lane))
    else {
        return vec![];
    };
    let total: usize = timeline.lanes.iter().map(|l| l.spans.len()).sum();
    let mut path = vec![(lane, index)];
    // Bounded, because the messages of a damaged trace could lead in a circle.
    while path.len() <= total {
        let before = match arrivals.wait(timeline, lane, index).1 {
            Cause::Message(i) => producer(timeline, &timeline.messages[i]),
            Cause::Lane => None,
        };
        match before {
            Some(found) => (lane, index) = found,
            None if index > 0 => index = before_it(&timeline.lanes[lane], index),
            None => break,
        }
        path.push((lane, index));
    }
    path.reverse();
    path
}

/// What went on while a lane was idle, as far as the end of its wait hung on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Time of lanes at work, each lane once, the longest first.
    pub working: Vec<(LaneId, Nanos)>,
    /// Time of messages on their way.
    pub messages: Nanos,
}

/// What the idle time before span `index` of `lane` is made of: its causes, followed back until the lane
/// began to wait. Adds up to the idle time but for what lanes on that way were idle themselves.
pub fn waiting(timeline: &Timeline, arrivals: &Arrivals, lane: usize, index: usize) -> Waiting {
    let (idle, cause) = arrivals.wait(timeline, lane, index);
    let until = timeline.lanes[lane].spans[index].start;
    let from = until.saturating_sub(idle);
    let inside = |a: Nanos, b: Nanos| b.min(until).saturating_sub(a.max(from));
    let mut found = Waiting::default();
    let mut next = Some(cause);
    let (mut lane, mut index) = (lane, index);
    let total: usize = timeline.lanes.iter().map(|l| l.spans.len()).sum();
    for _ in 0..total {
        let place = match next.take() {
            Some(Cause::Message(i)) => {
                let message = &timeline.messages[i];
                found.messages += inside(message.sent, message.received);
                producer(timeline, message)
            }
            Some(Cause::Lane) if index > 0 => Some((lane, before_it(&timeline.lanes[lane], index))),
            _ => None,
        };
        let Some(place) = place else { break };
        (lane, index) = place;
        let span = timeline.lanes[lane].spans[index];
        if span.end <= from {
            break;
        }
        found.add(LaneId(lane as u32), inside(span.start, span.end));
        next = Some(arrivals.wait(timeline, lane, index).1);
    }
    sort_by_numbers(&mut found.working, |(lane, time)| [descending(time.0), lane.0.into()]);
    found
}

impl Waiting {
    fn add(&mut self, lane: LaneId, time: Nanos) {
        match self.working.iter_mut().find(|(known, _)| *known == lane) {
            _ if time == Nanos::ZERO => {}
            Some((_, sum)) => *sum += time,
            None => self.working.push((lane, time)),
        }
    }
}

/// The span after which the lane was free: not the one that a span overlaps with.
fn before_it(lane: &Lane, index: usize) -> usize {
    let start = lane.spans[index].start;
    lane.spans[..index].iter().rposition(|span| span.end <= start).unwrap_or(index - 1)
}

/// All spans of one micro-batch by time: lane and span.
pub fn journey(timeline: &Timeline, micro_batch: MicroBatch) -> Vec<(LaneId, Span)> {
    let mut found = vec![];
    for (lane, content) in (0..).map(LaneId).zip(&timeline.lanes) {
        for span in &content.spans {
            if matches!(span.work, Work::Run(a) if a.micro_batch == micro_batch) {
                found.push((lane, *span));
            }
        }
    }
    sort_by_numbers(&mut found, |(_, span)| [span.start.0, 0]);
    found
}

/// Where `action` runs: lane and index of its span.
pub fn find(timeline: &Timeline, action: Action) -> Option<(usize, usize)> {
    timeline.lanes.iter().enumerate().find_map(|(lane, content)| {
        let index = content.spans.iter().position(|s| s.work == Work::Run(action))?;
        Some((lane, index))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Cluster;
    use crate::graph::presets::Preset;
    use crate::partition::uniform;
    use crate::plan::{Draft, Model};
    use crate::schedule::ScheduleKind;

    fn timeline(preset: Preset, stages: u32) -> Timeline {
        let cuts = uniform(&preset.graph().unwrap(), stages).unwrap();
        let cluster = Cluster::preset("dgx-a100").unwrap();
        Draft::new(Model::Preset(preset), cluster, cuts).plan().unwrap().1.timeline
    }

    #[test]
    fn the_critical_path_is_unbroken_from_the_start_to_the_end() {
        for (preset, stages) in [(Preset::Vgg16, 4), (Preset::Resnet50, 8), (Preset::Mlp4, 1)] {
            let t = timeline(preset, stages);
            let path = critical_path(&t, &Arrivals::new(&t));
            let span = |(lane, index): (usize, usize)| t.lanes[lane].spans[index];
            assert_eq!(span(path[0]).start, Nanos::ZERO, "{preset}");
            assert_eq!(span(*path.last().unwrap()).end, t.step);
            assert!(path.windows(2).all(|w| span(w[0]).end <= span(w[1]).start));
        }
    }

    #[test]
    fn the_path_is_unbroken_where_lanes_have_several_stages() {
        for kind in ScheduleKind::ALL {
            let stages = kind.placement().stages(4);
            let cuts = uniform(&Preset::Vgg16.graph().unwrap(), stages).unwrap();
            let cluster = Cluster::preset("dgx-a100").unwrap();
            let mut draft = Draft::new(Model::Preset(Preset::Vgg16), cluster, cuts);
            (draft.schedule, draft.micro_batches) = (kind, 8);
            let t = draft.plan().unwrap().1.timeline;
            let path = critical_path(&t, &Arrivals::new(&t));
            let span = |(lane, index): (usize, usize)| t.lanes[lane].spans[index];
            assert_eq!(span(path[0]).start, Nanos::ZERO, "{kind}");
            assert_eq!(span(*path.last().unwrap()).end, t.step, "{kind}");
            for pair in path.windows(2) {
                let (a, b) = (span(pair[0]), span(pair[1]));
                assert!(a.end <= b.start, "{kind}: {a:?} and {b:?}");
            }
        }
    }

    #[test]
    fn a_wait_is_made_of_work_elsewhere_and_messages() {
        let t = timeline(Preset::Vgg16, 4);
        let arrivals = Arrivals::new(&t);
        let mut seen = 0;
        for lane in 0..4 {
            for index in 0..t.lanes[lane].spans.len() {
                let (idle, cause) = arrivals.wait(&t, lane, index);
                let made = waiting(&t, &arrivals, lane, index);
                let sum: Nanos = made.working.iter().map(|(_, time)| *time).sum();
                assert!(sum + made.messages <= idle, "{made:?} of {idle:?}");
                if idle > Nanos::ZERO && matches!(cause, Cause::Message(_)) {
                    assert_eq!(sum + made.messages, idle, "nothing else goes on in a pipeline");
                    assert!(made.working.iter().all(|(l, _)| l.index() != lane) || lane == 0);
                    seen += 1;
                }
            }
        }
        assert!(seen > 4, "{seen}");
    }

    #[test]
    fn a_busy_receiver_has_not_waited_for_what_lay_there() {
        let mut taken = timeline(Preset::Vgg16, 4);
        let idle = |timeline: &Timeline, path: &[(usize, usize)]| {
            let span = |(lane, index): (usize, usize)| timeline.lanes[lane].spans[index];
            path.windows(2).map(|w| span(w[1]).start.saturating_sub(span(w[0]).end).0).sum::<u64>()
        };
        let before = idle(&taken, &critical_path(&taken, &Arrivals::new(&taken)));
        // As a runner measures: a message is received when its receiver comes for it, and that takes
        // a moment of its own.
        for span in taken.lanes.iter_mut().flat_map(|lane| &mut lane.spans) {
            span.start += Nanos(((span.end - span.start).0 / 2).min(1000));
        }
        for message in &mut taken.messages {
            let spans = &taken.lanes[message.to.index()].spans;
            let next = spans.partition_point(|span| span.start < message.received);
            message.received = spans.get(next).map_or(message.received, |span| span.start);
        }
        let naive = idle(&taken, &critical_path(&taken, &Arrivals::new(&taken)));
        let path = idle(&taken, &critical_path(&taken, &Arrivals::taken(&taken)));
        // The moments are added, and a message on its way is laid to its receiver: next to nothing.
        assert!(naive * 2 > before * 3, "{before}, {naive}");
        assert!(path.abs_diff(before) * 10 < naive - before, "{before}, {naive}, {path}");
    }

    #[test]
    fn a_later_lane_waits_for_the_lane_before_it() {
        let t = timeline(Preset::Vgg16, 4);
        let arrivals = Arrivals::new(&t);
        let (idle, cause) = arrivals.wait(&t, 1, 0);
        assert_eq!(idle, t.lanes[1].spans[0].start);
        let Cause::Message(i) = cause else { panic!("{cause:?}") };
        assert_eq!(producer(&t, &t.messages[i]), Some((0, 0)));
        assert_eq!(arrivals.wait(&t, 0, 1), (Nanos::ZERO, Cause::Lane));
    }

    #[test]
    fn a_micro_batch_visits_every_lane_twice() {
        let t = timeline(Preset::Vgg16, 4);
        let way = journey(&t, MicroBatch(3));
        assert_eq!(way.len(), 2 * t.lanes.len());
    }
}
