//! PyTorch's CSV of a schedule as a plan's order: what `runner export` writes comes back as the same plan.

use crate::common::{runner_in, scratch, write};
use pipewright_core::schedule::{ScheduleKind, Updates};
use std::path::Path;

const MODEL: [&str; 5] = ["--model", "fc32:16", "--mini-batch", "32", "-q"];

/// Makes a plan of a schedule with numbers that all of them can have.
fn planned(dir: &Path, schedule: &str, stages: u32, file: &str, more: &[&str]) -> String {
    let stages = stages.to_string();
    let sizes = ["--stages", &stages, "--micro-batches", "8", "--schedule", schedule, "-o", file];
    runner_in(dir, &[&["plan"], &MODEL[..], &sizes, more].concat()).done();
    std::fs::read_to_string(dir.join(file)).unwrap()
}

#[test]
fn every_schedule_comes_back_as_it_was() {
    let dir = scratch("orders");
    for kind in ScheduleKind::ALL {
        let stages = kind.placement().stages(4);
        let name = kind.to_string();
        let before = planned(&dir, &name, stages, "before.json", &[]);
        for format in ["pytorch-csv", "pytorch-csv-messages"] {
            runner_in(&dir, &["export", "before.json", "--format", format, "-o", "order.csv"])
                .done();
            let own = ["--schedule", "order.csv", "-o", "after.json"];
            runner_in(&dir, &[&["plan"], &MODEL[..], &own].concat()).done();
            let after = std::fs::read_to_string(dir.join("after.json")).unwrap();
            if kind.updates() == Updates::Synchronous {
                assert_eq!(before, after, "{name}, {format}");
            } else {
                // The file does not say that there is no flush.
                let order = |text: &str| {
                    serde_json::from_str::<serde_json::Value>(text).unwrap()["schedule"].clone()
                };
                assert_eq!(order(&before)["lanes"], order(&after)["lanes"], "{name}, {format}");
                assert_eq!(order(&after)["name"], "1f1b", "{name}, {format}");
            }
        }
    }
}

#[test]
fn an_order_of_ones_own_is_planned_and_run() {
    let dir = scratch("orders-own");
    // No schedule by name has this one.
    write(&dir, "own.csv", "0F0,0F1,0F2,0B1,0B0,0B2\n1F0,1F1,1B1,1B0,1F2,1B2\n");
    let plan = ["plan", "--model", "digits-cnn", "--mini-batch", "12", "--schedule", "own.csv"];
    let more = ["--replicas", "2", "--cuts", "pool1", "--steps", "2", "-o", "plan.json"];
    runner_in(&dir, &[&plan[..], &more].concat()).done();
    let text = std::fs::read_to_string(dir.join("plan.json")).unwrap();
    assert!(
        text.contains("\"name\": \"own.csv\"") && text.contains("0F0 0F1 0F2 0B1 0B0 0B2"),
        "{text}"
    );
    runner_in(&dir, &["plan.json"]).done();
}

#[test]
fn what_does_not_fit_an_order_is_said() {
    let dir = scratch("orders-refused");
    write(&dir, "two.csv", "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
    write(&dir, "cell.csv", "0F0,0X0\n");
    write(&dir, "wait.csv", "0B0,0F0\n");
    let plan = |file: &str, more: &[&str]| {
        runner_in(&dir, &[&["plan"], &MODEL[..], &["--schedule", file], more].concat())
    };
    for (file, more, words) in [
        (
            "two.csv",
            &["--stages", "3"][..],
            "--schedule two.csv: it has 2 stages, --stages asks for 3",
        ),
        (
            "two.csv",
            &["--micro-batches", "4"],
            "it has 2 micro-batches, --micro-batches asks for 4",
        ),
        ("two.csv", &["--ranks", "3"], "--ranks 3: 2 lanes do not make 3 ranks"),
        (
            "cell.csv",
            &[],
            "--schedule cell.csv: row 0 (rank), column 1: `0X0` is neither an action",
        ),
        ("wait.csv", &[], "--schedule wait.csv: lane 0: 0B0 stands before 0F0, which it needs"),
        ("none.csv", &[], "none.csv: No such file"),
        ("two.txt", &[], "no schedule is called `two.txt`"),
    ] {
        plan(file, more).refused(2, words);
    }
    let cuts = ["plan", "--model", "digits-cnn", "--schedule", "two.csv", "--cuts", "conv2,pool2"];
    runner_in(&dir, &cuts).refused(2, "it has 2 stages, --cuts asks for 3");
}

/// An order that is made for the plan: planned, exported, read again, run.
#[test]
fn an_order_is_made_for_the_plan() {
    let dir = scratch("orders-automatic");
    let plan = ["plan", "--model", "digits-cnn", "--mini-batch", "24", "--steps", "2", "-q"];
    let sizes = ["--stages", "3", "--micro-batches", "6", "--schedule", "automatic"];
    let best = runner_in(&dir, &[&plan[..7], &sizes, &["-o", "plan.json"]].concat());
    let told = best.done().stderr.clone();
    assert!(told.contains("order: ") && told.contains("no order takes less than "), "{told}");
    let read = |file: &str| std::fs::read_to_string(dir.join(file)).unwrap();
    let csv = ["export", "plan.json", "--format", "pytorch-csv", "-o", "order.csv"];
    runner_in(&dir, &csv).done();
    let cuts = ["--split", "exact", "--stages", "3"];
    let again = ["--schedule", "order.csv", "-o", "again.json"];
    runner_in(&dir, &[&plan[..], &cuts, &again].concat()).done();
    let lanes = |file: &str| {
        serde_json::from_str::<serde_json::Value>(&read(file)).unwrap()["schedule"]["lanes"].clone()
    };
    assert_eq!(lanes("plan.json"), lanes("again.json"));
    runner_in(&dir, &["plan.json"]).done();
    // No schedule by name is faster.
    let step = |file: &str| {
        serde_json::from_str::<serde_json::Value>(&read(file)).unwrap()["prediction"]["step_ns"]
            .as_u64()
            .unwrap()
    };
    for kind in ["1f1b", "gpipe", "zb-h1", "zb-h2"] {
        let named = ["--stages", "3", "--micro-batches", "6", "--schedule", kind];
        runner_in(&dir, &[&plan[..], &named, &["-o", "named.json"]].concat()).done();
        assert!(step("plan.json") <= step("named.json"), "{kind}");
    }
    // With the rest left open.
    let open = ["--ranks", "4", "--schedule", "automatic", "-o", "open.json"];
    runner_in(&dir, &[&plan[..], &open].concat()).done();
    let named = runner_in(&dir, &[&plan[..], &["--schedule", "no-such"]].concat());
    named.refused(2, "automatic, which is made for the plan");
}

/// Every row of a search is a plan.
#[test]
fn every_row_of_a_search_can_be_written_and_run() {
    let dir = scratch("rows");
    let plan = ["plan", "--model", "digits-cnn", "--mini-batch", "24", "--steps", "2"];
    let told = runner_in(&dir, &[&plan[..], &["-o", "plan.json"]].concat()).done().stderr.clone();
    let lines = told.lines().skip_while(|line| !line.starts_with("row"));
    let number = |line: &str| line.get(..3)?.trim().parse::<u32>().ok();
    let rows: Vec<(u32, &str)> = lines.skip(1).map_while(|l| Some((number(l)?, l))).collect();
    assert!(rows.len() > 1, "{told}");
    for (row, line) in rows {
        let row = row.to_string();
        let wrote = runner_in(&dir, &[&plan[..], &["--row", &row, "-o", "row.json"]].concat());
        wrote.done();
        let figures = runner_in(&dir, &["show", "row.json", "--json"]);
        let figures: serde_json::Value = serde_json::from_str(&figures.done().stdout).unwrap();
        let schedule = figures["schedule"].as_str().unwrap();
        assert!(line.contains(schedule), "{line}: {schedule}");
        runner_in(&dir, &["row.json"]).done();
    }
    runner_in(&dir, &[&plan[..], &["--row", "999", "-o", "row.json"]].concat())
        .refused(2, "--row 999: the table has");
    let given = ["--stages", "2", "--schedule", "1f1b", "--micro-batches", "2", "--row", "2"];
    runner_in(&dir, &[&plan[..], &given, &["-o", "row.json"]].concat())
        .refused(2, "nothing is searched here");
}

/// Tensor groups are searched, too: of a degree that is given, or of all.
#[test]
fn tensor_groups_are_searched() {
    let dir = scratch("rows-tensor");
    let gpt = "transformer:layers=2,hidden=64,heads=4,sequence=16,vocabulary=64";
    let plan = ["plan", "--model", gpt, "--mini-batch", "8", "--steps", "2", "--budget", "200"];
    let with = |more: &[&str]| runner_in(&dir, &[&plan[..], more].concat());
    let figures = |more: &[&str]| -> serde_json::Value {
        let asked = [more, &["-o", "plan.json", "--json"]].concat();
        serde_json::from_str(&with(&asked).done().stdout).unwrap()
    };
    let rows = |of: &serde_json::Value| of["search"]["plans"].as_array().unwrap().clone();
    let given = rows(&figures(&["--tensor", "2", "--ranks", "4"]));
    assert!(given.len() > 1 && given.iter().all(|row| row["tensor"] == 2), "{given:?}");
    assert!(given[0]["words"].as_str().unwrap().contains("x 2 tensor-parallel"), "{given:?}");
    runner_in(&dir, &["plan.json"]).done();
    let searched = figures(&["--tensor", "auto"]);
    let all = rows(&searched);
    for (tensor, sequence) in [(1, false), (2, false), (2, true)] {
        let has = |row: &serde_json::Value| {
            row["tensor"] == tensor && row["sequence_parallel"] == sequence
        };
        assert!(all.iter().any(has), "{tensor} {sequence}: {all:?}");
    }
    // The written one is the first, with what the search says of it.
    let shown = runner_in(&dir, &["show", "plan.json", "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown.done().stdout).unwrap();
    assert_eq!((&shown["step_ns"], &all[0]["step_ns"]), (&searched["step_ns"], &shown["step_ns"]));
    with(&["--tensor", "auto", "--stages", "2", "--split", "uniform"])
        .refused(2, "--tensor auto searches");
    with(&["--tensor", "3"]).refused(2, "do not divide among 3");
    with(&["--tensor", "some"]).refused(2, "it is `auto` or a number");
    with(&["--tensor", "4", "--cluster", "dgx-a100", "--nodes", "1", "--devices", "2"])
        .refused(2, "--tensor 4: a group takes 4 devices, and 2 are there");
    with(&["--tensor", "2", "--ranks", "3"]).refused(2, "groups of 2 tensor-parallel ranks");
}

/// Stages with replicas: planned, run, as good as without; what cannot be is said.
#[test]
fn stages_have_replicas_of_their_own() {
    let dir = scratch("orders-replicas");
    let plan = ["plan", "--model", "digits-cnn", "--mini-batch", "24", "--steps", "3"];
    let with = |more: &[&str]| runner_in(&dir, &[&plan[..], more, &["-o", "plan.json"]].concat());
    let losses = |out: &str| {
        runner_in(&dir, &["plan.json", "--out", out]).done();
        let text = std::fs::read_to_string(dir.join(out).join("result.json")).unwrap();
        let result: serde_json::Value = serde_json::from_str(&text).unwrap();
        ["loss", "test_loss"].map(|key| result[key].as_f64().unwrap())
    };
    let told = with(&["--stage-replicas", "2,1", "--micro-batches", "6"]).done().stderr.clone();
    assert!(
        told.contains("on 3 ranks, 1f1b with 2-1 replicas") && told.contains("split: exact"),
        "{told}"
    );
    let two = losses("two");
    with(&["--stages", "2", "--schedule", "1f1b", "--micro-batches", "6"]).done();
    let one = losses("one");
    // Sums of gradients in another order.
    assert!(one.iter().zip(&two).all(|(a, b)| (a - b).abs() < 1e-4 * a.abs()), "{one:?} {two:?}");
    with(&["--stage-replicas", "best", "--ranks", "4", "--micro-batches", "12"]).done();
    with(&["--stage-replicas", "best"]).refused(2, "say among how many --ranks");
    with(&["--stage-replicas", "2,0"]).refused(2, "a number above 0 for each stage");
    with(&["--stage-replicas", "9,1", "--micro-batches", "6"]).refused(2, "stage 0 cannot have 9");
    with(&["--stage-replicas", "2,1", "--schedule", "gpipe"]).refused(2, "cannot be used with");
}
