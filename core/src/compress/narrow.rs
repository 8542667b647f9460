//! Conversions between single precision and shorter floats, bit for bit, without branches.
//!
//! Rounding is to nearest, ties to even, in one step from single precision, by the processor's own
//! addition. NaN stays NaN, with its sign.

/// A float of at most 16 bits: sign, exponent with `BIAS`, `MANTISSA` bits.
pub trait Format {
    /// Bits behind the point.
    const MANTISSA: u32;
    /// Exponent's offset.
    const BIAS: u32;
    /// Single-precision bits of the magnitude from which on all have one code, `OVERFLOW`.
    const CEILING: u32;
    /// Code of a magnitude at or above the ceiling: infinity, or NaN where there is none.
    const OVERFLOW: u32;
    /// Code of NaN, without sign.
    const NAN: u32;
    /// Code of the largest number, without sign.
    const LARGEST: u32;
    /// Single-precision bits of the largest number.
    const LARGEST_BITS: u32;
    /// Weight of the sign bit.
    const SIGN: u32;
}

/// IEEE binary16.
pub struct Half;

/// OCP FP8 with five bits of exponent: the upper byte of a half.
pub struct E5m2;

/// OCP FP8 with four bits of exponent: largest 448, no infinity.
pub struct E4m3;

impl Format for Half {
    const MANTISSA: u32 = 10;
    const BIAS: u32 = 15;
    const CEILING: u32 = 0x4780_0000; // 65536
    const OVERFLOW: u32 = 0x7c00;
    const NAN: u32 = 0x7e00;
    const LARGEST: u32 = 0x7bff;
    const LARGEST_BITS: u32 = 0x477f_e000; // 65504
    const SIGN: u32 = 0x8000;
}

impl Format for E5m2 {
    const MANTISSA: u32 = 2;
    const BIAS: u32 = 15;
    const CEILING: u32 = 0x4780_0000; // 65536
    const OVERFLOW: u32 = 0x7c;
    const NAN: u32 = 0x7e;
    const LARGEST: u32 = 0x7b;
    const LARGEST_BITS: u32 = 0x4760_0000; // 57344
    const SIGN: u32 = 0x80;
}

impl Format for E4m3 {
    const MANTISSA: u32 = 3;
    const BIAS: u32 = 7;
    const CEILING: u32 = 0x43f0_0000; // 480
    const OVERFLOW: u32 = 0x7f;
    const NAN: u32 = 0x7f;
    const LARGEST: u32 = 0x7e;
    const LARGEST_BITS: u32 = 0x43e0_0000; // 448
    const SIGN: u32 = 0x80;
}

/// Single-precision bits of infinity.
const INFINITY: u32 = 0x7f80_0000;

/// `yes` or `no` by a comparison's result, in a form that becomes a mask and no branch.
#[inline(always)]
fn pick(condition: bool, yes: u32, no: u32) -> u32 {
    if condition { yes } else { no }
}

/// The code of a magnitude that is at most `limit`, or that of the limit (for NaN, too).
///
/// To the magnitude is added a power of two 23 - `MANTISSA` binary places above it, or above the
/// smallest normal: the addition rounds, to the last bit of either range, and leaves the mantissa in
/// the sum's low bits. Comparisons of floats are one instruction in the oldest vectors.
#[inline(always)]
fn round<F: Format>(magnitude: f32, limit: u32) -> u32 {
    let limit = f32::from_bits(limit);
    let limited = if magnitude < limit { magnitude } else { limit };
    let power = f32::from_bits(limited.to_bits() & INFINITY);
    let smallest = f32::from_bits((128 - F::BIAS) << 23);
    let power = if power > smallest { power } else { smallest };
    let shift = 23 - F::MANTISSA;
    let magic = power.to_bits() + (shift << 23);
    let mantissa = (limited + f32::from_bits(magic)).to_bits().wrapping_sub(magic);
    mantissa.wrapping_add((power.to_bits() - smallest.to_bits()) >> shift)
}

/// The sign at its place in `F`.
#[inline(always)]
fn sign<F: Format>(value: f32) -> u32 {
    (value.to_bits() >> 31) * F::SIGN
}

/// The code of `value` in `F`, rounded to nearest even; beyond the largest number infinity, or NaN
/// in a format without.
#[inline(always)]
pub fn narrow<F: Format>(value: f32) -> u32 {
    let code = round::<F>(value.abs(), F::CEILING);
    code | pick(value.is_nan(), F::NAN, 0) | sign::<F>(value)
}

/// As [`narrow`], but numbers and infinity beyond the largest number become the largest number.
#[inline(always)]
pub fn narrow_saturating<F: Format>(value: f32) -> u32 {
    let code = round::<F>(value.abs(), F::LARGEST_BITS);
    code | pick(value.is_nan(), F::NAN, 0) | sign::<F>(value)
}

/// As [`narrow_saturating`], but infinity overflows, as what it is.
#[inline(always)]
pub fn narrow_finite<F: Format>(value: f32) -> u32 {
    let code = round::<F>(value.abs(), F::LARGEST_BITS);
    let code = pick(value.abs() == f32::INFINITY, F::OVERFLOW, code);
    code | pick(value.is_nan(), F::NAN, 0) | sign::<F>(value)
}

/// The value of a code of `F`, exactly.
#[inline(always)]
pub fn widen<F: Format>(code: u32) -> f32 {
    let magnitude = code & (F::SIGN - 1);
    let shifted = magnitude << (23 - F::MANTISSA);
    let normal = shifted.wrapping_add((127 - F::BIAS) << 23);
    // A subnormal with the smallest normal's exponent, less the smallest normal.
    let least = (128 - F::BIAS) << 23;
    let subnormal = f32::from_bits(shifted.wrapping_add(least)) - f32::from_bits(least);
    let number = pick(magnitude >> F::MANTISSA == 0, subnormal.to_bits(), normal);
    let bits = pick(magnitude as i32 > F::LARGEST as i32, shifted | INFINITY, number);
    f32::from_bits(bits | (((code & F::SIGN) / F::SIGN) << 31))
}

/// Oyama's E5M2: the upper byte of the half, so toward zero from there. A NaN half whose upper bits
/// of mantissa are all zero would become infinity; it becomes NaN.
#[inline(always)]
pub fn half_to_e5m2_truncated(half: u16) -> u8 {
    let nan = half & 0x7fff > 0x7c00;
    let byte = (half >> 8) as u8;
    if nan { 0x7e | (byte & 0x80) } else { byte }
}

/// Single precision through a half (to nearest even) to Oyama's truncated E5M2.
#[inline(always)]
pub fn e5m2_truncated(value: f32) -> u32 {
    narrow::<Half>(value) >> 8 // the only NaN that `narrow` makes is 0x7e00
}

/// The upper half of single precision, rounded to nearest even.
#[inline(always)]
pub fn to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1));
    let nan = (bits & 0x7fff_ffff) as i32 > INFINITY as i32;
    (pick(nan, bits | 0x40_0000, rounded) >> 16) as u16
}

/// The value of a bfloat16, exactly.
#[inline(always)]
pub fn from_bf16(code: u16) -> f32 {
    f32::from_bits(u32::from(code) << 16)
}
