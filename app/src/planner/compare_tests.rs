//! Tables and sentences of pairs of plans.

use super::*;
use crate::planner::engine::{self, Ground, solve};
use crate::planner::presets::{EXAMPLES, first};
use pipewright_core::schedule::ScheduleKind;

fn solved(inputs: &Inputs) -> Solved {
    solve(inputs, &Ground::of(inputs)).unwrap()
}

fn row(rows: &[Row], id: &str) -> Row {
    rows.iter().find(|row| row.id == id).unwrap_or_else(|| panic!("no row {id}")).clone()
}

#[test]
fn terms_add_up_to_the_step_of_every_example() {
    for example in &EXAMPLES {
        let solved = solved(&example.inputs());
        let terms = Terms::of(&solved.timeline, &solved.arrivals());
        let sum = terms.pace + terms.messages + terms.sums + terms.ramps + terms.stalls;
        assert_eq!(sum, solved.timeline.step, "{}", example.title);
        assert!(terms.pace > terms.messages, "{}: {terms:?}", example.title);
    }
}

#[test]
fn the_table_shows_all_figures_and_marks_what_was_chosen_otherwise() {
    let a = solved(&first());
    let same = rows(&a, &a);
    assert_eq!(same.len(), 9);
    assert!(same.iter().all(|row| row.change.is_none() && row.a == row.b));
    assert_eq!(row(&same, "cuts").a.text, "7 13 20", "layers, as the editor counts them");
    let mut other = first();
    other.micro_batches = 16;
    other.cuts[0] += 1;
    let b = solved(&other);
    let rows = rows(&a, &b);
    assert_eq!(rows.len(), 9, "nothing else differs");
    let m = row(&rows, "micro-batches");
    assert_eq!(
        m.change.unwrap(),
        Change { arrow: "▲", amount: "8".into(), word: "more", good: None }
    );
    assert!(m.chosen && row(&rows, "schedule").change.is_none());
    assert_eq!(row(&rows, "cuts").change.unwrap().word, "differs");
    let step = row(&rows, "step");
    assert!(!step.chosen);
    assert_eq!((step.a.text, step.a.unit), (format::hero(a.figures.step).0, "s"));
    let change = step.change.unwrap();
    let faster = b.figures.step < a.figures.step;
    assert_eq!(change.word == "faster", faster);
    assert_eq!((change.arrow == "▼", change.good), (faster, Some(faster)));
    let peak = row(&rows, "peak").change.unwrap();
    assert_eq!((peak.word, peak.good), ("less", Some(true)), "smaller micro-batches keep less");
}

#[test]
fn throughput_is_better_where_it_is_more() {
    let mut other = first();
    other.cuts = engine::baseline(&other, &other.model.graph()).unwrap().cuts;
    let throughput = row(&rows(&solved(&other), &solved(&first())), "throughput").change.unwrap();
    assert_eq!((throughput.arrow, throughput.word, throughput.good), ("▲", "more", Some(true)));
}

#[test]
fn what_differs_rarely_has_a_row_only_then() {
    let mut other = EXAMPLES[3].inputs();
    other.rest.data_parallel.replicas = 2;
    let rows = rows(&solved(&first()), &solved(&other));
    for id in ["model", "cluster", "mini-batch", "replicas-row"] {
        assert!(row(&rows, id).change.is_some());
    }
    assert!(!rows.iter().any(|row| row.id == "gradients"));
}

#[test]
fn the_sentence_names_what_changed_most() {
    let a = first();
    let mut slow = a.clone();
    slow.cuts = engine::baseline(&a, &a.model.graph()).unwrap().cuts;
    let (finding, because) = sentence(&solved(&slow), &solved(&a));
    assert!(finding.contains("faster than A:"), "{finding}");
    assert!(because.starts_with(" its busiest lane") && because.contains(" less"), "{because}");
    // Fewer micro-batches: longer to fill and to drain, as much work.
    let few = Inputs { micro_batches: 2, ..EXAMPLES[1].inputs() };
    let many = EXAMPLES[1].inputs();
    let (finding, because) = sentence(&solved(&many), &solved(&few));
    assert!(finding.contains("slower than A:"), "{finding}");
    assert!(
        because.starts_with(" its busiest lane waits") && because.contains("more for warm-up"),
        "{because}"
    );
}

#[test]
fn waiting_for_other_lanes_is_no_warm_up() {
    // A slow middle stage starves the lane after it between all passes.
    let timeline = solved(&EXAMPLES[1].inputs()).timeline;
    let terms = Terms::of(&timeline, &solved(&EXAMPLES[1].inputs()).arrivals());
    let clock = Clock::of(timeline.step);
    let longer = Terms { stalls: terms.stalls + Nanos(timeline.step.0 / 2), ..terms };
    let said = because(&terms, &longer, false, &clock);
    assert!(said.contains("more for other lanes") && !said.contains("warm-up"), "{said}");
    let said = because(&longer, &terms, true, &clock);
    assert!(said.contains("less for other lanes"), "{said}");
}

#[test]
fn equal_times_and_unequal_samples_are_said() {
    let a = solved(&first());
    let (finding, because) = sentence(&a, &a);
    assert_eq!(finding, "B takes as long as A.");
    assert_eq!(because, " Its peak is the same, too.");
    let other = solved(&Inputs { mini_batch: 1792, ..first() });
    let (finding, _) = sentence(&a, &other);
    assert!(finding.contains("different numbers of samples"), "{finding}");
}

#[test]
fn a_is_named() {
    let mut b = first();
    assert_eq!(title(&b), "split by layer count");
    let a = Inputs { schedule: ScheduleKind::GPipe, cuts: vec![], ..first() };
    b.a = Some(Box::new(a));
    assert_eq!(title(&b), "VGG16 · 224 px, 1 stage, m 8, GPipe");
    b.a = Some(Box::new(first()));
    assert_eq!(title(&b), "VGG16 · 224 px, 4 stages, m 8, 1F1B");
}
