//! What a file is: a plan or a trace, recognised by what is in it, never by its name.

use crate::inputs::Inputs;
use crate::shared::Shared;
use crate::texts::tr;
use pipewright_core::plan::Plan;
use pipewright_core::timeline::{Timeline, chrome};

/// What a file turned out to be.
pub enum Content {
    Plan(Box<Inputs>),
    Trace(Measured),
}

/// A measured step.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    pub timeline: Shared<Timeline>,
    pub name: String,
    /// Steps in the file; the one of median duration is shown.
    pub steps: usize,
}

/// Whether the first bytes of a file are those of a graph to recompute, plain or packed by gzip.
pub fn is_graph(head: &[u8]) -> bool {
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
        let trace = chrome::read(text).map_err(|e| {
            tr!(
                "{name}, read as a trace: {why}. The runner writes one that opens here.",
                name,
                why = e
            )
        })?;
        let step = trace.median().ok_or_else(|| {
            tr!("{name}, read as a trace: it has no finished step. Run more steps.", name)
        })?;
        let timeline = Shared::new(step.timeline.clone());
        return Ok(Content::Trace(Measured {
            timeline,
            name: name.into(),
            steps: trace.steps.len(),
        }));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets::EXAMPLES;

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
    fn graphs_are_recognised_packed_or_plain() {
        assert!(is_graph(&[0x1f, 0x8b, 8]) && is_graph(b"{ \"format\": \"recompute-graph/1\""));
        assert!(!is_graph(b"{\"version\": 1}") && !is_graph(b""));
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
