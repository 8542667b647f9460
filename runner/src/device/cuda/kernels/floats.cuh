// Floats of eight bits, bit for bit those of the processor, in plain integers: no instruction that only newer
// GPUs have.

// A short float: sign, exponent, mantissa; see core::compress::narrow.
struct E5m2 {
    static constexpr u32 MANTISSA = 2, BIAS = 15, CEILING = 0x47800000, OVERFLOW_CODE = 0x7c;
    static constexpr u32 NAN_CODE = 0x7e, LARGEST = 0x7b, LARGEST_BITS = 0x47600000;
};
struct E4m3 {
    static constexpr u32 MANTISSA = 3, BIAS = 7, CEILING = 0x43f00000, OVERFLOW_CODE = 0x7f;
    static constexpr u32 NAN_CODE = 0x7f, LARGEST = 0x7e, LARGEST_BITS = 0x43e00000;
};

template <class F> DEVICE u32 round_to(float magnitude, u32 limit_bits) {
    float limit = from_bits(limit_bits), limited = magnitude < limit ? magnitude : limit;
    u32 smallest = (128 - F::BIAS) << 23, shift = 23 - F::MANTISSA;
    u32 power = max(bits(limited) & 0x7f800000, smallest), magic = power + (shift << 23);
    return bits(limited + from_bits(magic)) - magic + ((power - smallest) >> shift);
}

template <class F> DEVICE u32 narrow(float value) {
    u32 code = round_to<F>(fabsf(value), F::CEILING);
    return code | (is_nan(value) ? F::NAN_CODE : 0) | bits(value) >> 31 << 7;
}

template <class F> DEVICE u32 narrow_finite(float value) {
    u32 code = round_to<F>(fabsf(value), F::LARGEST_BITS);
    if ((bits(value) & 0x7fffffff) == 0x7f800000) code = F::OVERFLOW_CODE;
    return code | (is_nan(value) ? F::NAN_CODE : 0) | bits(value) >> 31 << 7;
}

template <class F> DEVICE float widen(u32 code) {
    u32 magnitude = code & 0x7f, shifted = magnitude << (23 - F::MANTISSA), least = (128 - F::BIAS) << 23;
    u32 number = shifted + ((127 - F::BIAS) << 23);
    if (magnitude >> F::MANTISSA == 0) number = bits(from_bits(shifted + least) - from_bits(least));
    if (magnitude > F::LARGEST) number = shifted | 0x7f800000;
    return from_bits(number | (code & 0x80) << 24);
}

DEVICE u32 short_code(u32 format, float value) {
    switch (format) {
    case Float8_Truncate: return half_bits(value) >> 8;
    case Float8_NearestEven: return narrow<E5m2>(value);
    case Float8_Saturating: return narrow_finite<E5m2>(value);
    default: return narrow_finite<E4m3>(value);
    }
}
DEVICE float short_value(u32 format, u32 code) {
    return format == Float8_E4m3 ? widen<E4m3>(code) : widen<E5m2>(code);
}

// The power of two that brings the largest finite magnitude just within the format.
DEVICE float power_of_two(u32 format, float largest) {
    if (largest == 0) return 1;
    double most = format == Float8_E4m3 ? 448.0 : 57344.0;
    i32 exponent = (i32)(__double_as_longlong(most / (double)largest) >> 52) - 1023;
    return from_bits((u32)(max(-126, min(exponent, 126)) + 127) << 23);
}
