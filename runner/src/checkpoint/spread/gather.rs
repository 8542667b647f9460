//! Going on from what is left in the memory of the hosts that are there.

use super::Hosts;

use crate::checkpoint::agree::agree;
use crate::checkpoint::folder::{list, name, part, remove};
use crate::checkpoint::{CheckpointError, MANIFEST, Manifest};
use crate::transport::mail::{from_first, recv, send};
use crate::transport::{Transport, TransportError};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A checkpoint, or what is left of it on one host.
#[derive(Debug, Serialize, Deserialize)]
struct Found {
    step: u64,
    manifest: Manifest,
    /// Files that are there with the length that they should have.
    files: Vec<String>,
}

/// What is to be done.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Moves {
    /// The checkpoint that training goes on from, if one is whole.
    step: Option<u64>,
    manifest: Vec<u8>,
    /// File, who sends it, who gets it.
    moves: Vec<(String, u32, u32)>,
}

/// Leaves every host with the newest checkpoint of which every file is on some host, whole; others are
/// removed. Collective; `folder` is this host's.
///
/// # Errors
/// When a message fails. Within, the same on all ranks, where a host's memory does not take it.
pub fn bring_together<T: Transport>(
    transport: &mut T,
    hosts: &Hosts,
    folder: &Path,
) -> Result<Result<(), CheckpointError>, TransportError> {
    let mine = if hosts.leads() { found(folder) } else { vec![] };
    let all = transport.gather(&serde_json::to_vec(&mine).expect("plain data"))?;
    let parse = |bytes: &Vec<u8>| -> Vec<Found> {
        serde_json::from_slice(bytes).expect("written by the same program")
    };
    let moves = all.map(|all| moves(hosts, &all.iter().map(parse).collect::<Vec<_>>()));
    let moves = serde_json::to_vec(&moves.unwrap_or_default()).expect("plain data");
    let moves = from_first(transport, hosts.handle, moves)?;
    let moves: Moves = serde_json::from_slice(&moves).expect("written by the same program");
    let done = if hosts.leads() { carry_out(transport, hosts, folder, &moves) } else { Ok(Ok(())) };
    agree(transport, done?)
}

/// What this host has. What cannot be read is as good as gone.
fn found(folder: &Path) -> Vec<Found> {
    let read = |candidate: crate::checkpoint::Candidate| {
        let manifest = Manifest::read(&candidate.folder).ok()?;
        let there = manifest.files.iter().filter(|file| {
            let path = candidate.folder.join(&file.name);
            std::fs::metadata(path).is_ok_and(|there| there.len() == file.bytes)
        });
        let files = there.map(|file| file.name.clone()).collect();
        Some(Found { step: candidate.step, manifest, files })
    };
    list(folder).unwrap_or_default().into_iter().filter_map(read).collect()
}

/// The newest whole checkpoint, and who lacks what of it.
fn moves(hosts: &Hosts, by_rank: &[Vec<Found>]) -> Moves {
    let mut steps: Vec<u64> = by_rank.iter().flatten().map(|found| found.step).collect();
    steps.sort_unstable();
    steps.dedup();
    let of = |rank: u32, step: u64| by_rank[rank as usize].iter().find(|f| f.step == step);
    let has = |rank: u32, step: u64, file: &str| {
        of(rank, step).is_some_and(|found| found.files.iter().any(|there| there == file))
    };
    let leaders = hosts.leaders();
    for step in steps.into_iter().rev() {
        let Some(found) = leaders.iter().find_map(|rank| of(*rank, step)) else { continue };
        let mut moves = vec![];
        let whole = found.manifest.files.iter().all(|file| {
            let Some(from) = leaders.iter().find(|rank| has(**rank, step, &file.name)) else {
                return false;
            };
            let lack = leaders.iter().filter(|rank| !has(**rank, step, &file.name));
            moves.extend(lack.map(|to| (file.name.clone(), *from, *to)));
            true
        });
        if whole {
            return Moves { step: Some(step), manifest: found.manifest.text().into(), moves };
        }
    }
    Moves::default()
}

/// This host's part, all hosts at the same time.
fn carry_out<T: Transport>(
    transport: &mut T,
    hosts: &Hosts,
    folder: &Path,
    moves: &Moves,
) -> Result<Result<(), CheckpointError>, TransportError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| CheckpointError::File { path, source }
    };
    let mut done = Ok(());
    for old in list(folder).unwrap_or_default() {
        if Some(old.step) != moves.step {
            done = done.and(remove(&old.folder));
        }
    }
    let Some(step) = moves.step else { return Ok(done) };
    let (whole, begun) = (folder.join(name(step)), folder.join(part(step)));
    // Not a checkpoint until it has everything.
    if std::fs::rename(&whole, &begun).is_err() {
        done = done.and(std::fs::create_dir_all(&begun).map_err(failed(&begun)));
    }
    for (file, from, to) in &moves.moves {
        let path = begun.join(file);
        if *from == hosts.rank {
            send(transport, hosts.handle, *to, &std::fs::read(&path).unwrap_or_default())?;
        } else if *to == hosts.rank {
            let contents = recv(transport, *from)?;
            done = done.and(std::fs::write(&path, contents).map_err(failed(&path)));
        }
    }
    let manifest = begun.join(MANIFEST);
    done = done.and(std::fs::write(&manifest, &moves.manifest).map_err(failed(&manifest)));
    Ok(done.and_then(|()| std::fs::rename(&begun, &whole).map_err(failed(&whole))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A checkpoint of the files a and b, of which some are there.
    fn found(step: u64, there: &[&str]) -> Found {
        let file = |name: &str| json!({ "name": name, "bytes": 1, "crc32c": 0, "tensors": [] });
        let manifest = json!({
            "version": 1, "step": step, "samples": 0, "loss": 0.0,
            "identity": {
                "model": { "name": "m", "parameters": 0, "fingerprint": "" },
                "train_samples": 0, "asynchronous": null, "settings": {},
            },
            "split": { "cuts": [], "schedule": "1f1b", "micro_batches": 1, "replicas": 1 },
            "files": [file("a"), file("b")],
        });
        let manifest = serde_json::from_value(manifest).unwrap();
        Found { step, manifest, files: there.iter().map(ToString::to_string).collect() }
    }

    #[test]
    fn the_newest_whole_one_is_brought_together() {
        // Ranks 0 and 1 on one host, 2 on another.
        let hosts = Hosts::of(0, vec![0, 0, 2]);
        let chosen = |first: Vec<Found>, second: Vec<Found>| {
            let Moves { step, moves, .. } = moves(&hosts, &[first, vec![], second]);
            (step, moves)
        };
        let moved = |name: &str, from, to| (name.to_owned(), from, to);
        // Step 6 is not whole, step 5 is, from both.
        let (step, moves) = chosen(
            vec![found(6, &["a"]), found(5, &["a"]), found(4, &["a", "b"])],
            vec![found(5, &["b"]), found(6, &["a"])],
        );
        assert_eq!(step, Some(5));
        assert_eq!(moves, [moved("a", 0, 2), moved("b", 2, 0)]);
        // A host that has nothing gets all; one that has all gets nothing.
        let (step, moves) = chosen(vec![], vec![found(7, &["a", "b"])]);
        assert_eq!((step, moves), (Some(7), vec![moved("a", 2, 0), moved("b", 2, 0)]));
        assert_eq!(chosen(vec![found(7, &["a"])], vec![found(7, &[])]), (None, vec![]));
        assert_eq!(chosen(vec![], vec![]), (None, vec![]));
    }
}
