// Codecs of gradients, bit for bit those of the processor (core::compress).
//
// A table on the device says where the pieces of a bucket are: a block encodes or decodes a piece, which
// has scales of its own. With a residual, what was lost before is added first, and what is lost now is
// kept (error feedback). Sums are added in the processor's order.

struct Piece {
    u64 values, count, residual, wire; // places: of values, of what was lost, of the message
};

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

// Adds the values to the residual, if all are finite and it was not done before; what to encode. The same
// in all threads.
DEVICE const float *carried(const Codec &a, const Piece &piece) {
    const float *values = (const float *)a.values + piece.values;
    if (!a.residual) return values;
    float *residual = (float *)a.residual + piece.residual;
    u32 others = 0;
    for (u64 i = threadIdx.x; i < piece.count; i += blockDim.x) others += !is_finite(values[i]);
    if (block_sum(others) != 0) return values;
    if (a.added) return residual; // by `measure`
    for (u64 i = threadIdx.x; i < piece.count; i += blockDim.x) residual[i] += values[i];
    __syncthreads();
    return residual;
}

// What receivers will see of value i, and what of it is lost.
DEVICE void keep_lost(const Codec &a, const Piece &piece, const float *from, u64 i, float decoded) {
    if (a.decoded) ((float *)a.decoded)[piece.values + i] = decoded;
    float *residual = (float *)a.residual + piece.residual;
    if (!a.residual || from != residual) return;
    float whole = residual[i], lost = whole - decoded;
    residual[i] = is_finite(lost) ? lost : is_finite(whole) ? whole : 0;
}

// The power of two that brings the largest finite magnitude just within the format.
DEVICE float power_of_two(u32 format, float largest) {
    if (largest == 0) return 1;
    double most = format == Float8_E4m3 ? 448.0 : 57344.0;
    i32 exponent = (i32)(__double_as_longlong(most / (double)largest) >> 52) - 1023;
    return from_bits((u32)(max(-126, min(exponent, 126)) + 127) << 23);
}

// The sorted magnitudes of a sample, in shared memory; what is not finite lies behind.
#define SAMPLE 4096

DEVICE u32 sort_sample(const float *from, u64 count, u32 *sorted) {
    u32 taken = (u32)min(count, (u64)SAMPLE), finite = 0;
    for (u32 i = threadIdx.x; i < SAMPLE; i += blockDim.x) {
        u32 magnitude = i < taken ? bits(from[i * count / taken]) & 0x7fffffff : 0xffffffff;
        if (magnitude >= 0x7f800000) magnitude = 0xffffffff;
        else finite++;
        sorted[i] = magnitude;
    }
    finite = block_sum(finite);
    for (u32 size = 2; size <= SAMPLE; size *= 2) {
        for (u32 step = size / 2; step > 0; step /= 2) {
            __syncthreads();
            for (u32 i = threadIdx.x; i < SAMPLE; i += blockDim.x) {
                u32 other = i ^ step;
                bool up = (i & size) == 0;
                if (other > i && (sorted[i] > sorted[other]) == up) {
                    u32 held = sorted[i];
                    sorted[i] = sorted[other];
                    sorted[other] = held;
                }
            }
        }
    }
    __syncthreads();
    return finite;
}

DEVICE double percentile(const u32 *sorted, u32 count, double percent) {
    if (count == 0) return 0;
    double place = (double)(count - 1) * percent / 100.0;
    u32 below = min((u32)place, count - 1), above = min(below + 1, count - 1);
    double low = (double)from_bits(sorted[below]), high = (double)from_bits(sorted[above]);
    return low + (high - low) * (place - (double)below);
}

// The power of two that brings the sampled 99th percentile to three quarters of the exponents.
DEVICE float by_percentile(u32 format, double size) {
    i32 exponent = (i32)(__double_as_longlong(size) >> 52) - 1023;
    i32 wanted = (format == Float8_E4m3 ? 3 : 7) - exponent;
    return from_bits((u32)(max(-126, min(wanted, 126)) + 127) << 23);
}

// The largest finite magnitude of some values, for all threads.
DEVICE float largest_magnitude(const float *from, u64 first, u64 end) {
    float largest = 0;
    for (u64 i = first + threadIdx.x; i < end; i += blockDim.x) {
        float magnitude = fabsf(from[i]);
        largest = is_finite(magnitude) && magnitude > largest ? magnitude : largest;
    }
    return block_max(largest);
}

// What is to be encoded, and how large it is, for scales that all ranks choose.
KERNEL(measure, Codec) {
    Piece piece = ((const Piece *)a.pieces)[blockIdx.x];
    float largest = largest_magnitude(carried(a, piece), 0, piece.count);
    if (threadIdx.x == 0) ((float *)a.scales)[blockIdx.x] = largest;
}

// Eight-bit floats; `block` values share a scale: 0 says that none is sent, all that there is one.
KERNEL(fp8_encode, Codec) {
    Piece piece = ((const Piece *)a.pieces)[blockIdx.x];
    const float *from = carried(a, piece);
    u8 *wire = (u8 *)a.wire + piece.wire;
    u64 block = a.block == 0 ? piece.count : min(a.block, piece.count), first = 0;
    if (piece.count == 0) return;
    u64 scales = a.block == 0 ? 0 : (piece.count + block - 1) / block;
    SHARED(u32, sorted);
    double size = 0;
    if (a.percentile) size = percentile(sorted, sort_sample(from, piece.count, sorted), 99.0);
    for (u64 b = 0; first < piece.count; b++, first += block) {
        u64 end = min(first + block, piece.count);
        float scale = a.scales ? ((const float *)a.scales)[blockIdx.x] : 1;
        if (a.block != 0) {
            scale = power_of_two(a.format, largest_magnitude(from, first, end));
            if (size != 0) scale = by_percentile(a.format, size);
            if (threadIdx.x == 0) wire[b] = (u8)(bits(scale) >> 23);
        }
        float back = 1 / scale;
        for (u64 i = first + threadIdx.x; i < end; i += blockDim.x) {
            u32 code = short_code(a.format, from[i] * scale) & 0xff;
            wire[scales + i] = (u8)code;
            keep_lost(a, piece, from, i, short_value(a.format, code) * back);
        }
    }
}

// Decoded values are written, or added to what is there.
DEVICE void decoded(const Codec &a, const Piece &piece, u64 i, float value) {
    float *out = (float *)a.decoded + piece.values + i;
    *out = a.add ? *out + value : value;
}

KERNEL(fp8_decode, Codec) {
    Piece piece = ((const Piece *)a.pieces)[blockIdx.x];
    const u8 *wire = (const u8 *)a.wire + piece.wire;
    if (piece.count == 0) return;
    u64 block = a.block == 0 ? piece.count : min(a.block, piece.count);
    u64 scales = a.block == 0 ? 0 : (piece.count + block - 1) / block;
    float given = a.scales ? 1 / ((const float *)a.scales)[blockIdx.x] : 1;
    for (u64 i = threadIdx.x; i < piece.count; i += blockDim.x) {
        float back = scales == 0 ? given : 1 / from_bits((u32)wire[i / block] << 23);
        decoded(a, piece, i, short_value(a.format, wire[scales + i]) * back);
    }
}

// Sixteen bits a value.
template <class T> DEVICE void encode_half(const Codec &a) {
    Piece piece = ((const Piece *)a.pieces)[blockIdx.x];
    const float *from = carried(a, piece);
    T *wire = (T *)((u8 *)a.wire + piece.wire);
    for (u64 i = threadIdx.x; i < piece.count; i += blockDim.x) {
        wire[i] = store<T>(from[i]);
        keep_lost(a, piece, from, i, load(wire[i]));
    }
}

template <class T> DEVICE void decode_half(const Codec &a) {
    Piece piece = ((const Piece *)a.pieces)[blockIdx.x];
    const T *wire = (const T *)((const u8 *)a.wire + piece.wire);
    for (u64 i = threadIdx.x; i < piece.count; i += blockDim.x) decoded(a, piece, i, load(wire[i]));
}

KERNEL(bf16_encode, Codec) { encode_half<Bf16>(a); }
KERNEL(bf16_decode, Codec) { decode_half<Bf16>(a); }
KERNEL(fp16_encode, Codec) { encode_half<F16>(a); }
KERNEL(fp16_decode, Codec) { decode_half<F16>(a); }

// The processor's sums: chunks of 1024 in 16 lanes of f32, lanes and chunks in f64 one after another,
// what is left behind the last chunk in f32 one after another. Of N terms, for all threads. A warp
// half takes a chunk; 32 chunks are taken at a time.
template <int N, class F> DEVICE void ordered_sums(const float *x, u64 count, F terms, double *totals) {
    __shared__ float lanes[N][16][16];
    __shared__ double sums[N];
    u64 chunks = count / 1024;
    for (int n = 0; n < N; n++) totals[n] = 0;
    for (u64 first = 0; first < chunks; first += 16) {
        u32 own = threadIdx.x / 16, lane = threadIdx.x % 16;
        float at[N] = {}, term[N];
        if (first + own < chunks) {
            for (u32 i = 0; i < 64; i++) {
                terms(x[(first + own) * 1024 + i * 16 + lane], term);
                for (int n = 0; n < N; n++) at[n] += term[n];
            }
        }
        __syncthreads();
        for (int n = 0; n < N; n++) lanes[n][own][lane] = at[n];
        __syncthreads();
        if (threadIdx.x == 0) {
            for (u64 chunk = 0; chunk < 16 && first + chunk < chunks; chunk++) {
                for (int n = 0; n < N; n++) {
                    double total = 0;
                    for (u32 l = 0; l < 16; l++) total += (double)lanes[n][chunk][l];
                    totals[n] += total;
                }
            }
        }
    }
    if (threadIdx.x == 0) {
        float tail[N] = {}, term[N];
        for (u64 i = chunks * 1024; i < count; i++) {
            terms(x[i], term);
            for (int n = 0; n < N; n++) tail[n] += term[n];
        }
        for (int n = 0; n < N; n++) sums[n] = totals[n] + (double)tail[n];
    }
    __syncthreads();
    for (int n = 0; n < N; n++) totals[n] = sums[n];
    __syncthreads();
}

struct Range {
    float lower, upper;
};

DEVICE float level(Range range, u32 code) {
    float step = (range.upper - range.lower) / 2;
    return ((float)code + 0.5f) * step + range.lower;
}

// CNTK's two levels with their border at zero: the means of the negative values and of the others.
DEVICE Range side_means(const float *x, u64 count) {
    double totals[3];
    ordered_sums<3>(x, count, [](float v, float *terms) {
        terms[0] = v < 0 ? v : 0;
        terms[1] = v < 0 ? 0 : v;
        terms[2] = v < 0 ? 1 : 0;
    }, totals);
    float negatives = (float)totals[2], others = (float)count - negatives;
    float low = negatives == 0 ? 0 : (float)totals[0] / negatives;
    float high = others == 0 ? 0 : (float)totals[1] / others;
    float middle = (low + high) / 2, width = 2 * (high - middle);
    Range range = {middle - width, middle + width};
    if (is_finite(range.lower) && is_finite(range.upper)) return range;
    return {from_bits(0x7fc00000), from_bits(0x7fc00000)};
}

// A word holds the bits of values k, k + words, k + 2 words, ..
KERNEL(one_bit_encode, Codec) {
    Piece piece = ((const Piece *)a.pieces)[blockIdx.x];
    const float *from = carried(a, piece);
    u32 *wire = (u32 *)((u8 *)a.wire + piece.wire);
    Range range = side_means(from, piece.count);
    u64 words = (piece.count + 31) / 32;
    float low = level(range, 0), high = level(range, 1);
    if (threadIdx.x == 0) wire[0] = bits(range.lower), wire[1] = bits(range.upper);
    for (u64 word = threadIdx.x; word < words; word += blockDim.x) {
        u32 code = 0;
        for (u64 i = word, bit = 0; i < piece.count; i += words, bit++) {
            bool one = from[i] >= 0;
            code |= (u32)one << bit;
            keep_lost(a, piece, from, i, one ? high : low);
        }
        wire[2 + word] = code;
    }
}

KERNEL(one_bit_decode, Codec) {
    Piece piece = ((const Piece *)a.pieces)[blockIdx.x];
    const u32 *wire = (const u32 *)((const u8 *)a.wire + piece.wire);
    Range range = {from_bits(wire[0]), from_bits(wire[1])};
    u64 words = (piece.count + 31) / 32;
    float low = level(range, 0), high = level(range, 1);
    for (u64 i = threadIdx.x; i < piece.count; i += blockDim.x) {
        decoded(a, piece, i, wire[2 + i % words] >> (i / words) & 1 ? high : low);
    }
}

// table(N). The border half way between two magnitudes; a tie goes to the smaller.
DEVICE float border_of(float low, float high) {
    double middle = ((double)low + (double)high) / 2.0;
    float rounded = (float)middle;
    if ((double)rounded > middle) rounded = from_bits(bits(rounded) - 1); // it is above 0
    return rounded;
}

// Words of messages lie anywhere.
DEVICE void put_word(u8 *to, u32 word) {
    for (u32 i = 0; i < 4; i++) to[i] = (u8)(word >> (8 * i));
}
DEVICE u32 get_word(const u8 *from) {
    return from[0] | from[1] << 8 | from[2] << 16 | (u32)from[3] << 24;
}

KERNEL(table_encode, Codec) {
    SHARED(u32, sorted);
    __shared__ float magnitudes[128], borders[128];
    Piece piece = ((const Piece *)a.pieces)[blockIdx.x];
    const float *from = carried(a, piece);
    u32 width = a.width, levels = 1u << (width - 1), count = sort_sample(from, piece.count, sorted);
    u8 *head = (u8 *)a.wire + piece.wire, *codes = head + 4 * levels;
    u32 others = 0;
    for (u64 i = threadIdx.x; i < piece.count; i += blockDim.x) others += !is_finite(from[i]);
    others = block_sum(others);
    if (threadIdx.x < levels) {
        magnitudes[threadIdx.x] = (float)percentile(sorted, count, 99.0 * (threadIdx.x + 1) / levels);
        u32 word = others == 0 ? bits(magnitudes[threadIdx.x]) : 0x7fc00000;
        put_word(head + 4 * threadIdx.x, word);
    }
    __syncthreads();
    if (threadIdx.x + 1 < levels) {
        borders[threadIdx.x] = border_of(magnitudes[threadIdx.x], magnitudes[threadIdx.x + 1]);
    }
    __syncthreads();
    u64 bytes = (piece.count * width + 7) / 8, each = 8 / width;
    for (u64 byte = threadIdx.x; byte < bytes; byte += blockDim.x) {
        u32 code = 0;
        for (u64 slot = 0; slot < each && byte * each + slot < piece.count; slot++) {
            u64 i = byte * each + slot;
            u32 low = 0, high = levels - 1; // borders that are below
            while (low < high) {
                u32 middle = (low + high) / 2;
                if (fabsf(from[i]) > borders[middle]) low = middle + 1;
                else high = middle;
            }
            u32 negative = bits(from[i]) >> 31;
            code |= (negative << (width - 1) | low) << (slot * width);
            float value = others == 0 ? magnitudes[low] : from_bits(0x7fc00000);
            keep_lost(a, piece, from, i, negative ? -value : value);
        }
        codes[byte] = (u8)code;
    }
}

KERNEL(table_decode, Codec) {
    Piece piece = ((const Piece *)a.pieces)[blockIdx.x];
    u32 width = a.width, levels = 1u << (width - 1), each = 8 / width;
    const u8 *head = (const u8 *)a.wire + piece.wire, *codes = head + 4 * levels;
    for (u64 i = threadIdx.x; i < piece.count; i += blockDim.x) {
        u32 code = codes[i / each] >> (i % each * width) & ((1u << width) - 1);
        float value = from_bits(get_word(head + 4 * (code & (levels - 1))));
        decoded(a, piece, i, code >> (width - 1) ? -value : value);
    }
}
