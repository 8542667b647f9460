//! Names in plans, and errors that say what to do.

use super::{kinds, pass};
use pipewright_core::compress::{CodecKind, Method, Rounding, Scale};

#[test]
fn names_in_plans() {
    let method = |json: &str| serde_json::from_str::<Method>(json).unwrap();
    let table = Method { codec: CodecKind::Table { bits: 1 }, feedback: false };
    assert_eq!(method(r#"{"codec": "table", "bits": 1}"#), table);
    let codec = CodecKind::Fp8E5m2 { rounding: Rounding::Truncate, scale: Scale::Block(256) };
    let json =
        r#"{"codec":"fp8-e5m2","rounding":"truncate","scale":{"block":256},"feedback":true}"#;
    assert_eq!(method(json), Method { codec, feedback: true });
    let codec = CodecKind::TopK { one_in: 1000, momentum: Some(0.9) };
    let json = r#"{"codec":"top-k","one-in":1000,"momentum":0.9}"#;
    assert_eq!(method(json), Method { codec, feedback: false });
    for codec in kinds() {
        for feedback in [false, true] {
            let json = serde_json::to_string(&Method { codec, feedback }).unwrap();
            assert_eq!(method(&json), Method { codec, feedback }, "{json}");
        }
        assert_eq!(codec.is_lossless(), codec == CodecKind::Fp32);
    }
    let error = serde_json::from_str::<Method>(r#"{"codec": "zip"}"#).unwrap_err().to_string();
    assert!(error.contains("zip") && error.contains("one-bit"), "{error}");
}

#[test]
fn settings_that_no_codec_has() {
    for (kind, what) in [
        (CodecKind::Table { bits: 3 }, "1, 2, 4 or 8"),
        (CodecKind::TableMean { bits: 0 }, "1, 2, 4 or 8"),
        (CodecKind::CntkBits { bits: 1 }, "2, 4 or 8"),
        (CodecKind::TopK { one_in: 0, momentum: None }, "1 or more"),
        (CodecKind::TopK { one_in: 5, momentum: Some(1.0) }, "below 1"),
        (CodecKind::PowerSgd { rank: 0 }, "1 or more"),
    ] {
        let error = kind.build(100).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(what), "{kind}: {error}");
    }
}

#[test]
fn damage_is_told() {
    let values = [1.0f32, -2.0, 3.0, 0.5];
    // A highest byte of 0xc1 makes a number negative.
    for (kind, at, byte) in [
        (CodecKind::Table { bits: 2 }, 3, 0xc1),
        (CodecKind::OneBit { threshold: Default::default() }, 7, 0xc1),
        (CodecKind::SignNorm, 3, 0xc1),
        (CodecKind::Int8 { block: None }, 7, 0xc1),
        (CodecKind::Fp8E4m3 { scale: Scale::PowerOfTwo }, 0, 0xff),
        (CodecKind::TopK { one_in: 2, momentum: None }, 5, 0xff),
    ] {
        let (mut decoded, mut wire) = pass(kind, &values);
        wire[at] = byte;
        let error = kind.build(4).unwrap().decode(&wire, &mut decoded).unwrap_err().to_string();
        assert!(error.contains("damaged"), "{kind}: {error}");
    }
    let error = kind_error(CodecKind::Fp16, 5);
    assert_eq!(
        error,
        "fp16: 4 values are 8 bytes, the message has 5: was it cut, or is it another codec's?"
    );
    let mut codec = Method { codec: CodecKind::SignNorm, feedback: true }.build(3).unwrap();
    let error = codec.encode(&values, &mut [0; 64]).unwrap_err().to_string();
    assert_eq!(error, "sign-norm: made for 3 values, got 4: make one for each tensor");
}

fn kind_error(kind: CodecKind, bytes: usize) -> String {
    kind.build(4).unwrap().decode(&vec![0; bytes], &mut [0.0; 4]).unwrap_err().to_string()
}
