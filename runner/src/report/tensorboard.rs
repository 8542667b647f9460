//! TensorBoard's event files: scalars of every step.
//!
//! A file is a row of records in TensorFlow's framing, each holding one protocol buffer `Event`:
//!
//! ```text
//! u64 length | u32 masked CRC-32C of the length | event | u32 masked CRC-32C of the event
//! ```
//! All numbers are little-endian. The first event names the version of the format. The messages
//! below have the fields of tensorflow/core/util/event.proto and framework/summary.proto that
//! scalars need; readers pass over what is missing.

use super::HistoryStep;
use super::history::scalars;
use prost::Message;

/// `tensorflow.Event`.
#[derive(Clone, PartialEq, Message)]
struct Event {
    /// Seconds since 1970.
    #[prost(double, tag = "1")]
    wall_time: f64,
    #[prost(int64, tag = "2")]
    step: i64,
    /// In the first event only.
    #[prost(string, optional, tag = "3")]
    file_version: Option<String>,
    #[prost(message, optional, tag = "5")]
    summary: Option<Summary>,
}

/// `tensorflow.Summary`.
#[derive(Clone, PartialEq, Message)]
struct Summary {
    #[prost(message, repeated, tag = "1")]
    value: Vec<Value>,
}

/// `tensorflow.Summary.Value`.
#[derive(Clone, PartialEq, Message)]
struct Value {
    #[prost(string, tag = "1")]
    tag: String,
    /// Optional, so that a zero is written: it is one case of a union.
    #[prost(float, optional, tag = "2")]
    simple_value: Option<f32>,
}

/// The event file of a run: losses, accuracies, `step_time_s`, `bubble`, `learning_rate` and so on.
pub fn events(history: &[HistoryStep]) -> Vec<u8> {
    let mut file = vec![];
    let wall_time = history.first().map_or(0.0, seconds);
    let file_version = Some("brain.Event:2".into());
    record(&mut file, &Event { wall_time, step: 0, file_version, summary: None });
    for step in history {
        let value = |(tag, value): (&str, Option<f64>)| {
            Some(Value { tag: tag.into(), simple_value: Some(value? as f32) })
        };
        let summary =
            Some(Summary { value: scalars(step).into_iter().filter_map(value).collect() });
        let (wall_time, number) = (seconds(step), step.record.step as i64);
        record(&mut file, &Event { wall_time, step: number, file_version: None, summary });
    }
    file
}

/// The name that TensorBoard looks for. The same run always gets the same, so that exporting it
/// again replaces the file instead of drawing every curve twice.
pub fn file_name(history: &[HistoryStep]) -> String {
    format!("events.out.tfevents.{:010}.pipewright", history.first().map_or(0.0, seconds) as u64)
}

fn seconds(step: &HistoryStep) -> f64 {
    step.record.unix_ms.unwrap_or(0) as f64 / 1e3
}

fn record(file: &mut Vec<u8>, event: &Event) {
    let event = event.encode_to_vec();
    let length = (event.len() as u64).to_le_bytes();
    file.extend(length);
    file.extend(masked(&length).to_le_bytes());
    file.extend(&event);
    file.extend(masked(&event).to_le_bytes());
}

/// TensorFlow masks sums because a sum over data that contains its own sum says little.
fn masked(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}
