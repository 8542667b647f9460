//! The recorder of a rank's spans, and the merge of all ranks' records into a trace.

use pipewright_core::ids::{LaneId, StageId};
use pipewright_core::plan::{Instruction, Program};
use pipewright_core::timeline::{
    Aside, Lane, Message, Span, Step, Timeline, Trace, Wait, What, Work,
};
use pipewright_core::units::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Steps that are kept: the last ones, when caches and branch predictors are warm.
const KEPT: usize = 8;

/// Records the last steps of a rank. All memory is taken at the start.
pub struct TraceRecorder {
    steps: Vec<Record>,
    current: Option<usize>,
    begun: usize,
}

/// One step on one rank, moments on the ranks' common clock.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Record {
    number: u64,
    start: u64,
    /// Start, end, what: an action as text, or a stage whose parameters were updated.
    spans: Vec<(u64, u64, RecordedWork)>,
    /// Tag and moment.
    sent: Vec<(u32, u64)>,
    received: Vec<(u32, u64)>,
    /// Start and end of each wait for samples, the copy included.
    inputs: Vec<(u64, u64)>,
    /// Start and end of each wait for other ranks.
    waits: Vec<(u64, u64, Wait)>,
    /// Stage whose gradients are summed, from when to when; the end is 0 while they are.
    reductions: Vec<(u32, u64, u64)>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum RecordedWork {
    Run(u32, pipewright_core::schedule::ActionKind, u32),
    Optimizer(u32),
}

/// The steps of one rank, as it travels to rank 0.
#[derive(Debug, Serialize, Deserialize)]
pub struct RankTrace {
    steps: Vec<Record>,
}

impl TraceRecorder {
    /// With room for the steps of `program`, in each of which samples are loaded `loads` times.
    pub fn new(program: &Program, loads: usize) -> Self {
        let room = program.train.len();
        let record = || Record {
            number: 0,
            start: 0,
            spans: Vec::with_capacity(room),
            sent: Vec::with_capacity(room),
            received: Vec::with_capacity(room),
            inputs: Vec::with_capacity(loads),
            waits: Vec::with_capacity(room),
            reductions: Vec::with_capacity(room),
        };
        Self { steps: (0..KEPT).map(|_| record()).collect(), current: None, begun: 0 }
    }

    /// A step begins; it replaces the oldest one.
    pub fn begin(&mut self, number: u64, now: u64) {
        let index = self.begun % KEPT;
        self.begun += 1;
        self.current = Some(index);
        let record = &mut self.steps[index];
        record.number = number;
        record.start = now;
        record.spans.clear();
        record.sent.clear();
        record.received.clear();
        record.inputs.clear();
        record.waits.clear();
        record.reductions.clear();
    }

    /// What follows is not recorded.
    pub fn pause(&mut self) {
        self.current = None;
    }

    /// Work was done.
    pub fn worked(&mut self, work: Work, start: u64, end: u64) {
        let work = match work {
            Work::Run(a) => RecordedWork::Run(a.stage.0, a.kind, a.micro_batch.0),
            Work::Optimizer(stage) => RecordedWork::Optimizer(stage.0),
        };
        if let Some(index) = self.current {
            self.steps[index].spans.push((start, end, work));
        }
    }

    /// Whether somebody may want to know what happens.
    pub fn is_recording(&self) -> bool {
        self.current.is_some()
    }

    /// When a device really worked in the step under way: start and end of all work, in order, on the
    /// ranks' clock. Returns how long it was.
    pub fn worked_at(&mut self, mut moments: impl Iterator<Item = u64>) -> u64 {
        let Some(index) = self.current else { return 0 };
        let mut busy = 0;
        for (start, end, _) in &mut self.steps[index].spans {
            if let (Some(begun), Some(done)) = (moments.next(), moments.next()) {
                (*start, *end) = (begun, done);
                // Clocks of devices round.
                busy += done.saturating_sub(begun);
            }
        }
        busy
    }

    /// A message was handed over.
    pub fn sent(&mut self, tag: u32, now: u64) {
        if let Some(index) = self.current {
            self.steps[index].sent.push((tag, now));
        }
    }

    /// A message arrived.
    pub fn received(&mut self, tag: u32, now: u64) {
        if let Some(index) = self.current {
            self.steps[index].received.push((tag, now));
        }
    }

    /// Samples were waited for and copied.
    pub fn loaded(&mut self, start: u64, end: u64) {
        if let Some(index) = self.current {
            self.steps[index].inputs.push((start, end));
        }
    }

    /// Another rank was waited for.
    pub fn waited(&mut self, wait: Wait, start: u64, end: u64) {
        if let Some(index) = self.current {
            self.steps[index].waits.push((start, end, wait));
        }
    }

    /// A bucket of a stage begins to be summed; of several the first counts.
    pub fn reducing(&mut self, stage: StageId, now: u64) {
        let Some(index) = self.current else { return };
        let all = &mut self.steps[index].reductions;
        if !all.iter().any(|(of, _, end)| *of == stage.0 && *end == 0) {
            all.push((stage.0, now, 0));
        }
    }

    /// All buckets of a stage are summed.
    pub fn reduced(&mut self, stage: StageId, now: u64) {
        let Some(index) = self.current else { return };
        let all = &mut self.steps[index].reductions;
        if let Some(found) = all.iter_mut().find(|(of, _, end)| *of == stage.0 && *end == 0) {
            found.2 = now;
        }
    }

    /// The kept steps, oldest first.
    pub fn trace(&self) -> RankTrace {
        let mut steps: Vec<Record> = self.steps[..self.begun.min(KEPT)].to_vec();
        steps.sort_by_key(|s| s.number);
        RankTrace { steps }
    }
}

/// Joins the ranks' records (by rank) into a trace whose clock starts at `origin`.
pub fn merge(model: &str, programs: &[Program], ranks: &[RankTrace], origin: u64) -> Trace {
    let steps = ranks.first().map_or(0, |rank| rank.steps.len());
    let step = |index| {
        let records: Vec<&Record> = ranks.iter().filter_map(|r| r.steps.get(index)).collect();
        merge_step(programs, &records, origin)
    };
    Trace { model: model.into(), steps: (0..steps).map(step).collect() }
}

/// What went on beside the work, in order of time.
fn asides(record: &Record, since: impl Fn(u64) -> Nanos) -> Vec<Aside> {
    let aside = |start, end, what| Aside { start: since(start), end: since(end), what };
    let waits =
        record.waits.iter().map(|(start, end, wait)| aside(*start, *end, What::Wait(*wait)));
    let inputs = record.inputs.iter().map(|(start, end)| aside(*start, *end, What::Input));
    let reductions = record.reductions.iter().filter(|(_, _, end)| *end > 0);
    let reductions =
        reductions.map(|(stage, start, end)| aside(*start, *end, What::AllReduce(StageId(*stage))));
    let mut all: Vec<Aside> = waits.chain(inputs).chain(reductions).collect();
    all.sort_by_key(|aside| aside.start);
    all
}

fn merge_step(programs: &[Program], records: &[&Record], origin: u64) -> Step {
    let start = records.iter().map(|r| r.start).min().unwrap_or(origin);
    let since = |moment: u64| Nanos(moment.saturating_sub(start));
    // Tags are unique in a replica; replicas of a lane are neighbours.
    let replicas = (records.len() / programs.len()).max(1);
    let replica = |rank: usize| rank % replicas;
    let all = || programs.iter().flat_map(|program| std::iter::repeat_n(program, replicas));
    let mut received = BTreeMap::new();
    let mut lanes = vec![];
    for (rank, (program, record)) in all().zip(records).enumerate() {
        let keyed = record.received.iter().map(|(tag, moment)| ((replica(rank), *tag), *moment));
        received.extend(keyed);
        let span = |(start, end, work): &(u64, u64, RecordedWork)| Span {
            start: since(*start),
            end: since(*end),
            work: match *work {
                RecordedWork::Run(stage, kind, micro_batch) => {
                    Work::Run(pipewright_core::schedule::Action::new(stage, kind, micro_batch))
                }
                RecordedWork::Optimizer(stage) => Work::Optimizer(StageId(stage)),
            },
        };
        let mut lane = Lane::new(program, record.spans.iter().map(span).collect());
        lane.asides = asides(record, since);
        lanes.push(lane);
    }
    let mut messages = vec![];
    for (rank, (program, record)) in all().zip(records).enumerate() {
        let sent: BTreeMap<u32, u64> = record.sent.iter().copied().collect();
        for instruction in &program.train {
            let Instruction::Send { to, tag, region, stage, micro_batch, gradient, .. } =
                *instruction
            else {
                continue;
            };
            let (Some(sent), Some(received)) =
                (sent.get(&tag), received.get(&(replica(rank), tag)))
            else {
                continue;
            };
            messages.push(Message {
                from: LaneId(rank as u32),
                to: LaneId((to.index() * replicas + replica(rank)) as u32),
                stage,
                micro_batch,
                gradient,
                bytes: region.bytes,
                sent: since(*sent),
                received: since(*received),
            });
        }
    }
    let ends = lanes.iter().filter_map(|lane| lane.spans.last()).map(|span| span.end);
    let timeline =
        Timeline { step: ends.max().unwrap_or_default(), lanes, messages, ..Timeline::default() };
    let number = records.first().map_or(0, |r| r.number);
    Step { number, start: Nanos(start.saturating_sub(origin)), timeline }
}
