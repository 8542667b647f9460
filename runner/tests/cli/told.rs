//! Figures and sentences that agree with each other, and choices that exclude each other.

use crate::common::{Ended, runner_in, scratch, write};
use serde_json::Value;
use std::path::Path;

fn run(dir: &Path, line: &str) -> Ended {
    runner_in(dir, &line.split_whitespace().collect::<Vec<_>>())
}

fn object(dir: &Path, line: &str) -> Value {
    let ended = run(dir, line);
    serde_json::from_str(&ended.done().stdout).unwrap_or_else(|e| panic!("{e}: {ended:#?}"))
}

const SMALL: &str = "plan --model transformer:layers=1,hidden=32,heads=4,sequence=16,vocabulary=64 \
    --stages 1 --schedule 1f1b --micro-batches 2 --mini-batch 12 --steps 4 -o p.json";

#[test]
fn a_model_has_as_many_parameters_whoever_counts_them() {
    let dir = scratch("told-parameters");
    let gpt = "plan --model gpt2 --cluster dgx-a100 --schedule 1f1b --micro-batches 4 -o p.json";
    for more in ["--stages 1", "--stages 1 --tensor 2"] {
        run(&dir, &format!("{gpt} {more}")).done();
        let checked = object(&dir, "check p.json --json");
        assert_eq!(checked["parameters"], 124_439_808, "{more}");
        let shown = run(&dir, "show p.json").done().stdout.clone();
        assert!(shown.contains(" 124439808 "), "{more}: {shown}");
    }
    // The table is on the first stage and the last, and counted on both.
    run(&dir, &format!("{gpt} --stages 2 --tensor 2")).done();
    assert_eq!(object(&dir, "check p.json --json")["parameters"], 124_439_808);
    let shown = run(&dir, "show p.json").done().stdout.clone();
    assert!(shown.contains("of 124439808 parameters"), "{shown}");
}

/// Cuts that fit as they are, however uneven, are no better than even ones with something computed again.
#[test]
fn more_memory_does_not_make_a_plan_slower() {
    let dir = scratch("told-memory");
    let plan = "plan --model resnet50 --cluster dgx-a100 --stages 4 --schedule 1f1b --micro-batches 8 \
        --mini-batch 64 -o p.json --memory";
    let step = |memory: &str| {
        let plan = object(&dir, &format!("{plan} {memory} --json"));
        plan["step_ns"].as_u64().expect("a step")
    };
    let steps = ["900MB", "800MB", "700MB"].map(step);
    assert!(steps.is_sorted(), "{steps:?}");
    let told = run(&dir, &format!("{plan} 800MB --recompute none")).done().stderr.clone();
    assert!(told.contains(", for balanced ones, of 20.28 ms, do not fit; no cuts"), "{told}");
    // What a search leaves open includes what it would have been told.
    let plan = "plan --model resnet50 --cluster dgx-a100 --stages 4 --schedule 1f1b --memory 700MB -o p.json --json";
    let open = object(&dir, &format!("{plan} --devices 4"));
    let told = object(&dir, &format!("{plan} --micro-batches 4"));
    let [open, told] = [open, told].map(|plan| plan["step_ns"].as_u64().expect("a step"));
    assert!(open <= told, "{open} {told}");
}

#[test]
fn what_needs_whole_parameters_or_gradients_does_not_go_with_tensor_groups() {
    let dir = scratch("told-tensor");
    let lars = run(&dir, &format!("{SMALL} --tensor 2 --optimizer lars:lr=1"));
    assert_ne!(lars.code, Some(0));
    assert!(lars.stderr.contains("`lars`, whose rates follow from whole parameters"), "{lars:#?}");
    for codec in ["auto", "adaptive"] {
        let ended = run(&dir, &format!("{SMALL} --tensor 2 --replicas 2 --codec {codec}"));
        ended.refused(2, "ranks of tensor groups send gradients as they are");
        assert!(!ended.stderr.contains("pays"), "{ended:#?}");
    }
    run(&dir, &format!("{SMALL} --tensor 2 --replicas 2")).done();
    run(&dir, "p.json --out run --save-every 0").done();
    let eval = run(&dir, "eval p.json --weights run --threads 4");
    if eval.code != Some(0) {
        assert!(eval.stderr.contains("takes whole layers here"), "{eval:#?}");
        assert!(!eval.stderr.contains("plan again"), "{eval:#?}");
    }
}

#[test]
fn devices_are_not_more_than_allowed() {
    let dir = scratch("told-devices");
    let given = "plan --model digits-cnn --stages 2 --schedule 1f1b --micro-batches 4 -o p.json";
    run(&dir, &format!("{given} --devices 1"))
        .refused(2, "--devices 1: what is given makes 2 ranks");
    run(&dir, &format!("{given} --devices 2")).done();
}

#[test]
fn what_has_no_effect_is_said() {
    let dir = scratch("told-in-vain");
    let given = "plan --model digits-cnn --stages 2 --schedule 1f1b --micro-batches 4 -o p.json";
    for (more, flag) in [
        ("--codec fp8-e4m3", "--codec: no gradients are summed"),
        ("--choose fp32,bf16", "--choose: no gradients are summed"),
        ("--edge-codec fp8-e4m3", "--edge-codec: no two stages that follow each other"),
        ("--deferred-batch-norm", "--deferred-batch-norm: digits-cnn has no batch norm"),
        ("--budget 5", "--budget: nothing is left open"),
        ("--forms all", "--forms: nothing is left open"),
    ] {
        let told = run(&dir, &format!("{given} {more}")).done().stderr.clone();
        assert!(told.contains(flag), "{more}: {told}");
        let told = run(&dir, &format!("{given} --replicas 2")).done().stderr.clone();
        assert!(!told.contains(": no gradients") && !told.contains("nothing is left"), "{told}");
    }
    let summed = format!("{given} --replicas 2 --codec fp8-e4m3");
    assert!(!run(&dir, &summed).done().stderr.contains("nothing to encode"));
}

#[test]
fn an_automatic_order_is_no_slower_than_schedules_by_name_that_recompute() {
    let dir = scratch("told-automatic");
    let small = "plan --model transformer:layers=4,hidden=64,heads=4,sequence=16,vocabulary=64 \
        --stages 2 --micro-batches 4 --cluster dgx-a100 -o p.json --json";
    let digits = "plan --model digits-cnn --stages 4 --cluster dgx-a100 -o p.json --json";
    for plan in [
        format!("{small} --memory 3MiB"),
        format!("{digits} --micro-batches 8 --recompute full"),
        format!("{digits} --micro-batches 4"),
    ] {
        let step = |schedule: &str| {
            object(&dir, &format!("{plan} --schedule {schedule}"))["step_ns"].as_u64().unwrap()
        };
        let found = object(&dir, &format!("{plan} --schedule automatic"));
        let (own, named) = (found["step_ns"].as_u64(), found["named_step_ns"].as_u64());
        assert!(own <= named, "{plan}: {found:#}");
        for schedule in ["1f1b", "zb-h1", "zb-h2"] {
            assert!(own <= Some(step(schedule)), "{plan}: {schedule}: {found:#}");
        }
    }
}

#[test]
fn rows_of_a_search_say_what_their_plans_recompute() {
    let dir = scratch("told-rows");
    for (plan, again) in [
        ("--mini-batch 16 --ranks 2 --replicas 1 --precision bf16 --cluster dgx-a100", false),
        ("--mini-batch 8 --ranks 2 --tensor 2 --cluster 4x-gh200", true),
    ] {
        let line = format!("plan --model digits-cnn {plan} --memory 1MiB -o p.json --json");
        let found = object(&dir, &line);
        let words = found["search"]["plans"][0]["words"].as_str().unwrap();
        let written = std::fs::read_to_string(dir.join("p.json")).unwrap();
        assert_eq!(words.contains("recompute"), written.contains("\"recompute\""), "{words}");
        assert_eq!(words.contains("recompute"), again, "{words}");
    }
}

#[test]
fn what_no_choice_of_a_search_can_be_is_said() {
    let dir = scratch("told-none");
    let small = "transformer:layers=2,hidden=32,heads=4,sequence=16,vocabulary=64";
    let line =
        format!("plan --model {small} --ranks 2 --schedule pipedream --clip-norm 1 -o p.json");
    run(&dir, &line).refused(2, "rules out clipping the gradient");
    run(&dir, "plan --model digits-cnn --ranks 4 --stages 2 --data-parallel dp -o p.json")
        .refused(2, "one lane");
}

#[test]
fn replicas_are_no_pipeline_ranks_of_megatron() {
    let dir = scratch("told-layout");
    let plan = "plan --model gpt2 --stages 2 --split uniform --schedule 1f1b --micro-batches 2 \
        --cluster dgx-a100 -o p.json";
    let mut layouts = ["1", "2"].map(|replicas| {
        run(&dir, &format!("{plan} --replicas {replicas}")).done();
        run(&dir, "export p.json --format megatron-layout").done().stdout.clone()
    });
    layouts.sort();
    assert_eq!(layouts[0], layouts[1]);
    assert!(layouts[0].starts_with("Et*6|t*6L"), "{layouts:?}");
}

#[test]
fn the_words_of_megatrons_users_are_known() {
    let dir = scratch("told-words");
    let plan = "plan --model gpt2 --cluster dgx-a100 --schedule 1f1b --micro-batches 2 -o p.json";
    run(&dir, &format!("{plan} --pp 2 --tp 2 --dp 2 --global-batch-size 16")).done();
    let shown = object(&dir, "check p.json --json");
    assert_eq!((&shown["ranks"], &shown["mini_batch"]), (&8.into(), &16.into()), "{shown}");
}

#[test]
fn a_bound_is_of_plans_that_train_alike() {
    let dir = scratch("told-bound");
    let plan = "plan --model vgg16 --cluster dgx-1-p100 --mini-batch 32 --stages 1 --schedule 1f1b \
        --micro-batches 1 -o p.json";
    run(&dir, plan).done();
    let shown = run(&dir, "show p.json --advice").done().stdout.clone();
    let bound = shown.lines().find(|line| line.starts_with("bound: ")).unwrap();
    assert!(!bound.contains("-"), "{bound}");
}

#[test]
fn no_step_has_no_loss() {
    let dir = scratch("told-none");
    run(&dir, SMALL).done();
    let ended = object(&dir, "p.json --steps 0 --json --no-eval");
    assert_eq!(ended["loss"], Value::Null, "{ended}");
    let told = run(&dir, "p.json --steps 0 --no-eval");
    assert!(!told.done().stderr.contains("loss 0.0000"), "{told:#?}");
    assert!(!told.stdout.contains("loss 0.0000"), "{told:#?}");
}

/// The comparison of forms prices a form as a plan of it is priced, up to what a plan knows of operations.
#[test]
fn forms_take_what_plans_of_them_take() {
    let dir = scratch("told-forms");
    for model in ["digits-cnn", "resnet50"] {
        let forms = object(&dir, &format!("forms --model {model} --devices 4 --json"));
        let form = |name: &str| {
            let rows = forms["forms"].as_array().unwrap();
            let row = rows.iter().find(|row| row["form"] == name).unwrap();
            row["step_ns"].as_f64().unwrap_or_else(|| panic!("{row}"))
        };
        let plan = |more: &str| {
            let plan = "plan --cluster dgx-a100 --micro-batches 1 --schedule 1f1b -o p.json --json";
            let made = object(&dir, &format!("{plan} --model {model} {more}"));
            made["step_ns"].as_f64().unwrap()
        };
        let near = |form: f64, plan: f64| (form / plan - 1.0).abs() < 0.25;
        let (ddp, alone) = (form("DistributedDataParallel"), form("one device"));
        let as_plans = (plan("--stages 1 --replicas 4"), plan("--stages 1"));
        assert!(near(ddp, as_plans.0), "{model}: {ddp} {as_plans:?}");
        assert!(near(alone, as_plans.1), "{model}: {alone} {as_plans:?}");
    }
    let one = run(&dir, "forms --model gpt2 --devices 8 --mini-batch 1");
    let told = &one.done().stdout;
    assert!(told.contains("1 samples of a mini-batch do not divide into 8 parts"), "{told}");
    let three = run(&dir, "forms --model mlp4 --devices 8 --replicas 3");
    assert!(three.done().stdout.contains("3 pipelines of several devices are not 8"), "{three:#?}");
    // Forms that need no stages have rows where stages are too many.
    let deep = run(&dir, "forms --model mlp4 --devices 8").done().stdout.clone();
    assert!(deep.contains("stages need as many layers") || deep.contains("at most 4"), "{deep}");
}

#[test]
fn what_is_not_so_of_a_plan_is_not_said() {
    let dir = scratch("told-not-so");
    let planned = run(&dir, SMALL);
    assert!(!planned.done().stderr.contains("split:"), "one stage has no cuts: {planned:#?}");
    let shown = run(&dir, &format!("{SMALL} --replicas 2 --zero 1 --optimizer adamw"));
    shown.done();
    let shown = run(&dir, "show p.json").done().stdout.clone();
    assert!(!shown.contains(" 1 are "), "{shown}");
}

#[test]
fn a_trace_on_the_standard_output_stands_alone() {
    let dir = scratch("told-stdout");
    run(&dir, SMALL).done();
    let ended = run(&dir, "simulate p.json -o -");
    let trace: Value = serde_json::from_str(&ended.done().stdout).expect("a trace alone");
    assert!(trace["traceEvents"].is_array() && ended.stderr.contains("step time"), "{ended:#?}");
    run(&dir, "simulate p.json --json -o -").refused(2, "both print to the standard output");
}

#[test]
fn lanes_that_do_not_fit_are_named_by_every_command() {
    let dir = scratch("told-too-full");
    run(&dir, SMALL).done();
    let text = std::fs::read_to_string(dir.join("p.json")).unwrap();
    let mut plan: Value = serde_json::from_str(&text).unwrap();
    plan["cluster"]["device"]["memory"] = (200 << 10).into();
    write(&dir, "p.json", plan.to_string());
    let sentence = "more than the 200.0 KiB of a device";
    let shown = run(&dir, "show p.json --advice").done().stdout.clone();
    assert!(shown.contains(sentence) && !shown.contains("better one"), "{shown}");
    let simulated = run(&dir, "simulate p.json").done().stdout.clone();
    assert!(simulated.contains("more than a device has"), "{simulated}");
}

/// A table that two layers have is summed as all other parameters are: a network without it has more to sum.
#[test]
fn tied_tables_are_summed_at_the_price_of_all_gradients() {
    let dir = scratch("told-tied");
    let taken = |tied: &str| {
        let model = format!(
            "transformer:layers=4,hidden=768,heads=12,sequence=1024,vocabulary=50257{tied}"
        );
        run(&dir, &format!(
            "plan --model {model} --cluster dgx-a100 --mini-batch 64 --precision bf16 --stages 1 \
             --replicas 32 --schedule 1f1b --micro-batches 1 -o p.json"
        ))
        .done();
        let step = object(&dir, "simulate p.json --json")["step_ns"].as_u64().unwrap();
        (step, object(&dir, "show p.json --json")["sent_bytes"].as_u64().unwrap())
    };
    let (tied, apart) = (taken(",tied"), taken(""));
    assert!(tied.0 as f64 <= 1.001 * apart.0 as f64, "{tied:?} {apart:?}");
    // Of 106 million parameters that are apart 67 are left.
    let share = tied.1 as f64 / apart.1 as f64;
    assert!((0.6..0.67).contains(&share), "{tied:?} {apart:?}");
}
