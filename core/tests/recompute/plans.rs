//! Plans that recompute: what a stage's problem says of it, plans made to fit, plans refused.

use pipewright_core::cost::Cluster;
use pipewright_core::graph::autodiff::{SequenceError, TrainingGraph};
use pipewright_core::graph::presets::Preset;
use pipewright_core::ids::StageId;
use pipewright_core::partition;
use pipewright_core::plan::{
    Draft, Model, Plan, PlanError, Precision, RecomputeError, Sequence, StageProblem,
    training_graphs,
};
use pipewright_core::predict::{FitError, Prediction, best_move, fit, predict};
use pipewright_core::recompute::{Goal, Problem, Search, cost, last_uses};
use pipewright_core::schedule::ScheduleKind;
use pipewright_core::units::Bytes;
use proptest::prelude::*;

fn plan(preset: &str, stages: u32, kind: ScheduleKind, micro_batches: u32) -> Plan {
    let model = Model::Preset(preset.parse::<Preset>().unwrap());
    let cuts = partition::uniform(&model.graph().unwrap(), stages).unwrap();
    let mut draft = Draft::new(model, Cluster::preset("dgx-a100").unwrap(), cuts);
    draft.schedule = kind;
    (draft.mini_batch, draft.micro_batches) = (4 * u64::from(micro_batches), micro_batches);
    draft.plan().unwrap().0
}

/// Bytes of one slot: of what lives across a mark.
fn slot(problem: &Problem, sequence: &[u32]) -> u64 {
    let marks: Vec<usize> =
        (0..sequence.len()).filter(|at| problem.marks().contains(&sequence[*at])).collect();
    let last = last_uses(problem, sequence);
    let crosses = |at: &usize| marks.iter().any(|mark| at < mark && *mark <= last[*at] as usize);
    (0..sequence.len()).filter(crosses).map(|at| problem.node(sequence[at]).bytes).sum()
}

/// Moves of the searches for each node: these stages are small.
const EFFORT: u64 = 200;

/// The problems of all stages, and what lowering makes of the plan.
fn problems(plan: &Plan) -> (Vec<StageProblem>, Prediction) {
    let (graph, schedule) = plan.check().unwrap();
    let inputs = plan.inputs(&graph, &schedule);
    let costs = plan.costs(&graph, plan.samples());
    let costs = costs.with_backward(schedule.splits_backward());
    let prediction = predict(plan).unwrap();
    let graphs = training_graphs(&inputs);
    let copies = (0..graphs.len() as u32).map(|stage| {
        let held = prediction.programs.iter().filter_map(|p| p.stage(StageId(stage)));
        held.map(|stage| stage.slots.count).max().unwrap()
    });
    let copies: Vec<u32> = copies.collect();
    let problem = |(graph, copies)| StageProblem::new(&inputs, graph, &costs, copies).unwrap();
    (graphs.iter().zip(copies).map(problem).collect(), prediction)
}

/// Without recomputation, a problem says of slots, of what is needed besides and of time what
/// lowering says.
#[test]
fn problems_are_the_stages() {
    for (preset, kind) in [
        ("resnet18:128", ScheduleKind::OneFOneB),
        ("resnet18:128", ScheduleKind::ZbH1),
        ("vgg16", ScheduleKind::GPipe),
        ("transformer:layers=4,hidden=64,heads=4,sequence=32,vocabulary=99", ScheduleKind::ZbH1),
    ] {
        are_the_stages(preset, kind, Precision::F32);
        are_the_stages(preset, kind, Precision::Bf16);
    }
}

fn are_the_stages(preset: &str, kind: ScheduleKind, precision: Precision) {
    let mut plan = plan(preset, 4, kind, 8);
    plan.training.precision = precision;
    let (problems, prediction) = problems(&plan);
    for (stage, stage_problem) in problems.iter().enumerate() {
        let what = format!("{preset}, {kind}, {precision:?}, stage {stage}");
        let problem = &stage_problem.problem;
        let nodes: Vec<u32> = (0..problem.len() as u32).collect();
        let program = &prediction.programs[stage].stages[0];
        let slot = slot(problem, &nodes);
        let rest = cost(problem, &nodes).peak - slot * u64::from(problem.copies());
        // The loss has a line of the slot; outputs of one computation may die apart.
        let found = program.slots.bytes.0;
        assert!(
            found <= slot + 64 && slot as f64 <= 1.01 * found as f64,
            "{what}: {slot}, {found}"
        );
        let found = program.transient.bytes.0;
        assert!(rest <= found + 64, "{what}: {rest}, {found} with gaps");
        assert!(found as f64 <= 1.1 * rest as f64, "{what}: {rest}, {found} with gaps");
        let cost = &prediction.stages[stage];
        assert_eq!(problem.time(), (cost.forward + cost.backward()).0 as f64, "{what}");
        let same = stage_problem.sequence(&nodes);
        let kernels = program.kernels.len() as u32;
        assert_eq!(same, Sequence((0..kernels).collect()), "{what}");
    }
}

/// Each stage gets what its micro-batches in flight leave it, and no more is computed again.
#[test]
fn every_lane_is_made_to_fit() {
    let preset = "transformer:layers=8,hidden=32,heads=2,sequence=64,vocabulary=99";
    for (stages, kind) in [
        (4, ScheduleKind::OneFOneB),
        (4, ScheduleKind::GPipe),
        (4, ScheduleKind::ZbH1),
        (4, ScheduleKind::Interleaved { chunks: 2 }),
        (4, ScheduleKind::DualPipe),
        (4, ScheduleKind::PipeDream),
    ] {
        let mut plan = plan(preset, stages, kind, 8);
        let before = predict(&plan).unwrap();
        let arenas = || before.programs.iter().map(|program| (program.arena, program.persistent));
        // Some of what the fullest lane has besides parameters.
        let (most, lasting) = arenas().max().unwrap();
        let memory = Bytes(lasting.0 + (most.0 - lasting.0) * 7 / 10);
        plan.cluster.device.memory = memory;
        let (fitted, prediction) = fit(&plan, EFFORT).unwrap_or_else(|e| panic!("{kind}: {e}"));
        let what = kind.to_string();
        for (now, (then, _)) in prediction.programs.iter().zip(arenas()) {
            assert!(now.arena <= memory, "{what}: {} of {memory}", now.arena);
            let again = now.stages.iter().flat_map(|s| &s.kernels).any(|kernel| kernel.again);
            assert_eq!(again, then > memory, "{what}, lane {}", now.lane);
        }
        assert!(prediction.timeline.step >= before.timeline.step, "{what}");
        let read = Plan::from_json(&fitted.to_json()).unwrap();
        assert_eq!(read.recompute, fitted.recompute, "{what}");
        // Sequences belong to their cuts.
        assert_eq!(best_move(&fitted, &prediction), Ok(None), "{what}");
        assert_eq!(predict(&fitted).unwrap().expectation(), fitted.prediction, "{what}");
    }
}

/// The slow twin of fitting: one of a few trade-offs of each stage's front, all of them together, each
/// combination lowered and simulated. What is found is never slower than the best of these that fits,
/// also where stages share a lane, or lanes a stage.
#[test]
fn no_choice_of_trade_offs_is_faster() {
    const POINTS: usize = 3;
    let transformer = "transformer:layers=4,hidden=32,heads=2,sequence=64,vocabulary=99";
    for (preset, kind) in [
        (transformer, ScheduleKind::Interleaved { chunks: 2 }),
        ("resnet18:64", ScheduleKind::Interleaved { chunks: 2 }),
        ("resnet18:64", ScheduleKind::ZbV),
        ("resnet18:64", ScheduleKind::DualPipe),
        (transformer, ScheduleKind::OneFOneB),
    ] {
        let mut plan = plan(preset, 4, kind, 8);
        let before = predict(&plan).unwrap();
        let mut tried = vec![];
        let fronts = fronts(&plan, POINTS);
        for code in 0..POINTS.pow(4) {
            let of = |(stage, front): (usize, &Vec<Sequence>)| {
                front[code / POINTS.pow(stage as u32) % POINTS % front.len()].clone()
            };
            plan.recompute = fronts.iter().enumerate().map(of).collect();
            let found = predict(&plan).unwrap();
            let most = found.programs.iter().map(|program| program.arena).max().unwrap();
            tried.push((most, found.timeline.step));
        }
        plan.recompute = vec![];
        let arenas = before.programs.iter().map(|program| (program.arena, program.persistent));
        let (most, lasting) = arenas.max().unwrap();
        let mut compared = 0;
        for tenths in 5..10 {
            let memory = Bytes(lasting.0 + (most.0 - lasting.0) * tenths / 10);
            let fitting = tried.iter().filter(|(takes, _)| *takes <= memory);
            let Some(best) = fitting.map(|(_, step)| *step).min() else { continue };
            plan.cluster.device.memory = memory;
            let (_, found) = fit(&plan, EFFORT).unwrap_or_else(|e| panic!("{kind}: {e}"));
            let step = found.timeline.step;
            assert!(step <= best, "{preset}, {kind}, {tenths} tenths: {step}, tried {best}");
            compared += 1;
        }
        assert!(compared > 0, "{preset}, {kind}: nothing fits");
    }
}

/// Of each stage, up to `points` trade-offs from the least memory to the least time.
fn fronts(plan: &Plan, points: usize) -> Vec<Vec<Sequence>> {
    let of = |stage: &StageProblem| {
        let mut search = Search::new(&stage.problem, Goal::Front, 1);
        search.advance(EFFORT * stage.problem.len() as u64);
        let last = search.front().len() - 1;
        let at = |i: usize| &search.front()[i * last / (points - 1)].sequence;
        (0..points).map(|i| stage.sequence(at(i))).collect()
    };
    problems(plan).0.iter().map(of).collect()
}

#[test]
fn a_plan_that_fits_stays_as_it_is() {
    let plan = plan("resnet18:64", 4, ScheduleKind::OneFOneB, 8);
    let (fitted, _) = fit(&plan, EFFORT).unwrap();
    assert_eq!(fitted, plan);
    assert!(!plan.to_json().contains("recompute"), "files without it are as they were");
}

#[test]
fn what_cannot_fit_says_what_it_needs() {
    let mut plan = plan("resnet18:64", 2, ScheduleKind::OneFOneB, 8);
    let least = predict(&plan).unwrap().programs[1].persistent;
    plan.cluster.device.memory = least;
    let error = fit(&plan, EFFORT).unwrap_err();
    let FitError::Memory { lanes, memory } = &error else { panic!("{error}") };
    assert_eq!(*memory, least);
    assert!(lanes.iter().all(|(_, needs)| *needs > least), "{error}");
    assert!(error.to_string().contains(&format!("lane 1 needs {}", lanes.last().unwrap().1)));
    // It is what it says: with that much memory the plan fits.
    plan.cluster.device.memory = lanes.iter().map(|(_, needs)| *needs).max().unwrap();
    fit(&plan, EFFORT).unwrap();
}

/// The usual checkpointing of whole stages keeps inputs and outputs only.
#[test]
fn full_recomputation_keeps_what_stages_exchange() {
    let mut plan = plan("resnet18:64", 4, ScheduleKind::GPipe, 8);
    let before = predict(&plan).unwrap();
    let (graph, schedule) = plan.check().unwrap();
    let graphs = training_graphs(&plan.inputs(&graph, &schedule));
    plan.recompute = graphs.iter().map(Sequence::full).collect();
    let after = predict(&plan).unwrap();
    for (stage, (then, now)) in before.stages.iter().zip(&after.stages).enumerate() {
        assert_eq!(then.forward, now.forward, "stage {stage}");
        assert!(now.backward() > then.backward(), "stage {stage}");
        assert!(now.backward() <= then.backward() + then.forward, "stage {stage}");
        let slot = &after.programs[stage].stages[0].slots;
        let full = &before.programs[stage].stages[0].slots;
        assert!(slot.bytes.0 * 3 < full.bytes.0, "stage {stage}: {} of {}", slot.bytes, full.bytes);
    }
}

/// With a split backward pass all that lies between its parts is what is exchanged, too, if the second part computes again.
#[test]
fn recomputation_in_each_part_keeps_what_stages_exchange() {
    let mut plan = plan("resnet18:64", 4, ScheduleKind::ZbH1, 8);
    let before = predict(&plan).unwrap();
    let (graph, schedule) = plan.check().unwrap();
    let graphs = training_graphs(&plan.inputs(&graph, &schedule));
    let mut with = |way: fn(&TrainingGraph) -> Sequence| {
        plan.recompute = graphs.iter().map(way).collect();
        predict(&plan).unwrap()
    };
    let (once, each) = (with(Sequence::full), with(Sequence::full_in_each_part));
    for (stage, now) in each.stages.iter().enumerate() {
        let then = &before.stages[stage];
        assert_eq!(then.forward, now.forward, "stage {stage}");
        assert!(now.backward_weight <= then.forward + then.backward(), "stage {stage}");
        let of = |prediction: &Prediction| prediction.programs[stage].stages[0].slots.bytes.0;
        assert!(of(&each) * 3 < of(&before) && of(&each) < of(&once), "stage {stage}");
    }
    // One part, one repetition.
    let fused = self::plan("mlp4", 2, ScheduleKind::OneFOneB, 4);
    let (graph, schedule) = fused.check().unwrap();
    for stage in training_graphs(&fused.inputs(&graph, &schedule)) {
        assert_eq!(Sequence::full(&stage), Sequence::full_in_each_part(&stage));
    }
}

#[test]
fn plans_that_no_stage_can_follow_are_refused() {
    let plan = plan("mlp4", 2, ScheduleKind::OneFOneB, 4);
    let with = |recompute: &[&str]| {
        let mut plan = plan.clone();
        plan.recompute = recompute.iter().map(|text| text.parse().unwrap()).collect();
        plan.check().map(drop)
    };
    let refused = |recompute: &[&str], error: RecomputeError| {
        assert_eq!(with(recompute), Err(PlanError::Recompute(error)), "{recompute:?}");
    };
    let (graph, schedule) = plan.check().unwrap();
    let graphs = training_graphs(&plan.inputs(&graph, &schedule));
    let [first, second] = [0, 1].map(|stage: usize| graphs[stage].computations.len() as u32);
    let (last, forward) = (first - 1, graphs[0].forward_end);
    assert_eq!(with(&[&format!("0-{last}"), ""]), Ok(()));
    assert_eq!(with(&["", &format!("0-{}", second - 1)]), Ok(()));
    refused(&["0"], RecomputeError::Stages { sequences: 1, stages: 2 });
    let at = |stage, error| RecomputeError::Sequence { stage, error };
    let unknown = SequenceError::Unknown { position: 0, computation: 99, count: first };
    refused(&["99", ""], at(0, unknown));
    let early = SequenceError::Pass { position: 0, computation: forward, missing: 0 };
    refused(&[&forward.to_string(), ""], at(0, early));
    refused(&["", "0"], at(1, SequenceError::Missing { computation: 1 }));
    refused(&["1", ""], at(0, SequenceError::Input { position: 0, computation: 1, missing: 0 }));
    let twice = SequenceError::AddedTwice { position: first, computation: last };
    refused(&[&format!("0-{last} {last}"), ""], at(0, twice));
    let text = with(&["0", ""]).unwrap_err().to_string();
    assert_eq!(text, "recompute: stage 0, computation 1 is missing");
    let hostile = plan
        .to_json()
        .replace("\"mini_batch\"", "\"recompute\": [\"0-4294967295\", \"\"],\n  \"mini_batch\"");
    let error = Plan::from_json(&hostile).unwrap_err().to_string();
    assert!(error.contains("a sequence of more than 65536 computations"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever a solver answers that its problem allows, a stage can follow, and slots hold what
    /// crosses the marks.
    #[test]
    fn answers_are_sequences(
        choices in prop::collection::vec((any::<u32>(), 0..4usize), 8..40),
        split in any::<bool>(),
    ) {
        let kind = if split { ScheduleKind::ZbH1 } else { ScheduleKind::OneFOneB };
        let text = "transformer:layers=1,hidden=8,heads=2,sequence=4,vocabulary=9";
        let mut plan = plan(text, 2, kind, 4);
        let (problems, _) = problems(&plan);
        let answers = problems.iter().map(|stage| answer(&stage.problem, &choices));
        let answers: Vec<Vec<u32>> = answers.collect();
        let sequences = problems.iter().zip(&answers).map(|(p, answer)| p.sequence(answer));
        plan.recompute = sequences.collect();
        let programs = predict(&plan).unwrap().programs;
        for (program, (problem, answer)) in programs.iter().zip(problems.iter().zip(&answers)) {
            let problem = &problem.problem;
            prop_assert_eq!(problem.check(answer), Ok(()));
            let slot = slot(problem, answer);
            let found = program.stages[0].slots.bytes.0;
            prop_assert!(found <= slot + 64, "{} of {}", found, slot);
        }
    }
}

/// Any order of a problem's nodes with repetitions. Marks stand as early as they can, as they do in
/// a plan.
fn answer(problem: &Problem, choices: &[(u32, usize)]) -> Vec<u32> {
    let node = |node: &u32| problem.node(*node);
    let mut choices = choices.iter().cycle();
    let mut left: Vec<u32> = (0..problem.len() as u32).collect();
    let mut done = vec![false; left.len()];
    let mut sequence: Vec<u32> = vec![];
    while !left.is_empty() {
        let there = |n: &u32| node(n).inputs.iter().all(|input| done[*input as usize]);
        let ready: Vec<u32> = left.iter().copied().filter(there).collect();
        let orders = |n: &u32| node(n).once && node(n).bytes == 0 && node(n).time == 0.0;
        if let Some(first) = ready.iter().copied().find(orders) {
            sequence.push(first);
        } else {
            let (pick, repeats) = *choices.next().unwrap();
            let at = |i: usize, among: usize| (pick as usize).wrapping_add(i * 7) % among.max(1);
            let again: Vec<u32> = sequence.iter().copied().filter(|n| !node(n).once).collect();
            sequence.extend((0..repeats).filter_map(|i| again.get(at(i, again.len()))));
            sequence.push(ready[at(0, ready.len())]);
        }
        let next = sequence[sequence.len() - 1];
        done[next as usize] = true;
        left.retain(|n| *n != next);
    }
    sequence
}
