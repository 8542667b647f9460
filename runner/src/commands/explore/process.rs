//! A run as processes of the system: mpirun and its ranks, or one runner with threads.

use super::jobs::{Asked, Begun, Device};
use crate::transport::crowded;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, geteuid, kill_process, kill_process_group, waitid,
};
use serde::Serialize;
use std::fs::File;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

/// How ranks are started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// As processes.
    Mpirun,
    /// As threads of one process.
    Threads,
}

impl How {
    /// What this machine has.
    pub fn here() -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path).any(|dir| dir.join("mpirun").is_file());
        if !cfg!(feature = "mpi") || !found {
            return How::Threads;
        }
        let version = || {
            let asked = Command::new("mpirun").arg("--version").stdin(Stdio::null()).output();
            asked.map(|said| String::from_utf8_lossy(&said.stdout).into_owned()).unwrap_or_default()
        };
        let is_set = |name: &str| std::env::var_os(name).is_some();
        if geteuid().is_root() && refuses_root(is_set, &version()) {
            note!(
                "mpirun starts nothing as root: ranks run as threads. As another user, or with \
                 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1, they are processes."
            );
            return How::Threads;
        }
        How::Mpirun
    }

    /// For people.
    pub fn title(self) -> &'static str {
        match self {
            How::Mpirun => "mpirun",
            How::Threads => "threads of one process",
        }
    }
}

/// Whether an mpirun of this version refuses to run as root: Open MPI's does, unless it is told twice.
fn refuses_root(is_set: impl Fn(&str) -> bool, version: &str) -> bool {
    let told = |by: &str| is_set(by) && is_set(&format!("{by}_CONFIRM"));
    let is_open_mpi = ["Open MPI", "OpenRTE", "PRRTE"].iter().any(|name| version.contains(name));
    is_open_mpi && !told("OMPI_ALLOW_RUN_AS_ROOT") && !told("PRTE_ALLOW_RUN_AS_ROOT")
}

/// How much there is to run.
#[derive(Clone, Copy, Debug)]
pub struct Steps {
    /// Steps.
    pub count: u64,
    /// Actions of a step.
    pub actions: usize,
}

impl Steps {
    /// Traces that a run writes on its way.
    const TRACES: u64 = 10;

    /// Steps of more actions are only traced at the end: a trace on the way would cost too much.
    const ACTIONS_MAX: usize = 8192;

    /// Steps between two traces; none where only the end is traced.
    fn between_traces(self) -> Option<u64> {
        (self.actions <= Self::ACTIONS_MAX).then(|| self.count.div_ceil(Self::TRACES).max(1))
    }
}

/// The command of a run. What the page chose stands behind flags, as numbers and names of ours.
pub fn command(asked: &Asked, begun: Begun, folder: &Path, steps: Steps) -> io::Result<Command> {
    let runner = std::env::current_exe()?;
    let mut command = match begun.how {
        How::Threads => Command::new(runner),
        How::Mpirun => {
            let mut command = Command::new("mpirun");
            command.arg("-n").arg(begun.ranks.to_string()).arg(runner);
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            if begun.ranks as usize > cores {
                command.envs(crowded().filter(|(name, _)| std::env::var_os(name).is_none()));
            }
            command
        }
    };
    command.arg("run").arg(folder.join("plan.json")).arg("--out").arg(folder);
    command.arg("--steps").arg(begun.steps.to_string());
    command.arg("--threads").arg(asked.threads.unwrap_or(0).to_string());
    if let Some(every) = steps.between_traces() {
        command.arg("--trace-every").arg(every.to_string());
    }
    match asked.device {
        Device::Model => drop(command.args(["--device", "model"])),
        Device::Cpu if asked.save => drop(command.args(["--save-every", "0"])),
        Device::Cpu => {}
    }
    Ok(command)
}

/// The process that is signalled. Its number means it until it is buried, so signals and burial
/// exclude each other: whoever holds this has both.
pub struct Process {
    child: Child,
    exit: Option<ExitStatus>,
    asked: bool,
}

impl Process {
    /// Starts it in a group of its own, so that a terminal's Ctrl-C reaches this program alone.
    pub fn start(mut command: Command, log: File) -> io::Result<Self> {
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        Ok(Self { child: command.spawn()?, exit: None, asked: false })
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it has ended, and leaves it to be buried: until then nobody else gets its number.
    pub fn wait_for(id: u32) {
        let Some(pid) = pid(id) else { return };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while let Err(rustix::io::Errno::INTR) = waitid(WaitId::Pid(pid), options) {}
    }

    /// Takes note of how it ended.
    pub fn bury(&mut self) {
        // The process has ended, so this cannot fail; exit code 1 if it does.
        self.exit = Some(self.child.wait().unwrap_or_else(|_| ExitStatus::from_raw(1 << 8)));
    }

    /// How it ended, once it has.
    pub fn exit(&self) -> Option<ExitStatus> {
        self.exit
    }

    /// Whether it has been told to stop.
    pub fn asked_to_stop(&self) -> bool {
        self.asked
    }

    /// Tells it to stop after its step. SIGUSR1 is what mpirun hands on without killing a second later.
    pub fn stop(&mut self) {
        self.asked = true;
        self.signal(|pid| kill_process(pid, Signal::USR1));
    }

    /// Tells it to end.
    pub fn end(&mut self) {
        self.asked = true;
        self.signal(|pid| kill_process(pid, Signal::TERM));
    }

    /// Ends it and its group.
    pub fn kill(&mut self) {
        self.signal(|pid| kill_process_group(pid, Signal::KILL));
    }

    fn signal(&self, send: impl FnOnce(Pid) -> rustix::io::Result<()>) {
        if let Some(pid) = pid(self.child.id()).filter(|_| self.exit.is_none()) {
            // That it has ended just now is no error.
            let _ = send(pid);
        }
    }
}

fn pid(id: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(id).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_on_the_way_are_few() {
        let between = |count, actions| Steps { count, actions }.between_traces();
        assert_eq!([between(5, 100), between(20, 100), between(0, 1)], [Some(1), Some(2), Some(1)]);
        assert_eq!(between(1005, 8192), Some(101));
        assert_eq!(between(1005, 8193), None);
    }

    #[test]
    fn open_mpi_has_to_be_told_twice_that_root_may_start_it() {
        let told = |names: &'static [&'static str]| move |name: &str| names.contains(&name);
        let twice = told(&["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"]);
        assert!(refuses_root(told(&[]), "mpirun (Open MPI) 4.1.4"));
        assert!(refuses_root(told(&["OMPI_ALLOW_RUN_AS_ROOT"]), "mpirun (Open MPI) 5.0.3"));
        assert!(!refuses_root(twice, "mpirun (Open MPI) 4.1.4"));
        assert!(!refuses_root(told(&[]), "HYDRA build details:"), "MPICH does not ask");
    }
}
