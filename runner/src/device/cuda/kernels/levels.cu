// Codecs of few levels, one bit and table(N), bit for bit those of the processor (core::compress); see
// pieces.cuh.

DEVICE float level(Range range, u32 code) {
    float step = (range.upper - range.lower) / 2;
    return ((float)code + 0.5f) * step + range.lower;
}

// CNTK's two levels with their border at zero: the means of the negative values and of the others.
DEVICE Range side_means(const double *totals, u64 count) {
    float negatives = (float)totals[2], others = (float)count - negatives;
    float low = negatives == 0 ? 0 : (float)totals[0] / negatives;
    float high = others == 0 ? 0 : (float)totals[1] / others;
    float middle = (low + high) / 2, width = 2 * (high - middle);
    Range range = {middle - width, middle + width};
    if (is_finite(range.lower) && is_finite(range.upper)) return range;
    return {from_bits(0x7fc00000), from_bits(0x7fc00000)};
}

// One of each of the sums of `count` units or groups, in their order, by the first threads: `of(i)` has the three of
// one. All threads fetch, so that those which add wait for shared memory alone.
template <class Of> DEVICE double in_order(u64 count, Of of) {
    __shared__ double staged[GROUP][3];
    double total = 0;
    for (u64 first = 0; first < count; first += GROUP) {
        u32 some = (u32)min((u64)GROUP, count - first);
        __syncthreads();
        for (u32 i = threadIdx.x; i < 3 * some; i += blockDim.x) staged[i / 3][i % 3] = of(first + i / 3)[i % 3];
        __syncthreads();
        if (threadIdx.x < 3) {
#pragma unroll 8
            for (u32 i = 0; i < some; i++) total += staged[i][threadIdx.x];
        }
    }
    return total;
}

// The sums of a group, where it begins. Those of a piece with what was lost before; `one_bit_piece` sums again where
// that is not carried.
DEVICE void group_sums(ChunkSums *chunks, u64 chunk, u64 units) {
    u64 before = chunk * MOST_UNITS, count = min((u64)GROUP, units - before);
    double total = in_order(count, [&](u64 unit) { return chunks[chunk + unit / MOST_UNITS].sums[unit % MOST_UNITS]; });
    if (threadIdx.x < 3) chunks[chunk].group[threadIdx.x] = total;
}

KERNEL(one_bit_groups, Codec) {
    u64 group, before = ((const Piece *)a.pieces)[0].chunk;
    Piece piece = piece_of_group(a, group);
    u64 chunk = group * GROUP_CHUNKS, units = piece.count / UNIT;
    if (chunk * MOST_UNITS < units) group_sums(chunk_sums_of(a) + (piece.chunk - before), chunk, units);
}

// The processor's sums: groups of units in f64 one after another, and what is left in f32 one after another.
KERNEL_OF(1024, one_bit_piece, Codec) {
    __shared__ double totals[3];
    Joined j = join(a);
    ChunkSums *sums = j.sums;
    u64 units = j.piece.count / UNIT;
    if (j.recount) {
        for (u64 first = 0; first < j.piece.count; first += CHUNK) {
            u64 end = min(first + CHUNK, j.piece.count);
            unit_sums(j.x, first, end, sums[first / CHUNK].sums);
            __syncthreads();
        }
        for (u64 chunk = 0; chunk * MOST_UNITS < units; chunk += GROUP_CHUNKS) group_sums(sums, chunk, units);
        __syncthreads();
    }
    double total = in_order((units + GROUP - 1) / GROUP, [&](u64 group) { return sums[group * GROUP_CHUNKS].group; });
    if (threadIdx.x < 3) {
        u32 n = threadIdx.x;
        float tail = 0, term[3];
        for (u64 i = units * UNIT; i < j.piece.count; i++) {
            Sides()(j.x[i], term);
            tail += term[n];
        }
        totals[n] = total + (double)tail;
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    PieceStats *found = piece_stats_of(a) + blockIdx.x;
    found->carries = j.x.residual != nullptr;
    found->range = side_means(totals, j.piece.count);
}

// Bits whose values a thread asks for at a time.
#define BITS_TOGETHER 8

// A word of the codes: its values are `words` apart, ALL of them there or not.
template <bool ALL, class Use> DEVICE u32 one_bit_word(Source x, u64 count, u64 word, u64 words, Use use) {
    u32 code = 0;
    u64 i = word;
    for (u32 first = 0; first < 32; first += BITS_TOGETHER, i += BITS_TOGETHER * words) {
        float whole[BITS_TOGETHER];
#pragma unroll
        for (u32 k = 0; k < BITS_TOGETHER; k++) whole[k] = ALL || i + k * words < count ? x[i + k * words] : 0;
#pragma unroll
        for (u32 k = 0; k < BITS_TOGETHER; k++) {
            if (!ALL && i + k * words >= count) break;
            code |= (u32)(whole[k] >= 0) << (first + k);
            use(i + k * words, whole[k]);
        }
    }
    return code;
}

// Words of a whole chunk where runs of values lie at multiples of 16 bytes: a thread has eight bits of four
// neighbouring words.
DEVICE void one_bit_words(const float *values, u64 first, u64 words, u32 *wire) {
    __shared__ u32 codes[CHUNK_THREADS];
    u32 quarter = threadIdx.x / (CHUNK_THREADS / 4), place = 4 * (threadIdx.x % (CHUNK_THREADS / 4));
    const float *from = values + first + place + 8 * quarter * words;
    Pack<float> found[8];
#pragma unroll
    for (u32 k = 0; k < 8; k++) found[k] = *(const Pack<float> *)(from + k * words);
#pragma unroll
    for (u32 j = 0; j < 4; j++) {
        u32 code = 0;
#pragma unroll
        for (u32 k = 0; k < 8; k++) code |= (u32)(found[k].at[j] >= 0) << k;
        ((u8 *)codes)[4 * (place + j) + quarter] = (u8)code;
    }
    __syncthreads();
    wire[first + threadIdx.x] = codes[threadIdx.x];
}

// A word holds the bits of values k, k + words, k + 2 words, ..; a chunk is as many words as have its
// number of values.
KERNEL(one_bit_encode, Codec) {
    Place at = encoded_place(a);
    const PieceStats *stats = piece_stats_of(a) + at.number;
    Source x = source_of(a, at.piece, stats->carries);
    bool keeps = a.decoded || x.residual;
    u32 *wire = (u32 *)((u8 *)a.wire + at.piece.wire);
    Range range = stats->range;
    u64 count = at.piece.count, words = (count + 31) / 32, last = min((at.first + CHUNK) / 32, words);
    float low = level(range, 0), high = level(range, 1);
    if (at.first == 0 && threadIdx.x == 0) wire[0] = bits(range.lower), wire[1] = bits(range.upper);
    bool whole = is_whole(a, at, x) && words % 4 == 0 && count % 32 == 0;
    if (whole) return one_bit_words(x.values, at.first / 32, words, wire + 2);
    auto use = [&](u64 i, float whole) {
        if (keeps) keep_lost(a, at.piece, x, i, whole, whole >= 0 ? high : low);
    };
    for (u64 word = at.first / 32 + threadIdx.x; word < last; word += blockDim.x) {
        bool all = word + 31 * words < count;
        u32 code = all ? one_bit_word<true>(x, count, word, words, use) : one_bit_word<false>(x, count, word, words, use);
        wire[2 + word] = code;
    }
}

KERNEL(one_bit_decode, Codec) {
    Place at = place_of(a);
    const u32 *wire = (const u32 *)((const u8 *)a.wire + at.piece.wire);
    Range range = {from_bits(wire[0]), from_bits(wire[1])};
    u64 words = (at.piece.count + 31) / 32, last = min((at.first + CHUNK) / 32, words);
    float low = level(range, 0), high = level(range, 1);
    for (u64 word = at.first / 32 + threadIdx.x; word < last; word += blockDim.x) {
        u32 code = wire[2 + word];
        for (u64 i = word; i < at.piece.count; i += words, code >>= 1) {
            decoded(a, at.piece, i, code & 1 ? high : low);
        }
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

KERNEL_OF(1024, table_piece, Codec) {
    Joined j = join(a);
    u32 levels = 1u << (a.width - 1);
    PieceStats *stats = piece_stats_of(a) + blockIdx.x;
    // Of other values.
    if (j.recount) find_percentiles(a, j.x, j.piece.count, stats);
    if (threadIdx.x + 1 < levels) {
        float low = stats->magnitudes[threadIdx.x], high = stats->magnitudes[threadIdx.x + 1];
        stats->borders[threadIdx.x] = border_of(low, high);
    }
    if (threadIdx.x != 0) return;
    stats->carries = j.x.residual != nullptr;
    stats->others = j.all.carried_others();
}

// How many of 2^STEPS - 1 borders are below a magnitude.
template <u32 STEPS> DEVICE u32 borders_below(const float *borders, float magnitude) {
    u32 low = 0;
#pragma unroll
    for (u32 step = 1u << STEPS >> 1; step > 0; step /= 2) {
        if (magnitude > borders[low + step - 1]) low += step;
    }
    return low;
}

// Borders of a table of so many bits in registers.
template <u32 WIDTH> struct FewBorders;
template <> struct FewBorders<1> {
    __device__ explicit FewBorders(const float *) {}
    __device__ u32 below(float, u32) const { return 0; }
};
template <> struct FewBorders<2> {
    float border;
    __device__ explicit FewBorders(const float *borders) : border(borders[0]) {}
    // How many are below, `shift` bits higher.
    __device__ u32 below(float magnitude, u32 shift) const { return magnitude > border ? 1u << shift : 0; }
};
template <> struct FewBorders<4> {
    float at[7];
    __device__ explicit FewBorders(const float *borders) {
#pragma unroll
        for (u32 i = 0; i < 7; i++) at[i] = borders[i];
    }
    __device__ u32 below(float magnitude, u32 shift) const {
        bool fourth = magnitude > at[3];
        float low = fourth ? at[4] : at[0], middle = fourth ? at[5] : at[1], high = fourth ? at[6] : at[2];
        bool second = magnitude > middle, first = magnitude > (second ? high : low);
        u32 code = fourth ? 4u << shift : 0;
        if (second) code |= 2u << shift;
        if (first) code |= 1u << shift;
        return code;
    }
};

// Codes of eight values, of as many bytes as each has bits: at once where they lie at a multiple of that.
DEVICE void put_codes(u8 *to, u64 word, u32 width, u32 count, bool whole_words) {
    if (!whole_words || count != 8) {
        for (u32 byte = 0; byte < (count * width + 7) / 8; byte++) to[byte] = (u8)(word >> (8 * byte));
    } else if (width == 1) *to = (u8)word;
    else if (width == 2) *(u16 *)to = (u16)word;
    else if (width == 4) *(u32 *)to = (u32)word;
    else *(u64 *)to = word;
}
// Those of four values, from the lowest bits on; value `i` is the first.
DEVICE u32 get_codes(const u8 *codes, u64 i, u32 width, u32 count, bool whole_words) {
    if (width == 1) return codes[i / 8] >> (i & 4);
    if (width == 2) return codes[i / 4];
    const u8 *from = codes + i / 4 * (width / 2);
    if (whole_words && count == 4) return width == 4 ? *(const u16 *)from : *(const u32 *)from;
    u32 word = 0;
    for (u32 byte = 0; byte < (count * width + 7) / 8; byte++) word |= (u32)from[byte] << (8 * byte);
    return word;
}

// Eight neighbours, or fewer at an end, by fours.
struct EightValues {
    Pack<float> of[2];
};
DEVICE u32 of_half(u32 count, u32 half) { return half == 0 ? min(count, 4u) : count - min(count, 4u); }

// What a block needs to know of a table: its magnitudes and their opposites, and the borders between them; those that a
// narrower table has not are above everything.
template <u32 STEPS> struct KnownTable {
    float magnitudes[2u << STEPS], borders[1u << STEPS];
};

template <u32 STEPS> DEVICE void table_encode_range(const Codec &a, const Place &at, Source x, const KnownTable<STEPS> &known,
                                                    u8 *codes) {
    u32 width = a.width;
    bool whole_words = ((u64)codes & (width - 1)) == 0, keeps = a.decoded || x.residual;
    for_each_run<8>(
        at.first, at.end, threadIdx.x, blockDim.x,
        [&](u64 i, u32 count) -> EightValues {
            return {{x.run(i, of_half(count, 0)), x.run(i + 4, of_half(count, 1))}};
        },
        [&](u64 i, u32 count, const EightValues &whole) {
            u32 word[2] = {};
#pragma unroll
            for (u32 half = 0; half < 2; half++) {
                Pack<float> seen;
                u32 some = of_half(count, half);
#pragma unroll
                for (u32 slot = 0; slot < 4; slot++) {
                    float value = whole.of[half].at[slot];
                    u32 low = borders_below<STEPS>(known.borders, fabsf(value)), negative = bits(value) >> 31;
                    u32 code = (negative << (width - 1) | low) << (slot * width);
                    if (slot < some) word[half] |= code;
                    if (keeps) seen.at[slot] = known.magnitudes[(negative << STEPS) + low];
                }
                if (keeps) keep_lost_run(a, at.piece, x, i + 4 * half, some, whole.of[half], seen);
            }
            put_codes(codes + i / 8 * width, (u64)word[1] << (4 * width) | word[0], width, count, whole_words);
        });
}

// A whole chunk, of which codes of eight values lie at a multiple of their size.
template <u32 WIDTH> DEVICE void table_encode_whole(const float *values, const float *borders, u8 *codes) {
    FewBorders<WIDTH> known(borders);
    for_whole_chunk<8>(
        [&](u32 i) -> EightValues {
            return {{*(const Pack<float> *)(values + i), *(const Pack<float> *)(values + i + 4)}};
        },
        [&](u32 i, const EightValues &whole) {
            u32 word = 0;
#pragma unroll
            for (u32 slot = 0; slot < 8; slot++) {
                float value = whole.of[slot / 4].at[slot % 4];
                word |= known.below(fabsf(value), WIDTH * slot);
                word |= bits(value) >> 31 << (WIDTH * slot + WIDTH - 1);
            }
            put_codes(codes + i / 8 * WIDTH, word, WIDTH, 8, true);
        });
}

// Codes of at most 2^STEPS levels.
template <u32 STEPS> DEVICE void table_encode_as(const Codec &a) {
    constexpr u32 MOST = 1u << STEPS;
    __shared__ KnownTable<STEPS> known;
    Place at = encoded_place(a);
    const PieceStats *stats = piece_stats_of(a) + at.number;
    Source x = source_of(a, at.piece, stats->carries);
    u32 width = a.width, levels = 1u << (width - 1);
    if (threadIdx.x < MOST) {
        u32 i = threadIdx.x;
        float magnitude = i >= levels || stats->others != 0 ? from_bits(0x7fc00000) : stats->magnitudes[i];
        known.magnitudes[i] = magnitude, known.magnitudes[MOST + i] = -magnitude;
        known.borders[i] = i + 1 < levels ? stats->borders[i] : from_bits(0x7f800000);
    }
    __syncthreads();
    u8 *head = (u8 *)a.wire + at.piece.wire, *codes = head + 4 * levels;
    if (at.first == 0 && threadIdx.x < levels) put_word(head + 4 * threadIdx.x, bits(known.magnitudes[threadIdx.x]));
    if (STEPS > 3 || ((u64)codes & (width - 1)) != 0 || !is_whole(a, at, x)) {
        return table_encode_range<STEPS>(a, at, x, known, codes);
    }
    const float *values = x.values + at.first;
    codes += at.first / 8 * width;
    if (width == 1) table_encode_whole<1>(values, known.borders, codes);
    else if (width == 2) table_encode_whole<2>(values, known.borders, codes);
    else table_encode_whole<4>(values, known.borders, codes);
}

KERNEL(table_encode, Codec) {
    if (a.width <= 4) return table_encode_as<3>(a);
    table_encode_as<7>(a);
}

KERNEL(table_decode, Codec) {
    __shared__ float values[256]; // of all codes
    Place at = place_of(a);
    u32 width = a.width, levels = 1u << (width - 1), last = 2 * levels - 1;
    const u8 *head = (const u8 *)a.wire + at.piece.wire, *codes = head + 4 * levels;
    if (threadIdx.x < levels) {
        float magnitude = from_bits(get_word(head + 4 * threadIdx.x));
        values[threadIdx.x] = magnitude, values[levels + threadIdx.x] = -magnitude;
    }
    __syncthreads();
    bool whole_words = ((u64)codes & 3) == 0;
    for_each_run<4>(
        at.first, at.end, threadIdx.x, blockDim.x,
        [&](u64 i, u32 count) { return get_codes(codes, i, width, count, whole_words); },
        [&](u64 i, u32 count, u32 four) {
            Pack<float> run;
#pragma unroll
            for (u32 slot = 0; slot < 4; slot++) run.at[slot] = values[four >> (slot * width) & last];
            decoded_run(a, at.piece, i, count, run);
        });
}
