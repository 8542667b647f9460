//! Initial weights from files: what a network learnt elsewhere.
//!
//! [`open`] finds out what a path is, [`check`] compares it with the network, [`load`] gives a rank
//! its part. Tensors are found by the parameters' names.

mod map;
mod onnx;
mod safetensors;

pub use map::turn;

use crate::checkpoint::{CheckpointError, MANIFEST, Resume};
use crate::execute::Rank;
use crate::failure::Failure;
use crate::onnx::{OnnxFile, OnnxFileError};
use crate::tensor_file::TensorFileError;
use pipewright_core::graph::{Graph, Op, Param};
use safetensors::Safetensors;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Most tensors that an error lists.
const LISTED: usize = 20;

/// Named tensors, wherever they lie.
pub trait WeightSource: Send + Sync {
    /// Where they lie, for messages.
    fn path(&self) -> &Path;

    /// The names of all of them.
    fn names(&self) -> Vec<String>;

    /// The shape of one, if there is one of that name.
    fn shape(&self, name: &str) -> Option<Vec<u64>>;

    /// What a network that takes them does otherwise than the one that they are of.
    fn note(&self) -> Option<&'static str> {
        None
    }

    /// Writes the values of one into `into`, in single precision and row-major.
    ///
    /// # Errors
    /// When they cannot be read.
    ///
    /// # Panics
    /// When there is no such tensor or `into` is not as long.
    fn read(&self, name: &str, into: &mut [f32]) -> Result<(), TensorFileError>;
}

/// Why weights cannot be used.
#[derive(Debug, Error)]
pub enum WeightsError {
    /// A file of tensors that cannot be read.
    #[error(transparent)]
    File(#[from] TensorFileError),
    /// An ONNX file that cannot be read.
    #[error(transparent)]
    Onnx(#[from] OnnxFileError),
    /// A checkpoint that cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A list of files that is none.
    #[error("{}: not an index of safetensors files: {why}", path.display())]
    Index {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A file of an unknown kind.
    #[error(
        "{}: weights are read from .safetensors files, from their index (.safetensors.index.json), \
         from .onnx files and from checkpoints", path.display()
    )]
    Kind {
        /// The file.
        path: PathBuf,
    },
    /// A known network's, and not this one's.
    #[error("{}: {why}", path.display())]
    Unfit {
        /// The source.
        path: PathBuf,
        /// What was recognised, and what is missing.
        why: String,
    },
    /// Parameters without values.
    #[error("{}: no values for {count} of the model's parameters: {list}", path.display())]
    Missing {
        /// The source.
        path: PathBuf,
        /// How many.
        count: usize,
        /// Their names and shapes.
        list: String,
    },
    /// A parameter of another shape.
    #[error(
        "{}: tensor `{name}` has the shape {found:?}, the model's parameter has {wanted:?}",
        path.display()
    )]
    Shape {
        /// The source.
        path: PathBuf,
        /// The parameter.
        name: String,
        /// Its shape in the file.
        found: Vec<u64>,
        /// Its shape in the model.
        wanted: Vec<u64>,
    },
}

/// Opens a file of tensors, the index of several, a checkpoint, the newest of a run's, or the ONNX
/// file that `graph` came from. Names of Hugging Face's transformers are those of `graph` afterwards.
///
/// # Errors
/// When it is none of these or cannot be read.
pub fn open(path: &Path, graph: &Graph) -> Result<Box<dyn WeightSource>, WeightsError> {
    if path.extension().is_some_and(|end| end.eq_ignore_ascii_case("onnx")) {
        let file = OnnxFile::open_for(path, graph)?;
        file.check_values()?;
        return Ok(Box::new(file));
    }
    map::adapt(open_tensors(path)?, graph)
}

/// Opens weights that fit a network. What it has no use for is said where this process `speaks`.
///
/// # Errors
/// As [`open`] and [`check`].
pub fn open_fitting(
    path: &Path,
    graph: &Graph,
    speaks: bool,
) -> Result<Box<dyn WeightSource>, Failure> {
    let refused = |e: WeightsError| Failure::usage(format!("weights {e}"));
    let source = open(path, graph).map_err(refused)?;
    let unused = check(source.as_ref(), graph).map_err(refused)?;
    if let (true, Some(note)) = (speaks, source.note()) {
        warn!("{}: {note}", path.display());
    }
    if let (true, Some(first)) = (speaks, unused.first()) {
        let (path, count) = (path.display(), unused.len());
        let (tensors, are) = if count == 1 { ("tensor", "is") } else { ("tensors", "are") };
        warn!("{path}: {count} {tensors} {are} not of the model, such as `{first}`");
    }
    Ok(source)
}

/// Opens everything but ONNX files.
///
/// # Errors
/// As [`open`].
pub fn open_tensors(path: &Path) -> Result<Box<dyn WeightSource>, WeightsError> {
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    Ok(Box::new(if path.is_dir() {
        Safetensors::checkpoint(&checkpoint(path)?)?
    } else if name == MANIFEST {
        Safetensors::checkpoint(path.parent().unwrap_or(Path::new(".")))?
    } else if name.ends_with(".safetensors.index.json") {
        Safetensors::index(path)?
    } else if name.ends_with(".safetensors") {
        Safetensors::file(path)?
    } else {
        return Err(WeightsError::Kind { path: path.into() });
    }))
}

/// The checkpoint that a folder is, or the newest in it.
fn checkpoint(folder: &Path) -> Result<PathBuf, CheckpointError> {
    let found = Resume::find(&folder.to_string_lossy(), None)?;
    let newest = found.candidates.into_iter().next();
    newest.map(|c| c.folder).ok_or_else(|| CheckpointError::Nowhere { path: folder.into() })
}

/// Compares a source with the parameters of a network; returns the names of tensors that the
/// network has no use for. The copy of a tied table takes the table's values and needs none.
///
/// # Errors
/// All parameters without values, or the first of another shape.
pub fn check(source: &dyn WeightSource, graph: &Graph) -> Result<Vec<String>, WeightsError> {
    let path = || source.path().to_owned();
    let tied = tied_names(graph);
    let own = |param: &&Param| !tied.contains(&param.name.as_str());
    let params: Vec<&Param> = graph.params().iter().filter(own).collect();
    let missing: Vec<&&Param> =
        params.iter().filter(|param| source.shape(&param.name).is_none()).collect();
    if !missing.is_empty() {
        let mut list: Vec<String> =
            missing.iter().take(LISTED).map(|p| format!("`{}` {:?}", p.name, p.shape)).collect();
        if missing.len() > LISTED {
            list.push(format!("and {} more", missing.len() - LISTED));
        }
        let (count, list) = (missing.len(), list.join(", "));
        return Err(WeightsError::Missing { path: path(), count, list });
    }
    for param in params {
        let found = source.shape(&param.name).unwrap_or_default();
        if found != param.shape {
            let (name, wanted) = (param.name.clone(), param.shape.clone());
            return Err(WeightsError::Shape { path: path(), name, found, wanted });
        }
    }
    let known: BTreeSet<&str> = graph.params().iter().map(|param| param.name.as_str()).collect();
    // PyTorch counts the mini-batches that a batch normalisation has seen; no result depends on it.
    let used = |name: &str| known.contains(name) || name.ends_with("num_batches_tracked");
    Ok(source.names().into_iter().filter(|name| !used(name)).collect())
}

/// The parameters that are copies of a tied table.
fn tied_names(graph: &Graph) -> Vec<&str> {
    let tied = graph.nodes().iter().filter(|node| matches!(node.op, Op::TiedLinear { .. }));
    tied.flat_map(|node| &node.params).map(|id| graph.param(*id).name.as_str()).collect()
}

/// Gives a rank's parameters their values.
///
/// # Errors
/// When the files cannot be read any more.
pub fn load<T>(rank: &mut Rank<T>, source: &dyn WeightSource) -> Result<(), TensorFileError> {
    for tensor in rank.persistent_state() {
        if let Some(name) = &tensor.begins_as {
            rank.fill(&tensor, |values| source.read(name, values))?;
        }
    }
    Ok(())
}
