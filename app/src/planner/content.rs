//! Kinds of files, a plan or a trace, recognised by what is in them, never by their name.

use super::inputs::Inputs;
use super::measured::Measured;
use crate::base::texts::tr;
use pipewright_core::plan::Plan;
use pipewright_core::timeline::Trace;
use pipewright_core::timeline::chrome::{self, TraceError};

/// What a file turned out to be.
pub enum Content {
    Plan(Box<Inputs>),
    Trace(Measured),
}

/// Reads a text as whatever it is.
///
/// # Errors
/// One sentence for the person.
pub fn recognise(name: &str, text: &str) -> Result<Content, String> {
    if text.trim().is_empty() {
        return Err(tr!("{name} is empty.", name));
    }
    // Traces can be large: look at the words before parsing.
    let is_trace = text.contains("\"traceEvents\"") || text.trim_start().starts_with('[');
    if is_trace {
        return measured(name, chrome::read(text)).map(Content::Trace);
    }
    if !text.trim_start().starts_with('{') {
        return Err(tr!(
            "{name} cannot be read. This page opens plans, traces, metrics, ONNX, \
                        graphs, profiles, clusters and schedule CSV.",
            name
        ));
    }
    let refuse = |why: &dyn std::fmt::Display| {
        tr!("{name} was read as a plan: {why}. Nothing changed.", name, why)
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
        tr!(
            "{name} was read as a trace: {why}. The runner writes traces that open here.",
            name,
            why = e
        )
    })?;
    Measured::new(trace, name).ok_or_else(|| {
        tr!("{name} was read as a trace: it has no finished step. Run more steps.", name)
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
