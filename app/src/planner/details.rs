//! One action in words and its micro-batch's way as a picture.

use super::engine::Solved;
use crate::base::format::{self, Clock};
use crate::base::texts::{t, tr};
use pipewright_core::ids::LaneId;
use pipewright_core::schedule::{Action, ActionKind};
use pipewright_core::timeline::causes::{self, Arrivals, Cause};
use pipewright_core::timeline::{Timeline, Work};
use pipewright_core::units::Nanos;
use std::fmt::Write;

/// How long the lane was idle before, and for what.
pub fn waited(
    t: &Timeline,
    arrivals: &Arrivals,
    lane: usize,
    index: usize,
    clock: &Clock,
) -> String {
    let (idle, cause) = arrivals.wait(t, lane, index);
    match cause {
        _ if idle == Nanos::ZERO => tr!("0 ms"),
        Cause::Message(i) => {
            let message = &t.messages[i];
            let kind = if message.gradient { 'B' } else { 'F' };
            tr!(
                "{time} for {what} of lane {lane}",
                time = clock.text(idle),
                what = format_args!("{kind} {}", message.micro_batch),
                lane = message.from
            )
        }
        Cause::Lane => clock.text(idle),
    }
}

/// What went on elsewhere while the lane was idle before; none where it was not, or hardly.
pub fn because(
    t: &Timeline,
    arrivals: &Arrivals,
    lane: usize,
    index: usize,
    clock: &Clock,
) -> Option<String> {
    let made = causes::waiting(t, arrivals, lane, index);
    let part = |(lane, time): &(LaneId, Nanos)| {
        tr!("lane {lane}: {time} of compute", lane, time = clock.short(*time))
    };
    let mut parts: Vec<String> = made.working.iter().take(3).map(part).collect();
    let rest: Nanos = made.working.iter().skip(3).map(|(_, time)| *time).sum();
    if rest > Nanos::ZERO {
        parts.push(tr!("other lanes: {time} of compute", time = clock.short(rest)));
    }
    if made.messages > Nanos::ZERO {
        parts.push(tr!("messages {time}", time = clock.short(made.messages)));
    }
    (!parts.is_empty()).then(|| parts.join(crate::base::texts::t(", ")))
}

/// What a forward pass keeps until its backward pass.
pub fn holds(solved: &Solved, action: Action, lane: usize, clock: &Clock) -> Option<String> {
    if action.kind != ActionKind::Forward {
        return Some(t("released").into());
    }
    let end = solved.timeline.lanes[lane].spans.iter().rfind(|s| match s.work {
        Work::Run(a) => {
            a.stage == action.stage
                && a.micro_batch == action.micro_batch
                && a.kind != ActionKind::Forward
        }
        Work::Optimizer(_) => false,
    })?;
    let stash = format::bytes_text(*solved.stash.get(action.stage.index())?);
    Some(tr!("{stash} until {end}", stash, end = clock.text(end.end)))
}

/// How the measured lane's working time differs from the predicted one's.
pub fn drift(predicted: &Timeline, measured: &Timeline, lane: usize) -> String {
    let (a, b) = (measured.lanes[lane].busy(), predicted.lanes[lane].busy());
    tr!("{change} busy time", change = format::signed_percent(a.secs(), b.secs()))
}

/// A small picture of the micro-batch's way: markup, since it is drawn anew as a whole.
pub fn way(t: &Timeline, action: Action, clock: &Clock) -> (String, String) {
    const WIDTH: f64 = 242.0;
    let mut spans = causes::journey(t, action.micro_batch);
    // Of replicas and groups that have rows of their own, the first one's.
    let mut seen: Vec<Work> = vec![];
    spans.retain(|(_, span)| {
        let first = !seen.contains(&span.work);
        seen.push(span.work);
        first
    });
    let lanes = t.lanes.len().max(1);
    let row = (88.0 / lanes as f64).clamp(2.0, 11.0);
    let bar = if row > 4.0 { row - 2.0 } else { row };
    let (Some(first), Some(last)) = (spans.first(), spans.iter().map(|(_, s)| s.end).max()) else {
        return (String::new(), String::new());
    };
    let start = first.1.start;
    let length = (last - start).0.max(1) as f64;
    let x = |m: Nanos| (m.saturating_sub(start)).0 as f64 / length * WIDTH;
    let y = |lane: usize| lane as f64 * row;
    let mut marks = String::new();
    for pair in spans.windows(2) {
        let ((a, p), (b, q)) = (&pair[0], &pair[1]);
        let _ = write!(
            marks,
            "<path d='M{:.1} {:.1}H{:.1}V{:.1}' fill='none' stroke='var(--line-2)'/>",
            x(p.end),
            y(a.index()) + bar / 2.0,
            x(q.start),
            y(b.index()) + bar / 2.0
        );
    }
    let mut busy = Nanos::ZERO;
    for (lane, span) in &spans {
        busy += span.end - span.start;
        let Work::Run(a) = span.work else { continue };
        let kind = a.kind.letter().to_ascii_lowercase();
        let width = (x(span.end) - x(span.start)).max(1.5);
        let _ = write!(
            marks,
            "<rect x='{:.1}' y='{:.1}' width='{width:.1}' height='{bar:.1}' rx='1.5' fill='var(--{kind})'/>",
            x(span.start),
            y(lane.index())
        );
    }
    let height = row * lanes as f64;
    let svg = format!(
        "<svg viewBox='0 0 {WIDTH} {height:.0}' preserveAspectRatio='none' height='{height:.0}' role='img' aria-label='{}'>{marks}</svg>",
        tr!("Path of micro-batch {number}", number = action.micro_batch)
    );
    let waiting = (last - start).saturating_sub(busy);
    let caption = tr!(
        "{all}: {busy} computing, {waiting} waiting",
        all = clock.short(last - start),
        busy = clock.short(busy),
        waiting = clock.short(waiting)
    );
    (svg, caption)
}

/// Tooltip of a plan's bar: [`one_line`], and what a forward pass keeps until when.
pub fn tip(solved: &Solved, arrivals: &Arrivals, action: Action) -> Option<String> {
    let mut line = one_line(&solved.timeline, arrivals, action)?;
    let clock = Clock::of(solved.timeline.step);
    let mut more = |text: String| {
        line += " · ";
        line += &text;
    };
    if let Some(exchanged) = solved.exchanged.get(action.stage.index()) {
        let time = clock.short(exchanged.of(action.kind));
        more(match solved.inputs.rest.data_parallel.expert_parallel {
            1 => tr!("{time} of it in the tensor group's sums", time),
            _ => tr!("{time} of it in what its groups exchange", time),
        });
    }
    if action.kind == ActionKind::Forward {
        let (lane, _) = causes::find(&solved.timeline, action)?;
        if let Some(kept) = holds(solved, action, lane, &clock) {
            more(tr!("holds {kept}", kept));
        }
    }
    Some(line)
}

/// Tooltip and spoken line: `F 4 · stage 1 · lane 1 · 787.1 → 863.2 ms (76.1 ms) · waited ...`.
pub fn one_line(t: &Timeline, arrivals: &Arrivals, action: Action) -> Option<String> {
    let (lane, index) = causes::find(t, action)?;
    let clock = Clock::of(t.step);
    let span = t.lanes[lane].spans[index];
    let kind = action.kind.letter();
    let mut line = tr!(
        "{action} · stage {stage} · lane {lane} · {span} ({time})",
        action = format_args!("{kind} {}", action.micro_batch),
        stage = action.stage,
        lane,
        span = clock.span(span.start, span.end),
        time = clock.text(span.end - span.start)
    );
    if arrivals.wait(t, lane, index).0 > Nanos::ZERO {
        let waited = waited(t, arrivals, lane, index, &clock);
        let _ = write!(line, " · {}", tr!("waited {time}", time = waited));
    }
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::engine::{Ground, solve};
    use crate::planner::presets::first;

    #[test]
    fn the_line_says_kind_place_time_and_wait() {
        let inputs = first();
        let solved = solve(&inputs, &Ground::of(&inputs)).unwrap();
        let t = &solved.timeline;
        let line = one_line(t, &Arrivals::new(t), Action::new(1, ActionKind::Forward, 0)).unwrap();
        assert!(line.starts_with("F 0 · stage 1 · lane 1 · "), "{line}");
        assert!(line.contains("waited") && line.ends_with("for F 0 of lane 0"), "{line}");
        assert_eq!(one_line(t, &Arrivals::new(t), Action::new(9, ActionKind::Forward, 0)), None);
        let tip = |kind| tip(&solved, &Arrivals::new(t), Action::new(1, kind, 0)).unwrap();
        let forward = tip(ActionKind::Forward);
        let (_, kept) = forward.split_once(" · holds ").expect("what it keeps");
        let (stash, end) = kept.split_once(" until ").unwrap();
        assert_eq!(stash, format::bytes_text(solved.stash[1]));
        // Until the backward pass of the same micro-batch has ended.
        let (lane, at) = causes::find(t, Action::new(1, ActionKind::Backward, 0)).unwrap();
        assert_eq!(end, Clock::of(t.step).text(t.lanes[lane].spans[at].end));
        assert!(!tip(ActionKind::Backward).contains("holds"));
    }

    #[test]
    fn a_tip_says_what_tensor_groups_exchange() {
        let mut inputs = first();
        inputs.rest.tensor = 2;
        let solved = solve(&inputs, &Ground::of(&inputs)).unwrap();
        let action = Action::new(inputs.stages() - 1, ActionKind::Forward, 0);
        let tip = tip(&solved, &Arrivals::new(&solved.timeline), action).unwrap();
        let exchanged = solved.exchanged.last().unwrap().forward;
        assert!(exchanged > Nanos::ZERO);
        let time = Clock::of(solved.timeline.step).short(exchanged);
        assert!(tip.contains(&format!(" · {time} of it in the tensor group's sums")), "{tip}");
    }

    #[test]
    fn computing_and_waiting_add_up() {
        let inputs = first();
        let solved = solve(&inputs, &Ground::of(&inputs)).unwrap();
        let action = Action::new(0, ActionKind::Forward, 2);
        let (svg, caption) = way(&solved.timeline, action, &Clock::of(solved.timeline.step));
        assert_eq!(svg.matches("<rect").count(), 8);
        assert!(caption.contains("computing") && caption.contains("waiting"));
    }
}
