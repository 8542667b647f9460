//! Going on from a checkpoint, all ranks together.

use super::agree::agree;
use super::error_feedback::read_residuals;
use super::{
    Candidate, CheckpointError, ChoiceRecord, FileRecord, Identity, Manifest, Resume, SplitRecord,
};
use crate::execute::{Rank, Skipped};
use crate::tensor_file::{TensorFile, checksum};
use crate::transport::{ReduceOp, Transport, TransportError};
use pipewright_core::elastic::Origin;
use pipewright_core::plan::Plan;
use std::collections::BTreeMap;
use std::path::Path;

/// Where training begins.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Begun {
    /// Steps that were trained already, and their samples.
    pub origin: Origin,
    /// Mean loss of the last of them; 0 at the very beginning.
    pub loss: f64,
    /// Those that changed nothing.
    pub skipped: Skipped,
    /// What was learned where the way of gradients is chosen while training.
    pub choice: Option<ChoiceRecord>,
}

impl Begun {
    /// Steps in all, these included, when a plan is trained to its end: as many as its samples make.
    pub fn steps(&self, plan: &Plan) -> u64 {
        self.origin.steps(plan.mini_batch, plan.samples_total())
    }
}

/// Sets every tensor of this rank that outlives a step to what the newest whole checkpoint says.
/// `None` where there is none at all: training begins at the start. Collective. Every file is summed by one rank; values are read straight into their place.
///
/// # Errors
/// When a message fails. Within, the same on all ranks; rank 0 knows why.
pub fn load<T: Transport>(
    rank: &mut Rank<T>,
    resume: &Resume,
    (identity, split): (&Identity, &SplitRecord),
) -> Result<Result<Option<Begun>, CheckpointError>, TransportError> {
    let first = rank.transport.rank() == 0;
    for index in 0.. {
        // Ranks have listed the folder by themselves; rank 0's list counts.
        let mine = resume.candidates.get(index).filter(|_| first);
        let which = |c: &Candidate| [c.step as f64, f64::from(u8::from(c.in_memory))];
        let mut chosen = mine.map_or([-1.0; 2], which);
        rank.transport.all_reduce(&mut chosen, ReduceOp::Max)?;
        let none_left = chosen[0] < 0.0;
        if none_left && index == 0 {
            let seen = resume.candidates.first().map(|c| c.folder.clone());
            let none = seen.map_or(Ok(()), |path| Err(CheckpointError::Unseen { path }));
            let none = agree(&mut rank.transport, none)?;
            return Ok(none.map(|()| None));
        }
        if none_left {
            break;
        }
        let candidate = resume.candidates.iter().find(|c| which(c) == chosen);
        let read = read(rank, candidate, &resume.folder, (identity, split));
        let begun = read.as_ref().ok().cloned();
        match agree(&mut rank.transport, read.map(drop))? {
            Ok(()) => return Ok(Ok(begun)),
            Err(error) if !resume.falls_back => return Ok(Err(error)),
            Err(error) if first => warn!("{error}; trying the checkpoint before"),
            Err(_) => {}
        }
    }
    let path = resume.folder.clone();
    let error = if first { CheckpointError::NoneLeft { path } } else { CheckpointError::Elsewhere };
    Ok(Err(error))
}

/// This rank's part: its share of the sums, and its tensors.
fn read<T: Transport>(
    rank: &mut Rank<T>,
    candidate: Option<&Candidate>,
    folder: &Path,
    (identity, split): (&Identity, &SplitRecord),
) -> Result<Begun, CheckpointError> {
    let Some(Candidate { folder, .. }) = candidate else {
        return Err(CheckpointError::Unseen { path: folder.into() });
    };
    let manifest = Manifest::read(folder)?;
    manifest.check(identity, folder)?;
    let ranks = rank.transport.ranks() as usize;
    let share = manifest.files.iter().skip(rank.transport.rank() as usize).step_by(ranks);
    share.into_iter().try_for_each(|file| verify(folder, file))?;
    rank.go_on_at(manifest.origin());
    let same = manifest.split == *split;
    read_tensors(rank, folder, &manifest, same)?;
    read_residuals(rank, folder, &manifest, same)?;
    rank.set_skipped(manifest.skipped.total);
    if let Some(scale) = manifest.loss_scale {
        rank.set_loss_scale(scale);
    }
    let origin = manifest.origin();
    let Manifest { loss, skipped, choice, .. } = manifest;
    Ok(Begun { origin, loss, skipped, choice })
}

/// Compares a file of the checkpoint in `folder` with what the manifest says of it.
///
/// # Errors
/// When it cannot be read or differs.
pub fn verify(folder: &Path, file: &FileRecord) -> Result<(), CheckpointError> {
    let path = folder.join(&file.name);
    let (bytes, crc32c) = match checksum(&path) {
        Ok(found) => found,
        Err(source) => return Err(CheckpointError::File { path, source }),
    };
    let why = if bytes != file.bytes {
        format!("it has {bytes} bytes, the manifest says {}", file.bytes)
    } else if crc32c != file.crc32c {
        let expected = file.crc32c;
        format!("its checksum is {crc32c:08x}, the manifest says {expected:08x}")
    } else {
        return Ok(());
    };
    Err(CheckpointError::Damaged { path, why })
}

/// Reads what this rank keeps. Its own running statistics are those of its number where the ranks
/// hold what they held (`same`); else it begins with the first rank's, as any new rank would.
fn read_tensors<T>(
    rank: &mut Rank<T>,
    folder: &Path,
    manifest: &Manifest,
    same: bool,
) -> Result<(), CheckpointError> {
    let places: BTreeMap<&str, &str> = manifest
        .files
        .iter()
        .flat_map(|file| file.tensors.iter().map(|t| (t.as_str(), file.name.as_str())))
        .collect();
    let mut open: BTreeMap<&str, TensorFile> = BTreeMap::new();
    for tensor in rank.persistent_state() {
        let wanted = tensor.own_name.as_ref().filter(|_| same).unwrap_or(&tensor.name);
        let missing = || CheckpointError::Missing { path: folder.into(), name: wanted.clone() };
        let name = *places.get(wanted.as_str()).ok_or_else(missing)?;
        if !open.contains_key(name) {
            open.insert(name, TensorFile::open(&folder.join(name))?);
        }
        let file = &open[name];
        if file.shape(wanted).ok_or_else(missing)? != tensor.shape {
            let why = format!("tensor `{wanted}` has another shape than the parameter");
            return Err(CheckpointError::Damaged { path: file.path().into(), why });
        }
        rank.fill(&tensor, |values| file.read(wanted, values))?;
    }
    Ok(())
}
