//! Lines as Nsight Systems 2024 to 2025 write them of PyTorch's trainings.

use super::super::{JoinError, Opened, Reader, join};
use super::*;
use crate::timeline::Span;

/// Two processes of a machine, 0x0a16cf and 0x0a16d0; the first launches its backward pass from another thread.
const PROCESSES: [u64; 2] = [0x0001_0a16_cf00_0000, 0x0001_0a16_d000_0000];

fn thread(process: u64) -> u64 {
    process | (process >> 24 & 0xff_ffff)
}

fn range(process: u64, text: &str, std::ops::Range { start, end }: std::ops::Range<u64>) -> String {
    let thread = thread(process);
    format!(
        r#"{{"Type":59,"NvtxEvent":{{"Type":59,"Timestamp":"{start}",{text},"GlobalTid":"{thread}","EndTimestamp":"{end}","DomainId":"0","NsTime":true}}}}"#
    )
}

fn launch(thread: u64, number: u32, start: u64) -> String {
    let end = start + 20;
    format!(
        r#"{{"Type":48,"TraceProcessEvent":{{"startNs":"{start}","endNs":"{end}","correlationId":{number},"eventClass":1,"name":"330","returnValue32":0,"globalTid":"{thread}"}}}}"#
    )
}

fn kernel(
    process: u64,
    number: u32,
    name: u32,
    std::ops::Range { start, end }: std::ops::Range<u64>,
) -> String {
    format!(
        r#"{{"Type":79,"CudaEvent":{{"startNs":"{start}","endNs":"{end}","correlationId":{number},"deviceId":1,"contextId":"1","streamId":"7","eventClass":3,"globalPid":"{process}","kernel":{{"demangledName":"{name}","shortName":"{name}","mangledName":"{name}","gridX":4}}}}}}"#
    )
}

const HEADER: &str =
    r#"{"data":["[Unknown]","gemm","ncclDevKernel_SendRecv","PP:0B0"],"files":[]}"#;

fn report() -> Vec<String> {
    let [a, b] = PROCESSES;
    let text = |text: &str| format!("\"Text\":\"{text}\"");
    vec![
        HEADER.into(),
        r#"{"Type":27,"CommEvent":{"Timestamp":5,"GlobalPid":292568055152640,"Commname":"python"}}"#
            .into(),
        range(a, &text("PP:0F0, op_id = 12"), 1000..1100),
        range(a, &text("aten::mm, op_id = 13"), 1010..1050),
        launch(thread(a), 745, 1020),
        launch(thread(a), 746, 1060),
        launch(thread(a), 747, 1080),
        kernel(a, 746, 1, 1700..2000),
        kernel(a, 745, 1, 1500..1690),
        // A message that goes on behind the action.
        kernel(a, 747, 2, 2000..9000),
        range(b, &text("PP:1F0"), 2100..2200),
        launch(thread(b), 745, 2150),
        kernel(b, 745, 1, 2200..2500),
        range(b, &text("PP:1B0"), 2300..2400),
        launch(thread(b) + 7, 746, 2350),
        kernel(b, 746, 1, 2500..3100),
        // A text by its number, an action that ended without a kernel, and a mark.
        range(a, r#""TextId":"3""#, 3000..3300),
        launch(thread(a) + 9, 748, 3250),
        kernel(a, 748, 1, 3300..4000),
        range(a, &text("PP:0RECV_B0"), 2900..2950),
        range(a, &text("Optimizer.step#SGD.step"), 3310..3350),
        launch(thread(a), 749, 3320),
        kernel(a, 749, 1, 4000..4100),
        r#"{"Type":75,"NvtxEvent":{"Type":75,"Timestamp":"1","DomainId":"0","NsTime":true}}"#
            .into(),
    ]
}

fn read(lines: &[String]) -> Result<Vec<RankTrace>, TraceError> {
    let mut reader = Reader::default();
    for piece in lines.join("\n").as_bytes().chunks(61) {
        reader.push(piece)?;
    }
    match reader.finish_any()? {
        Opened::Ranks(ranks) => Ok(ranks),
        Opened::Run(_) => panic!("taken for one of ours"),
    }
}

#[test]
fn a_report_of_two_ranks_is_a_timeline_of_kernels() {
    let lines = report();
    assert!(is_nsight(lines.join("\n").as_bytes()) && is_nsight(lines[2].as_bytes()));
    let ranks = read(&lines).unwrap();
    let trace = join(&ranks, "x", 2, |stage| Some(stage.index())).unwrap();
    let [step] = &trace.steps[..] else { panic!("{} steps", trace.steps.len()) };
    let told = |lane: usize| -> Vec<(u64, u64, String)> {
        let spans = &step.timeline.lanes[lane].spans;
        let told = |s: &Span| (s.start.0, s.end.0, format!("{:?}", s.work));
        spans.iter().map(told).map(|(a, b, what)| (a, b, what.replace(' ', ""))).collect()
    };
    let times = |lane| told(lane).iter().map(|(a, b, _)| (*a, *b)).collect::<Vec<_>>();
    // Of the begin of the first kernel; the update lies behind the last action, and is of the step.
    assert_eq!(times(0), [(0, 500), (1800, 2500), (2500, 2600)], "{:?}", told(0));
    assert_eq!(times(1), [(700, 1000), (1000, 1600)], "{:?}", told(1));
}

#[test]
fn reports_apart_have_no_clock_in_common() {
    let of = |process: u64| {
        let stage = u64::from(process == PROCESSES[1]);
        let text = format!("\"Text\":\"PP:{stage}F0\"");
        read(&[HEADER.into(), range(process, &text, 10..20)]).unwrap()
    };
    let mut apart = of(PROCESSES[0]);
    apart.extend(of(PROCESSES[1]));
    let joined = join(&apart, "x", 2, |stage| Some(stage.index()));
    assert_eq!(joined, Err(JoinError::Clock));
}

#[test]
fn what_is_no_pipeline_or_no_report_says_so() {
    let plain = [HEADER.into(), range(PROCESSES[0], "\"Text\":\"aten::mm\"", 1..2)];
    let none = read(&plain).unwrap();
    assert_eq!(join(&none, "x", 1, |_| Some(0)), Err(JoinError::NoActions));
    let bad = r#"{"Type":59,"NvtxEvent":{"Timestamp":"soon","Text":"PP:0F0"}}"#.to_string();
    let why = read(&[HEADER.into(), bad]).unwrap_err().to_string();
    assert!(why.contains("NvtxEvent: "), "{why}");
    for (start, end) in [(20, 10), (5, u64::MAX)] {
        let text = range(PROCESSES[0], "\"Text\":\"PP:0F0\"", start..end);
        let why = read(&[HEADER.into(), text]).unwrap_err().to_string();
        assert!(why.contains(&format!("{start} to {end} ns are no times of a run")), "{why}");
    }
    assert!(matches!(read(&[HEADER.into()]), Err(TraceError::NoEvents)));
    let twice = ["{\"traceEvents\":[]}".to_string(), "{\"traceEvents\":[]}".to_string()];
    assert!(matches!(read(&twice), Err(TraceError::Json(_))));
}
