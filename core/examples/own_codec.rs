//! A codec of one's own, with error feedback: `cargo run -p pipewright-core --example own_codec`.

use pipewright_core::compress::feedback::ErrorFeedback;
use pipewright_core::compress::{Codec, CodecError};
use std::error::Error;

/// Two bits a value: minus or plus the largest magnitude of the tensor, or half of it.
struct TwoBits;

const SHARES: [f32; 4] = [-1.0, -0.5, 0.5, 1.0];

impl Codec for TwoBits {
    fn name(&self) -> &'static str {
        "two-bits"
    }

    fn wire_bytes(&self, values: u64) -> u64 {
        4 + values.div_ceil(4)
    }

    fn encode(&mut self, values: &[f32], wire: &mut [u8]) -> Result<usize, CodecError> {
        let (needed, got) = (self.wire_bytes(values.len() as u64), wire.len());
        if (got as u64) < needed {
            return Err(CodecError::ShortBuffer {
                codec: self.name(),
                values: values.len(),
                needed,
                got,
            });
        }
        // A tensor that is not finite has NaN for its size, and decodes to it.
        let finite = values.iter().all(|value| value.is_finite());
        let largest = values.iter().fold(0.0f32, |most, value| most.max(value.abs()));
        let size = if finite { largest } else { f32::NAN };
        let wire = &mut wire[..needed as usize];
        wire[..4].copy_from_slice(&size.to_le_bytes());
        for (byte, group) in wire[4..].iter_mut().zip(values.chunks(4)) {
            let code = |value: &f32| {
                let is_large = value.abs() > 0.75 * largest;
                match (*value < 0.0, is_large) {
                    (true, true) => 0,
                    (true, false) => 1,
                    (false, false) => 2,
                    (false, true) => 3u8,
                }
            };
            *byte = (0..).zip(group).map(|(at, value)| code(value) << (2 * at)).sum();
        }
        Ok(needed as usize)
    }

    fn decode(&self, wire: &[u8], values: &mut [f32]) -> Result<(), CodecError> {
        let (needed, got) = (self.wire_bytes(values.len() as u64), wire.len());
        if needed != got as u64 {
            return Err(CodecError::WrongLength {
                codec: self.name(),
                values: values.len(),
                needed,
                got,
            });
        }
        let size = f32::from_le_bytes([wire[0], wire[1], wire[2], wire[3]]);
        for (group, byte) in values.chunks_mut(4).zip(&wire[4..]) {
            for (at, value) in group.iter_mut().enumerate() {
                *value = size * SHARES[usize::from(byte >> (2 * at) & 3)];
            }
        }
        Ok(())
    }
}

/// How far the sum of what arrived is from the sum of what was sent, over so many steps of one gradient.
fn drift(codec: &mut dyn Codec, gradient: &[f32], steps: u32) -> Result<f32, CodecError> {
    let mut wire = vec![0; codec.wire_bytes(gradient.len() as u64) as usize];
    let (mut decoded, mut sum) = (vec![0.0; gradient.len()], vec![0.0; gradient.len()]);
    for _ in 0..steps {
        let used = codec.encode(gradient, &mut wire)?;
        codec.decode(&wire[..used], &mut decoded)?;
        sum.iter_mut().zip(&decoded).for_each(|(sum, value)| *sum += value);
    }
    let wanted = gradient.iter().map(|value| value * steps as f32);
    let off = sum.iter().zip(wanted).map(|(sum, wanted)| (sum - wanted).abs());
    Ok(off.fold(0.0, f32::max))
}

fn main() -> Result<(), Box<dyn Error>> {
    let gradient: Vec<f32> = (0..64u8).map(|at| f32::from(at % 13) / 13.0 - 0.4).collect();
    println!("{} bytes for {} values", TwoBits.wire_bytes(64), gradient.len());
    let alone = drift(&mut TwoBits, &gradient, 100)?;
    // What a step loses is added to the next one's gradient.
    let made_up = drift(&mut ErrorFeedback::new(TwoBits, gradient.len()), &gradient, 100)?;
    println!(
        "largest error of the sum over 100 steps: {alone:.2}, with error feedback {made_up:.2}"
    );
    Ok(())
}

#[test]
fn runs() {
    main().unwrap();
}

#[test]
fn feedback_keeps_the_sum() {
    let gradient = [0.9, -0.2, 0.4, 0.05, -0.7];
    let alone = drift(&mut TwoBits, &gradient, 200).unwrap();
    let made_up = drift(&mut ErrorFeedback::new(TwoBits, 5), &gradient, 200).unwrap();
    assert!(alone > 20.0 && made_up < 4.0, "{alone} and {made_up}");
}
