//! Calls that nobody waits for.

use super::pattern;
use pipewright_core::compress::{Rounding, e5m2_sum};
use pipewright_runner::transport::{
    Collective, CollectiveOp, Nonblocking, ProcessGroup, Request, Transport,
};
use std::time::{Duration, Instant};

fn everybody(t: &dyn Transport, purpose: u32) -> ProcessGroup {
    ProcessGroup { ranks: (0..t.ranks()).collect(), purpose }
}

/// Looks until it has ended.
fn end(endpoint: &mut dyn Nonblocking, request: &Request) -> usize {
    let begin = Instant::now();
    loop {
        endpoint.look().unwrap();
        if let Some(bytes) = endpoint.test(request).unwrap() {
            return bytes;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "it never ends");
        std::thread::yield_now();
    }
}

/// Messages of two groups and tags between all ranks, shorter than their room, in the order in which
/// they were started; receives are posted before and after.
pub fn do_not_block(t: &mut dyn Transport) {
    let (rank, ranks) = (t.rank(), t.ranks());
    let mut reversed = everybody(t, 1);
    reversed.ranks.reverse();
    let process_groups = [everybody(t, 0), reversed];
    let mut endpoint = t.nonblocking(&process_groups, 0).unwrap();
    const MESSAGES: u32 = 5;
    let length = |message: u32| (message * 30_000) as usize;
    let name = |process_group: usize, tag: u32, message: u32| {
        process_group as u32 * 100 + tag * 10 + message
    };
    let mut sent = vec![];
    for (process_group, tag) in [(0, 0), (1, 0), (0, 7)] {
        for message in 0..MESSAGES {
            sent.push((
                process_group,
                tag,
                pattern(rank, name(process_group, tag, message), length(message)),
            ));
        }
    }
    let mut into = vec![vec![0u8; length(MESSAGES)]; ranks as usize * sent.len()];
    let mut requests = vec![];
    let mut begin = |endpoint: &mut dyn Nonblocking, late: bool| {
        let mut room = into.iter_mut();
        for from in 0..ranks {
            for (process_group, tag, _) in &sent {
                let room: *mut [u8] = &mut **room.next().unwrap();
                if (*tag == 7) == late {
                    let member = process_groups[*process_group]
                        .ranks
                        .iter()
                        .position(|r| *r == from)
                        .unwrap();
                    // SAFETY: read below, when it has ended.
                    let request =
                        unsafe { endpoint.receive(*process_group, member, *tag, room) }.unwrap();
                    requests.push((from, *process_group, *tag, request, room));
                }
            }
        }
    };
    begin(&mut *endpoint, false);
    let mut sends = vec![];
    for to in 0..ranks {
        for (process_group, tag, bytes) in &sent {
            let member =
                process_groups[*process_group].ranks.iter().position(|r| *r == to).unwrap();
            // SAFETY: `sent` stays until all sends have ended.
            sends.push(
                unsafe { endpoint.send(*process_group, member, *tag, &raw const bytes[..]) }
                    .unwrap(),
            );
        }
    }
    begin(&mut *endpoint, true);
    let mut seen = vec![0; 1000];
    for (from, process_group, tag, request, room) in &requests {
        let message = &mut seen[(*from as usize * 2 + process_group) * 10 + *tag as usize];
        let bytes = end(&mut *endpoint, request);
        // SAFETY: it has ended.
        let found = unsafe { &(&**room)[..bytes] };
        assert!(found == pattern(*from, name(*process_group, *tag, *message), length(*message)));
        *message += 1;
    }
    sends.iter().for_each(|request| assert_eq!(end(&mut *endpoint, request), 0));
    let total: usize = sent.iter().map(|(_, _, bytes)| bytes.len()).sum();
    assert_eq!(endpoint.sent_bytes(), total as u64 * u64::from(ranks));
}

/// Every kind of call, all under way at a time.
pub fn call_together(t: &mut dyn Transport) {
    let (rank, ranks) = (t.rank(), t.ranks());
    let mut endpoint = t.nonblocking(&[everybody(t, 0), everybody(t, 1)], 3).unwrap();
    let len = 5000;
    let value = move |rank: u32, at: usize| (rank + 1) as f32 + (at % 97) as f32;
    let mut floats: Vec<Vec<f32>> =
        (0..4).map(|_| (0..len).map(|at| value(rank, at)).collect()).collect();
    let joints = [
        CollectiveOp::Float(Collective::AllReduce),
        CollectiveOp::Float(Collective::Broadcast),
        CollectiveOp::Float(Collective::Reduce),
        CollectiveOp::Max,
    ];
    // Sums of small whole numbers fit E5M2: any order gives the same.
    let one: u8 = 0x3c;
    let mut codes = vec![one; len];
    let mut requests = vec![];
    for (values, op) in floats.iter_mut().zip(joints) {
        // SAFETY: the values are read when all calls have ended.
        requests.push(unsafe { endpoint.call(0, op, values.as_mut_ptr().cast(), len) }.unwrap());
    }
    let op = CollectiveOp::Codes(Rounding::NearestEven);
    // SAFETY: as above.
    requests.push(unsafe { endpoint.call(1, op, codes.as_mut_ptr(), len) }.unwrap());
    requests.iter().for_each(|request| assert_eq!(end(&mut *endpoint, request), 0));
    let all = |at: usize| (0..ranks).map(move |rank| value(rank, at));
    let sums: Vec<f32> = (0..len).map(|at| all(at).sum()).collect();
    let of = |rank: u32| (0..len).map(|at| value(rank, at)).collect::<Vec<f32>>();
    assert_eq!(floats[0], sums);
    assert_eq!(floats[1], of(0));
    assert!(rank > 0 || floats[2] == sums);
    assert_eq!(floats[3], of(ranks - 1));
    let counted = (1..ranks).fold(one, |sum, _| e5m2_sum::sum(sum, one, Rounding::NearestEven));
    assert!(ranks > 4 || codes.iter().all(|code| *code == counted), "{} of {counted}", codes[0]);
}

/// One machine, unless somebody says otherwise.
pub fn hosts_are_numbered(t: &mut dyn Transport) {
    assert_eq!(t.hosts().unwrap(), vec![0; t.ranks() as usize]);
}
