//! Kinds of files, told by their first bytes.

use crate::planner::networks;
use crate::screens::elastic::model as elastic;
use crate::screens::run::model::{metrics, tune};
use pipewright_core::timeline::chrome::is_nsight;

/// What a file's first bytes say that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A graph to recompute, plain or packed.
    Graph,
    /// A trace; it can be large.
    Trace,
    /// Metrics of a run.
    Metrics,
    /// What `runner tune` tried.
    Tune,
    /// What became of an elastic job.
    Elastic,
    /// A network of another framework.
    Onnx,
    /// Something small, which is read as a whole.
    Other,
}

impl Kind {
    /// Looks at the first bytes.
    pub fn of(head: &[u8]) -> Self {
        const EVENTS: &[u8] = b"\"traceEvents\"";
        if is_graph(head) {
            Kind::Graph
        } else if metrics::is_metrics(head) {
            Kind::Metrics
        } else if tune::is_history(head) {
            Kind::Tune
        } else if elastic::is_record(head) {
            Kind::Elastic
        } else if networks::is_onnx(head) {
            Kind::Onnx
        } else if is_nsight(head) || head.windows(EVENTS.len()).any(|part| part == EVENTS) {
            Kind::Trace
        } else {
            Kind::Other
        }
    }
}

/// Whether the first bytes of a file are those of a graph to recompute, plain or packed by gzip.
fn is_graph(head: &[u8]) -> bool {
    const FORMAT: &[u8] = b"recompute-graph/";
    head.starts_with(&[0x1f, 0x8b]) || head.windows(FORMAT.len()).any(|part| part == FORMAT)
}

/// The name of a file as it was before the page was bundled: `trace.json` of `./trace-0123456789abcdef.json`.
pub fn plain_name(path: &str) -> String {
    let name = path.strip_prefix("./").unwrap_or(path);
    let hashed = name.rsplit_once('.').and_then(|(stem, end)| Some((stem.rsplit_once('-')?, end)));
    match hashed {
        Some(((stem, hash), end))
            if hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()) =>
        {
            format!("{stem}.{end}")
        }
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundled_files_have_their_names() {
        assert_eq!(plain_name("./trace-03a7436661e1e7e7.json"), "trace.json");
        assert_eq!(plain_name("./rank-000-e5d6fc8ef8c59938.jsonl"), "rank-000.jsonl");
        assert_eq!(plain_name("demo/trace-2.json"), "demo/trace-2.json");
        assert_eq!(plain_name("plain"), "plain");
    }

    #[test]
    fn large_files_are_recognised_by_their_first_bytes() {
        for (head, kind) in [
            (&[0x1f, 0x8b, 8][..], Kind::Graph),
            (b"{ \"format\": \"recompute-graph/1\"", Kind::Graph),
            (b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[", Kind::Trace),
            (b"{\"step\":0,\"loss\":2.0,\"step_ns\":5}\n", Kind::Metrics),
            (b"{\"event\":\"started\",\"at_ms\":0,\"unix_ms\":1}\n{\"ev", Kind::Elastic),
            (b"{\"trial\":1,\"run\":1,\"expected_step_ns\":3}\n", Kind::Tune),
            (b"{\"data\":[\"[Unknown]\",\"cudaFree\"],\"files\":[]}\n{\"Type\":59", Kind::Trace),
            (b"{\"version\": 1}", Kind::Other),
            (&[8, 7, 0x12, 4], Kind::Onnx),
            (b"", Kind::Other),
        ] {
            assert_eq!(Kind::of(head), kind);
        }
    }
}
