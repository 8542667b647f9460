//! Tests of the format: texts that are read, texts that are refused, texts that are written.

use super::*;
use crate::recompute::Cost;
use crate::recompute::problem::{MOST_EDGES, MOST_NODES};
use std::fmt::Write as _;

/// A graph of these nodes, each the inside of an object.
fn graph(nodes: &[&str]) -> Result<GraphFile, FileError> {
    let nodes: Vec<String> = nodes.iter().map(|node| format!("{{{node}}}")).collect();
    let text = format!(r#"{{"format":"{FORMAT}","model":"m","nodes":[{}]}}"#, nodes.join(","));
    read(text.as_bytes())
}

/// The first node of good graphs.
const FIRST: &str = r#""id":0,"bytes":8,"time":1.5,"inputs":[],"name":"a","op":"mm","phase":"F""#;

#[test]
fn everything_is_read() {
    let second = r#""id":1,"bytes":4,"time":2,"inputs":[0,0],"phase":"B","output":"gradient",
        "output_bytes":4,"workspace":9,"rng":true,"once":true,"source_inputs":["s3"],"more":{"deep":[[1]]}"#;
    let file = graph(&[FIRST, second]).unwrap();
    assert_eq!(file.model, "m");
    assert_eq!(file.forward(), [true, false]);
    let [a, b] = file.problem.nodes() else { panic!() };
    assert_eq!((a.bytes, a.time, a.output, a.once), (8, 1.5, false, false));
    assert_eq!((b.bytes, b.time, b.output, b.once), (4, 2.0, true, true));
    assert_eq!((a.scratch, b.scratch), (0, 9));
    assert_eq!(file.problem.inputs(1), [0]);
    assert_eq!((&file.labels[0].name[..], &file.labels[0].op[..]), ("a", "mm"));
    assert_eq!((&file.labels[1].name[..], file.labels[1].rng), ("1", true));
    // Numbers that people and programs write.
    let whole = graph(&[r#""id":0.0,"bytes":1e3,"time":-0.0,"inputs":[],"output":true"#]).unwrap();
    assert_eq!(whole.problem.node(0).bytes, 1000);
    assert!(whole.problem.node(0).time.is_sign_positive());
}

#[test]
fn what_is_resident_is_summed() {
    let second = r#""id":1,"bytes":4,"time":2,"inputs":[0],"output":"loss""#;
    let with = |sources: &str, end: &str| {
        let text = format!(
            r#"{{"format":"{FORMAT}","sources":{sources},"nodes":[{{{FIRST}}},{{{second}{end}}}]}}"#
        );
        read(text.as_bytes()).map(|file| file.resident).map_err(|e| e.to_string())
    };
    assert_eq!(with("[]", ""), Ok(4));
    assert_eq!(with(r#"[{"id":"s0","bytes":100},{"bytes":20}]"#, r#","output_bytes":3"#), Ok(123));
    let refused = with(r#"[{"bytes":1},{"bytes":-5}]"#, "").unwrap_err();
    assert!(refused.contains("source 1, bytes: -5 is not a whole"), "{refused}");
    let refused = with("[]", r#","output_bytes":0.5"#).unwrap_err();
    assert!(refused.contains("node 1, output_bytes: 0.5"), "{refused}");
    assert!(with("7", "").unwrap_err().contains("expected a list of sources"));
}

#[test]
fn bad_nodes_are_refused_with_their_place() {
    let node = |fields: &str| format!(r#""id":1,"output":"loss",{fields}"#);
    let cases = [
        (r#""bytes":-1,"time":1,"inputs":[]"#, "node 1, bytes: -1 is not a whole number of bytes"),
        (r#""bytes":1.5,"time":1,"inputs":[]"#, "node 1, bytes: 1.5 is not"),
        (r#""bytes":1e30,"time":1,"inputs":[]"#, "node 1, bytes: 1e30 is not"),
        (r#""bytes":99999999999999999999,"time":1,"inputs":[]"#, "node 1, bytes: 1e20 is not"),
        (r#""bytes":18446744073709551615,"time":1,"inputs":[]"#, "from 0 to 2^56"),
        (r#""bytes":72057594037927930,"time":1,"inputs":[]"#, "up to node 1 have more than"),
        (r#""bytes":"8","time":1,"inputs":[]"#, "node 1, bytes: `8` is not"),
        (r#""bytes":[[1,2],3],"time":1,"inputs":[]"#, "node 1, bytes: a list is not"),
        (r#""bytes":8,"time":-0.5,"inputs":[]"#, "node 1, time: -0.5 is not a time"),
        (r#""bytes":8,"time":1e31,"inputs":[]"#, "node 1, time: 1e31 is not"),
        (r#""bytes":8,"time":{"a":1},"inputs":[]"#, "node 1, time: an object is not"),
        (r#""bytes":8,"time":1,"inputs":[1]"#, "node 1 reads node 1, which does not come before"),
        (r#""bytes":8,"time":1,"inputs":[7]"#, "node 1 reads node 7"),
        (r#""bytes":8,"time":1,"inputs":[0,-1]"#, "node 1, inputs: -1 is not the number"),
        (r#""bytes":8,"time":1,"inputs":["0"]"#, "node 1, inputs: `0` is not"),
        (r#""bytes":8,"time":1,"inputs":[4294967296]"#, "node 1, inputs: 4294967296 is not"),
        (r#""bytes":8,"time":1"#, "node 1 has no `inputs`"),
        (r#""bytes":8,"inputs":[]"#, "node 1 has no `time`"),
        (r#""bytes":null,"time":1,"inputs":[]"#, "node 1 has no `bytes`"),
        (r#""bytes":8,"time":1,"inputs":[],"phase":"X""#, "node 1, phase: `X` is not `F` or `B`"),
        (
            r#""bytes":8,"time":1,"inputs":[],"workspace":-1"#,
            "node 1, workspace: -1 is not a whole",
        ),
        (r#""bytes":8,"time":1,"inputs":[],"rng":7"#, "node 1, rng: 7 is not true or false"),
        (r#""bytes":8,"time":1,"inputs":[],"name":[]"#, "node 1, name: a list is not a text"),
        (r#""bytes":8,"time":1,"inputs":0"#, "expected a list of nodes' ids at line 1"),
        (r#""bytes":8,"bytes":8,"time":1,"inputs":[]"#, "duplicate field `bytes`"),
    ];
    for (fields, words) in cases {
        let error = graph(&[FIRST, &node(fields)]).unwrap_err().to_string();
        assert!(error.contains(words), "{fields}: {error}");
    }
    // What is wrong is found also where more follows, and the first fault is the one that is told.
    let bad = node(r#""bytes":-1,"time":1,"inputs":[]"#);
    let error = graph(&[FIRST, &bad, &bad.replace("-1", "-2")]).unwrap_err();
    assert!(error.to_string().contains("-1"), "{error}");
}

#[test]
fn ids_are_places() {
    let node = |id: &str| format!(r#""id":{id},"bytes":1,"time":1,"inputs":[],"output":"loss""#);
    assert_eq!(graph(&[FIRST, &node("0")]), Err(FileError::Duplicate { at: 1, id: 0 }));
    for id in ["2", "-1", "1.5", "\"1\""] {
        let error = graph(&[FIRST, &node(id)]).unwrap_err();
        assert!(matches!(error, FileError::Id { at: 1, .. }), "{error}");
    }
}

#[test]
fn other_files_are_refused() {
    let told = |text: &str| read(text.as_bytes()).unwrap_err().to_string();
    assert!(told("").contains("EOF"));
    assert!(told("[]").contains("not a graph"));
    assert!(told("{}").contains("format is not given"));
    assert!(told(r#"{"format":"recompute-graph/2"}"#).contains("`recompute-graph/2`"));
    assert!(told(r#"{"format":7,"nodes":[]}"#).contains("format is 7"));
    let with = |rest: &str| told(&format!(r#"{{"format":"{FORMAT}",{rest}}}"#));
    assert!(with(r#""model":"m""#).contains("the file has no `nodes`"));
    assert!(with(r#""nodes":{}"#).contains("expected a list of nodes"));
    assert!(with(r#""nodes":[7]"#).contains("not a graph"));
    assert!(with(r#""nodes":[]"#).contains("no nodes"));
    assert!(graph(&[FIRST]).unwrap_err().to_string().contains("no node is an output"));
    assert!(read(&[0x1f, 0x8b, 8, 0]).is_err());
    assert!(read(&[b'"', 0xff, b'"']).is_err());
    let deep = "[".repeat(100_000);
    assert!(
        with(&format!(r#""extra":{deep}"#)).contains("not a graph"),
        "skipped without recursion"
    );
    assert!(with(&format!(r#""nodes":[{{"id":{deep}"#)).contains("not a graph"));
}

#[test]
fn numbers_that_are_none_are_named() {
    for (text, word) in
        [("NaN", "NaN"), ("Infinity", "Infinity"), ("-Infinity", "-Infinity"), ("-NaN", "-NaN")]
    {
        let node = format!("\n\"id\":0,\"bytes\":1,\"time\":{text},\"inputs\":[]");
        let error = graph(&[&node]).unwrap_err();
        let FileError::NotFinite { line: 2, column: _, found } = error else { panic!("{error}") };
        assert_eq!(found, word);
    }
    let error = graph(&[r#""id":0,"bytes":1,"time":1e999,"inputs":[]"#]).unwrap_err();
    assert!(error.to_string().contains("number out of range"), "{error}");
}

#[test]
fn cut_files_are_refused_wherever_they_are_cut() {
    let text = format!(r#"{{"format":"{FORMAT}","nodes":[{{{FIRST},"output":"loss"}}]}}"#);
    assert!(read(text.as_bytes()).is_ok());
    for end in 0..text.len() {
        assert!(read(&text.as_bytes()[..end]).is_err(), "{}", &text[..end]);
    }
    assert!(read(format!("{text} x").as_bytes()).is_err());
}

#[test]
fn huge_graphs_are_refused() {
    let mut text = format!(r#"{{"format":"{FORMAT}","nodes":["#);
    for id in 0..=MOST_NODES {
        let comma = if id > 0 { "," } else { "" };
        write!(text, r#"{comma}{{"id":{id},"bytes":0,"time":0,"inputs":[]}}"#).unwrap();
    }
    // Ten million more: they are counted, not kept.
    text.push_str(&",0".repeat(10_000_000));
    text.push_str("]}");
    let count = MOST_NODES + 1 + 10_000_000;
    let error = read(text.as_bytes()).unwrap_err();
    assert_eq!(error, ProblemError::TooLarge { what: "nodes", count, most: MOST_NODES }.into());
    let inputs = vec!["0"; MOST_EDGES + 5].join(",");
    let second = format!(r#""id":1,"bytes":0,"time":0,"inputs":[{inputs}]"#);
    let error = graph(&[FIRST, &second]).unwrap_err().to_string();
    assert!(error.contains("edges, more than the 16000000"), "{error}");
}

#[test]
fn sequences_are_written_as_the_checker_reads_them() {
    let without = Cost { peak: 100, time: 8.0 };
    let point = PointRecord::new(Cost { peak: 50, time: 10.0 }, without, Some(&[0, 1, 0]));
    let file = SequenceFile {
        format: SEQUENCE_FORMAT,
        model: "m",
        budget_bytes: 60,
        peak_without_bytes: without.peak,
        time_without_us: without.time,
        bound_bytes: 40,
        point: point.clone(),
    };
    let value: serde_json::Value = serde_json::from_str(&file.to_json()).unwrap();
    assert_eq!(value["sequence"], serde_json::json!([0, 1, 0]));
    assert_eq!((&value["memory_pct"], &value["time_pct"]), (&50.0.into(), &125.0.into()));
    assert_eq!((&value["budget_bytes"], &value["bound_bytes"]), (&60.into(), &40.into()));
    let front = FrontFile {
        format: FRONT_FORMAT,
        model: "m",
        peak_without_bytes: without.peak,
        time_without_us: without.time,
        bound_bytes: 40,
        points: vec![PointRecord { sequence: None, ..point }],
    };
    let value: serde_json::Value = serde_json::from_str(&front.to_json()).unwrap();
    assert_eq!(value["points"][0]["peak_bytes"], 50);
    assert!(value["points"][0].get("sequence").is_none());
}
