//! Reports of Nsight Systems as `nsys export --type json` writes them: a JSON value a line, the ranks of a
//! machine in one file.
//!
//! Actions are NVTX ranges, which PyTorch makes of what it records within `torch.autograd.profiler.emit_nvtx()`. The
//! time of an action is that of the kernels that its process launched within the range: backward passes launch
//! from a thread of their own. Kernels of NCCL count for none.

use super::kineto::{RankTrace, Timed};
use super::read::{MOST, TraceError};
use super::scan::json;
use crate::units::Nanos;
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// What a report has of a pipeline, line by line.
#[derive(Default)]
pub(super) struct Nsight {
    is_any: bool,
    /// Texts that ranges name by number, where they are of interest.
    texts: BTreeMap<u64, String>,
    /// Names of kernels that are NCCL's.
    nccl: BTreeSet<u64>,
    processes: BTreeMap<u64, RankTrace>,
    /// When the host launched what has a number, by process.
    launches: BTreeMap<(u64, u64), Nanos>,
    kernels: Vec<Kernel>,
}

struct Kernel {
    process: u64,
    launch: u64,
    extent: (Nanos, Nanos),
}

/// Numbers of 64 bits are written as texts, shorter ones as numbers.
#[derive(Clone, Copy, Default)]
struct Number(u64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written<'a> {
            Number(u64),
            #[serde(borrow)]
            Text(Cow<'a, str>),
        }
        match Written::deserialize(deserializer)? {
            Written::Number(number) => Ok(Self(number)),
            Written::Text(text) => text.parse().map(Self).map_err(serde::de::Error::custom),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Range<'a> {
    /// What is nought or empty may be left out, here and elsewhere.
    #[serde(default)]
    timestamp: Number,
    /// Marks have none.
    end_timestamp: Option<Number>,
    #[serde(default, borrow)]
    text: Option<Cow<'a, str>>,
    text_id: Option<Number>,
    #[serde(default)]
    global_tid: Number,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Launch {
    #[serde(default)]
    start_ns: Number,
    #[serde(default)]
    correlation_id: Number,
    #[serde(default)]
    global_tid: Number,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OnDevice {
    #[serde(default)]
    start_ns: Number,
    #[serde(default)]
    end_ns: Number,
    #[serde(default)]
    correlation_id: Number,
    #[serde(default)]
    global_pid: Number,
    kernel: Option<Named>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Named {
    #[serde(default)]
    short_name: Number,
}

/// Whether the first bytes of a file are those of a report.
pub fn is_nsight(head: &[u8]) -> bool {
    const KINDS: [&[u8]; 4] =
        [b"\"NvtxEvent\"", b"\"TraceProcessEvent\"", b"\"CudaEvent\"", b"\"CommEvent\""];
    let head = head.trim_ascii_start();
    head.starts_with(b"{\"data\":[")
        || KINDS.iter().any(|kind| head.windows(kind.len()).any(|part| part == *kind))
}

/// The process of a thread: its own number is in the lowest 24 bits.
fn process_of(thread: Number) -> u64 {
    thread.0 >> 24
}

/// From when to when, where these are times of a run.
fn extent(start: Number, end: Number) -> Result<(Nanos, Nanos), TraceError> {
    match start.0 <= end.0 && end.0 <= MOST {
        true => Ok((Nanos(start.0), Nanos(end.0))),
        false => Err(json(format!("{} to {} ns are no times of a run", start.0, end.0))),
    }
}

impl Nsight {
    /// Whether the file has shown itself to be of this kind.
    pub fn is_any(&self) -> bool {
        self.is_any
    }

    /// A field of a line; whether it is one of a report.
    ///
    /// # Errors
    /// Where it is no JSON, or not of its kind.
    pub fn field(&mut self, name: &str, text: &[u8]) -> Result<bool, TraceError> {
        let refuse = |e: serde_json::Error| json(format!("{name}: {e}"));
        match name {
            "data" => return Ok(self.names(text).is_ok()),
            "NvtxEvent" => self.range(serde_json::from_slice(text).map_err(refuse)?)?,
            "TraceProcessEvent" => {
                let launch: Launch = serde_json::from_slice(text).map_err(refuse)?;
                let key = (process_of(launch.global_tid), launch.correlation_id.0);
                if launch.correlation_id.0 > 0 {
                    self.launches.insert(key, extent(launch.start_ns, launch.start_ns)?.0);
                }
            }
            "CudaEvent" => self.on_device(&serde_json::from_slice(text).map_err(refuse)?)?,
            _ => return Ok(false),
        }
        self.is_any = true;
        Ok(true)
    }

    /// The texts of the whole file, which stand in its first line.
    fn names(&mut self, text: &[u8]) -> Result<(), serde_json::Error> {
        let names: Vec<Cow<str>> = serde_json::from_slice(text)?;
        for (number, name) in names.into_iter().enumerate() {
            if name.contains("nccl") {
                self.nccl.insert(number as u64);
            }
            if RankTrace::is_named(&name) {
                self.texts.insert(number as u64, name.into_owned());
            }
        }
        Ok(())
    }

    fn range(&mut self, range: Range) -> Result<(), TraceError> {
        let named = |id: Number| self.texts.get(&id.0).map(|text| Cow::Borrowed(text.as_str()));
        let Some(text) = range.text.or_else(|| range.text_id.and_then(named)) else {
            return Ok(());
        };
        // What PyTorch knows besides stands behind: `PP:0F1, op_id = 12`.
        let name = text.split_once(", ").map_or(&*text, |(name, _)| name);
        let Some(end) = range.end_timestamp.filter(|_| RankTrace::is_named(name)) else {
            return Ok(());
        };
        let extent = extent(range.timestamp, end)?;
        let process = process_of(range.global_tid);
        let session = Some((process, extent.0.0));
        let rank = self
            .processes
            .entry(process)
            .or_insert_with(|| RankTrace { session, ..RankTrace::default() });
        rank.named(name, extent, false);
        Ok(())
    }

    fn on_device(&mut self, event: &OnDevice) -> Result<(), TraceError> {
        if let Some(kernel) = &event.kernel
            && !self.nccl.contains(&kernel.short_name.0)
        {
            self.kernels.push(Kernel {
                process: process_of(event.global_pid),
                launch: event.correlation_id.0,
                extent: extent(event.start_ns, event.end_ns)?,
            });
        }
        Ok(())
    }

    /// The ranks of the machine, in the order of their processes; at least one. O(events x log events).
    pub fn ranks(mut self) -> Vec<RankTrace> {
        // One report has one clock.
        let session = self.processes.values().next().and_then(|rank| rank.session);
        for (number, rank) in self.processes.values_mut().enumerate() {
            (rank.rank, rank.session) = (number as u32, session);
            rank.host.sort_by_key(|(_, start, end)| (*start, Nanos(u64::MAX - end.0)));
        }
        let mut on_device: BTreeMap<(u64, usize), (Nanos, Nanos)> = BTreeMap::new();
        for kernel in &self.kernels {
            let Some(rank) = self.processes.get(&kernel.process) else { continue };
            let launched = self.launches.get(&(kernel.process, kernel.launch));
            let Some(range) = launched.and_then(|at| around(&rank.host, *at)) else { continue };
            let extent = on_device.entry((kernel.process, range)).or_insert(kernel.extent);
            *extent = (extent.0.min(kernel.extent.0), extent.1.max(kernel.extent.1));
        }
        for ((process, range), (start, end)) in on_device {
            if let Some(rank) = self.processes.get_mut(&process) {
                rank.device.push((rank.host[range].0, start, end));
            }
        }
        let mut ranks: Vec<RankTrace> = self.processes.into_values().collect();
        if ranks.is_empty() {
            ranks.push(RankTrace::default());
        }
        ranks
    }
}

/// The innermost of ranges, by their begin, that has a moment; they nest, if at all.
fn around(ranges: &[Timed], at: Nanos) -> Option<usize> {
    /// Ranges within each other: an action, the update, what a user names around them.
    const NESTED: usize = 8;
    let behind = ranges.partition_point(|(_, start, _)| *start <= at);
    (behind.saturating_sub(NESTED)..behind).rev().find(|range| at <= ranges[*range].2)
}

#[cfg(test)]
mod tests;
