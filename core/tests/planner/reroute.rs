//! Steps without a rank: all work is done once, by whoever has the parameters.

use pipewright_core::cost::Cluster;
use pipewright_core::elastic::{Place, RerouteError, Rerouted, reroute_to};
use pipewright_core::graph::presets::Preset;
use pipewright_core::ids::LaneId;
use pipewright_core::partition::uniform;
use pipewright_core::plan::{DataParallel, Draft, Model, Plan};
use pipewright_core::predict::{Prediction, predict};
use pipewright_core::schedule::{Action, ActionKind, ScheduleKind, check};
use pipewright_core::units::Nanos;
use proptest::prelude::*;

fn plan(kind: ScheduleKind, lanes: u32, replicas: u32, micro_batches: u32) -> (Plan, Prediction) {
    let model: Preset = "fc32:512".parse().expect("a preset");
    let stages = kind.placement().stages(lanes);
    let cuts = uniform(&model.graph().expect("a network"), stages).expect("few stages");
    let mut draft = Draft::new(Model::Preset(model), Cluster::preset("dgx-a100").unwrap(), cuts);
    draft.schedule = kind;
    draft.micro_batches = micro_batches;
    draft.mini_batch = u64::from(micro_batches * replicas) * 32;
    draft.data_parallel = DataParallel::ddp(replicas);
    draft.plan().expect("a plan")
}

fn place(lane: u32, replica: u32) -> Place {
    Place { lane: LaneId(lane), replica }
}

fn without(of: &(Plan, Prediction), lost: &[Place]) -> Rerouted {
    Rerouted::of(&of.0, &of.1, lost).unwrap_or_else(|e| panic!("{lost:?}: {e}"))
}

#[test]
fn a_lost_rank_costs_its_share() {
    let of = plan(ScheduleKind::OneFOneB, 4, 4, 16);
    for lane in 0..4 {
        let found = without(&of, &[place(lane, 2)]);
        assert_eq!((found.guests.len(), found.ranks.len()), (16, 15));
        assert!(found.split, "split backward passes fill bubbles");
        let ratio = found.step.secs() / found.healthy.secs();
        // Three peers do the work of four: a third more, less what goes into bubbles.
        assert!((1.1..1.34).contains(&ratio), "lane {lane}: {ratio}");
    }
}

#[test]
fn more_losses_cost_more_until_nobody_is_left() {
    let of = plan(ScheduleKind::OneFOneB, 2, 3, 8);
    let one = without(&of, &[place(1, 0)]);
    let two = without(&of, &[place(1, 0), place(1, 2)]);
    let across = without(&of, &[place(0, 1), place(1, 0)]);
    assert!(one.healthy < one.step && one.step <= across.step && across.step < two.step);
    let all: Vec<Place> = (0..3).map(|replica| place(1, replica)).collect();
    let error = Rerouted::of(&of.0, &of.1, &all).unwrap_err();
    assert_eq!(error, RerouteError::NoPeer { lane: LaneId(1), replicas: 3 });
    assert!(error.to_string().contains("all 3 replicas of lane 1 are lost"), "{error}");
    let single = plan(ScheduleKind::OneFOneB, 4, 1, 8);
    let error = Rerouted::of(&single.0, &single.1, &[place(2, 0)]).unwrap_err();
    assert!(matches!(error, RerouteError::NoPeer { lane: LaneId(2), replicas: 1 }));
    let error = Rerouted::of(&of.0, &of.1, &[place(2, 0)]).unwrap_err();
    assert_eq!(error, RerouteError::NoSuchRank(place(2, 0)));
}

#[test]
fn replicas_that_cannot_stand_in_are_refused() {
    let of = plan(ScheduleKind::PipeDream, 2, 2, 8);
    let error = Rerouted::of(&of.0, &of.1, &[place(0, 0)]).unwrap_err();
    assert!(error.to_string().contains("under way"), "{error}");
}

/// The plan says what was found, trains the same mini-batch and can be read back.
#[track_caller]
fn is_a_plan(whole: &Plan, found: &Rerouted) {
    let plan = &found.plan;
    assert_eq!(plan.schedule.parse().unwrap(), found.schedule);
    assert_eq!((plan.ranks() as usize, plan.mini_batch), (found.ranks.len(), whole.mini_batch));
    assert_eq!((plan.samples(), &plan.cuts), (whole.samples(), &whole.cuts));
    assert_eq!(Plan::from_json(&plan.to_json()).unwrap(), *plan);
    let prediction = predict(plan).unwrap();
    assert_eq!(prediction.expectation(), plan.prediction);
    assert_eq!(found.step, plan.prediction.step_ns);
    let batch = |program: &pipewright_core::plan::Program| program.batch;
    assert!(prediction.programs.iter().all(|program| batch(program) == whole.mini_batch));
}

/// Where it does not matter who is lost, it is the rank that is missed least.
#[test]
fn the_place_that_stays_empty_is_chosen() {
    let of = plan(ScheduleKind::OneFOneB, 4, 4, 16);
    let found = reroute_to(&of.0, 15).unwrap();
    is_a_plan(&of.0, &found);
    let least = (0..4).map(|lane| without(&of, &[place(lane, 3)]).step).min().unwrap();
    assert!(found.step.secs() <= 1.02 * least.secs(), "{} and {least}", found.step);
    assert!(
        found.plan.schedule.name.starts_with("1f1b without rank "),
        "{:?}",
        found.plan.schedule
    );
    // One rank of each lane at least.
    let steps: Vec<_> = (4..16).map(|ranks| reroute_to(&of.0, ranks).unwrap().step).collect();
    let no_slower = |few: &Nanos, more: &Nanos| 1.03 * few.secs() >= more.secs();
    assert!(steps.is_sorted_by(no_slower), "{steps:?}");
    // Ranks that share devices, and lanes with less to do than others.
    let mut uneven = of.0.clone();
    (uneven.cluster.devices_per_node, uneven.cluster.nodes) = (4, 1);
    uneven.cuts[2] += 6;
    assert_eq!(reroute_to(&uneven, 15).unwrap().guests[0].from, place(3, 3));
    assert!(matches!(reroute_to(&of.0, 3), Err(RerouteError::NoPeer { replicas: 4, .. })));
    assert_eq!(reroute_to(&of.0, 16), Err(RerouteError::Nobody));
}

#[test]
fn guests_without_room_are_refused() {
    let mut of = plan(ScheduleKind::GPipe, 2, 2, 4);
    of.0.cluster.device.memory = *of.0.prediction.arena.iter().max().unwrap();
    // As many in flight as before: guests take turns.
    let tight = without(&of, &[place(0, 1)]);
    assert!(tight.plan.prediction.arena.iter().all(|arena| *arena <= of.0.cluster.device.memory));
    of.0.cluster.device.memory.0 /= 2;
    assert!(matches!(Rerouted::of(&of.0, &of.1, &[place(0, 1)]), Err(RerouteError::Memory(_))));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn all_work_is_done_once(
        lanes in 1u32..5, replicas in 2u32..5, turns in 1u32..4, lost in (0u32..4, 0u32..4),
        kind in 0usize..7,
    ) {
        let kind = [
            ScheduleKind::OneFOneB, ScheduleKind::GPipe, ScheduleKind::ZbH1,
            ScheduleKind::Interleaved { chunks: 2 }, ScheduleKind::ZbV,
            ScheduleKind::Hanayo { waves: 1 }, ScheduleKind::Chimera,
        ][kind];
        let lanes = if kind == ScheduleKind::Chimera { lanes.next_multiple_of(2) } else { lanes };
        let of = plan(kind, lanes, replicas, turns * lanes.max(2));
        let lost = place(lost.0 % lanes, lost.1 % replicas);
        let found = without(&of, &[lost]);
        // Every pass once, on the rank of its route, none that waits for ever.
        check(&found.schedule).unwrap();
        is_a_plan(&of.0, &found);
        prop_assert_eq!(found.ranks.len() as u32, lanes * replicas - 1);
        prop_assert!(!found.ranks.contains(&lost));
        let forwards = |actions: &Vec<_>| {
            actions.iter().filter(|a: &&Action| {
                a.kind == ActionKind::Forward
            }).count() as u32
        };
        // All that sum together call in one order.
        let ends = |actions: &Vec<Action>| -> Vec<u32> {
            let ends = actions.iter().rev().filter(|a| {
                matches!(a.kind, ActionKind::Backward | ActionKind::BackwardWeight)
            });
            let mut order: Vec<u32> = vec![];
            ends.for_each(|a| if !order.contains(&a.stage.0) { order.push(a.stage.0) });
            order
        };
        prop_assert!(found.schedule.lanes.iter().all(|actions| ends(actions).is_sorted()));
        let stages = of.0.stages() / lanes;
        for (actions, at) in found.schedule.lanes.iter().zip(&found.ranks) {
            let hosted = found.guests.iter().filter(|g| g.to == at.replica && g.from.lane == at.lane);
            let taken = of.0.micro_batches + hosted.count() as u32;
            prop_assert_eq!(forwards(actions), taken * stages);
            // A step may be shorter than the whole plan's, whose order is its schedule's, but no shorter
            // than a rank's work (a tenth for what is there once a step).
            let busy = of.1.timeline.lanes[at.lane.index()].busy().secs();
            let work = busy * f64::from(taken) / f64::from(of.0.micro_batches);
            prop_assert!(found.step.secs() >= 0.9 * work, "{} for {work} s", found.step);
        }
        prop_assert_eq!(without(&of, &[lost]), found);
    }
}
