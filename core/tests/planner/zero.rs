//! Replicas that divide what the optimizer keeps (ZeRO-1): memory, time and bytes of plans.

use pipewright_core::cost::Cluster;
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::{DataParallel, Draft, Model, Plan, Program};
use pipewright_core::predict::Prediction;
use pipewright_core::schedule::ScheduleKind;
use pipewright_core::units::{Bytes, Nanos};

fn draft(preset: &str, stages: u32, replicas: u32, zero: u8) -> Draft {
    let model = Model::Preset(preset.parse::<Preset>().unwrap());
    let cuts = pipewright_core::partition::uniform(&model.graph().unwrap(), stages).unwrap();
    let mut draft = Draft::new(model, Cluster::preset("dgx-a100").unwrap(), cuts);
    draft.optimizer = "adamw".parse().unwrap();
    (draft.mini_batch, draft.micro_batches) = (64, 4);
    draft.data_parallel = DataParallel { zero, ..DataParallel::ddp(replicas) };
    draft
}

fn planned(preset: &str, stages: u32, replicas: u32, zero: u8) -> (Plan, Prediction) {
    draft(preset, stages, replicas, zero).plan().unwrap()
}

/// Bytes of a lane's trained parameters.
fn trained(program: &Program) -> u64 {
    let params = program.stages.iter().flat_map(|stage| &stage.params);
    params.filter_map(|place| place.gradient).map(|gradient| gradient.bytes.0).sum()
}

/// Two moments of every parameter, of which a rank keeps its part.
#[test]
fn a_rank_keeps_its_part_of_the_moments() {
    for (preset, stages) in [("vgg16", 4), ("resnet50", 2), ("gpt2", 1)] {
        let (_, whole) = planned(preset, stages, 4, 0);
        let (_, divided) = planned(preset, stages, 4, 1);
        for (whole, divided) in whole.programs.iter().zip(&divided.programs) {
            let saved = (whole.arena - divided.arena).0 as f64;
            // Tables that are tied stay whole; parts are whole cache lines.
            let in_buckets = divided.stages.iter().flat_map(|stage| &stage.buckets);
            let bytes: u64 = in_buckets.map(|bucket| bucket.region.bytes.0).sum();
            let expected = 2.0 * bytes as f64 * (1.0 - 1.0 / 4.0);
            assert!((saved / expected - 1.0).abs() < 1e-3, "{preset}: {saved} of {expected}");
            let all = trained(divided);
            assert!(preset == "gpt2" || bytes >= all, "{preset}: {bytes} of {all}");
        }
    }
}

/// A ring's all-reduce is a reduce-scatter and an all-gather: as many bytes, half of them after the update.
#[test]
fn sums_and_parameters_send_what_an_all_reduce_sends() {
    let (_, whole) = planned("vgg16", 4, 2, 0);
    let (_, divided) = planned("vgg16", 4, 2, 1);
    assert_eq!(whole.timeline.traffic(), divided.timeline.traffic());
    let update = |prediction: &Prediction| -> Nanos {
        let spans = prediction.timeline.lanes.iter().flat_map(|lane| lane.spans.last());
        spans.map(|span| span.end - span.start).max().unwrap()
    };
    // The update is half as long, and the parameters come behind it.
    assert!(update(&divided) > Nanos(update(&whole).0 / 2), "parameters are gathered");
    let share = divided.programs[0].stages[0].update_share(Nanos(1_000_000));
    assert!((499_000..=501_000).contains(&share.0), "{share:?}");
}

/// Both copies of a stage of a bidirectional schedule divide, also without replicas; one lane alone has all.
#[test]
fn everybody_who_sums_divides() {
    let parts = |kind, stages, replicas| {
        let mut draft = draft("vgg16", stages, replicas, 1);
        (draft.schedule, draft.micro_batches) = (kind, 4);
        let programs = draft.plan().unwrap().1.programs;
        let buckets = programs.iter().flat_map(|p| &p.stages).flat_map(|stage| &stage.buckets);
        let mut ranks: Vec<_> =
            buckets.map(|bucket| bucket.divided.map_or((0, 0), |d| (d.ranks, d.first))).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    };
    assert_eq!(parts(ScheduleKind::Chimera, 4, 1), [(2, 0), (2, 1)]);
    assert_eq!(parts(ScheduleKind::Chimera, 4, 2), [(4, 0), (4, 2)]);
    assert_eq!(parts(ScheduleKind::OneFOneB, 4, 2), [(2, 0)]);
    assert_eq!(parts(ScheduleKind::OneFOneB, 4, 1), []);
}

#[test]
fn plans_of_today_keep_their_bytes() {
    let (plan, _) = planned("vgg16", 4, 2, 0);
    assert!(!plan.to_json().contains("zero"));
    let (plan, _) = planned("vgg16", 4, 1, 1);
    assert!(plan.to_json().contains("\"zero\": 1"), "kept, for when there are replicas");
    assert_eq!(Plan::from_json(&plan.to_json()).unwrap(), plan);
    assert_eq!(plan.prediction.arena, planned("vgg16", 4, 1, 0).0.prediction.arena);
    assert!(Bytes::ZERO < plan.prediction.arena[0]);
}
