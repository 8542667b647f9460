// What codecs of gradients share.
//
// A table on the device says where the pieces of a bucket are, each with scales of its own. A block takes a
// chunk of a piece. Encoding takes up to three launches: a block looks at each chunk (`chunk_stats`), and
// where percentiles are asked for one sorts a sample of each piece beside them, a block joins what was seen
// of a piece (`.._piece`), a block encodes each chunk. With a residual, what was lost before is added first,
// and what is lost now is kept (error feedback), unless some value of the piece is not finite. Sums are
// added in the processor's order.

#define CHUNK 8192

struct Piece {
    u64 values, count, residual, wire; // places: of values, of what was lost, of the message
    u64 chunk;                         // chunks of the pieces before it
};

// The processor adds so many values at a time.
#define UNIT 1024
#define MOST_UNITS (CHUNK / UNIT)
// So many of these sums make one, and those of groups the piece's.
#define GROUP 512
#define GROUP_CHUNKS (GROUP / MOST_UNITS)

// What is seen of a chunk or a piece, in one word: whether values are not finite, without and with what was lost
// before, and the largest magnitude of those that are finite.
struct Seen {
    u64 word;
    static __device__ Seen of(bool others, bool carried, float largest) {
        return {(u64)(others | carried << 1) << 32 | bits(largest)};
    }
    __device__ bool others() const { return word >> 32 & 1; }
    __device__ bool carried_others() const { return word >> 33 & 1; }
    __device__ float largest() const { return from_bits((u32)word); }
    // Of two.
    static __device__ u64 of(u64 a, u64 b) { return (a | b) >> 32 << 32 | max((u32)a, (u32)b); }
};
struct ChunkSums {
    double sums[MOST_UNITS][3]; // of whole units
    double group[3];            // of a group's units, where it begins here
};
struct Range {
    float lower, upper;
};
struct PieceStats {
    u32 carries, others, unused;
    float scale;
    Range range;
    double size; // the 99th percentile of magnitudes
    float magnitudes[128], borders[128];
};

// Where a block works.
struct Place {
    Piece piece;
    u64 first, end; // of the chunk's values in the piece
    u32 number;     // of the piece
};

DEVICE Place place_of(const Codec &a, u32 block) {
    const Piece *pieces = (const Piece *)a.pieces;
    u64 before = pieces[0].chunk;
    u32 low = 0, high = (u32)a.count - 1; // the last piece that begins at this chunk or before
    while (low < high) {
        u32 middle = (low + high + 1) / 2;
        if (pieces[middle].chunk - before <= block) low = middle;
        else high = middle - 1;
    }
    Piece piece = pieces[low];
    u64 each = CHUNK;
    if (a.block != 0 && a.block != ~0ull) {
        // Whole scales, as many a block.
        u64 scales = (piece.count + a.block - 1) / a.block, chunks = (piece.count + CHUNK - 1) / CHUNK;
        each = (scales + chunks - 1) / chunks * a.block;
    }
    u64 first = (block - (piece.chunk - before)) * each;
    return {piece, min(first, piece.count), min(first + each, piece.count), low};
}

DEVICE Place place_of(const Codec &a) { return place_of(a, blockIdx.x); }

// Where a block encodes: what was looked at last is still near.
DEVICE Place encoded_place(const Codec &a) {
    return place_of(a, a.looks ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
}

// The piece of a block that has a group of chunks, and the group: there are blocks for one more than each piece fills.
DEVICE Piece piece_of_group(const Codec &a, u64 &group) {
    const Piece *pieces = (const Piece *)a.pieces;
    u64 before = pieces[0].chunk;
    u32 low = 0, high = (u32)a.count - 1;
    while (low < high) {
        u32 middle = (low + high + 1) / 2;
        if ((pieces[middle].chunk - before) / GROUP_CHUNKS + middle <= blockIdx.x) low = middle;
        else high = middle - 1;
    }
    group = blockIdx.x - (pieces[low].chunk - before) / GROUP_CHUNKS - low;
    return pieces[low];
}

DEVICE PieceStats *piece_stats_of(const Codec &a) { return (PieceStats *)a.scratch; }
// Those of the first piece begin here.
DEVICE Seen *seen_of(const Codec &a) { return (Seen *)(piece_stats_of(a) + a.count); }
DEVICE ChunkSums *chunk_sums_of(const Codec &a) { return (ChunkSums *)(seen_of(a) + a.chunks); }

// Four neighbours, or fewer at an end: all are asked for before one is used, at once where they lie so.
DEVICE Pack<float> four(const float *from, u32 count) {
    if (count == 4 && is_aligned(from)) return *(const Pack<float> *)from;
    Pack<float> run = {};
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        if (i < count) run.at[i] = from[i];
    }
    return run;
}
DEVICE void put_four(float *to, const Pack<float> &run, u32 count) {
    if (count == 4 && is_aligned(to)) {
        *(Pack<float> *)to = run;
        return;
    }
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        if (i < count) to[i] = run.at[i];
    }
}

// Values that a thread asks for before it uses one: memory is far away. Of whole chunks more.
#define TOGETHER 8
#define TOGETHER_OF_CHUNK 16

// Runs of RUN neighbours from `first` to `end`, those of thread `at` of `step`: what `fetch` found of one is
// given to `use`. The last may be shorter.
template <u32 RUN, class Fetch, class Use>
DEVICE void for_each_run(u64 first, u64 end, u32 at, u32 step, Fetch fetch, Use use) {
    constexpr u32 RUNS = TOGETHER / RUN;
    u64 i = first + RUN * at, stride = (u64)RUN * step;
    for (; i + (RUNS - 1) * stride + RUN <= end; i += RUNS * stride) {
        decltype(fetch(i, RUN)) found[RUNS];
#pragma unroll
        for (u32 k = 0; k < RUNS; k++) found[k] = fetch(i + k * stride, RUN);
#pragma unroll
        for (u32 k = 0; k < RUNS; k++) use(i + k * stride, RUN, found[k]);
    }
    for (; i < end; i += stride) {
        u32 count = (u32)min(end - i, (u64)RUN);
        use(i, count, fetch(i, count));
    }
}

// The same of a chunk by CHUNK_THREADS, none shorter, from 0 on: where runs lie is known but for where the first does.
#define CHUNK_THREADS 256

template <u32 RUN, class Fetch, class Use> DEVICE void for_whole_chunk(Fetch fetch, Use use) {
    constexpr u32 RUNS = TOGETHER_OF_CHUNK / RUN, STEP = RUN * CHUNK_THREADS;
    u32 first = RUN * threadIdx.x;
#pragma unroll
    for (u32 turn = 0; turn < CHUNK; turn += RUNS * STEP) {
        decltype(fetch(first)) found[RUNS];
#pragma unroll
        for (u32 k = 0; k < RUNS; k++) found[k] = fetch(first + turn + k * STEP);
#pragma unroll
        for (u32 k = 0; k < RUNS; k++) use(first + turn + k * STEP, found[k]);
    }
}

// What is encoded: values, with what was lost before.
struct Source {
    const float *values;
    float *residual;
    __device__ float operator[](u64 i) const {
        return residual ? values[i] + residual[i] : values[i];
    }
    __device__ Pack<float> run(u64 i, u32 count) const {
        Pack<float> whole = four(values + i, count);
        if (!residual) return whole;
        Pack<float> before = four(residual + i, count);
#pragma unroll
        for (u32 k = 0; k < 4; k++) whole.at[k] = whole.at[k] + before.at[k];
        return whole;
    }
};

DEVICE Source source_of(const Codec &a, const Piece &piece, bool carries) {
    float *residual = carries ? (float *)a.residual + piece.residual : nullptr;
    return {(const float *)a.values + piece.values, residual};
}

// Whether a range is a chunk that can be gone over by `for_whole_chunk`, with nothing lost before to add.
DEVICE bool is_whole(Source x, u64 first, u64 end) {
    return !x.residual && is_aligned(x.values + first) && end - first == CHUNK && blockDim.x == CHUNK_THREADS;
}
// The same where nothing is kept of what is encoded.
DEVICE bool is_whole(const Codec &a, const Place &at, Source x) { return !a.decoded && is_whole(x, at.first, at.end); }

// What receivers will see of value i, and what of it is lost.
DEVICE void keep_lost(const Codec &a, const Piece &piece, Source x, u64 i, float whole, float decoded) {
    if (a.decoded) ((float *)a.decoded)[piece.values + i] = decoded;
    if (!x.residual) return;
    float lost = whole - decoded;
    x.residual[i] = is_finite(lost) ? lost : is_finite(whole) ? whole : 0;
}

// The same of a run.
DEVICE void keep_lost_run(const Codec &a, const Piece &piece, Source x, u64 i, u32 count, const Pack<float> &whole,
                          const Pack<float> &decoded) {
    if (a.decoded) put_four((float *)a.decoded + piece.values + i, decoded, count);
    if (!x.residual) return;
    Pack<float> lost;
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
        float left = whole.at[k] - decoded.at[k];
        lost.at[k] = is_finite(left) ? left : is_finite(whole.at[k]) ? whole.at[k] : 0;
    }
    put_four(x.residual + i, lost, count);
}

// Decoded values are written, or added to what is there.
DEVICE void decoded(const Codec &a, const Piece &piece, u64 i, float value) {
    float *out = (float *)a.decoded + piece.values + i;
    *out = a.add ? *out + value : value;
}
DEVICE void decoded_run(const Codec &a, const Piece &piece, u64 i, u32 count, Pack<float> values) {
    float *out = (float *)a.decoded + piece.values + i;
    if (a.add) {
        Pack<float> there = four(out, count);
#pragma unroll
        for (u32 k = 0; k < 4; k++) values.at[k] = there.at[k] + values.at[k];
    }
    put_four(out, values, count);
}

// A sample of magnitudes, sorted by the first SORTERS threads of a block, OWN neighbours each: those steps
// that stay within a thread or a warp are done in registers. What is not finite lies behind.
#define SAMPLE 4096
#define SORTERS 256
#define OWN (SAMPLE / SORTERS)
#define ABOVE_ALL 0xffffffff

// In shared memory neighbours of a thread are a warp's accesses apart.
DEVICE u32 sorted_place(u32 i) { return i % OWN * SORTERS + i / OWN; }

// Neighbours in a thread that are STEP apart, the first of them in place `first`.
template <u32 STEP> DEVICE void sort_own(u32 (&own)[OWN], u32 first, u32 size) {
#pragma unroll
    for (u32 i = 0; i < OWN; i++) {
        if (i & STEP) continue;
        u32 low = min(own[i], own[i + STEP]), high = max(own[i], own[i + STEP]);
        bool up = ((first + i) & size) == 0;
        own[i] = up ? low : high, own[i + STEP] = up ? high : low;
    }
}

// Those of threads that are `apart` from each other: `other(i)` has the other's.
template <class Other> DEVICE void sort_apart(u32 (&own)[OWN], u32 apart, u32 size, Other other) {
    bool up = (OWN * threadIdx.x & size) == 0, keeps_low = up == ((threadIdx.x & apart) == 0);
#pragma unroll
    for (u32 i = 0; i < OWN; i++) {
        u32 theirs = other(i);
        own[i] = keeps_low ? min(own[i], theirs) : max(own[i], theirs);
    }
}

// How many are finite; all threads of the block take part.
DEVICE u32 sort_sample(Source from, u64 count, u32 *sorted) {
    u32 taken = (u32)min(count, (u64)SAMPLE), finite = 0, own[OWN], first = OWN * threadIdx.x;
    bool sorts = threadIdx.x < SORTERS;
#pragma unroll
    for (u32 k = 0; k < OWN; k++) {
        u32 i = k * SORTERS + threadIdx.x;
        u64 place = count < SAMPLE ? i : i * count / SAMPLE;
        own[k] = sorts && i < taken ? bits(from[place]) & 0x7fffffff : ABOVE_ALL;
        if (own[k] >= 0x7f800000) own[k] = ABOVE_ALL;
        else finite++;
    }
    finite = block_sum(finite);
    for (u32 size = 2; size <= SAMPLE; size *= 2) {
        for (u32 apart = size / 2 / OWN; apart >= 32; apart /= 2) {
            __syncthreads(); // whoever still reads
#pragma unroll
            for (u32 k = 0; k < OWN; k++) {
                if (sorts) sorted[k * SORTERS + threadIdx.x] = own[k];
            }
            __syncthreads();
            if (sorts) sort_apart(own, apart, size, [&](u32 i) { return sorted[i * SORTERS + (threadIdx.x ^ apart)]; });
        }
        if (!sorts) continue;
        for (u32 apart = min(size / 2 / OWN, 16u); apart > 0; apart /= 2) {
            sort_apart(own, apart, size, [&](u32 i) { return __shfl_xor_sync(0xffffffff, own[i], apart); });
        }
        if (size > 8) sort_own<8>(own, first, size);
        if (size > 4) sort_own<4>(own, first, size);
        if (size > 2) sort_own<2>(own, first, size);
        sort_own<1>(own, first, size);
    }
    __syncthreads();
#pragma unroll
    for (u32 k = 0; k < OWN; k++) {
        if (sorts) sorted[k * SORTERS + threadIdx.x] = own[k];
    }
    __syncthreads();
    return finite;
}

DEVICE double percentile(const u32 *sorted, u32 count, double percent) {
    if (count == 0) return 0;
    double place = (double)(count - 1) * percent / 100.0;
    u32 below = min((u32)place, count - 1), above = min(below + 1, count - 1);
    double low = (double)from_bits(sorted[sorted_place(below)]), high = (double)from_bits(sorted[sorted_place(above)]);
    return low + (high - low) * (place - (double)below);
}

// Percentiles of a piece's magnitudes: those of a table's levels, or the 99th.
DEVICE void find_percentiles(const Codec &a, Source x, u64 count, PieceStats *stats) {
    SHARED(u32, sorted);
    u32 finite = sort_sample(x, count, sorted), levels = a.width == 0 ? 1 : 1u << (a.width - 1);
    for (u32 i = threadIdx.x; i < levels; i += blockDim.x) {
        double size = percentile(sorted, finite, 99.0 * (i + 1) / levels);
        stats->magnitudes[i] = (float)size;
        if (i + 1 == levels) stats->size = size;
    }
    __syncthreads();
}

// Negative values, the others, and how many are negative.
struct Sides {
    __device__ void operator()(float v, float *terms) const {
        terms[0] = v < 0 ? v : 0;
        terms[1] = v < 0 ? 0 : v;
        terms[2] = v < 0 ? 1 : 0;
    }
};

// The largest magnitudes that a thread has seen, in the order of their bits, without what was lost before and with it.
struct Largests {
    u32 plain, whole;
    __device__ void look(float of_plain, float of_whole) {
        plain = max(plain, bits(of_plain) & 0x7fffffff), whole = max(whole, bits(of_whole) & 0x7fffffff);
    }
    static __device__ u64 of(u64 a, u64 b) {
        return (u64)max((u32)(a >> 32), (u32)(b >> 32)) << 32 | max((u32)a, (u32)b);
    }
};

// The largest magnitude of those that are finite, where some are not.
DEVICE float largest_finite(Source x, u64 first, u64 end) {
    float largest = 0;
    for (u64 i = first + threadIdx.x; i < end; i += blockDim.x) {
        float magnitude = fabsf(x[i]);
        largest = is_finite(magnitude) && magnitude > largest ? magnitude : largest;
    }
    return over_block<Largest>(largest, 0.0f);
}

// What all threads have seen of a range.
DEVICE Seen seen_by_all(Largests own, Source x, u64 first, u64 end) {
    u64 all = over_block<Largests, u64>((u64)own.plain << 32 | own.whole, 0);
    float largest = from_bits((u32)all);
    bool carried = !is_finite(largest);
    return Seen::of((u32)(all >> 32) >= 0x7f800000, carried, carried ? largest_finite(x, first, end) : largest);
}

// What a range of values says.
DEVICE Seen look_at(Source x, u64 first, u64 end) {
    struct Both {
        Pack<float> plain, whole;
    };
    Largests own = {};
    if (is_whole(x, first, end)) {
        for_whole_chunk<4>(
            [&](u32 i) { return *(const Pack<float> *)(x.values + first + i); },
            [&](u32, const Pack<float> &run) {
                for (float value : run.at) own.look(value, value);
            });
        return seen_by_all(own, x, first, end);
    }
    for_each_run<4>(
        first, end, threadIdx.x, blockDim.x,
        [&](u64 i, u32 count) -> Both { return {four(x.values + i, count), x.run(i, count)}; },
        [&](u64, u32, const Both &both) {
#pragma unroll
            for (u32 k = 0; k < 4; k++) own.look(both.plain.at[k], both.whole.at[k]);
        });
    return seen_by_all(own, x, first, end);
}

// Sums of whole units in the processor's order, and what their values say: 16 lanes of f32 a unit, added in f64
// one after another. Negative values, the others, and how many are negative.
template <bool CARRIES> DEVICE Seen unit_sums_of(Source x, u64 first, u64 end, double (*sums)[3]) {
    __shared__ float lanes[MOST_UNITS][16][3];
    u32 units = (u32)((end - first) / UNIT), lane = threadIdx.x % 16;
    Largests seen = {};
    for (u32 unit = threadIdx.x / 16; unit < units; unit += blockDim.x / 16) {
        float below = 0, others = 0;
        u32 negatives = 0;
        for (u32 i = 0; i < UNIT; i += 16 * 16) {
            u64 place = first + unit * UNIT + i + lane;
            float plain[16], before[16];
#pragma unroll
            for (u32 k = 0; k < 16; k++) plain[k] = x.values[place + 16 * k];
#pragma unroll
            for (u32 k = 0; k < 16; k++) before[k] = CARRIES ? x.residual[place + 16 * k] : 0;
#pragma unroll
            for (u32 k = 0; k < 16; k++) {
                float whole = CARRIES ? plain[k] + before[k] : plain[k];
                seen.look(plain[k], whole);
                below += whole < 0 ? whole : 0;
                others += whole < 0 ? 0 : whole;
                negatives += whole < 0;
            }
        }
        lanes[unit][lane][0] = below, lanes[unit][lane][1] = others, lanes[unit][lane][2] = (float)negatives;
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < units * 3; i += blockDim.x) {
        u32 unit = i / 3, n = i % 3;
        double total = 0;
        for (u32 l = 0; l < 16; l++) total += (double)lanes[unit][l][n];
        sums[unit][n] = total;
    }
    for (u64 i = first + units * UNIT + threadIdx.x; i < end; i += blockDim.x) seen.look(x.values[i], x[i]);
    return seen_by_all(seen, x, first, end);
}
DEVICE Seen unit_sums(Source x, u64 first, u64 end, double (*sums)[3]) {
    return x.residual ? unit_sums_of<true>(x, first, end, sums) : unit_sums_of<false>(x, first, end, sums);
}

// The chunk that a block looks at. Bits lie apart: those that are encoded first, the last of each run, are looked at
// last, and still near.
DEVICE u32 looked_at(const Codec &a, u32 block) {
    if (!a.sums || a.count != 1 || a.chunks % 32 != 0) return block;
    return block % 32 * (a.chunks / 32) + block / 32;
}

KERNEL(chunk_stats, Codec) {
    Codec plain = a;
    plain.block = 0;
    if (blockIdx.x < a.samples) {
        Piece piece = ((const Piece *)a.pieces)[blockIdx.x];
        Source x = source_of(a, piece, a.residual != 0);
        return find_percentiles(a, x, piece.count, piece_stats_of(a) + blockIdx.x);
    }
    u32 chunk = looked_at(a, blockIdx.x - a.samples);
    Place at = place_of(plain, chunk);
    Source x = source_of(a, at.piece, a.residual != 0);
    Seen seen = a.sums ? unit_sums(x, at.first, at.end, chunk_sums_of(a)[chunk].sums) : look_at(x, at.first, at.end);
    if (threadIdx.x == 0) seen_of(a)[chunk] = seen;
}

// The piece of a block with what its chunks said, for all threads. Where something is not finite nothing
// is carried, and what was seen with it does not count.
struct Joined {
    Piece piece;
    Source x;
    ChunkSums *sums; // of its chunks
    Seen all;
    bool recount; // the chunks' sums are of other values
};

DEVICE Joined join(const Codec &a) {
    Piece piece = ((const Piece *)a.pieces)[blockIdx.x];
    u64 chunks = (piece.count + CHUNK - 1) / CHUNK;
    u64 before = piece.chunk - ((const Piece *)a.pieces)[0].chunk;
    const Seen *seen = seen_of(a) + before;
    u64 word = 0;
#pragma unroll 8
    for (u64 chunk = threadIdx.x; chunk < chunks; chunk += blockDim.x) word = Seen::of(word, seen[chunk].word);
    Seen all = {over_block<Seen, u64>(word, 0)};
    bool carries = a.residual && !all.others(), recount = a.residual && !carries;
    Source x = source_of(a, piece, carries);
    if (recount) all = look_at(x, 0, piece.count);
    return {piece, x, chunk_sums_of(a) + before, all, recount};
}

// Whether what was lost before is carried, for codecs that need no more.
KERNEL(carry_piece, Codec) {
    Joined j = join(a);
    if (threadIdx.x == 0) piece_stats_of(a)[blockIdx.x].carries = j.x.residual != nullptr;
}
