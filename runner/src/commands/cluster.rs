//! `runner cluster`: the machines that plans can be made for.

use super::figures;
use crate::args::{ClusterArgs, ClusterChanges};
use crate::failure::{Code, Failure};
use pipewright_core::cost::{CLUSTERS, Cluster};
use serde_json::{Value, json};
use std::path::Path;

/// Runs the command.
pub fn cluster(args: &ClusterArgs) -> Result<(), Failure> {
    let Some(name) = &args.cluster else {
        if args.changes.is_empty() && args.output == Path::new("-") {
            if args.json {
                figures::print(&object());
                return Ok(());
            }
            return super::write_text(&args.output, &list());
        }
        let message = "name a cluster: runner cluster dgx-a100 --nodes 2 -o mine.json";
        return Err(Failure::usage(message));
    };
    let cluster = read_cluster(name, &args.changes)?;
    let text = serde_json::to_string_pretty(&cluster).expect("plain data") + "\n";
    super::write_text(&args.output, &text)
}

/// A line for each preset.
fn list() -> String {
    let head =
        [format!("{:<14} {:>5} {:>12} {:>10}  device", "cluster", "nodes", "devices", "memory")];
    let line = |name: &str| {
        let cluster = Cluster::preset(name).expect("of the list");
        let (nodes, device) = (cluster.nodes, &cluster.device);
        let (each, memory) = (cluster.devices_per_node, device.memory.to_string());
        format!("{name:<14} {nodes:>5} {each:>5} a node {memory:>10}  {}", device.name)
    };
    let end = [
        "\nrunner cluster NAME prints one as JSON, to be changed and given to --cluster: docs/clusters.md".into(),
    ];
    head.into_iter().chain(CLUSTERS.map(line)).chain(end).map(|line| line + "\n").collect()
}

/// The presets as JSON.
fn object() -> Value {
    let preset = |name: &str| {
        let cluster = Cluster::preset(name).expect("of the list");
        json!({
            "name": name,
            "nodes": cluster.nodes,
            "devices_per_node": cluster.devices_per_node,
            "memory_bytes": cluster.device.memory.0,
            "device": cluster.device.name,
        })
    };
    json!({ "clusters": CLUSTERS.map(preset) })
}

/// A preset's name or a cluster file, changed.
pub(super) fn read_cluster(name: &str, changes: &ClusterChanges) -> Result<Cluster, Failure> {
    let path = Path::new(name);
    // A folder may be called as a preset is.
    let mut cluster = if path.exists() && !path.is_dir() {
        file(path)?
    } else {
        Cluster::preset(name).map_err(|e| Failure::usage(e.to_string()))?
    };
    changes.apply(&mut cluster);
    cluster.check().map_err(|e| Failure::usage(format!("{name}: {e}")))?;
    Ok(cluster)
}

fn file(path: &Path) -> Result<Cluster, Failure> {
    let name = path.display();
    let text = super::read_text(path)?;
    super::json::read(&text)
        .map_err(|e| Failure::new(Code::Usage, format!("{name}: not a cluster: {e}")))
}
