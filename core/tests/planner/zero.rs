//! Replicas that divide what the optimizer keeps (ZeRO-1), and gradients (ZeRO-2): memory, time and bytes of plans.

use pipewright_core::cost::Cluster;
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::{DataParallel, Draft, Instruction, Model, Plan, Program};
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

/// A rank keeps its part of gradients, and room for few buckets.
#[test]
fn a_rank_keeps_its_part_of_gradients() {
    for (preset, stages) in [("bert-large", 1), ("resnet50", 2), ("gpt2", 1)] {
        let (_, first) = planned(preset, stages, 4, 1);
        let (_, second) = planned(preset, stages, 4, 2);
        assert!(second.programs.iter().all(|p| p.stages.iter().all(|s| s.divides_gradients())));
        for (first, second) in first.programs.iter().zip(&second.programs) {
            let saved = (first.arena - second.arena).0 as f64;
            let buckets = || second.stages.iter().flat_map(|stage| &stage.buckets);
            let bytes: u64 = buckets().map(|bucket| bucket.region.bytes.0).sum();
            let windows = second.stages.iter().map(|s| s.windows.bytes.0).max().unwrap();
            let expected = bytes as f64 * (1.0 - 1.0 / 4.0) - windows as f64;
            assert!(
                (saved - expected).abs() < 1e-3 * bytes as f64,
                "{preset}: {saved}, {expected}"
            );
            let mut sizes: Vec<u64> = buckets().map(|bucket| bucket.region.bytes.0).collect();
            sizes.sort_unstable_by(|a, b| b.cmp(a));
            // As long as one is summed the next is filled.
            let most: u64 = sizes.iter().take(3).sum();
            assert!(windows <= most, "{preset}: {windows} of {sizes:?}");
            let told = (first.gradient_bytes() - second.gradient_bytes()).0 as f64;
            assert!((saved - told).abs() < 1e-3 * bytes as f64, "{preset}: {saved}, {told}");
        }
    }
}

/// A rank never keeps more for dividing gradients: a stage with few parameters, or one that is nearly all of them, keeps
/// whole ones.
#[test]
fn stages_whose_parts_would_be_no_less_keep_whole_gradients() {
    let (_, first) = planned("vgg16", 4, 2, 1);
    let (_, second) = planned("vgg16", 4, 2, 2);
    let divides = |program: &Program| program.stages.iter().any(|s| s.divides_gradients());
    let pairs = || first.programs.iter().zip(&second.programs);
    assert!(pairs().all(|(first, second)| second.arena <= first.arena));
    assert!(pairs().all(|(first, second)| divides(second) == (second.arena < first.arena)));
    // The first linear layer has 411 of 553 MB.
    assert!(second.programs.iter().any(|program| !divides(program)));
}

/// Buckets that lie in the same place are there at different times, and those of a pass that follows wait.
#[test]
fn buckets_share_places_in_turn() {
    for (preset, stages) in [("bert-base", 2), ("gpt2", 2), ("resnet50", 2)] {
        let mut draft = draft(preset, stages, 2, 2);
        draft.data_parallel.bucket = Bytes(1 << 20);
        let (plan, found) = draft.plan().unwrap();
        for program in &found.programs {
            for stage in &program.stages {
                let of = |at: usize| {
                    let bucket = stage.buckets[at];
                    assert!(bucket.divided_gradient().is_some());
                    let first = bucket.first;
                    let begun = stage.buckets[..=at].iter().map(|b| b.ready).max().unwrap();
                    (bucket.region, first, begun)
                };
                let end = stage.windows.offset + stage.windows.bytes;
                for at in 0..stage.buckets.len() {
                    let (a, _, begun) = of(at);
                    assert!(stage.windows.offset <= a.offset && a.offset + a.bytes <= end);
                    for later in at + 1..stage.buckets.len() {
                        let (b, first, _) = of(later);
                        let apart =
                            a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset;
                        assert!(apart || begun < first, "{preset}: {at} and {later}");
                    }
                }
            }
            let of = |wanted: fn(&Instruction) -> bool| {
                program.train.iter().filter(|instruction| wanted(instruction)).count()
            };
            let passes = plan.micro_batches as usize * program.stages.len();
            assert_eq!(of(|i| matches!(i, Instruction::Run { reduces: true, .. })), passes);
            assert_eq!(of(|i| matches!(i, Instruction::WaitReduce { .. })), passes);
        }
    }
}

/// A half of an all-reduce behind each micro-batch, and one for the parameters.
#[test]
fn every_micro_batch_is_summed() {
    let traffic = |zero: u8, micro_batches: u32| {
        let mut draft = draft("bert-base", 1, 2, zero);
        draft.micro_batches = micro_batches;
        draft.plan().unwrap().1.timeline.traffic().0 as f64
    };
    let once = traffic(1, 4);
    assert_eq!(traffic(2, 1), traffic(1, 1));
    assert!((traffic(2, 4) / once - 2.5).abs() < 1e-6, "{} of {once}", traffic(2, 4));
}

#[test]
fn what_needs_whole_gradients_is_refused() {
    let mut coded = draft("vgg16", 2, 2, 2);
    coded.communication.gradients = "fp8-e4m3".parse().unwrap();
    let mut both = draft("vgg16", 4, 2, 2);
    both.schedule = ScheduleKind::Chimera;
    for (draft, what) in [
        (coded, "do not go together with encoded gradients; use zero 1"),
        (both, "do not go together with schedules whose pipelines run both ways; use zero 1"),
    ] {
        let error = draft.plan().unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
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
