//! Saving into several hosts' memory.

use super::Hosts;

use crate::checkpoint::agree::agree;
use crate::checkpoint::folder::{part, prune, remove};
use crate::checkpoint::save::{Known, begin, collect, make_exist, manifest, write_stages};
use crate::checkpoint::{CheckpointError, FileRecord, Saver, Steps};
use crate::execute::{Rank, StepPhase};
use crate::transport::mail::{from_first, recv, send};
use crate::transport::{Transport, TransportError};
use pipewright_core::elastic::Origin;
use std::path::Path;

/// As [`crate::checkpoint::save`], each file on its host and the next.
pub(in crate::checkpoint) fn save<T: Transport>(
    rank: &mut Rank<T>,
    saver: &Saver,
    hosts: &Hosts,
    known: Known,
) -> Result<Result<(), CheckpointError>, TransportError> {
    let Steps { trained: Origin { step, .. }, spare, .. } = known.steps;
    let begun = saver.folder.join(part(step));
    let made = if hosts.leads() { begin(&saver.folder, &begun) } else { Ok(()) };
    if let Err(error) = agree(&mut rank.transport, made)? {
        return Ok(Err(error));
    }
    let whole = rank.gather_shards()?;
    let written = write_stages(rank, &begun, &whole);
    let mine = written.as_ref().map_or(&[][..], |files| files);
    let copied = copy(&mut rank.transport, hosts, &begun, mine)?;
    let report = written.and_then(|files| copied.map(|()| files)).map_err(|e| e.to_string());
    let reports = collect(&mut rank.transport, &report)?;
    rank.at(StepPhase::Rename);
    let text = reports.map_or(Ok(vec![]), |reports| manifest(saver, known, reports));
    let (text, whole) = match text {
        Ok(text) => (text, Ok(())),
        Err(error) => (vec![], Err(error)),
    };
    let whole = agree(&mut rank.transport, whole)?;
    let kept = match whole {
        Ok(()) => {
            let text = from_first(&mut rank.transport, hosts.handle, text)?;
            let made = if hosts.leads() { make_exist(saver, &begun, step, &text) } else { Ok(()) };
            agree(&mut rank.transport, made)?
        }
        Err(error) => Err(error),
    };
    if kept.is_err() && hosts.leads() {
        // What counts is the first error; this folder is no checkpoint in any case.
        let _ = remove(&begun);
    }
    if kept.is_ok()
        && hosts.leads()
        && let Err(e) = prune(&saver.folder, step, saver.keep, spare)
    {
        warn!("older states stay: {e}");
    }
    Ok(kept)
}

/// Gives the partner what this rank wrote, and keeps what others give. Everybody in the order of ranks,
/// so that nobody waits for one who waits. A disk that fails is an error of this rank alone.
fn copy<T: Transport>(
    transport: &mut T,
    hosts: &Hosts,
    folder: &Path,
    mine: &[FileRecord],
) -> Result<Result<(), CheckpointError>, TransportError> {
    let mut kept = Ok(());
    for rank in 0..transport.ranks() {
        let partner = hosts.partner(rank);
        if rank == hosts.rank {
            let read: Vec<Vec<u8>> = mine
                .iter()
                .map(|file| std::fs::read(folder.join(&file.name)).unwrap_or_default())
                .collect();
            let names: Vec<(&str, usize)> = mine
                .iter()
                .zip(&read)
                .map(|(file, read)| (file.name.as_str(), read.len()))
                .collect();
            let names = serde_json::to_vec(&names).expect("plain data");
            send(transport, hosts.handle, partner, &names)?;
            send(transport, hosts.handle, partner, &read.concat())?;
        } else if partner == hosts.rank {
            let names = recv(transport, rank)?;
            let names: Vec<(String, usize)> =
                serde_json::from_slice(&names).expect("written by the same program");
            let contents = recv(transport, rank)?;
            let mut rest = &contents[..];
            for (name, length) in names {
                let (contents, behind) = rest.split_at(length);
                rest = behind;
                let path = folder.join(name);
                let written = std::fs::write(&path, contents);
                kept = kept.and(written.map_err(|source| CheckpointError::File { path, source }));
            }
        }
    }
    Ok(kept)
}
