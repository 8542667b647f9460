//! Sums of encoded gradients among processes, with a thread of its own for the sums and without, on one
//! host and on several that are said to be.

use crate::common::exchange_suite::{CASES, FP8, LEN, everybody, gradient};
use pipewright_core::compress::{CodecKind, Reduction};
use pipewright_runner::exchange::Exchange;
use pipewright_runner::transport::Transport;
use pipewright_runner::transport::mpi::{MpiTransport, Settings};
use std::path::Path;
use std::process::ExitCode;

/// Begins the arguments of a process that is a rank: threads, ranks a host, and the program's name.
const RANK: &str = "--rank";

/// Does what a started process is to do; false in a process that was not started for that.
pub fn was_rank(args: &[String]) -> bool {
    let [role, threads, together] = args else { return false };
    if role == RANK {
        rank(threads, together.parse().expect("a number"));
    }
    role == RANK
}

pub fn test() -> ExitCode {
    let program = std::env::current_exe().expect("this program");
    for (ranks, threads, together) in [
        (2, "threads", "1"),
        (3, "threads", "1"),
        (4, "threads", "2"),
        (4, "none", "1"),
        (5, "threads", "2"),
        (5, "none", "5"),
    ] {
        let args = [RANK, threads, together];
        let run = pipewright::mpirun::mpirun(ranks, &program, &args, Path::new("."), 300);
        let Some(run) = run.expect("it ends") else { return ExitCode::SUCCESS };
        for (name, _) in CASES {
            let line = format!("ok {name}\n");
            assert!(run.stdout.contains(&line), "{ranks} ranks, {args:?}: no {name}: {run:#?}");
        }
        assert!(run.status.success(), "{ranks} ranks, {args:?}: {run:#?}");
        println!("ok {ranks} ranks, {args:?}");
    }
    for role in ["leaves", "is another's"] {
        let run = pipewright::mpirun::mpirun(3, &program, &[RANK, role, "0"], Path::new("."), 60);
        let Some(run) = run.expect("nobody waits for ever") else { return ExitCode::SUCCESS };
        assert!(!run.status.success() && run.stdout.contains("began"), "{role}: {run:#?}");
        println!("ok a rank {role}");
    }
    ExitCode::SUCCESS
}

/// One rank of a run.
fn rank(threads: &str, together: u32) {
    let ranks_a_host = Some(together).filter(|together| *together > 0);
    let settings = Settings { threads: threads != "none", ranks_a_host, ..Settings::new(1) };
    let mut transport = MpiTransport::start(settings).expect("MPI starts");
    if !["threads", "none"].contains(&threads) {
        return bad_end(&mut transport, threads);
    }
    for (name, case) in CASES {
        case(&mut transport);
        transport.barrier().expect("all ranks come here");
        if transport.rank() == 0 {
            println!("ok {name}");
        }
    }
    transport.finish().expect("MPI ends");
}

/// Rank 1 drops a sum that is under way, or has another codec than the others.
fn bad_end(t: &mut MpiTransport, role: &str) {
    let odd = t.rank() == 1 && role != "leaves";
    let spec = everybody(t, vec![Reduction::of(if odd { FP8 } else { CodecKind::Bf16 })]);
    let mut values = gradient(t.rank(), 0, LEN);
    let mut exchange = Exchange::new(t, &[spec], false).expect("it begins");
    println!("began");
    t.barrier().expect("all ranks come here");
    if t.rank() == 0 && role == "leaves" {
        // Never starts: the sum of rank 1 cannot end before it leaves.
        let error = t.recv(1, 0, &mut [0]).expect_err("the job ends");
        panic!("{error}");
    }
    // SAFETY: they outlive the exchange.
    unsafe { exchange.start(0, 0, &mut values) }.expect("nothing failed so far");
    if t.rank() == 1 && role == "leaves" {
        drop(exchange);
    } else {
        exchange.wait(0).expect_err("it cannot be summed");
        drop(exchange);
    }
    panic!("a rank outlived its sum");
}
