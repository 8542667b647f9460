//! ONNX files: the network for a plan, and first values for its parameters.

use pipewright_core::graph::{Graph, Node, Op};
use pipewright_core::ids::ParamId;
use pipewright_core::onnx::{self, Imported, Loss, OnnxError, Options, Place, Source, WeightError};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// A file that was read.
#[derive(Debug)]
pub struct OnnxFile {
    path: PathBuf,
    imported: Imported,
    /// Parameters by name.
    ids: BTreeMap<String, usize>,
}

/// Why a file, or a part of it, cannot be used.
#[derive(Debug, Error)]
pub enum OnnxFileError {
    /// The file cannot be read.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What happened.
        error: io::Error,
    },
    /// It holds no network.
    #[error("{}: {error}", path.display())]
    Network {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: OnnxError,
    },
    /// Values that cannot be had.
    #[error("{}: {error}", path.display())]
    Values {
        /// The file.
        path: PathBuf,
        /// Which, and why.
        error: WeightError<io::Error>,
    },
    /// A file of values that lies elsewhere.
    #[error(
        "{}: the values of {count} parameters, such as `{name}`, are in {}, which is not there; put \
         it beside the model, or plan with `--weights seed` to begin with random values",
        path.display(), missing.display()
    )]
    Elsewhere {
        /// The model.
        path: PathBuf,
        /// The file.
        missing: PathBuf,
        /// Parameters that lie in it.
        count: usize,
        /// The first of them.
        name: String,
    },
    /// A file of values that is a way out of the folder.
    #[error(
        "{}: weights are in `{file}`, a link that leaves the model's folder; copy the file there", path.display()
    )]
    Outside {
        /// The model.
        path: PathBuf,
        /// The file, as the model names it.
        file: String,
    },
    /// A parameter that has no values.
    #[error("{}: there are no values for `{name}`", path.display())]
    NoValues {
        /// The file.
        path: PathBuf,
        /// The parameter.
        name: String,
    },
}

impl OnnxFile {
    /// Reads the network; of other files only what decides what it is. Weights are left there.
    ///
    /// # Errors
    /// When the file cannot be read or holds no network.
    pub fn open(path: &Path, options: &Options) -> Result<Self, OnnxFileError> {
        let file = |error| OnnxFileError::File { path: path.into(), error };
        let bytes = std::fs::read(path).map_err(file)?;
        let named = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let mut options = options.clone();
        if options.name.is_empty() {
            options.name = named.unwrap_or_default();
        }
        let beside = |place: &Place| read_part(path, place).ok();
        let imported = onnx::read_with(bytes, &options, &beside)
            .map_err(|error| OnnxFileError::Network { path: path.into(), error })?;
        if let Some(out) = imported.external_files().iter().find(|file| is_outside(path, file)) {
            return Err(OnnxFileError::Outside { path: path.into(), file: (*out).into() });
        }
        let names = imported.graph.params().iter().enumerate();
        let ids = names.map(|(id, param)| (param.name.clone(), id)).collect();
        Ok(Self { path: path.into(), imported, ids })
    }

    /// Reads the network that a plan's graph came from, for its weights.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_for(path: &Path, graph: &Graph) -> Result<Self, OnnxFileError> {
        let sample = graph.nodes().iter().find_map(|node| match &node.op {
            Op::Input { shape } => Some(shape.clone()),
            Op::Tokens { length, .. } => Some(vec![*length]),
            _ => None,
        });
        let squares = |node: &Node| matches!(node.op, Op::MeanSquaredError);
        let loss = match graph.nodes().iter().any(squares) {
            true => Loss::MeanSquaredError,
            false => Loss::CrossEntropy,
        };
        let options = Options { loss, sample: sample.unwrap_or_default(), ..Options::default() };
        Self::open(path, &options)
    }

    /// Looks for the files in which values of parameters lie.
    ///
    /// # Errors
    /// The first one that is missing.
    pub fn check_values(&self) -> Result<(), OnnxFileError> {
        let folder = self.path.parent().unwrap_or(Path::new(""));
        let file = |source: &Source| match source {
            Source::External { place, .. } => Some(folder.join(&place.file)),
            _ => None,
        };
        let named = self.imported.graph.params().iter().zip(&self.imported.weights);
        let external: Vec<_> =
            named.filter_map(|(p, w)| Some((&p.name, file(&w.source)?))).collect();
        let Some((name, missing)) = external.iter().find(|(_, file)| !file.is_file()) else {
            return Ok(());
        };
        let count = external.iter().filter(|(_, file)| file == missing).count();
        let (path, missing, name) = (self.path.clone(), missing.clone(), (*name).clone());
        Err(OnnxFileError::Elsewhere { path, missing, count, name })
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was read.
    pub fn imported(&self) -> &Imported {
        &self.imported
    }

    /// Names of all parameters.
    pub fn names(&self) -> Vec<String> {
        self.ids.keys().cloned().collect()
    }

    /// Shape of a parameter, if there is one of that name.
    pub fn shape(&self, name: &str) -> Option<Vec<u64>> {
        let id = *self.ids.get(name)?;
        Some(self.imported.graph.params()[id].shape.clone())
    }

    /// Values of a parameter in the layout of the graph, row-major. The bytes come from the file or,
    /// when it says so, from another one in its folder.
    ///
    /// # Errors
    /// When there is no such parameter or its values cannot be read.
    pub fn values(&self, name: &str) -> Result<Vec<f32>, OnnxFileError> {
        let none = || OnnxFileError::NoValues { path: self.path.clone(), name: name.into() };
        let id = *self.ids.get(name).ok_or_else(none)?;
        let read = |place: &Place| read_part(&self.path, place);
        let values = self.imported.tensor(ParamId(id as u32), read);
        let values =
            values.map_err(|error| OnnxFileError::Values { path: self.path.clone(), error })?;
        values.ok_or_else(none)
    }
}

/// Whether a file beside the model is in truth elsewhere: neither in the model's folder nor in the one where
/// the model itself lies, if that is a link. (Caches keep all files in a folder of blobs, behind links.)
fn is_outside(model: &Path, file: &str) -> bool {
    let folder = model.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let Ok(file) = folder.join(file).canonicalize() else { return false };
    let own = model.canonicalize().ok().and_then(|model| Some(model.parent()?.to_owned()));
    let homes = [folder.canonicalize().ok(), own];
    !homes.iter().flatten().any(|home| file.starts_with(home))
}

/// The bytes of a part of a file that lies beside the model.
fn read_part(model: &Path, place: &Place) -> io::Result<Vec<u8>> {
    if is_outside(model, &place.file) {
        return Err(io::Error::other("a link that leaves the model's folder"));
    }
    let mut file = File::open(model.parent().unwrap_or(Path::new("")).join(&place.file))?;
    // Asked before memory is: a length that the file does not have costs nothing.
    let there = file.metadata()?.len();
    if place.offset.checked_add(place.length).is_none_or(|end| end > there) {
        let why = format!("the file has {there} bytes");
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
    }
    file.seek(SeekFrom::Start(place.offset))?;
    let mut bytes = vec![0; place.length as usize];
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}
