//! Metrics of runs: a JSON object a line, as each rank writes them into `rank-NNN.jsonl`.

use crate::base::texts::tr;
use serde::Deserialize;

/// What a line says that is shown. Files of earlier versions lack some, later ones have more.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
struct Record {
    step: u64,
    loss: Option<f64>,
    accuracy: Option<f64>,
    test_accuracy: Option<f64>,
    step_ns: u64,
    #[serde(default)]
    busy_ns: u64,
}

/// A step of a run. What was not measured is `NaN`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepMetrics {
    pub step: u64,
    /// Seconds from the start of the first step to the end of this one.
    pub time: f64,
    pub loss: f64,
    /// 0 to 1; of the test samples where these were evaluated after the step.
    pub accuracy: f64,
    pub test_accuracy: f64,
    /// Seconds.
    pub step_secs: f64,
    /// Idle share of the ranks whose files are there.
    pub bubble: f64,
}

/// What can be drawn over the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    Loss,
    Accuracy,
    StepTime,
    Bubble,
}

impl Quantity {
    pub const ALL: [Self; 4] = [Self::Loss, Self::Accuracy, Self::StepTime, Self::Bubble];

    /// Its value, `NaN` where there is none.
    pub fn of(self, step: &StepMetrics) -> f64 {
        match self {
            Self::Loss => step.loss,
            Self::Accuracy => step.accuracy,
            Self::StepTime => step.step_secs,
            Self::Bubble => step.bubble,
        }
    }
}

/// A run: what its ranks wrote, joined.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The file's name; `None` where files are called as every run's are.
    pub name: Option<String>,
    /// Ranks whose files are there.
    pub ranks: usize,
    /// Ascending in the step.
    pub steps: Vec<StepMetrics>,
}

impl Run {
    /// Its name for people; `at` counts from 0.
    pub fn title(&self, at: usize) -> String {
        self.name.clone().unwrap_or_else(|| tr!("Run {number}", number = at + 1))
    }
}

/// What a file of metrics holds.
#[derive(Clone, Debug, PartialEq)]
pub struct File {
    name: String,
    records: Vec<Record>,
}

/// More steps than anybody trains, fewer than fill a page.
const STEPS_MAX: usize = 1_000_000;
/// Bytes of a line; real ones have some hundred.
const LINE_MAX: usize = 1 << 16;

/// Whether a file that begins so is one of metrics.
pub fn is_metrics(head: &[u8]) -> bool {
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let has = |word: &[u8]| line.windows(word.len()).any(|part| part == word);
    line.trim_ascii_start().starts_with(b"{") && has(b"\"step\"") && has(b"\"step_ns\"")
}

/// Reads such a file as it comes.
#[derive(Default)]
pub struct Reader {
    rest: Vec<u8>,
    lines: usize,
    records: Vec<Record>,
}

impl Reader {
    /// The next bytes.
    ///
    /// # Errors
    /// Which line is none, without the file's name.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), String> {
        let mut text = std::mem::take(&mut self.rest);
        text.extend_from_slice(bytes);
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        for line in text[..whole].split_inclusive(|byte| *byte == b'\n') {
            self.line(line)?;
        }
        text.drain(..whole);
        if text.len() > LINE_MAX {
            return Err(tr!("line {line} is too long to be a step", line = self.lines + 1));
        }
        self.rest = text;
        Ok(())
    }

    fn line(&mut self, text: &[u8]) -> Result<(), String> {
        self.lines += 1;
        if text.trim_ascii().is_empty() {
            return Ok(());
        }
        let record: Record = serde_json::from_slice(text)
            .map_err(|e| tr!("line {line}: {why}", line = self.lines, why = e))?;
        if self.records.len() == STEPS_MAX {
            return Err(tr!("it has over {count} steps", count = STEPS_MAX));
        }
        self.records.push(record);
        Ok(())
    }

    /// All bytes have come. A run that was killed may have left half a line: that is passed over.
    ///
    /// # Errors
    /// When there is no step.
    pub fn finish(mut self, name: &str) -> Result<File, String> {
        let last = std::mem::take(&mut self.rest);
        let _ = self.line(&last);
        // One that went on behind its checkpoint may say a step twice: the later one counts.
        self.records.reverse();
        self.records.sort_by_key(|record| record.step);
        self.records.dedup_by_key(|record| record.step);
        if self.records.is_empty() {
            return Err(tr!("it has no complete step"));
        }
        Ok(File { name: name.into(), records: self.records })
    }
}

/// Joins files that came together: `rank-000.jsonl` and those after it are of one run, until a rank
/// comes a second time; other files are runs of their own.
pub fn join(files: Vec<File>) -> Vec<Run> {
    let mut runs: Vec<(Vec<u32>, Vec<File>)> = vec![];
    for file in files {
        let rank = rank(&file.name);
        let open = rank.and_then(|rank| {
            runs.iter_mut().find(|(ranks, _)| !ranks.is_empty() && !ranks.contains(&rank))
        });
        match (open, rank) {
            (Some((ranks, files)), Some(rank)) => {
                ranks.push(rank);
                files.push(file);
            }
            _ => runs.push((rank.into_iter().collect(), vec![file])),
        }
    }
    runs.into_iter().map(|(ranks, files)| run(&ranks, files)).collect()
}

/// The number of a rank's own file. Browsers call a second download of it `rank-000 (1).jsonl`.
fn rank(name: &str) -> Option<u32> {
    let digits = name.strip_prefix("rank-")?.strip_suffix(".jsonl")?;
    digits.split(' ').next()?.parse().ok()
}

fn run(ranks: &[u32], mut files: Vec<File>) -> Run {
    // The first rank tells what all know.
    let first = (0..ranks.len()).min_by_key(|at| ranks[*at]).unwrap_or(0);
    files.swap(0, first);
    let name = ranks.is_empty().then(|| {
        let name = &files[0].name;
        name.strip_suffix(".jsonl").unwrap_or(name).to_owned()
    });
    let mut time = 0.0;
    let steps = files[0].records.iter().map(|record| {
        let known = files.iter().filter_map(|file| {
            let at = file.records.binary_search_by_key(&record.step, |r| r.step).ok()?;
            Some(1.0 - file.records[at].busy_ns as f64 / record.step_ns.max(1) as f64)
        });
        let (sum, count) = known.fold((0.0, 0), |(sum, count), idle| (sum + idle, count + 1));
        let step_secs = record.step_ns as f64 / 1e9;
        time += step_secs;
        StepMetrics {
            step: record.step,
            time,
            loss: record.loss.unwrap_or(f64::NAN),
            accuracy: record.accuracy.unwrap_or(f64::NAN),
            test_accuracy: record.test_accuracy.unwrap_or(f64::NAN),
            step_secs,
            bubble: (sum / f64::from(count)).clamp(0.0, 1.0),
        }
    });
    Run { name, ranks: files.len(), steps: steps.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, text: &str) -> Result<File, String> {
        let mut reader = Reader::default();
        for piece in text.as_bytes().chunks(11) {
            reader.push(piece)?;
        }
        reader.finish(name)
    }

    const TWO: &str = "{\"step\":0,\"loss\":2.5,\"accuracy\":0.25,\"step_ns\":2000000000,\"busy_ns\":500000000}\n\
        {\"step\":1,\"step_ns\":1000000000,\"busy_ns\":500000000,\"new\":[1]}\n";

    #[test]
    fn a_cut_last_line_is_passed_over_and_others_are_not() {
        let runs = join(vec![read("a.jsonl", &format!("{TWO}{{\"step\":2,\"st")).unwrap()]);
        assert_eq!((runs[0].steps.len(), runs[0].title(0)), (2, "a".into()));
        let [first, second] = runs[0].steps[..] else { panic!() };
        assert_eq!((first.loss, first.time, first.bubble), (2.5, 2.0, 0.75));
        assert_eq!((second.time, second.bubble), (3.0, 0.5));
        assert!(second.loss.is_nan() && Quantity::Accuracy.of(&second).is_nan());
        let whole = read("a.jsonl", &format!("{TWO}{{\"step\":2,\"step_ns\":1}}")).unwrap();
        assert_eq!(whole.records.len(), 3, "a last line without its end of line counts");
        let why = read("a.jsonl", &format!("{TWO}nonsense\n{TWO}")).unwrap_err();
        assert!(why.starts_with("line 3: "), "{why}");
    }

    #[test]
    fn hostile_files_are_refused_in_a_sentence() {
        for (text, says) in [
            ("", "no complete step"),
            ("\n\n", "no complete step"),
            ("{\"step\":0", "no complete step"),
            ("{\"step\":-1,\"step_ns\":1}\n", "line 1"),
            ("{\"step\":0,\"step_ns\":1e400}\n", "line 1"),
            ("{\"step\":0,\"step_ns\":NaN}\n", "line 1"),
            (&"x".repeat(LINE_MAX + 20), "too long"),
        ] {
            let why = read("a.jsonl", text).unwrap_err();
            assert!(why.contains(says) && !why.contains('\n'), "{why}");
        }
        let zero = read("a.jsonl", "{\"step\":0,\"step_ns\":0,\"busy_ns\":9}\n").unwrap();
        assert_eq!(join(vec![zero])[0].steps[0].bubble, 0.0);
    }

    #[test]
    fn ranks_are_one_run_and_other_files_runs_of_their_own() {
        let file = |name: &str, busy: u64| {
            let text = format!("{{\"step\":4,\"step_ns\":1000,\"busy_ns\":{busy}}}\n");
            read(name, &text).unwrap()
        };
        let runs = join(vec![
            file("rank-001.jsonl", 200),
            file("rank-000.jsonl", 600),
            file("fp8.jsonl", 1000),
            file("rank-000 (1).jsonl", 500),
        ]);
        let found: Vec<(String, usize, f64)> =
            (0..).zip(&runs).map(|(at, r)| (r.title(at), r.ranks, r.steps[0].bubble)).collect();
        let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert_eq!(found.len(), 3);
        assert!(found[0].0 == "Run 1" && found[0].1 == 2 && close(found[0].2, 0.6), "{found:?}");
        assert!(found[1].0 == "fp8" && close(found[1].2, 0.0), "{found:?}");
        assert!(found[2].0 == "Run 3" && close(found[2].2, 0.5), "{found:?}");
    }

    #[test]
    fn a_run_that_went_on_says_a_step_once() {
        let again = "{\"step\":1,\"loss\":9,\"step_ns\":5}\n";
        let file = read("a", &format!("{TWO}{again}")).unwrap();
        assert_eq!(file.records.iter().map(|r| r.step).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(file.records[1].loss, Some(9.0));
    }

    #[test]
    fn metrics_are_known_by_their_first_line() {
        assert!(is_metrics(TWO.as_bytes()) && is_metrics(b"{\"step\":0,\"step_ns\":1}"));
        for other in ["", "{}", "{\"traceEvents\":[]}", "{\n\"step\":1,\"step_ns\":2}", "[1]"] {
            assert!(!is_metrics(other.as_bytes()), "{other}");
        }
    }
}
