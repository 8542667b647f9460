//! A job under test: started, watched by its journal, and gone afterwards.

use crate::common::{RUNNER, digits, draft, losses, mpirun_in, write};
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::{DataParallel, Plan};
use pipewright_core::schedule::ScheduleKind;
use pipewright_runner::elastic::journal::{Cause, Event, Line};
use pipewright_runner::elastic::{FAULTS, JOURNAL, Session};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// No job takes longer; then it hangs.
const LIMIT: Duration = Duration::from_secs(180);

/// What Open MPI says when a defect of its own ends a job whose survivors would have gone on. First: it takes a
/// send to a lost rank for done, and calls it fatal that this rank's acknowledgement, written before its
/// end, is read afterwards (open-mpi/ompi#13494 has mended one of the two ways there). It takes a rank
/// that was not given a core just then, so busy machines see it. Second: a nonblocking collective whose next
/// round cannot be sent, because a rank is gone, calls MPI_Abort where others return an error.
const MPI_DEFECTS: [&str; 2] = ["Send error after request freed", "Error in NBC_Start_round()"];

/// Jobs that the defect may end before a test gives up.
const ATTEMPTS: usize = 4;

/// Two stages, each on two ranks.
pub fn two_by_two(steps: u64) -> Plan {
    let mut draft = draft(Preset::DigitsCnn, 2);
    (draft.data, draft.schedule, draft.steps) = (digits(), ScheduleKind::OneFOneB, steps);
    (draft.mini_batch, draft.micro_batches) = (32, 2);
    draft.data_parallel = DataParallel::ddp(2);
    draft.plan().unwrap().0
}

/// Two replicas of a transformer, each divided by a tensor group of two.
pub fn groups(steps: u64) -> Plan {
    let preset = "transformer:layers=2,hidden=32,heads=4,sequence=8,vocabulary=53";
    let mut draft = draft(preset.parse().unwrap(), 1);
    (draft.tensor, draft.data_parallel, draft.steps) = (2, DataParallel::ddp(2), steps);
    (draft.mini_batch, draft.micro_batches) = (16, 2);
    draft.plan().unwrap().0
}

/// Two stages of a mixture, two replicas that divide the experts.
pub fn expert_groups(steps: u64) -> Plan {
    let preset = "transformer:layers=2,hidden=32,heads=4,sequence=8,vocabulary=53,experts=4";
    let mut draft = draft(preset.parse().unwrap(), 2);
    (draft.data_parallel, draft.steps) = (DataParallel::ddp(2).with_experts(2), steps);
    (draft.mini_batch, draft.micro_batches, draft.seed) = (16, 2, 2);
    draft.plan().unwrap().0
}

/// Whether there is an mpirun; says so where not.
pub fn mpi() -> bool {
    let found = pipewright::tools::find("MPIRUN", &["mpirun"]).is_some();
    if !found {
        pipewright::tools::skip("mpirun");
    }
    found
}

/// A job that runs.
pub struct Job {
    child: Child,
    pub name: String,
    pub out: PathBuf,
}

impl Job {
    /// Starts `runner elastic plan.json` in `dir` with short times and more arguments. `faults` hit
    /// its ranks.
    pub fn start(dir: &Path, out: &str, args: &[&str], faults: &str) -> Self {
        Self::start_with(None, dir, out, args, faults)
    }

    /// The same under another mpirun.
    pub fn start_with(
        mpirun: Option<&Path>,
        dir: &Path,
        out: &str,
        args: &[&str],
        faults: &str,
    ) -> Self {
        let variables: Vec<(&str, &Path)> = mpirun.into_iter().map(|m| ("MPIRUN", m)).collect();
        Self::start_in(&variables, dir, out, args, faults)
    }

    /// The same with these variables, for the supervisor and its ranks.
    pub fn start_in(
        variables: &[(&str, &Path)],
        dir: &Path,
        out: &str,
        args: &[&str],
        faults: &str,
    ) -> Self {
        let name = format!("test-{}-{out}", dir.file_name().unwrap().to_string_lossy());
        let mut command = Command::new(RUNNER);
        command.args(["elastic", "plan.json", "--out", out, "--job", &name]);
        if !args.contains(&"--settle") {
            command.args(["--settle", "0.1"]);
        }
        command.args(args).args(["--", "--threads", "1"]).current_dir(dir);
        command.envs(pipewright::mpirun::environment());
        if !faults.is_empty() {
            command.env(FAULTS, faults);
        }
        command.envs(variables.iter().copied());
        let log = std::fs::File::create(dir.join(format!("{out}.log"))).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let child = command.spawn().unwrap();
        Self { child, name, out: dir.join(out) }
    }

    /// A job whose survivors go on after `faults`. `trained` holds of every job that loses ranks, also of
    /// one that MPI ended and whose ranks all started anew; what comes back is one that MPI did not end.
    #[track_caller]
    pub fn survived(
        mpirun: &Path,
        dir: &Path,
        args: &[&str],
        faults: &str,
        trained: impl Fn(&Self),
    ) -> Self {
        for _ in 0..ATTEMPTS {
            let mut job = Self::start_with(Some(mpirun), dir, "out", args, faults);
            job.ends(0);
            trained(&job);
            // Shown where the test fails: the folder is gone by then.
            println!("{}", job.log());
            if !MPI_DEFECTS.iter().any(|defect| job.log().contains(defect)) {
                return job;
            }
            println!(
                "Open MPI ended this job by itself, and all its ranks started anew: once more"
            );
            std::fs::remove_dir_all(&job.out).unwrap();
        }
        panic!("Open MPI ended {ATTEMPTS} jobs in a row: {MPI_DEFECTS:?}");
    }

    /// The supervisor's process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it and its ranks have said.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.out.with_extension("log")).unwrap()
    }

    /// The journal so far.
    pub fn journal(&self) -> Vec<Line> {
        let text = std::fs::read_to_string(self.out.join(JOURNAL)).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
    }

    /// Waits until the journal has an event.
    #[track_caller]
    pub fn until<T>(&mut self, what: &str, wanted: impl Fn(&Event) -> Option<T>) -> T {
        let begin = Instant::now();
        loop {
            if let Some(found) = self.journal().iter().find_map(|line| wanted(&line.event)) {
                return found;
            }
            let ended = self.child.try_wait().unwrap();
            let late = begin.elapsed() > LIMIT;
            assert!(ended.is_none() && !late, "no {what}: {:#?}\n{}", self.journal(), self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until the ranks of a generation train.
    #[track_caller]
    pub fn until_training(&mut self, generation: u64) {
        self.until("training", |event| match event {
            Event::Training { generation: now, .. } if *now == generation => Some(()),
            _ => None,
        });
    }

    /// Waits until so many generations have ended.
    #[track_caller]
    pub fn until_ended(&mut self, generations: usize) {
        let begin = Instant::now();
        while self.causes().len() < generations {
            assert!(begin.elapsed() < LIMIT, "{:#?}\n{}", self.journal(), self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    /// Waits for its end; its code.
    #[track_caller]
    pub fn wait(&mut self) -> Option<i32> {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(begin.elapsed() < LIMIT, "it hangs: {:#?}\n{}", self.journal(), self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for its end with that code; nothing of it may be left.
    #[track_caller]
    pub fn ends(&mut self, code: i32) {
        let found = self.wait();
        assert_eq!(found, Some(code), "{:#?}\n{}", self.journal(), self.log());
        self.leaves_nothing();
        assert!(!self.log().contains("panicked"), "{}", self.log());
    }

    /// No process, no file in memory, no file that was begun.
    #[track_caller]
    pub fn leaves_nothing(&self) {
        assert_eq!(processes(&self.name), Vec::<u32>::new(), "processes are left");
        assert!(!Session::of(&self.name).folder().exists(), "a folder in memory is left");
        let folders = [self.out.clone(), self.out.join("checkpoints")];
        for entry in folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(!name.starts_with('.'), "{name} is left");
        }
    }

    /// Why its generations ended.
    pub fn causes(&self) -> Vec<Cause> {
        let lines = self.journal();
        let cause = |line: &Line| match line.event {
            Event::Ended { cause, .. } => Some(cause),
            _ => None,
        };
        lines.iter().filter_map(cause).collect()
    }

    /// Every step once, in order, in ascending generations; each with the loss that a run without
    /// faults has.
    #[track_caller]
    pub fn trained_like(&self, whole: &[String]) {
        let steps = ledger(&self.out);
        let expected: Vec<u64> = (0..whole.len() as u64).collect();
        assert_eq!(steps.iter().map(|(step, _)| *step).collect::<Vec<_>>(), expected);
        assert!(steps.is_sorted_by_key(|(_, generation)| *generation), "{steps:?}");
        assert_eq!(losses(&self.out), whole, "losses, to the bit");
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // Only a test that failed leaves one.
        let _ = self.child.kill();
        let _ = self.child.wait();
        for process in processes(&self.name) {
            let _ = Command::new("kill").args(["-KILL", &process.to_string()]).status();
        }
        let _ = std::fs::remove_dir_all(Session::of(&self.name).folder());
    }
}

/// The steps in the metrics of rank 0 with their generations.
pub fn ledger(out: &Path) -> Vec<(u64, u64)> {
    let text = std::fs::read_to_string(out.join("rank-000.jsonl")).unwrap();
    let step = |line: &str| {
        let step: serde_json::Value = serde_json::from_str(line).unwrap();
        (step["step"].as_u64().unwrap(), step["generation"].as_u64().unwrap())
    };
    text.lines().map(step).collect()
}

/// Processes that mpirun or its ranks of a job are.
pub fn processes(job: &str) -> Vec<u32> {
    let mark = format!("PIPEWRIGHT_SESSION={}", Session::of(job).folder().display());
    let ids = std::fs::read_dir("/proc").unwrap();
    let ids = ids.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let marked = |id: &u32| {
        let variables = std::fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        variables.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    };
    ids.filter(marked).collect()
}

/// The ranks of a job by number, with their processes.
pub fn ranks(job: &str) -> Vec<(u32, u32)> {
    let rank = |id: u32| {
        let variables = std::fs::read(format!("/proc/{id}/environ")).ok()?;
        let mut variables = variables.split(|byte| *byte == 0);
        let value = variables.find_map(|v| v.strip_prefix(b"OMPI_COMM_WORLD_RANK="))?;
        Some((std::str::from_utf8(value).ok()?.parse().ok()?, id))
    };
    let mut ranks: Vec<(u32, u32)> = processes(job).into_iter().filter_map(rank).collect();
    ranks.sort_unstable();
    ranks
}

/// Sends a signal to a process.
pub fn signal(process: u32, name: &str) {
    assert!(Command::new("kill").args([name, &process.to_string()]).status().unwrap().success());
}

/// The losses of a run without faults on as many ranks; `None` where there is no MPI.
pub fn whole(dir: &Path, plan: &Plan) -> Option<Vec<String>> {
    write(dir, "plan.json", plan.to_json());
    mpirun_in(dir, plan.ranks(), &["plan.json", "--out", "whole", "--threads", "1"])?.done();
    Some(losses(&dir.join("whole")))
}
