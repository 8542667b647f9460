//! Going on with another mini-batch, which a plan must say itself; and from what earlier versions wrote.

use crate::common::{losses, result, runner_in, scratch, write};
use crate::run::{STEPS, at, plan, tensors};
use pipewright_core::plan::{Plan, RateRule, Resized};
use pipewright_core::schedule::ScheduleKind;
use pipewright_runner::checkpoint::Manifest;
use std::path::Path;

/// Steps and samples of a checkpoint.
fn origin(out: &Path, step: u64) -> (u64, u64) {
    let manifest = Manifest::read(&at(out, step)).unwrap();
    (manifest.step, manifest.samples)
}

#[test]
fn a_plan_says_what_its_mini_batch_was() {
    let dir = scratch("resized");
    let whole = plan(2, ScheduleKind::OneFOneB);
    write(&dir, "whole.json", whole.to_json());
    let begin = ["whole.json", "--out", "out", "--save-every", "0", "--steps", "5"];
    runner_in(&dir, &begin).done();
    // Half of the mini-batch. Without a word, or as if it had been another, it is other training.
    let mut half = Plan { mini_batch: 16, ..whole.clone() };
    let go_on = ["half.json", "--out", "out", "--save-every", "0", "--resume"];
    let resized = |mini_batch| Some(Resized { mini_batch, rate: RateRule::Linear });
    for (of, words) in [
        (None, "mini_batch is 32 in the checkpoint, 16 in the plan"),
        (resized(64), "mini_batch is 32 in the checkpoint, 64 in the plan"),
    ] {
        half.resized = of;
        write(&dir, "half.json", half.to_json());
        runner_in(&dir, &go_on).refused(2, words);
    }
    half.resized = resized(32);
    write(&dir, "half.json", half.to_json());
    runner_in(&dir, &go_on).done();
    let out = dir.join("out");
    assert_eq!(losses(&out).len(), 5 + 6, "as many samples as planned");
    assert_eq!(result(&out)["steps"], 11);
    assert_eq!(origin(&out, 11), (11, STEPS * 32));
    // And back to the plan as it was, for two planned steps more.
    let more = ["whole.json", "--out", "out", "--save-every", "0", "--resume", "--steps", "10"];
    runner_in(&dir, &more).done();
    assert_eq!(origin(&out, 13), (13, 10 * 32));
    assert_eq!(losses(&out).len(), 13);
    let mut wrong = whole.clone();
    wrong.resized = resized(0);
    write(&dir, "wrong.json", wrong.to_json());
    runner_in(&dir, &["wrong.json"]).refused(3, "resized.mini_batch is 0, must be between 1 and");
}

/// Manifests of version 1 have no sum.
#[test]
fn manifests_of_earlier_versions() {
    let dir = scratch("earlier-manifests");
    write(&dir, "plan.json", plan(2, ScheduleKind::OneFOneB).to_json());
    runner_in(&dir, &["plan.json", "--out", "whole", "--save-every", "0"]).done();
    let begin = ["plan.json", "--out", "out", "--save-every", "0", "--steps", "5"];
    runner_in(&dir, &begin).done();
    let path = at(&dir.join("out"), 5).join("manifest.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
    value["version"] = 1.into();
    assert!(value.as_object_mut().unwrap().remove("crc32c").is_some());
    std::fs::write(&path, value.to_string()).unwrap();
    let go_on = ["plan.json", "--out", "out", "--save-every", "0", "--resume"];
    runner_in(&dir, &go_on).done();
    let [whole, out] = ["whole", "out"].map(|name| dir.join(name));
    assert_eq!(losses(&out), losses(&whole));
    assert!(tensors(&at(&out, STEPS)) == tensors(&at(&whole, STEPS)));
    // One of this version without its sum is damaged.
    let path = at(&out, STEPS).join("manifest.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let without = text.rfind(",\n  \"crc32c\"").unwrap();
    std::fs::write(&path, format!("{}\n}}\n", &text[..without])).unwrap();
    let from = at(&out, STEPS);
    let args = ["plan.json", "--resume", from.to_str().unwrap()];
    runner_in(&dir, &args).refused(2, "manifest.json: damaged: its checksum is not that");
}
