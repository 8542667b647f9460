//! Mini-batches that stay, and mini-batches that follow the number of replicas: which samples the ranks
//! drew, at which learning rate, and what came of it.
//!
//! Which samples a step took is seen in its loss. With a learning rate below the last bit of every weight
//! nothing is learned, so a sample has one loss for ever; no two have the same, and a step's is the mean
//! of those that its ranks drew.

use crate::common::{digits, draft, losses, mpirun_in, runner_in, scratch, write};
use crate::job::{Job, ledger, mpi};
use crate::members::Joined;
use pipewright::mpirun::surviving;
use pipewright_core::elastic::BatchRule;
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::{DataParallel, Decay, Plan, RateRule, RateSchedule};
use pipewright_core::schedule::ScheduleKind;
use pipewright_runner::data::{Order, Sequence};
use pipewright_runner::elastic::journal::Event;
use std::collections::BTreeMap;
use std::path::Path;

/// Samples of a step as planned.
const MINI_BATCH: u64 = 32;

/// Planned steps: more than an epoch of the digits.
const STEPS: u64 = 48;

/// A learning rate that changes no weight.
const STILL: &str = "sgd:lr=1e-30,momentum=0.9";

/// So many stages, each on so many ranks; the rate rises, then falls by steps.
fn plan(stages: u32, replicas: u32, optimizer: &str) -> Plan {
    let mut draft = draft(Preset::DigitsCnn, stages);
    (draft.data, draft.schedule, draft.steps) = (digits(), ScheduleKind::OneFOneB, STEPS);
    (draft.mini_batch, draft.micro_batches) = (MINI_BATCH, 2);
    draft.data_parallel = DataParallel::ddp(replicas);
    draft.optimizer = optimizer.parse().unwrap();
    let decay = Decay::Step { every: 20, factor: 0.5 };
    draft.training.rate = RateSchedule { decay, warmup: 4, base_batch: None };
    draft.plan().unwrap().0
}

/// What [`plan`]'s rate is multiplied by after so many samples, in mini-batches as planned.
fn course(samples: u64) -> f64 {
    match samples / MINI_BATCH {
        step @ ..4 => (step + 1) as f64 / 4.0,
        step => 0.5f64.powi(((step - 4) / 20) as i32),
    }
}

/// The loss of every sample by itself, of weights that never change.
fn loss_of_each(dir: &Path, plan: &Plan) -> Vec<f64> {
    let mut draft = draft(Preset::DigitsCnn, 1);
    (draft.data, draft.shuffle, draft.steps) = (plan.data.clone(), false, 1437);
    (draft.mini_batch, draft.micro_batches, draft.optimizer) = (1, 1, plan.optimizer);
    write(dir, "alone.json", draft.plan().unwrap().0.to_json());
    runner_in(dir, &["alone.json", "--out", "alone", "--threads", "1"]).done();
    losses(&dir.join("alone")).iter().map(|loss| loss.parse().unwrap()).collect()
}

/// A step in the metrics.
struct Step {
    samples: u64,
    mini_batch: u64,
    loss: f64,
    rate: f64,
}

/// The steps of a job with the samples before each, by what the records say of its generations.
#[track_caller]
fn steps(job: &Job) -> Vec<Step> {
    let of = |event: Event| match event {
        Event::Generation { generation, mini_batch, .. } => Some((generation, mini_batch)),
        _ => None,
    };
    let lines = job.journal().into_iter();
    let sizes: BTreeMap<u64, u64> = lines.filter_map(|line| of(line.event)).collect();
    let ledger = ledger(&job.out);
    assert!(ledger.iter().zip(0..).all(|((step, _), expected)| *step == expected), "{ledger:?}");
    let text = std::fs::read_to_string(job.out.join("rank-000.jsonl")).unwrap();
    let mut samples = 0;
    let step = |(line, (_, generation)): (&str, &(u64, u64))| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let number = |name: &str| line[name].as_f64().unwrap();
        let mini_batch = sizes[generation];
        samples += mini_batch;
        let before = samples - mini_batch;
        Step { samples: before, mini_batch, loss: number("loss"), rate: number("learning_rate") }
    };
    text.lines().zip(&ledger).map(step).collect()
}

/// Every step has the loss of the samples whose turn it was, so that an epoch takes each once, and the
/// learning rate that the rule says.
#[track_caller]
fn each_sample_in_its_turn(job: &Job, plan: &Plan, rule: BatchRule, losses: &[f64]) {
    let sequence = Sequence::Shuffled { seed: plan.seed };
    let order = Order::new(sequence, losses.len() as u64, 1);
    for (number, step) in steps(job).iter().enumerate() {
        let Step { samples, mini_batch, loss, rate } = *step;
        let drawn = (samples..samples + mini_batch).map(|at| order.index(at, 0).unwrap());
        let expected = drawn.map(|sample| losses[sample as usize]).sum::<f64>() / mini_batch as f64;
        assert!((loss - expected).abs() < 1e-6 * expected, "step {number}: {loss}, not {expected}");
        let growth = mini_batch as f64 / MINI_BATCH as f64;
        let factor = match rule {
            BatchRule::Keep | BatchRule::Scale(RateRule::None) => 1.0,
            BatchRule::Scale(RateRule::Linear) => growth,
            BatchRule::Scale(RateRule::SquareRoot) => growth.sqrt(),
        };
        let full = f64::from(plan.optimizer.learning_rate());
        let expected = full * course(samples) * factor;
        assert!((rate - expected).abs() < 1e-6 * expected, "step {number}: {rate}, not {expected}");
    }
}

/// Trains with 2, 4, 2 and 4 ranks, a quarter of the samples each, one job after the other.
#[track_caller]
fn two_and_four(dir: &Path, out: &str, rule: &str) -> Job {
    let quarter = |(part, slots): (u64, &str)| {
        let steps = (part * STEPS / 4).to_string();
        let args = ["--steps", &steps, "--slots", slots, "--mini-batch", rule];
        let mut job = Job::start(dir, out, &args, "");
        job.ends(0);
        job
    };
    [(1, "2"), (2, "4"), (3, "2"), (4, "4")].map(quarter).into_iter().next_back().unwrap()
}

#[test]
fn every_rule_takes_every_sample_once() {
    if !mpi() {
        return;
    }
    let dir = scratch("elastic-rules");
    let plan = plan(1, 4, STILL);
    write(&dir, "plan.json", plan.to_json());
    let losses = loss_of_each(&dir, &plan);
    for (out, rule, mini_batches) in [
        ("keep", "keep", [32, 32]),
        ("linear", "scale:linear", [16, 32]),
        ("sqrt", "scale:sqrt", [16, 32]),
        ("none", "scale:none", [16, 32]),
    ] {
        let job = two_and_four(&dir, out, rule);
        each_sample_in_its_turn(&job, &plan, rule.parse().unwrap(), &losses);
        let steps = steps(&job);
        let all: u64 = steps.iter().map(|step| step.mini_batch).sum();
        assert_eq!(all, STEPS * MINI_BATCH, "{rule}: as many samples as planned");
        let count = (STEPS / 2) * (MINI_BATCH / mini_batches[0] + 1);
        assert_eq!(steps.len() as u64, count, "{rule}");
        let quarter = |step: &Step| (step.samples / (STEPS / 4 * MINI_BATCH)) as usize;
        let size = |step: &Step| mini_batches[quarter(step) % 2];
        assert!(steps.iter().all(|step| step.mini_batch == size(step)), "{rule}");
    }
    std::fs::remove_dir_all(dir).unwrap();
}

/// A policy knows how far training is when the job goes on with steps of another size behind it.
#[test]
fn policies_are_told_in_samples() {
    if !mpi() {
        return;
    }
    let dir = scratch("elastic-told");
    write(&dir, "plan.json", plan(1, 4, STILL).to_json());
    let rule = ["--mini-batch", "scale:sqrt"];
    let mut job =
        Job::start(&dir, "out", &[&["--steps", "12", "--slots", "2"], &rule[..]].concat(), "");
    job.ends(0);
    let told = "fail(`${step} steps, ${samples} of ${samples_total}, ${sizes[1].mini_batch}`)";
    write(&dir, "told.rhai", told);
    let args = [&["--policy", "told.rhai", "--slots", "3"], &rule[..]].concat();
    let mut job = Job::start(&dir, "out", &args, "");
    job.ends(3);
    assert!(job.log().contains("told.rhai: 24 steps, 384 of 1536, 16"), "{}", job.log());
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_mini_batch_follows_members_that_come_and_go() {
    if !mpi() {
        return;
    }
    let dir = scratch("elastic-follows");
    let plan = plan(2, 2, STILL);
    write(&dir, "plan.json", plan.to_json());
    let losses = loss_of_each(&dir, &plan);
    let rule = "scale:linear";
    let long = ["--steps", "1000000", "--slots", "2", "--save-every", "1000000"];
    let args = [&long[..], &["--mini-batch", rule]].concat();
    let mut job = Job::start(&dir, "out", &args, "");
    job.until_training(1);
    let more = Joined::new(&dir, &job.name, "more", 4);
    job.until_training(2);
    drop(more);
    job.until_training(3);
    job.signal("-TERM");
    job.ends(0);
    let told = |event: Event| match event {
        Event::Generation { replicas, mini_batch, rate_factor, .. } => {
            Some((replicas, mini_batch, rate_factor))
        }
        _ => None,
    };
    let told: Vec<_> = job.journal().into_iter().filter_map(|line| told(line.event)).collect();
    assert_eq!(told, [(1, 16, Some(0.5)), (3, 48, Some(1.5)), (1, 16, Some(0.5))]);
    each_sample_in_its_turn(&job, &plan, rule.parse().unwrap(), &losses);
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn survivors_go_on_by_their_own_mini_batch() {
    let (true, Some(mpirun)) = (mpi(), surviving()) else { return };
    let dir = scratch("elastic-survive-scaled");
    let plan = plan(1, 4, STILL);
    write(&dir, "plan.json", plan.to_json());
    let losses = loss_of_each(&dir, &plan);
    let rule = "scale:sqrt";
    let args = ["--on-loss", "shrink", "--mini-batch", rule, "--save-every", "5"];
    let faults = "1:optimizer:30@1,0:forward:40@2";
    let job = Job::survived(&mpirun, &dir, &args, faults, |job| {
        each_sample_in_its_turn(job, &plan, rule.parse().unwrap(), &losses);
    });
    let steps = steps(&job);
    let sizes: Vec<u64> = steps.iter().map(|step| step.mini_batch).collect();
    let expected = [vec![32; 30], vec![24; 10], vec![16; 21]].concat();
    assert_eq!(sizes, expected, "960 + 240 + 336 samples");
    std::fs::remove_dir_all(dir).unwrap();
}

/// Means of the losses of each 256 samples, by when they were taken.
fn curve(steps: &[Step]) -> Vec<f64> {
    let mut sums: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
    for step in steps {
        let sum = sums.entry(step.samples / 256).or_default();
        let weight = step.mini_batch as f64;
        *sum = (sum.0 + weight * step.loss, sum.1 + weight);
    }
    sums.values().map(|(sum, weight)| sum / weight).collect()
}

#[test]
fn losses_follow_those_of_the_fixed_size() {
    if !mpi() {
        return;
    }
    let dir = scratch("elastic-curves");
    let plan = plan(1, 4, "sgd:lr=0.005,momentum=0");
    write(&dir, "plan.json", plan.to_json());
    mpirun_in(&dir, 4, &["plan.json", "--out", "whole", "--threads", "1"]).unwrap().done();
    let whole: Vec<f64> =
        losses(&dir.join("whole")).iter().map(|loss| loss.parse().unwrap()).collect();
    let as_step = |(at, loss): (u64, &f64)| Step {
        samples: at * MINI_BATCH,
        mini_batch: MINI_BATCH,
        loss: *loss,
        rate: 0.0,
    };
    let fixed = curve(&(0..).zip(&whole).map(as_step).collect::<Vec<_>>());
    for (out, rule) in [
        ("keep", "keep"),
        ("linear", "scale:linear"),
        ("sqrt", "scale:sqrt"),
        ("none", "scale:none"),
    ] {
        let steps = steps(&two_and_four(&dir, out, rule));
        let off = |(a, b): (&f64, &f64)| (a - b).abs() / b;
        let most = curve(&steps).iter().zip(&fixed).map(off).fold(0.0, f64::max);
        println!("{rule}: means over 256 samples differ by {:.3} % at most", 100.0 * most);
        // A step of half the size at half the rate goes half as far, as long as steps are small and
        // nothing is carried from one to the next; the other rules learn otherwise.
        assert!(most < 0.02 || !["keep", "scale:linear"].contains(&rule), "{rule}: {most}");
        if rule == "keep" {
            let found: Vec<f64> = steps.iter().map(|step| step.loss).collect();
            assert_eq!(found.len(), whole.len());
            let most = found.iter().zip(&whole).map(off).fold(0.0, f64::max);
            println!("{rule}: losses of steps differ by {most:e} at most");
            assert!(most < 1e-5, "the order of sums alone: {most:e}");
        }
    }
    std::fs::remove_dir_all(dir).unwrap();
}
