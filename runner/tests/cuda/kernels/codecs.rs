//! Codecs on the emulator and on a GPU: the processor's messages, values and residuals, to the bit.

use super::memory::Tensor;
use crate::case::Noise;
use crate::emulator;
use crate::engine::first_gpu;
use pipewright_core::compress::narrow::E5m2;
use pipewright_core::compress::scale::{largest_magnitude, power_of_two};
use pipewright_core::compress::{CodecKind, Float8, Fp8, Rounding, Scale, feedback};
use pipewright_runner::device::cuda::kernels::bulk::{
    decode, decode_scaled, encode, encode_scaled, measure, scratch,
};
use pipewright_runner::device::cuda::kernels::{DevicePtr, Launch};
use pipewright_runner::device::cuda::{Backend, Driver};
use pipewright_runner::device::{Coded, Piece};

/// Where kernels run: the emulator, whose memory is a tensor's own, or a GPU.
#[derive(Default)]
struct Machine(Option<Driver>);

impl Machine {
    fn put(&mut self, tensor: &mut Tensor) -> DevicePtr {
        let Some(driver) = &mut self.0 else { return tensor.at() };
        let bytes = tensor.bytes();
        let at = driver.allocate(bytes.len().max(1) as u64, "a tensor").expect("there is room");
        driver.upload(at, bytes).expect("it is written");
        at
    }

    fn run(&mut self, launch: &Launch) {
        match &mut self.0 {
            None => emulator::run(launch),
            Some(driver) => driver.launch(launch).expect("it is launched"),
        }
    }

    /// What a tensor holds now, which was put there.
    fn bytes(&mut self, tensor: &Tensor, at: DevicePtr) -> Vec<u8> {
        let mut bytes = tensor.bytes().to_vec();
        if let Some(driver) = &mut self.0 {
            driver.download(at, &mut bytes).expect("it is read");
        }
        bytes
    }

    fn floats(&mut self, tensor: &Tensor, at: DevicePtr) -> Vec<f32> {
        bytemuck::pod_collect_to_vec(&self.bytes(tensor, at))
    }
}

const ROUNDINGS: [Rounding; 3] = [Rounding::Truncate, Rounding::NearestEven, Rounding::Saturating];

fn kinds() -> Vec<CodecKind> {
    let blocks = [100, 10_000].map(Scale::Block);
    let scales = [Scale::None, Scale::PowerOfTwo, Scale::Percentile].into_iter().chain(blocks);
    let one_bit = CodecKind::OneBit { threshold: Default::default() };
    let mut kinds = vec![CodecKind::Bf16, CodecKind::Fp16, one_bit];
    kinds.extend([1, 2, 4, 8].map(|bits| CodecKind::Table { bits }));
    for scale in scales {
        kinds.push(CodecKind::Fp8E4m3 { scale });
        kinds.extend(ROUNDINGS.map(|rounding| CodecKind::Fp8E5m2 { rounding, scale }));
    }
    kinds
}

/// Pieces of these sizes, one after another.
const SIZES: [usize; 6] = [1, 31, 1000, 4099, 17, 20_000];

/// Gradients of many sizes, with zeros and one far beyond all others; those of `broken` pieces have numbers
/// that are none.
fn values(seed: u64, sizes: &[usize], broken: bool) -> Vec<f32> {
    let mut noise = Noise(seed);
    let mut values: Vec<f32> = noise.vec(sizes.iter().sum());
    for (i, value) in values.iter_mut().enumerate() {
        *value *= [1e-5, 1.0, 3e-39, 0.0, 300.0, -1e-3, 7e4][i % 7];
    }
    if let Some(value) = values.get_mut(2000) {
        *value = 3e9;
    }
    if broken {
        (values[5], values[1040], values[9000]) = (f32::NAN, f32::NEG_INFINITY, f32::NAN);
    }
    values
}

fn bits(values: &[f32]) -> Vec<u32> {
    let one = |v: &f32| if v.is_nan() { f32::NAN.to_bits() } else { v.to_bits() };
    values.iter().map(one).collect()
}

/// What is asked of an encoder besides the message.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wants {
    Message,
    /// What others will see, too.
    Values,
    /// And what is lost.
    Residual,
}

fn check(machine: &mut Machine, kind: CodecKind, sizes: &[usize], wants: Wants, broken: bool) {
    let what = format!("{kind:?}, {wants:?}, broken {broken}");
    let mut table = vec![];
    let (mut at, mut wire_at) = (0, 0);
    for size in sizes.iter().map(|size| *size as u64) {
        table.push(Piece { values: at, count: size, residual: at, wire: wire_at });
        at += size;
        wire_at += kind
            .wire_bytes(size)
            .next_multiple_of(1 + 3 * u64::from(matches!(kind, CodecKind::OneBit { .. })));
    }
    let inputs = values(3, sizes, broken);
    let before: Vec<f32> = values(4, sizes, false).iter().map(|v| v * 0.01).collect();
    let cast = |x: &[f32]| -> Tensor { Tensor::from(bytemuck::cast_slice(x)) };
    let (mut on_device, mut residual) = (cast(&inputs), cast(&before));
    let mut wire = Tensor::from(&vec![0; wire_at as usize]);
    let (mut seen, mut decoded) = (cast(&inputs), cast(&inputs));
    let mut list = Tensor::from(&Piece::table(&table));
    let [wire_at, seen_at, decoded_at, residual_at] =
        [&mut wire, &mut seen, &mut decoded, &mut residual].map(|tensor| machine.put(tensor));
    let mut bucket = Coded {
        pieces: machine.put(&mut list),
        count: table.len() as u32,
        chunks: Piece::chunks(&table),
        values: machine.put(&mut on_device),
        wire: wire_at,
        ..Coded::default()
    };
    if wants != Wants::Message {
        bucket.decoded = seen_at;
    }
    if wants == Wants::Residual {
        bucket.residual = residual_at;
    }
    let mut room = Tensor::from(&vec![0xff; scratch(&bucket) as usize]);
    let encoding = encode(kind, &bucket, machine.put(&mut room)).expect("it has kernels");
    encoding.iter().for_each(|launch| machine.run(launch));
    bucket.decoded = decoded_at;
    machine.run(&decode(kind, &bucket, true).expect("it has a kernel"));
    let wire = machine.bytes(&wire, wire_at);
    let [seen, decoded, residual] =
        [(&seen, seen_at), (&decoded, decoded_at), (&residual, residual_at)]
            .map(|(tensor, at)| machine.floats(tensor, at));
    for piece in table {
        let place = piece.values as usize..(piece.values + piece.count) as usize;
        let own = &inputs[place.clone()];
        let mut codec = kind.build(own.len()).expect("a codec");
        let mut message = vec![0; kind.wire_bytes(piece.count) as usize];
        let mut received = vec![0.0; own.len()];
        let mut left = before[place.clone()].to_vec();
        if wants == Wants::Residual {
            feedback::encode(&mut *codec, own, &mut left, &mut message, &mut received)
        } else {
            codec.encode(own, &mut message)
        }
        .expect("it is encoded");
        codec.decode(&message, &mut received).expect("it is decoded");
        let got = &wire[piece.wire as usize..][..message.len()];
        assert!(got == message, "{what}: {piece:?}: another message");
        if wants != Wants::Message {
            assert_eq!(bits(&seen[place.clone()]), bits(&received), "{what}: {piece:?}");
        }
        let sum: Vec<f32> = own.iter().zip(&received).map(|(a, b)| a + b).collect();
        assert_eq!(bits(&decoded[place.clone()]), bits(&sum), "{what}: {piece:?}");
        assert_eq!(bits(&residual[place]), bits(&left), "{what}: {piece:?}");
    }
}

/// Pieces whose whole chunks begin where 16 bytes do, and one whose do not.
const LARGE: [usize; 3] = [8192 + 64, 3 * 8192 + 1, 2 * 8192];

fn suite(machine: &mut impl FnMut() -> Machine) {
    let wanted = [
        (Wants::Message, false),
        (Wants::Message, true),
        (Wants::Values, false),
        (Wants::Residual, false),
        (Wants::Residual, true),
    ];
    for kind in kinds() {
        let mut machine = machine();
        for (wants, broken) in wanted {
            check(&mut machine, kind, &SIZES, wants, broken);
        }
        check(&mut machine, kind, &LARGE, Wants::Message, false);
        check(&mut machine, kind, &LARGE, Wants::Message, true);
    }
}

#[test]
fn messages_to_the_bit() {
    if emulator::is_there() {
        suite(&mut Machine::default);
    }
}

#[test]
fn messages_to_the_bit_on_a_gpu() {
    if let Some(gpu) = first_gpu() {
        let mut machine = || Machine(Some(Driver::open(&gpu).unwrap()));
        suite(&mut machine);
        let one_bit = CodecKind::OneBit { threshold: Default::default() };
        for size in [(1 << 22) + 7, 1 << 22] {
            check(&mut machine(), one_bit, &[size], Wants::Message, false);
        }
    }
}

/// More sums of a piece than a block fetches at a time.
#[test]
fn one_bit_of_a_large_piece() {
    if emulator::is_there() {
        let one_bit = CodecKind::OneBit { threshold: Default::default() };
        let sizes = [3, 700 * 1024 + 7];
        check(&mut Machine::default(), one_bit, &sizes, Wants::Residual, true);
        check(&mut Machine::default(), one_bit, &[1 << 18], Wants::Message, false);
    }
}

/// The operator's codes: values are added to what was lost, measured, and encoded with the scales that
/// ranks agree on.
fn check_scaled(rounding: Rounding, broken: bool) {
    let (inputs, before) = (values(5, &SIZES, broken), values(6, &SIZES, false));
    let (mut table, mut at) = (vec![], 0);
    // Residuals and codes lie in another order than values.
    let all = inputs.len() as u64;
    for size in SIZES.map(|size| size as u64) {
        let behind = all - at - size;
        table.push(Piece { values: at, count: size, residual: behind, wire: behind });
        at += size;
    }
    let cast = |x: &[f32]| -> Tensor { Tensor::from(bytemuck::cast_slice(x)) };
    let (mut on_device, mut residual) = (cast(&inputs), cast(&before));
    let (mut wire, mut seen) = (Tensor::from(&vec![0; inputs.len()]), cast(&inputs));
    let mut list = Tensor::from(&Piece::table(&table));
    let mut scales = Tensor::new(4 * table.len());
    let coded = Coded {
        pieces: list.at(),
        count: table.len() as u32,
        chunks: Piece::chunks(&table),
        values: on_device.at(),
        residual: residual.at(),
        wire: wire.at(),
        decoded: seen.at(),
        scales: scales.at(),
    };
    let mut room = Tensor::from(&vec![0xff; scratch(&coded) as usize]);
    measure(&coded, room.at()).iter().for_each(emulator::run);
    let floats = |tensor: &Tensor| -> Vec<f32> { bytemuck::pod_collect_to_vec(tensor.bytes()) };
    let largest = floats(&scales);
    let chosen: Vec<f32> = largest.iter().map(|size| power_of_two::<E5m2>(*size, 3)).collect();
    let mut scales = cast(&chosen);
    let coded = Coded { scales: scales.at(), ..coded };
    let unseen = Coded { decoded: Default::default(), ..coded };
    encode_scaled(rounding, &unseen, room.at()).iter().for_each(emulator::run);
    emulator::run(&decode_scaled(&coded));
    let codec = Fp8::new(Float8::E5m2(rounding), Scale::None);
    for ((piece, largest), scale) in table.iter().zip(largest).zip(chosen) {
        let what = format!("{rounding:?}, broken {broken}, {piece:?}");
        let place = |at: u64| at as usize..(at + piece.count) as usize;
        let own = &inputs[place(piece.values)];
        let mut left = before[place(piece.residual)].to_vec();
        let carried = feedback::carry(own, &mut left);
        let source = if carried { left.clone() } else { own.to_vec() };
        assert_eq!(largest.to_bits(), largest_magnitude(&source).to_bits(), "{what}");
        let (mut codes, mut decoded) = (vec![0; own.len()], vec![0.0; own.len()]);
        codec.encode_scaled(&source, scale, &mut codes);
        codec.decode_scaled(&codes, scale, &mut decoded);
        if carried {
            feedback::keep_lost(&mut left, &decoded);
        }
        assert_eq!(wire.bytes()[place(piece.wire)], codes, "{what}");
        assert_eq!(bits(&floats(&seen)[place(piece.values)]), bits(&decoded), "{what}");
        assert_eq!(bits(&floats(&residual)[place(piece.residual)]), bits(&left), "{what}");
    }
}

#[test]
fn codes_with_scales_of_all_ranks() {
    if emulator::is_there() {
        for rounding in [Rounding::Truncate, Rounding::NearestEven] {
            check_scaled(rounding, false);
            check_scaled(rounding, true);
        }
    }
}
