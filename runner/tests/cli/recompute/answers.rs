//! Answers of the search agree with the checker.

use super::{all_graphs, checked, graph, recompute, unpacked};
use crate::common::scratch;
use pipewright_core::recompute::file::read;
use pipewright_core::recompute::{chen, cost};
use serde_json::Value;
use std::path::Path;

fn json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Sums in another order differ in the last bits.
fn same_time(a: &Value, b: &Value) -> bool {
    let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
    (a - b).abs() <= 1e-3 + 1e-9 * b
}

#[test]
fn every_answer_passes_the_checker() {
    let dir = scratch("recompute-answers");
    for graph in all_graphs() {
        let name = graph.display().to_string();
        let given = |budget| {
            let _ = std::fs::remove_file(dir.join("s.json"));
            let args = ["--budget", budget, "--moves", "20000", "--json", "-o", "s.json"];
            let ended = recompute(&dir, &name, &args);
            let met = ended.code == Some(0);
            assert!(met || ended.code == Some(4), "{name}: {ended:#?}");
            assert_eq!(dir.join("s.json").exists(), met, "{name}: {ended:#?}");
            Some(ended).filter(|_| met)
        };
        // The first that can be met.
        let ended = ["0.6", "0.8", "1.0"].into_iter().find_map(given).unwrap();
        let file = json(&dir.join("s.json"));
        assert!(file["peak_bytes"].as_u64() <= file["budget_bytes"].as_u64(), "{name}");
        let told: Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!((&told["peak_bytes"], told.get("sequence")), (&file["peak_bytes"], None));
        assert!(file["bound_bytes"].as_u64() <= file["peak_bytes"].as_u64());
        let sequence = dir.join("s.json").display().to_string();
        let Some(checked) = checked(&graph, &[&sequence]) else { continue };
        assert_eq!(checked["valid"], true, "{name}: {checked}");
        assert_eq!(checked["peak_bytes"], file["peak_bytes"], "{name}");
        assert!(same_time(&checked["time_us"], &file["time_us"]), "{name}: {checked}");
        assert!(same_time(&checked["memory_pct"], &file["memory_pct"]), "{name}: {checked}");
    }
}

#[test]
fn the_points_of_a_front_pass_the_checker() {
    let dir = scratch("recompute-front");
    for name in super::GRAPHS {
        let args = ["--pareto", "--moves", "100000", "-o", "f.json", "--svg", "f.svg"];
        let ended = recompute(&dir, &graph(name), &args);
        assert!(ended.done().stdout.contains("trade-offs"), "{ended:#?}");
        let front = json(&dir.join("f.json"));
        let points = front["points"].as_array().unwrap();
        assert!(points.len() >= 3, "{name}: {}", points.len());
        for pair in points.windows(2) {
            assert!(pair[0]["peak_bytes"].as_u64() < pair[1]["peak_bytes"].as_u64(), "{name}");
            assert!(pair[0]["time_us"].as_f64() > pair[1]["time_us"].as_f64(), "{name}");
        }
        assert!(same_time(&points.last().unwrap()["time_pct"], &100.0.into()), "{name}");
        // Each asks another program: some of them, the least memory among them.
        for point in points.iter().step_by(5) {
            std::fs::write(dir.join("p.json"), point.to_string()).unwrap();
            let path = dir.join("p.json").display().to_string();
            let Some(checked) = checked(graph(name).as_ref(), &[&path]) else { return };
            assert_eq!(checked["peak_bytes"], point["peak_bytes"], "{name}: {checked}");
            assert!(same_time(&checked["time_us"], &point["time_us"]), "{name}: {checked}");
        }
    }
}

#[test]
fn segments_cost_what_the_checker_says() {
    for path in all_graphs() {
        let graph = read(&unpacked(&path)).unwrap();
        for k in [1, 2, 5, 12] {
            let sequence = chen::segments(&graph.problem, &graph.forward(), k);
            assert_eq!(graph.problem.check(&sequence), Ok(()));
            let found = cost(&graph.problem, &sequence);
            let Some(checked) = checked(&path, &["--chen", &k.to_string()]) else { return };
            assert_eq!(checked["peak_bytes"], found.peak, "{}, k = {k}", path.display());
            let time = checked["time_us"].as_f64().unwrap();
            assert!((time - found.time).abs() <= 1e-3 + 1e-9 * time, "{}, k = {k}", path.display());
        }
    }
}

#[test]
fn small_graphs_are_solved_to_the_optimum() {
    let dir = scratch("recompute-optimum");
    let ended = recompute(&dir, &graph("perceptron3"), &["--budget", "0.75"]);
    let told = &ended.done().stdout;
    assert!(told.contains("optimal") && told.contains("proven in"), "{told}");
    // The last layers must run again, or the first: nothing is for nothing.
    let proof =
        recompute(&dir, &graph("unet4"), &["--budget", "0.5", "--moves", "50000", "--bounds"]);
    assert!(proof.done().stdout.contains("no sequence takes less than 1"), "{proof:#?}");
}
