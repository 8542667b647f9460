//! The model of a command line: a preset, an ONNX file, a profile file.

use crate::args::OnnxArgs;
use crate::failure::Failure;
use crate::onnx::OnnxFile;
use pipewright_core::cost::{Cluster, import};
use pipewright_core::graph::Graph;
use pipewright_core::graph::presets::Preset;
use pipewright_core::hf;
use pipewright_core::plan::Model;
use std::path::Path;

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
    if !path.is_file() {
        let preset: Preset = name.parse().map_err(|e| Failure::usage(format!("{e}")))?;
        return Ok(Model::Preset(preset));
    }
    let text = std::fs::read_to_string(path).map_err(|e| Failure::file(path, &e))?;
    let named = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("profile");
    let work = import::read(named, &text).map_err(|e| Failure::usage(format!("{name}: {e}")))?;
    let (graph, profile) = work.network().map_err(|e| Failure::usage(format!("{name}: {e}")))?;
    cluster.profile = Some(profile);
    Ok(Model::Graph(graph))
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
    let text = std::fs::read_to_string(&file).map_err(|e| Failure::file(&file, &e))?;
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
        eprintln!(
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
    let file = OnnxFile::open(path, &args.options()?).map_err(|e| Failure::usage(e.to_string()))?;
    let imported = file.imported();
    for warning in &imported.warnings {
        eprintln!("warning: {}: {warning}", path.display());
    }
    if !imported.unsupported.is_empty() {
        let count = imported.unsupported.len();
        eprintln!(
            "warning: {}: {count} operations are not supported; the network can be planned, not \
             trained:",
            path.display()
        );
        for one in &imported.unsupported {
            eprintln!("  {} `{}`: {}", one.op, one.node, one.why);
        }
    }
    Ok(imported.graph.clone())
}
