// Floats of eight bits, bit for bit those of the processor: in plain integers, and from sm_89 on by the
// instruction for two, where none is so large that it would round otherwise.

// Ada, Hopper and later.
#if !defined(EMULATOR) && __CUDA_ARCH__ >= 890
#define TWO_AT_ONCE
#endif

// A short float: sign, exponent, mantissa; see core::compress::narrow. Formats are told apart by numbers that all
// threads share, so that the code stands once.
struct ShortFloat {
    u32 shift;            // bits of a mantissa that are lost
    u32 smallest;         // of normal numbers, as a float's bits; below lies a grid
    u32 limit;            // what is larger is rounded like it
    u32 infinity, nan;    // codes
    u32 largest, bias;    // the last code of a number; what brings an exponent to a float's
    float most;           // the largest number
    bool truncates, four; // the upper half of a half; four bits of exponent
    __device__ explicit ShortFloat(u32 format) {
        four = format == Float8_E4m3;
        most = four ? 448.0f : 57344.0f;
        shift = four ? 20 : 21;
        smallest = (four ? 121u : 113u) << 23;
        limit = four ? 0x43e00000 : format == Float8_Saturating ? 0x47600000 : 0x47800000;
        infinity = four ? 0x7f : 0x7c, nan = four ? 0x7f : 0x7e;
        largest = four ? 0x7e : 0x7b, bias = (four ? 120u : 112u) << 23;
        truncates = format == Float8_Truncate;
    }
    // To the nearest, ties to even: an addition rounds to the mantissa's last place.
    __device__ u32 rounded(float value) const {
        float magnitude = fabsf(value), most = from_bits(limit), limited = magnitude < most ? magnitude : most;
        u32 power = max(bits(limited) & 0x7f800000, smallest), magic = power + (shift << 23);
        u32 code = bits(limited + from_bits(magic)) - magic + ((power - smallest) >> shift);
        if (bits(magnitude) >= 0x7f800000) code = is_nan(value) ? code | nan : infinity;
        return code | bits(value) >> 31 << 7;
    }
    __device__ u32 code(float value) const { return truncates ? half_bits(value) >> 8 & 0xff : rounded(value); }
    // Of runs of four values, each times a scale, the first in the lowest byte.
    template <u32 RUNS> __device__ void codes(const Pack<float> (&runs)[RUNS], float scale, u32 (&words)[RUNS]) const {
        Pack<float> scaled[RUNS];
        bool within = !truncates;
#pragma unroll
        for (u32 i = 0; i < 4 * RUNS; i++) {
            float value = runs[i / 4].at[i % 4] * scale;
            scaled[i / 4].at[i % 4] = value;
            within &= fabsf(value) <= most;
        }
#ifdef TWO_AT_ONCE
        if (within) {
#pragma unroll
            for (u32 k = 0; k < RUNS; k++) {
                const float *x = scaled[k].at;
                words[k] = pair(x[0], x[1]) | (u32)pair(x[2], x[3]) << 16;
            }
            return;
        }
#endif
#pragma unroll
        for (u32 k = 0; k < RUNS; k++) {
            words[k] = 0;
#pragma unroll
            for (u32 i = 0; i < 4; i++) words[k] |= code(scaled[k].at[i]) << (8 * i);
        }
    }
    __device__ u32 codes(const Pack<float> &run, float scale) const {
        Pack<float> runs[1] = {run};
        u32 words[1];
        codes(runs, scale, words);
        return words[0];
    }
#ifdef TWO_AT_ONCE
    __device__ u32 pair(float low, float high) const {
        u16 codes;
        if (four) asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
        else asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
        return codes;
    }
#endif
    __device__ float value(u32 code) const {
        u32 magnitude = code & 0x7f, shifted = magnitude << shift;
        u32 number = shifted + bias;
        if (shifted < 1u << 23) number = bits(from_bits(shifted + smallest) - from_bits(smallest));
        if (magnitude > largest) number = shifted | 0x7f800000;
        return from_bits(number | (code & 0x80) << 24);
    }
};

// The power of two that brings the largest finite magnitude just within the format.
DEVICE float power_of_two(u32 format, float largest) {
    if (largest == 0) return 1;
    double most = format == Float8_E4m3 ? 448.0 : 57344.0;
    i32 exponent = (i32)(__double_as_longlong(most / (double)largest) >> 52) - 1023;
    return from_bits((u32)(max(-126, min(exponent, 126)) + 127) << 23);
}
