//! The runner on several hosts whose network has a limit: the same losses as on one, the messages
//! of the plan on the wire and no others, and a profile that finds the limit.

use crate::common::{
    RUNNER, SECONDS_MAX, digits, draft, four_ranks, losses, runner_in, scratch, write,
};
use pipewright::hosts::{Hosts, Wire, mpirun};
use pipewright_core::cost::Cluster;
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::{Instruction, Plan};
use pipewright_core::predict::predict;
use std::path::Path;

/// A quarter of what Gigabit Ethernet passes.
const MBIT: u32 = 250;
const BYTES_PER_SEC: f64 = MBIT as f64 * 1e6 / 8.0;

/// Runs the program on the hosts; `None` where there can be none, which has been said.
fn on_hosts(ranks: &[u32], args: &[&str], dir: &Path) -> Option<Vec<Wire>> {
    let hosts = Hosts { ranks, mbit: MBIT };
    let (run, wire) = mpirun(hosts, Path::new(RUNNER), args, dir, SECONDS_MAX).unwrap()?;
    assert_eq!(run.status.code(), Some(0), "{run:#?}");
    Some(wire)
}

/// Bytes that each lane sends to each other one in a step.
fn messages(plan: &Plan) -> Vec<Vec<u64>> {
    let programs = predict(plan).unwrap().programs;
    let mut bytes = vec![vec![0; programs.len()]; programs.len()];
    for program in &programs {
        for instruction in &program.train {
            if let Instruction::Send { to, region, .. } = instruction {
                bytes[program.lane.index()][to.index()] += region.bytes.0;
            }
        }
    }
    bytes
}

/// Checks that `more` and `fewer` steps differ by the messages of `steps` steps between hosts.
fn check_wire(ranks: &[u32], plan: &Plan, (more, fewer): (&[Wire], &[Wire]), steps: u64) {
    let messages = messages(plan);
    // The host of each lane: lanes are ranks here.
    let hosts = ranks.iter().enumerate().flat_map(|(host, ranks)| (0..*ranks).map(move |_| host));
    let host_of: Vec<usize> = hosts.collect();
    for host in 0..ranks.len() {
        let across = |from: usize, to: usize| host_of[from] == host && host_of[to] != host;
        let lanes = || (0..host_of.len()).flat_map(|a| (0..host_of.len()).map(move |b| (a, b)));
        let of = |pairs: &mut dyn Iterator<Item = (usize, usize)>| -> u64 {
            steps * pairs.map(|(from, to)| messages[from][to]).sum::<u64>()
        };
        let sent = of(&mut lanes().filter(|(from, to)| across(*from, *to)));
        let received = of(&mut lanes().filter(|(from, to)| across(*to, *from)));
        for (way, planned, wire) in [
            ("sent", sent, more[host].sent.saturating_sub(fewer[host].sent)),
            ("received", received, more[host].received.saturating_sub(fewer[host].received)),
        ] {
            println!("{ranks:?} host{}: {way} {wire} bytes for {planned} planned", host + 1);
            // Headers of frames and of MPI, acknowledgements of the other way, the sums of losses.
            let other = (sent + received) / 10 + steps * 20_000;
            assert!((planned.saturating_sub(2048)..=planned + other).contains(&wire));
        }
    }
}

#[test]
#[ignore = "needs root or user namespaces: make test"]
fn losses_are_those_of_one_host_and_only_planned_messages_cross() {
    let _machine = crate::shared();
    const FEWER: u64 = 5;
    const MORE: u64 = 25;
    let dir = scratch("hosts-training");
    let plans = [FEWER, MORE].map(four_ranks);
    write(&dir, "fewer.json", plans[0].to_json());
    write(&dir, "more.json", plans[1].to_json());
    runner_in(&dir, &["more.json", "--out", "alone"]).done();
    let alone = losses(&dir.join("alone"));
    assert_eq!(alone.len() as u64, MORE);
    for ranks in [[2, 2, 0, 0], [1, 1, 1, 1]] {
        let Some(fewer) = on_hosts(&ranks, &["fewer.json", "--out", "fewer", "--overwrite"], &dir)
        else {
            return;
        };
        assert_eq!(losses(&dir.join("fewer")), alone[..FEWER as usize], "{ranks:?}");
        let Some(more) = on_hosts(&ranks, &["more.json", "--out", "more", "--overwrite"], &dir)
        else {
            return;
        };
        assert_eq!(losses(&dir.join("more")), alone, "{ranks:?}");
        check_wire(&ranks, &plans[0], (&more, &fewer), MORE - FEWER);
    }
    std::fs::remove_dir_all(dir).unwrap();
}

/// A profile of two hosts says that they are two, and how fast their link is.
#[test]
#[ignore = "needs root or user namespaces: make test"]
fn a_profile_finds_the_limit_of_the_network() {
    let _machine = crate::undisturbed();
    let dir = scratch("hosts-profile");
    let mut draft = draft(Preset::DigitsCnn, 2);
    draft.data = digits();
    write(&dir, "plan.json", draft.plan().unwrap().0.to_json());
    let args = ["profile", "plan.json", "-o", "cluster.json"];
    let Some(wire) = on_hosts(&[1, 1], &args, &dir) else { return };
    let text = std::fs::read_to_string(dir.join("cluster.json")).unwrap();
    let cluster: Cluster = serde_json::from_str(&text).unwrap();
    assert_eq!((cluster.nodes, cluster.ranks_per_node), (2, 1));
    let found = cluster.network.bytes_per_sec;
    println!(
        "network of {:.2} MB/s: found {:.2} MB/s ({:+.1} %), latency {}; {wire:?}",
        BYTES_PER_SEC / 1e6,
        found / 1e6,
        (found / BYTES_PER_SEC - 1.0) * 100.0,
        cluster.network.latency_ns,
    );
    // Times on a busy machine are loose, but without a limit there are gigabytes a second.
    assert!((BYTES_PER_SEC / 3.0..BYTES_PER_SEC * 3.0).contains(&found), "{found}");
    std::fs::remove_dir_all(dir).unwrap();
}
