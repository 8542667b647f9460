//! Trainings as a whole: pipelines change no bit, seeds say everything, asynchronous updates are what
//! they are called.

use super::*;
use crate::screens::playground::model::data::Set;
use crate::screens::playground::model::presets;
use pipewright_core::schedule::ScheduleKind;

fn small(ways: &[&str]) -> Choice {
    Choice {
        set: Set::Circles,
        layers: 3,
        width: 4,
        batch: 32,
        ranks: 2,
        ways: ways.iter().map(|way| way.parse().unwrap()).collect(),
        ..Choice::default()
    }
}

fn after(choice: &Choice, steps: u64) -> Race {
    let mut race = Race::new(choice).unwrap_or_else(|e| panic!("{}", e.text));
    (0..steps).for_each(|_| race.advance());
    race
}

#[test]
fn every_schedule_with_a_flush_trains_the_bits_of_one_device() {
    let (mut same, mut others) = (0, vec![]);
    for schedule in ScheduleKind::ALL {
        for (stages, micro_batches) in [(1, 4), (2, 4), (4, 4), (4, 8)] {
            let choice =
                Choice { schedule, stages, micro_batches, ..small(&["fp32", "one-bit+feedback"]) };
            let Ok(recipe) = choice.recipe() else { continue };
            let race = after(&choice, 12);
            for run in &race.runs {
                match run.twin() {
                    Twin::Same(_) if keeps_bits(&recipe.pipeline) => same += 1,
                    Twin::Apart(_) if !keeps_bits(&recipe.pipeline) => {
                        others.push(schedule.to_string());
                    }
                    // One micro-batch at a time has nothing to mix up.
                    Twin::Same(_) if stages == 1 && micro_batches == 1 => {}
                    twin => panic!("{schedule}, {stages} x {micro_batches}, {}: {twin:?}", run.way),
                }
            }
        }
    }
    assert!(same > 60, "{same}");
    others.dedup();
    assert_eq!(others, ["looped-bfs:2", "dualpipe", "chimera", "pipedream", "pipedream-2bw"]);
}

#[test]
fn codecs_and_pipelines_together_keep_the_bits_too() {
    for codec in super::super::choice::CODECS {
        let text = codec.to_string();
        let choice = Choice { stages: 3, micro_batches: 4, ..small(&[&text]) };
        let race = after(&choice, 6);
        assert!(matches!(race.runs[0].twin(), Twin::Same(_)), "{codec}");
        assert!(race.runs[0].lost.is_none(), "{codec}");
    }
}

#[test]
fn the_same_choice_gives_the_same_bits() {
    let choice = small(&["fp8-e5m2", "table:1+feedback"]);
    let (a, b) = (after(&choice, 40), after(&choice, 40));
    for (a, b) in a.runs.iter().zip(&b.runs) {
        assert_eq!(a.trainer.hash(), b.trainer.hash());
        assert_eq!(a.curve[1..], b.curve[1..]);
    }
    let other = after(&Choice { seed: 2, ..choice }, 40);
    assert_ne!(a.runs[0].trainer.hash(), other.runs[0].trainer.hash());
    // Known bits: the page's test expects the same of the browser.
    let hash = after(&presets::ALL[3].choice(), 10).runs[0].trainer.hash();
    assert_eq!(format!("{hash:016x}"), "5e3a4886dc7772ad");
}

#[test]
fn weights_are_as_old_as_schedules_without_a_flush_say() {
    let old = |schedule, stages| {
        let choice = Choice { schedule, stages, micro_batches: 8, ..small(&["fp32"]) };
        after(&choice, 5).runs[0].trainer.staleness
    };
    assert_eq!(old(ScheduleKind::PipeDream, 4), 3);
    assert_eq!(old(ScheduleKind::PipeDream, 2), 1);
    assert_eq!(old(ScheduleKind::PipeDream2Bw, 2), 1);
    assert_eq!(old(ScheduleKind::OneFOneB, 4), 0);
}

#[test]
fn curves_stay_short_and_grow_in_all_their_axes() {
    let mut choice = small(&["fp32", "one-bit"]);
    choice.slowness = 8;
    let race = after(&choice, 1000);
    for run in &race.runs {
        assert!((100..=POINTS_MAX + 1).contains(&run.curve.len()), "{}", run.curve.len());
        assert!(
            run.curve.windows(2).all(|w| {
                w[0].step < w[1].step && w[0].sent < w[1].sent && w[0].time < w[1].time
            })
        );
    }
    // A step in single precision computes for 1 and sends for 8.
    let plain = race.runs[0].now();
    assert!((plain.time / plain.step as f64 - 9.0).abs() < 1e-9, "{plain:?}");
    assert!(race.runs[1].now().time < 0.6 * plain.time);
    assert!(race.runs[0].now().accuracy > 0.9, "{plain:?}");
    let picture = race.picture(0, 20);
    // The disc in the middle is class 1, the ring around it class 0.
    assert!(picture.len() == 400 && picture[10 * 20 + 10] > 0.5 && picture[10 * 20 + 1] < 0.5);
}

#[test]
fn a_training_that_leaves_the_numbers_says_so_and_the_others_go_on() {
    let mut choice = small(&["fp32", "table:1+feedback"]);
    choice.activation = super::super::network::Activation::Relu;
    choice.rate = 1.0;
    let race = after(&choice, 3000);
    assert_eq!((race.step, race.runs[0].lost), (3000, None));
    assert!(race.runs[1].lost.is_some() && race.runs[1].now().accuracy.is_nan());
}

/// Mean of what the curve of training `run` says, over steps in a range.
fn mean(race: &Race, run: usize, steps: std::ops::Range<u64>, of: fn(&Moment) -> f64) -> f64 {
    let curve = race.runs[run].curve.iter().filter(|m| steps.contains(&m.step));
    let values: Vec<f64> = curve.map(of).collect();
    values.iter().sum::<f64>() / values.len() as f64
}

#[test]
fn presets_show_what_they_say() {
    let right = |m: &Moment| m.accuracy;
    let [one_bit, table, ranks, pipeline, no_flush] = presets::ALL.each_ref().map(|preset| {
        let race = after(&preset.choice(), 600);
        for run in 0..race.runs.len() {
            println!(
                "{} {}: {:.3} then {:.3}, loss {:.3}, {:?}",
                preset.title,
                race.runs[run].way,
                mean(&race, run, 30..90, right),
                mean(&race, run, 400..600, right),
                mean(&race, run, 400..600, |m| m.loss),
                race.runs[run].twin()
            );
        }
        race
    });
    let late = |race: &Race, run| mean(race, run, 400..600, right);
    // One bit stays behind, with feedback it does not.
    let middle = |race: &Race, run| mean(race, run, 150..350, right);
    assert!(middle(&one_bit, 1) < middle(&one_bit, 0) - 0.1);
    assert!((middle(&one_bit, 0) - middle(&one_bit, 2)).abs() < 0.01);
    // table(1) leads, then is passed; feedback spoils it, means do not.
    let early = |run| mean(&table, run, 30..90, right);
    assert!(early(1) > early(0) + 0.01 && late(&table, 1) < late(&table, 0) - 0.005);
    assert!(late(&table, 2) < late(&table, 1) - 0.1 && late(&table, 3) > late(&table, 1));
    // Two roundings are harmless, fifteen truncations are not.
    assert!((middle(&ranks, 0) - middle(&ranks, 1)).abs() < 0.01);
    assert!(middle(&ranks, 2) < middle(&ranks, 0) - 0.05);
    assert!(pipeline.runs.iter().all(|run| matches!(run.twin(), Twin::Same(_))));
    assert!(no_flush.runs.iter().all(|run| matches!(run.twin(), Twin::Apart(_))));
    assert_eq!(no_flush.runs[0].trainer.staleness, 3);
}
