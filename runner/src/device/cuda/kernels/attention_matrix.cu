// Attention on the matrix units, in halves and in TF32: tiles of scores stay in registers (Dao 2023, FlashAttention-2).
//
//   forward   S = scale q k^T    P = exp(S - max) / sum    y = P v    L = max + log sum
//   backward  P = exp(S - L)     gv = P^T gy    D = sum gy y by rows
//             gS = P (gy v^T - D)    gq = scale gS k    gk = scale gS^T q
//
// A warp has 16 or 32 rows: of queries, or in the second half of the backward pass of keys. What it
// multiplies by comes through shared memory, the next tile while this one is at work. A result of the
// matrix units is, rounded, the left factor of the next product, so nothing of it is exchanged. No
// atomics: a block has all of what it writes, so the bits are always the same.
//
// Rows of tiles are sixteen bytes further apart than they are wide, so that no two of eight neighbours are in
// one bank; columns past a head's width are zero. Powers are of two: exp(x) = 2^(x log2 e).

#define WARPS 4
#define LOG2_E 1.4426950408889634f

// Rows of 16 that a warp has: more of them share what is loaded, as far as there are registers.
template <class T> DEVICE constexpr int strips(int wide) { return sizeof(T) == 2 && wide <= 64 ? 2 : 1; }

// Rows of a tile that all go through. Two tiles of keys and values are under way.
template <class T> DEVICE constexpr int forward_tile(int wide) {
    return sizeof(T) == 2 && wide <= 128 ? 64 : 32;
}
template <class T> DEVICE constexpr int backward_tile(int wide) {
    return sizeof(T) == 2 && wide <= 64 ? 64 : 32;
}

// Rows of it that are at work at a time in the backward pass.
template <class T> DEVICE constexpr int chunk(int wide) { return sizeof(T) == 2 && wide <= 64 ? 32 : 16; }

// Widths of which left factors stay in registers, of queries and of keys.
template <class T> DEVICE constexpr bool keeps_queries(int wide) { return wide * sizeof(T) <= 256; }
DEVICE constexpr bool keeps_keys(int wide) { return wide <= 64; }

// Columns of the gradients of keys and values that a block has registers for.
DEVICE constexpr int key_columns(int wide) { return wide <= 128 ? wide : 128; }

// Elements from a row of a tile to the next.
template <class T> DEVICE constexpr int stride(int wide) { return wide + Matrix<T>::PIECE; }

// Asks for rows from `first` on, zeros past `end` and past the width; nobody reads where there is none.
template <int WIDE, int ROWS, class T>
DEVICE void fetch(T *tile, Vectors<const T> from, u32 first, u32 end, u32 width) {
    constexpr u32 PIECE = Matrix<T>::PIECE, PIECES = WIDE / PIECE, APART = 32 * WARPS / PIECES;
    u32 row = threadIdx.x / PIECES, column = threadIdx.x % PIECES * PIECE;
    const T *place = from.data + (first + row) * from.stride + column;
    T *to = tile + row * stride<T>(WIDE) + column;
    u32 rows = column < width && first + row < end ? end - first - row : 0;
#pragma unroll
    for (u32 i = 0; i < ROWS / APART; i++) {
        copy_beside(to + i * APART * stride<T>(WIDE), place + i * APART * from.stride, i * APART < rows);
    }
}

// Asks for a tile of two matrices, one behind the other, as a group of copies.
template <int WIDE, int ROWS, class T>
DEVICE void fetch_pair(T *stage, Vectors<const T> one, Vectors<const T> other, u32 first, u32 end, u32 one_width,
                       u32 other_width) {
    fetch<WIDE, ROWS>(stage, one, first, end, one_width);
    fetch<WIDE, ROWS>(stage + ROWS * stride<T>(WIDE), other, first, end, other_width);
    end_group();
}

// Where this lane's row of four tiles begins: of a left factor, or of a right one that is turned ...
template <int WIDE, class T> DEVICE const T *left_at(const T *tile, u32 row, u32 column) {
    u32 lane = threadIdx.x % 32;
    return tile + (row + lane % 16) * stride<T>(WIDE) + column + lane / 16 * Matrix<T>::PIECE;
}
// ... and of a right factor whose rows are its columns.
template <int WIDE, class T> DEVICE const T *right_at(const T *tile, u32 row, u32 column) {
    u32 lane = threadIdx.x % 32;
    u32 place = (row + lane / 16 * 8 + lane % 8) * stride<T>(WIDE) + column;
    return tile + place + lane / 8 % 2 * Matrix<T>::PIECE;
}

// Four tiles as factors.
template <class T> DEVICE void load_factor(u32 (&factor)[4], const T *row) {
    load_fragments(factor, row);
    if constexpr (sizeof(T) == 4) {
#pragma unroll
        for (int i = 0; i < 4; i++) factor[i] = tf32(factor[i]);
    }
}

// Left factors of a warp's strips, in registers where there is room for them, else where they lie.
template <int WIDE, int STRIPS, bool KEPT, class T> struct Left {
    static constexpr int DEPTH = Matrix<T>::DEPTH, STEPS = WIDE / DEPTH;
    u32 kept[KEPT ? STRIPS : 1][KEPT ? STEPS : 1][4];
    const T *tile;

    __device__ __forceinline__ void load(const T *rows) {
        tile = rows;
        if constexpr (KEPT) {
#pragma unroll
            for (int i = 0; i < STRIPS * STEPS; i++) {
                int strip = i / STEPS, k = i % STEPS;
                load_factor(kept[strip][k], left_at<WIDE>(rows, 16 * strip, DEPTH * k));
            }
        }
    }

    __device__ __forceinline__ void get(u32 (&fragment)[4], int strip, int k) const {
        if constexpr (KEPT) {
#pragma unroll
            for (int i = 0; i < 4; i++) fragment[i] = kept[strip][k][i];
        } else {
            load_factor(fragment, left_at<WIDE>(tile, 16 * strip, DEPTH * k));
        }
    }
};

// products[strip][n] += left (rows from `first` on)^T, along WIDE; eight rows each n.
template <int WIDE, int STRIPS, int COUNT, bool KEPT, class T>
DEVICE void along_width(float (&products)[STRIPS][COUNT][4], const Left<WIDE, STRIPS, KEPT, T> &left,
                        const T *rows, u32 first) {
    constexpr int DEPTH = Matrix<T>::DEPTH;
#pragma unroll
    for (int k = 0; k < WIDE / DEPTH; k++) {
        u32 factor[STRIPS][4];
#pragma unroll
        for (int strip = 0; strip < STRIPS; strip++) left.get(factor[strip], strip, k);
#pragma unroll
        for (int n = 0; n < COUNT / 2; n++) {
            u32 right[4];
            load_factor(right, right_at<WIDE>(rows, first + 16 * n, DEPTH * k));
#pragma unroll
            for (int strip = 0; strip < STRIPS; strip++) {
                multiply<T>(products[strip][2 * n], factor[strip], right[0], right[1]);
                multiply<T>(products[strip][2 * n + 1], factor[strip], right[2], right[3]);
            }
        }
    }
}

// Right factors of two times eight columns, of rows from `first` on.
template <int WIDE, class T>
DEVICE void load_below(u32 (&right)[4], const T *rows, u32 first, u32 column) {
    if constexpr (sizeof(T) == 2) {
        load_turned(right, left_at<WIDE>(rows, first, column));
    } else {
        // Of a left factor that was a result the columns are these.
        u32 lane = threadIdx.x % 32;
        const T *at = rows + (first + lane % 4 * 2) * stride<T>(WIDE) + column + lane / 4;
#pragma unroll
        for (int i = 0; i < 4; i++) right[i] = tf32(bits(at[i % 2 * stride<T>(WIDE) + i / 2 * 8]));
    }
}

// sums[strip][n] += weights (16 rows from `first` on), columns from `column` on.
template <int WIDE, int STRIPS, int COUNT, int TILES, class T>
DEVICE void along_rows(float (&sums)[STRIPS][COUNT][4], const float (&weights)[STRIPS][TILES][4], int tile,
                       const T *rows, u32 first, u32 column) {
    constexpr int DEPTH = Matrix<T>::DEPTH;
#pragma unroll
    for (int step = 0; step < 16 / DEPTH; step++) {
        u32 left[STRIPS][4];
#pragma unroll
        for (int strip = 0; strip < STRIPS; strip++) {
            as_left<T>(left[strip], &weights[strip][tile + step * DEPTH / 8]);
        }
#pragma unroll
        for (int n = 0; n < COUNT / 2; n++) {
            u32 right[4];
            load_below<WIDE>(right, rows, first + step * DEPTH, column + 16 * n);
#pragma unroll
            for (int strip = 0; strip < STRIPS; strip++) {
                multiply<T>(sums[strip][2 * n], left[strip], right[0], right[1]);
                multiply<T>(sums[strip][2 * n + 1], left[strip], right[2], right[3]);
            }
        }
    }
}

// A strip's sums to rows from `first` on, columns from `column` on; half 0 of `factors` is for rows of the
// upper eight.
template <int COUNT, class T>
DEVICE void write_strip(Vectors<T> to, u32 first, u32 end, u32 column, u32 width,
                        const float (&sums)[COUNT][4], const float (&factors)[2]) {
    u32 lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        u32 row = first + lane / 4 + 8 * half;
#pragma unroll
        for (int n = 0; n < COUNT; n++) {
            u32 at = column + 8 * n + lane % 4 * 2;
            if (row >= end || at >= width) continue;
            float factor = factors[half];
            T *place = to.data + row * to.stride + at;
            store_pair(place, sums[n][2 * half] * factor, sums[n][2 * half + 1] * factor);
        }
    }
}

// Of the four lanes that have one row.
DEVICE float quad_sum(float value) {
    value += __shfl_xor_sync(0xffffffff, value, 1);
    return value + __shfl_xor_sync(0xffffffff, value, 2);
}
DEVICE float quad_most(float value) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, 1));
    return fmaxf(value, __shfl_xor_sync(0xffffffff, value, 2));
}

// Scores become weights: powers of two of their distance from a row's largest, times `scale`, which is above
// zero. The largest may have grown; then what was summed before counts less.
template <int TILES, int OUT>
DEVICE void soften(float (&scores)[TILES][4], float scale, float (&sums)[OUT][4], float (&most)[2],
                   float (&total)[2]) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float largest = most[half];
#pragma unroll
        for (int n = 0; n < TILES; n++) {
            largest = fmaxf(largest, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
        }
        largest = quad_most(largest);
        float keep = power_of_two((most[half] - largest) * scale), added = 0, from = largest * scale;
        most[half] = largest;
#pragma unroll
        for (int n = 0; n < TILES; n++) {
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; i++) {
                scores[n][i] = power_of_two(scores[n][i] * scale - from);
                added += scores[n][i];
            }
        }
        total[half] = total[half] * keep + added;
#pragma unroll
        for (int n = 0; n < OUT; n++) {
            sums[n][2 * half] *= keep;
            sums[n][2 * half + 1] *= keep;
        }
    }
}

// What rows from `row` on, `lane / 4` of eight, do not see of columns from `column` on counts nothing.
template <int TILES>
DEVICE void hide(float (&scores)[TILES][4], u32 row, u32 column, u32 end, bool causal) {
    u32 lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 4 * TILES; i++) {
        u32 query = row + lane / 4 + i % 4 / 2 * 8, key = column + i / 4 * 8 + lane % 4 * 2 + i % 2;
        if (key >= end || (causal && key > query)) scores[i / 4][i % 4] = from_bits(0xff800000);
    }
}

template <int WIDE, class T> DEVICE void forward(const Attention &a) {
    constexpr int STRIPS = strips<T>(WIDE), TILE = forward_tile<T>(WIDE), ROWS = 16 * STRIPS * WARPS;
    constexpr int TILES = TILE / 8, STAGE = 2 * TILE * stride<T>(WIDE);
    SHARED(T, memory);
    T *q = memory, *stages = q + ROWS * stride<T>(WIDE);
    u32 lane = threadIdx.x % 32, head = blockIdx.y, sample = blockIdx.z;
    // Blocks with the most to do begin first.
    u32 first = (a.causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x) * ROWS;
    u32 own = threadIdx.x / 32 * 16 * STRIPS, end = a.causal ? min(first + ROWS, a.s) : a.s;
    Vectors<const T> keys = vectors<const T>(a.k, a.k_strides, sample, head / a.heads_together);
    Vectors<const T> values = vectors<const T>(a.v, a.v_strides, sample, head / a.heads_together);
    fetch<WIDE, ROWS>(q, vectors<const T>(a.q, a.q_strides, sample, head), first, a.n, a.d);
    fetch_pair<WIDE, TILE>(stages, keys, values, 0, a.s, a.d, a.e);
    Left<WIDE, STRIPS, true, T> left;
    float sums[STRIPS][WIDE / 8][4] = {}, most[STRIPS][2], total[STRIPS][2] = {};
    for (int i = 0; i < 2 * STRIPS; i++) most[i / 2][i % 2] = from_bits(0xff800000);
    float scale = a.scale * LOG2_E;
    for (u32 tile = 0; tile < end; tile += TILE) {
        T *k = stages + tile / TILE % 2 * STAGE, *v = k + STAGE / 2;
        wait_for_groups<0>();
        // Now this tile is here for all, and all are done with the one before.
        __syncthreads();
        if (tile + TILE < end) {
            T *next = stages + (tile / TILE + 1) % 2 * STAGE;
            fetch_pair<WIDE, TILE>(next, keys, values, tile + TILE, a.s, a.d, a.e);
        }
        if (tile == 0) left.load(q + own * stride<T>(WIDE));
        // Nothing of it is for this warp's queries.
        if (a.causal && tile > first + own + 16 * STRIPS - 1) continue;
        float scores[STRIPS][TILES][4] = {};
        along_width<WIDE>(scores, left, (const T *)k, 0);
        bool is_edge = tile + TILE > a.s || (a.causal && tile + TILE - 1 > first + own);
#pragma unroll
        for (int strip = 0; strip < STRIPS; strip++) {
            if (is_edge) hide(scores[strip], first + own + 16 * strip, tile, a.s, a.causal);
            soften(scores[strip], scale, sums[strip], most[strip], total[strip]);
        }
#pragma unroll
        for (int some = 0; some < TILE; some += 16) {
            along_rows<WIDE>(sums, scores, some / 8, (const T *)v, some, 0);
        }
    }
    Vectors<T> y = vectors<T>(a.y, a.y_strides, sample, head);
    float *saved = (float *)a.saved + ((u64)sample * a.heads + head) * a.n;
#pragma unroll
    for (int strip = 0; strip < STRIPS; strip++) {
        u32 row = first + own + 16 * strip;
        float shares[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float all = quad_sum(total[strip][half]);
            u32 query = row + lane / 4 + 8 * half;
            shares[half] = 1 / all;
            if (lane % 4 == 0 && query < a.n) saved[query] = most[strip][half] * a.scale + logf(all);
        }
        write_strip(y, row, a.n, 0, a.e, sums[strip], shares);
    }
}

// D of every query, eight lanes each.
template <class T> DEVICE void means(const Attention &a) {
    u32 query = blockIdx.x * (blockDim.x / 8) + threadIdx.x / 8, head = blockIdx.y, sample = blockIdx.z;
    Vectors<const T> y = vectors<const T>(a.y, a.y_strides, sample, head);
    Vectors<const T> gy = vectors<const T>(a.gy, a.y_strides, sample, head);
    float mean = 0;
    constexpr int PIECE = Matrix<T>::PIECE;
    for (u32 column = threadIdx.x % 8 * PIECE; column < a.e && query < a.n; column += 8 * PIECE) {
        u64 place = query * y.stride + column;
        Pack<T> values = *(const Pack<T> *)(y.data + place), slopes = *(const Pack<T> *)(gy.data + place);
#pragma unroll
        for (int i = 0; i < PIECE; i++) mean += load(values.at[i]) * load(slopes.at[i]);
    }
    for (int lanes = 1; lanes < 8; lanes *= 2) mean += __shfl_xor_sync(0xffffffff, mean, lanes);
    if (threadIdx.x % 8 == 0 && query < a.n) {
        ((float *)a.means)[((u64)sample * a.heads + head) * a.n + query] = mean;
    }
}

template <int WIDE, class T> DEVICE void queries(const Attention &a) {
    constexpr int STRIPS = strips<T>(WIDE), TILE = backward_tile<T>(WIDE), ROWS = 16 * STRIPS * WARPS;
    constexpr int STAGE = 2 * TILE * stride<T>(WIDE), CHUNK = chunk<T>(WIDE);
    SHARED(T, memory);
    T *q = memory, *gy = q + ROWS * stride<T>(WIDE), *stages = gy + ROWS * stride<T>(WIDE);
    u32 lane = threadIdx.x % 32, head = blockIdx.y, sample = blockIdx.z;
    u32 first = (a.causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x) * ROWS;
    u32 own = threadIdx.x / 32 * 16 * STRIPS, end = a.causal ? min(first + ROWS, a.s) : a.s;
    Vectors<const T> keys = vectors<const T>(a.k, a.k_strides, sample, head / a.heads_together);
    Vectors<const T> values = vectors<const T>(a.v, a.v_strides, sample, head / a.heads_together);
    fetch<WIDE, ROWS>(q, vectors<const T>(a.q, a.q_strides, sample, head), first, a.n, a.d);
    fetch<WIDE, ROWS>(gy, vectors<const T>(a.gy, a.y_strides, sample, head), first, a.n, a.e);
    fetch_pair<WIDE, TILE>(stages, keys, values, 0, a.s, a.d, a.e);
    Left<WIDE, STRIPS, keeps_queries<T>(WIDE), T> left, upstream;
    float sums[STRIPS][WIDE / 8][4] = {}, logarithms[STRIPS][2], mean[STRIPS][2];
    u64 places = ((u64)sample * a.heads + head) * a.n;
#pragma unroll
    for (int i = 0; i < 2 * STRIPS; i++) {
        u32 query = first + own + lane / 4 + 8 * i;
        logarithms[i / 2][i % 2] = query < a.n ? ((const float *)a.saved)[places + query] * LOG2_E : 0;
        mean[i / 2][i % 2] = query < a.n ? ((const float *)a.means)[places + query] : 0;
    }
    float scale = a.scale * LOG2_E;
    for (u32 tile = 0; tile < end; tile += TILE) {
        T *k = stages + tile / TILE % 2 * STAGE, *v = k + STAGE / 2;
        wait_for_groups<0>();
        __syncthreads();
        if (tile + TILE < end) {
            T *next = stages + (tile / TILE + 1) % 2 * STAGE;
            fetch_pair<WIDE, TILE>(next, keys, values, tile + TILE, a.s, a.d, a.e);
        }
        if (tile == 0) {
            left.load(q + own * stride<T>(WIDE));
            upstream.load(gy + own * stride<T>(WIDE));
        }
#pragma unroll 1
        for (u32 some = 0; some < TILE; some += CHUNK) {
            if (a.causal && tile + some > first + own + 16 * STRIPS - 1) break;
            float scores[STRIPS][CHUNK / 8][4] = {}, slopes[STRIPS][CHUNK / 8][4] = {};
            along_width<WIDE>(scores, left, (const T *)k, some);
            along_width<WIDE>(slopes, upstream, (const T *)v, some);
            bool is_edge = tile + some + CHUNK > a.s || (a.causal && tile + some + CHUNK - 1 > first + own);
#pragma unroll
            for (int strip = 0; strip < STRIPS; strip++) {
                if (is_edge) hide(scores[strip], first + own + 16 * strip, tile + some, a.s, a.causal);
#pragma unroll
                for (int i = 0; i < CHUNK / 2; i++) {
                    int half = i % 4 / 2;
                    float weight = power_of_two(scores[strip][i / 4][i % 4] * scale - logarithms[strip][half]);
                    float &slope = slopes[strip][i / 4][i % 4];
                    slope = weight * (slope - mean[strip][half]);
                }
            }
#pragma unroll
            for (int part = 0; part < CHUNK; part += 16) {
                along_rows<WIDE>(sums, slopes, part / 8, (const T *)k, some + part, 0);
            }
        }
    }
    Vectors<T> gq = vectors<T>(a.gq, a.q_strides, sample, head);
    float factors[2] = {a.scale, a.scale};
#pragma unroll
    for (int strip = 0; strip < STRIPS; strip++) {
        write_strip(gq, first + own + 16 * strip, a.n, 0, a.d, sums[strip], factors);
    }
}

// Of one head of keys and values, all heads of queries that share it, one after another.
template <int WIDE, class T> DEVICE void keys(const Attention &a) {
    constexpr int TILE = backward_tile<T>(WIDE), ROWS = 16 * WARPS, OUT = key_columns(WIDE);
    constexpr int CHUNK = chunk<T>(WIDE);
    // Queries, gradients of what they saw, and two numbers of each query.
    constexpr int STAGE = 2 * TILE * stride<T>(WIDE) + 8 * TILE / sizeof(T);
    SHARED(T, memory);
    T *k = memory, *v = k + ROWS * stride<T>(WIDE), *stages = v + ROWS * stride<T>(WIDE);
    u32 lane = threadIdx.x % 32, head = blockIdx.y, sample = blockIdx.z;
    u32 first = blockIdx.x / (WIDE / OUT) * ROWS, column = blockIdx.x % (WIDE / OUT) * OUT;
    u32 own = threadIdx.x / 32 * 16, key = first + own + lane / 4;
    u32 begin = a.causal ? first / TILE * TILE : 0, tiles = begin < a.n ? (a.n - begin + TILE - 1) / TILE : 0;
    auto ask = [&](u32 number) {
        u32 reader = head * a.heads_together + number / tiles, tile = begin + number % tiles * TILE;
        T *stage = stages + number % 2 * STAGE;
        float *numbers = (float *)(stage + 2 * TILE * stride<T>(WIDE));
        Vectors<const T> queries = vectors<const T>(a.q, a.q_strides, sample, reader);
        Vectors<const T> upstream = vectors<const T>(a.gy, a.y_strides, sample, reader);
        fetch_pair<WIDE, TILE>(stage, queries, upstream, tile, a.n, a.d, a.e);
        u64 places = ((u64)sample * a.heads + reader) * a.n;
        for (u32 i = threadIdx.x; i < TILE; i += 32 * WARPS) {
            bool is_there = tile + i < a.n;
            numbers[i] = is_there ? ((const float *)a.saved)[places + tile + i] * LOG2_E : 0;
            numbers[TILE + i] = is_there ? ((const float *)a.means)[places + tile + i] : 0;
        }
    };
    fetch<WIDE, ROWS>(k, vectors<const T>(a.k, a.k_strides, sample, head), first, a.s, a.d);
    fetch<WIDE, ROWS>(v, vectors<const T>(a.v, a.v_strides, sample, head), first, a.s, a.e);
    u32 count = tiles * a.heads_together;
    if (count > 0) ask(0);
    Left<WIDE, 1, keeps_keys(WIDE), T> left, values;
    float key_sums[1][OUT / 8][4] = {}, value_sums[1][OUT / 8][4] = {}, scale = a.scale * LOG2_E;
    for (u32 number = 0; number < count; number++) {
        u32 tile = begin + number % tiles * TILE;
        const T *q = stages + number % 2 * STAGE, *gy = q + TILE * stride<T>(WIDE);
        const float *logarithms = (const float *)(gy + TILE * stride<T>(WIDE)), *means = logarithms + TILE;
        wait_for_groups<0>();
        __syncthreads();
        if (number + 1 < count) ask(number + 1);
        if (number == 0) {
            left.load(k + own * stride<T>(WIDE));
            values.load(v + own * stride<T>(WIDE));
        }
#pragma unroll 1
        for (u32 some = 0; some < TILE; some += CHUNK) {
            if (a.causal && tile + some + CHUNK - 1 < first + own) continue;
            float scores[1][CHUNK / 8][4] = {}, slopes[1][CHUNK / 8][4] = {};
            along_width<WIDE>(scores, left, q, some);
            along_width<WIDE>(slopes, values, gy, some);
            bool is_edge = tile + some + CHUNK > a.n || (a.causal && tile + some < first + own + 15);
#pragma unroll
            for (int i = 0; i < CHUNK / 2; i++) {
                u32 place = some + i / 4 * 8 + lane % 4 * 2 + i % 2, query = tile + place;
                bool is_seen = !is_edge || (query < a.n && (!a.causal || key + i % 4 / 2 * 8 <= query));
                float &score = scores[0][i / 4][i % 4], &slope = slopes[0][i / 4][i % 4];
                score = is_seen ? power_of_two(score * scale - logarithms[place]) : 0;
                slope = score * (slope - means[place]);
            }
#pragma unroll
            for (int part = 0; part < CHUNK; part += 16) {
                along_rows<WIDE>(value_sums, scores, part / 8, gy, some + part, column);
                along_rows<WIDE>(key_sums, slopes, part / 8, q, some + part, column);
            }
        }
    }
    wait_for_groups<0>();
    float ones[2] = {1, 1}, scales[2] = {a.scale, a.scale};
    u32 row = first + own;
    if (a.gk) write_strip(vectors<T>(a.gk, a.k_strides, sample, head), row, a.s, column, a.d, key_sums[0], scales);
    if (a.gv) write_strip(vectors<T>(a.gv, a.v_strides, sample, head), row, a.s, column, a.e, value_sums[0], ones);
}

#define OF_WIDTH(WIDE, suffix, T)                                                                  \
    KERNEL_OF(128, attention_matrix_##WIDE##_##suffix, Attention) { forward<WIDE, T>(a); }         \
    KERNEL_OF(128, attention_matrix_queries_##WIDE##_##suffix, Attention) { queries<WIDE, T>(a); } \
    KERNEL_OF(128, attention_matrix_keys_##WIDE##_##suffix, Attention) { keys<WIDE, T>(a); }
// In halves alone there is room for the widest.
#define ENTRY(suffix, T)                                                                           \
    OF_WIDTH(32, suffix, T) OF_WIDTH(64, suffix, T) OF_WIDTH(128, suffix, T)                       \
    KERNEL(attention_means_##suffix, Attention) { means<T>(a); }                                   \
    WIDEST_##suffix
#define WIDEST_f32
#define WIDEST_bf16 OF_WIDTH(256, bf16, Bf16)
#define WIDEST_f16 OF_WIDTH(256, f16, F16)

// What follows is one entry.
