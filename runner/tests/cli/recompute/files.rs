//! Files: what is refused, what any damage gives, how files and pictures are written.

use super::{GRAPHS, graph, recompute, unpacked};
use crate::common::{scratch, write};
use flate2::Compression;
use flate2::write::GzEncoder;
use pipewright_core::recompute::{file, without_recomputation};
use proptest::prelude::*;
use std::io::Write;
use std::sync::LazyLock;

fn packed(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(vec![], Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn plain_and_compressed_files_are_the_same() {
    let dir = scratch("recompute-plain");
    write(&dir, "plain.json", unpacked(graph("perceptron3").as_ref()));
    let args = ["--pareto", "--json"];
    let plain = recompute(&dir, "plain.json", &args).done().stdout.clone();
    assert_eq!(plain, recompute(&dir, &graph("perceptron3"), &args).done().stdout);
}

#[test]
fn bad_files_are_refused() {
    let dir = scratch("recompute-bad");
    let refused = |name: &str, bytes: &[u8], words: &str| {
        write(&dir, name, bytes);
        recompute(&dir, name, &["--pareto"]).refused(2, words).refused(2, name);
    };
    let whole = std::fs::read(graph("unet4")).unwrap();
    refused("cut.json.gz", &whole[..whole.len() / 2], "not whole as a file of gzip");
    let mut flipped = whole.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 0x40;
    refused("flipped.json.gz", &flipped, "not whole as a file of gzip");
    // Forty members of 16 MiB each, in few bytes.
    let bomb = packed(&vec![b' '; 16 << 20]).repeat(40);
    assert!(bomb.len() < 4 << 20);
    refused("bomb.json.gz", &bomb, "longer than 512 MiB, unpacked");
    refused("empty.json", b"", "not a graph");
    refused("plan.json", b"{\"version\": 1}", "format is not given");
    let node =
        |fields: &str| format!("{{\"format\":\"recompute-graph/1\",\"nodes\":[{{{fields}}}]}}");
    let cases = [
        ("\"id\":0,\"bytes\":-4,\"time\":1,\"inputs\":[]", "node 0, bytes: -4 is not"),
        ("\"id\":0,\"bytes\":4,\"time\":NaN,\"inputs\":[]", "has NaN; JSON has no such number"),
        ("\"id\":0,\"bytes\":4,\"time\":1,\"inputs\":[0]", "node 0 reads node 0"),
        ("\"id\":0,\"bytes\":4,\"time\":1,\"inputs\":[]", "no node is an output"),
    ];
    for (fields, words) in cases {
        refused("node.json", node(fields).as_bytes(), words);
    }
    recompute(&dir, "absent.json", &["--pareto"])
        .refused(2, "absent.json: cannot be read: No such file");
    recompute(&dir, ".", &["--pareto"]).refused(2, "Is a directory");
}

#[test]
fn files_are_replaced_whole() {
    let dir = scratch("recompute-replace");
    let args = ["--budget", "0.8", "-o", "new/s.json", "--svg", "s.svg"];
    for _ in 0..2 {
        recompute(&dir, &graph("perceptron3"), &args).done();
    }
    let names = |folder: &str| {
        let entries = std::fs::read_dir(dir.join(folder)).unwrap();
        let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names("new"), ["s.json"], "nothing is left beside it");
    // A folder cannot be replaced by a file.
    recompute(&dir, &graph("perceptron3"), &["--pareto", "-o", "new"]).refused(2, "new: ");
    assert_eq!(names("."), ["new", "s.svg"]);
    let printed = recompute(&dir, &graph("perceptron3"), &["--budget", "0.8", "-o", "-"]);
    let text = std::fs::read_to_string(dir.join("new/s.json")).unwrap();
    assert_eq!(printed.done().stdout.trim_end(), text.trim_end());
    assert!(printed.stderr.contains("optimal"), "{printed:#?}");
}

#[test]
fn pictures_show_both_curves_and_survive_any_name() {
    let dir = scratch("recompute-pictures");
    let text = String::from_utf8(unpacked(graph("perceptron3").as_ref())).unwrap();
    let named = text.replace("\"perceptron3\"", "\"<script>&amp;\\u0001\"");
    write(&dir, "named.json", named);
    let picture = |args: &[&str]| {
        recompute(&dir, "named.json", &[args, &["--svg", "p.svg"]].concat()).done();
        let text = std::fs::read_to_string(dir.join("p.svg")).unwrap();
        assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"), "{text}");
        assert!(text.contains("&lt;script&gt;&amp;amp; ") && !text.contains("<script"), "{text}");
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        text
    };
    let memory = picture(&["--budget", "0.7"]);
    for word in
        ["without recomputation: peak 10.00 MiB", "with recomputation: peak", "limit 7.00 MiB"]
    {
        assert!(memory.contains(word), "{word}: {memory}");
    }
    let front = picture(&["--pareto"]);
    assert!(front.matches("<circle").count() > 4, "{front}");
    assert!(front.contains("no sequence below"), "{front}");
}

static TEXTS: LazyLock<Vec<Vec<u8>>> =
    LazyLock::new(|| GRAPHS.iter().map(|name| unpacked(graph(name).as_ref())).collect());

/// What numbers of a file may turn into.
const NUMBERS: [&str; 12] = [
    "-1",
    "NaN",
    "1e300",
    "1e999",
    "0",
    "99999999999999999999",
    "",
    "\"x\"",
    "0.5",
    "[0]",
    "null",
    "72057594037927936",
];

/// Any bytes are a graph that can be computed, or an error that says something.
fn answers(bytes: &[u8]) {
    match file::read(bytes) {
        Ok(graph) => {
            assert_eq!(graph.labels.len(), graph.problem.len());
            let order = without_recomputation(&graph.problem);
            assert_eq!(graph.problem.check(&order), Ok(()));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_texts_get_an_answer(
        text in 0..3usize,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        end in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = TEXTS[text].clone();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(end) = end {
            bytes.truncate(end.index(bytes.len()));
        }
        answers(&bytes);
    }

    #[test]
    fn swapped_numbers_get_an_answer(
        text in 0..3usize,
        at in any::<prop::sample::Index>(),
        with in 0..NUMBERS.len(),
    ) {
        let bytes = &TEXTS[text];
        let digit = |at: usize| bytes.get(at).is_some_and(|b| b.is_ascii_digit() || *b == b'.');
        let starts: Vec<usize> = (1..bytes.len()).filter(|at| digit(*at) && !digit(at - 1)).collect();
        let start = starts[at.index(starts.len())];
        let end = (start..).find(|at| !digit(*at)).unwrap();
        answers(&[&bytes[..start], NUMBERS[with].as_bytes(), &bytes[end..]].concat());
    }
}
