//! Broken profiles: whatever happens to a real file, an importer answers, and what it lets through
//! is sound.

use pipewright_core::cost::import::read;
use proptest::prelude::*;
use std::path::Path;

const FILES: [&str; 4] = [
    "pipedream/alexnet.graph.txt",
    "pipedream/gnmt.graph.txt",
    "dapple/amoeba-18-pbs-8.txt",
    "dnn-partitioning/LayerGraphs-bert24_training.json",
];

/// What numbers of a file may turn into.
const NUMBERS: [&str; 10] =
    ["-1", "NaN", "1e300", "1e999", "0", "99999999999999999999", "", "x", "0.5", "-inf"];

fn text(file: usize) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/profiles");
    std::fs::read_to_string(folder.join(FILES[file])).unwrap()
}

fn answers(name: &str, text: &str) {
    match read(name, text) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(work) => {
            let count = work.items.len() as u32;
            assert!(count > 0);
            assert!(work.edges.iter().all(|e| e.from < e.to && e.to < count));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn flipped_bytes(file in 0..FILES.len(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = text(file).into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        answers(FILES[file], &String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn cut_files(file in 0..FILES.len(), at in any::<prop::sample::Index>()) {
        let text = text(file);
        answers(FILES[file], &text[..at.index(text.len())]);
    }

    #[test]
    fn swapped_numbers(file in 0..FILES.len(), at in any::<prop::sample::Index>(), with in 0..NUMBERS.len()) {
        let text = text(file);
        let starts: Vec<usize> = text
            .char_indices()
            .filter(|(i, c)| c.is_ascii_digit() && !text[..*i].ends_with(|c: char| c.is_ascii_digit()))
            .map(|(i, _)| i)
            .collect();
        let start = starts[at.index(starts.len())];
        let rest = &text[start..];
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        answers(FILES[file], &format!("{}{}{}", &text[..start], NUMBERS[with], &rest[end..]));
    }

    #[test]
    fn lines_in_another_order(file in 0..3usize, a in any::<prop::sample::Index>(), b in any::<prop::sample::Index>()) {
        let text = text(file);
        let mut lines: Vec<&str> = text.lines().collect();
        let (a, b) = (a.index(lines.len()), b.index(lines.len()));
        lines[a] = lines[b];
        answers(FILES[file], &lines.join("\n"));
    }
}
