//! What a file is: a plan or a trace, recognised by what is in it, never by its name.

use super::inputs::Inputs;
use super::measured::Measured;
use super::networks;
use crate::base::texts::tr;
use crate::screens::elastic::model as elastic;
use crate::screens::run::model::metrics;
use pipewright_core::plan::Plan;
use pipewright_core::timeline::Trace;
use pipewright_core::timeline::chrome::{self, TraceError};

/// What a file turned out to be.
pub enum Content {
    Plan(Box<Inputs>),
    Trace(Measured),
}

/// What a file's first bytes say that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A graph to recompute, plain or packed.
    Graph,
    /// A trace; it can be large.
    Trace,
    /// Metrics of a run.
    Metrics,
    /// What became of an elastic job.
    Elastic,
    /// A network of another framework.
    Onnx,
    /// Something small, which is read as a whole.
    Other,
}

impl Kind {
    /// Looks at the first bytes.
    pub fn of(head: &[u8]) -> Self {
        const EVENTS: &[u8] = b"\"traceEvents\"";
        if is_graph(head) {
            Kind::Graph
        } else if metrics::is_metrics(head) {
            Kind::Metrics
        } else if elastic::is_record(head) {
            Kind::Elastic
        } else if networks::is_onnx(head) {
            Kind::Onnx
        } else if head.windows(EVENTS.len()).any(|part| part == EVENTS) {
            Kind::Trace
        } else {
            Kind::Other
        }
    }
}

/// Whether the first bytes of a file are those of a graph to recompute, plain or packed by gzip.
fn is_graph(head: &[u8]) -> bool {
    const FORMAT: &[u8] = b"recompute-graph/";
    head.starts_with(&[0x1f, 0x8b]) || head.windows(FORMAT.len()).any(|part| part == FORMAT)
}

/// Reads a text as whatever it is.
///
/// # Errors
/// One sentence for the person.
pub fn recognise(name: &str, text: &str) -> Result<Content, String> {
    if text.trim().is_empty() {
        return Err(tr!("{name} is empty. Drop a plan.json, a trace.json or a graph.json.", name));
    }
    // Traces can be large: look at the words before parsing.
    let is_trace = text.contains("\"traceEvents\"") || text.trim_start().starts_with('[');
    if is_trace {
        return measured(name, chrome::read(text)).map(Content::Trace);
    }
    if !text.trim_start().starts_with('{') {
        return Err(tr!("{name} is no JSON. Drop a plan.json or a trace.json.", name));
    }
    let refuse = |why: &dyn std::fmt::Display| {
        tr!(
            "{name}, read as a plan: {why}. The last picture stays; drop a plan.json or a trace.json.",
            name,
            why
        )
    };
    let plan = Plan::from_json(text).map_err(|why| refuse(&why))?;
    let inputs = Inputs::of_plan(&plan).map_err(|why| refuse(&why))?;
    Ok(Content::Plan(Box::new(inputs)))
}

/// A trace at its median step.
///
/// # Errors
/// One sentence for the person.
pub fn measured(name: &str, read: Result<Trace, TraceError>) -> Result<Measured, String> {
    let trace = read.map_err(|e| {
        tr!("{name}, read as a trace: {why}. The runner writes one that opens here.", name, why = e)
    })?;
    Measured::new(trace, name).ok_or_else(|| {
        tr!("{name}, read as a trace: it has no finished step. Run more steps.", name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::presets::EXAMPLES;

    #[test]
    fn plans_are_recognised_by_content_and_come_back_unchanged() {
        for example in &EXAMPLES {
            let inputs = example.inputs();
            let (plan, _) = inputs.plan().unwrap();
            match recognise("anything.txt", &plan.to_json()) {
                Ok(Content::Plan(read)) => assert_eq!(*read, inputs),
                Ok(Content::Trace(_)) => panic!("a plan taken for a trace"),
                Err(why) => panic!("{why}"),
            }
        }
    }

    #[test]
    fn large_files_are_recognised_by_their_first_bytes() {
        for (head, kind) in [
            (&[0x1f, 0x8b, 8][..], Kind::Graph),
            (b"{ \"format\": \"recompute-graph/1\"", Kind::Graph),
            (b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[", Kind::Trace),
            (b"{\"step\":0,\"loss\":2.0,\"step_ns\":5}\n", Kind::Metrics),
            (b"{\"event\":\"started\",\"at_ms\":0,\"unix_ms\":1}\n{\"ev", Kind::Elastic),
            (b"{\"version\": 1}", Kind::Other),
            (&[8, 7, 0x12, 4], Kind::Onnx),
            (b"", Kind::Other),
        ] {
            assert_eq!(Kind::of(head), kind);
        }
    }

    #[test]
    fn old_plan_files_open() {
        let text = include_str!("../../../tests/data/plans/v1-digits-cnn.json");
        assert!(matches!(recognise("v1-digits-cnn.json", text), Ok(Content::Plan(_))));
    }

    #[test]
    fn useless_files_are_refused_in_one_line() {
        for text in ["", "  ", "hello", "{}", "[]", "{\"version\": 9}", "{\"traceEvents\": 3}", "{"]
        {
            let Err(why) = recognise("x.json", text) else { panic!("{text} was taken") };
            assert!(why.starts_with("x.json") && !why.contains('\n'), "{why}");
        }
    }
}
