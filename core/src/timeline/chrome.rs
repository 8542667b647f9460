//! Chrome's trace format: what Perfetto opens, and what the explorer reads back.
//!
//! One process a lane; its threads are the tracks compute, send, receive, wait, all-reduce and
//! input; messages are flows from send to receive; memory is a counter. All-reduces of several
//! stages overlap: they are asynchronous events. Moments are microseconds with nanosecond digits, from the start of the run. A field
//! `pipewright` beside the events holds what the format has no place for. Traces of `torch.profiler` are
//! read as well, a file a rank, and reports of Nsight Systems.

mod kineto;
mod nsight;
mod read;
mod scan;
mod steps;
mod write;

pub use kineto::{JoinError, RankTrace, join};
pub use nsight::is_nsight;
pub use read::{Opened, Reader, TraceError, read};
pub use write::write;

use crate::timeline::Wait;
use crate::units::Bytes;
use serde::{Deserialize, Serialize};

/// Version of the field `pipewright`.
const VERSION: u32 = 1;

/// The field `pipewright`.
#[derive(Serialize, Deserialize)]
struct Header {
    version: u32,
    model: String,
    /// Arena of each lane.
    arena: Vec<Bytes>,
    steps: Vec<StepHeader>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
struct StepHeader {
    number: u64,
    /// In nanoseconds from the start of the run.
    start: u64,
    end: u64,
}

/// `args` of an event that is an action or an update.
#[derive(Serialize, Deserialize)]
struct WorkArgs {
    step: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    action: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    optimizer: Option<u32>,
}

/// Names of the threads, by number.
const TRACKS: [&str; 6] = ["compute", "send", "receive", "wait", "all-reduce", "input"];
const WAIT: u32 = 3;
const ALL_REDUCE: u32 = 4;
const INPUT: u32 = 5;

/// `args` of a wait, an all-reduce or an input.
#[derive(Serialize, Deserialize)]
struct AsideArgs {
    step: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wait: Option<Wait>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stage: Option<u32>,
    /// In nanoseconds; asynchronous events have none of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    duration: Option<u64>,
}

/// `args` of both ends of a message.
#[derive(Clone, Serialize, Deserialize)]
struct MessageArgs {
    step: u64,
    message: u64,
    from: u32,
    to: u32,
    stage: u32,
    micro_batch: u32,
    gradient: bool,
    bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Cluster;
    use crate::graph::presets::Preset;
    use crate::ids::StageId;
    use crate::plan::{Draft, Model};
    use crate::timeline::{Aside, Step, Trace, What};
    use crate::units::Nanos;

    fn trace() -> Trace {
        let cluster = Cluster::preset("laptop").unwrap();
        let draft = Draft::new(Model::Preset(Preset::DigitsCnn), cluster, vec![4, 9]);
        let (_, prediction) = draft.plan().unwrap();
        let mut timeline = prediction.timeline;
        assert!(timeline.lanes[1].asides.iter().any(|a| a.what == What::Wait(Wait::Message)));
        // What the prediction of this plan has none of.
        for (stage, from) in [(3, 5), (1, 7)] {
            let what = What::AllReduce(StageId(stage));
            let (start, end) = (Nanos(from * 1_000_001), Nanos(from * 2_000_003));
            timeline.lanes[2].asides.push(Aside { start, end, what });
        }
        let input = Aside { start: Nanos(1), end: Nanos(20_002), what: What::Input };
        timeline.lanes[0].asides.insert(0, input);
        timeline.lanes[2].asides.sort_by_key(|aside| aside.start);
        let step = |number: u64| Step {
            number,
            start: Nanos(number * 1_000_000_007),
            timeline: timeline.clone(),
        };
        Trace { model: "digits-cnn".into(), steps: vec![step(3), step(4)] }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let trace = trace();
        assert_eq!(read(&write(&trace)).unwrap(), trace);
    }

    #[test]
    fn it_is_the_json_that_perfetto_reads() {
        let json: serde_json::Value = serde_json::from_str(&write(&trace())).unwrap();
        let events = json["traceEvents"].as_array().unwrap();
        let of = |ph: &str| events.iter().filter(|e| e["ph"] == ph).count();
        assert_eq!(of("s"), of("f"));
        assert!(of("s") > 0 && of("X") > 0 && of("C") > 0 && of("M") == 3 * 7);
        assert!(events.iter().all(|e| e["pid"].is_u64()));
        assert_eq!((of("b"), of("e")), (4, 4), "two all-reduces a step, each begins and ends");
        let on = |tid: u32| events.iter().filter(|e| e["ph"] == "X" && e["tid"] == tid).count();
        assert!((0..4).chain([INPUT]).all(|tid| on(tid) > 0), "every track has something on it");
        assert_eq!(on(1), of("s"));
    }

    #[test]
    fn other_files_are_refused_in_a_sentence() {
        for (text, says) in [
            ("", "not JSON"),
            ("{}", "no `traceEvents`"),
            ("{\"traceEvents\": []}", "neither a field `pipewright`"),
        ] {
            let message = read(text).unwrap_err().to_string();
            assert!(message.contains(says), "{text}: {message}");
        }
        let text = write(&trace());
        for length in [1, 40, text.len() / 2, text.len() - 3] {
            assert_eq!(read(&text[..length]).unwrap_err(), TraceError::Cut, "{length}");
        }
        assert!(matches!(read(&(text + "x")), Err(TraceError::Json(_))));
    }

    #[test]
    fn a_trace_may_come_in_pieces_of_any_size() {
        let trace = trace();
        let text = write(&trace);
        for size in [1, 2, 61, 4096] {
            let mut reader = Reader::default();
            for piece in text.as_bytes().chunks(size) {
                reader.push(piece).unwrap();
            }
            assert_eq!(reader.finish().unwrap(), trace, "{size}");
        }
    }

    /// A trace of one lane and one step with these events.
    fn with(events: &str, header: &str) -> String {
        format!("{{\"traceEvents\":[{events}],\"pipewright\":{header}}}")
    }

    const ONE: &str =
        r#"{"version":1,"model":"x","arena":[64],"steps":[{"number":0,"start":0,"end":9}]}"#;

    #[test]
    fn hostile_traces_are_refused_in_a_sentence() {
        let event = |ts: &str, dur: &str, args: &str| {
            format!(r#"{{"ph":"X","pid":0,"tid":0,"ts":{ts},"dur":{dur},"args":{args}}}"#)
        };
        let run = r#"{"step":0,"action":"0F0"}"#;
        assert!(read(&with(&event("0", "1", run), ONE)).is_ok());
        let header = |arena: &str, steps: &str| {
            format!(r#"{{"version":1,"model":"x","arena":{arena},"steps":{steps}}}"#)
        };
        let message = r#"{"ph":"X","pid":0,"tid":1,"ts":1,"args":{"step":0,"message":0,"from":0,"to":0,"stage":0,"micro_batch":4000000000,"gradient":false,"bytes":8}}"#;
        for (text, says) in [
            (with(&event("-3", "1", run), ONE), "-3 µs is no time"),
            (with(&event("0", "-1", run), ONE), "-1 µs is no time"),
            (with(&event("0", "1e300", run), ONE), "is no time"),
            (with(&event("NaN", "1", run), ONE), "not JSON (event 0"),
            (with(&event("0", "1", "{}"), ONE), "event 0: no step"),
            (with(&event("0", "1", r#"{"step":7,"action":"0F0"}"#), ONE), "step 7"),
            (with(&event("0", "1", r#"{"step":0,"action":"F"}"#), ONE), "event 0"),
            (with(&event("0", "1", run).replace("\"pid\":0", "\"pid\":5"), ONE), "lane 5"),
            (with(&event("0", "1", r#"{"step":"a"}"#), ONE), "event 0"),
            (with(&format!("{message},{message}"), ONE), "micro-batch 4000000000"),
            (with("", &header("[]", "[]")), "no lanes"),
            (with("", &header("[1]", r#"[{"number":0,"start":9,"end":1}]"#)), "before it begins"),
            (
                with(
                    "",
                    &header("[1]", &format!("[{0},{0}]", r#"{"number":0,"start":9,"end":10}"#)),
                ),
                "not in order",
            ),
            (with("", "{}"), "the trace's field `pipewright`"),
            (with(&event("0", "1", "3"), "null").replace("pipewright", "other"), "neither a field"),
            (with(",", ONE), "commas"),
            (with(&format!("{0}{0}", event("0", "1", run)), ONE), "commas"),
        ] {
            let message = read(&text).unwrap_err().to_string();
            assert!(message.contains(says) && !message.contains('\n'), "{text}: {message}");
        }
    }

    #[test]
    fn more_lanes_than_fit_are_not_made() {
        let arena = format!("[1{}]", ",1".repeat(99_999));
        let step = |n: u64| format!(r#"{{"number":{n},"start":{n},"end":{n}}}"#);
        let steps: Vec<String> = (0..100_000).map(step).collect();
        let header =
            format!(r#"{{"version":1,"model":"x","arena":{arena},"steps":[{}]}}"#, steps.join(","));
        let message = read(&with("", &header)).unwrap_err().to_string();
        assert!(message.contains("more than can be read"), "{message}");
    }
}
