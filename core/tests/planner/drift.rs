//! Drift: what a measured step adds to the predicted one, stage by stage, and times that are used.

use pipewright_core::cost::Cluster;
use pipewright_core::graph::presets::Preset;
use pipewright_core::ids::StageId;
use pipewright_core::plan::{DataParallel, Draft, Model, Plan};
use pipewright_core::predict::{Busy, Drift, DriftError, Part, Prediction, TraceFit};
use pipewright_core::schedule::{ActionKind, ScheduleKind};
use pipewright_core::simulate::{Copies, replay};
use pipewright_core::timeline::{Step, Timeline, Trace, Work};
use pipewright_core::units::Nanos;

fn draft(cluster: &str, schedule: ScheduleKind, replicas: u32) -> Draft {
    let cluster = Cluster::preset(cluster).unwrap();
    let mut draft = Draft::new(Model::Preset(Preset::Vgg16), cluster, vec![5, 11, 20]);
    (draft.schedule, draft.mini_batch, draft.micro_batches) = (schedule, 64, 8);
    draft.data_parallel = DataParallel { replicas, ..DataParallel::default() };
    draft
}

fn planned(cluster: &str, schedule: ScheduleKind, replicas: u32) -> (Plan, Prediction) {
    draft(cluster, schedule, replicas).plan().unwrap()
}

/// The step with the work of some parts stretched, as replaying the plan makes it.
fn stretched(plan: &Plan, prediction: &Prediction, factor: impl Fn(Work) -> f64) -> Timeline {
    let times: Vec<Vec<Nanos>> = prediction
        .timeline
        .lanes
        .iter()
        .map(|lane| {
            let time = |s: &pipewright_core::timeline::Span| {
                Nanos(((s.end - s.start).0 as f64 * factor(s.work)) as u64)
            };
            lane.spans.iter().map(time).collect()
        })
        .collect();
    let copies = Copies {
        data_parallel: plan.data_parallel,
        groups: &prediction.groups,
        by_hosts: plan.communication.hierarchical,
    };
    replay(&prediction.programs, &times, &plan.cluster, copies).unwrap()
}

fn backward_of(stage: u32) -> Part {
    Part { stage: StageId(stage), busy: Busy::Pass(ActionKind::Backward) }
}

#[test]
fn a_step_replayed_with_its_own_times_is_that_step() {
    for schedule in [ScheduleKind::GPipe, ScheduleKind::OneFOneB, ScheduleKind::ZbH1] {
        for replicas in [1, 2] {
            let (plan, prediction) = planned("dgx-a100", schedule, replicas);
            let again = stretched(&plan, &prediction, |_| 1.0);
            assert_eq!(again, prediction.timeline, "{schedule} x {replicas}");
        }
        // Ranks that share cores: what they took from each other is in their times.
        let (plan, prediction) = planned("laptop", schedule, 1);
        let (again, step) =
            (stretched(&plan, &prediction, |_| 1.0).step.0, prediction.timeline.step);
        assert!(again.abs_diff(step.0) * 1000 < step.0, "{schedule}: {again}, not {step}");
    }
}

#[test]
fn the_slow_part_is_found_and_named() {
    let (plan, prediction) = planned("dgx-a100", ScheduleKind::OneFOneB, 1);
    let slow = backward_of(2);
    let is_slow = |work| Busy::of(work) == (slow.stage, slow.busy);
    let measured = stretched(&plan, &prediction, |work| if is_slow(work) { 1.5 } else { 1.0 });
    let drift = Drift::new(&plan, &prediction, &measured).unwrap();
    let longer = (measured.step - prediction.timeline.step).0 as i64;
    assert!(longer > 0);
    assert_eq!(drift.share(slow).unwrap(), longer);
    for part in drift.parts().iter().filter(|times| times.part != slow) {
        assert_eq!(drift.share(part.part).unwrap(), 0);
        assert_eq!(part.predicted, part.measured);
    }
    let times = drift.parts().into_iter().find(|times| times.part == slow).unwrap();
    assert_eq!((times.count, times.measured.0), (8, (times.predicted.0 as f64 * 1.5) as u64));
    let rest = drift.rest().unwrap();
    assert_eq!((rest.work, rest.before, rest.after, rest.between), (longer, 0, 0, 0));
}

#[test]
fn everything_measured_is_the_measured_step_up_to_waiting_and_links() {
    for (schedule, replicas) in [(ScheduleKind::GPipe, 1), (ScheduleKind::ZbH1, 2)] {
        let (plan, prediction) = planned("dgx-a100", schedule, replicas);
        // The step of a machine with other devices stands for a measured one.
        let mut other = draft("dgx-a100", schedule, replicas);
        other.cluster.device = Cluster::preset("dgx-h100").unwrap().device;
        let mut measured = other.clone().plan().unwrap().1.timeline;
        let late = Nanos(3_000);
        for span in measured.lanes.iter_mut().flat_map(|lane| &mut lane.spans) {
            (span.start, span.end) = (span.start + late, span.end + late);
        }
        let drift = Drift::new(&plan, &prediction, &measured).unwrap();
        let everything = drift.step_with(|_| true).unwrap();
        assert_eq!(everything, measured.step, "{schedule}: the links are the same");
        measured.step += late + late;
        let rest = Drift::new(&plan, &prediction, &measured).unwrap().rest().unwrap();
        let all = measured.step.0 as i64 - prediction.timeline.step.0 as i64;
        assert_eq!(rest.work + rest.before + rest.after + rest.between, all);
        assert_eq!((rest.before, rest.after, rest.between), (3_000, 3_000, 0));

        // Slower links besides: all that is left is theirs.
        other.cluster.local.bytes_per_sec /= 10.0;
        let slower = other.plan().unwrap().1.timeline;
        let rest = Drift::new(&plan, &prediction, &slower).unwrap().rest().unwrap();
        assert_eq!(rest.between as u64, (slower.step - everything).0);
        assert!(rest.between > 0 && rest.before == 0, "{rest:?}");
    }
}

#[test]
fn a_step_of_another_plan_is_refused() {
    let (plan, prediction) = planned("dgx-a100", ScheduleKind::OneFOneB, 1);
    let refused = |measured: &Timeline| Drift::new(&plan, &prediction, measured).unwrap_err();
    let other = planned("dgx-a100", ScheduleKind::GPipe, 1).1.timeline;
    let why = refused(&other);
    assert!(matches!(why, DriftError::Work { .. }), "{why}");
    assert!(!why.to_string().contains('\n'));
    let mut fewer = prediction.timeline.clone();
    fewer.lanes.pop();
    assert_eq!(refused(&fewer), DriftError::Lanes { measured: 3, planned: 4 });
    let mut shorter = prediction.timeline.clone();
    shorter.lanes[1].spans.pop();
    assert!(refused(&shorter).to_string().contains("ran nothing as its work 17"));
    assert!(matches!(refused(&Timeline::default()), DriftError::Lanes { measured: 0, .. }));
}

#[test]
fn all_replicas_of_a_trace_are_heard() {
    let (plan, prediction) = planned("dgx-a100", ScheduleKind::OneFOneB, 2);
    assert_eq!(prediction.timeline.lanes.len(), 4, "one replica is shown");
    let mut measured = prediction.timeline.clone();
    measured.lanes = measured.lanes.iter().flat_map(|l| [l.clone(), l.clone()]).collect();
    let drift = Drift::new(&plan, &prediction, &measured).unwrap();
    assert!(drift.parts().iter().all(|times| times.predicted == times.measured));
    let updates = drift.parts().into_iter().find(|times| times.part.busy == Busy::Update);
    assert_eq!(updates.map(|times| times.count), Some(2));
    assert_eq!(drift.rest().unwrap().work, 0);
}

#[test]
fn times_that_are_used_predict_what_was_measured_also_where_cores_are_shared() {
    let mut slow = draft("laptop", ScheduleKind::OneFOneB, 1);
    slow.cluster.device.flops_per_sec /= 3.0;
    slow.cluster.device.memory_bytes_per_sec /= 3.0;
    let truth = slow.plan().unwrap().1.timeline;
    let (plan, prediction) = planned("laptop", ScheduleKind::OneFOneB, 1);
    let step = Step { timeline: truth.clone(), ..Step::default() };
    let trace = Trace { model: "vgg16".into(), steps: vec![step] };
    let cluster = TraceFit::new(&trace).unwrap().cluster(&plan, &prediction).unwrap();
    assert_eq!(cluster.name, "laptop, calibrated");
    cluster.check().unwrap();
    let mut again = draft("laptop", ScheduleKind::OneFOneB, 1);
    again.cluster = cluster;
    let (plan, after) = again.plan().unwrap();
    let error = (after.timeline.step.secs() / truth.step.secs() - 1.0).abs();
    assert!(error < 0.02, "{}, not {}", after.timeline.step, truth.step);
    let twice = TraceFit::new(&trace).unwrap().cluster(&plan, &after).unwrap();
    assert_eq!(twice.name, "laptop, calibrated");
}
