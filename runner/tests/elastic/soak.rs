//! Kills again and again: a few in `make test`, as many as they take in `make soak`, which writes what
//! they print into docs/reliability.md.

use crate::common::{RUNNER, losses, scratch, write};
use crate::job::{Job, ledger, mpi, ranks, signal, two_by_two};
use pipewright_core::plan::Plan;
use pipewright_runner::elastic::journal::{Cause, Event};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// A row of docs/reliability.md.
pub fn tell(what: &str, figure: &str) {
    println!("reliability: | {what} | {figure} |");
}

/// Numbers that look random, the same in every run (Marsaglia's xorshift64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64
}

/// The `share` of sorted values that is below it, as text.
fn quantile(sorted: &[u64], share: f64) -> u64 {
    let at = ((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or_default()
}

pub fn milliseconds(mut values: Vec<u64>) -> String {
    values.sort_unstable();
    let [half, most] = [0.5, 0.99].map(|share| quantile(&values, share));
    format!("{half} ms (p50), {most} ms (p99), {} ms at most", quantile(&values, 1.0))
}

/// Kills a rank `count` times, each after a pause, and sees that nothing of it can be told from the
/// losses. Every kill hits a generation that trains.
fn kills(name: &str, count: u64, mut pause: impl FnMut(&mut Random) -> Duration) {
    if !mpi() {
        return;
    }
    let dir = scratch(&format!("soak-{}", name.replace(' ', "-")));
    // Steps of some milliseconds, so that metrics do not grow large.
    let plan = Plan { steps: 10_000_000, ..two_by_two(1) };
    write(&dir, "plan.json", plan.to_json());
    let begin = Instant::now();
    let mut job = Job::start(&dir, "out", &["--save-every", "1000"], "");
    let mut random = Random(88_172_645_463_325_252);
    let mut moments = vec![];
    for kill in 1..=count {
        job.until_training(kill);
        std::thread::sleep(pause(&mut random));
        let (_, victim) = ranks(&job.name)[random.below(4) as usize];
        moments.push(unix_ms());
        signal(victim, "-KILL");
    }
    job.until_training(count + 1);
    std::thread::sleep(pause(&mut random).min(Duration::from_secs(1)));
    let seconds = begin.elapsed().as_secs_f64();
    job.signal("-TERM");
    job.ends(0);
    report(&format!("{name}, {count} kills"), &job, &moments, seconds);
    trains_like_no_fault(&dir, &job);
    std::fs::remove_dir_all(dir).unwrap();
}

fn report(what: &str, job: &Job, moments: &[u64], seconds: f64) {
    let (mut detected, mut recovered) = (vec![], vec![]);
    for line in job.journal() {
        match line.event {
            Event::Ended { cause, .. } if detected.len() < moments.len() => {
                assert_eq!(cause, Cause::RankLost);
                detected.push(line.unix_ms.saturating_sub(moments[detected.len()]));
            }
            Event::Training { recover_ms: Some(ms), .. } => recovered.push(ms),
            _ => {}
        }
    }
    assert_eq!(detected.len(), moments.len());
    tell(&format!("{what}: known, and all other ranks ended"), &milliseconds(detected));
    tell(&format!("{what}: training again"), &milliseconds(recovered));
    let steps = steps(&job.out);
    let useful = steps.iter().map(|step| step.ns).sum::<u64>() as f64 / 1e9;
    let share = 100.0 * (useful / seconds).min(1.0);
    tell(&format!("{what}: share of {seconds:.0} s in steps that count"), &format!("{share:.1} %"));
    tell(&format!("{what}: keeping the state of a step"), &format!("{:.2} ms", between(&steps)));
}

/// A step in the metrics of rank 0.
pub struct Step {
    pub generation: u64,
    pub ns: u64,
    pub unix_ms: u64,
}

pub fn steps(out: &Path) -> Vec<Step> {
    let text = std::fs::read_to_string(out.join("rank-000.jsonl")).unwrap();
    let step = |line: &str| {
        let step: serde_json::Value = serde_json::from_str(line).unwrap();
        let number = |name: &str| step[name].as_u64().unwrap();
        Step { generation: number("generation"), ns: number("step_ns"), unix_ms: number("unix_ms") }
    };
    text.lines().map(step).collect()
}

/// Milliseconds between the end of a step and the begin of the next, a mean within generations.
fn between(steps: &[Step]) -> f64 {
    let pairs = steps.windows(2).filter(|pair| pair[0].generation == pair[1].generation);
    let gap = |pair: &[Step]| (pair[1].unix_ms - pair[0].unix_ms) as f64 - pair[1].ns as f64 / 1e6;
    let gaps: Vec<f64> = pairs.map(gap).collect();
    gaps.iter().sum::<f64>() / gaps.len().max(1) as f64
}

/// The run without faults of as many steps has the same losses, to the bit.
fn trains_like_no_fault(dir: &Path, job: &Job) {
    let steps = ledger(&job.out).len().to_string();
    let args = ["plan.json", "--steps", &steps, "--out", "whole", "--threads", "1"];
    let run = pipewright::mpirun::mpirun(4, Path::new(RUNNER), &args, dir, 3600).unwrap().unwrap();
    assert_eq!(run.status.code(), Some(0), "{run:#?}");
    job.trained_like(&losses(&dir.join("whole")));
    tell(&format!("{steps} steps: applied exactly once, losses equal to the bit"), "yes");
}

#[test]
fn a_few_kills_at_random_moments() {
    kills("random", 5, |random| Duration::from_millis(random.below(300)));
}

#[test]
#[ignore = "takes minutes; make soak"]
fn two_hundred_kills_at_random_moments() {
    kills("random moments", 200, |random| Duration::from_millis(random.below(1200)));
}

#[test]
#[ignore = "takes ten minutes; make soak"]
fn a_kill_every_fifteen_seconds_for_ten_minutes() {
    kills("a kill every 15 s", 40, |_| Duration::from_secs(15));
}
