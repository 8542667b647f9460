//! Folders of checkpoints: which there are, which one is meant, which are too many.

use super::{CheckpointError, FOLDER, Identity, LATEST, MANIFEST, Manifest};
use std::cmp::Reverse;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The checkpoint that a run may go on from, or several, the first that is whole being meant.
#[derive(Clone, Debug)]
pub struct Resume {
    /// Newest first.
    pub candidates: Vec<Candidate>,
    /// Where they were found.
    pub folder: PathBuf,
    /// Whether one that is damaged may be passed over for the next.
    pub falls_back: bool,
}

/// A checkpoint, not yet looked into.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its folder.
    pub folder: PathBuf,
    /// Steps that were trained.
    pub step: u64,
    /// Whether it is in a job's memory and not on the disk.
    pub in_memory: bool,
}

impl Resume {
    /// Finds what `--resume` names: `latest` in the run's own folder `out`, a checkpoint, or a
    /// folder of checkpoints. Of the run's own there may be none; then training begins at the start.
    ///
    /// # Errors
    /// When there is no checkpoint where one was named, or it cannot be read.
    pub fn find(name: &str, out: Option<&Path>) -> Result<Self, CheckpointError> {
        if let (LATEST, Some(out)) = (name, out) {
            let folder = out.join(FOLDER);
            return Ok(Self { candidates: list(&folder)?, folder, falls_back: true });
        }
        let named = Path::new(name);
        if named.join(MANIFEST).exists() {
            let step = Manifest::read(named)?.step;
            let candidates = vec![Candidate { folder: named.into(), step, in_memory: false }];
            return Ok(Self { candidates, folder: named.into(), falls_back: false });
        }
        let inner = named.join(FOLDER);
        let folder = if inner.is_dir() { inner } else { named.into() };
        let candidates = list(&folder)?;
        if candidates.is_empty() {
            return Err(CheckpointError::Nowhere { path: named.into() });
        }
        Ok(Self { candidates, folder, falls_back: true })
    }

    /// Goes on from what a job's memory holds as well, which is newer unless it was lost. Of the same step
    /// memory comes first, and the disk where that is damaged.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn with_memory(mut self, folder: &Path) -> Result<Self, CheckpointError> {
        let kept = list(folder)?.into_iter();
        self.candidates.extend(kept.map(|kept| Candidate { in_memory: true, ..kept }));
        self.candidates.sort_by_key(|candidate| Reverse((candidate.step, candidate.in_memory)));
        Ok(self)
    }

    /// Refuses when the newest checkpoint that can be read belongs to other training, or when one
    /// is of a newer program: going on from an older one would give up what that one trained.
    ///
    /// # Errors
    /// What differs.
    pub fn check(&self, plan: &Identity) -> Result<(), CheckpointError> {
        for candidate in &self.candidates {
            match Manifest::read(&candidate.folder) {
                Ok(manifest) => return manifest.check(plan, &candidate.folder),
                Err(error @ CheckpointError::Version { .. }) => return Err(error),
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Whether the checkpoints are those of the run whose folder is `out`.
    pub fn is_of(&self, out: &Path) -> bool {
        let own = out.join(FOLDER);
        let place = |path: &Path| path.canonicalize().ok();
        let inside =
            |folder: &Path| folder == own || place(folder).is_some_and(|f| Some(f) == place(&own));
        inside(&self.folder) || self.folder.parent().is_some_and(inside)
    }
}

/// The checkpoints in a folder, newest first; none when there is no folder.
pub(super) fn list(folder: &Path) -> Result<Vec<Candidate>, CheckpointError> {
    let mut steps = steps(folder)?;
    steps.sort_unstable_by_key(|step| Reverse(*step));
    let candidate = |step| Candidate { folder: folder.join(name(step)), step, in_memory: false };
    Ok(steps.into_iter().map(candidate).collect())
}

/// The name of a checkpoint's folder.
pub fn name(step: u64) -> String {
    format!("step-{step}")
}

/// The name of its folder while it is being written.
pub(super) fn part(step: u64) -> String {
    format!(".step-{step}.part")
}

/// The steps of the checkpoints in a folder, in no order.
fn steps(folder: &Path) -> Result<Vec<u64>, CheckpointError> {
    let step = |name: &str| name.strip_prefix("step-")?.parse().ok();
    Ok(entries(folder)?.iter().filter_map(|name| step(name)).collect())
}

/// The step of the newest checkpoint in a folder of checkpoints.
///
/// # Errors
/// When it cannot be read.
pub fn newest(folder: &Path) -> Result<Option<u64>, CheckpointError> {
    Ok(steps(folder)?.into_iter().max())
}

fn entries(folder: &Path) -> Result<Vec<String>, CheckpointError> {
    let failed = |source| CheckpointError::File { path: folder.into(), source };
    let entries = match std::fs::read_dir(folder) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(vec![]),
        entries => entries.map_err(failed)?,
    };
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.collect::<std::io::Result<_>>().map_err(failed)
}

/// Whether a run's folder holds checkpoints.
///
/// # Errors
/// When it cannot be read.
pub fn has_checkpoints(out: &Path) -> Result<bool, CheckpointError> {
    Ok(!steps(&out.join(FOLDER))?.is_empty())
}

/// Removes all checkpoints of a run's folder, whole ones and begun ones; nothing else.
///
/// # Errors
/// When one cannot be removed.
pub fn remove_all(out: &Path) -> Result<(), CheckpointError> {
    let folder = out.join(FOLDER);
    for step in steps(&folder)? {
        remove(&folder.join(name(step)))?;
    }
    remove_begun(&folder)?;
    match std::fs::remove_dir(&folder) {
        Err(e) if !matches!(e.kind(), ErrorKind::NotFound | ErrorKind::DirectoryNotEmpty) => {
            Err(CheckpointError::File { path: folder, source: e })
        }
        _ => Ok(()),
    }
}

/// Removes what runs left behind that were ended while they saved.
pub(super) fn remove_begun(folder: &Path) -> Result<(), CheckpointError> {
    let begun = |name: &&String| name.starts_with(".step-") && name.ends_with(".part");
    entries(folder)?.iter().filter(begun).try_for_each(|name| remove(&folder.join(name)))
}

/// Keeps the checkpoint of `step` and the newest before it, `keep` in all, and the one to `spare`.
/// Those of later steps were of another continuation, which this run has left.
pub(super) fn prune(
    folder: &Path,
    step: u64,
    keep: usize,
    spare: Option<u64>,
) -> Result<(), CheckpointError> {
    let (mut mine, others): (Vec<u64>, Vec<u64>) =
        steps(folder)?.into_iter().partition(|other| *other <= step);
    mine.sort_unstable_by_key(|step| Reverse(*step));
    let old = mine.into_iter().skip(keep.max(1)).filter(|old| Some(*old) != spare);
    others.into_iter().chain(old).try_for_each(|step| remove(&folder.join(name(step))))?;
    remove_begun(folder)
}

/// Removes all checkpoints of a folder that are of more than `step` steps.
///
/// # Errors
/// When one cannot be removed.
pub fn forget_after(folder: &Path, step: u64) -> Result<(), CheckpointError> {
    let newer = steps(folder)?.into_iter().filter(|other| *other > step);
    newer.into_iter().try_for_each(|newer| remove(&folder.join(name(newer))))
}

/// Removes a checkpoint. Its manifest goes first: what is left, if anything, is none.
pub(super) fn remove(folder: &Path) -> Result<(), CheckpointError> {
    let failed = |source| CheckpointError::File { path: folder.into(), source };
    match std::fs::remove_file(folder.join(MANIFEST)) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(failed(e)),
        _ => {}
    }
    match std::fs::remove_dir_all(folder) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(failed(e)),
        _ => Ok(()),
    }
}

/// Waits until the disk has a folder's entries.
pub(super) fn sync(folder: &Path) -> Result<(), CheckpointError> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|source| CheckpointError::File { path: folder.into(), source })
}
