// What codecs of gradients share.
//
// A table on the device says where the pieces of a bucket are, each with scales of its own. A block takes a
// chunk of a piece. Encoding takes up to three launches: a block looks at each chunk (`chunk_stats`), a
// block joins what was seen of a piece (`.._piece`), a block encodes each chunk. With a residual, what was
// lost before is added first, and what is lost now is kept (error feedback), unless some value of the
// piece is not finite. Sums are added in the processor's order.

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

struct ChunkStats {
    u32 others, carried_others; // whether values are not finite, without and with what was lost before
    float largest;              // magnitude of those that are finite
    u32 unused;
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
DEVICE ChunkStats *chunk_stats_of(const Codec &a) { return (ChunkStats *)(piece_stats_of(a) + a.count); }

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

// Values that a thread asks for before it uses one: memory is far away.
#define TOGETHER 8

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

// The sorted magnitudes of a sample, in shared memory; what is not finite lies behind.
#define SAMPLE 4096

DEVICE u32 sort_sample(Source from, u64 count, u32 *sorted) {
    u32 taken = (u32)min(count, (u64)SAMPLE), finite = 0;
    for (u32 i = threadIdx.x; i < SAMPLE; i += blockDim.x) {
        u32 magnitude = i < taken ? bits(from[i * count / taken]) & 0x7fffffff : 0xffffffff;
        if (magnitude >= 0x7f800000) magnitude = 0xffffffff;
        else finite++;
        sorted[i] = magnitude;
    }
    finite = block_sum(finite);
    // What is at most 32 apart is one warp's.
    u32 before = SAMPLE;
    for (u32 size = 2; size <= SAMPLE; size *= 2) {
        for (u32 step = size / 2; step > 0; step /= 2) {
            if (max(step, before) > 32) __syncthreads();
            else __syncwarp();
            before = step;
            for (u32 pair = threadIdx.x; pair < SAMPLE / 2; pair += blockDim.x) {
                u32 i = 2 * pair - (pair & (step - 1)), other = i + step, held = sorted[i];
                bool up = (i & size) == 0;
                if ((held > sorted[other]) != up) continue;
                sorted[i] = sorted[other];
                sorted[other] = held;
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

// Negative values, the others, and how many are negative.
struct Sides {
    __device__ void operator()(float v, float *terms) const {
        terms[0] = v < 0 ? v : 0;
        terms[1] = v < 0 ? 0 : v;
        terms[2] = v < 0 ? 1 : 0;
    }
};

// What a thread has seen of values.
struct Seen {
    u32 others, carried;
    float largest;
    __device__ void look(float plain, float whole) {
        float magnitude = fabsf(whole);
        others |= !is_finite(plain);
        carried |= !is_finite(whole);
        largest = is_finite(magnitude) && magnitude > largest ? magnitude : largest;
    }
    // Of all threads. Magnitudes are in the order of their bits.
    __device__ ChunkStats all() const {
        u64 word = over_block<Either, u64>((u64)(others | carried << 1) << 32 | bits(largest), 0);
        ChunkStats seen = {};
        seen.others = word >> 32 & 1, seen.carried_others = word >> 33 & 1;
        seen.largest = from_bits((u32)word);
        return seen;
    }
    struct Either {
        static __device__ u64 of(u64 a, u64 b) {
            return (a | b) >> 32 << 32 | max((u32)a, (u32)b);
        }
    };
};

// What a range of values says, in thread 0.
DEVICE ChunkStats look_at(Source x, u64 first, u64 end) {
    struct Both {
        Pack<float> plain, whole;
    };
    Seen seen = {};
    for_each_run<4>(
        first, end, threadIdx.x, blockDim.x,
        [&](u64 i, u32 count) -> Both { return {four(x.values + i, count), x.run(i, count)}; },
        [&](u64, u32 count, const Both &both) {
#pragma unroll
            for (u32 k = 0; k < 4; k++) {
                if (k < count) seen.look(both.plain.at[k], both.whole.at[k]);
            }
        });
    return seen.all();
}

// Sums of whole units in the processor's order, and what their values say: 16 lanes of f32 a unit, added in f64
// one after another.
template <int N, class F> DEVICE ChunkStats unit_sums(Source x, u64 first, u64 end, F terms, double (*sums)[3]) {
    __shared__ float lanes[MOST_UNITS][16][N];
    u32 own = threadIdx.x / 16, lane = threadIdx.x % 16, units = (u32)((end - first) / UNIT);
    Seen seen = {};
    if (own < units) {
        float at[N] = {}, term[N];
        for (u32 i = 0; i < UNIT; i += 16 * 16) {
            u64 place = first + own * UNIT + i + lane;
            float plain[16], before[16] = {};
#pragma unroll
            for (u32 k = 0; k < 16; k++) plain[k] = x.values[place + 16 * k];
            if (x.residual) {
#pragma unroll
                for (u32 k = 0; k < 16; k++) before[k] = x.residual[place + 16 * k];
            }
#pragma unroll
            for (u32 k = 0; k < 16; k++) {
                float whole = x.residual ? plain[k] + before[k] : plain[k];
                seen.look(plain[k], whole);
                terms(whole, term);
                for (int n = 0; n < N; n++) at[n] += term[n];
            }
        }
        for (int n = 0; n < N; n++) lanes[own][lane][n] = at[n];
    }
    __syncthreads();
    if (threadIdx.x < units * N) {
        u32 unit = threadIdx.x / N, n = threadIdx.x % N;
        double total = 0;
        for (u32 l = 0; l < 16; l++) total += (double)lanes[unit][l][n];
        sums[unit][n] = total;
    }
    for (u64 i = first + units * UNIT + threadIdx.x; i < end; i += blockDim.x) seen.look(x.values[i], x[i]);
    return seen.all();
}

KERNEL(chunk_stats, Codec) {
    Codec plain = a;
    plain.block = 0;
    Place at = place_of(plain);
    ChunkStats *stats = chunk_stats_of(a) + blockIdx.x;
    Source x = source_of(a, at.piece, a.residual != 0);
    ChunkStats seen =
        a.sums ? unit_sums<3>(x, at.first, at.end, Sides(), stats->sums) : look_at(x, at.first, at.end);
    if (threadIdx.x == 0) {
        stats->others = seen.others;
        stats->carried_others = seen.carried_others;
        stats->largest = seen.largest;
    }
}

// The piece of a block with what its chunks said, for all threads. Where something is not finite nothing
// is carried, and what was seen with it does not count.
struct Joined {
    Piece piece;
    Source x;
    ChunkStats *chunks, all;
    bool recount; // the chunks' sums are of other values
};

DEVICE Joined join(const Codec &a) {
    Piece piece = ((const Piece *)a.pieces)[blockIdx.x];
    u64 chunks = (piece.count + CHUNK - 1) / CHUNK;
    ChunkStats *stats = chunk_stats_of(a) + (piece.chunk - ((const Piece *)a.pieces)[0].chunk);
    Seen seen = {};
#pragma unroll 4
    for (u64 chunk = threadIdx.x; chunk < chunks; chunk += blockDim.x) {
        seen.others |= stats[chunk].others;
        seen.carried |= stats[chunk].carried_others;
        seen.largest = stats[chunk].largest > seen.largest ? stats[chunk].largest : seen.largest;
    }
    ChunkStats all = seen.all();
    bool carries = a.residual && all.others == 0, recount = a.residual && !carries;
    Source x = source_of(a, piece, carries);
    if (recount) all = look_at(x, 0, piece.count);
    return {piece, x, stats, all, recount};
}

// Whether what was lost before is carried, for codecs that need no more.
KERNEL(carry_piece, Codec) {
    Joined j = join(a);
    if (threadIdx.x == 0) piece_stats_of(a)[blockIdx.x].carries = j.x.residual != nullptr;
}
