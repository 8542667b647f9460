//! Sums of one bucket by devices and by processors: the same bits, and codes alone travel.

use super::emulated::Emulated;
use crate::common::exchange_suite::{ONE_BIT, gradient, operators};
use crate::common::ranks::on_ranks;
use crate::emulator;
use pipewright_core::compress::division::Division;
use pipewright_core::compress::{Algorithm, CodecKind, Reduction, Rounding, Scale};
use pipewright_core::units::Bytes;
use pipewright_runner::device::Accelerator;
use pipewright_runner::device::cuda::Engine;
use pipewright_runner::exchange::{Beside, BucketSpec, Exchange, Residual};
use pipewright_runner::transport::local::{LocalTransport, local_on_hosts};
use pipewright_runner::transport::{Transport, TransportError};
use std::ops::Range;

/// Where the bucket begins in the arena.
pub const AT: u64 = 192;

/// Two tensors of several chunks and some small ones, with places between them that are nobody's.
pub fn tensors() -> Vec<Range<usize>> {
    vec![0..40_000, 40_016..40_080, 40_080..40_081, 40_144..75_000, 75_000..75_007]
}

pub const LEN: usize = 75_010;

/// What each step leaves: the values of tensors and what is carried over, as bits.
pub type Steps = Vec<(Vec<u32>, Carried)>;

type Carried = Vec<(Residual, Range<usize>, Vec<u32>)>;

pub fn carried(exchange: &mut Exchange) -> Carried {
    let mut all = vec![];
    exchange.residuals(|_, whose, places, values| all.push((whose, places, bits(values))));
    all
}

/// A rank's end of the sums.
enum End {
    Host(Exchange),
    Device(Exchange, Box<Engine<Emulated>>, Emulated),
}

pub fn spec(t: &LocalTransport, reductions: &[Reduction]) -> BucketSpec {
    let group = (0..t.ranks()).collect();
    BucketSpec { group, tensors: tensors(), len: LEN, reductions: reductions.to_vec() }
}

impl End {
    fn new(t: &mut LocalTransport, reductions: &[Reduction], is_there: bool) -> Self {
        let specs = [spec(t, reductions)];
        if !is_there {
            return Self::Host(Exchange::new(t, &specs, true).unwrap());
        }
        let device = Emulated::default();
        let arena = Bytes(AT + 4 * LEN as u64);
        let mut engine = Box::new(Engine::new(device.clone(), arena, "a bucket").unwrap());
        let coder = engine.coder().unwrap().expect("it has a second queue");
        let beside = Beside { coder, values: &[Bytes(AT)], intra_node: false };
        let exchange = Exchange::beside(Some(beside), t, &specs, true).unwrap();
        Self::Device(exchange, engine, device)
    }

    fn exchange(&mut self) -> &mut Exchange {
        match self {
            Self::Host(exchange) | Self::Device(exchange, ..) => exchange,
        }
    }

    /// Sums by a reduction, where it is taken.
    fn sum(&mut self, reduction: usize, values: &mut [f32]) -> Result<(), TransportError> {
        if let Self::Device(exchange, engine, _) = self
            && exchange.sums_on_device(0, reduction)
        {
            engine.upload(AT, bytemuck::cast_slice(values)).unwrap();
            engine.mark(0).unwrap();
            exchange.start_there(0, reduction)?;
            exchange.wait(0)?;
            engine.download(AT, bytemuck::cast_slice_mut(values)).unwrap();
            return Ok(());
        }
        let exchange = self.exchange();
        // SAFETY: they are ours alone until they were waited for; an error ends the test.
        unsafe { exchange.start(0, reduction, values) }?;
        exchange.wait(0)
    }

    fn carried(&mut self) -> Carried {
        carried(self.exchange())
    }
}

pub fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| if v.is_nan() { f32::NAN.to_bits() } else { v.to_bits() }).collect()
}

pub fn input(rank: u32, step: u32, bad: bool) -> Vec<f32> {
    let mut values = gradient(rank, step, LEN);
    if bad && rank == 1 && step == 1 {
        (values[50_000], values[70]) = (f32::NAN, f32::INFINITY);
    }
    values
}

/// Steps by one reduction after the other.
pub fn steps(t: &mut LocalTransport, reductions: &[Reduction], is_there: bool, bad: bool) -> Steps {
    let mut end = End::new(t, reductions, is_there);
    let rank = t.rank();
    let step = |step: u32| {
        let mut values = input(rank, step, bad);
        end.sum(step as usize % reductions.len(), &mut values).unwrap();
        let sums = tensors().into_iter().flat_map(|tensor| bits(&values[tensor])).collect();
        (sums, end.carried())
    };
    (0..3).map(step).collect()
}

/// On ranks of these hosts, of which some have devices.
#[track_caller]
fn alike(hosts: &[u32], reductions: Vec<Reduction>, bad: bool, with_device: fn(u32) -> bool) {
    let what = format!("{reductions:?} on {hosts:?}, bad: {bad}");
    let panicked = on_ranks(local_on_hosts(hosts, 4), move |t| {
        let is_there = with_device(t.rank());
        let here = steps(t, &reductions, false, bad);
        let there = steps(t, &reductions, is_there, bad);
        for (step, (here, there)) in here.iter().zip(&there).enumerate() {
            assert!(here.0 == there.0, "sums of step {step}, rank {}", t.rank());
            assert!(here.1 == there.1, "what is carried after step {step}, rank {}", t.rank());
        }
    });
    assert!(panicked.is_empty(), "{what}: {panicked:?} failed");
}

fn e5m2(rounding: Rounding, scale: Scale) -> CodecKind {
    CodecKind::Fp8E5m2 { rounding, scale }
}

/// All that the device has kernels for.
pub fn known() -> Vec<Reduction> {
    let codecs = [
        CodecKind::Bf16,
        CodecKind::Fp16,
        e5m2(Rounding::NearestEven, Scale::PowerOfTwo),
        e5m2(Rounding::Truncate, Scale::None),
        e5m2(Rounding::Saturating, Scale::Percentile),
        CodecKind::Fp8E4m3 { scale: Scale::Block(100) },
        CodecKind::Table { bits: 1 },
        CodecKind::Table { bits: 4 },
        ONE_BIT,
    ];
    let two_shots = codecs.map(Reduction::of);
    // Those that sort a sample take the emulator longest.
    let sorts = |r: &Reduction| matches!(r.method.codec, CodecKind::Table { .. });
    let all = two_shots.into_iter().filter(|r| !sorts(r));
    let all = all.chain(two_shots.map(Reduction::with_feedback));
    all.chain(operators()).collect()
}

#[test]
fn the_same_bits_by_every_codec() {
    if !emulator::is_there() {
        return;
    }
    for reduction in known() {
        alike(&[0, 1], vec![reduction], false, |_| true);
    }
}

#[test]
fn the_same_bits_on_four_ranks_some_of_which_have_no_device() {
    if !emulator::is_there() {
        return;
    }
    let table = Reduction::of(CodecKind::Table { bits: 2 }).with_feedback();
    for reduction in [table, Reduction::of(ONE_BIT).with_feedback(), operators()[3]] {
        alike(&[0, 1, 2, 3], vec![reduction], false, |_| true);
        alike(&[0, 1, 2, 3], vec![reduction], false, |rank| rank != 2);
    }
}

#[test]
fn what_is_not_a_number_is_none_there_either() {
    if !emulator::is_there() {
        return;
    }
    let fp8 = Reduction::of(e5m2(Rounding::NearestEven, Scale::PowerOfTwo)).with_feedback();
    let table = Reduction::of(CodecKind::Table { bits: 4 }).with_feedback();
    for reduction in [fp8, table, Reduction::of(ONE_BIT).with_feedback(), operators()[3]] {
        alike(&[0, 1], vec![reduction], true, |_| true);
    }
}

/// What is carried over follows when another one encodes: here there is no kernel for the second one.
#[test]
fn codecs_change_between_device_and_processor() {
    if !emulator::is_there() {
        return;
    }
    let int8 = Reduction::of(CodecKind::Int8 { block: None }).with_feedback();
    let one_bit = Reduction::of(ONE_BIT).with_feedback();
    alike(&[0, 1, 2], vec![one_bit, int8, operators()[3]], false, |_| true);
}

/// Who takes what: hosts of several ranks sum in their own memory first.
#[test]
fn one_function_chooses() {
    if !emulator::is_there() {
        return;
    }
    let panicked = on_ranks(local_on_hosts(&[0, 0, 1, 1], 4), |t| {
        let reductions = [Reduction::of(ONE_BIT)];
        let mut end = End::new(t, &reductions, true);
        assert!(!end.exchange().sums_on_device(0, 0), "ranks of a host sum first");
    });
    assert!(panicked.is_empty());
    alike(&[0, 0, 1, 1], vec![Reduction::of(ONE_BIT).with_feedback()], false, |_| true);
    let panicked = on_ranks(local_on_hosts(&[0, 1], 4), |t| {
        let unknown =
            [CodecKind::TableMean { bits: 2 }, CodecKind::TopK { one_in: 9, momentum: None }];
        let all: Vec<_> = known().into_iter().chain(unknown.map(Reduction::of)).collect();
        let mut end = End::new(t, &all, true);
        let there: Vec<bool> =
            (0..all.len()).map(|at| end.exchange().sums_on_device(0, at)).collect();
        let expected = (0..all.len()).map(|at| at < known().len());
        assert!(expected.eq(there.iter().copied()), "{there:?}");
    });
    assert!(panicked.is_empty());
}

#[test]
fn codes_alone_travel() {
    if !emulator::is_there() {
        return;
    }
    for reduction in [
        known()[0],
        known()[9],
        Reduction::of(ONE_BIT).with_feedback(),
        operators()[1],
        operators()[3],
    ] {
        let panicked = on_ranks(local_on_hosts(&[0, 1, 2], 4), move |t| {
            let mut end = End::new(t, &[reduction], true);
            let mut values = input(t.rank(), 0, false);
            let End::Device(_, _, device) = &end else { unreachable!() };
            let beside = device.clone();
            let before = beside.traffic[1].bytes();
            end.sum(0, &mut values).unwrap();
            let [up, down] = beside.traffic[1].bytes();
            let travelled = [up - before[0], down - before[1]];
            let division = Division::new(&tensors(), 3);
            let expected = match reduction.algorithm {
                Algorithm::TwoShot => {
                    let (codec, own) = (reduction.method.codec, t.rank() as usize);
                    let [all, own] = [None, Some(own)].map(|part| division.wire_bytes(part, codec));
                    // Down: the parts of others and the sum of the own. Up: the own part of two, and sums.
                    [all + own, all]
                }
                Algorithm::Operator => {
                    let chunks = division.parts.iter().flatten();
                    let pieces: u64 = chunks.clone().map(|chunk| chunk.pieces.len() as u64).sum();
                    let codes: u64 = chunks.map(|chunk| chunk.values() as u64).sum();
                    let CodecKind::Fp8E5m2 { scale, .. } = reduction.method.codec else { panic!() };
                    let scaled = u64::from(scale != Scale::None);
                    [codes + 4 * pieces, codes + 4 * pieces * scaled]
                }
            };
            assert_eq!(travelled, expected, "{reduction} on rank {}", t.rank());
        });
        assert!(panicked.is_empty(), "{reduction}");
    }
}

/// A sum that is undone leaves what was carried over, on the device and where the codec changes.
#[test]
fn sums_are_undone() {
    if !emulator::is_there() {
        return;
    }
    let panicked = on_ranks(local_on_hosts(&[0, 1], 4), |t| {
        let int8 = Reduction::of(CodecKind::Int8 { block: None }).with_feedback();
        let mut end = End::new(t, &[Reduction::of(ONE_BIT).with_feedback(), int8], true);
        end.exchange().allow_undo().unwrap();
        let mut first = input(t.rank(), 0, false);
        end.sum(0, &mut first).unwrap();
        end.exchange().settle(false);
        let kept = end.carried();
        for reduction in [0, 1, 0] {
            end.sum(reduction, &mut input(t.rank(), 1, false)).unwrap();
            assert!(end.carried() != kept, "it changes something");
            end.exchange().settle(true);
            assert!(end.carried() == kept, "reduction {reduction} is undone");
        }
        end.sum(0, &mut input(t.rank(), 1, false)).unwrap();
        end.exchange().settle(true);
        end.exchange().settle(true);
        assert!(end.carried() == kept, "nothing is undone twice");
    });
    assert!(panicked.is_empty());
}

/// A device that fails while it encodes ends the sum with its words, and those of the others.
#[test]
fn what_a_device_says_is_told() {
    if !emulator::is_there() {
        return;
    }
    let panicked = on_ranks(local_on_hosts(&[0, 1], 4), |t| {
        let mut end = End::new(t, &[Reduction::of(ONE_BIT)], true);
        if let (0, End::Device(_, _, device)) = (t.rank(), &end) {
            *device.fails_after.lock().unwrap() = Some(2);
        }
        let error = end.sum(0, &mut input(t.rank(), 0, false)).unwrap_err();
        match (t.rank(), error) {
            (0, TransportError::Device(error)) => {
                assert!(error.to_string().ends_with("it is meant to"), "{error}");
            }
            (1, TransportError::Gone { .. } | TransportError::Aborted { .. }) => {}
            (rank, error) => panic!("rank {rank}: {error}"),
        }
    });
    assert!(panicked.is_empty());
}
