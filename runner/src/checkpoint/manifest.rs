//! `manifest.json`: which training the tensors belong to and where each of them lies.

use super::seal::{is_whole, seal};
use super::{CheckpointError, MANIFEST};
use crate::execute::{LossScale, Skipped};
use crate::files;
use pipewright_core::adapt::History;
use pipewright_core::elastic::Origin;
use pipewright_core::graph::Graph;
use pipewright_core::plan::{Decay, Plan};
use pipewright_core::schedule::Updates;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

/// Version of the format that this code writes, and the newest that it reads. Those of version 1 have no
/// sum, and their mini-batches were all of one size.
pub const VERSION: u32 = 2;

/// Fields of a plan that may change between a checkpoint and its continuation: where work happens
/// and how long. All others decide what is computed.
const FREE: [&str; 15] = [
    "version",
    "model",
    "cluster",
    "cuts",
    "schedule",
    "recompute",
    "micro_batches",
    "steps",
    "data",
    "prediction",
    "weights",
    "data_parallel",
    "tensor",
    "sequence_parallel",
    "communication",
];

/// The contents of `manifest.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of the format.
    pub version: u32,
    /// Steps that were trained.
    pub step: u64,
    /// Position in the sequence of samples: those that were drawn.
    pub samples: u64,
    /// Mean loss of the last step.
    pub loss: f64,
    /// Steps among them that changed nothing.
    #[serde(default, skip_serializing_if = "Skipped::is_none")]
    pub skipped: Skipped,
    /// The factor of the next step's loss, where the plan's precision needs one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<LossScale>,
    /// Which training this is.
    pub identity: Identity,
    /// How it was divided, for people: any other division can go on from here.
    pub split: SplitRecord,
    /// How what error feedback carries is spread over ranks, where there is some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carried: Option<String>,
    /// What was learned where the way of gradients is chosen while training.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choice: Option<ChoiceRecord>,
    /// The files of tensors.
    pub files: Vec<FileRecord>,
    /// CRC-32C of all that stands before it in the file; none in a file of version 1, and in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crc32c: Option<u32>,
}

/// What a choice while training goes on from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChoiceRecord {
    /// The way that gradients take.
    pub way: String,
    /// The learning curve so far.
    pub history: History,
}

/// What a checkpoint and the plan that continues it must have in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// The network.
    pub model: ModelRecord,
    /// Samples of the training set; the order of samples depends on it.
    pub train_samples: u64,
    /// The division, where it decides what is trained: with asynchronous updates.
    pub asynchronous: Option<SplitRecord>,
    /// The fields of the plan that decide what is computed: seed, optimizer, mini-batch and so on.
    pub settings: BTreeMap<String, Value>,
}

/// A network, told apart by its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelRecord {
    /// Its name, for people.
    pub name: String,
    /// Number of parameter tensors.
    pub parameters: u64,
    /// FNV-1a of their names and shapes in the graph's order, 16 hexadecimal digits.
    pub fingerprint: String,
}

/// How the run that saved was divided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SplitRecord {
    /// First nodes of the stages after the first.
    pub cuts: Vec<u32>,
    /// The schedule's name.
    pub schedule: String,
    /// Micro-batches of a step.
    pub micro_batches: u32,
    /// Copies of the pipeline.
    pub replicas: u32,
    /// Ranks of a tensor group.
    #[serde(default = "undivided", skip_serializing_if = "is_undivided")]
    pub tensor: u32,
}

fn undivided() -> u32 {
    1
}

fn is_undivided(tensor: &u32) -> bool {
    *tensor == undivided()
}

/// One file of tensors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileRecord {
    /// Its name in the checkpoint's folder.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// Its CRC-32C.
    pub crc32c: u32,
    /// The tensors in it.
    pub tensors: Vec<String>,
}

impl Manifest {
    /// Reads the manifest of the checkpoint in `folder`.
    ///
    /// # Errors
    /// When it cannot be read, is damaged or too new.
    pub fn read(folder: &Path) -> Result<Self, CheckpointError> {
        #[derive(Deserialize)]
        struct Version {
            version: u64,
        }
        let path = folder.join(MANIFEST);
        let text = match files::read_text(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == ErrorKind::InvalidData => {
                return Err(CheckpointError::Manifest { path, why: "not text".into() });
            }
            Err(source) => return Err(CheckpointError::File { path, source }),
        };
        let broken = |e: serde_json::Error| CheckpointError::Manifest {
            path: path.clone(),
            why: e.to_string(),
        };
        // The version first: a newer manifest may have fields that this program does not know.
        let Version { version: found } = serde_json::from_str(&text).map_err(broken)?;
        if found > u64::from(VERSION) {
            return Err(CheckpointError::Version { path, found });
        }
        let mut manifest: Self = serde_json::from_str(&text).map_err(broken)?;
        if (found > 1 || manifest.crc32c.is_some()) && !is_whole(&text) {
            let why = "its checksum is not that of its content".into();
            return Err(CheckpointError::Manifest { path, why });
        }
        manifest.crc32c = None;
        let inside = |file: &FileRecord| !file.name.contains('/') && !file.name.starts_with('.');
        if let Some(file) = manifest.files.iter().find(|file| !inside(file)) {
            let why = format!("`{}` is no file of its folder", file.name);
            return Err(CheckpointError::Manifest { path, why });
        }
        Ok(manifest)
    }

    /// The file.
    pub fn text(&self) -> String {
        let plain = Self { version: VERSION, crc32c: None, ..self.clone() };
        seal(&serde_json::to_string_pretty(&plain).expect("plain data"))
    }

    /// Where training goes on.
    pub fn origin(&self) -> Origin {
        Origin { step: self.step, samples: self.samples }
    }

    /// Whether a plan can go on from here; `folder` is for the message.
    ///
    /// # Errors
    /// The first thing that differs.
    pub fn check(&self, plan: &Identity, folder: &Path) -> Result<(), CheckpointError> {
        const ANEW: &str = "; --weights with this folder begins anew from its weights";
        let other = |what: &str, found: String, wanted: String, advice| CheckpointError::Other {
            path: folder.into(),
            what: what.into(),
            found,
            wanted,
            advice,
        };
        let (here, there) = (&self.identity, plan);
        if here.model.fingerprint != there.model.fingerprint {
            return Err(other("the model", here.model.describe(), there.model.describe(), ""));
        }
        for (name, wanted) in &there.settings {
            let found = here.settings.get(name).unwrap_or(&Value::Null);
            if !same(found, wanted) {
                return Err(other(name, found.to_string(), wanted.to_string(), ANEW));
            }
        }
        // Fields are left out of plans where they have their usual value.
        let gone = here.settings.iter().find(|(name, _)| !there.settings.contains_key(*name));
        if let Some((name, found)) = gone {
            return Err(other(name, found.to_string(), "not given".into(), ANEW));
        }
        if here.asynchronous != there.asynchronous {
            let [found, wanted] = [here, there].map(|i| i.asynchronous.as_ref());
            let [found, wanted] = [found, wanted].map(SplitRecord::describe);
            return Err(other("the way of updating", found, wanted, ANEW));
        }
        if here.train_samples != there.train_samples {
            let [found, wanted] = [here, there].map(|i| i.train_samples.to_string());
            return Err(other("the number of training samples", found, wanted, ANEW));
        }
        Ok(())
    }
}

impl Identity {
    /// Of a plan that trains on `train_samples` samples.
    pub fn new(plan: &Plan, graph: &Graph, train_samples: u64) -> Self {
        // What becomes of steps that cannot be applied is no part of what is computed. A plan that
        // says itself by which rule its mini-batch is another one goes on with its job's training.
        let mut plan = plan.clone();
        plan.training.skip_nonfinite = None;
        (plan.mini_batch, plan.resized) = (plan.planned_batch(), None);
        let plan = &plan;
        // By way of the text: there, single precision has as many digits as it needs.
        let value = serde_json::to_string(plan).and_then(|text| serde_json::from_str(&text));
        let mut settings: BTreeMap<String, Value> = value.expect("plain data");
        // The cosine reaches its floor at the last step: with it the length of a run counts too.
        let ends = matches!(plan.training.rate.decay, Decay::Cosine { .. });
        settings.retain(|name, _| !FREE.contains(&name.as_str()) || (ends && name == "steps"));
        let updates = plan.schedule.parse().map_or(Updates::Synchronous, |s| s.updates);
        let asynchronous = (updates != Updates::Synchronous).then(|| SplitRecord::new(plan));
        Self { model: ModelRecord::new(graph), train_samples, asynchronous, settings }
    }
}

impl SplitRecord {
    /// How a plan divides the work.
    pub fn new(plan: &Plan) -> Self {
        Self {
            cuts: plan.cuts.clone(),
            schedule: plan.schedule.name.clone(),
            micro_batches: plan.micro_batches,
            replicas: plan.data_parallel.replicas,
            tensor: plan.tensor,
        }
    }

    fn describe(split: Option<&Self>) -> String {
        let Some(Self { cuts, schedule, micro_batches, replicas, tensor }) = split else {
            return "synchronous".into();
        };
        let groups = match tensor {
            1 => String::new(),
            tensor => format!(", tensor groups of {tensor}"),
        };
        format!(
            "{schedule} with cuts {cuts:?}, {micro_batches} micro-batches, {replicas} replicas{groups}"
        )
    }
}

impl ModelRecord {
    fn new(graph: &Graph) -> Self {
        let mut text = String::new();
        for param in graph.params() {
            text.push_str(&format!("{} {:?}\n", param.name, param.shape));
        }
        Self {
            name: graph.name().into(),
            parameters: graph.params().len() as u64,
            fingerprint: format!("{:016x}", crate::hash::fnv1a(text.as_bytes())),
        }
    }

    fn describe(&self) -> String {
        let Self { name, parameters, fingerprint } = self;
        format!("{name} ({parameters} parameters, fingerprint {fingerprint})")
    }
}

/// Equality but for the last bits of a decimal number: settings are single precision.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(k, a)| b.get(k).is_some_and(|b| same(a, b)))
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Number(a), Value::Number(b)) if a.is_f64() || b.is_f64() => {
            a.as_f64().map(|a| a as f32) == b.as_f64().map(|b| b as f32)
        }
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn settings_are_compared_in_single_precision() {
        let rate = |text: &str| -> Value { serde_json::from_str(text).unwrap() };
        assert!(same(&rate(r#"{"rate": 0.1}"#), &rate(r#"{"rate": 0.10000000000000002}"#)));
        assert!(!same(&rate(r#"{"rate": 0.1}"#), &rate(r#"{"rate": 0.100001}"#)));
        assert!(!same(&rate(r#"{"rate": 0.1}"#), &rate(r#"{"rate": 0.1, "clip": 1}"#)));
        // Seeds are whole numbers; in double precision these two would be one.
        assert!(!same(&json!([u64::MAX]), &json!([u64::MAX - 1])));
        assert!(same(&json!([1, "a", null]), &json!([1, "a", null])));
    }
}
