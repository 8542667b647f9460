//! Speed of a device at encoding and decoding.

use super::{Cluster, ClusterError, Device, Link};
use crate::compress::CodecKind;
use crate::compress::division::CHUNK;
use crate::units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

/// What one device does to values in single precision, in bytes of these in a second. Errors are
/// not in it: they belong to the codec, not to the machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CodecSpeed {
    /// The codec; for `fp32` encoding is a copy, and decoding adds to a sum.
    pub codec: CodecKind,
    /// Encoding, chunk by chunk.
    pub encode_bytes_per_sec: f64,
    /// Decoding.
    pub decode_bytes_per_sec: f64,
}

impl CodecSpeed {
    /// What the device's memory allows: encoding reads values twice (scale or levels, then codes) and
    /// writes the codes, decoding reads codes and writes values, a sum reads two and writes one.
    pub fn of_memory(codec: CodecKind, device: &Device) -> Self {
        let memory = device.memory_bytes_per_sec;
        let ratio = ratio(codec);
        let (encode, decode) = match codec.is_lossless() {
            true => (2.0, 3.0),
            false => (2.0 + ratio, 1.0 + ratio),
        };
        Self { codec, encode_bytes_per_sec: memory / encode, decode_bytes_per_sec: memory / decode }
    }

    /// Whether both speeds are such as a machine may have.
    fn is_sound(&self) -> bool {
        let sound = |speed: f64| speed.is_finite() && speed >= 1.0;
        sound(self.encode_bytes_per_sec) && sound(self.decode_bytes_per_sec)
    }
}

/// Bytes on the wire for each byte of values, in messages of whole chunks.
pub(super) fn ratio(codec: CodecKind) -> f64 {
    codec.wire_bytes(CHUNK as u64) as f64 / (4 * CHUNK) as f64
}

impl Cluster {
    /// What was measured for this codec; else for one that differs in settings only, whose loops are
    /// the same; else what the memory allows.
    pub fn codec_speed(&self, codec: CodecKind) -> CodecSpeed {
        let alike = |speed: &&CodecSpeed| {
            std::mem::discriminant(&speed.codec) == std::mem::discriminant(&codec)
        };
        let measured = self.codecs.iter().find(|speed| speed.codec == codec);
        let speed = measured.or_else(|| self.codecs.iter().find(alike)).copied();
        speed.map_or_else(
            || CodecSpeed::of_memory(codec, &self.device),
            |speed| CodecSpeed { codec, ..speed },
        )
    }

    /// Time of a message of `bytes` of single precision, encoded before and decoded after its way.
    pub fn message_time(&self, link: &Link, codec: CodecKind, bytes: Bytes) -> Nanos {
        if codec.is_lossless() {
            return link.time(bytes);
        }
        let [encode, decode] = self.codec_times(codec, bytes);
        encode + link.time(codec.bytes(bytes)) + decode
    }

    /// Times in which a device encodes and decodes `bytes` of single precision.
    pub fn codec_times(&self, codec: CodecKind, bytes: Bytes) -> [Nanos; 2] {
        let speed = self.codec_speed(codec);
        let time = |speed: f64| Nanos::from_secs(bytes.0 as f64 / speed);
        [time(speed.encode_bytes_per_sec), time(speed.decode_bytes_per_sec)]
    }

    pub(super) fn check_codecs(&self) -> Result<(), ClusterError> {
        let Some(wrong) = self.codecs.iter().find(|speed| !speed.is_sound()) else { return Ok(()) };
        let (encode, decode) = (wrong.encode_bytes_per_sec, wrong.decode_bytes_per_sec);
        Err(ClusterError::Value {
            cluster: self.name.clone(),
            field: "codecs",
            value: format!("{}: encode {encode}, decode {decode} bytes/s", wrong.codec),
            must: "numbers of at least 1",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_speeds_come_before_alike_ones_before_the_memorys() {
        let mut cluster = Cluster::preset("laptop").unwrap();
        let table = |bits| CodecKind::Table { bits };
        let memory = cluster.codec_speed(table(1));
        assert_eq!(memory.decode_bytes_per_sec, 10e9 / (1.0 + ratio(table(1))));
        let speed = |codec, encode| CodecSpeed {
            codec,
            encode_bytes_per_sec: encode,
            decode_bytes_per_sec: 5e9,
        };
        cluster.codecs = vec![speed(table(1), 2e9), speed(table(8), 3e9)];
        cluster.check().unwrap();
        assert_eq!(cluster.codec_speed(table(8)).encode_bytes_per_sec, 3e9);
        assert_eq!(cluster.codec_speed(table(4)), speed(table(4), 2e9), "alike");
        assert_eq!(cluster.codec_speed(CodecKind::Bf16).encode_bytes_per_sec, 10e9 / 2.5);
        let text = serde_json::to_string(&cluster).unwrap();
        assert_eq!(serde_json::from_str::<Cluster>(&text).unwrap(), cluster);
    }

    #[test]
    fn speeds_out_of_range_are_named() {
        let mut cluster = Cluster::preset("laptop").unwrap();
        assert!(!serde_json::to_string(&cluster).unwrap().contains("codecs"));
        let mut speed = CodecSpeed::of_memory(CodecKind::Bf16, &cluster.device);
        speed.decode_bytes_per_sec = 0.0;
        cluster.codecs = vec![speed];
        let message = cluster.check().unwrap_err().to_string();
        assert!(message.contains("codecs is bf16: encode"), "{message}");
    }
}
