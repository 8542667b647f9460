//! Tuning on a machine that is another than the plan's cluster says: one that is simulated, so that what is
//! best is known and nothing depends on how busy this one is.

use super::ranks::{Ranks, Trial};
use super::tuner::{End, Tuner};
use crate::args::{Cli, Command, TuneArgs};
use crate::failure::{Code, Failure};
use crate::report::Outcome;
use crate::train::StopFlag;
use clap::Parser;
use pipewright_core::cost::{Cluster, MeasuredNode, Profile, Sample};
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::{Draft, Model, Plan};
use pipewright_core::predict::{Prediction, predict};
use pipewright_core::schedule::ScheduleKind;
use pipewright_core::timeline::{Step, Trace};
use pipewright_core::units::Nanos;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// What a machine does with a plan besides running it.
type Whims<'a> = &'a dyn Fn(&Plan) -> Result<f64, Failure>;

/// Ranks on a simulated machine.
struct Simulated<'a> {
    truth: &'a Cluster,
    /// By what a step is longer than it would be; or why the plan does not run.
    whims: Whims<'a>,
    ran: &'a RefCell<Vec<Plan>>,
}

impl Simulated<'_> {
    fn outcome(&self, plan: &Plan) -> Trial {
        let longer = (self.whims)(plan)?;
        let Prediction { timeline, programs, .. } = on(self.truth, plan);
        let arena = programs.iter().map(|program| program.arena.0).collect();
        let step_ns = (timeline.step.0 as f64 * longer) as u64;
        let steps = vec![Step { number: 0, start: Nanos::ZERO, timeline }];
        let trace = Some(Trace { model: "digits-cnn".into(), steps });
        Ok(Outcome { step_ns, arena, trace, ..Outcome::default() })
    }
}

impl Ranks for Simulated<'_> {
    fn profile(&mut self, plan: &Plan) -> Result<Cluster, Failure> {
        Ok(profiled(self.truth, plan))
    }

    fn run(&mut self, plan: &Plan) -> Result<Trial, Failure> {
        self.ran.borrow_mut().push(plan.clone());
        Ok(self.outcome(plan))
    }

    fn finish(self, _: Option<Code>) -> Result<(), Failure> {
        Ok(())
    }
}

fn on(cluster: &Cluster, plan: &Plan) -> Prediction {
    predict(&Plan { cluster: cluster.clone(), ..plan.clone() }).unwrap()
}

/// The machine as a profile finds it: what nodes take, all of them too fast by a half.
fn profiled(truth: &Cluster, plan: &Plan) -> Cluster {
    let graph = plan.model.graph().unwrap();
    let node = |node: &pipewright_core::graph::Node, at: usize| {
        let sample = |samples| {
            let costs = Plan { cluster: truth.clone(), ..plan.clone() }.costs(&graph, samples);
            let cost = costs.nodes[at];
            let half = |time: Nanos| Nanos(time.0 / 2);
            Sample {
                samples,
                forward_ns: half(cost.forward),
                input_gradient_ns: half(cost.input_gradient),
                weight_gradient_ns: half(cost.weight_gradient),
                sum_gradients_ns: half(cost.sum_gradients),
                update_ns: half(cost.update),
                split: None,
            }
        };
        MeasuredNode { node: node.name.clone(), samples: vec![sample(4), sample(16)] }
    };
    let nodes = graph.nodes().iter().zip(0..).map(|(n, at)| node(n, at)).collect();
    let profile = Profile { model: graph.name().into(), nodes };
    Cluster { profile: Some(profile), ..truth.clone() }
}

/// A machine of slow devices that have a core each.
fn truth() -> Cluster {
    let mut cluster = Cluster::preset("laptop").unwrap();
    (cluster.devices_per_node, cluster.ranks_per_node) = (4, 4);
    cluster.device.flops_per_sec = 2e9;
    cluster.device.memory_bytes_per_sec = 1e9;
    cluster
}

/// Most of the network in the last stage, two micro-batches.
fn lopsided() -> Plan {
    let model = Model::Preset(Preset::DigitsCnn);
    let mut draft = Draft::new(model, Cluster::preset("laptop").unwrap(), vec![1]);
    (draft.schedule, draft.mini_batch, draft.micro_batches) = (ScheduleKind::GPipe, 64, 2);
    draft.plan().unwrap().0
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("tune-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn arguments(folder: &Path, more: &[&str]) -> TuneArgs {
    let plan = folder.join("plan.json");
    let words = ["runner", "tune", plan.to_str().unwrap(), "--json"];
    match Cli::parse_from(words.iter().chain(more)).command {
        Command::Tune(args) => args,
        other => panic!("{other:?}"),
    }
}

/// How tuning on the simulated machine ended, the plans that ran, and the one that was written.
fn tuned(
    name: &str,
    more: &[&str],
    whims: Whims,
) -> (Result<End, Failure>, Vec<Plan>, Option<Plan>) {
    let folder = folder(name);
    let args = arguments(&folder, more);
    let (truth, ran) = (truth(), RefCell::default());
    let ranks = Simulated { truth: &truth, whims, ran: &ran };
    let mut tuner = Tuner::new(&args, lopsided(), ranks, StopFlag::default()).unwrap();
    let ended = tuner.tune();
    let written = std::fs::read_to_string(args.output()).ok();
    std::fs::remove_dir_all(&folder).unwrap();
    (ended, ran.into_inner(), written.map(|text| Plan::from_json(&text).unwrap()))
}

/// The least step of two ranks on the machine, over all cuts between layers, micro-batches and schedules.
fn least() -> Nanos {
    let (truth, first) = (truth(), lopsided());
    let graph = first.model.graph().unwrap();
    let borders = graph.layers().iter().map(|layer| layer.first_node.0).filter(|node| *node > 0);
    let cuts: Vec<Vec<u32>> = borders.map(|border| vec![border]).collect();
    let mut least = Nanos(u64::MAX);
    for schedule in ScheduleKind::ALL.into_iter().filter(|kind| {
        kind.updates() == pipewright_core::schedule::Updates::Synchronous && kind.lanes(2) == Ok(2)
    }) {
        for micro_batches in [1, 2, 4, 8, 16, 32, 64] {
            for cuts in &cuts {
                let mut draft = Draft::new(first.model.clone(), truth.clone(), cuts.clone());
                (draft.schedule, draft.mini_batch) = (schedule, 64);
                draft.micro_batches = micro_batches;
                if let Ok((_, prediction)) = draft.plan() {
                    least = least.min(prediction.timeline.step);
                }
            }
        }
    }
    least
}

#[test]
fn the_best_plan_of_an_unknown_machine_is_found() {
    let (ended, ran, written) = tuned("best", &["--trials", "40"], &|_| Ok(1.0));
    assert_eq!(ended.unwrap(), End::NothingPromises);
    let (truth, written) = (truth(), written.unwrap());
    let step = on(&truth, &written).timeline.step;
    let first = on(&truth, &lopsided()).timeline.step;
    let measured = written.measured.unwrap();
    assert_eq!((measured.step_ns, measured.first_step_ns), (step, first));
    // What is predicted on the calibrated cluster is what the machine does.
    let error = written.prediction.step_ns.secs() / step.secs() - 1.0;
    assert!(error.abs() < 0.05, "{error}");
    let least = least();
    assert!(step.secs() < 1.01 * least.secs(), "{step}, of all {least}; first {first}");
    assert!(ran.len() < 40, "{}", ran.len());
    // Ranks and mini-batch stay, and so does what is trained.
    for plan in &ran {
        assert_eq!((plan.ranks(), plan.mini_batch), (2, 64));
    }
    let first = lopsided();
    assert_eq!((written.steps, written.seed), (first.steps, first.seed));
}

/// Small micro-batches may be slower or faster than anybody predicts: what is divided otherwise is measured, too.
#[test]
fn other_divisions_are_measured_before_the_end() {
    let (_, _, found) = tuned("beside", &["--trials", "40"], &|_| Ok(1.0));
    let (truth, found) = (truth(), found.unwrap());
    let least = on(&truth, &found).timeline.step.secs();
    let is_beside = |plan: &Plan| {
        let alike = (&plan.cuts, &plan.schedule.name) == (&found.cuts, &found.schedule.name);
        alike
            && plan.data_parallel == found.data_parallel
            && plan.micro_batches == 2 * found.micro_batches
    };
    let surprising = |plan: &Plan| match is_beside(plan) {
        true => Ok(0.9 * least / on(&truth, plan).timeline.step.secs()),
        false => Ok(1.0),
    };
    let (ended, _, written) = tuned("besides", &["--trials", "40"], &surprising);
    assert_eq!(ended.unwrap(), End::NothingPromises);
    let measured = written.unwrap().measured.unwrap().step_ns.secs();
    assert!(measured < 0.901 * least, "{measured} of {least}");
}

#[test]
fn plans_that_do_not_run_are_passed_over() {
    let failing = |plan: &Plan| match plan.micro_batches {
        2 => Ok(1.0),
        _ => Err(Failure::new(Code::Hardware, "no room")),
    };
    let (ended, ran, written) = tuned("failing", &["--trials", "10"], &failing);
    ended.unwrap();
    assert!(ran.iter().any(|plan| plan.micro_batches != 2), "nothing else was tried");
    assert_eq!(written.unwrap().micro_batches, 2);
    let nothing = |_: &Plan| Err(Failure::new(Code::Hardware, "no room"));
    let (ended, ran, written) = tuned("nothing", &[], &nothing);
    let failure = ended.unwrap_err();
    assert_eq!((failure.code, failure.message.as_str()), (Code::Hardware, "no room"));
    assert!(ran.len() == 1 && written.is_none());
}

#[test]
fn the_given_plan_stays_where_all_others_are_slower() {
    let first = lopsided();
    let slower = |plan: &Plan| {
        Ok(if plan.schedule.lanes == first.schedule.lanes && plan.cuts == first.cuts {
            1.0
        } else {
            9.0
        })
    };
    let (ended, _, written) = tuned("stays", &["--trials", "5"], &slower);
    ended.unwrap();
    let written = written.unwrap();
    let measured = written.measured.unwrap();
    assert_eq!(measured.step_ns, measured.first_step_ns);
    assert_eq!((&written.cuts, &written.schedule), (&first.cuts, &first.schedule));
}

/// A step that is 3 % faster once, and 3 % slower each time after, is not taken for faster.
#[test]
fn plans_that_are_close_are_measured_in_turns() {
    let (truth, first) = (truth(), lopsided());
    let goal = on(&truth, &first).timeline.step.secs();
    let others = RefCell::new(0);
    let whims = |plan: &Plan| {
        if plan.schedule.lanes == first.schedule.lanes && plan.cuts == first.cuts {
            return Ok(1.0);
        }
        *others.borrow_mut() += 1;
        let wanted = goal * if *others.borrow() == 1 { 0.97 } else { 1.03 };
        Ok(wanted / on(&truth, plan).timeline.step.secs())
    };
    let (ended, ran, written) = tuned("close", &["--trials", "2"], &whims);
    assert_eq!(ended.unwrap(), End::Trials);
    assert_eq!(ran.len(), 6, "three runs of each");
    let firsts = ran.iter().map(|plan| plan.cuts == first.cuts && plan.schedule == first.schedule);
    assert_eq!(firsts.collect::<Vec<_>>(), [true, false, true, false, true, false]);
    assert_eq!(written.unwrap().cuts, first.cuts);
}

#[test]
fn an_interrupt_leaves_the_best_so_far() {
    let folder = folder("interrupt");
    let args = arguments(&folder, &[]);
    let (truth, ran, stop) = (truth(), RefCell::default(), StopFlag::default());
    let whims = |plan: &Plan| {
        // The signal comes while the second plan runs.
        stop.store(plan.cuts != vec![1], Ordering::Relaxed);
        Ok(1.0)
    };
    let ranks = Simulated { truth: &truth, whims: &whims, ran: &ran };
    let mut tuner = Tuner::new(&args, lopsided(), ranks, stop.clone()).unwrap();
    assert_eq!(tuner.tune().unwrap(), End::Interrupted);
    assert!(tuner.summary().interrupted().contains("has the best plan so far"));
    let text = std::fs::read_to_string(args.output()).unwrap();
    assert!(Plan::from_json(&text).unwrap().measured.is_some());
    std::fs::remove_dir_all(&folder).unwrap();
}
