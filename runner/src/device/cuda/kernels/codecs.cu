// Floats of eight and sixteen bits, bit for bit those of the processor (core::compress); see
// pieces.cuh and floats.cuh.

// The power of two that brings the sampled 99th percentile to three quarters of the exponents.
DEVICE float by_percentile(u32 format, double size) {
    i32 exponent = (i32)(__double_as_longlong(size) >> 52) - 1023;
    i32 wanted = (format == Float8_E4m3 ? 3 : 7) - exponent;
    return from_bits((u32)(max(-126, min(wanted, 126)) + 127) << 23);
}

// Eight-bit floats with one scale a piece.
KERNEL_OF(1024, fp8_piece, Codec) {
    Joined j = join(a);
    PieceStats *stats = piece_stats_of(a) + blockIdx.x;
    // Of other values.
    if (a.percentile && j.recount) find_percentiles(a, j.x, j.piece.count, stats);
    if (threadIdx.x != 0) return;
    double size = a.percentile ? stats->size : 0;
    stats->carries = j.x.residual != nullptr;
    float fit = power_of_two(a.format, j.all.largest());
    float wanted = size != 0 ? by_percentile(a.format, size) : fit;
    bool overflows = a.format == Float8_Truncate || a.format == Float8_NearestEven;
    stats->scale = overflows && fit < wanted ? fit : wanted;
}

// Values from `first` on with one scale: thread `at` of `step` takes four at a time.
DEVICE void fp8_encode_range(const Codec &a, const Piece &piece, Source x, u64 first, u64 end, float scale,
                             u8 *wire, u32 at, u32 step) {
    float back = 1 / scale;
    ShortFloat format(a.format);
    bool whole_words = ((u64)(wire + first) & 3) == 0, keeps = a.decoded || x.residual;
    for_each_run<4>(
        first, end, at, step, [&](u64 i, u32 count) { return x.run(i, count); },
        [&](u64 i, u32 count, const Pack<float> &whole) {
            u32 codes = format.codes(whole, scale);
            if (keeps) {
                Pack<float> seen;
#pragma unroll
                for (u32 slot = 0; slot < 4; slot++) {
                    seen.at[slot] = format.value(codes >> (8 * slot) & 0xff) * back;
                }
                keep_lost_run(a, piece, x, i, count, whole, seen);
            }
            if (whole_words && count == 4) *(u32 *)(wire + i) = codes;
            else for (u32 slot = 0; slot < count; slot++) wire[i + slot] = (u8)(codes >> (8 * slot));
        });
}

// A whole chunk, as many neighbours a warp. Behind a scale, codes are no whole words: a lane writes the word that begins
// among those of the lane before it, of its last run where it is the first.
DEVICE void fp8_encode_whole(const Codec &a, const float *values, float scale, u8 *codes) {
    constexpr u32 OF_WARP = 32 * CHUNK / CHUNK_THREADS, RUN = 4 * 32, TURN = 4;
    ShortFloat format(a.format);
    u32 lane = threadIdx.x % 32, first = threadIdx.x / 32 * OF_WARP + 4 * lane;
    u32 early = (u32)((u64)codes & 3), last = 0;
    values += first, codes += first;
    for (u32 turn = 0; turn < OF_WARP; turn += TURN * RUN) {
        Pack<float> found[TURN];
        u32 words[TURN];
#pragma unroll
        for (u32 k = 0; k < TURN; k++) found[k] = *(const Pack<float> *)(values + turn + k * RUN);
        format.codes(found, scale, words);
#pragma unroll
        for (u32 k = 0; k < TURN; k++) {
            u32 before = __shfl_sync(0xffffffff, lane == 31 ? last : words[k], (lane + 31) % 32);
            u32 word = __funnelshift_l(before, words[k], 8 * early);
            u8 *to = codes + turn + k * RUN - early;
            last = words[k];
            if (turn + k + lane > 0 || early == 0) *(u32 *)to = word;
            else for (u32 byte = early; byte < 4; byte++) to[byte] = (u8)(word >> (8 * byte));
        }
    }
    if (lane == 31) {
        for (u32 byte = 4 - early; byte < 4; byte++) codes[OF_WARP - RUN + byte] = (u8)(last >> (8 * byte));
    }
}

// A block's chunk.
DEVICE void fp8_encode_chunk(const Codec &a, const Place &at, Source x, float scale, u8 *codes) {
    if (is_whole(a, at, x)) fp8_encode_whole(a, x.values + at.first, scale, codes + at.first);
    else fp8_encode_range(a, at.piece, x, at.first, at.end, scale, codes, threadIdx.x, blockDim.x);
}

// Bytes of scales before the codes: `block` values share one; 0 says that none is sent, all that there is
// one.
DEVICE u64 fp8_scales(const Codec &a, const Piece &piece) {
    if (a.block == 0) return 0;
    u64 block = min(a.block, piece.count);
    return (piece.count + block - 1) / block;
}

// Scales of so many values each, a warp's at a time.
DEVICE void fp8_encode_blocks(const Codec &a, const Place &at, Source x, u8 *wire, u8 *codes) {
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    u64 step = blockDim.x / 32 * a.block;
    for (u64 first = at.first + warp * a.block; first < at.end; first += step) {
        u64 end = min(first + a.block, at.end);
        float largest = 0;
        for (u64 i = first + lane; i < end; i += 32) {
            float magnitude = fabsf(x[i]);
            largest = is_finite(magnitude) && magnitude > largest ? magnitude : largest;
        }
        float scale = power_of_two(a.format, over_warp<Largest>(largest));
        if (lane == 0) wire[first / a.block] = (u8)(bits(scale) >> 23);
        fp8_encode_range(a, at.piece, x, first, end, scale, codes, lane, 32);
    }
}

KERNEL(fp8_encode, Codec) {
    Place at = encoded_place(a);
    const PieceStats *stats = piece_stats_of(a) + at.number;
    Source x = source_of(a, at.piece, a.looks && stats->carries);
    u8 *wire = (u8 *)a.wire + at.piece.wire, *codes = wire + fp8_scales(a, at.piece);
    if (a.block == ~0ull) {
        float scale = stats->scale;
        if (at.first == 0 && threadIdx.x == 0) wire[0] = (u8)(bits(scale) >> 23);
        fp8_encode_chunk(a, at, x, scale, codes);
    } else if (a.block == 0) {
        fp8_encode_chunk(a, at, x, a.scales ? ((const float *)a.scales)[at.number] : 1, codes);
    } else {
        fp8_encode_blocks(a, at, x, wire, codes);
    }
}

DEVICE void fp8_decode_range(const Codec &a, const Piece &piece, u64 first, u64 end, float back,
                             const u8 *codes, u32 at, u32 step) {
    ShortFloat format(a.format);
    bool whole_words = ((u64)(codes + first) & 3) == 0;
    for_each_run<4>(
        first, end, at, step,
        [&](u64 i, u32 count) -> u32 {
            if (whole_words && count == 4) return *(const u32 *)(codes + i);
            u32 word = 0;
            for (u32 slot = 0; slot < count; slot++) word |= (u32)codes[i + slot] << (8 * slot);
            return word;
        },
        [&](u64 i, u32 count, u32 word) {
            Pack<float> values;
#pragma unroll
            for (u32 slot = 0; slot < 4; slot++) {
                values.at[slot] = format.value(word >> (8 * slot) & 0xff) * back;
            }
            decoded_run(a, piece, i, count, values);
        });
}

KERNEL(fp8_decode, Codec) {
    Place at = place_of(a);
    const u8 *wire = (const u8 *)a.wire + at.piece.wire, *codes = wire + fp8_scales(a, at.piece);
    bool together = a.block == 0 || a.block == ~0ull;
    u32 threads = together ? blockDim.x : 32, own = threadIdx.x / threads, lane = threadIdx.x % threads;
    u64 each = together ? CHUNK : a.block, step = blockDim.x / threads * each;
    for (u64 first = at.first + own * each; first < at.end; first += step) {
        float scale = a.scales && a.block == 0 ? ((const float *)a.scales)[at.number] : 1;
        if (a.block != 0) scale = from_bits((u32)wire[together ? 0 : first / a.block] << 23);
        fp8_decode_range(a, at.piece, first, min(first + each, at.end), 1 / scale, codes, lane, threads);
    }
}

// How large a piece is, for scales that all ranks choose.
KERNEL(measure_piece, Codec) {
    Joined j = join(a);
    if (threadIdx.x == 0) ((float *)a.scales)[blockIdx.x] = j.all.largest();
}

// Sixteen bits a value.
template <class T> DEVICE void encode_half(const Codec &a) {
    Place at = encoded_place(a);
    Source x = source_of(a, at.piece, a.looks && piece_stats_of(a)[at.number].carries);
    T *wire = (T *)((u8 *)a.wire + at.piece.wire);
    for (u64 i = at.first + threadIdx.x; i < at.end; i += blockDim.x) {
        float whole = x[i];
        T code = store<T>(whole);
        wire[i] = code;
        keep_lost(a, at.piece, x, i, whole, load(code));
    }
}

template <class T> DEVICE void decode_half(const Codec &a) {
    Place at = place_of(a);
    const T *wire = (const T *)((const u8 *)a.wire + at.piece.wire);
    for (u64 i = at.first + threadIdx.x; i < at.end; i += blockDim.x) decoded(a, at.piece, i, load(wire[i]));
}

KERNEL(bf16_encode, Codec) { encode_half<Bf16>(a); }
KERNEL(bf16_decode, Codec) { decode_half<Bf16>(a); }
KERNEL(fp16_encode, Codec) { encode_half<F16>(a); }
KERNEL(fp16_decode, Codec) { decode_half<F16>(a); }
