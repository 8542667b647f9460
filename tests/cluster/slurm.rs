//! The batch script under a Slurm that `scripts/cluster/slurm-here.sh` starts for it: two nodes, real jobs.

use pipewright::{Outcome, mpirun, tools};
use std::path::Path;
use std::process::{Command, Stdio};

/// What is done there. The job has no end of its own: after the signal it must be queued again and go on, and then
/// it is cancelled. Others have an end: one by mpirun, one that loses a rank.
const JOBS: &str = r#"
set -eu
state() { scontrol show job "$1" | sed -n 's/.*JobState=\([A-Z]*\).*/\1/p'; }
steps() { wc -l <run/rank-000.jsonl 2>/dev/null || echo 0; }
until_steps() {
  until [ "$(steps)" -ge "$1" ]; do
    case $(state "$job") in
      PENDING | CONFIGURING | RUNNING | COMPLETING) sleep 0.1 ;;
      *) scontrol show job "$job"; cat ./*.log; exit 1 ;;
    esac
  done
}
job=$(sbatch --parsable --ntasks-per-node=1 --time=10 "$SCRIPTS/pipewright.sbatch" plan.json run --threads 1)
until_steps 5
scancel --batch --signal=USR1 "$job"
until [ "$(scontrol show job "$job" | grep -c 'Restarts=1')" = 1 ]; do
  case $(state "$job") in FAILED | COMPLETED | TIMEOUT) cat ./*.log; exit 1 ;; esac
  sleep 0.1
done
cp run/result.json interrupted.json
cp run/rank-000.jsonl first.jsonl
until_steps $(($(wc -l <first.jsonl) + 5))
scancel "$job"
until [ "$(state "$job")" = CANCELLED ]; do sleep 0.1; done
LAUNCHER=mpirun sbatch --wait --ntasks-per-node=1 --time=10 "$SCRIPTS/pipewright.sbatch" short.json short --threads 1
# Only builds with etcd show the option.
if command -v etcd && "$PIPEWRIGHT" elastic --help | grep -q -- --etcd; then
  export PIPEWRIGHT_FAIL=1:forward:20@1
  sbatch --wait --ntasks-per-node=1 --time=10 "$SCRIPTS/elastic.sbatch" short.json elastic -- --threads 1 ||
    { cat pipewright-elastic*.log; exit 1; }
fi
"#;

/// The losses of all steps, by their texts, and the steps.
fn steps(file: &Path) -> Outcome<Vec<(u64, String)>> {
    let text = std::fs::read_to_string(file)?;
    // The last line may be half.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let step = |line: &str| {
        let step: serde_json::Value = serde_json::from_str(line)?;
        Ok((step["step"].as_u64().ok_or("a step")?, step["loss"].to_string()))
    };
    whole.lines().map(step).collect()
}

#[test]
fn a_job_is_queued_again_and_goes_on() -> Outcome<()> {
    let dir = tools::scratch("slurm")?;
    let runner = tools::runner()?;
    let data = format!("idx:{}", tools::root().join("tests/data/digits").display());
    for (name, steps) in [("plan.json", "1000000"), ("short.json", "40")] {
        let network = [
            "plan",
            "--model",
            "digits-cnn",
            "--ranks",
            "2",
            "--stages",
            "2",
            "--schedule",
            "1f1b",
        ];
        let training =
            ["--micro-batches", "4", "--mini-batch", "64", "--data", &data, "--steps", steps];
        let mut plan = Command::new(&runner);
        let planned =
            plan.args(network).args(training).args(["-o", name]).current_dir(&dir).output()?;
        assert!(planned.status.success(), "{}", String::from_utf8_lossy(&planned.stderr));
    }
    let script = tools::root().join("scripts/cluster");
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", "280"]).arg(script.join("slurm-here.sh")).arg("slurm");
    command.args(["bash", "-c", JOBS]).env("SCRIPTS", &script);
    command.env("PIPEWRIGHT", &runner).envs(mpirun::environment());
    let ended = command.current_dir(&dir).stdin(Stdio::null()).output()?;
    let said = [&ended.stdout[..], &ended.stderr[..]].concat();
    let said = String::from_utf8_lossy(&said);
    match ended.status.code() {
        Some(0) => {}
        // No Slurm, or no root: neither is what `make setup` may change.
        Some(69 | 72) if said.contains("slurm-here.sh: ") => {
            tools::refused(said.trim_end());
            return Ok(std::fs::remove_dir_all(dir)?);
        }
        code => panic!("{code:?}: {said}"),
    }
    let log = std::fs::read_to_string(dir.join("pipewright-1.log"))?;
    assert!(log.contains("start 1 ends before its time is over, and is queued again"), "{log}");
    let interrupted = std::fs::read_to_string(dir.join("interrupted.json"))?;
    assert!(interrupted.contains("interrupted"), "{interrupted}");
    // What was trained stays, with its times: nothing of it is trained again.
    let lines = |name: &str| std::fs::read_to_string(dir.join(name));
    assert!(lines("run/rank-000.jsonl")?.starts_with(&lines("first.jsonl")?), "begun anew: {log}");
    // Each step once, and every loss that of the run that nothing interrupted.
    let (first, all) = (steps(&dir.join("first.jsonl"))?, steps(&dir.join("run/rank-000.jsonl"))?);
    let whole = steps(&dir.join("short/rank-000.jsonl"))?;
    assert!(all.len() > first.len() && whole.len() == 40, "{}: {log}", all.len());
    assert!(all.iter().map(|(step, _)| *step).eq(all[0].0..all[0].0 + all.len() as u64), "{all:?}");
    let common = all.len().min(whole.len());
    assert_eq!(all[..common], whole[..common]);
    // A rank was lost on the way, and nothing of what it did.
    let record = std::fs::read_to_string(dir.join("elastic/run.jsonl")).unwrap_or_default();
    if record.is_empty() {
        tools::refused("no elastic job: no etcd, or a runner without it");
    } else {
        assert!(record.contains("\"rank_lost\""), "{record}");
        assert_eq!(steps(&dir.join("elastic/rank-000.jsonl"))?, whole);
    }
    Ok(std::fs::remove_dir_all(dir)?)
}
