//! Encoded sums on several hosts: the bytes that the exchange counts are those on the wire.

use crate::common::{RUNNER, SECONDS_MAX, scratch};
use pipewright::hosts::{Hosts, Wire, mpirun};
use std::path::Path;

/// Measures sums by `codecs` on a rank a host, or on two; the rows of the table and what passed the
/// cables. `None` where there can be no hosts, which has been said.
fn bench(ranks: &[u32], codecs: &str, dir: &Path) -> Option<(serde_json::Value, Vec<Wire>)> {
    let hosts = Hosts { ranks, mbit: 1000 };
    let words = "bench allreduce --sizes 4MiB --seconds 0 --algorithms two-shot --json rows.json";
    let mut args: Vec<&str> = words.split(' ').collect();
    args.extend(["--codecs", codecs]);
    if ranks.iter().any(|ranks| *ranks > 1) {
        args.push("--hierarchical");
    }
    let (run, wire) = mpirun(hosts, Path::new(RUNNER), &args, dir, SECONDS_MAX).unwrap()?;
    assert_eq!(run.status.code(), Some(0), "{run:#?}");
    let rows = std::fs::read_to_string(dir.join("rows.json")).unwrap();
    Some((serde_json::from_str(&rows).unwrap(), wire))
}

/// Two runs that differ by the sums of one codec.
fn check(ranks: &[u32], dir: &str) {
    let dir = scratch(dir);
    let Some((_, fewer)) = bench(ranks, "one-bit", &dir) else { return };
    let Some((rows, more)) = bench(ranks, "one-bit,fp8-e5m2", &dir) else { return };
    let row = &rows[1];
    assert_eq!((&rows[0]["codec"], &row["codec"]), (&"one-bit".into(), &"fp8-e5m2".into()));
    // One more than those that are timed. Ranks of a host share its cable.
    let sums = row["times"].as_u64().unwrap() + 1;
    let shards = u64::from(*ranks.iter().min().unwrap());
    let counted = row["wire-bytes"].as_u64().unwrap() * sums * shards;
    for (host, (more, fewer)) in more.iter().zip(&fewer).enumerate() {
        for (way, more, fewer) in
            [("sent", more.sent, fewer.sent), ("received", more.received, fewer.received)]
        {
            let wire = more - fewer;
            println!("host {host} {way} {wire} bytes, {counted} counted");
            // Parts differ by 128 values; frames have headers, and there are acknowledgements.
            let within = counted - counted / 100..counted + counted / 8;
            assert!(within.contains(&wire), "host {host} {way} {wire} bytes of {counted}");
        }
    }
}

#[test]
#[ignore = "needs root or user namespaces: make test"]
fn what_is_counted_is_on_the_wire() {
    let _machine = crate::shared();
    check(&[1, 1, 1], "exchange_wire");
}

#[test]
#[ignore = "needs root or user namespaces: make test"]
fn hosts_exchange_sums_alone() {
    let _machine = crate::shared();
    check(&[2, 2], "exchange_wire_of_hosts");
}
