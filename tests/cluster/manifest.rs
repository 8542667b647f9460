//! The manifest for Kubernetes: fields, and that it fits the image and itself.

use crate::text;
use pipewright::Outcome;
use serde_json::Value;
use yaml_rust2::{Yaml, YamlLoader};

const MANIFEST: &str = "scripts/cluster/mpijob.yaml";

/// The same value as JSON.
fn json(yaml: &Yaml) -> Value {
    match yaml {
        Yaml::Hash(fields) => {
            let field =
                |(name, value): (&Yaml, &Yaml)| Some((name.as_str()?.to_owned(), json(value)));
            Value::Object(fields.iter().filter_map(field).collect())
        }
        Yaml::Array(items) => items.iter().map(json).collect(),
        Yaml::Integer(number) => (*number).into(),
        Yaml::Boolean(yes) => (*yes).into(),
        other => other.as_str().map_or(Value::Null, Value::from),
    }
}

fn parsed(text: &str) -> Outcome<Value> {
    Ok(json(YamlLoader::load_from_str(text)?.first().ok_or("an empty file")?))
}

/// What of a value is not as the schema wants it. Fields that it does not name are errors.
fn errors(schema: &Value, value: &Value, at: &str) -> Vec<String> {
    let wrong = |what: &str| vec![format!("{at}: {value} is no {what}")];
    if schema["enum"].as_array().is_some_and(|all| !all.contains(value)) {
        return wrong(&format!("one of {}", schema["enum"]));
    }
    match (schema["type"].as_str().unwrap_or_default(), value) {
        ("string", Value::String(_))
        | ("integer", Value::Number(_))
        | ("boolean", Value::Bool(_)) => {
            vec![]
        }
        ("array", Value::Array(items)) => {
            let item = |(i, item)| errors(&schema["items"], item, &format!("{at}[{i}]"));
            items.iter().enumerate().flat_map(item).collect()
        }
        ("object", Value::Object(fields)) => {
            let needed = schema["required"].as_array().into_iter().flatten();
            let missing =
                needed.filter_map(Value::as_str).filter(|name| !fields.contains_key(*name));
            let mut found: Vec<String> = missing.map(|name| format!("{at}: no {name}")).collect();
            for (name, value) in fields {
                found.extend(match schema["properties"].get(name) {
                    Some(schema) => errors(schema, value, &format!("{at}.{name}")),
                    None => vec![format!("{at}: {name} is unknown")],
                });
            }
            found
        }
        (wanted, _) => wrong(wanted),
    }
}

fn schema() -> Outcome<Value> {
    Ok(serde_json::from_str(&text("tests/data/kubernetes/mpijob.json")?)?)
}

#[test]
fn its_fields_are_those_of_an_mpi_job() -> Outcome<()> {
    let found = errors(&schema()?, &parsed(&text(MANIFEST)?)?, "");
    assert!(found.is_empty(), "{found:#?}");
    Ok(())
}

#[test]
fn mistakes_in_a_manifest_are_seen() -> Outcome<()> {
    let whole = text(MANIFEST)?;
    for (right, wrong, said) in [
        ("slotsPerWorker:", "slotsPerWorkers:", ".spec: slotsPerWorkers is unknown"),
        ("kind: MPIJob", "kind: Job", ".kind: \"Job\" is no one of"),
        (
            "replicas: 2",
            "replicas: two",
            ".spec.mpiReplicaSpecs.Worker.replicas: \"two\" is no integer",
        ),
        ("    Worker:", "    Workers:", ".spec.mpiReplicaSpecs: no Worker"),
        ("name: launcher\n", "title: launcher\n", "containers[0]: no name"),
        ("command: [mpirun]", "command: mpirun", "command: \"mpirun\" is no array"),
    ] {
        let edited = whole.replacen(right, wrong, 1);
        assert_ne!(edited, whole, "{right}");
        let found = errors(&schema()?, &parsed(&edited)?, "");
        assert!(found.iter().any(|error| error.contains(said)), "{wrong}: {found:?}");
    }
    Ok(())
}

#[test]
fn it_fits_the_image_and_itself() -> Outcome<()> {
    let spec = parsed(&text(MANIFEST)?)?["spec"].clone();
    let docker = text("Dockerfile")?;
    let pods = &spec["mpiReplicaSpecs"];
    let launcher = &pods["Launcher"]["template"]["spec"]["containers"][0];
    let worker = &pods["Worker"]["template"]["spec"]["containers"][0];
    // Places for all ranks.
    let ranks: u64 = launcher["args"][1].as_str().ok_or("-n N")?.parse()?;
    assert_eq!(
        spec["slotsPerWorker"].as_u64().zip(pods["Worker"]["replicas"].as_u64()),
        Some((2, 2))
    );
    assert_eq!(ranks, 2 * 2);
    // The user, its home and the daemon's settings are the image's.
    for container in [launcher, worker] {
        let user = container["securityContext"]["runAsUser"].as_u64().ok_or("a user")?;
        assert!(docker.contains(&format!("useradd --create-home --uid {user} ")), "uid {user}");
    }
    let sshd = worker["args"][3].as_str().ok_or("a file of settings")?;
    assert!(docker.contains(&format!("COPY scripts/cluster/image/sshd_config {sshd}\n")), "{sshd}");
    let settings = text("scripts/cluster/image/sshd_config")?;
    let keys = spec["sshAuthMountPath"].as_str().ok_or("a folder of keys")?;
    assert!(settings.contains(&format!("HostKey {keys}/id_rsa\n")), "{keys}");
    // One port for daemon, clients and probe.
    let port = worker["readinessProbe"]["tcpSocket"]["port"].as_u64().ok_or("a port")?;
    for file in [&settings, &text("scripts/cluster/image/ssh_config")?] {
        assert!(file.lines().any(|line| line.trim() == format!("Port {port}")), "{port}: {file}");
    }
    // What is mounted is there.
    for (container, pod) in [(launcher, "Launcher"), (worker, "Worker")] {
        let volumes = pods[pod]["template"]["spec"]["volumes"].as_array().ok_or("volumes")?;
        for mount in container["volumeMounts"].as_array().ok_or("mounts")? {
            assert!(volumes.iter().any(|volume| volume["name"] == mount["name"]), "{mount}");
        }
    }
    Ok(())
}
