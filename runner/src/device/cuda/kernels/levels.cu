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

// Units whose sums a block fetches at a time.
#define STAGED 512

// The processor's sums: whole units in f64 one after another, and what is left in f32 one after another. All
// threads fetch, so that those which add wait for shared memory alone.
KERNEL(one_bit_piece, Codec) {
    __shared__ double totals[3], staged[STAGED][3];
    Joined j = join(a);
    ChunkStats *stats = j.chunks;
    u64 units = j.piece.count / UNIT, each = CHUNK / UNIT;
    if (j.recount) {
        for (u64 first = 0; first < j.piece.count; first += CHUNK) {
            u64 end = min(first + CHUNK, j.piece.count);
            unit_sums<3>(j.x, first, end, Sides(), stats[first / CHUNK].sums);
            __syncthreads();
        }
    }
    double total = 0;
    for (u64 first = 0; first < units; first += STAGED) {
        u32 some = (u32)min((u64)STAGED, units - first);
        __syncthreads();
        for (u32 i = threadIdx.x; i < 3 * some; i += blockDim.x) {
            u64 unit = first + i / 3;
            staged[i / 3][i % 3] = stats[unit / each].sums[unit % each][i % 3];
        }
        __syncthreads();
        if (threadIdx.x < 3) {
#pragma unroll 8
            for (u32 unit = 0; unit < some; unit++) total += staged[unit][threadIdx.x];
        }
    }
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

// A word holds the bits of values k, k + words, k + 2 words, ..; a chunk is as many words as have its
// number of values.
KERNEL(one_bit_encode, Codec) {
    Place at = place_of(a);
    const PieceStats *stats = piece_stats_of(a) + at.number;
    Source x = source_of(a, at.piece, stats->carries);
    u32 *wire = (u32 *)((u8 *)a.wire + at.piece.wire);
    Range range = stats->range;
    u64 words = (at.piece.count + 31) / 32, last = min((at.first + CHUNK) / 32, words);
    float low = level(range, 0), high = level(range, 1);
    if (at.first == 0 && threadIdx.x == 0) wire[0] = bits(range.lower), wire[1] = bits(range.upper);
    for (u64 word = at.first / 32 + threadIdx.x; word < last; word += blockDim.x) {
        u32 code = 0;
        for (u64 i = word, bit = 0; i < at.piece.count; i += words, bit++) {
            float whole = x[i];
            bool one = whole >= 0;
            code |= (u32)one << bit;
            keep_lost(a, at.piece, x, i, whole, one ? high : low);
        }
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

KERNEL(table_piece, Codec) {
    SHARED(u32, sorted);
    Joined j = join(a);
    u32 levels = 1u << (a.width - 1), count = sort_sample(j.x, j.piece.count, sorted);
    PieceStats *stats = piece_stats_of(a) + blockIdx.x;
    if (threadIdx.x < levels) {
        stats->magnitudes[threadIdx.x] = (float)percentile(sorted, count, 99.0 * (threadIdx.x + 1) / levels);
    }
    __syncthreads();
    if (threadIdx.x + 1 < levels) {
        float low = stats->magnitudes[threadIdx.x], high = stats->magnitudes[threadIdx.x + 1];
        stats->borders[threadIdx.x] = border_of(low, high);
    }
    if (threadIdx.x != 0) return;
    stats->carries = j.x.residual != nullptr;
    stats->others = j.all.carried_others;
}

// How many of `levels` - 1 borders are below a magnitude.
DEVICE u32 borders_below(const float *borders, u32 levels, float magnitude) {
    u32 low = 0, high = levels - 1;
    while (low < high) {
        u32 middle = (low + high) / 2;
        if (magnitude > borders[middle]) low = middle + 1;
        else high = middle;
    }
    return low;
}

KERNEL(table_encode, Codec) {
    __shared__ float magnitudes[128], borders[128];
    Place at = place_of(a);
    const PieceStats *stats = piece_stats_of(a) + at.number;
    Source x = source_of(a, at.piece, stats->carries);
    u32 width = a.width, levels = 1u << (width - 1);
    bool is_broken = stats->others != 0;
    if (threadIdx.x < levels) {
        magnitudes[threadIdx.x] = is_broken ? from_bits(0x7fc00000) : stats->magnitudes[threadIdx.x];
        borders[threadIdx.x] = stats->borders[threadIdx.x];
    }
    __syncthreads();
    u8 *head = (u8 *)a.wire + at.piece.wire, *codes = head + 4 * levels;
    if (at.first == 0 && threadIdx.x < levels) {
        put_word(head + 4 * threadIdx.x, bits(magnitudes[threadIdx.x]));
    }
    // Whole bytes, of four values at least.
    u32 each = 8 / width, runs = max(each / 4, 1u);
    for (u64 first = at.first + threadIdx.x * 4 * runs; first < at.end; first += blockDim.x * 4 * runs) {
        u32 word = 0;
        for (u32 run = 0; run < runs && first + 4 * run < at.end; run++) {
            u64 i = first + 4 * run;
            u32 count = (u32)min(at.end - i, (u64)4);
            Pack<float> whole = x.run(i, count), seen;
#pragma unroll
            for (u32 slot = 0; slot < 4; slot++) {
                u32 low = borders_below(borders, levels, fabsf(whole.at[slot]));
                u32 negative = bits(whole.at[slot]) >> 31, code = negative << (width - 1) | low;
                if (slot < count) word |= code << ((4 * run + slot) * width);
                seen.at[slot] = negative ? -magnitudes[low] : magnitudes[low];
            }
            keep_lost_run(a, at.piece, x, i, count, whole, seen);
        }
        u64 last = (min(first + 4 * runs, at.end) - first + each - 1) / each;
        for (u64 byte = 0; byte < last; byte++) codes[first / each + byte] = (u8)(word >> (8 * byte));
    }
}

KERNEL(table_decode, Codec) {
    __shared__ float magnitudes[128];
    Place at = place_of(a);
    u32 width = a.width, levels = 1u << (width - 1), each = 8 / width;
    const u8 *head = (const u8 *)a.wire + at.piece.wire, *codes = head + 4 * levels;
    if (threadIdx.x < levels) magnitudes[threadIdx.x] = from_bits(get_word(head + 4 * threadIdx.x));
    __syncthreads();
    for (u64 i = at.first + threadIdx.x * 4; i < at.end; i += blockDim.x * 4) {
        u32 word = 0, count = (u32)min(at.end - i, (u64)4), bytes = (i % each + count + each - 1) / each;
        for (u32 byte = 0; byte < bytes; byte++) word |= (u32)codes[i / each + byte] << (8 * byte);
        word >>= i % each * width;
        Pack<float> values;
#pragma unroll
        for (u32 slot = 0; slot < 4; slot++, word >>= width) {
            float value = magnitudes[word & (levels - 1)];
            values.at[slot] = word >> (width - 1) & 1 ? -value : value;
        }
        decoded_run(a, at.piece, i, count, values);
    }
}
