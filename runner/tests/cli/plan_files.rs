//! The plan file as others know it: its schema is published, and files of old keep loading.

use crate::common::{runner_in, scratch};
use pipewright_core::plan::{Data, Optimizer, Plan};
use pipewright_core::predict::predict;
use std::path::Path;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

#[test]
fn the_published_schema_is_fresh() {
    let path = Path::new(ROOT).join("docs/plan.schema.json");
    let published = std::fs::read_to_string(&path).unwrap_or_default();
    let schema = runner_in(Path::new(ROOT), &["schema"]);
    let fresh = &schema.done().stdout;
    assert!(
        *fresh == published,
        "docs/plan.schema.json is out of date; refresh it from the repository's root:\n\
         cargo run -p pipewright-runner -- schema > docs/plan.schema.json"
    );
    let schema: serde_json::Value = serde_json::from_str(fresh).unwrap();
    assert_eq!(schema["title"], "Plan");
    assert_eq!(schema["additionalProperties"], false);
}

/// This file was written by version 1 and is never written again. When it does not load any
/// more, the format has changed: raise `VERSION` and keep reading the old one.
#[test]
fn a_plan_of_version_1_keeps_loading() {
    let file = "tests/data/plans/v1-digits-cnn.json";
    let text = std::fs::read_to_string(Path::new(ROOT).join(file)).unwrap();
    let plan = Plan::from_json(&text).unwrap();
    assert_eq!((plan.version, plan.ranks(), plan.cuts.as_slice()), (1, 4, &[3, 6, 9][..]));
    assert_eq!((plan.mini_batch, plan.micro_batches, plan.samples()), (32, 8, 4));
    assert_eq!((plan.seed, plan.steps), (1, 100));
    assert_eq!(plan.data, Data::Idx { dir: "tests/data/digits".into() });
    let Optimizer::Sgd { learning_rate, momentum, weight_decay, .. } = plan.optimizer else {
        panic!("version 1 plans train with SGD");
    };
    assert_eq!((learning_rate, momentum, weight_decay), (0.01, 0.9, 0.0));
    assert_eq!(plan.schedule.name, "1f1b");
    assert!(plan.cluster.profile.is_some(), "measured times are part of the format");
    assert_eq!(predict(&plan).unwrap().programs.len(), 4);
    runner_in(Path::new(ROOT), &["check", file]).done();
    let out = scratch("version-1");
    let args = ["run", file, "--steps", "2", "--out", out.to_str().unwrap()];
    runner_in(Path::new(ROOT), &args).done();
    assert_eq!(crate::common::losses(&out).len(), 2);
}
