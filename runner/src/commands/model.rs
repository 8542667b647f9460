//! The model of a command line: a preset, an ONNX file, a profile file.

mod opaque;

pub(super) use opaque::{priced, without};

use crate::args::OnnxArgs;
use crate::failure::Failure;
use crate::files;
use crate::onnx::OnnxFile;
use pipewright_core::cost::{Cluster, import};
use pipewright_core::graph::Graph;
use pipewright_core::graph::presets::Preset;
use pipewright_core::hf;
use pipewright_core::plan::Model;
use std::io::ErrorKind;
use std::path::Path;

/// Longest ONNX file, as Protocol Buffers have it; weights may lie in others.
const ONNX_MAX: u64 = 2 << 30;

/// A preset's name, Hugging Face's config.json, an ONNX file, or a profile file, whose times become the
/// cluster's.
pub(super) fn read_model(
    name: &str,
    onnx: &OnnxArgs,
    cluster: &mut Cluster,
) -> Result<Model, Failure> {
    if let Some(path) = name.strip_prefix("hf:") {
        return Ok(Model::Graph(read_hf(Path::new(path), onnx)?));
    }
    let path = Path::new(name);
    let is_onnx = is_onnx(path);
    if !is_onnx && onnx.is_given() {
        return Err(Failure::usage(format!("--loss and --size are for ONNX files, not `{name}`")));
    }
    if is_onnx {
        return Ok(Model::Graph(read_onnx(path, onnx)?));
    }
    if !path.exists() || path.is_dir() {
        let preset: Preset = name.parse().map_err(|e| not_here(name, &format!("{e}")))?;
        return Ok(Model::Preset(preset));
    }
    let weights = ["pt", "pth", "bin", "ckpt", "safetensors", "h5", "npz"];
    let end = path.extension().and_then(|end| end.to_str()).unwrap_or_default();
    if weights.contains(&end.to_ascii_lowercase().as_str()) {
        return Err(no_network(name, "weights without their network"));
    }
    let text = match files::read_text(path) {
        Ok(text) if is_configuration(&text) => {
            return Err(Failure::usage(format!(
                "{name}: a configuration of Hugging Face; --model hf:{name} makes its network"
            )));
        }
        Ok(text) => text,
        Err(e) if e.kind() == ErrorKind::InvalidData => {
            return Err(no_network(name, "no text, so no profile"));
        }
        Err(e) => return Err(Failure::file(path, &e)),
    };
    let named = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("profile");
    let work = import::read(named, &text).map_err(|e| Failure::usage(format!("{name}: {e}")))?;
    let (graph, profile) = work.network().map_err(|e| Failure::usage(format!("{name}: {e}")))?;
    cluster.profile = Some(profile);
    Ok(Model::Graph(graph))
}

/// The way from PyTorch.
const EXPORT: &str =
    "export the module: torch.onnx.export(model, example, \"net.onnx\"), then --model net.onnx";

fn no_network(name: &str, what: &str) -> Failure {
    Failure::usage(format!("{name}: {what}; {EXPORT}"))
}

/// No file and no preset.
fn not_here(name: &str, unknown: &str) -> Failure {
    if let Some(why) = Preset::fault(name) {
        return Failure::usage(why);
    }
    match name.contains('/') {
        true => Failure::usage(format!(
            "{name}: there is no such file, and models are not fetched from anywhere; {EXPORT}"
        )),
        false => Failure::usage(unknown),
    }
}

/// Whether a text is what Hugging Face's `config.json` is.
fn is_configuration(text: &str) -> bool {
    #[derive(serde::Deserialize)]
    struct Configuration {
        #[serde(rename = "model_type")]
        _model: String,
    }
    serde_json::from_str::<Configuration>(text).is_ok()
}

/// The network of a `config.json`, or of the one in a folder.
fn read_hf(path: &Path, args: &OnnxArgs) -> Result<Graph, Failure> {
    let options = args.options()?;
    let sequence = options.sizes.get("sequence").copied();
    if args.loss.is_some() || options.sizes.len() > usize::from(sequence.is_some()) {
        return Err(Failure::usage(
            "of Hugging Face's networks --size sequence=NUMBER can be said, and no --loss",
        ));
    }
    let file = if path.is_dir() { path.join("config.json") } else { path.into() };
    let text = files::read_text(&file).map_err(|e| Failure::file(&file, &e))?;
    let refused = |e: hf::HfError| Failure::usage(format!("{}: {e}", file.display()));
    // A config.json says who it is by its folder.
    let folder = std::path::absolute(&file).ok().and_then(|file| Some(file.parent()?.to_owned()));
    let name = folder.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy());
    let name = name.filter(|_| file.ends_with("config.json")).map_or_else(
        || file.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        |name| name.into_owned(),
    );
    let hf::Imported { graph, length, length_max } =
        hf::read(&name, &text, sequence).map_err(refused)?;
    if sequence.is_none() && length < length_max {
        note!(
            "{name}: samples of {length} tokens; it takes up to {length_max}: --size sequence=NUMBER"
        );
    }
    Ok(graph)
}

/// Whether a model's name is that of an ONNX file.
pub(super) fn is_onnx(path: &Path) -> bool {
    path.extension().is_some_and(|end| end.eq_ignore_ascii_case("onnx"))
}

/// The network of an ONNX file; what was assumed and what is not supported is printed.
fn read_onnx(path: &Path, args: &OnnxArgs) -> Result<Graph, Failure> {
    if std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() > ONNX_MAX) {
        return Err(Failure::usage(format!(
            "{}: longer than {} GiB, the most that an ONNX file may have; keep weights in a file beside it",
            path.display(),
            ONNX_MAX >> 30
        )));
    }
    let file = OnnxFile::open(path, &args.options()?).map_err(|e| Failure::usage(e.to_string()))?;
    let imported = file.imported();
    for warning in &imported.warnings {
        warn!("{}: {warning}", path.display());
    }
    if !imported.unsupported.is_empty() {
        let count = match imported.unsupported.len() {
            1 => "1 operation is".into(),
            count => format!("{count} operations are"),
        };
        let path = path.display();
        let lines = opaque::lines(&imported.unsupported, args.verbose);
        warn!(
            "{path}: {count} not supported; the network can be planned, not trained:\n  {}",
            lines.join("\n  ")
        );
    }
    Ok(imported.graph.clone())
}
