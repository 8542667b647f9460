//! Search for GPT-3 175B on 1,024 A100s: the best plan after so many seconds, against that of the
//! whole time. `cargo bench -p pipewright-core --features parallel --bench search [SECONDS]`;
//! without a number 60, with 600 the comparison of docs/prediction.md.

use pipewright_core::cost::Cluster;
use pipewright_core::cost::memory::States;
use pipewright_core::predict::search::{Fixed, Search, Space, usual_encodings};
use pipewright_yardsticks::transformer::{Accelerator, Recompute, Transformer, workload};
use std::time::Instant;

/// Moments at which the best plan so far is printed, in seconds.
const MOMENTS: [f64; 9] = [1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 300.0, 600.0];

fn main() {
    let given = std::env::args().skip(1).find_map(|arg| arg.parse::<f64>().ok());
    let limit = given.unwrap_or(60.0);
    let accelerator = Accelerator::preset("a100-megatron").expect("a preset");
    let network = Transformer::GPT3_175B;
    let mut cluster = Cluster::preset("dgx-a100").expect("a preset");
    cluster.nodes = 128;
    let model = |samples: u64| {
        let samples = samples as u32;
        let states = States::MEGATRON;
        workload(&network, &accelerator, samples, Recompute::Selective, &[2, 4, 8], &states)
    };
    let space = Space {
        model: &model,
        blocks: (0..network.layers + 2).collect(),
        devices: 1024,
        memory: accelerator.memory,
        mini_batch: 1536,
        states: States::MEGATRON,
        parameter_bytes: 2,
        fixed: Fixed { encoding: Some(None), ..Fixed::default() },
        encodings: usual_encodings(),
        seed: 1,
        cluster,
    };
    println!("GPT-3 175B on 1,024 A100s, batch 1,536");
    println!("| seconds | plans tried | skipped | best step | plan |");
    println!("|---|---|---|---|---|");
    let begin = Instant::now();
    let mut search = Search::new(&space).expect("there are plans");
    let mut moments = MOMENTS.into_iter().filter(|moment| *moment <= limit).peekable();
    let mut bests = vec![];
    while begin.elapsed().as_secs_f64() < limit {
        let tried = search.advance(256).expect("some plan fits");
        let passed = begin.elapsed().as_secs_f64();
        let ended = tried < 256;
        while ended || moments.peek().is_some_and(|moment| *moment <= passed) {
            let Some(moment) = moments.next() else { break };
            let Some(best) = search.front().fastest() else { continue };
            let (evaluated, skipped) = search.counts();
            let plan = best.choice.describe(&space.encodings);
            println!("| {moment} | {evaluated} | {skipped} | {} | {plan} |", best.step);
            bests.push((moment, best.step.secs()));
        }
        if ended {
            println!("nothing was left to try after {passed:.1} s");
            break;
        }
    }
    if let Some((_, last)) = bests.last() {
        for (moment, step) in &bests {
            println!("after {moment} s: {:+.2} % of the last", 100.0 * (step / last - 1.0));
        }
    }
}
