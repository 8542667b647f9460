//! The planner against the measurements of Takisawa, Yazaki, Ishihata 2022: 32 fully connected
//! layers of width 5,000, mini-batch 1,200, GPipe order, one process a node of Reedbush-L.
//! `cargo test -p pipewright-core --test planner takisawa -- --nocapture` prints the table of
//! docs/takisawa.md.

use pipewright_core::cost::takisawa::FIG7;
use pipewright_core::cost::{Cluster, Costs};
use pipewright_core::graph::Precision;
use pipewright_core::graph::presets::Preset;
use pipewright_core::partition::{balanced, refine, uniform};
use pipewright_core::plan::{Draft, Model};
use pipewright_core::schedule::ScheduleKind;

/// Predicted seconds of a step, with layers split by count or by time.
fn step_of(preset: Preset, mini_batch: u64, d: u64, m: u64, by_time: bool) -> f64 {
    let cluster = Cluster::preset("reedbush-l").unwrap();
    let graph = preset.graph().unwrap();
    let cuts = if by_time {
        balanced(&graph, &Costs::new(&graph, &cluster, mini_batch / m, Precision::F32), d as u32)
            .unwrap()
    } else {
        uniform(&graph, d as u32).unwrap()
    };
    let mut draft = Draft::new(Model::Preset(preset), cluster, cuts);
    draft.schedule = ScheduleKind::GPipe;
    (draft.mini_batch, draft.micro_batches) = (mini_batch, m as u32);
    draft.plan().unwrap().1.timeline.step.secs()
}

fn fc32(d: u64, m: u64) -> f64 {
    step_of(Preset::Fc32 { width: 5000 }, 1200, d, m, false)
}

#[test]
fn one_set_of_machine_numbers_gives_all_five_speedups() {
    let alone = fc32(1, 1);
    println!("| processes | m | measured | predicted | error | bubble alone |");
    println!("|---|---|---|---|---|---|");
    let grid = [2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 24, 30, 40, 60, 80];
    for point in FIG7 {
        let (d, m) = (point.d, point.m);
        let speedup = alone / fc32(d, m);
        let error = 100.0 * (speedup / point.speedup - 1.0);
        let ideal = (m * d) as f64 / (m + d - 1) as f64;
        println!("| {d} | {m} | {} | {speedup:.2} | {error:+.1} % | {ideal:.2} |", point.speedup);
        assert!(error.abs() < 2.0, "d = {d}");
        // The measured best m lies where the predicted curve is flat: 5 % from its best.
        let best = grid.map(|m| fc32(d, m)).into_iter().fold(f64::INFINITY, f64::min);
        assert!(fc32(d, m) < 1.05 * best, "d = {d}: {} {best}", fc32(d, m));
    }
}

#[test]
fn what_the_paper_says_in_words() {
    let alone = fc32(1, 1);
    // Two processes gain with few micro-batches and lose with many. The paper's turning point is
    // m = 12; ours comes later, see docs/takisawa.md.
    let turning = (1..=1200).filter(|m| 1200 % m == 0).find(|m| *m > 5 && fc32(2, *m) > alone);
    println!("two processes are slower than one from m = {turning:?} on");
    assert!(fc32(2, 5) < alone);
    assert!(turning.is_some_and(|m| m <= 80));
    // Without micro-batches more processes are slower.
    assert!(fc32(16, 1) > fc32(8, 1) && fc32(8, 1) > fc32(2, 1));
    // The best m grows with d.
    let best = |d| {
        let candidates = [1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 24, 30, 40, 60, 80];
        candidates.into_iter().min_by(|a, b| fc32(d, *a).total_cmp(&fc32(d, *b))).unwrap()
    };
    assert!(best(2) <= best(8) && best(8) <= best(32), "{} {} {}", best(2), best(8), best(32));
}

/// Best speed-up over m for 2, 4, 8 and 16 processes.
fn curve(preset: Preset, mini_batch: u64, ms: &[u64], by_time: bool) -> [f64; 4] {
    let alone = step_of(preset, mini_batch, 1, 1, false);
    let how = if by_time { "by time" } else { "by count" };
    [2, 4, 8, 16].map(|d| {
        let speedups = ms.iter().map(|m| (alone / step_of(preset, mini_batch, d, *m, by_time), *m));
        let (best, m) = speedups.reduce(|a, b| if b.0 > a.0 { b } else { a }).unwrap();
        println!("| {preset:?} | {how} | {d} | {m} | {best:.2} |");
        best
    })
}

/// Best speed-up over m when the cuts are moved while the simulated step gets shorter, from the
/// better of both splits on.
fn refined(preset: Preset, mini_batch: u64, ms: &[u64], d: u64) -> f64 {
    let cluster = Cluster::preset("reedbush-l").unwrap();
    let graph = preset.graph().unwrap();
    let allowed: Vec<u32> = graph.layers()[1..].iter().map(|l| l.first_node.0).collect();
    let alone = step_of(preset, mini_batch, 1, 1, false);
    let speedup = |m: &u64| {
        let step = |cuts: &[u32]| {
            let mut draft = Draft::new(Model::Preset(preset), cluster.clone(), cuts.to_vec());
            draft.schedule = ScheduleKind::GPipe;
            (draft.mini_batch, draft.micro_batches) = (mini_batch, *m as u32);
            draft.plan().unwrap().1.timeline.step
        };
        let costs = Costs::new(&graph, &cluster, mini_batch / m, Precision::F32);
        let starts =
            [balanced(&graph, &costs, d as u32).unwrap(), uniform(&graph, d as u32).unwrap()];
        let found = starts.map(|cuts| refine(&cuts, &allowed, 200, step).time);
        alone / found[0].min(found[1]).secs()
    };
    let best = ms.iter().map(speedup).fold(0.0, f64::max);
    println!("| {preset:?} | refined | {d} | | {best:.2} |");
    best
}

#[test]
fn vgg16_split_by_count_is_slower_on_16_processes_than_on_8() {
    // Fig. 13: mini-batch 84, at least 1.5 from 4 processes on, best 2.32 at 8 processes, 16 slower
    // than 8 and 4. 84 is not divisible by the paper's 20, its neighbours 14, 21 and 28 are.
    let ms = [1, 2, 3, 4, 6, 7, 12, 14, 21, 28, 42];
    let [two, four, eight, sixteen] = curve(Preset::Vgg16, 84, &ms, false);
    assert!(four >= 1.5 && eight >= 1.5 && two < four && four < eight);
    assert!(sixteen < eight, "{sixteen} {eight}");
    println!(
        "8 processes: measured 2.32, predicted {eight:.2} ({:+.1} %)",
        100.0 * (eight / 2.32 - 1.0)
    );
    // Balanced by time alone, messages are not counted: on 8 and 16 processes it cuts through large
    // feature maps, and falls behind. Refined by the simulated step it beats the paper's everywhere.
    let by_time = curve(Preset::Vgg16, 84, &ms, true);
    assert!(by_time[0] > two && by_time[1] > four, "{by_time:?}");
    for (d, by_count) in [2, 4, 8, 16].into_iter().zip([two, four, eight, sixteen]) {
        let ours = refined(Preset::Vgg16, 84, &[3, 6, 12, 14, 21], d);
        assert!(ours > by_count, "{d} processes: {ours}, by count {by_count}");
    }
}

#[test]
fn resnet50_gains_nothing_from_4_processes_on() {
    // Fig. 14: mini-batch 90, split between bottlenecks, no large difference from 4 on.
    let ms = [1, 2, 3, 5, 6, 9, 10, 15, 18, 30];
    let [_, four, eight, sixteen] = curve(Preset::Resnet50, 90, &ms, false);
    for more in [eight, sixteen] {
        assert!((more / four - 1.0).abs() < 0.15, "{more} against {four} on 4 processes");
    }
    let (by_time, by_count) =
        (curve(Preset::Resnet50, 90, &ms, true), four.max(eight).max(sixteen));
    let by_time = by_time.into_iter().fold(0.0, f64::max);
    assert!(by_time > by_count, "split by time {by_time}, by count {by_count}");
}
