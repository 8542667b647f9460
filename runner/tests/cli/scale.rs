//! `runner scale`: a plan for each number of devices, its figures and what they cost.

use crate::common::{runner_in, scratch};
use serde_json::Value;

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn close(a: f64, b: f64) {
    assert!((a / b - 1.0).abs() < 1e-9, "{a} is not {b}");
}

#[test]
fn figures_are_of_plans_that_are_simulated() {
    let dir = scratch("scale");
    let args = [
        "scale",
        "--model",
        "gpt2",
        "--devices",
        "2..8",
        "--mini-batch",
        "16",
        "--budget",
        "200",
        "--precision",
        "bf16",
        "--tokens",
        "10e9",
        "--price",
        "2.5/h",
        "-o",
        "plans",
        "--json",
    ];
    let object: Value = serde_json::from_str(&runner_in(&dir, &args).done().stdout).unwrap();
    let sizes = object["sizes"].as_array().unwrap();
    assert_eq!(
        sizes.iter().map(|row| number(&row["devices"])).collect::<Vec<_>>(),
        [2.0, 4.0, 8.0]
    );
    let base = number(&sizes[0]["samples_per_sec"]) / 2.0;
    for row in sizes {
        let devices = number(&row["devices"]);
        let file = format!("plans/plan-{devices}.json");
        let plan = runner_in(&dir, &["check", &file, "--json"]);
        let plan: Value = serde_json::from_str(&plan.done().stdout).unwrap();
        assert_eq!(number(&plan["ranks"]), devices);
        for key in
            ["step_ns", "samples_per_sec", "tokens_per_sec", "mfu", "schedule", "micro_batches"]
        {
            assert_eq!(plan[key], row[key], "{key} of {file}");
        }
        let samples = number(&row["samples_per_sec"]);
        close(samples, 16.0 / (number(&row["step_ns"]) / 1e9));
        close(number(&row["efficiency"]), samples / devices / base);
        let days = 10e9 / number(&row["tokens_per_sec"]) / 86_400.0;
        close(number(&row["days"]), days);
        close(number(&row["cost"]), days * 24.0 * 2.5 * devices);
        assert!((0.0..1.0).contains(&number(&row["mfu"])));
    }
    let text = include_str!("../../../docs/json.md");
    for key in object.as_object().unwrap().keys().chain(sizes[0].as_object().unwrap().keys()) {
        assert!(text.contains(&format!("`{key}`")), "docs/json.md lacks `{key}`");
    }
}

/// Hosts are as many as the devices need, and a size that has no plan says why.
#[test]
fn sizes_that_do_not_fit_say_why() {
    let dir = scratch("scale-rows");
    let args = [
        "scale",
        "--model",
        "digits-cnn",
        "--devices",
        "13,1,16",
        "--mini-batch",
        "16",
        "--schedule",
        "gpipe",
        "--samples",
        "1e6",
        "--svg",
        "scale.svg",
        "-o",
        "plans",
    ];
    let ended = runner_in(&dir, &args);
    let rows: Vec<&str> = ended.done().stdout.lines().skip(2).collect();
    assert_eq!(rows.len(), 3, "{ended:#?}");
    assert!(rows[0].starts_with("      1 ") && rows[0].contains("100.0 %"), "{}", rows[0]);
    assert!(rows[1].starts_with("     13 no plan has what is fixed"), "{}", rows[1]);
    assert!(rows[2].contains("gpipe"), "{}", rows[2]);
    assert!(!dir.join("plans/plan-13.json").exists());
    let text = std::fs::read_to_string(dir.join("plans/plan-16.json")).unwrap();
    let plan: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(plan["cluster"]["nodes"], 2);
    let picture = std::fs::read_to_string(dir.join("scale.svg")).unwrap();
    assert!(picture.starts_with("<svg") && picture.ends_with("</svg>\n"));
    assert_eq!(picture.matches("<circle").count(), 2, "a dot for each size that has a plan");
    let args = ["scale", "--model", "gpt2", "--devices", "1", "--memory", "1GiB", "--budget", "50"];
    let ended = runner_in(&dir, &args);
    ended.refused(4, "no size has a plan");
    assert!(ended.stdout.contains("      1 "), "{ended:#?}");
}

#[test]
fn what_cannot_be_scaled() {
    let dir = scratch("scale-refused");
    let refused = |more: &[&str], words: &str| {
        let args = ["scale", "--model", "vgg16", "--devices"];
        runner_in(&dir, &[&args[..], more].concat()).refused(2, words);
    };
    refused(&["5..7"], "there is no power of two");
    refused(&["0"], "give numbers of 1 to 65536");
    refused(&["2", "--tokens", "1e9"], "does not take tokens; give --samples");
    refused(&["2", "--price", "2/h"], "say how much is trained");
    refused(&["2", "--price", "cheap", "--samples", "1"], "2.5/h");
    refused(&["2", "--tokens", "1e9", "--samples", "1"], "cannot be used with");
    refused(&["2", "--nodes", "2"], "follows from --devices");
    refused(&["2", "--schedule", "order.csv"], "a file has the order of one size");
}
