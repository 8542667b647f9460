//! Every byte of a small checkpoint, cut off or changed: an error, never a panic.

use crate::common::{draft_of, runner_in, scratch, write};
use crate::run::at;
use pipewright_core::graph::GraphBuilder;
use pipewright_core::graph::Op;
use pipewright_runner::checkpoint::{Manifest, verify};
use pipewright_runner::tensor_file::TensorFile;
use std::path::Path;

/// A file's content, each with one change: all its beginnings, and each byte with a bit changed.
fn changed(bytes: &[u8]) -> impl Iterator<Item = (String, Vec<u8>)> {
    let cut = (0..bytes.len()).map(|len| (format!("cut at {len}"), bytes[..len].to_vec()));
    let flip = (0..bytes.len()).flat_map(|at| [1, 1 << 6].map(|bit| (at, bit)));
    let flip = flip.map(|(at, bit): (usize, u8)| {
        let mut bytes = bytes.to_vec();
        bytes[at] ^= bit;
        (format!("byte {at} changed by {bit}"), bytes)
    });
    cut.chain(flip)
}

/// Hundreds of bytes: two inputs, three classes.
fn small(dir: &Path) -> std::path::PathBuf {
    let mut g = GraphBuilder::new("small");
    g.layer("all");
    let x = g.input(vec![2]);
    let x = g.linear("fc", x, 3);
    let target = g.add("target", Op::Target { classes: 3 }, &[]);
    g.add("loss", Op::SoftmaxCrossEntropy { label_smoothing: 0.0 }, &[x, target]);
    let mut draft = draft_of(g.finish().unwrap(), 1);
    (draft.mini_batch, draft.micro_batches, draft.steps) = (8, 1, 2);
    write(dir, "plan.json", draft.plan().unwrap().0.to_json());
    runner_in(dir, &["plan.json", "--out", "out", "--save-every", "0"]).done();
    at(&dir.join("out"), 2)
}

#[test]
fn every_byte_of_a_checkpoint_counts() {
    let dir = scratch("every-byte");
    let folder = small(&dir);
    let manifest = Manifest::read(&folder).unwrap();
    let mut tried = 0;
    for file in &manifest.files {
        let path = folder.join(&file.name);
        let whole = std::fs::read(&path).unwrap();
        for (what, bytes) in changed(&whole) {
            std::fs::write(&path, bytes).unwrap();
            let error = verify(&folder, file).expect_err(&what).to_string();
            assert!(error.contains("damaged"), "{what}: {error}");
            // By itself such a file is an error or has the names that it says.
            if let Ok(file) = TensorFile::open(&path) {
                file.names();
            }
            tried += 1;
        }
        std::fs::write(&path, whole).unwrap();
        verify(&folder, file).unwrap();
    }
    let path = folder.join("manifest.json");
    let whole = std::fs::read(&path).unwrap();
    for (what, bytes) in changed(&whole) {
        std::fs::write(&path, bytes).unwrap();
        Manifest::read(&folder).expect_err(&what);
        tried += 1;
    }
    assert!(tried > 1000, "{tried}");
}
