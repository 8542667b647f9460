//! MPI held to the conformance suite of transports.

use crate::common::transport_suite::{CASES, SLOTS, endings};
use pipewright_runner::transport::mpi::{ClockOffset, MpiTransport, Settings};
use pipewright_runner::transport::{Transport, launched_by_mpi};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus, Output};
use std::time::Instant;
use std::{env, fs};

/// Tells the started processes what to do.
const ROLE: &str = "PIPEWRIGHT_TRANSPORT_TEST";
/// Tells them where to leave a result.
const RECORD: &str = "PIPEWRIGHT_TRANSPORT_RECORD";

/// Does what a started process is to do; false in a process that was not started for that.
pub fn was_rank() -> bool {
    let role = env::var(ROLE);
    role.iter().for_each(|role| play(role));
    role.is_ok()
}

pub fn test() -> ExitCode {
    if Command::new("mpirun").arg("--version").output().is_err() {
        eprintln!("SKIPPED transport_mpi: no mpirun on PATH");
        let required = env::var("PIPEWRIGHT_REQUIRE_ALL").is_ok_and(|v| v == "1");
        return if required { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    }
    for (ranks, role) in [(4, "suite"), (4, "pieces"), (1, "suite"), (0, "suite"), (3, "suite")] {
        let output = launch(ranks, role);
        for (name, _) in CASES {
            let line = format!("ok {name}\n");
            assert!(text(&output).contains(&line), "{role}, {ranks}: no {name}");
        }
        assert!(output.status.success(), "{role} on {ranks} ranks: {}", output.status);
    }
    let output = launch(4, "clocks");
    assert!(text(&output).contains("clocks ok") && output.status.success());
    for (role, expected) in [("size_mismatch", "sizes ok"), ("abort", "began"), ("panic", "began")]
    {
        let _ = fs::remove_file(record_file());
        let output = launch(4, role);
        assert_eq!(fs::read_to_string(record_file()).unwrap(), expected, "{role}");
        check_failure(role, output.status);
    }
    let _ = fs::remove_file(record_file());
    ExitCode::SUCCESS
}

/// A job that fails must end, and not with success.
///
/// More cannot be asked of `mpirun`: after an abort Open MPI 4.1.4's own process crashes now and
/// then on a busy machine (SIGSEGV in PMIx_server_finalize), and then it has no exit code.
fn check_failure(role: &str, status: ExitStatus) {
    let hung = matches!(status.code(), Some(124 | 137)) || status.signal() == Some(9);
    assert!(!hung && !status.success(), "{role}: {status}");
    if let (Some(code), "abort") = (status.code(), role) {
        assert!(code == endings::ABORT_CODE || code > 128, "{role}: {status}");
    }
}

/// Runs this program on `ranks` ranks under mpirun; 0 is a process without any launcher.
fn launch(ranks: u32, role: &str) -> Output {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "120"]);
    if ranks > 0 {
        command.args(["mpirun", "-n", &ranks.to_string()]);
    }
    let begin = Instant::now();
    let output = command
        .arg(env::current_exe().unwrap())
        .env(ROLE, role)
        .env(RECORD, record_file())
        .envs(ENVIRONMENT.iter().copied())
        .output()
        .unwrap();
    println!("-- {role}, {ranks} ranks: {}, {:.1?}", output.status, begin.elapsed());
    print!("{}", text(&output));
    output
}

/// Where a job that fails leaves its result: what it prints may be lost with it.
fn record_file() -> PathBuf {
    let by_launcher = env::var_os(RECORD).map(PathBuf::from);
    by_launcher.unwrap_or_else(|| {
        env::temp_dir().join(format!("pipewright-transport-{}", std::process::id()))
    })
}

/// Root in a container, and more ranks than cores; for Open MPI 4 and 5.
const ENVIRONMENT: [(&str, &str); 7] = [
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("PRTE_ALLOW_RUN_AS_ROOT", "1"),
    ("PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
    ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),
    ("OMPI_MCA_mpi_yield_when_idle", "1"),
];

fn text(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// What a started process does.
fn play(role: &str) {
    let launched = launched_by_mpi();
    let mut settings = Settings::new(SLOTS);
    if role != "suite" {
        settings.piece_bytes = 1 << 16;
    }
    settings.measure_clock = role == "clocks";
    let mut transport = MpiTransport::start(settings).unwrap();
    let t = &mut transport;
    assert_eq!(launched.unwrap_or(1), t.ranks());
    match role {
        "suite" | "pieces" => {
            assert_eq!(t.clock_offset(), ClockOffset::default(), "one host, one clock");
            for (name, case) in CASES {
                case(t);
                t.barrier().unwrap();
                if t.rank() == 0 {
                    println!("ok {name}");
                }
            }
            transport.finish().unwrap();
        }
        "clocks" => {
            // The true offset is 0, so the measured one must be within its own bound.
            let ClockOffset { offset_ns, error_ns } = t.clock_offset();
            assert!(offset_ns.unsigned_abs() <= error_ns, "{offset_ns} ± {error_ns}");
            assert_eq!(t.rank() == 0, error_ns == 0, "only rank 0 has nothing to measure");
            t.barrier().unwrap();
            if t.rank() == 0 {
                println!("clocks ok");
            }
            transport.finish().unwrap();
        }
        "size_mismatch" => {
            endings::size_mismatch(t);
            if t.rank() == 1 {
                fs::write(record_file(), "sizes ok").unwrap();
            }
            // Rank 1 saw errors: dropping its transport ends the job.
        }
        "abort" | "panic" => {
            if t.rank() == 1 {
                fs::write(record_file(), "began").unwrap();
            }
            t.barrier().unwrap();
            if role == "abort" {
                endings::abort(t)
            } else {
                endings::panic(t)
            }
            // Nobody outlives the abort.
            fs::write(record_file(), "returned").unwrap();
        }
        _ => panic!("no role {role}"),
    }
}
