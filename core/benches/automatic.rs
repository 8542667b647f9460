//! The automatic scheduler on uneven stages: its time, and the step it finds as a multiple of the
//! lower bound beside those of 1F1B and ZB-H1 in the same memory.
//! `cargo bench -p pipewright-core --bench automatic`.

use pipewright_core::ids::LaneId;
use pipewright_core::schedule::{Automatic, StageLoad, automatic};
use pipewright_core::units::{Bytes, Nanos};
use std::time::Instant;

/// Stages that differ by up to a third, with W a bit cheaper than I.
fn uneven(stages: u32) -> Vec<StageLoad> {
    let stage = |s: u32| {
        let wave = u64::from(s * 7 % 11) * 30;
        StageLoad {
            forward: Nanos(1_000 + wave),
            backward_input: Nanos(1_150 + wave),
            backward_weight: Nanos(850 + wave),
            hop: Nanos(60),
            stash: Bytes(1),
            weight_stash: Bytes(1),
        }
    };
    (0..stages).map(stage).collect()
}

fn main() {
    println!(
        "{:>5} {:>5} {:>8}  {:>9}  {:>8} {:>8} {:>8} {:>8}",
        "lanes", "m", "memory", "time", "1F1B", "ZB-H1", "found", "bound"
    );
    for (p, m) in [(8, 32), (8, 512), (16, 64), (32, 128), (64, 128), (64, 512)] {
        for memory in [p, 2 * p] {
            let input = Automatic {
                stages: uneven(p),
                lane_of: (0..p).map(LaneId).collect(),
                micro_batches: m,
                memory: vec![Bytes(u64::from(memory)); p as usize],
            };
            report(&input, &format!("{memory}"));
        }
        let input = Automatic {
            stages: uneven(2 * p),
            lane_of: (0..2 * p).map(|s| LaneId(s.min(2 * p - 1 - s))).collect(),
            micro_batches: m,
            memory: vec![Bytes(2 * u64::from(p)); p as usize],
        };
        report(&input, "V");
    }
}

fn report(input: &Automatic, memory: &str) {
    let start = Instant::now();
    let found = automatic(input).expect("enough memory");
    let time = start.elapsed().as_secs_f64() * 1e3;
    let load = |kind: fn(&StageLoad) -> Nanos| -> Vec<u64> {
        let mut lanes = vec![0; input.memory.len()];
        for (stage, lane) in input.stages.iter().zip(&input.lane_of) {
            lanes[lane.index()] += kind(stage).0;
        }
        lanes
    };
    let whole = load(|s| s.forward + s.backward_input + s.backward_weight);
    let busy: u64 = whole.iter().sum::<u64>() * u64::from(input.micro_batches);
    let bubble = |step: u64| 100.0 * (1.0 - busy as f64 / (step * whole.len() as u64) as f64);
    let named = |delay: bool| match input.stages.len() == input.memory.len() {
        true => format!("{:.2} %", bubble(named_step(input, delay))),
        false => "-".into(),
    };
    println!(
        "{:>5} {:>5} {memory:>8}  {time:>6.0} ms  {:>8} {:>8} {:>6.2} % {:>6.2} %",
        input.memory.len(),
        input.micro_batches,
        named(false),
        named(true),
        bubble(found.step.0),
        bubble(found.bound.0),
    );
}

/// The step of 1F1B, or of ZB-H1, by the recurrences of their passes.
fn named_step(input: &Automatic, delay: bool) -> u64 {
    use pipewright_core::schedule::{ActionKind, ScheduleKind};
    let kind = if delay { ScheduleKind::ZbH1 } else { ScheduleKind::OneFOneB };
    let (p, m) = (input.stages.len(), input.micro_batches as usize);
    let schedule = kind.generate(p as u32, input.micro_batches).expect("any numbers do");
    let mut ends = [vec![None; p * m], vec![None; p * m]];
    let (mut next, mut free) = (vec![0; p], vec![0u64; p]);
    let mut moved = true;
    while std::mem::take(&mut moved) {
        for lane in 0..p {
            while let Some(action) = schedule.lanes[lane].get(next[lane]) {
                let (load, j) = (&input.stages[lane], action.micro_batch.index());
                let (f, i, w) = (load.forward.0, load.backward_input.0, load.backward_weight.0);
                let (time, of, needs) = match action.kind {
                    ActionKind::Forward => (f, Some(0), lane.checked_sub(1)),
                    ActionKind::Backward => (i + w, Some(1), Some(lane + 1)),
                    ActionKind::BackwardInput => (i, Some(1), Some(lane + 1)),
                    ActionKind::BackwardWeight => (w, None, None),
                };
                let arrival = match (of, needs) {
                    (Some(of), Some(other)) if other < p => {
                        ends[of][other * m + j].map(|end: u64| end + load.hop.0)
                    }
                    _ => Some(0),
                };
                let Some(arrival) = arrival else { break };
                free[lane] = free[lane].max(arrival) + time;
                if let Some(of) = of {
                    ends[of][lane * m + j] = Some(free[lane]);
                }
                next[lane] += 1;
                moved = true;
            }
        }
    }
    free.into_iter().max().unwrap_or(0)
}
