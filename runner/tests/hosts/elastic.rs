//! An elastic job on several hosts: ranks that die, and a host's memory that is lost.

use crate::common::{RUNNER, digits, draft, losses, mpirun_in, scratch, write};
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::DataParallel;
use pipewright_core::schedule::ScheduleKind;
use pipewright_runner::elastic::journal::{Cause, Event, Line};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SECONDS_MAX: &str = "900";

/// Four stages on two hosts with two ranks each: nothing is on both of them but what partners keep.
fn plan(dir: &Path) -> &'static str {
    let mut draft = draft(Preset::DigitsCnn, 4);
    (draft.schedule, draft.data, draft.steps) = (ScheduleKind::OneFOneB, digits(), 30);
    write(dir, "plan.json", draft.plan().unwrap().0.to_json())
}

/// Runs a job on the hosts with `faults`, beside what `meanwhile` does, a script; its journal. `None`
/// where there can be no hosts, which has been said.
fn on_hosts(dir: &Path, faults: &str, meanwhile: &str) -> Option<Vec<Line>> {
    on_hosts_with(&mpirun()?, "relaunch", dir, faults, meanwhile)
}

fn mpirun() -> Option<PathBuf> {
    let found = pipewright::tools::find("MPIRUN", &["mpirun"]);
    found.or_else(|| {
        pipewright::tools::skip("mpirun");
        None
    })
}

/// The same with that mpirun and way to go on after a loss.
fn on_hosts_with(
    mpirun: &Path,
    on_loss: &str,
    dir: &Path,
    faults: &str,
    meanwhile: &str,
) -> Option<Vec<Line>> {
    // Deaths that mpirun tells of are not to be taken for silence, however late it is told on a busy
    // machine; what stands still, and what survivors are left of, is found by silence alone.
    let told = on_loss == "relaunch" && !faults.ends_with("stop");
    let silent_after = if told { 120 } else { 3 };
    let script = format!(
        "\"$1\" elastic plan.json --hosts host1:2,host2:2 --out out --overwrite --job job \
         --on-loss {on_loss} --settle 0.01 --silent-after {silent_after} --save-every 1000 -- \
         --threads 1 &\n\
         {meanwhile}\nwait $!"
    );
    in_hosts(mpirun, dir, faults, &script)
}

/// Runs a script on two hosts, in which `$1` is the runner; the journal of its job.
fn in_hosts(mpirun: &Path, dir: &Path, faults: &str, script: &str) -> Option<Vec<Line>> {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", SECONDS_MAX]).arg(pipewright::hosts::script());
    command.args(["2", "1000", "bash", "-c", script, "bash", RUNNER]).current_dir(dir);
    command.env("MPIRUN", mpirun).stdin(Stdio::null());
    if !faults.is_empty() {
        command.env("PIPEWRIGHT_FAIL", faults);
    }
    let ended = command.output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    if pipewright::hosts::skipped(ended.status.code(), &said) {
        return None;
    }
    assert_eq!(ended.status.code(), Some(0), "{said}");
    let text = std::fs::read_to_string(dir.join("out/run.jsonl")).unwrap();
    Some(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

/// It trained as a run on one host does, and nothing was lost or is left.
fn unharmed(dir: &Path, journal: &[Line], expected: &[Cause]) {
    let cause = |line: &Line| match line.event {
        Event::Ended { cause, .. } => Some(cause),
        _ => None,
    };
    let causes: Vec<Cause> = journal.iter().filter_map(cause).collect();
    assert_eq!(causes, expected, "{journal:#?}");
    let lost = |line: &Line| matches!(line.event, Event::StateLost { .. });
    assert!(!journal.iter().any(lost), "{journal:#?}");
    assert_eq!(losses(&dir.join("out")), losses(&dir.join("whole")));
    assert!(!dir.join("out/beats").exists());
    for line in journal {
        if let Event::Training { recover_ms: Some(ms), .. } = line.event {
            println!("training again after {ms} ms");
        }
    }
}

#[test]
#[ignore = "builds hosts: needs root or user namespaces"]
fn ranks_and_memory_of_a_host_are_lost() {
    let _machine = crate::shared();
    let dir = scratch("hosts-elastic");
    let plan = plan(&dir);
    if let Some(run) = mpirun_in(&dir, 4, &[plan, "--out", "whole", "--threads", "1"]) {
        run.done();
    }
    // A rank of each host.
    let Some(journal) = on_hosts(&dir, "3:forward:8@1,0:send:15@2", "") else { return };
    unharmed(&dir, &journal, &[Cause::RankLost, Cause::RankLost, Cause::Done]);
    // What a host had in memory goes with it, while a rank stands still so that it is not written
    // again. The other host has copies.
    for host in ["host1", "host2"] {
        let meanwhile = format!(
            "until grep -q '\"quiet\"' out/run.jsonl 2>/dev/null; do sleep 0.05; done\n\
             test -d /dev/shm/pipewright-job/state/{host} || echo no state of {host} >&2\n\
             rm -rf /dev/shm/pipewright-job/state/{host}"
        );
        std::fs::remove_dir_all(dir.join("out")).unwrap();
        let journal = on_hosts(&dir, "2:forward:8:stop", &meanwhile).unwrap();
        unharmed(&dir, &journal, &[Cause::RankSilent, Cause::Done]);
    }
}

/// What ranks divide among themselves is kept whole: parts of moments, and of layers.
#[test]
#[ignore = "builds hosts: needs root or user namespaces"]
fn ranks_that_keep_parts_are_lost() {
    let _machine = crate::shared();
    let dir = scratch("hosts-parts");
    let mut replicas = draft(Preset::DigitsCnn, 2);
    (replicas.data, replicas.steps, replicas.mini_batch) = (digits(), 20, 32);
    replicas.optimizer = "adamw:lr=0.003".parse().unwrap();
    // Sums of two have the same bits in every order.
    replicas.data_parallel = DataParallel::zero1(2);
    let preset = "transformer:layers=2,hidden=32,heads=4,sequence=8,vocabulary=53";
    let mut groups = draft(preset.parse().unwrap(), 1);
    (groups.steps, groups.mini_batch) = (20, 8);
    (groups.tensor, groups.data_parallel) = (2, DataParallel::ddp(2));
    for draft in [replicas, groups] {
        let plan = write(&dir, "plan.json", draft.plan().unwrap().0.to_json());
        if let Some(run) = mpirun_in(&dir, 4, &[plan, "--out", "whole", "--threads", "1"]) {
            run.done();
        }
        let Some(journal) = on_hosts(&dir, "2:forward:6", "") else { return };
        unharmed(&dir, &journal, &[Cause::RankLost, Cause::Done]);
        for run in ["whole", "out"] {
            std::fs::remove_dir_all(dir.join(run)).unwrap();
        }
    }
}

/// A job that goes on on one host has what was kept on two.
#[test]
#[ignore = "builds hosts: needs root or user namespaces"]
fn two_hosts_become_one_and_two_again() {
    let _machine = crate::shared();
    let dir = scratch("hosts-one");
    let plan = plan(&dir);
    let whole = [plan, "--steps", "200", "--out", "whole", "--threads", "1"];
    if let Some(run) = mpirun_in(&dir, 4, &whole) {
        run.done();
    }
    let Some(mpirun) = mpirun() else { return };
    // The supervisor is killed with all that it has started, and the job begun again.
    let script = "job() {\n\
          \"$runner\" elastic plan.json --steps 200 --hosts $1 --out out --job job \
            --on-loss relaunch --settle 0.1 --save-every 1000 -- --threads 1 &\n\
        }\n\
        killed_behind() {\n\
          until ls /dev/shm/pipewright-job/state/host1 2>/dev/null | sed -n 's/^step-//p' |\n\
            awk -v step=$1 '$1 > step { found = 1 } END { exit !found }'; do sleep 0.02; done\n\
          kill -KILL $!; wait $!\n\
        }\n\
        runner=$1\n\
        job host1:2,host2:2; killed_behind 8\n\
        job host1:4; killed_behind 60\n\
        job host1:2,host2:2; wait $!";
    let Some(journal) = in_hosts(&mpirun, &dir, "", script) else { return };
    let lost = |line: &Line| matches!(line.event, Event::StateLost { .. });
    assert!(!journal.iter().any(lost), "{journal:#?}");
    // Each step once: none is trained again that is in somebody's memory.
    let metrics = std::fs::read_to_string(dir.join("out/rank-000.jsonl")).unwrap();
    let generation = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        line["generation"].as_u64().unwrap()
    };
    let generations: Vec<u64> = metrics.lines().map(generation).collect();
    let first = |n: u64| generations.iter().position(|generation| *generation == n);
    assert!(generations.is_sorted() && generations.len() == 200, "{generations:?}");
    assert!(first(2) >= Some(8) && first(3) >= Some(60), "{generations:?}");
    assert_eq!(losses(&dir.join("out")), losses(&dir.join("whole")));
}

#[test]
#[ignore = "builds hosts: needs root or user namespaces"]
fn survivors_on_several_hosts_go_on() {
    let _machine = crate::shared();
    let Some(mpirun) = pipewright::mpirun::surviving() else { return };
    let dir = scratch("hosts-survivors");
    let mut draft = draft(Preset::DigitsCnn, 2);
    (draft.schedule, draft.data, draft.steps) = (ScheduleKind::OneFOneB, digits(), 30);
    (draft.mini_batch, draft.micro_batches) = (32, 2);
    draft.data_parallel = DataParallel::ddp(2);
    write(&dir, "plan.json", draft.plan().unwrap().0.to_json());
    // Of the supervisor's view both are on other machines: it hears of them by their hearts alone.
    for victim in [3, 0] {
        let faults = format!("{victim}:forward:8");
        let Some(journal) = on_hosts_with(&mpirun, "shrink", &dir, &faults, "") else { return };
        let generations = journal.iter().filter_map(|line| match line.event {
            Event::Generation { ranks, .. } => Some(ranks),
            _ => None,
        });
        assert_eq!(generations.collect::<Vec<_>>(), [4, 2], "{journal:#?}");
        assert_eq!(losses(&dir.join("out")).len(), 30);
        std::fs::remove_dir_all(dir.join("out")).unwrap();
    }
}
