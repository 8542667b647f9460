//! Progress on rank 0: a bar on a terminal, a plain line every few seconds elsewhere. Under mpirun
//! output is usually no terminal.

use super::{Choice, loss_text};
use crate::notes;
use indicatif::{ProgressBar, ProgressStyle};
use pipewright_core::units::{Bytes, Nanos};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Time between two plain lines.
const EVERY: Duration = Duration::from_secs(3);

/// Shows how far training is.
pub struct Progress {
    kind: Kind,
    steps: u64,
    ranks: f64,
    planned_bubble: f64,
    peak: Bytes,
}

enum Kind {
    Silent,
    /// Warnings alone.
    Quiet,
    Plain {
        last: Option<Instant>,
    },
    Bar(ProgressBar),
}

impl Progress {
    /// Says nothing: on other ranks, and with `--json`.
    pub fn silent() -> Self {
        Self { kind: Kind::Silent, steps: 0, ranks: 1.0, planned_bubble: 0.0, peak: Bytes::ZERO }
    }

    /// For a run on `ranks` ranks.
    pub fn new(ranks: u32, planned_bubble: f64, peak: Bytes) -> Self {
        let kind = if notes::are_unwanted() {
            Kind::Quiet
        } else if std::io::stderr().is_terminal() {
            let bar = ProgressBar::new(0);
            let style = "{bar:32} {pos}/{len}  {msg}  {eta} left";
            bar.set_style(ProgressStyle::with_template(style).expect("a constant"));
            Kind::Bar(bar)
        } else {
            Kind::Plain { last: None }
        };
        Self { kind, steps: 0, ranks: f64::from(ranks), planned_bubble, peak }
    }

    /// Training begins, and ends after `steps` steps.
    pub fn begin(&mut self, steps: u64) {
        self.steps = steps;
        if let Kind::Bar(bar) = &self.kind {
            bar.set_length(steps);
        }
    }

    /// A step ended; `busy_ns` is the sum over all ranks.
    pub fn step(&mut self, step: u64, loss: Option<f64>, step_ns: u64, busy_ns: f64) {
        let loss = || loss.map_or("no loss".into(), |loss| format!("loss {}", loss_text(loss)));
        let facts = || {
            let loss = loss();
            let bubble = 1.0 - busy_ns / (self.ranks * step_ns.max(1) as f64);
            format!(
                "{loss}  {}/step  bubble {:.1} % (plan {:.1} %)  peak {}",
                Nanos(step_ns),
                100.0 * bubble,
                100.0 * self.planned_bubble,
                self.peak
            )
        };
        match &mut self.kind {
            Kind::Silent | Kind::Quiet => {}
            Kind::Plain { last } => {
                let due = last.is_none_or(|at| at.elapsed() >= EVERY);
                if due || step + 1 == self.steps {
                    *last = Some(Instant::now());
                    note!("step {}/{}  {}", step + 1, self.steps, facts());
                }
            }
            Kind::Bar(bar) => {
                bar.set_message(facts());
                bar.set_position(step + 1);
            }
        }
    }

    /// How GPUs talk to each other.
    pub fn talks(&self, name: &str) {
        let text = format!("messages between GPUs: {name}");
        match &self.kind {
            Kind::Silent | Kind::Quiet => {}
            Kind::Plain { .. } => note!("{text}"),
            Kind::Bar(bar) => bar.println(text),
        }
    }

    /// The way of gradients was chosen.
    pub fn chose(&self, choice: &Choice) {
        let Choice { step, way, spent_ns, .. } = choice;
        let text = format!("step {step}: gradients go by {way} (trials {})", Nanos(*spent_ns));
        match &self.kind {
            Kind::Silent | Kind::Quiet => {}
            Kind::Plain { .. } => note!("{text}"),
            Kind::Bar(bar) => bar.println(text),
        }
    }

    /// A step changed nothing.
    pub fn skipped(&self, step: u64, param: &str) {
        let text = format!("step {step} is skipped: the gradient of `{param}` is not finite");
        match &self.kind {
            Kind::Silent => {}
            Kind::Quiet | Kind::Plain { .. } => warn!("{text}"),
            Kind::Bar(bar) => bar.println(text),
        }
    }

    /// No more steps.
    pub fn finish(&mut self) {
        if let Kind::Bar(bar) = &self.kind {
            bar.finish();
        }
    }
}
