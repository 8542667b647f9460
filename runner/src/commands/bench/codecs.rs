//! `runner bench codecs`: encoding and decoding on one core, or on a GPU, beside a copy of the same bytes
//! in the same run.

mod device;

use super::super::devices::usable_gpus;
use super::gradient::{gradient, relative_error};
use super::{gigabytes, prints_table, write_json};
use crate::args::{CodecsArgs, DeviceKind};
use crate::device::DeviceError;
use crate::device::cuda::Driver;
use crate::failure::{Code, Failure};
use pipewright_core::compress::{CodecError, Method};
use pipewright_core::units::Bytes;
use serde::Serialize;
use std::hint::black_box;
use std::time::Instant;

/// One line of the table.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Row {
    /// Bytes of values in single precision.
    bytes: u64,
    codec: String,
    /// Bytes of single precision a second.
    encode_per_second: f64,
    decode_per_second: f64,
    /// Of a copy: what the two above are to be measured by.
    copy_per_second: f64,
    /// Bytes on the wire, as a share of those of single precision.
    wire_share: f64,
    /// Relative L2 error of what is decoded.
    error: f64,
}

/// Runs the command.
pub(super) fn codecs(args: &CodecsArgs) -> Result<(), Failure> {
    let (common, mut rows) = (&args.common, vec![]);
    let table = prints_table(common.json.as_deref());
    let failed = |e: DeviceError| Failure::new(Code::Hardware, e.to_string());
    let gpu = match args.device {
        DeviceKind::Cpu => None,
        DeviceKind::Cuda => usable_gpus()?.into_iter().next(),
        DeviceKind::Model => {
            return Err(Failure::usage("--device model encodes nothing; measure cpu or cuda"));
        }
    };
    if table {
        say!(
            "{:>10}  {:<28} {:>16} {:>16} {:>8} {:>10}",
            "size",
            "codec",
            "encode GB/s",
            "decode GB/s",
            "wire",
            "error"
        );
    }
    for size in common.sizes() {
        fits(size)?;
        let values = gradient((size.0 / 4) as usize, 0);
        for method in common.methods() {
            let row = match &gpu {
                None => {
                    let measured = measure(method, &values, common.seconds);
                    measured.map_err(|e| Failure::usage(format!("--codecs: {e}")))?
                }
                // Opened for each: its memory goes with it.
                Some(gpu) => {
                    let measured = Driver::open(gpu)
                        .and_then(|mut driver| device::measure(&mut driver, method, &values));
                    let Some(row) = measured.map_err(failed)? else { continue };
                    row
                }
            };
            if table {
                say!("{row}");
            }
            rows.push(row);
        }
    }
    write_json(common.json.as_deref(), &rows)
}

/// Values, a copy, the message, a residual with what is decoded for it; and what encoders keep.
fn fits(size: Bytes) -> Result<(), Failure> {
    let needed = size * 8;
    match crate::execute::available_memory() {
        Some(available) if needed > available => Err(Failure::new(
            Code::Hardware,
            format!(
                "{size} of values need {needed} to be measured, and {available} are left: --max"
            ),
        )),
        _ => Ok(()),
    }
}

fn measure(method: Method, values: &[f32], seconds: f64) -> Result<Row, CodecError> {
    let bytes = 4 * values.len();
    let mut decoded = vec![0f32; values.len()];
    let mut codec = method.build(values.len())?;
    let mut wire = vec![0; codec.wire_bytes(values.len() as u64) as usize];
    // Errors come in the first call or never: lengths stay.
    let used = codec.encode(values, &mut wire)?;
    codec.decode(&wire[..used], &mut decoded)?;
    let error = relative_error(&decoded, values);
    let share = seconds / 3.0;
    let copy = best(share, || decoded.copy_from_slice(black_box(values)));
    let decode = best(share, || {
        let _ = black_box(codec.decode(&wire[..used], &mut decoded));
    });
    let encode = best(share, || {
        let _ = black_box(codec.encode(values, &mut wire));
    });
    Ok(Row {
        bytes: bytes as u64,
        codec: method.to_string(),
        encode_per_second: bytes as f64 / encode,
        decode_per_second: bytes as f64 / decode,
        copy_per_second: bytes as f64 / copy,
        wire_share: used as f64 / bytes as f64,
        error,
    })
}

/// Seconds of one `work`: the best of as many as there is time for, of three at least.
fn best(seconds: f64, mut work: impl FnMut()) -> f64 {
    let begin = Instant::now();
    let mut best = f64::INFINITY;
    let mut times = 0;
    while times < 3 || begin.elapsed().as_secs_f64() < seconds {
        let start = Instant::now();
        work();
        best = best.min(start.elapsed().as_secs_f64());
        times += 1;
    }
    best
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let speed = |per_second: f64| {
            let share = 100.0 * per_second / self.copy_per_second;
            format!("{} ({share:>3.0} %)", gigabytes(per_second))
        };
        write!(
            f,
            "{:>10}  {:<28} {:>16} {:>16} {:>6.2} % {:>10.2e}",
            Bytes(self.bytes).to_string(),
            self.codec,
            speed(self.encode_per_second),
            speed(self.decode_per_second),
            100.0 * self.wire_share,
            self.error,
        )
    }
}
