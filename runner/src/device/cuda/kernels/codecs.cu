// Floats of eight and sixteen bits, bit for bit those of the processor (core::compress); see
// pieces.cuh and floats.cuh.

// The power of two that brings the sampled 99th percentile to three quarters of the exponents.
DEVICE float by_percentile(u32 format, double size) {
    i32 exponent = (i32)(__double_as_longlong(size) >> 52) - 1023;
    i32 wanted = (format == Float8_E4m3 ? 3 : 7) - exponent;
    return from_bits((u32)(max(-126, min(wanted, 126)) + 127) << 23);
}

// Eight-bit floats with one scale a piece.
KERNEL(fp8_piece, Codec) {
    SHARED(u32, sorted);
    Joined j = join(a);
    double size = 0;
    if (a.percentile) size = percentile(sorted, sort_sample(j.x, j.piece.count, sorted), 99.0);
    if (threadIdx.x != 0) return;
    PieceStats *stats = piece_stats_of(a) + blockIdx.x;
    stats->carries = j.x.residual != nullptr;
    stats->scale = size != 0 ? by_percentile(a.format, size) : power_of_two(a.format, j.all.largest);
}

// Values from `first` on with one scale: thread `at` of `step` takes four at a time.
DEVICE void fp8_encode_range(const Codec &a, const Piece &piece, Source x, u64 first, u64 end, float scale,
                             u8 *wire, u32 at, u32 step) {
    float back = 1 / scale;
    bool whole_words = ((u64)(wire + first) & 3) == 0;
    for (u64 i = first + 4 * at; i < end; i += 4 * step) {
        u32 codes = 0, count = (u32)min(end - i, (u64)4);
        Pack<float> whole = x.run(i, count), seen;
#pragma unroll
        for (u32 slot = 0; slot < 4; slot++) {
            u32 code = short_code(a.format, whole.at[slot] * scale) & 0xff;
            codes |= code << (8 * slot);
            seen.at[slot] = short_value(a.format, code) * back;
        }
        keep_lost_run(a, piece, x, i, count, whole, seen);
        if (whole_words && count == 4) *(u32 *)(wire + i) = codes;
        else for (u32 slot = 0; slot < count; slot++) wire[i + slot] = (u8)(codes >> (8 * slot));
    }
}

// Bytes of scales before the codes: `block` values share one; 0 says that none is sent, all that there is
// one.
DEVICE u64 fp8_scales(const Codec &a, const Piece &piece) {
    if (a.block == 0) return 0;
    u64 block = min(a.block, piece.count);
    return (piece.count + block - 1) / block;
}

KERNEL(fp8_encode, Codec) {
    Place at = place_of(a);
    const PieceStats *stats = piece_stats_of(a) + at.number;
    Source x = source_of(a, at.piece, a.looks && stats->carries);
    u8 *wire = (u8 *)a.wire + at.piece.wire, *codes = wire + fp8_scales(a, at.piece);
    if (a.block == 0 || a.block == ~0ull) {
        float scale = a.block != 0 ? stats->scale : a.scales ? ((const float *)a.scales)[at.number] : 1;
        if (a.block != 0 && at.first == 0 && threadIdx.x == 0) wire[0] = (u8)(bits(scale) >> 23);
        return fp8_encode_range(a, at.piece, x, at.first, at.end, scale, codes, threadIdx.x, blockDim.x);
    }
    // A warp takes the values of a scale.
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (u64 first = at.first + warp * a.block; first < at.end; first += blockDim.x / 32 * a.block) {
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

DEVICE void fp8_decode_range(const Codec &a, const Piece &piece, u64 first, u64 end, float back,
                             const u8 *codes, u32 at, u32 step) {
    bool whole_words = ((u64)(codes + first) & 3) == 0;
    for (u64 i = first + 4 * at; i < end; i += 4 * step) {
        u32 word = 0, count = (u32)min(end - i, (u64)4);
        if (whole_words && count == 4) word = *(const u32 *)(codes + i);
        else for (u32 slot = 0; slot < count; slot++) word |= (u32)codes[i + slot] << (8 * slot);
        Pack<float> values;
#pragma unroll
        for (u32 slot = 0; slot < 4; slot++) {
            values.at[slot] = short_value(a.format, word >> (8 * slot) & 0xff) * back;
        }
        decoded_run(a, piece, i, count, values);
    }
}

KERNEL(fp8_decode, Codec) {
    Place at = place_of(a);
    const u8 *wire = (const u8 *)a.wire + at.piece.wire, *codes = wire + fp8_scales(a, at.piece);
    if (a.block == 0 || a.block == ~0ull) {
        float given = a.scales ? 1 / ((const float *)a.scales)[at.number] : 1;
        float back = a.block == 0 ? given : 1 / from_bits((u32)wire[0] << 23);
        return fp8_decode_range(a, at.piece, at.first, at.end, back, codes, threadIdx.x, blockDim.x);
    }
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (u64 first = at.first + warp * a.block; first < at.end; first += blockDim.x / 32 * a.block) {
        float back = 1 / from_bits((u32)wire[first / a.block] << 23);
        fp8_decode_range(a, at.piece, first, min(first + a.block, at.end), back, codes, lane, 32);
    }
}

// How large a piece is, for scales that all ranks choose.
KERNEL(measure_piece, Codec) {
    Joined j = join(a);
    if (threadIdx.x == 0) ((float *)a.scales)[blockIdx.x] = j.all.largest;
}

// Sixteen bits a value.
template <class T> DEVICE void encode_half(const Codec &a) {
    Place at = place_of(a);
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
