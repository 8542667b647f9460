//! Runs on the machine that serves the page: what `runner explore` offers, what is asked of it, and how
//! a run goes. Without that server nothing of it is seen and nothing asks for it.

mod live;
mod markup;
#[cfg(feature = "page")]
pub mod panel;
#[cfg(feature = "page")]
pub mod seen;
#[cfg(feature = "page")]
pub mod wire;

use crate::base::format::signed_percent;
use crate::base::texts::{t, tr};
use pipewright_core::units::Nanos;
use serde_json::Value;
use std::collections::VecDeque;

/// Steps whose median is shown as the step time.
const RECENT: usize = 9;

/// What the page knows of the server and of its newest run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Here {
    /// Nothing is offered where the page came from elsewhere.
    pub offer: Option<Offer>,
    pub form: Form,
    pub run: Option<Run>,
    /// Whether somebody listens to the server.
    pub listening: bool,
    /// Why the last thing that was asked was refused.
    pub refused: Option<String>,
}

/// What the server can do.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// What opens the server's answers.
    pub session: String,
    pub how: How,
    /// Where runs are kept.
    pub folder: String,
}

/// How ranks are started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum How {
    Mpirun,
    #[default]
    Threads,
}

impl How {
    fn of(word: &str) -> Self {
        if word == "mpirun" { How::Mpirun } else { How::Threads }
    }
}

/// How the next run is to be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Form {
    /// None: the plan's.
    pub steps: Option<u64>,
    /// Of each rank; none: the cores are shared.
    pub threads: Option<u64>,
    /// Whether planned times pass in place of computing.
    pub model: bool,
    /// Whether weights are saved.
    pub save: bool,
}

impl Form {
    /// The question that starts a run.
    pub fn question(&self, plan: &str) -> String {
        let plan = quoted(plan);
        let number = |n: Option<u64>| n.map_or_else(|| "null".into(), |n| n.to_string());
        let (steps, threads) = (number(self.steps), number(self.threads));
        let device = if self.model { "model" } else { "cpu" };
        let save = self.save && !self.model;
        format!(
            r#"{{"plan":{plan},"steps":{steps},"threads":{threads},"device":"{device}","save":{save}}}"#
        )
    }
}

/// A text as JSON.
pub fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a text")
}

/// The session that the server gives for a token.
pub fn session(answer: &str) -> Option<String> {
    let answer: Value = serde_json::from_str(answer).ok()?;
    text(&answer, "session")
}

/// What the server can do, and the plan that it was started with: its file's name and text.
pub fn facts(answer: &str, session: String) -> Option<(Offer, Option<(String, String)>)> {
    let answer: Value = serde_json::from_str(answer).ok()?;
    let offer =
        Offer { session, how: How::of(&text(&answer, "how")?), folder: text(&answer, "folder")? };
    let plan = answer.get("plan").and_then(|p| Some((text(p, "name")?, text(p, "text")?)));
    Some((offer, plan))
}

fn text(value: &Value, name: &str) -> Option<String> {
    value.get(name)?.as_str().map(str::to_owned)
}

fn number(value: &Value, name: &str) -> u64 {
    value.get(name).and_then(Value::as_u64).unwrap_or_default()
}

/// A run, as far as it has been told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    pub how: How,
    pub ranks: u64,
    pub steps: u64,
    pub folder: String,
    pub predicted: Nanos,
    /// Steps that were made.
    pub done: u64,
    pub loss: Option<f64>,
    /// Times of the last steps, in nanoseconds.
    recent: VecDeque<u64>,
    /// Whether it has written a trace.
    pub traced: bool,
    /// Whether it has been told to stop.
    pub stopping: bool,
    pub ended: Option<Ended>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    pub status: Status,
    pub why: String,
    /// The last lines that it printed.
    pub said: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Done,
    Stopped,
    Failed,
}

/// What lines brought besides numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// A run began.
    pub begin: bool,
    /// The metrics of steps that were made, a JSON object a line.
    pub steps: String,
    /// A new trace.
    pub trace: bool,
    /// The end.
    pub end: bool,
}

impl Here {
    /// Takes lines in; what is no line of the server's is passed over.
    pub fn hear(&mut self, lines: &[String]) -> Heard {
        let mut heard = Heard::default();
        for line in lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            match (line.get("event").and_then(Value::as_str).unwrap_or_default(), &mut self.run) {
                ("begin", run) => {
                    *run = Some(Run::begin(&line));
                    heard = Heard { begin: true, ..Heard::default() };
                }
                ("step", Some(run)) => {
                    let Some(record) = line.get("record") else { continue };
                    run.step(record);
                    heard.steps += &format!("{record}\n");
                }
                ("trace", Some(run)) => (run.traced, heard.trace) = (true, true),
                ("end", Some(run)) => {
                    heard.end = true;
                    run.ended = Some(Ended::read(&line));
                }
                _ => {}
            }
        }
        heard
    }

    /// Whether a run goes on.
    pub fn goes_on(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.ended.is_none())
    }

    /// `37/150` while a run goes on.
    pub fn progress(&self) -> String {
        let run = self.run.as_ref().filter(|run| run.ended.is_none());
        run.map_or_else(String::new, |run| format!("{}/{}", run.done, run.steps))
    }
}

impl Ended {
    fn read(line: &Value) -> Self {
        let status = match line.get("status").and_then(Value::as_str) {
            Some("done") => Status::Done,
            Some("stopped") => Status::Stopped,
            _ => Status::Failed,
        };
        let said = line.get("said").and_then(Value::as_array);
        let said = said.into_iter().flatten().filter_map(|line| Some(line.as_str()?.to_owned()));
        Self { status, why: text(line, "why").unwrap_or_default(), said: said.collect() }
    }
}

impl Run {
    fn begin(line: &Value) -> Self {
        Self {
            how: How::of(&text(line, "how").unwrap_or_default()),
            ranks: number(line, "ranks"),
            steps: number(line, "steps"),
            folder: text(line, "folder").unwrap_or_default(),
            predicted: Nanos(number(line, "predicted_step_ns")),
            ..Self::default()
        }
    }

    fn step(&mut self, record: &Value) {
        self.done = number(record, "step") + 1;
        self.loss = record.get("loss").and_then(Value::as_f64);
        self.recent.truncate(RECENT - 1);
        self.recent.push_front(number(record, "step_ns"));
    }

    /// Median time of the last steps.
    pub fn time(&self) -> Option<Nanos> {
        let mut times: Vec<u64> = self.recent.iter().copied().collect();
        times.sort_unstable();
        times.get(times.len() / 2).copied().map(Nanos)
    }

    /// `+12 %`: that time against the predicted one.
    pub fn drift(&self) -> Option<String> {
        let time = self.time().filter(|_| self.predicted.0 > 0)?;
        Some(signed_percent(time.secs(), self.predicted.secs()))
    }

    /// Share of the steps that were made.
    pub fn share(&self) -> f64 {
        (self.done as f64 / self.steps.max(1) as f64).min(1.0)
    }

    /// What is going on, or how it ended.
    pub fn sentence(&self) -> String {
        let Self { done, steps, folder, .. } = self;
        let Some(ended) = &self.ended else {
            return match (self.stopping, self.done) {
                (true, _) => t("Stopping after this step.").into(),
                (false, 0) => t("Starting.").into(),
                (false, _) => t("Running.").into(),
            };
        };
        match ended.status {
            Status::Done => tr!("Done: {steps} steps. All files are in {folder}.", steps, folder),
            Status::Stopped if *done == 0 => t("Stopped before the first step.").into(),
            Status::Stopped => {
                tr!(
                    "Stopped after step {done} of {steps}. All files are in {folder}.",
                    done,
                    steps,
                    folder
                )
            }
            Status::Failed if ended.why.is_empty() => t("The run failed.").into(),
            Status::Failed => tr!("The run failed: {why}.", why = ended.why.trim_end_matches('.')),
        }
    }
}

/// Lines out of bytes that come in any portions.
#[derive(Default)]
pub struct Lines(Vec<u8>);

impl Lines {
    /// The lines that are whole now.
    pub fn take(&mut self, bytes: &[u8]) -> Vec<String> {
        self.0.extend(bytes);
        let Some(end) = self.0.iter().rposition(|byte| *byte == b'\n') else { return vec![] };
        let whole: Vec<u8> = self.0.drain(..=end).collect();
        String::from_utf8_lossy(&whole).lines().map(str::to_owned).collect()
    }
}

/// The key to the server in a fragment, and the fragment without it.
pub fn key(fragment: &str) -> Option<(String, String)> {
    let mut key = None;
    let mut rest: Vec<&str> = vec![];
    for word in fragment.strip_prefix('#').unwrap_or(fragment).split('&') {
        match word.strip_prefix("here=") {
            Some(value) => key = Some(value.to_owned()),
            None => rest.push(word),
        }
    }
    Some((key?, rest.join("&")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: &str = r#"{"event":"begin","run":3,"folder":"runs/3","how":"mpirun","ranks":4,"steps":20,"predicted_step_ns":2000000}"#;

    fn step(step: u64, ns: u64) -> String {
        format!(
            r#"{{"event":"step","record":{{"step":{step},"loss":0.5,"step_ns":{ns},"busy_ns":7}}}}"#
        )
    }

    fn lines(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    #[test]
    fn a_run_is_heard_from_its_beginning_to_its_end() {
        let mut here = Here::default();
        assert_eq!(here.hear(&lines(&[r#"{"event":"none"}"#, "", "}{"])), Heard::default());
        assert_eq!((here.goes_on(), here.run.is_none()), (false, true));
        let began = here.hear(&lines(&[BEGIN, r#"{"event":"beat"}"#]));
        assert_eq!(began, Heard { begin: true, ..Heard::default() });
        assert!(here.goes_on() && here.progress() == "0/20");
        let steps: Vec<String> = (0..12).map(|i| step(i, 1_000_000 * (i + 1))).collect();
        let heard = here.hear(&steps);
        assert_eq!(heard.steps.lines().count(), 12, "each step's metrics");
        assert!(heard.steps.starts_with('{') && heard.steps.contains("\"loss\":0.5"));
        assert_eq!(here.progress(), "12/20");
        let run = here.run.clone().unwrap();
        assert_eq!(run.time(), Some(Nanos(8_000_000)), "the median of the last nine");
        assert_eq!(run.drift().unwrap(), "+300 %");
        assert_eq!((run.loss, run.share(), run.how), (Some(0.5), 0.6, How::Mpirun));
        let end = r#"{"event":"end","status":"done","why":null,"said":["done: 20"]}"#;
        let heard = here.hear(&lines(&[r#"{"event":"trace"}"#, end]));
        assert_eq!(heard, Heard { trace: true, end: true, ..Heard::default() });
        let run = here.run.clone().unwrap();
        assert!(!here.goes_on() && here.progress().is_empty() && run.traced);
        assert_eq!(run.sentence(), "Done: 20 steps. All files are in runs/3.");
    }

    #[test]
    fn every_end_has_its_sentence() {
        let after = |more: &[&str]| {
            let mut here = Here::default();
            here.hear(&lines(&[BEGIN]));
            here.hear(&lines(more));
            here.run.unwrap().sentence()
        };
        let one = step(0, 5);
        assert_eq!(after(&[]), "Starting.");
        assert_eq!(after(&[&one]), "Running.");
        let stopped = r#"{"event":"end","status":"stopped","why":null,"said":[]}"#;
        assert_eq!(after(&[stopped]), "Stopped before the first step.");
        assert!(after(&[&one, stopped]).starts_with("Stopped after step 1 of 20. "));
        let failed = r#"{"event":"end","status":"failed","why":"no memory.","said":["a"]}"#;
        assert_eq!(after(&[failed]), "The run failed: no memory.");
        assert_eq!(after(&[r#"{"event":"end"}"#]), "The run failed.", "an end is an end");
    }

    #[test]
    fn lines_come_in_any_portions() {
        let text = "one\ntwö\n\nthree";
        for cut in 1..text.len() {
            let mut lines = Lines::default();
            let mut found = lines.take(&text.as_bytes()[..cut]);
            found.extend(lines.take(&text.as_bytes()[cut..]));
            assert_eq!(found, ["one", "twö", ""], "{cut}");
            assert_eq!(lines.take(b"\n"), ["three"]);
        }
    }

    #[test]
    fn the_key_is_taken_out_of_the_link() {
        let found = |text: &str| key(text).map(|(key, rest)| format!("{key} {rest}"));
        assert_eq!(found("#here=12"), Some("12 ".into()));
        assert_eq!(found("#v=1&here=12&d=4"), Some("12 v=1&d=4".into()));
        assert_eq!((found("#v=1&d=4"), found("")), (None, None));
    }

    #[test]
    fn a_question_has_plan_and_choices() {
        let form = Form { steps: Some(5), save: true, ..Form::default() };
        let text = form.question("{\"a\"}");
        assert_eq!(
            text,
            r#"{"plan":"{\"a\"}","steps":5,"threads":null,"device":"cpu","save":true}"#
        );
        let modelled = Form { model: true, threads: Some(2), ..form }.question("");
        assert!(modelled.ends_with(r#""threads":2,"device":"model","save":false}"#), "{modelled}");
    }

    #[test]
    fn the_server_says_what_it_can() {
        let answer = r#"{"how":"mpirun","folder":"runs","plan":{"name":"p.json","text":"{}"}}"#;
        let (offer, plan) = facts(answer, "7".into()).unwrap();
        assert_eq!((offer.how, offer.folder.as_str()), (How::Mpirun, "runs"));
        assert_eq!(plan, Some(("p.json".into(), "{}".into())));
        let (_, plan) = facts(r#"{"how":"threads","folder":"a","plan":null}"#, "".into()).unwrap();
        assert_eq!(plan, None);
        assert_eq!(session(r#"{"session":"12"}"#), Some("12".into()));
        for strange in ["", "<html>", "[]", "{}", r#"{"session":3}"#] {
            assert!(session(strange).is_none() && facts(strange, "".into()).is_none(), "{strange}");
        }
    }
}
