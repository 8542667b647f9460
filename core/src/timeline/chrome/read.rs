//! Reading, piece by piece.

use super::kineto::RankTrace;
use super::nsight::Nsight;
use super::scan::{Piece, Scan, json};
use super::steps::Steps;
use super::{ALL_REDUCE, Header, INPUT, VERSION, WAIT};
use crate::ids::{LaneId, MicroBatch, StageId};
use crate::schedule::ParseError;
use crate::timeline::{Aside, Message, Span, Trace, Wait, What, Work};
use crate::units::{Bytes, Nanos};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::borrow::Cow;
use std::collections::BTreeMap;
use thiserror::Error;

/// Why a text is no trace of a run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TraceError {
    /// Not JSON.
    #[error("not a trace: not JSON ({0})")]
    Json(String),
    /// It ends before it is over.
    #[error("the trace ends in the middle; copy it again")]
    Cut,
    /// JSON without events.
    #[error("not a trace: no `traceEvents`")]
    NoEvents,
    /// A trace of another program.
    #[error(
        "not a trace of a run: it has neither a field `pipewright`, which the runner writes, nor actions of a \
         pipeline (`PP:0F1`), which torch.profiler records"
    )]
    Foreign,
    /// One of `torch.profiler` or of Nsight Systems, where a whole run is wanted.
    #[error(
        "a trace by torch.profiler or Nsight Systems; drop those of all ranks into the explorer"
    )]
    Profiler,
    /// From a newer version.
    #[error("the trace has version {0}, this program reads up to {VERSION}; use a newer one")]
    Version(u32),
    /// A header that nothing can be shown of.
    #[error("the trace's field `pipewright`: {0}")]
    Header(String),
    /// An event that contradicts the rest.
    #[error("trace, event {index}: {why}")]
    Event {
        /// Its position.
        index: usize,
        /// What does not fit.
        why: String,
    },
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    ph: Cow<'a, str>,
    pid: u32,
    #[serde(default)]
    tid: u32,
    #[serde(default)]
    ts: f64,
    #[serde(default)]
    dur: f64,
    #[serde(default, borrow)]
    args: Args<'a>,
}

/// All that the events' `args` hold, see [`super::WorkArgs`] and its neighbours.
#[derive(Default, Deserialize)]
struct Args<'a> {
    step: Option<u64>,
    #[serde(borrow)]
    action: Option<Cow<'a, str>>,
    optimizer: Option<u32>,
    wait: Option<Wait>,
    stage: Option<u32>,
    duration: Option<u64>,
    message: Option<u64>,
    from: Option<u32>,
    to: Option<u32>,
    micro_batch: Option<u32>,
    gradient: Option<bool>,
    bytes: Option<u64>,
}

/// An event, small: there may be millions, and the header stands behind them.
pub(super) enum Entry {
    /// Moments of what lies in a step count from the start of the run until that step is known.
    Span(Span),
    Aside(Aside),
    Message(Message),
    Memory(Nanos, Bytes),
}

/// Where an [`Entry`] belongs.
pub(super) struct Place {
    pub index: u32,
    /// Counters have none.
    pub step: u64,
    pub lane: u32,
}

/// Reads a trace that [`super::write`] wrote, as it comes.
///
/// ```
/// use pipewright_core::timeline::{Trace, chrome};
///
/// let text = "{\"traceEvents\":[],\"pipewright\":{\"version\":1,\"model\":\"x\",\"arena\":[0],\"steps\":[]}}";
/// let mut reader = chrome::Reader::default();
/// for bytes in text.as_bytes().chunks(7) {
///     reader.push(bytes)?;
/// }
/// assert_eq!(reader.finish()?, Trace { model: "x".into(), steps: vec![] });
/// # Ok::<(), chrome::TraceError>(())
/// ```
#[derive(Default)]
pub struct Reader {
    scan: Scan,
    found: TraceContents,
}

/// What a file turned out to be.
#[derive(Clone, Debug, PartialEq)]
pub enum Opened {
    /// A run, whole.
    Run(Trace),
    /// What ranks did, see [`super::join`]; a file of `torch.profiler` has one.
    Ranks(Vec<RankTrace>),
}

#[derive(Default)]
struct TraceContents {
    header: Option<Header>,
    /// What it is where it has no header.
    rank: RankTrace,
    rank_wrong: Option<TraceError>,
    nsight: Nsight,
    has_events: bool,
    events: u32,
    entries: Vec<(Place, Entry)>,
    /// One end of each message, until the other comes.
    halves: BTreeMap<u64, Nanos>,
    /// What is wrong with the first event that is; a foreign trace is told so before.
    wrong: Option<TraceError>,
}

/// Reads a whole trace, see [`Reader`].
///
/// # Errors
/// What the text is instead, or which event contradicts the rest.
pub fn read(text: &str) -> Result<Trace, TraceError> {
    let mut reader = Reader::default();
    reader.push(text.as_bytes())?;
    reader.finish()
}

impl Reader {
    /// The next bytes of the file.
    ///
    /// # Errors
    /// Where it is no JSON.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), TraceError> {
        let found = &mut self.found;
        self.scan.push(bytes, |piece| found.take(piece))
    }

    /// All bytes have come.
    ///
    /// # Errors
    /// What the text is instead, or which event contradicts the rest.
    pub fn finish(self) -> Result<Trace, TraceError> {
        match self.finish_any()? {
            Opened::Run(trace) => Ok(trace),
            Opened::Ranks(_) => Err(TraceError::Profiler),
        }
    }

    /// All bytes have come; the file may be one of `torch.profiler` or Nsight Systems.
    ///
    /// # Errors
    /// As [`Reader::finish`].
    pub fn finish_any(self) -> Result<Opened, TraceError> {
        self.scan.finish()?;
        let TraceContents { header, rank, rank_wrong, nsight, has_events, entries, wrong, .. } =
            self.found;
        if nsight.is_any() && !has_events {
            return Ok(Opened::Ranks(nsight.ranks()));
        }
        if !has_events {
            return Err(TraceError::NoEvents);
        }
        if header.is_none() && rank.is_any() {
            return match rank_wrong {
                Some(wrong) => Err(wrong),
                None => Ok(Opened::Ranks(vec![rank])),
            };
        }
        let header = header.ok_or(TraceError::Foreign)?;
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
        let mut steps = Steps::new(&header).map_err(TraceError::Header)?;
        for (place, entry) in entries {
            let index = place.index as usize;
            steps.add(&place, entry).map_err(|why| TraceError::Event { index, why })?;
        }
        Ok(Opened::Run(steps.finish(header.model)))
    }
}

impl TraceContents {
    fn take(&mut self, piece: Piece) -> Result<(), TraceError> {
        match piece {
            Piece::Events => self.has_events = true,
            Piece::Another if self.has_events || self.header.is_some() => {
                return Err(json("`{` after its end"));
            }
            Piece::Another => {}
            Piece::Field("pipewright", text) => {
                let header: Header = parse(text, |e| TraceError::Header(e.to_string()))?;
                if header.version > VERSION {
                    return Err(TraceError::Version(header.version));
                }
                self.header = Some(header);
            }
            Piece::Field(name, text) if self.nsight.field(name, text)? => {}
            Piece::Field(name, text) => {
                self.rank.field(name, text);
                parse::<IgnoredAny>(text, |e| json(e.to_string()))?;
                if name == "traceEvents" {
                    return Err(TraceError::NoEvents);
                }
            }
            Piece::Event(text) => {
                let index = self.events;
                self.events += 1;
                if let Err(why) = self.rank.event(index, text) {
                    self.rank_wrong.get_or_insert(why);
                }
                let refuse = |why| TraceError::Event { index: index as usize, why };
                let read = match serde_json::from_slice::<Event>(text) {
                    Ok(event) => self.event(index, &event).map_err(refuse),
                    Err(e) if e.is_data() => Err(refuse(e.to_string())),
                    Err(e) => return Err(json(format!("event {index}: {e}"))),
                };
                if let Err(why) = read {
                    self.wrong.get_or_insert(why);
                }
            }
        }
        Ok(())
    }

    fn event(&mut self, index: u32, event: &Event) -> Result<(), String> {
        let moment = nanos(event.ts)?;
        let length = nanos(event.dur)?;
        let step = || event.args.step.ok_or("no step");
        let span = (moment, moment + length);
        let (step, lane, entry) = match (&*event.ph, event.tid) {
            ("X", 0) => (step()?, event.pid, work(&event.args, span)?),
            ("X", WAIT | INPUT) => (step()?, event.pid, aside(&event.args, span)),
            ("b", ALL_REDUCE) => {
                let length = event.args.duration.map_or(length, |d| Nanos(d.min(MOST)));
                (step()?, event.pid, aside(&event.args, (moment, moment + length)))
            }
            ("X", _) => match self.message(&event.args, moment)? {
                Some((step, message)) => (step, message.from.0, Entry::Message(message)),
                None => return Ok(()),
            },
            ("C", _) => {
                let bytes = event.args.bytes.ok_or("a counter without bytes")?;
                (0, event.pid, Entry::Memory(moment, Bytes(bytes)))
            }
            _ => return Ok(()),
        };
        self.entries.push((Place { index, step, lane }, entry));
        Ok(())
    }

    /// The message, once both of its ends have come.
    fn message(&mut self, args: &Args, at: Nanos) -> Result<Option<(u64, Message)>, String> {
        let Some(number) = args.message else { return Err("a message without number".into()) };
        let Some(sent) = self.halves.remove(&number) else {
            self.halves.insert(number, at);
            return Ok(None);
        };
        let whole = || {
            let message = Message {
                from: LaneId(args.from?),
                to: LaneId(args.to?),
                stage: StageId(args.stage?),
                micro_batch: MicroBatch(args.micro_batch?),
                gradient: args.gradient?,
                bytes: Bytes(args.bytes?),
                sent,
                received: at,
            };
            Some((args.step?, message))
        };
        whole().map(Some).ok_or_else(|| "a message without all that belongs to it".into())
    }
}

fn parse<'a, T: Deserialize<'a>>(
    text: &'a [u8],
    refuse: impl FnOnce(serde_json::Error) -> TraceError,
) -> Result<T, TraceError> {
    serde_json::from_slice(text).map_err(refuse)
}

/// Thirty years: no run is longer, and sums of a few such times are still times.
pub(super) const MOST: u64 = 1_000_000_000_000_000_000;

pub(super) fn nanos(micros: f64) -> Result<Nanos, String> {
    let nanos = micros * 1000.0;
    if !(0.0..=MOST as f64).contains(&nanos) {
        return Err(format!("{micros} µs is no time of a run"));
    }
    Ok(Nanos((nanos + 0.5) as u64))
}

fn work(args: &Args, (start, end): (Nanos, Nanos)) -> Result<Entry, String> {
    let work = match (&args.action, args.optimizer) {
        (Some(action), _) => Work::Run(action.parse().map_err(|e: ParseError| e.to_string())?),
        (None, Some(stage)) => Work::Optimizer(StageId(stage)),
        (None, None) => return Err("neither an action nor an optimizer update".into()),
    };
    Ok(Entry::Span(Span { start, end, work }))
}

fn aside(args: &Args, (start, end): (Nanos, Nanos)) -> Entry {
    let what = match (args.wait, args.stage) {
        (Some(wait), _) => What::Wait(wait),
        (None, Some(stage)) => What::AllReduce(StageId(stage)),
        (None, None) => What::Input,
    };
    Entry::Aside(Aside { start, end, what })
}
