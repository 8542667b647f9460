//! An elastic job on several hosts: ranks that die, and a host's memory that is lost.

use crate::common::{RUNNER, digits, draft, losses, mpirun_in, scratch, write};
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::DataParallel;
use pipewright_core::schedule::ScheduleKind;
use pipewright_runner::elastic::journal::{Cause, Event, Line};
use std::path::Path;
use std::process::{Command, Stdio};

const SECONDS_MAX: &str = "240";

/// Four stages on two hosts with two ranks each: nothing is on both of them but what partners keep.
fn plan(dir: &Path) -> &'static str {
    let mut draft = draft(Preset::DigitsCnn, 4);
    (draft.schedule, draft.data, draft.steps) = (ScheduleKind::OneFOneB, digits(), 30);
    write(dir, "plan.json", draft.plan().unwrap().0.to_json())
}

/// Runs a job on the hosts with `faults`, beside what `meanwhile` does, a script; its journal. `None`
/// where there can be no hosts, which has been said.
fn on_hosts(dir: &Path, faults: &str, meanwhile: &str) -> Option<Vec<Line>> {
    let Some(mpirun) = pipewright::tools::find("MPIRUN", &["mpirun"]) else {
        pipewright::tools::skip("mpirun");
        return None;
    };
    on_hosts_with(&mpirun, "relaunch", dir, faults, meanwhile)
}

/// The same with that mpirun and way to go on after a loss.
fn on_hosts_with(
    mpirun: &Path,
    on_loss: &str,
    dir: &Path,
    faults: &str,
    meanwhile: &str,
) -> Option<Vec<Line>> {
    let script = format!(
        "\"$1\" elastic plan.json --hosts host1:2,host2:2 --out out --overwrite --job job \
         --on-loss {on_loss} --settle 0.1 --silent-after 3 --save-every 1000 -- --threads 1 &\n\
         {meanwhile}\nwait $!"
    );
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", SECONDS_MAX]).arg(pipewright::hosts::script());
    command.args(["2", "1000", "bash", "-c", &script, "bash", RUNNER]).current_dir(dir);
    command.env("MPIRUN", mpirun).env("PIPEWRIGHT_FAIL", faults).stdin(Stdio::null());
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
