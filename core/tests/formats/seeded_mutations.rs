//! Damaged files by a seed: the same ones every time, so that what is found once stays found.
//!
//! Clusters as files, and ONNX files with numbers that nobody writes. Plans and profiles have tests of
//! their own kind beside this one.

use pipewright_core::cost::Cluster;
use pipewright_core::graph::presets::Preset;
use pipewright_core::onnx::{Options, read_with};
use pipewright_core::plan::{Draft, Model};
use std::path::Path;

/// SplitMix64 (Steele et al. 2014).
struct Seeded(u64);

impl Seeded {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    /// A file with one to four kinds of damage: bytes changed, a part gone or twice, `insert` put in.
    fn damage(&mut self, whole: &[u8], insert: &[&[u8]]) -> Vec<u8> {
        let mut bytes = whole.to_vec();
        for _ in 0..1 + self.below(4) {
            let at = self.below(bytes.len());
            let end = (at + 1 + self.below(40)).min(bytes.len());
            match self.below(6) {
                0 => bytes.truncate(at),
                1 => drop(bytes.drain(at..end)),
                2 => {
                    let twice = bytes[at..end].to_vec();
                    bytes.splice(at..at, twice);
                }
                3 if !insert.is_empty() => {
                    let with = insert[self.below(insert.len())];
                    let end = (at + 1 + self.below(4)).min(bytes.len());
                    bytes.splice(at..end, with.iter().copied());
                }
                _ if at < bytes.len() => bytes[at] = self.next() as u8,
                _ => {}
            }
        }
        bytes
    }
}

/// Numbers that end arithmetic that did not expect them.
const NUMBERS: [&str; 12] = [
    "0",
    "-1",
    "1",
    "0.5",
    "1e-300",
    "1e300",
    "1e999",
    "NaN",
    "4294967296",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
];

#[test]
fn clusters() {
    let (mut seeded, mut sound) = (Seeded(17), 0);
    let insert = NUMBERS.map(str::as_bytes);
    for name in ["laptop", "dgx-a100", "reedbush-l"] {
        let text = serde_json::to_string_pretty(&Cluster::preset(name).unwrap()).unwrap();
        for _ in 0..700 {
            let bytes = seeded.damage(text.as_bytes(), &insert);
            let Ok(cluster) = serde_json::from_slice::<Cluster>(&bytes) else { continue };
            if let Err(error) = cluster.check() {
                assert!(!error.to_string().is_empty());
                continue;
            }
            sound += 1;
            // A plan or an error, both in finite numbers.
            let _ = Draft::new(Model::Preset(Preset::DigitsCnn), cluster, vec![3, 7]).plan();
        }
    }
    assert!(sound > 20, "{sound} clusters were sound enough to be planned with");
}

/// Each number of a cluster, one after the other: what random damage may miss.
#[test]
fn every_number_of_a_cluster() {
    let text = serde_json::to_string(&Cluster::preset("reedbush-l").unwrap()).unwrap();
    let starts =
        text.char_indices().filter(|(at, c)| c.is_ascii_digit() && text[..*at].ends_with(':'));
    for (start, _) in starts {
        let end = start + text[start..].find([',', '}']).unwrap();
        for number in NUMBERS {
            let edited = format!("{}{number}{}", &text[..start], &text[end..]);
            let Ok(cluster) = serde_json::from_str::<Cluster>(&edited) else { continue };
            if cluster.check().is_ok() {
                let _ = Draft::new(Model::Preset(Preset::DigitsCnn), cluster, vec![3, 7]).plan();
            }
        }
    }
}

/// Varints of a protocol buffer: the largest number, ten bytes that never end, the size of a tensor that no
/// memory holds, -1 of 64 bits.
const VARINTS: [&[u8]; 5] = [
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
    &[0xff; 10],
    &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x40],
    &[0xff, 0xff, 0xff, 0xff, 0x0f],
    &[0x00],
];

#[test]
fn onnx_files() {
    let mut seeded = Seeded(29);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/onnx");
    for name in ["batch_norm", "gqa", "unet", "external", "vit-dynamo"] {
        let whole = std::fs::read(folder.join(format!("{name}.onnx"))).unwrap();
        for _ in 0..60 {
            let bytes = seeded.damage(&whole, &VARINTS);
            match read_with(bytes, &Options::default(), &|_| None) {
                Err(error) => assert!(!error.to_string().is_empty()),
                Ok(imported) => {
                    assert_eq!(imported.weights.len(), imported.graph.params().len());
                    // What is let through has a price, or says that it has none.
                    let cluster = Cluster::preset("laptop").unwrap();
                    let model = Model::Graph(imported.graph);
                    let _ = Draft::new(model, cluster, vec![]).plan();
                }
            }
        }
    }
}
