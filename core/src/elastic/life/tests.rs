//! Lives that can be checked by hand, and the shapes of eChainer's figures.

use super::*;
use crate::elastic::{Limits, Policy, Size};
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;

/// Sizes of 2, 4 and 8 ranks with mini-batches of 8 samples; 8 ranks take 1 s a step, half as many
/// twice as long. 100 steps, an epoch each 10.
fn job() -> Job {
    let size = |ranks: u32| Size {
        step_ns: Some(Nanos(8 / u64::from(ranks) * SECOND)),
        ..Size::ranks(ranks, 8)
    };
    Job {
        samples_total: 800,
        samples_epoch: 80,
        limits: Limits { least: 2, most: 8, asked: 8 },
        sizes: [2, 4, 8].map(size).to_vec(),
        time_limit: None,
    }
}

const PAUSES: Pauses = Pauses {
    settle: Nanos(SECOND),
    detect: Nanos(2 * SECOND),
    launch: Nanos(3 * SECOND),
    timer: Nanos(60 * SECOND),
};

/// `a4 at 0, b4 at 50.5`: joins; `-b at 60`: is lost; `~b at 60`: leaves. Times in tenths of seconds.
fn incidents(all: &[(&str, u32, u64, What)]) -> Vec<Incident> {
    let incident = |(name, slots, tenths, what): &(&str, u32, u64, What)| Incident {
        at: Nanos(tenths * SECOND / 10),
        member: Member::new(*name, *slots),
        what: *what,
    };
    all.iter().map(incident).collect()
}

fn life(policy: &str, all: &[(&str, u32, u64, What)], until: u64) -> Life {
    let policy: Policy = policy.parse().unwrap();
    live(&job(), &policy, &incidents(all), PAUSES, Nanos(until * SECOND))
}

/// Number, ranks, when it began to train and ended in seconds, steps at both.
fn table(life: &Life) -> Vec<(u64, u32, u64, u64, u64, u64)> {
    let row = |g: &Generation| {
        let end = g.ended.map_or(life.until, |(at, _)| at);
        let begin = g.training.unwrap_or(end);
        (g.number, g.ranks, begin.0 / SECOND, end.0 / SECOND, g.first_step, g.last_step())
    };
    life.generations.iter().map(row).collect()
}

use What::{IsLost, Joins, Leaves};

#[test]
fn a_quiet_life_is_pauses_and_steps() {
    let quiet = life("any", &[("a", 8, 0, Joins)], 1000);
    assert_eq!(table(&quiet), [(1, 8, 4, 104, 0, 100)]);
    assert_eq!((quiet.end.clone(), quiet.until), (Some(End::Done), Nanos(104 * SECOND)));
    assert_eq!((quiet.steps(), quiet.samples()), (100, 800));
    assert!((quiet.goodput() - 100.0 / 104.0).abs() < 1e-12);
    assert_eq!(quiet.generations[0].throughput(), Some(8.0));
    assert_eq!(quiet.generations[0].ended.unwrap().1, Cause::Done);
    let half = life("any", &[("a", 8, 0, Joins)], 54);
    assert_eq!((half.steps(), half.end.clone()), (50, None));
    assert_eq!(half.expected_end(), Some(Nanos(104 * SECOND)));
}

#[test]
fn a_join_lets_the_step_end_and_a_loss_does_not() {
    // 4 ranks train from 4 s on, a step each 2 s. b comes at 9.5, asked at 10.5, the step ends at 12.
    // 8 ranks train from 15 on; b is lost at 20.5: 5 steps are kept, half of one is not.
    let all = [("a", 4, 0, Joins), ("b", 4, 95, Joins), ("b", 4, 205, IsLost)];
    let found = life("any", &all, 60);
    assert_eq!(table(&found)[..2], [(1, 4, 4, 12, 0, 4), (2, 8, 15, 20, 4, 9)]);
    // Known at 22.5, training again at 25.5.
    assert_eq!(table(&found)[2], (3, 4, 25, 60, 9, 26));
    let causes: Vec<Cause> =
        found.generations.iter().filter_map(|g| g.ended).map(|(_, cause)| cause).collect();
    assert_eq!(causes, [Cause::Reconfigured, Cause::MemberLost]);
    let occasions: Vec<Occasion> = found.asked.iter().map(|asked| asked.occasion).collect();
    assert_eq!(occasions, [Occasion::Started, Occasion::Joined, Occasion::Lost]);
    assert_eq!(found.members.len(), 3);
}

#[test]
fn eight_joins_within_a_second_are_one_change() {
    let names = ["b", "c", "d", "e", "f", "g"];
    let mut all = vec![("a", 2, 0, Joins)];
    all.extend((0..).zip(names).map(|(i, name)| (name, 1, 100 + i, Joins)));
    all.push(("a", 7, 101, Joins)); // refused: it is there
    let found = life("any", &all, 60);
    assert_eq!((found.asked.len(), found.generations.len()), (2, 2));
    assert_eq!(found.generations[1].ranks, 8);
}

#[test]
fn whoever_is_not_needed_may_come_and_go() {
    let all = [("a", 4, 0, Joins), ("b", 1, 100, Joins), ("b", 1, 200, IsLost)];
    let found = life("any", &all, 100);
    assert_eq!((found.generations.len(), found.asked.len()), (1, 3));
    assert_eq!(found.generations[0].ended, None);
}

#[test]
fn policies_wait_and_fail_over_time() {
    let all =
        [("a", 4, 0, Joins), ("b", 4, 0, Joins), ("b", 4, 300, IsLost), ("c", 4, 1500, Joins)];
    let fixed = life("fixed-size:8", &all, 400);
    assert_eq!(table(&fixed), [(1, 8, 4, 30, 0, 26), (2, 8, 154, 228, 26, 100)]);
    let waits = fixed.asked.iter().filter(|a| matches!(a.verdict, Verdict::Wait { .. })).count();
    assert_eq!(waits, 2, "when it is known, and by the timer");
    let stops = life("fail-stop:8", &all, 400);
    assert_eq!((stops.until, stops.steps()), (Nanos(32 * SECOND), 26));
    assert_eq!(stops.end, Some(End::Failed("4 slots are enough for 4 ranks, not for 8".into())));
    let late = life("deadline:150s", &all, 400);
    assert!(matches!(late.end, Some(End::Failed(_))), "4 ranks need 148 s from 32 on");
    let gate = life("progress:0.2", &all, 400);
    assert_eq!(gate.end, Some(End::Done));
}

#[test]
fn who_leaves_hands_over_first() {
    let all = [("a", 4, 0, Joins), ("b", 4, 0, Joins), ("b", 4, 105, Leaves)];
    let found = life("any", &all, 40);
    // Asked at 11.5, the step ends at 12.
    assert_eq!(table(&found)[0], (1, 8, 4, 12, 0, 8));
    assert_eq!(found.asked[1].occasion, Occasion::Left);
}

/// ResNet-50 for 90 epochs, 32 samples a GPU: slopes are those of the size that runs, whenever it came
/// to it; a job that grows ends between the two that do not.
#[test]
fn growing_and_shrinking_follow_the_slopes_of_the_figures() {
    let size = |ranks: u32| Size {
        step_ns: Some(Nanos(SECOND / 4)),
        ..Size::ranks(ranks, 32 * u64::from(ranks))
    };
    let imagenet = Job {
        samples_total: 90 * 1_281_167,
        samples_epoch: 1_281_167,
        limits: Limits { least: 8, most: 32, asked: 32 },
        sizes: [8, 16, 32].map(size).to_vec(),
        time_limit: None,
    };
    let policy: Policy = "min-max:8:32".parse().unwrap();
    let end = |all: &[(&str, u32, u64, What)]| {
        let found = live(&imagenet, &policy, &incidents(all), PAUSES, Nanos(200_000 * SECOND));
        assert_eq!(found.end, Some(End::Done));
        found
    };
    let [of_16, of_32] = [16, 32].map(|slots| end(&[("a", slots, 0, Joins)]));
    let grown = [20_000, 34_000].map(|at| end(&[("a", 16, 0, Joins), ("b", 16, at * 10, Joins)]));
    assert!(of_32.until < grown[0].until && grown[0].until < grown[1].until);
    assert!(grown[1].until < of_16.until);
    let slope = |life: &Life, at: usize| life.generations[at].throughput().unwrap();
    assert_eq!(slope(&grown[0], 0), slope(&of_16, 0));
    assert_eq!(slope(&grown[0], 1), slope(&of_32, 0));
    let shrunk = end(&[("a", 16, 0, Joins), ("b", 16, 0, Joins), ("b", 16, 100_000, IsLost)]);
    assert_eq!((slope(&shrunk, 0), slope(&shrunk, 1)), (slope(&of_32, 0), slope(&of_16, 0)));
    for life in [of_16, of_32, shrunk].iter().chain(&grown) {
        let line = life.epochs();
        assert!(line.windows(2).all(|w| w[0].0 <= w[1].0 && w[0].1 <= w[1].1), "{line:?}");
        assert!(line.last().unwrap().1 >= 90.0);
    }
}

const RECORDS: &str = r#"
{"event":"started","job":"toy","plan":"plan.json","policy":"any","steps":100,"at_ms":0,"unix_ms":5000}
{"event":"members","members":[{"name":"a","slots":4}],"why":"started","at_ms":1,"unix_ms":5001}
{"event":"verdict","why":"started","verdict":{"verdict":"run","ranks":4},"at_ms":1000,"unix_ms":6000}
{"event":"generation","generation":1,"members":[{"name":"a","slots":4}],"ranks":4,"replicas":2,"micro_batches":4,"mini_batch":8,"step":0,"at_ms":1010,"unix_ms":6010}
{"event":"training","generation":1,"step":1,"at_ms":2000,"unix_ms":7000}
{"event":"progress","generation":1,"step":11,"at_ms":3000,"unix_ms":8000}
{"event":"quiet","generation":1,"rank":2,"ms":900,"at_ms":3500,"unix_ms":8500}
{"event":"ended","generation":1,"step":16,"cause":"rank_lost","rank":2,"detect_ms":12,"at_ms":4000,"unix_ms":9000}
{"event":"generation","generation":2,"members":[{"name":"a","slots":4}],"ranks":2,"replicas":1,"micro_batches":8,"mini_batch":8,"step":16,"at_ms":4100,"unix_ms":9100}
{"event":"training","generation":2,"step":17,"recover_ms":500,"at_ms":4500,"unix_ms":9500}
{"event":"ended","generation":2,"step":100,"cause":"done","at_ms":20000,"unix_ms":25000}
{"event":"finished","code":0,"message":"","at_ms":20010,"unix_ms":25010}
"#;

#[test]
fn records_are_a_life() {
    let found = Life::read(RECORDS, 80).unwrap();
    assert_eq!((found.steps(), found.samples(), found.samples_total), (100, 800, 800));
    assert_eq!((found.generations.len(), found.asked.len()), (2, 1));
    assert_eq!(found.generations[0].throughput(), Some(60.0), "15 steps in 2 s");
    assert_eq!(found.generations[0].ended, Some((Nanos(4 * SECOND), Cause::RankLost)));
    assert_eq!((found.end.clone(), found.until), (Some(End::Done), Nanos(20_010_000_000)));
    assert_eq!(found.epochs().last(), Some(&(found.until, 10.0)));
    // A line that is being written.
    let loss = Loss { rank: Some(2), detected: Some(Nanos(12_000_000)) };
    assert_eq!((found.generations[0].loss, found.generations[1].loss), (Some(loss), None));
    assert_eq!(found.generations[1].recovered, Some(Nanos(SECOND / 2)));
    assert_eq!(found.steps_lost(), 0);
    let behind = RECORDS.replace("\"step\":16,\"at", "\"step\":8,\"at");
    assert_eq!(Life::read(&behind, 80).unwrap().steps_lost(), 8, "16 were kept, 8 are left");
    let begun = Life::read(&RECORDS[..RECORDS.len() - 30], 80).unwrap();
    assert_eq!((begun.steps(), begun.end), (100, None));
}

/// Mini-batches that follow the replicas, an epoch that is known, and a job that began with fewer
/// replicas than it was planned for.
#[test]
fn records_say_what_was_planned() {
    let planned = "\"steps\":100,\"mini_batch\":16,\"samples_epoch\":40";
    let text = RECORDS.replace("\"steps\":100", planned);
    let text = text.replace(
        "\"mini_batch\":8,\"step\":16",
        "\"mini_batch\":4,\"rate_factor\":0.5,\"step\":16",
    );
    let found = Life::read(&text, 80).unwrap();
    assert_eq!((found.samples_total, found.samples_epoch), (1600, 40));
    assert_eq!(found.samples(), 16 * 8 + 84 * 4);
    assert_eq!(found.generations[1].rate_factor, Some(0.5));
    // Some steps were lost with their state, and nobody knows here of what size they were.
    let known =
        text.replace("\"step\":16,\"at_ms\":4100", "\"step\":12,\"samples\":90,\"at_ms\":4100");
    assert_eq!(Life::read(&known, 80).unwrap().samples(), 90 + 88 * 4);
}

#[test]
fn a_second_supervisor_goes_on_in_the_same_file() {
    let again = RECORDS.replace("\"unix_ms\":2", "\"unix_ms\":3").replace("5000}", "65000}");
    let both = Life::read(&[RECORDS, again.as_str()].concat(), 80).unwrap();
    assert!(both.generations.windows(2).all(|w| w[0].launched < w[1].launched));
    assert_eq!(both.generations[2].launched, Nanos(61_010_000_000));
}

#[test]
fn other_texts_are_refused_with_their_line() {
    let line = |text: &str| Life::read(text, 1).unwrap_err().to_string();
    assert!(line("{}\n").starts_with("line 1 of the records: "), "{}", line("{}\n"));
    let early = "{\"event\":\"progress\",\"generation\":1,\"step\":3,\"at_ms\":1,\"unix_ms\":1}\n";
    assert!(line(early).contains("no generation was launched before"));
    let newer = "{\"event\":\"sung\",\"tune\":3,\"at_ms\":1,\"unix_ms\":1}\n";
    assert_eq!(Life::read(newer, 1).unwrap().until, Nanos(1_000_000));
    let cause = RECORDS.replace("rank_lost", "rank_bored").replace("quiet", "bored");
    let found = Life::read(&cause, 80).unwrap();
    assert_eq!((found.generations[0].ended.unwrap().1, found.steps()), (Cause::Unknown, 100));
}

#[test]
fn what_is_written_is_read() {
    for text in RECORDS.lines().filter(|line| !line.is_empty()) {
        let line: Line = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&line).unwrap(), text);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    /// Whatever happens: steps follow each other without a gap, time goes forwards.
    #[test]
    fn no_step_is_left_out_or_taken_twice(
        happens in prop::collection::vec((0usize..4, 1u32..5, 0u64..2000, 0usize..3), 0..24),
        policy in 0usize..4,
    ) {
        let all: Vec<_> = happens.into_iter().map(|(name, slots, at, what)| {
            (["a", "b", "c", "d"][name], slots, at, [Joins, Leaves, IsLost][what])
        }).collect();
        let policy = ["any", "min-max:4:8", "fixed-size:4", "progress:0.5"][policy];
        let found = life(policy, &all, 300);
        let mut step = 0;
        let mut now = Nanos::ZERO;
        for generation in &found.generations {
            prop_assert_eq!(generation.first_step, step);
            prop_assert_eq!(generation.first_sample, 8 * step);
            prop_assert!(generation.launched >= now);
            step = generation.last_step();
            now = generation.ended.map_or(found.until, |(at, _)| at);
            prop_assert!(generation.points.iter().all(|(at, _)| *at <= now));
            prop_assert!(now >= generation.launched);
        }
        prop_assert!(found.samples() <= 800 && found.goodput() <= 1.0);
        prop_assert_eq!(found.end == Some(End::Done), found.samples() == 800);
        prop_assert_eq!(life(policy, &all, 300), found);
    }
    /// Broken records are refused or make some life, and every question about it has an answer.
    #[test]
    fn broken_records_never_panic(at in 0usize..2000, with in "[0-9a-z{}\",:\n]{0,20}", cut in 0usize..30) {
        let begin = at.min(RECORDS.len());
        let end = (begin + cut).min(RECORDS.len());
        let text = [&RECORDS[..begin], with.as_str(), &RECORDS[end..]].concat();
        if let Ok(life) = Life::read(&text, 80) {
            prop_assert!(life.epochs().windows(2).all(|w| w[0].0 <= w[1].0));
            prop_assert!((0.0..=1.0).contains(&life.goodput()));
            let _ = (life.expected_end(), life.steps(), life.samples());
        }
    }
}
