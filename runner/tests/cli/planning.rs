//! `runner plan` with choices left open, on others' profiles, for other runtimes; `runner show`.

use crate::common::{Ended, runner_in, scratch};
use pipewright_core::plan::Plan;
use pipewright_core::schedule::Schedule;

fn words(ended: &Ended) -> String {
    format!("{}{}", ended.stdout, ended.stderr)
}

#[test]
fn what_is_left_open_is_searched() {
    let dir = scratch("search");
    let plan = |args: &[&str]| runner_in(&dir, &[&["plan", "--model", "vgg16"], args].concat());
    let cluster = ["--cluster", "dgx-a100", "--mini-batch", "64"];
    let found = plan(&[&cluster[..], &["--ranks", "4", "-o", "four.json"]].concat());
    assert!(words(found.done()).contains("vgg16 on 4 ranks"), "{found:#?}");
    let text = std::fs::read_to_string(dir.join("four.json")).unwrap();
    let searched = Plan::from_json(&text).unwrap();
    assert_eq!(searched.ranks(), 4);
    let given = ["--stages", "4", "--schedule", "1f1b", "--micro-batches", "4", "-o", "given.json"];
    plan(&[&cluster[..], &given].concat()).done();
    let given = std::fs::read_to_string(dir.join("given.json")).unwrap();
    let given = Plan::from_json(&given).unwrap();
    assert!(searched.prediction.step_ns < given.prediction.step_ns);
    // The same again, to the byte.
    plan(&[&cluster[..], &["--ranks", "4", "-o", "again.json"]].concat()).done();
    assert_eq!(std::fs::read_to_string(dir.join("again.json")).unwrap(), text);
    let all = plan(&[&cluster[..], &["--forms", "all", "--devices", "8"]].concat());
    let told = words(all.done());
    assert!(
        told.contains("bf16: would be slower here") || told.contains("bf16: pays"),
        "replicas are offered and judged: {told}"
    );
    plan(&["--devices", "99"]).refused(2, "`laptop` has");
    plan(&["--ranks", "2", "--stages", "5"]).refused(2, "leave one of");
}

/// Memory decides what is computed again; what cannot fit is said with what it would take.
#[test]
fn memory_is_a_choice() {
    let dir = scratch("memory");
    let network = "transformer:layers=8,hidden=32,heads=2,sequence=32,vocabulary=60";
    let given = ["plan", "--model", network, "--stages", "4", "--schedule", "1f1b"];
    let given = [&given[..], &["--micro-batches", "8", "--mini-batch", "16"]].concat();
    let plan = |more: &[&str]| runner_in(&dir, &[&given[..], more].concat());
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
    plan(&["-o", "roomy.json"]).done();
    assert!(!read("roomy.json").contains("recompute"));
    let most = Plan::from_json(&read("roomy.json")).unwrap().prediction.arena[0];
    let kib = |share: u64| format!("{}KiB", most.0 * share / 100 / 1024);
    let told = words(plan(&["--memory", &kib(60), "-o", "tight.json"]).done());
    assert!(told.contains("lane 0, stage 0: ") && told.contains("kernels run again"), "{told}");
    let tight = Plan::from_json(&read("tight.json")).unwrap();
    assert!(tight.prediction.arena.iter().all(|bytes| *bytes <= tight.cluster.device.memory));
    assert!(words(runner_in(&dir, &["show", "tight.json"]).done()).contains("kernels run again"));
    plan(&["--memory", &kib(60), "-o", "again.json"]).done();
    assert_eq!(read("again.json"), read("tight.json"), "the same again, to the byte");
    plan(&["--memory", &kib(60), "--recompute", "none"]).refused(4, "lane 0 needs ");
    plan(&["--recompute", "full", "-o", "full.json"]).done();
    assert_eq!(Plan::from_json(&read("full.json")).unwrap().recompute.len(), 4);
    plan(&["--memory", &kib(5)]).refused(4, "lane 0 needs ");
    plan(&["--memory", "16G"]).refused(2, "`16G` is no size; write one like 16GiB");
    // The search knows of it too: without recomputation nothing fits.
    let open = ["plan", "--model", network, "--ranks", "2", "--mini-batch", "16"];
    let open = [&open[..], &["--budget", "500"]].concat();
    let open = |more: &[&str]| runner_in(&dir, &[&open[..], more].concat());
    let memory = ["--memory", &kib(55), "-o", "open.json"];
    open(&[&memory[..], &["--recompute", "none"]].concat()).refused(4, "nothing fits");
    open(&memory).done();
    assert!(read("open.json").contains("recompute"));
}

#[test]
fn a_profile_is_a_model() {
    let dir = scratch("profile-plan");
    let profiles = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/profiles/");
    let file = format!("{profiles}pipedream/alexnet.graph.txt");
    let plan = ["plan", "--model", &file, "--cluster", "dgx-a100", "--ranks", "4"];
    runner_in(&dir, &[&plan[..], &["--mini-batch", "512", "-o", "a.json"]].concat()).done();
    runner_in(&dir, &["simulate", "a.json"]).done();
    runner_in(&dir, &["run", "a.json"]).refused(4, "opaque");
    std::fs::write(dir.join("broken.txt"), "node1 -- Conv2d -- forward_compute_time=x\n").unwrap();
    runner_in(&dir, &["plan", "--model", "broken.txt"]).refused(2, "line 1");
}

#[test]
fn other_runtimes_get_their_formats() {
    let dir = scratch("export");
    let make = |model: &str, stages: &str, file: &str| {
        let given = ["--schedule", "1f1b", "--micro-batches", "8", "--cluster", "dgx-a100"];
        // Megatron divides by whole layers.
        let plan =
            ["plan", "--model", model, "--stages", stages, "--split", "balanced", "-o", file];
        runner_in(&dir, &[&plan[..], &given].concat()).done();
    };
    make("vgg16", "4", "vgg.json");
    make("gpt2", "2", "gpt.json");
    let export = |file: &str, format: &str| runner_in(&dir, &["export", file, "--format", format]);
    let csv = export("vgg.json", "pytorch-csv");
    let lanes = Schedule::from_csv(&csv.done().stdout).unwrap().lanes;
    let plan = Plan::from_json(&std::fs::read_to_string(dir.join("vgg.json")).unwrap()).unwrap();
    assert_eq!(lanes, plan.schedule.parse().unwrap().lanes);
    let messages = export("vgg.json", "pytorch-csv-messages");
    assert!(messages.done().stdout.contains("1RECV_F0"), "{messages:#?}");
    assert!(export("vgg.json", "split-points").done().stdout.contains("SplitPoint.BEGINNING"));
    let modules = export("vgg.json", "modules");
    let modules: Vec<Vec<String>> = serde_json::from_str(&modules.done().stdout).unwrap();
    assert_eq!(modules.len(), 4);
    let layout = export("gpt.json", "megatron-layout");
    assert!(layout.done().stdout.starts_with("Et"), "{layout:#?}");
    export("vgg.json", "megatron-layout").refused(2, "describes transformers only");
}

#[test]
fn show_says_why() {
    let dir = scratch("why");
    let plan = ["plan", "--model", "vgg16", "--cluster", "dgx-a100", "--mini-batch", "64"];
    let uneven = ["--cuts", "features.5,features.10", "-o", "p.json"];
    runner_in(&dir, &[&plan[..], &uneven].concat()).done();
    let shown = runner_in(&dir, &["show", "p.json"]);
    let told = &shown.done().stdout;
    for word in ["critical path", "bound by: stage 2", "micro-batches: ", "best move: cut 2 after"]
    {
        assert!(told.contains(word), "{word}: {told}");
    }
}

#[test]
fn measurements_give_parameters_with_their_uncertainty() {
    let dir = scratch("calibrate");
    // Takisawa 2022, Fig. 7, as times relative to one process.
    let points = "m,d,seconds\n1,1,1\n5,2,0.746\n5,4,0.518\n20,8,0.370\n20,16,0.287\n20,32,0.269\n";
    std::fs::write(dir.join("points.csv"), points).unwrap();
    let fitted = runner_in(&dir, &["calibrate", "points.csv", "--layers", "32"]);
    let told = &fitted.done().stdout;
    assert!(told.contains("t_comp = ") && told.contains("±"), "{told}");
    assert!(told.contains("6 points, mean error"), "{told}");
    runner_in(&dir, &["calibrate", "points.csv"]).refused(2, "--layers is missing");
    std::fs::write(dir.join("few.csv"), "1,1,1\n5,2,0.7\n").unwrap();
    runner_in(&dir, &["calibrate", "few.csv", "--layers", "32"]).refused(2, "at least 5");
    std::fs::write(dir.join("bad.csv"), "m,d,seconds\n5,0,1\n").unwrap();
    runner_in(&dir, &["calibrate", "bad.csv", "--layers", "32"]).refused(2, "line 2");
    let plan = ["plan", "--model", "digits-cnn", "--stages", "2", "--schedule", "1f1b"];
    runner_in(&dir, &[&plan[..], &["--micro-batches", "4", "-o", "p.json"]].concat()).done();
    runner_in(&dir, &["simulate", "p.json", "-o", "trace.json"]).done();
    let traced = runner_in(&dir, &["calibrate", "trace.json"]);
    let told = &traced.done().stdout;
    assert!(told.contains("stage  pass") && told.contains("link: "), "{told}");
}

#[test]
fn forms_stand_side_by_side() {
    let dir = scratch("forms");
    let forms = runner_in(&dir, &["forms", "--model", "vgg16", "--devices", "8"]);
    let told = &forms.done().stdout;
    for form in [
        "one device",
        "DataParallel",
        "DistributedDataParallel",
        "ZeRO-1",
        "ZeRO-2",
        "pipeline x data",
    ] {
        assert!(told.contains(form), "{form}: {told}");
    }
    let deep =
        runner_in(&dir, &["forms", "--model", "mlp4", "--devices", "9", "--mini-batch", "36"]);
    let told = &deep.done().stdout;
    assert!(told.contains("at most 4 stages") && told.contains("ZeRO-1     "), "{told}");
}

#[test]
fn classes_of_image_networks_follow_the_data_set() {
    let dir = scratch("plan-classes");
    let plan = |model: &str, data: &str, more: &[&str]| {
        let args = ["plan", "--model", model, "--data", data, "--ranks", "1", "-o", "plan.json"];
        let sizes = ["--schedule", "gpipe", "--stages", "1", "--micro-batches", "1"];
        runner_in(&dir, &[&args[..], &sizes, more].concat())
    };
    let model = || {
        let text = std::fs::read_to_string(dir.join("plan.json")).unwrap();
        Plan::from_json(&text).unwrap().model.graph().unwrap()
    };
    let planned = plan("resnet18:32", "cifar10:there", &[]);
    planned.done();
    assert!(planned.stderr.contains("cifar10:there has 10 classes, and so has resnet18:32"));
    assert_eq!(model().name(), "resnet18:32,classes=10");
    plan("resnet18:32", "synthetic", &[]).done();
    assert_eq!(model().name(), "resnet18:32");
    plan("resnet18:32", "synthetic", &["--classes", "7"]).done();
    assert_eq!(model().name(), "resnet18:32,classes=7");
    // A head of more classes is one's own affair, of fewer a mistake.
    plan("resnet18:32,classes=200", "cifar100:there", &[]).done();
    assert_eq!(model().name(), "resnet18:32,classes=200");
    let few = "10 classes are asked for, cifar100:there has 100";
    plan("resnet18:32", "cifar100:there", &["--classes", "10"]).refused(2, few);
    plan("resnet18:32,classes=10", "cifar100:there", &[]).refused(2, few);
    plan("mlp4", "cifar100:there", &[])
        .refused(2, "cifar100:there has 100 classes, mlp4 tells 10 apart");
    let fixed = "--classes 7: digits-cnn tells 10 classes apart, and no other number of them";
    plan("digits-cnn", "synthetic", &["--classes", "7"]).refused(2, fixed);
    plan("gpt2", "synthetic", &["--classes", "7"]).refused(2, "gpt2 does not classify samples");
}

/// The split is chosen by the simulated step unless another is asked for; its name and its bound are said.
#[test]
fn the_split_is_the_best_unless_another_is_asked_for() {
    let dir = scratch("splits");
    let given = ["plan", "--model", "resnet18:64", "--stages", "4", "--schedule", "1f1b"];
    let given = [&given[..], &["--micro-batches", "8", "--cluster", "dgx-1-p100"]].concat();
    let plan = |more: &[&str]| {
        let ended = runner_in(&dir, &[&given[..], more, &["-o", "plan.json"]].concat());
        let told = words(ended.done());
        let text = std::fs::read_to_string(dir.join("plan.json")).unwrap();
        (Plan::from_json(&text).unwrap(), told)
    };
    let (best, told) = plan(&[]);
    assert!(told.contains("split: exact, ") && told.contains("% faster than balanced"), "{told}");
    assert!(told.contains("no cuts take less than ") && told.contains("% from the best"), "{told}");
    assert_eq!(plan(&["--split", "exact"]).0, best);
    for other in ["balanced", "uniform"] {
        let (plan, told) = plan(&["--split", other]);
        assert!(told.contains(&format!("split: {other}\n")), "{told}");
        assert!(plan.prediction.step_ns > best.prediction.step_ns, "{other}");
    }
    let json = runner_in(&dir, &[&given[..], &["--json", "-o", "plan.json"]].concat());
    let json: serde_json::Value = serde_json::from_str(&json.done().stdout).unwrap();
    assert_eq!(json["split"], "exact");
    let [step, bound, even] =
        ["step_ns", "split_bound_ns", "balanced_step_ns"].map(|key| json[key].as_u64().unwrap());
    assert!(bound <= step && step < even, "{json}");
    // Cuts that are given stay as they are.
    let cuts = ["--cuts", "layer1.0,layer3.0", "--schedule", "1f1b", "--micro-batches", "8"];
    let cuts = [&["plan", "--model", "resnet18:64", "-o", "plan.json"], &cuts[..]].concat();
    let told = words(runner_in(&dir, &cuts).done());
    assert!(!told.contains("split:"), "{told}");
}

/// Attention alone is computed again: as many losses, to the bit, in a longer step and no more memory.
#[test]
fn attention_alone_is_computed_again() {
    let dir = scratch("selective");
    let gpt = "transformer:layers=2,hidden=64,heads=4,sequence=32,vocabulary=64";
    let given = ["plan", "--stages", "2", "--schedule", "1f1b", "--micro-batches", "2"];
    let given = [&given[..], &["--mini-batch", "8", "--steps", "3", "-o", "plan.json"]].concat();
    let made = |recompute: &str| {
        let asked = [&given[..], &["--model", gpt, "--recompute", recompute]].concat();
        runner_in(&dir, &asked).done();
        runner_in(&dir, &["plan.json", "--out", recompute]).done();
        let plan = Plan::from_json(&std::fs::read_to_string(dir.join("plan.json")).unwrap());
        let text = std::fs::read_to_string(dir.join(recompute).join("result.json")).unwrap();
        let result: serde_json::Value = serde_json::from_str(&text).unwrap();
        (plan.unwrap(), result["loss"].as_f64().unwrap())
    };
    let ((none, whole), (selective, again)) = (made("none"), made("selective"));
    assert_eq!(again.to_bits(), whole.to_bits());
    assert!(selective.recompute.iter().any(|sequence| !sequence.0.is_empty()));
    assert!(selective.prediction.step_ns > none.prediction.step_ns);
    let peak = |plan: &Plan| plan.prediction.arena.iter().max().copied();
    assert!(peak(&selective) <= peak(&none));
    let wrong = [&given[..], &["--model", "vgg16", "--recompute", "selective"]].concat();
    runner_in(&dir, &wrong)
        .refused(2, "--recompute selective is for attention, and `vgg16` has none");
}

/// What a stage sends in half precision takes half of the bytes.
#[test]
fn sent_bytes_are_those_that_are_stored() {
    let dir = scratch("sent");
    let sent = |precision: &str| {
        let given = ["plan", "--model", "resnet18:32", "--mini-batch", "8", "--stages", "2"];
        let how = ["--schedule", "1f1b", "--micro-batches", "2", "--split", "uniform"];
        let asked = [&given[..], &how, &["--precision", precision, "-o", "plan.json"]].concat();
        runner_in(&dir, &asked).done();
        let shown = runner_in(&dir, &["show", "plan.json", "--json"]).done().stdout.clone();
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        shown["stage_list"][0]["sends_bytes"].as_u64().unwrap()
    };
    assert_eq!((sent("f32"), sent("bf16")), (2 * sent("f16"), sent("f16")));
}
