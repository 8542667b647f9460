// What kernels of rows share: each row is a block's.
//
// A thread takes sixteen bytes of a row at a time, counted from the row's first element and wherever that lies:
// so a row's sums have the same bits whichever row of a batch it is.

#define FOR_EACH_ROW(row, rows) for (u64 row = blockIdx.x; row < (rows); row += gridDim.x)
#define FOR_EACH_COLUMN(i, n) for (u64 i = threadIdx.x; i < (n); i += blockDim.x)

// Elements of a thread's access.
template <class T> constexpr int width = 16 / sizeof(T);

// Sixteen bytes of a row, of which is known whether it begins at such an access.
template <bool ALIGNED, class T> DEVICE Pack<T> load_by(const T *from) {
    return ALIGNED ? *(const Pack<T> *)from : load_run(from);
}

template <bool ALIGNED, int N, class T, class F, class Put>
DEVICE void map_row_by(const T *const (&from)[N], u64 n, F f, const Put &put) {
    constexpr int W = width<T>;
    for (u64 i = threadIdx.x; i < n / W; i += blockDim.x) {
        Pack<T> runs[N], result;
#pragma unroll
        for (int k = 0; k < N; k++) {
            if (from[k]) runs[k] = load_by<ALIGNED>(from[k] + i * W);
        }
#pragma unroll
        for (int w = 0; w < W; w++) {
            float values[N];
#pragma unroll
            for (int k = 0; k < N; k++) values[k] = from[k] ? load(runs[k].at[w]) : 0;
            result.at[w] = store<T>(f(values, i * W + w));
        }
        put.run(i * W, result);
    }
    for (u64 i = n / W * W + threadIdx.x; i < n; i += blockDim.x) {
        float values[N];
#pragma unroll
        for (int k = 0; k < N; k++) values[k] = from[k] ? load(from[k][i]) : 0;
        put.one(i, store<T>(f(values, i)));
    }
}

// Runs f(values, i) for a row of n elements of each of N tensors, 0 where there is none; and `put` for what it
// returns, sixteen bytes at a time or one by one.
template <int N, class T, class F, class Put>
DEVICE void map_row(const T *const (&from)[N], u64 n, F f, const Put &put) {
    bool aligned = true;
#pragma unroll
    for (int k = 0; k < N; k++) aligned = aligned && is_aligned(from[k]);
    if (aligned) map_row_by<true>(from, n, f, put);
    else map_row_by<false>(from, n, f, put);
}

// To a row, as it is.
template <class T> struct ToRow {
    T *out;
    __device__ void run(u64 i, const Pack<T> &values) const { store_run(out + i, values); }
    __device__ void one(u64 i, T value) const { out[i] = value; }
};

// To nowhere: f has summed up.
template <class T> struct ToNobody {
    __device__ void run(u64, const Pack<T> &) const {}
    __device__ void one(u64, T) const {}
};

template <int N, class T, class F> DEVICE void each_of_row(const T *const (&from)[N], u64 n, F f) {
    map_row(from, n, [&](const float(&v)[N], u64 i) { f(v, i); return 0.0f; }, ToNobody<T>());
}

// The largest so far and the sum of exp(x - largest), in one pass (Milakov and Gimelshein 2018).
struct Exponentials {
    float most, total;
};

template <int W> DEVICE void add_exponentials(Exponentials &sum, const float (&x)[W]) {
    float most = sum.most, more = 0;
#pragma unroll
    for (int w = 0; w < W; w++) most = Largest::of(most, x[w]);
    // Nothing but -inf so far adds nothing; what is no number goes on as none.
    float from = most == from_bits(0xff800000) ? 0 : most;
#pragma unroll
    for (int w = 0; w < W; w++) more += expf(x[w] - from);
    sum = {most, sum.total * expf(sum.most - from) + more};
}

template <bool ALIGNED, class T> DEVICE void add_runs(Exponentials &sum, const T *x, u64 runs) {
    constexpr int W = width<T>;
    for (u64 i = threadIdx.x; i < runs; i += blockDim.x) {
        Pack<T> run = load_by<ALIGNED>(x + i * W);
        float values[W];
#pragma unroll
        for (int w = 0; w < W; w++) values[w] = load(run.at[w]);
        add_exponentials(sum, values);
    }
}

template <class T> DEVICE Exponentials row_exponentials(const T *x, u64 n) {
    constexpr int W = width<T>;
    Exponentials own = {from_bits(0xff800000), 0};
    if (is_aligned(x)) add_runs<true>(own, x, n / W);
    else add_runs<false>(own, x, n / W);
    for (u64 i = n / W * W + threadIdx.x; i < n; i += blockDim.x) {
        float value[1] = {load(x[i])};
        add_exponentials(own, value);
    }
    float most = block_max(own.most);
    float total = own.most == most ? own.total : own.total * expf(own.most - most);
    return {most, block_sum(total)};
}
