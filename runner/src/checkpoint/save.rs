//! Saving a checkpoint, all ranks together.

use super::agree::agree;
use super::error_feedback::write_residuals;
use super::folder::{name, part, prune, remove, remove_begun, sync};
use super::{
    CheckpointError, ChoiceRecord, FileRecord, Hosts, Identity, MANIFEST, Manifest, SplitRecord,
    VERSION, spread,
};
use crate::execute::{LossScale, PersistentTensor, Rank, Skipped, StepPhase};
use crate::fence::Fence;
use crate::tensor_file::{Tensor, write};
use crate::transport::{Transport, TransportError};
use pipewright_core::elastic::Origin;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// When and where a run saves, and what it says of itself.
#[derive(Clone, Debug)]
pub struct Saver {
    /// The folder of checkpoints.
    pub folder: PathBuf,
    /// Steps between two; 0 saves only at the end.
    pub every: u64,
    /// Newest ones that are kept, at least one.
    pub keep: usize,
    /// Which training this is.
    pub identity: Identity,
    /// How it is divided.
    pub split: SplitRecord,
    /// Whether this rank may still write, in an elastic job.
    pub fence: Option<Fence>,
    /// Where the folder is another one on each host: in their memory.
    pub hosts: Option<Hosts>,
}

/// The steps that a checkpoint is of.
#[derive(Clone, Copy, Debug, Default)]
pub struct Steps {
    /// How many were trained, and on how many samples.
    pub trained: Origin,
    /// Mean loss of the last.
    pub loss: f64,
    /// Those among them that changed nothing.
    pub skipped: Skipped,
    /// The checkpoint after so many steps stays, however many newer ones there are.
    pub spare: Option<u64>,
}

/// What a manifest says beside the files.
pub(super) struct Known {
    pub steps: Steps,
    pub carried: Option<String>,
    pub choice: Option<ChoiceRecord>,
    pub loss_scale: Option<LossScale>,
}

impl Saver {
    /// Whether to save after `end` steps of training, when the last chance was after `start`.
    pub fn is_due(&self, start: u64, end: u64) -> bool {
        self.every > 0 && end / self.every > start / self.every
    }
}

/// Saves a checkpoint after `steps` of training. Collective: when this returns without error on one
/// rank, the checkpoint is on the disk and all ranks know. Allocates little more than the list of tensors.
///
/// # Errors
/// When a message fails. Within, the same on all ranks: rank 0 knows which rank failed and why. The
/// checkpoints before this one are as they were, and nothing of this one is left.
pub fn save<T: Transport>(
    rank: &mut Rank<T>,
    saver: &Saver,
    steps: Steps,
    choice: Option<ChoiceRecord>,
) -> Result<Result<(), CheckpointError>, TransportError> {
    let (carried, loss_scale) = (rank.carried_layout(), rank.loss_scale());
    let known = Known { steps, carried, choice, loss_scale };
    let step = steps.trained.step;
    if let Some(hosts) = &saver.hosts {
        return spread::save(rank, saver, hosts, known);
    }
    let first = rank.transport.rank() == 0;
    let begun = saver.folder.join(part(step));
    let made = if first { begin(&saver.folder, &begun) } else { Ok(()) };
    if let Err(error) = agree(&mut rank.transport, made)? {
        return Ok(Err(error));
    }
    let whole = rank.gather_shards()?;
    let written = write_stages(rank, &begun, &whole).map_err(|e| e.to_string());
    let reports = collect(&mut rank.transport, &written)?;
    rank.at(StepPhase::Rename);
    let committed = reports.map_or(Ok(()), |all| commit(saver, &begun, known, all));
    if committed.is_err() {
        // What counts is the first error; this folder is no checkpoint in any case.
        let _ = remove(&begun);
    }
    if let Err(error) = agree(&mut rank.transport, committed)? {
        return Ok(Err(error));
    }
    if first && let Err(e) = prune(&saver.folder, step, saver.keep, steps.spare) {
        warn!("older checkpoints stay: {e}");
    }
    Ok(Ok(()))
}

/// Makes the folder that this checkpoint is written in.
pub(super) fn begin(folder: &Path, begun: &Path) -> Result<(), CheckpointError> {
    remove_begun(folder)?;
    std::fs::create_dir_all(begun)
        .map_err(|source| CheckpointError::File { path: begun.into(), source })
}

/// Writes one file for each stage that this rank saves something of, with `whole` tensors in place of shards; after an error none of them is
/// left.
pub(super) fn write_stages<T: Transport>(
    rank: &mut Rank<T>,
    folder: &Path,
    whole: &BTreeMap<String, Vec<f32>>,
) -> Result<Vec<FileRecord>, CheckpointError> {
    let tensors: Vec<PersistentTensor> =
        rank.persistent_state().into_iter().filter(|tensor| tensor.saves).collect();
    let mut files = vec![];
    rank.at(StepPhase::Checkpoint);
    rank.fetch_persistent_state();
    rank.check_device()?;
    for of_stage in tensors.chunk_by(|a, b| a.stage == b.stage) {
        match write_stage(rank, folder, of_stage, whole) {
            Ok(file) => files.push(file),
            Err(error) => {
                for file in files {
                    // The first error is the one to report.
                    let _ = std::fs::remove_file(folder.join(file.name));
                }
                return Err(error);
            }
        }
    }
    files.extend(write_residuals(rank, folder)?);
    Ok(files)
}

fn write_stage<T: Transport>(
    rank: &Rank<T>,
    folder: &Path,
    tensors: &[PersistentTensor],
    whole: &BTreeMap<String, Vec<f32>>,
) -> Result<FileRecord, CheckpointError> {
    // All of them or none are this rank's own: the first rank that holds a stage saves all of it.
    let own = tensors.iter().any(|tensor| tensor.own_name.is_some());
    let stage = tensors[0].stage.0;
    let name = match own {
        true => format!("stage-{stage:03}-rank-{:03}.safetensors", rank.transport.rank()),
        false => format!("stage-{stage:03}.safetensors"),
    };
    let mut contents = vec![];
    for tensor in tensors {
        let values = whole.get(&tensor.name).map_or_else(|| rank.values(tensor), Vec::as_slice);
        let bad = values.iter().find(|value| !value.is_finite());
        if let (Some(&value), Some(_)) = (bad, &tensor.begins_as) {
            return Err(CheckpointError::NotFinite { name: tensor.name.clone(), value });
        }
        let name = tensor.own_name.as_ref().unwrap_or(&tensor.name);
        contents.push(Tensor { name, shape: &tensor.shape, values });
    }
    let written = write(&folder.join(&name), &contents)?;
    Ok(FileRecord {
        name,
        bytes: written.bytes,
        crc32c: written.crc32c,
        tensors: contents.iter().map(|tensor| tensor.name.to_owned()).collect(),
    })
}

/// What a rank wrote, or why it could not.
pub(super) type Report = Result<Vec<FileRecord>, String>;

/// Brings the reports of all ranks to rank 0. Collective.
pub(super) fn collect<T: Transport>(
    transport: &mut T,
    mine: &Report,
) -> Result<Option<Vec<Report>>, TransportError> {
    let bytes = serde_json::to_vec(mine).expect("plain data");
    let parse = |bytes: &Vec<u8>| -> Report {
        serde_json::from_slice(bytes).expect("written by the same program")
    };
    Ok(transport.gather(&bytes)?.map(|all| all.iter().map(parse).collect()))
}

/// The files that all ranks have written, if all of them have and rank 0 sees them.
fn all_files(begun: &Path, reports: Vec<Report>) -> Result<Vec<FileRecord>, CheckpointError> {
    let mut all = vec![];
    for (rank, report) in (0..).zip(reports) {
        let files = report.map_err(|why| CheckpointError::OnRank { rank, why })?;
        for file in &files {
            let path = begun.join(&file.name);
            if std::fs::metadata(&path).map_or(u64::MAX, |m| m.len()) != file.bytes {
                return Err(CheckpointError::Invisible { path, rank });
            }
        }
        all.extend(files);
    }
    Ok(all)
}

/// Makes the checkpoint exist, all at once.
fn commit(
    saver: &Saver,
    begun: &Path,
    known: Known,
    reports: Vec<Report>,
) -> Result<(), CheckpointError> {
    let step = known.steps.trained.step;
    let files = all_files(begun, reports)?;
    make_exist(saver, begun, step, &text_of(saver, known, files))
}

/// The manifest of what all ranks have written, if all of them have.
pub(super) fn manifest(
    saver: &Saver,
    known: Known,
    reports: Vec<Report>,
) -> Result<Vec<u8>, CheckpointError> {
    let of_rank =
        |(rank, report): (u32, Report)| report.map_err(|why| CheckpointError::OnRank { rank, why });
    let files = (0..).zip(reports).map(of_rank).collect::<Result<Vec<_>, _>>()?.concat();
    Ok(text_of(saver, known, files))
}

fn text_of(saver: &Saver, known: Known, files: Vec<FileRecord>) -> Vec<u8> {
    let Known { steps: Steps { trained, loss, skipped, .. }, carried, choice, loss_scale } = known;
    let manifest = Manifest {
        version: VERSION,
        step: trained.step,
        samples: trained.samples,
        loss,
        skipped,
        loss_scale,
        identity: saver.identity.clone(),
        split: saver.split.clone(),
        carried,
        choice,
        files,
        crc32c: None,
    };
    manifest.text().into_bytes()
}

/// Writes the manifest and renames the folder, unless this rank's generation was given up.
pub(super) fn make_exist(
    saver: &Saver,
    begun: &Path,
    step: u64,
    manifest: &[u8],
) -> Result<(), CheckpointError> {
    let path = begun.join(MANIFEST);
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&path)?;
        file.write_all(manifest)?;
        file.sync_all()
    };
    write().map_err(|source| CheckpointError::File { path: path.clone(), source })?;
    sync(begun)?;
    saver.fence.as_ref().map_or(Ok(()), Fence::check)?;
    let folder = saver.folder.join(name(step));
    // A checkpoint of the same step is of another continuation, which this run has left.
    remove(&folder)?;
    std::fs::rename(begun, &folder)
        .map_err(|source| CheckpointError::File { path: folder.clone(), source })?;
    sync(&saver.folder)
}
