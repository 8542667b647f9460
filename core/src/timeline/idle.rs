//! Idle time of a lane by what it waited for, read from the timeline alone.
//!
//! A lane is idle before each of its spans and after the last one. Of each gap first comes what has a name
//! of its own: messages on their way, sums of gradients, samples. The rest is others' work, and the lane's
//! own place in the schedule says what that is: until its first backward pass the pipeline fills, after its
//! last forward pass it drains, and between them the lane stalls. Parts add up to the step less the work.

use super::causes::{Arrivals, Cause, waiting};
use super::{Aside, Lane, Span, Timeline, Wait, What, Work};
use crate::schedule::ActionKind;
use crate::units::Nanos;

/// Parts of a lane's idle time in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Idle {
    /// Others work before the lane's first backward pass.
    pub warm_up: Nanos,
    /// Others work after the lane's last forward pass.
    pub cool_down: Nanos,
    /// Others work in between.
    pub stall: Nanos,
    /// Messages are on their way, taken in, or not yet received.
    pub messages: Nanos,
    /// Ranks come together: sums of gradients, and what replicas broadcast.
    pub sums: Nanos,
    /// Samples are drawn and copied.
    pub input: Nanos,
    /// Nothing that a trace tells. Zero in predictions.
    pub other: Nanos,
}

impl Idle {
    /// All of it.
    pub fn total(&self) -> Nanos {
        let [a, b, c] = [self.warm_up, self.cool_down, self.stall];
        let named = [self.messages, self.sums, self.input, self.other];
        a + b + c + named.into_iter().sum::<Nanos>()
    }

    /// What the pipeline takes to fill and to drain.
    pub fn ramps(&self) -> Nanos {
        self.warm_up + self.cool_down
    }
}

/// Where a lane is in its schedule.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    WarmUp,
    Steady,
    CoolDown,
}

/// The idle time of a lane. Linear in its spans and in the causes of its gaps.
pub fn idle(timeline: &Timeline, arrivals: &Arrivals, lane: usize) -> Idle {
    let content = &timeline.lanes[lane];
    let mut found = Idle::default();
    let (phases, mut free) = (Phases::of(content), Nanos::ZERO);
    for (index, span) in content.spans.iter().enumerate() {
        if span.start > free {
            let messages = match arrivals.wait(timeline, lane, index).1 {
                Cause::Message(_) => Some(waiting(timeline, arrivals, lane, index).messages),
                Cause::Lane => None,
            };
            found.gap(content, (free, span.start), messages, phases.before(index));
        }
        free = free.max(span.end);
    }
    if timeline.step > free {
        found.gap(content, (free, timeline.step), None, Phase::CoolDown);
    }
    found
}

impl Idle {
    /// A gap of the lane; `messages` is what messages take of it, where one ended it.
    fn gap(
        &mut self,
        lane: &Lane,
        (from, to): (Nanos, Nanos),
        messages: Option<Nanos>,
        phase: Phase,
    ) {
        let mut left = to.saturating_sub(from);
        let mut take = |part: &mut Nanos, time: Nanos| {
            let time = time.min(left);
            *part += time;
            left = left.saturating_sub(time);
        };
        let during = |what: fn(What) -> bool| covered(&lane.asides, (from, to), what);
        if let Some(messages) = messages {
            take(&mut self.messages, messages);
        } else {
            take(&mut self.sums, during(is_sum));
            take(&mut self.input, during(|what| what == What::Input));
            take(&mut self.messages, during(is_message));
        }
        let others = match phase {
            // Work that nothing was waited for by: a gap of the measuring, or of the processor.
            Phase::Steady if messages.is_none() => &mut self.other,
            Phase::WarmUp => &mut self.warm_up,
            Phase::Steady => &mut self.stall,
            Phase::CoolDown => &mut self.cool_down,
        };
        *others += left;
    }
}

fn is_sum(what: What) -> bool {
    matches!(what, What::AllReduce(_) | What::Wait(Wait::Ranks))
}

fn is_message(what: What) -> bool {
    matches!(what, What::Wait(Wait::Message | Wait::Receiver))
}

/// How much of a gap such asides cover; where they overlap each other it is counted once.
fn covered(asides: &[Aside], (from, to): (Nanos, Nanos), such: fn(What) -> bool) -> Nanos {
    let (mut until, mut sum) = (from, Nanos::ZERO);
    for aside in asides.iter().filter(|aside| such(aside.what)) {
        let (start, end) = (aside.start.max(until), aside.end.min(to));
        if start < end {
            sum += end - start;
            until = end;
        }
    }
    sum
}

/// Spans by which a lane changes its phase.
struct Phases {
    first_backward: usize,
    last_forward: usize,
}

impl Phases {
    fn of(lane: &Lane) -> Self {
        let is = |forward: bool| {
            move |span: &Span| match span.work {
                Work::Run(action) => (action.kind == ActionKind::Forward) == forward,
                Work::Optimizer(_) => false,
            }
        };
        let first_backward = lane.spans.iter().position(is(false));
        Self {
            first_backward: first_backward.unwrap_or(lane.spans.len()),
            last_forward: lane.spans.iter().rposition(is(true)).unwrap_or(0),
        }
    }

    /// Before span `index`.
    fn before(&self, index: usize) -> Phase {
        match (index <= self.first_backward, index <= self.last_forward) {
            (true, _) => Phase::WarmUp,
            (false, true) => Phase::Steady,
            (false, false) => Phase::CoolDown,
        }
    }
}
