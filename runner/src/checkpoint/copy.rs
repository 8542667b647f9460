//! Copying checkpoints: from memory to the disk.

use super::folder::{name, newest, part, prune, remove, remove_begun, sync};
use super::{CheckpointError, MANIFEST, Manifest, verify};
use std::fs::File;
use std::path::Path;

/// Copies the newest checkpoint below `memory` to the folder of checkpoints `disk`, where that has none
/// as new, and keeps the newest `keep` there. Nobody else may write in either folder. Returns the step
/// of the newest checkpoint that the disk has then.
///
/// # Errors
/// When one cannot be read or written; the disk's are as they were.
pub fn keep_newest(
    memory: &Path,
    disk: &Path,
    keep: usize,
) -> Result<Option<u64>, CheckpointError> {
    let on_disk = newest(disk)?;
    let Some(step) = newest(memory)?.filter(|step| on_disk.is_none_or(|disk| *step > disk)) else {
        remove_begun(disk)?;
        return Ok(on_disk);
    };
    let (from, begun) = (memory.join(name(step)), disk.join(part(step)));
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| CheckpointError::File { path, source }
    };
    let manifest = Manifest::read(&from)?;
    remove_begun(disk)?;
    std::fs::create_dir_all(&begun).map_err(failed(&begun))?;
    let files = manifest.files.iter().map(|file| file.name.as_str());
    let copy = |file: &str| -> std::io::Result<()> {
        std::fs::copy(from.join(file), begun.join(file))?;
        File::open(begun.join(file))?.sync_all()
    };
    let copied = files
        .chain([MANIFEST])
        .try_for_each(|file| copy(file).map_err(failed(&begun.join(file))))
        .and_then(|()| manifest.files.iter().try_for_each(|file| verify(&begun, file)))
        .and_then(|()| sync(&begun));
    if let Err(error) = copied {
        // What counts is the first error; this folder is no checkpoint in any case.
        let _ = remove(&begun);
        return Err(error);
    }
    let folder = disk.join(name(step));
    std::fs::rename(&begun, &folder).map_err(failed(&folder))?;
    sync(disk)?;
    prune(disk, step, keep, None)?;
    Ok(Some(step))
}
