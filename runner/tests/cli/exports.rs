//! Metrics for TensorBoard and for tables. The event file is read by a decoder of the test's own,
//! which shares nothing with the writer: framing, checksums and protocol buffers.

use crate::common::{four_ranks, losses, runner_in, scratch, write};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// CRC-32C, bit by bit (Castagnoli's polynomial, reversed).
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            (sum >> 1) ^ if sum & 1 == 1 { 0x82f6_3b78 } else { 0 }
        })
    })
}

fn unmasked(sum: u32) -> u32 {
    sum.wrapping_sub(0xa282_ead8).rotate_left(15)
}

/// The records of a TFRecord file, their sums checked.
fn records(mut file: &[u8]) -> Vec<&[u8]> {
    let mut all = vec![];
    while !file.is_empty() {
        let (head, rest) = file.split_at(12);
        let (length, sum) = head.split_at(8);
        assert_eq!(crc32c(length), unmasked(u32::from_le_bytes(sum.try_into().unwrap())));
        let length = u64::from_le_bytes(length.try_into().unwrap()) as usize;
        let (data, rest) = rest.split_at(length);
        let (sum, rest) = rest.split_at(4);
        assert_eq!(crc32c(data), unmasked(u32::from_le_bytes(sum.try_into().unwrap())));
        all.push(data);
        file = rest;
    }
    all
}

/// A field of a protocol buffer: its number and contents.
enum Field<'a> {
    Varint(u64),
    Fixed(u64),
    Bytes(&'a [u8]),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let byte = bytes[0];
        *bytes = &bytes[1..];
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            return value;
        }
    }
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut all = vec![];
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let mut take = |count: usize| {
            let (taken, rest) = bytes.split_at(count);
            bytes = rest;
            taken
        };
        let field = match key & 7 {
            1 => Field::Fixed(u64::from_le_bytes(take(8).try_into().unwrap())),
            5 => Field::Fixed(u32::from_le_bytes(take(4).try_into().unwrap()).into()),
            0 => Field::Varint(varint(&mut bytes)),
            2 => {
                let length = varint(&mut bytes) as usize;
                let (taken, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(taken)
            }
            other => panic!("wire type {other}"),
        };
        all.push((key >> 3, field));
    }
    all
}

/// What an event says.
#[derive(Debug, Default, PartialEq)]
struct Event {
    wall_time: f64,
    step: u64,
    version: String,
    scalars: BTreeMap<String, f32>,
}

fn event(bytes: &[u8]) -> Event {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut event = Event::default();
    for field in fields(bytes) {
        match field {
            (1, Field::Fixed(bits)) => event.wall_time = f64::from_bits(bits),
            (2, Field::Varint(step)) => event.step = step,
            (3, Field::Bytes(bytes)) => event.version = text(bytes),
            (5, Field::Bytes(summary)) => {
                for (_, value) in fields(summary) {
                    let Field::Bytes(value) = value else { panic!("a value is a message") };
                    let (mut tag, mut number) = (String::new(), None);
                    for field in fields(value) {
                        match field {
                            (1, Field::Bytes(bytes)) => tag = text(bytes),
                            (2, Field::Fixed(bits)) => number = Some(f32::from_bits(bits as u32)),
                            (other, _) => panic!("field {other} of a value"),
                        }
                    }
                    assert!(event.scalars.insert(tag, number.unwrap()).is_none());
                }
            }
            (other, _) => panic!("field {other} of an event"),
        }
    }
    event
}

/// A run of six steps on four ranks, in `dir/run`.
fn run(name: &str) -> PathBuf {
    let dir = scratch(name);
    write(&dir, "plan.json", four_ranks(6).to_json());
    runner_in(&dir, &["plan.json", "--out", "run"]).done();
    dir
}

/// The only file in a folder.
fn only_file(folder: &Path) -> PathBuf {
    let entries: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    let [file] = &entries[..] else { panic!("one file: {entries:?}") };
    file.clone()
}

#[test]
fn tensorboard_reads_every_step() {
    assert_eq!(crc32c(b"123456789"), 0xe306_9283, "the check value of CRC-32C");
    let dir = run("tensorboard");
    let args = ["export", "run", "--tensorboard", "logs/a"];
    runner_in(&dir, &args).done();
    let file = only_file(&dir.join("logs/a"));
    let name = file.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("events.out.tfevents."), "{name}");
    let bytes = std::fs::read(&file).unwrap();
    let events: Vec<Event> = records(&bytes).into_iter().map(event).collect();
    assert_eq!(events[0].version, "brain.Event:2");
    assert_eq!(events.len(), 1 + 6);
    let losses = losses(&dir.join("run"));
    for ((step, event), loss) in (0..).zip(&events[1..]).zip(&losses) {
        assert_eq!(event.step, step);
        let names: Vec<&str> = event.scalars.keys().map(String::as_str).collect();
        assert_eq!(names, ["accuracy", "bubble", "learning_rate", "loss", "step_time_s"]);
        assert_eq!(event.scalars["loss"], loss.parse::<f64>().unwrap() as f32);
        assert_eq!(event.scalars["learning_rate"], 0.01);
        assert!((0.0..1.0).contains(&event.scalars["bubble"]), "{event:?}");
        assert!(event.scalars["step_time_s"] > 0.0);
        // Later than this was written.
        assert!(event.wall_time > 1.7e9 && event.version.is_empty());
    }
    assert!(events.windows(2).all(|pair| pair[0].wall_time <= pair[1].wall_time));
    // Once more gives the same file, not a second one.
    runner_in(&dir, &args).done();
    assert_eq!(std::fs::read(only_file(&dir.join("logs/a"))).unwrap(), bytes);
}

#[test]
fn tables_have_every_step() {
    let dir = run("csv");
    runner_in(&dir, &["export", "run", "--csv", "tables/run.csv"]).done();
    let text = std::fs::read_to_string(dir.join("tables/run.csv")).unwrap();
    assert_eq!(runner_in(&dir, &["export", "run", "--csv", "-"]).done().stdout, text);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        "step,loss,accuracy,test_loss,test_accuracy,step_time_s,bubble,learning_rate,\
         gradient_norm,edge_error,way,encoded_bytes,unix_ms"
    );
    let losses = losses(&dir.join("run"));
    for ((step, line), loss) in (0..).zip(&lines[1..]).zip(&losses) {
        let cells: Vec<&str> = line.split(',').collect();
        assert_eq!((cells.len(), cells[0]), (13, &*format!("{step}")), "{line}");
        assert_eq!(cells[1].parse::<f64>().unwrap(), loss.parse::<f64>().unwrap());
        assert_eq!(cells[7], "0.01");
    }
    assert_eq!(lines.len(), 7);
    // What a killed run leaves: half a line. And what no run leaves.
    let metrics = dir.join("run/rank-000.jsonl");
    let whole = std::fs::read_to_string(&metrics).unwrap();
    std::fs::write(&metrics, &whole[..whole.len() - 9]).unwrap();
    let shorter = runner_in(&dir, &["export", "run", "--csv", "-"]);
    assert_eq!(shorter.done().stdout.lines().count(), 6);
    std::fs::write(&metrics, whole.replacen('{', "[", 1)).unwrap();
    runner_in(&dir, &["export", "run", "--csv", "-"]).refused(2, "rank-000.jsonl, line 1: ");
    runner_in(&dir, &["export", "logs", "--csv", "-"]).refused(2, "there is no rank-000.jsonl");
}

#[test]
fn one_thing_is_exported() {
    let dir = scratch("export-usage");
    runner_in(&dir, &["export", "run"]).refused(2, "--tensorboard");
    runner_in(&dir, &["export", "--csv", "x"]).refused(2, "SOURCE");
    runner_in(&dir, &["export", "run", "--csv", "x", "--tensorboard", "y"]).refused(2, "cannot be");
}
