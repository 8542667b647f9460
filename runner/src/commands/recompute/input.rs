//! Graphs from files, plain or compressed by gzip.

use crate::failure::Failure;
use flate2::read::MultiGzDecoder;
use pipewright_core::recompute::file::{FileError, GraphFile, read};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use thiserror::Error;

/// Longest text of a graph, unpacked: the largest graph that is accepted is shorter.
const MOST: u64 = 512 << 20;

/// How every file of gzip begins.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Why there is no graph.
#[derive(Debug, Error)]
enum InputError {
    /// The file cannot be read.
    #[error("cannot be read: {0}; give the path of a graph, graph.json or graph.json.gz")]
    Read(io::Error),
    /// Damaged, or cut short.
    #[error("not whole as a file of gzip: {0}; copy it anew")]
    Gzip(io::Error),
    /// More text than any graph has.
    #[error("the text is longer than {} MiB{}; no graph that is accepted is that long", MOST >> 20,
        if *.packed { ", unpacked" } else { "" })]
    TooLong {
        /// Whether it was compressed.
        packed: bool,
    },
    /// No graph.
    #[error(transparent)]
    Graph(FileError),
}

/// Reads a graph.
pub(super) fn read_graph(path: &Path) -> Result<GraphFile, Failure> {
    let text = text(path).and_then(|text| read(&text).map_err(InputError::Graph));
    text.map_err(|e| Failure::usage(format!("{}: {e}", path.display())))
}

fn text(path: &Path) -> Result<Vec<u8>, InputError> {
    let mut file = File::open(path).map_err(InputError::Read)?;
    let mut start = vec![];
    file.by_ref().take(GZIP.len() as u64).read_to_end(&mut start).map_err(InputError::Read)?;
    let packed = start == GZIP;
    let mut text = vec![];
    let whole = io::Cursor::new(start).chain(file);
    let read = if packed {
        // What a bomb unpacks to is never held, but for as much as a graph may have.
        MultiGzDecoder::new(whole).take(MOST + 1).read_to_end(&mut text)
    } else {
        whole.take(MOST + 1).read_to_end(&mut text)
    };
    read.map_err(if packed { InputError::Gzip } else { InputError::Read })?;
    if text.len() as u64 > MOST {
        return Err(InputError::TooLong { packed });
    }
    Ok(text)
}
