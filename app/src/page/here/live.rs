//! Metrics of a run that goes on, for the Run screen's curves.

use super::Heard;
use crate::screens::run::model::metrics::{self, Reader, Run};

/// The steps of the newest run, as its lines came.
#[derive(Default)]
pub struct Live {
    text: String,
    steps: usize,
    /// Steps that are drawn.
    drawn: usize,
}

impl Live {
    /// Takes in what was heard. Returns the run as far as it is, where that is worth a new picture: a long
    /// one is read again only when it has grown by a hundredth.
    pub fn hear(&mut self, heard: &Heard, name: &str) -> Option<Run> {
        if heard.begin {
            *self = Self::default();
        }
        self.text += &heard.steps;
        self.steps += heard.steps.lines().count();
        let grown = self.steps - self.drawn;
        let due = grown > self.drawn / 100 || heard.end && grown > 0;
        if !due {
            return None;
        }
        self.drawn = self.steps;
        let mut reader = Reader::default();
        reader.push(self.text.as_bytes()).ok()?;
        metrics::join(vec![reader.finish(name).ok()?]).pop()
    }
}

/// Puts a run in the place of what was shown of it before.
pub fn show(runs: &mut Vec<Run>, run: Run) {
    match runs.iter_mut().find(|old| old.name == run.name) {
        Some(old) => *old = run,
        None => runs.push(run),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(from: u64, to: u64) -> Heard {
        let line = |step: u64| format!("{{\"step\":{step},\"loss\":0.5,\"step_ns\":7}}\n");
        Heard { begin: from == 0, steps: (from..to).map(line).collect(), ..Heard::default() }
    }

    #[test]
    fn a_run_grows_in_its_place() {
        let (mut live, mut runs) = (Live::default(), vec![]);
        for (from, to) in [(0, 1), (1, 40), (40, 300)] {
            show(&mut runs, live.hear(&heard(from, to), "runs/3").unwrap());
            assert_eq!((runs.len(), runs[0].steps.len() as u64), (1, to));
        }
        assert_eq!(runs[0].title(0), "runs/3");
        assert!(live.hear(&heard(300, 302), "runs/3").is_none(), "too little to draw anew");
        let end = Heard { end: true, ..Heard::default() };
        assert_eq!(live.hear(&end, "runs/3").unwrap().steps.len(), 302);
        show(&mut runs, live.hear(&heard(0, 5), "runs/4").unwrap());
        assert_eq!((runs.len(), runs[1].steps.len()), (2, 5));
    }
}
