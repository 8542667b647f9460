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

struct ChunkStats {
    u32 others, carried_others; // values that are not finite, without and with what was lost before
    float largest;              // magnitude of those that are finite
    u32 unused;
    double sums[MOST_UNITS][3]; // of whole units
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

DEVICE Place place_of(const Codec &a) {
    const Piece *pieces = (const Piece *)a.pieces;
    u64 before = pieces[0].chunk;
    u32 low = 0, high = (u32)a.count - 1; // the last piece that begins at this chunk or before
    while (low < high) {
        u32 middle = (low + high + 1) / 2;
        if (pieces[middle].chunk - before <= blockIdx.x) low = middle;
        else high = middle - 1;
    }
    Piece piece = pieces[low];
    u64 each = CHUNK;
    if (a.block != 0 && a.block != ~0ull) {
        // Whole scales, as many a block.
        u64 scales = (piece.count + a.block - 1) / a.block, chunks = (piece.count + CHUNK - 1) / CHUNK;
        each = (scales + chunks - 1) / chunks * a.block;
    }
    u64 first = (blockIdx.x - (piece.chunk - before)) * each;
    return {piece, min(first, piece.count), min(first + each, piece.count), low};
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

// Sums of whole units in the processor's order: 16 lanes of f32, added in f64 one after another.
template <int N, class F> DEVICE void unit_sums(Source x, u64 first, u64 end, F terms, double (*sums)[3]) {
    __shared__ float lanes[MOST_UNITS][16][N];
    u32 own = threadIdx.x / 16, lane = threadIdx.x % 16, units = (u32)((end - first) / UNIT);
    if (own < units) {
        float at[N] = {}, term[N];
        for (u32 i = 0; i < UNIT / 16; i++) {
            terms(x[first + own * UNIT + i * 16 + lane], term);
            for (int n = 0; n < N; n++) at[n] += term[n];
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
}

// Negative values, the others, and how many are negative.
struct Sides {
    __device__ void operator()(float v, float *terms) const {
        terms[0] = v < 0 ? v : 0;
        terms[1] = v < 0 ? 0 : v;
        terms[2] = v < 0 ? 1 : 0;
    }
};

// What a range of values says, in thread 0.
DEVICE ChunkStats look_at(Source x, u64 first, u64 end) {
    u32 others = 0, carried = 0;
    float largest = 0;
    for (u64 i = first + threadIdx.x; i < end; i += blockDim.x) {
        float whole = x[i], magnitude = fabsf(whole);
        others += !is_finite(x.values[i]);
        carried += !is_finite(whole);
        largest = is_finite(magnitude) && magnitude > largest ? magnitude : largest;
    }
    ChunkStats seen = {};
    seen.others = block_sum(others);
    seen.carried_others = block_sum(carried);
    seen.largest = block_max(largest);
    return seen;
}

KERNEL(chunk_stats, Codec) {
    Codec plain = a;
    plain.block = 0;
    Place at = place_of(plain);
    ChunkStats *stats = chunk_stats_of(a) + blockIdx.x;
    Source x = source_of(a, at.piece, a.residual != 0);
    ChunkStats seen = look_at(x, at.first, at.end);
    if (threadIdx.x == 0) {
        stats->others = seen.others;
        stats->carried_others = seen.carried_others;
        stats->largest = seen.largest;
    }
    if (a.sums) unit_sums<3>(x, at.first, at.end, Sides(), stats->sums);
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
    ChunkStats *stats = chunk_stats_of(a) + (piece.chunk - ((const Piece *)a.pieces)[0].chunk), all = {};
    u32 others = 0, carried = 0;
    float largest = 0;
    for (u64 chunk = threadIdx.x; chunk < chunks; chunk += blockDim.x) {
        others += stats[chunk].others;
        carried += stats[chunk].carried_others;
        largest = stats[chunk].largest > largest ? stats[chunk].largest : largest;
    }
    all.others = block_sum(others);
    all.carried_others = block_sum(carried);
    all.largest = block_max(largest);
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
