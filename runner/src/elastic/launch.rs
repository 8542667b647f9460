//! A generation as processes of the system: mpirun and its ranks, all of them or none.
//!
//! Whoever ends ends with its starter (`PR_SET_PDEATHSIG`), and what this process has to end is ended
//! by number and then looked for by the mark that it carries in its environment: what mpirun's own
//! clean-up leaves, or mpirun left when it was killed.

use super::session::Session;
use crate::notes;
use crate::transport::crowded;
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The variable with the session's folder that all processes of a job carry.
const MARK: &str = "PIPEWRIGHT_SESSION";

/// How long killed processes may take to go; the kernel may still write for them.
const BURIAL: Duration = Duration::from_secs(5);

/// What to start.
#[derive(Clone, Debug)]
pub struct Launch<'a> {
    /// The job's folder.
    pub session: &'a Session,
    /// The plan's file.
    pub plan: &'a Path,
    /// The run's folder.
    pub out: &'a Path,
    /// Number of the generation.
    pub generation: u64,
    /// Ranks.
    pub ranks: u32,
    /// Hosts with their slots, where there are several.
    pub hosts: Option<String>,
    /// Where ranks beat.
    pub beats: &'a Path,
    /// Whether ranks are to survive the loss of others.
    pub survives: bool,
    /// More of `runner run`'s options.
    pub options: &'a [OsString],
}

/// What Open MPI is told so that survivors can go on. Its collective calls by hosts (`han`) and by trees of
/// segments (`adapt`) return wrong sums after a loss; and its end waits for the dead unless told not to.
const SURVIVAL: [(&str, &str); 2] =
    [("OMPI_MCA_coll", "^han,adapt"), ("OMPI_MCA_async_mpi_finalize", "1")];

/// mpirun, as long as it runs.
#[derive(Debug)]
pub struct Launched {
    child: Child,
    mark: OsString,
}

/// The program that starts ranks.
fn mpirun() -> OsString {
    std::env::var_os("MPIRUN").unwrap_or_else(|| "mpirun".into())
}

/// Whether ranks that mpirun starts can survive the loss of others; `Err` says why they cannot.
///
/// # Errors
/// What is here in place of Open MPI 5 or newer.
pub fn survival() -> Result<(), String> {
    let program = mpirun();
    let program = program.display();
    let output = Command::new(mpirun()).arg("--version").stdin(Stdio::null()).output();
    let text = output.map_err(|e| format!("{program}: {e}"))?.stdout;
    let text = String::from_utf8_lossy(&text);
    let version = text.lines().next().unwrap_or("no version");
    let major = version.split_once("(Open MPI) ").and_then(|(_, number)| number.split('.').next());
    match major.and_then(|major| major.parse::<u32>().ok()) {
        Some(5..) => Ok(()),
        _ => Err(format!("{program} is {version}; Open MPI 5 or newer is needed")),
    }
}

impl Launch<'_> {
    /// Starts it.
    ///
    /// # Errors
    /// When there is no mpirun.
    pub fn start(&self) -> io::Result<Launched> {
        let mut command = Command::new(mpirun());
        if self.survives {
            command.args(["--with-ft", "ulfm"]).envs(SURVIVAL);
        }
        command.arg("-n").arg(self.ranks.to_string());
        if let Some(hosts) = &self.hosts {
            command.arg("--host").arg(hosts);
        }
        command.arg(std::env::current_exe()?).arg("run").arg(self.plan);
        command.arg("--out").arg(self.out).args(["--resume", "latest"]);
        command.arg("--session").arg(self.session.folder());
        command.arg("--beats").arg(self.beats);
        command.arg("--generation").arg(self.generation.to_string()).args(self.options);
        if notes::are_unwanted() {
            command.arg("--quiet");
        }
        if self.survives {
            command.arg("--survives");
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        if self.ranks as usize > cores {
            command.envs(crowded().filter(|(name, _)| std::env::var_os(name).is_none()));
        }
        let mark = self.session.folder().as_os_str().to_owned();
        command.env(MARK, &mark);
        if self.hosts.is_none() {
            // Ranks are killed without a chance to clean up after them: it goes with the session.
            let folder = self.session.mpi();
            command.env("TMPDIR", &folder);
            // Its name until Open MPI 4, and since.
            command.env("OMPI_MCA_btl_vader_backing_directory", &folder);
            command.env("OMPI_MCA_btl_sm_backing_directory", &folder);
        }
        command.stdin(Stdio::null()).process_group(0);
        // SAFETY: prctl alone, between fork and exec: no allocation, no lock.
        unsafe {
            command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
        }
        let started = command.spawn();
        let named = |e: io::Error| {
            let program = mpirun();
            io::Error::new(e.kind(), format!("{}: {e}; elastic jobs need MPI", program.display()))
        };
        Ok(Launched { child: started.map_err(named)?, mark })
    }
}

impl Launched {
    /// mpirun's number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Has the ranks stop after their step. SIGUSR1 is what mpirun hands on without killing them.
    pub fn stop(&self) {
        signal(self.id(), Signal::USR1);
    }

    /// How mpirun ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Ends whatever is left of it, stopped processes as well, and waits until it is gone. Ranks end
    /// with mpirun.
    pub fn end(&mut self) -> Option<ExitStatus> {
        let before = self.ended();
        if before.is_none() {
            signal(self.id(), Signal::KILL);
        }
        let status = self.child.wait().ok();
        self.sweep();
        before.or(status)
    }

    fn sweep(&self) {
        let begin = Instant::now();
        loop {
            let left = marked(&self.mark);
            if left.is_empty() {
                return;
            }
            if begin.elapsed() > BURIAL {
                warn!("processes {left:?} do not end");
                return;
            }
            left.iter().for_each(|pid| signal(*pid, Signal::KILL));
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        self.end();
    }
}

/// Ends a process of this machine.
pub fn kill(pid: u32) {
    signal(pid, Signal::KILL);
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // That it has ended just now is no error.
        let _ = kill_process(pid, signal);
    }
}

/// Processes of a session that live, this one aside.
fn marked(mark: &OsString) -> Vec<u32> {
    let entry = [MARK.as_bytes(), b"=", mark.as_encoded_bytes()].concat();
    let processes = std::fs::read_dir("/proc").into_iter().flatten();
    let ids = processes.filter_map(|p| p.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let ours = |id: &u32| {
        // Those of others cannot be read, and the dead have no environment.
        let environment = std::fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        *id != std::process::id()
            && environment.split(|byte| *byte == 0).any(|variable| variable == entry)
    };
    ids.filter(ours).collect()
}
