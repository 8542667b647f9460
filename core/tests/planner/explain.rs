//! Terms of a predicted step add up to it, and advice is true when followed.

use pipewright_core::cost::{Cluster, Link};
use pipewright_core::graph::presets::Preset;
use pipewright_core::partition::uniform;
use pipewright_core::plan::{Draft, Model, Plan};
use pipewright_core::predict::{
    Explanation, Prediction, What, best_micro_batches, best_move, constant, predict,
};
use pipewright_core::schedule::ScheduleKind;
use pipewright_core::timeline::causes::Arrivals;
use pipewright_core::timeline::{Idle, Lane, Timeline, Why, idle, reason};
use pipewright_core::units::Nanos;

fn draft(preset: Preset, cluster: &str, stages: u32) -> Draft {
    let cuts = uniform(&preset.graph().unwrap(), stages).unwrap();
    Draft::new(Model::Preset(preset), Cluster::preset(cluster).unwrap(), cuts)
}

fn explain(plan: &Plan, prediction: &Prediction) -> Explanation {
    let timeline = &prediction.timeline;
    let arrivals = Arrivals::on(timeline, &plan.cluster);
    pipewright_core::predict::explain(timeline, &arrivals, &plan.cluster)
}

fn plan(draft: Draft) -> (Plan, Prediction) {
    draft.plan().unwrap()
}

#[test]
fn the_terms_add_up_to_the_step() {
    for (preset, stages) in [(Preset::Vgg16, 8), (Preset::Resnet50, 4), (Preset::Mlp4, 1)] {
        for kind in [ScheduleKind::GPipe, ScheduleKind::OneFOneB] {
            for cluster in ["reedbush-l", "dgx-a100"] {
                let mut draft = draft(preset, cluster, stages);
                draft.schedule = kind;
                let (plan, prediction) = plan(draft);
                let why = explain(&plan, &prediction);
                let sum: Nanos = why.terms.iter().map(|t| t.time).sum();
                assert_eq!(sum, prediction.timeline.step, "{preset} {kind} {cluster}");
                assert!(constant(&plan, &prediction, &why.path) <= sum);
            }
        }
    }
}

#[test]
fn a_slow_link_and_a_heavy_stage_are_named() {
    let mut slow = draft(Preset::Vgg16, "dgx-a100", 2);
    slow.cluster.local = Link { latency_ns: Nanos(1), bytes_per_sec: 1e8 };
    let (p, prediction) = plan(slow);
    let what = explain(&p, &prediction).bound().unwrap().what;
    assert!(matches!(what, What::Transfer(..)), "{what}");

    let mut far = draft(Preset::Mlp4, "dgx-a100", 2);
    far.cluster.local = Link { latency_ns: Nanos(50_000_000), bytes_per_sec: 1e11 };
    let (p, prediction) = plan(far);
    let what = explain(&p, &prediction).bound().unwrap().what;
    assert!(matches!(what, What::StartUp(..)), "{what}");

    // Uniform VGG16: the first stage has the large images, and many micro-batches wait for it.
    let mut uneven = draft(Preset::Vgg16, "dgx-a100", 4);
    (uneven.mini_batch, uneven.micro_batches) = (256, 32);
    let (p, prediction) = plan(uneven);
    let heavy = (0..4)
        .max_by_key(|s| prediction.stages[*s].forward + prediction.stages[*s].backward())
        .unwrap();
    assert_eq!(
        explain(&p, &prediction).bound().unwrap().what.to_string(),
        format!("stage {heavy} computes")
    );
}

#[test]
fn the_best_number_of_micro_batches_is_the_shortest_step() {
    let mut draft = draft(Preset::Fc32 { width: 5000 }, "reedbush-l", 8);
    (draft.schedule, draft.mini_batch, draft.micro_batches) = (ScheduleKind::GPipe, 1200, 5);
    let (p, prediction) = plan(draft.clone());
    let best = best_micro_batches(&p).unwrap().unwrap();
    assert!(best.step <= prediction.timeline.step);
    assert!(best.flat.0 <= best.best && best.best <= best.flat.1);
    draft.micro_batches = best.best;
    assert_eq!(plan(draft.clone()).1.timeline.step, best.step);
    for (m, step) in &best.tried {
        assert!(*step >= best.step);
        let inside = (best.flat.0..=best.flat.1).contains(m);
        assert!(!inside || step.0 * 100 <= best.step.0 * 101, "m = {m}");
    }
}

#[test]
fn the_best_move_repairs_a_cut_that_was_pushed_away() {
    let graph = Preset::Vgg16.graph().unwrap();
    let mut pushed = draft(Preset::Vgg16, "dgx-a100", 4);
    pushed.cuts = vec![4, 10, 20];
    let (mut p, prediction) = plan(pushed);
    let found = best_move(&p, &prediction).unwrap().expect("the cuts are far from even");
    p.cuts[found.cut] = found.node;
    let moved = predict(&p).unwrap().timeline.step;
    assert_eq!(moved, found.step);
    assert!(moved < prediction.timeline.step);
    assert!(graph.layers().iter().any(|l| l.name == found.after));
}

/// Every lane's idle time, and the numbers of the sentence about it, counted here anew.
fn holds(what: &str, timeline: &Timeline, arrivals: &Arrivals) {
    let busy: Vec<u64> = timeline.lanes.iter().map(|lane| lane.busy().0).collect();
    for (lane, busy) in busy.iter().enumerate() {
        let parts = idle(timeline, arrivals, lane);
        assert_eq!(parts.total().0, timeline.step.0 - busy, "{what}, lane {lane}: {parts:?}");
        assert_eq!(parts.other, Nanos::ZERO, "{what}, lane {lane}: a prediction tells all");
    }
    let why = reason(timeline, arrivals).unwrap();
    let (least, most) = (*busy.iter().min().unwrap(), *busy.iter().max().unwrap());
    assert_eq!((busy[why.idlest.index()], busy[why.busiest.index()]), (least, most), "{what}");
    let sum: Nanos = why.parts().iter().map(|part| part.time).sum();
    assert_eq!(sum.0, timeline.step.0 - least, "{what}: parts are the whole idle time");
    for part in why.parts() {
        let exact = 100.0 * part.time.secs() / timeline.step.secs();
        assert!((f64::from(part.percent) - exact).abs() < 1.0, "{what}: {part:?}");
    }
    // The sentence says what the picture has.
    let (sentence, idlest) =
        (why.to_string(), 100.0 * (1.0 - least as f64 / timeline.step.secs() / 1e9));
    let number = |text: &str| text.trim().split(' ').next().unwrap().parse::<f64>().unwrap();
    if let Some((lane, said)) = sentence.split_once(" is idle ") {
        assert_eq!(lane, format!("lane {}", why.idlest), "{what}");
        assert!((number(said) - idlest).abs() <= 0.51, "{what}: {sentence}");
        let parts = said.split_once(": ").unwrap().1;
        assert_eq!(parts.split(", ").map(number).sum::<f64>(), number(said), "{what}: {sentence}");
    } else {
        assert!(idlest < 0.51, "{what}: {sentence}");
    }
}

/// Clusters that differ in what lanes wait for: links, blocking sends, receivers that copy, measured times.
fn clusters() -> Vec<(&'static str, Cluster)> {
    let of = |name| Cluster::preset(name).unwrap();
    let mut slow = of("dgx-a100");
    slow.local = Link { latency_ns: Nanos(20_000), bytes_per_sec: 2e9 };
    let mut host = of("dgx-a100");
    host.receivers_copy = true;
    host.local = Link { latency_ns: Nanos(8_000), bytes_per_sec: 8.6e9 };
    let mut blocking = of("dgx-a100");
    blocking.blocking_sends = true;
    vec![
        ("dgx-a100", of("dgx-a100")),
        ("laptop", of("laptop")),
        ("slow links", slow),
        ("receivers copy", host),
        ("blocking sends", blocking),
    ]
}

#[test]
fn every_number_of_an_explanation_is_the_timeline_s() {
    let mut seen = 0;
    for preset in [Preset::Vgg16, Preset::Resnet50, Preset::BertBase, Preset::DigitsCnn] {
        let graph = preset.graph().unwrap();
        for (name, cluster) in clusters() {
            for kind in ScheduleKind::ALL {
                for (lanes, micro_batches, replicas) in
                    [(1, 2, 1), (2, 4, 2), (4, 8, 1), (4, 16, 2)]
                {
                    let Ok(cuts) = uniform(&graph, kind.placement().stages(lanes)) else {
                        continue;
                    };
                    let mut draft = Draft::new(Model::Preset(preset), cluster.clone(), cuts);
                    (draft.schedule, draft.micro_batches) = (kind, micro_batches);
                    draft.mini_batch = u64::from(micro_batches * replicas) * 4;
                    draft.data_parallel.replicas = replicas;
                    let Ok((plan, prediction)) = draft.plan() else { continue };
                    let what = format!(
                        "{preset} {kind} on {name}, {lanes} x {replicas}, m {micro_batches}"
                    );
                    let timeline = &prediction.timeline;
                    let arrivals = Arrivals::on(timeline, &plan.cluster);
                    holds(&what, timeline, &arrivals);
                    let terms = explain(&plan, &prediction).terms;
                    let sum: Nanos = terms.iter().map(|term| term.time).sum();
                    assert_eq!(sum, timeline.step, "{what}: {terms:?}");
                    seen += 1;
                }
            }
        }
    }
    assert!(seen > 500, "{seen}");
}

/// What the formula (p - 1)/(m + p - 1) said of every schedule: 18 % on a lane that is idle for 5 %.
#[test]
fn fill_and_drain_are_those_of_the_timeline() {
    let mut draft = draft(Preset::BertLarge, "dgx-a100", 8);
    (draft.schedule, draft.micro_batches, draft.mini_batch) = (ScheduleKind::DualPipe, 32, 256);
    let (plan, prediction) = plan(draft);
    let timeline = &prediction.timeline;
    let why = reason(timeline, &Arrivals::on(timeline, &plan.cluster)).unwrap();
    let ramps: u32 = why.parts().iter().filter(|p| p.why == Why::Ramps).map(|p| p.percent).sum();
    assert!(ramps <= why.percent(), "{why}");
    let bubble = 100.0 * prediction.timeline.bubble();
    assert!(f64::from(ramps) <= bubble + 1.0, "{why}, bubble {bubble}");
}

/// A message that is taken late was not on its way all that time: T2 of a calibrated cluster.
#[test]
fn receivers_that_copy_do_not_make_messages_long() {
    let mut draft = draft(Preset::Vgg16, "dgx-a100", 2);
    (draft.micro_batches, draft.mini_batch) = (8, 64);
    draft.cluster.receivers_copy = true;
    draft.cluster.local = Link { latency_ns: Nanos(8_000), bytes_per_sec: 8.6e9 };
    let (plan, prediction) = plan(draft);
    let timeline = &prediction.timeline;
    let why = explain(&plan, &prediction);
    // Nothing of the path overlaps, and messages take what their bytes take.
    let span = |(lane, index): (usize, usize)| timeline.lanes[lane].spans[index];
    assert!(why.path.windows(2).all(|w| span(w[0]).end <= span(w[1]).start));
    let link = plan.cluster.local;
    let most = timeline.messages.iter().map(|m| link.time(m.bytes)).max().unwrap();
    assert!(why.messages().0 <= most.0 * why.path.len() as u64);
    let Idle { messages, .. } = idle(timeline, &Arrivals::on(timeline, &plan.cluster), 0);
    assert!(messages.0 <= most.0 * u64::from(plan.micro_batches) * 2);
    let long = timeline.messages.iter().map(|m| m.received - m.sent).max().unwrap();
    let busiest = timeline.lanes.iter().map(Lane::busy).max().unwrap();
    assert!(long > most && why.messages() < busiest, "{long}, {most}");
}
