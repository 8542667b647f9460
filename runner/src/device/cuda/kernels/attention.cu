// Scaled dot-product attention in the flash manner (Dao et al. 2022): scores exist only as tiles in
// shared memory; of each query the logarithm of its sum of exponentials is kept.
//
//   forward   S = scale q k^T    P = exp(S - max) / sum    y = P v    L = max + log sum
//   backward  P = exp(S - L)     gv = P^T gy    D = sum gy y by rows
//             gS = scale P (gy v^T - D)    gq = gS k    gk = gS^T q
//
// Four threads share a row: a query, or in the second half of the backward pass a key. No atomics: a
// block has all of what it writes, so the bits are always the same.

#define KEYS 32 // of a tile; of queries, in the backward pass for keys and values

// Rows from `first` on, zeros past `end`: tile[row][column], rows of an odd number of words.
template <class T>
DEVICE void load_rows(float *tile, Vectors<T> from, u32 first, u32 rows, u32 end, u32 width) {
    for (u32 i = threadIdx.x; i < rows * width; i += blockDim.x) {
        u32 row = i / width, column = i % width;
        float value = first + row < end ? load(from.data[(first + row) * from.stride + column]) : 0;
        tile[row * (width + 1) + column] = value;
    }
}

DEVICE float dot(const float *a, const float *b, u32 width) {
    float total = 0;
#pragma unroll 4
    for (u32 i = 0; i < width; i++) total += a[i] * b[i];
    return total;
}

// Among the four threads of a row.
DEVICE float row_sum(float value) {
    value += __shfl_xor_sync(0xffffffff, value, 1);
    return value + __shfl_xor_sync(0xffffffff, value, 2);
}
DEVICE float row_most(float value) {
    value = Largest::of(value, __shfl_xor_sync(0xffffffff, value, 1));
    return Largest::of(value, __shfl_xor_sync(0xffffffff, value, 2));
}

// sums[i] += weights . column part + 4 i of the tile
template <int WIDE>
DEVICE void add_products(float *sums, const float *weights, const float *tile, u32 width, u32 part) {
#pragma unroll 1
    for (u32 j = 0; j < KEYS; j++) {
        float weight = weights[j];
        const float *row = tile + j * (width + 1) + part;
#pragma unroll
        for (int i = 0; i < WIDE / 4; i++) {
            if (part + 4 * i < width) sums[i] += weight * row[4 * i];
        }
    }
}

template <int WIDE, class T>
DEVICE void write_row(Vectors<T> to, u32 row, const float *values, float factor, u32 width, u32 part) {
#pragma unroll
    for (int i = 0; i < WIDE / 4; i++) {
        u32 column = part + 4 * i;
        if (column < width) to.data[row * to.stride + column] = store<T>(values[i] * factor);
    }
}

template <int WIDE, class T> DEVICE void attention(const Attention &a) {
    SHARED(float, memory);
    u32 rows = blockDim.x / 4, row = threadIdx.x / 4, part = threadIdx.x % 4;
    u32 head = blockIdx.y, sample = blockIdx.z, first = blockIdx.x * rows, query = first + row;
    float *q = memory, *k = q + rows * (a.d + 1), *v = k + KEYS * (a.d + 1);
    float *weights = v + KEYS * (a.e + 1) + row * (KEYS + 1);
    u32 shared = head / a.heads_together;
    Vectors<const T> keys = vectors<const T>(a.k, a.k_strides, sample, shared);
    Vectors<const T> values = vectors<const T>(a.v, a.v_strides, sample, shared);
    load_rows(q, vectors<const T>(a.q, a.q_strides, sample, head), first, rows, a.n, a.d);
    u32 seen = a.causal ? min(query + 1, a.s) : a.s, end = a.causal ? min(first + rows, a.s) : a.s;
    float most = from_bits(0xff800000), total = 0, sums[WIDE / 4] = {};
    for (u32 tile = 0; tile < end; tile += KEYS) {
        __syncthreads();
        load_rows(k, keys, tile, KEYS, a.s, a.d);
        load_rows(v, values, tile, KEYS, a.s, a.e);
        __syncthreads();
        float largest = from_bits(0xff800000);
#pragma unroll 1
        for (u32 j = part; j < KEYS && tile + j < seen; j += 4) {
            float score = a.scale * dot(q + row * (a.d + 1), k + j * (a.d + 1), a.d);
            weights[j] = score;
            largest = Largest::of(largest, score);
        }
        // Key 0 is seen by all, so from the first tile on this is a number.
        float now = Largest::of(most, row_most(largest)), keep = expf(most - now), added = 0;
        for (u32 j = part; j < KEYS; j += 4) {
            float weight = tile + j < seen ? expf(weights[j] - now) : 0;
            weights[j] = weight;
            added += weight;
        }
        total = total * keep + row_sum(added);
        most = now;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < WIDE / 4; i++) sums[i] *= keep;
        add_products<WIDE>(sums, weights, v, a.e, part);
    }
    if (query < a.n) {
        write_row<WIDE>(vectors<T>(a.y, a.y_strides, sample, head), query, sums, 1 / total, a.e, part);
        u64 place = ((u64)sample * a.heads + head) * a.n + query;
        if (part == 0) ((float *)a.saved)[place] = most + logf(total);
    }
}

template <int WIDE, class T> DEVICE void attention_queries(const Attention &a) {
    SHARED(float, memory);
    u32 rows = blockDim.x / 4, row = threadIdx.x / 4, part = threadIdx.x % 4;
    u32 head = blockIdx.y, sample = blockIdx.z, first = blockIdx.x * rows, query = first + row;
    float *q = memory, *gy = q + rows * (a.d + 1), *k = gy + rows * (a.e + 1);
    float *v = k + KEYS * (a.d + 1), *slopes = v + KEYS * (a.e + 1) + row * (KEYS + 1);
    u32 shared = head / a.heads_together;
    Vectors<const T> keys = vectors<const T>(a.k, a.k_strides, sample, shared);
    Vectors<const T> values = vectors<const T>(a.v, a.v_strides, sample, shared);
    Vectors<const T> y = vectors<const T>(a.y, a.y_strides, sample, head);
    load_rows(q, vectors<const T>(a.q, a.q_strides, sample, head), first, rows, a.n, a.d);
    load_rows(gy, vectors<const T>(a.gy, a.y_strides, sample, head), first, rows, a.n, a.e);
    __syncthreads();
    float mean = 0, sums[WIDE / 4] = {};
    for (u32 c = part; c < a.e && query < a.n; c += 4) {
        mean += gy[row * (a.e + 1) + c] * load(y.data[query * y.stride + c]);
    }
    mean = row_sum(mean);
    u64 place = ((u64)sample * a.heads + head) * a.n + query;
    float logarithm = query < a.n ? ((const float *)a.saved)[place] : 0;
    u32 seen = a.causal ? min(query + 1, a.s) : a.s, end = a.causal ? min(first + rows, a.s) : a.s;
    if (query >= a.n) seen = 0;
    for (u32 tile = 0; tile < end; tile += KEYS) {
        __syncthreads();
        load_rows(k, keys, tile, KEYS, a.s, a.d);
        load_rows(v, values, tile, KEYS, a.s, a.e);
        __syncthreads();
#pragma unroll 1
        for (u32 j = part; j < KEYS; j += 4) {
            float score = a.scale * dot(q + row * (a.d + 1), k + j * (a.d + 1), a.d);
            float slope = dot(gy + row * (a.e + 1), v + j * (a.e + 1), a.e);
            slopes[j] = tile + j < seen ? a.scale * expf(score - logarithm) * (slope - mean) : 0;
        }
        __syncthreads();
        add_products<WIDE>(sums, slopes, k, a.d, part);
    }
    if (query < a.n) {
        write_row<WIDE>(vectors<T>(a.gq, a.q_strides, sample, head), query, sums, 1, a.d, part);
    }
}

// Of one head of keys and values, all heads of queries that share it, one after another.
template <int WIDE, class T> DEVICE void attention_keys(const Attention &a) {
    SHARED(float, memory);
    u32 rows = blockDim.x / 4, row = threadIdx.x / 4, part = threadIdx.x % 4, warp = threadIdx.x / 32;
    u32 head = blockIdx.y, sample = blockIdx.z, first = blockIdx.x * rows, key = first + row;
    float *k = memory, *v = k + rows * (a.d + 1), *q = v + rows * (a.e + 1), *gy = q + KEYS * (a.d + 1);
    float *means = gy + KEYS * (a.e + 1), *logarithms = means + KEYS;
    float *weights = logarithms + KEYS + row * 2 * (KEYS + 1), *slopes = weights + KEYS + 1;
    load_rows(k, vectors<const T>(a.k, a.k_strides, sample, head), first, rows, a.s, a.d);
    load_rows(v, vectors<const T>(a.v, a.v_strides, sample, head), first, rows, a.s, a.e);
    float key_sums[WIDE / 4] = {}, value_sums[WIDE / 4] = {};
    for (u32 reader = head * a.heads_together; reader < (head + 1) * a.heads_together; reader++) {
        Vectors<const T> queries = vectors<const T>(a.q, a.q_strides, sample, reader);
        Vectors<const T> upstream = vectors<const T>(a.gy, a.y_strides, sample, reader);
        Vectors<const T> y = vectors<const T>(a.y, a.y_strides, sample, reader);
        const float *saved = (const float *)a.saved + ((u64)sample * a.heads + reader) * a.n;
        for (u32 tile = a.causal ? first / KEYS * KEYS : 0; tile < a.n; tile += KEYS) {
            __syncthreads();
            load_rows(q, queries, tile, KEYS, a.n, a.d);
            load_rows(gy, upstream, tile, KEYS, a.n, a.e);
            __syncthreads();
            for (u32 j = warp; j < KEYS; j += blockDim.x / 32) {
                float mean = 0;
                for (u32 c = threadIdx.x % 32; c < a.e && tile + j < a.n; c += 32) {
                    mean += gy[j * (a.e + 1) + c] * load(y.data[(tile + j) * y.stride + c]);
                }
                mean = over_warp<Sum<float>>(mean);
                if (threadIdx.x % 32 == 0) {
                    means[j] = mean;
                    logarithms[j] = tile + j < a.n ? saved[tile + j] : 0;
                }
            }
            __syncthreads();
    #pragma unroll 1
        for (u32 j = part; j < KEYS; j += 4) {
                float score = a.scale * dot(q + j * (a.d + 1), k + row * (a.d + 1), a.d);
                float slope = dot(gy + j * (a.e + 1), v + row * (a.e + 1), a.e);
                bool sees = tile + j < a.n && (!a.causal || key <= tile + j);
                float weight = sees ? expf(score - logarithms[j]) : 0;
                weights[j] = weight;
                slopes[j] = sees ? a.scale * weight * (slope - means[j]) : 0;
            }
            __syncthreads();
            add_products<WIDE>(key_sums, slopes, q, a.d, part);
            add_products<WIDE>(value_sums, weights, gy, a.e, part);
        }
    }
    if (key < a.s && a.gk) {
        write_row<WIDE>(vectors<T>(a.gk, a.k_strides, sample, head), key, key_sums, 1, a.d, part);
    }
    if (key < a.s && a.gv) {
        write_row<WIDE>(vectors<T>(a.gv, a.v_strides, sample, head), key, value_sums, 1, a.e, part);
    }
}

#define OF_WIDTH(WIDE, suffix, T)                                                                  \
    KERNEL(attention_##WIDE##_##suffix, Attention) { attention<WIDE, T>(a); }                      \
    KERNEL(attention_queries_##WIDE##_##suffix, Attention) { attention_queries<WIDE, T>(a); }      \
    KERNEL(attention_keys_##WIDE##_##suffix, Attention) { attention_keys<WIDE, T>(a); }
#define ENTRY(suffix, T)                                                                           \
    OF_WIDTH(64, suffix, T) OF_WIDTH(128, suffix, T) OF_WIDTH(256, suffix, T)
FOR_EACH_TYPE(ENTRY)
