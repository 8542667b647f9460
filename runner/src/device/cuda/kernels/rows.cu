// Rows, one a block: softmax, layer and RMS norm, losses. And sums over rows, column by column.

// To a row that is element `first` of a tensor, with its tail.
template <class T> struct ToTail {
    const Tail &tail;
    T *out;
    u64 first;
    bool wide;
    __device__ void run(u64 i, const Pack<T> &values) const {
        constexpr int W = width<T>;
        Run<T, W> run;
#pragma unroll
        for (int w = 0; w < W; w++) run.at[w] = values.at[w];
        if (wide) {
            *(Run<T, W> *)(out + first + i) = finish<T, W>(tail, (first + i) / W, run);
        } else {
#pragma unroll
            for (int w = 0; w < W; w++) one(i + w, run.at[w]);
        }
    }
    __device__ void one(u64 i, T value) const { out[first + i] = finish<T>(tail, first + i, value); }
};

// y = exp(x - max) / sum, or x - max - log sum
template <class T> DEVICE void softmax(const Rows &a) {
    FOR_EACH_ROW(row, a.rows) {
        const T *x[1] = {(const T *)a.x + row * a.n};
        ToRow<T> y = {(T *)a.out + row * a.n};
        Exponentials sum = row_exponentials(x[0], a.n);
        float most = sum.most, factor = 1 / sum.total, shift = most + logf(sum.total);
        if (a.logarithm) map_row(x, a.n, [=](const float(&v)[1], u64) { return v[0] - shift; }, y);
        else map_row(x, a.n, [=](const float(&v)[1], u64) { return expf(v[0] - most) * factor; }, y);
    }
}

// Of y and gy: gx = y (gy - sum y gy), or gy - exp(y) sum gy
template <class T> DEVICE void softmax_gradient(const Rows &a) {
    FOR_EACH_ROW(row, a.rows) {
        const T *from[2] = {(const T *)a.x + row * a.n, (const T *)a.gy + row * a.n};
        ToRow<T> gx = {(T *)a.out + row * a.n};
        bool logarithm = a.logarithm;
        float total = 0;
        each_of_row(from, a.n, [&](const float(&v)[2], u64) { total += logarithm ? v[1] : v[0] * v[1]; });
        total = block_sum(total);
        map_row(from, a.n, [=](const float(&v)[2], u64) {
            return logarithm ? v[1] - expf(v[0]) * total : v[0] * (v[1] - total);
        }, gx);
    }
}

// Mean (0 if rows are not centred) and 1 / standard deviation of a row, from what was saved.
DEVICE void row_statistics(const float *all, bool centred, u64 row, float &mean, float &scale) {
    const float *saved = all + row * (centred ? 2 : 1);
    mean = centred ? saved[0] : 0;
    scale = saved[centred ? 1 : 0];
}

template <class T> DEVICE void norm_rows(const NormRows &a) {
    FOR_EACH_ROW(row, a.rows) {
        T *x = (T *)a.x + row * a.n;
        float total = 0, squares = 0, mean = 0;
        // A thread comes back to the same columns.
        if (a.terms[0]) {
            const T *terms[2] = {(const T *)a.terms[0] + row * a.n, (const T *)a.terms[1] + row * a.n};
            map_row(terms, a.n, [](const float(&v)[2], u64) { return v[0] + v[1]; }, ToRow<T>{x});
        }
        const T *from[3] = {x, (const T *)a.weight, (const T *)a.bias}, *alone[1] = {x};
        if (a.centred) {
            each_of_row(alone, a.n, [&](const float(&v)[1], u64) { total += v[0]; });
            mean = block_sum(total) / a.n;
        }
        each_of_row(alone, a.n, [&](const float(&v)[1], u64) { squares += (v[0] - mean) * (v[0] - mean); });
        float scale = 1 / sqrtf(block_sum(squares) / a.n + a.eps);
        if (threadIdx.x == 0) {
            float *saved = (float *)a.saved + row * (a.centred ? 2 : 1);
            saved[0] = mean;
            saved[a.centred ? 1 : 0] = scale;
        }
        map_row(from, a.n, [=](const float(&v)[3], u64) { return (v[0] - mean) * scale * v[1] + v[2]; },
                ToRow<T>{(T *)a.out + row * a.n});
    }
}

template <class T> DEVICE void norm_rows_gradient(const NormRows &a) {
    bool wide = a.n % width<T> == 0 && is_aligned(a.out) && is_aligned(a.tail.own) &&
                is_aligned(a.tail.other) && is_aligned(a.tail.between);
    FOR_EACH_ROW(row, a.rows) {
        const T *from[3] = {(const T *)a.x + row * a.n, (const T *)a.gy + row * a.n, (const T *)a.weight};
        float mean, scale, along = 0, plain = 0;
        row_statistics((const float *)a.saved, a.centred, row, mean, scale);
        each_of_row(from, a.n, [&](const float(&v)[3], u64) {
            float g = v[1] * v[2];
            along += g * (v[0] - mean);
            plain += g;
        });
        along = block_sum(along) * scale / a.n;
        plain = a.centred ? block_sum(plain) / a.n : 0;
        map_row(from, a.n, [=](const float(&v)[3], u64) {
            return scale * (v[1] * v[2] - plain - (v[0] - mean) * scale * along);
        }, ToTail<T>{a.tail, (T *)a.out, row * a.n, wide});
    }
}

// As many of sixteen bytes' elements as there are, the others 0.
template <class T> DEVICE Pack<T> load_some(const T *from, u64 count) {
    Pack<T> run;
#pragma unroll
    for (int w = 0; w < width<T>; w++) run.at[w] = w < count ? from[w] : store<T>(0);
    return run;
}

// A thread's columns of each eighth row of a part; `columns` loads them. Nothing branches within, so that several
// rows are under way at a time.
template <bool WITH_X, bool WITH_FACTORS, class T, class F>
DEVICE void sum_rows_of(const ColumnSums &a, u64 column, u64 from, u64 until, float (&own)[2][width<T>], F columns) {
    // Counted, or every row would ask whether it is the last.
    u32 count = from < until ? (u32)((until - from + 7) / 8) : 0;
#pragma unroll 4
    for (u32 i = 0; i < count; i++) {
        u64 row = from + 8 * i, at = row * a.n + column;
        Pack<T> g = columns((const T *)a.gy + at), x = g;
        float mean = 0, scale = 0, factor = WITH_FACTORS ? load(((const T *)a.factors)[row * a.apart]) : 1;
        if (WITH_X) {
            x = columns((const T *)a.x + at);
            row_statistics((const float *)a.saved, a.centred, row, mean, scale);
        }
#pragma unroll
        for (int w = 0; w < width<T>; w++) {
            own[0][w] += load(g.at[w]) * factor;
            if (WITH_X) own[1][w] += load(g.at[w]) * ((load(x.at[w]) - mean) * scale);
        }
    }
}

template <class T, class F>
DEVICE void sum_rows(const ColumnSums &a, u64 column, u64 from, u64 until, float (&own)[2][width<T>], F columns) {
    if (a.x) sum_rows_of<true, false, T>(a, column, from, until, own, columns);
    else if (a.factors) sum_rows_of<false, true, T>(a, column, from, until, own, columns);
    else sum_rows_of<false, false, T>(a, column, from, until, own, columns);
}

// Sums over rows of gy (times factors of rows) and, with x, of gy x^: those of a part of the rows, sixteen
// bytes of a row a thread. A lone part is added to the gradients, several go to scratch: [part, which, column].
template <class T> DEVICE void column_sums(const ColumnSums &a) {
    constexpr u32 W = width<T>, ACROSS = 32 * W;
    __shared__ float sums[8][ACROSS];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u64 first = (u64)blockIdx.x * ACROSS, column = first + lane * W, left = a.n - column;
    u64 each = (a.rows + a.parts - 1) / a.parts, from = each * blockIdx.y, until = min(from + each, a.rows);
    float own[2][W] = {};
    bool aligned = a.n % W == 0 && is_aligned(a.gy) && is_aligned(a.x);
    from += warp;
    if (column + W <= a.n) {
        if (aligned) sum_rows<T>(a, column, from, until, own, [](const T *x) { return load_by<true>(x); });
        else sum_rows<T>(a, column, from, until, own, [](const T *x) { return load_by<false>(x); });
    } else if (column < a.n) {
        sum_rows<T>(a, column, from, until, own, [=](const T *x) { return load_some(x, left); });
    }
#pragma unroll
    for (u32 which = 0; which < 2; which++) {
        float *gradient = (float *)(which == 0 ? a.plain : a.along);
        if (!gradient) continue; // in all threads
        __syncthreads();
#pragma unroll
        for (u32 w = 0; w < W; w++) sums[warp][lane * W + w] = own[which][w];
        __syncthreads();
        for (u32 i = threadIdx.x; i < ACROSS && first + i < a.n; i += blockDim.x) {
            float total = 0;
            for (u32 w = 0; w < 8; w++) total += sums[w][i];
            if (a.parts > 1) ((float *)a.scratch)[(blockIdx.y * 2 + which) * a.n + first + i] = total;
            else gradient[first + i] += total;
        }
    }
}

// Adds up the parts of 32 columns, a warp some of them.
KERNEL(column_parts, ColumnSums) {
    __shared__ float sums[8][32];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, which = blockIdx.y;
    u64 column = (u64)blockIdx.x * 32 + lane;
    float *gradient = (float *)(which == 0 ? a.plain : a.along), total = 0;
    if (!gradient) return; // all threads
    u32 count = warp < a.parts && column < a.n ? (u32)((a.parts - warp + 7) / 8) : 0;
#pragma unroll 4
    for (u32 i = 0; i < count; i++) {
        u64 part = warp + 8 * i;
        total += ((const float *)a.scratch)[(part * 2 + which) * a.n + column];
    }
    sums[warp][lane] = total;
    __syncthreads();
    if (warp > 0 || column >= a.n) return;
    total = 0;
    for (u32 w = 0; w < 8; w++) total += sums[w][lane];
    gradient[column] += total;
}

#define PADDING 0xffffffffu

// Softmax cross entropy: the largest logit of each row and 1 / the sum of exponentials less that, and each row's loss
// and whether its prediction was right: whether no logit before the target's is as large as it, and none is larger.
template <class T> DEVICE void cross_entropy(const Loss &a) {
    FOR_EACH_ROW(row, a.rows) {
        const T *x[1] = {(const T *)a.x + row * a.n};
        Exponentials sum = row_exponentials(x[0], a.n);
        float most = sum.most;
        double all = 0;
        if (a.smoothing > 0) {
            each_of_row(x, a.n, [&](const float(&v)[1], u64) { all += v[0] - most; });
            all = block_sum(all);
        }
        u32 target = ((const u32 *)a.target)[row], before = 0;
        bool counts = target != PADDING;
        float own = counts ? load(x[0][target]) : 0;
        if (counts && own == most) {
            each_of_row(x, target, [&](const float(&v)[1], u64) { before += v[0] == most; });
            before = block_sum(before);
        }
        if (threadIdx.x > 0) continue;
        float *statistics = (float *)a.saved + 2 * row;
        statistics[0] = most;
        statistics[1] = 1 / sum.total;
        Tally tally = {0, 0};
        if (counts) {
            double expected = own - most, smoothing = a.smoothing;
            if (smoothing > 0) {
                expected = (1 - smoothing) * expected + smoothing * all / (double)a.n;
            }
            tally.loss = log((double)sum.total) - expected;
            // Among what is not a number the first is the prediction.
            tally.correct = own == most ? before == 0 : most != most && target == 0;
        }
        ((Tally *)a.scratch)[row] = tally;
    }
}

// Where both rows have whole sixteen bytes, counted from their first element; n if nowhere.
template <class T> DEVICE u64 packs_begin(const T *x, const T *g, u64 n) {
    u64 head = (16 - ((u64)g & 15)) % 16 / sizeof(T);
    return head < n && is_aligned(x + head) && is_aligned(g + head) ? head : n;
}

// May be written over the logits: a thread has read what it writes over.
template <class T> DEVICE void cross_entropy_gradient(const Loss &a) {
    constexpr int W = width<T>;
    float spread = a.smoothing / a.n, on_target = 1 - a.smoothing, scale = a.scale;
    FOR_EACH_ROW(row, a.rows) {
        const T *x = (const T *)a.x + row * a.n;
        T *g = (T *)a.out + row * a.n;
        u32 target = ((const u32 *)a.target)[row];
        float most = ((const float *)a.saved)[2 * row], factor = ((const float *)a.saved)[2 * row + 1];
        auto gradient = [=](T x, u64 i) {
            float value = expf(load(x) - most) * factor - (i == target ? on_target : 0) - spread;
            return store<T>(target == PADDING ? 0 : value * scale);
        };
        u64 head = packs_begin(x, g, a.n), packs = (a.n - head) / W;
        FOR_EACH_COLUMN(i, packs) {
            u64 at = head + i * W;
            Pack<T> run = *(const Pack<T> *)(x + at);
#pragma unroll
            for (int w = 0; w < W; w++) run.at[w] = gradient(run.at[w], at + w);
            *(Pack<T> *)(g + at) = run;
        }
        FOR_EACH_COLUMN(i, a.n - W * packs) {
            u64 at = i < head ? i : i + W * packs;
            g[at] = gradient(x[at], at);
        }
    }
}

// Binary cross entropy of logits; a row is a sample.
template <class T> DEVICE void sigmoid_entropy(const Loss &a) {
    FOR_EACH_ROW(row, a.rows) {
        const T *x = (const T *)a.x + row * a.n;
        const u32 *targets = (const u32 *)a.target + row * a.n;
        double loss = 0;
        u32 correct = 0;
        FOR_EACH_COLUMN(i, a.n) {
            if (targets[i] == PADDING) continue;
            float v = load(x[i]);
            loss += (v < 0 ? 0 : v) - (targets[i] == 1 ? v : 0) + log1pf(expf(-fabsf(v)));
            correct += (v > 0) == (targets[i] == 1);
        }
        loss = block_sum(loss);
        correct = block_sum(correct);
        if (threadIdx.x == 0) ((Tally *)a.scratch)[row] = {loss, correct};
    }
}

template <class T> DEVICE void sigmoid_entropy_gradient(const Loss &a) {
    FOR_EACH_ITEM(i, a.rows * a.n) {
        u32 target = ((const u32 *)a.target)[i];
        float v = load(((const T *)a.x)[i]), small = expf(-fabsf(v));
        float value = ((v < 0 ? small : 1) / (1 + small) - (target == 1 ? 1 : 0)) * a.scale;
        ((T *)a.out)[i] = store<T>(target == PADDING ? 0 : value);
    }
}

// A target whose first element has all bits set says that there is no sample.
DEVICE bool is_padding(float first) { return bits(first) == PADDING; }

template <class T> DEVICE void squared_error(const Loss &a) {
    FOR_EACH_ROW(row, a.rows) {
        const T *x = (const T *)a.x + row * a.n;
        const float *t = (const float *)a.target + row * a.n;
        bool padding = a.n > 0 && is_padding(t[0]);
        double loss = 0;
        FOR_EACH_COLUMN(i, padding ? 0 : a.n) {
            float difference = load(x[i]) - t[i];
            loss += difference * difference;
        }
        loss = block_sum(loss);
        if (threadIdx.x == 0) ((Tally *)a.scratch)[row] = {loss, 0};
    }
}

template <class T> DEVICE void squared_error_gradient(const Loss &a) {
    FOR_EACH_ROW(row, a.rows) {
        const T *x = (const T *)a.x + row * a.n;
        const float *t = (const float *)a.target + row * a.n;
        T *g = (T *)a.out + row * a.n;
        bool padding = is_padding(t[0]);
        FOR_EACH_COLUMN(i, a.n) {
            g[i] = store<T>(padding ? 0 : (load(x[i]) - t[i]) * a.scale);
        }
    }
}

// One block adds up what the rows said: the sum over `divisor`, and how many were right.
KERNEL(tally, Loss) {
    double loss = 0;
    u32 correct = 0;
    FOR_EACH_COLUMN(i, a.rows) {
        loss += ((const Tally *)a.scratch)[i].loss;
        correct += ((const Tally *)a.scratch)[i].correct;
    }
    loss = block_sum(loss);
    correct = block_sum(correct);
    if (threadIdx.x == 0) {
        ((float *)a.loss)[0] = (float)(loss / a.divisor);
        ((u32 *)a.loss)[1] = correct;
    }
}

#define ENTRY(suffix, T)                                                                           \
    KERNEL(softmax_##suffix, Rows) { softmax<T>(a); }                                              \
    KERNEL(softmax_gradient_##suffix, Rows) { softmax_gradient<T>(a); }                            \
    KERNEL(norm_rows_##suffix, NormRows) { norm_rows<T>(a); }                                      \
    KERNEL(norm_rows_gradient_##suffix, NormRows) { norm_rows_gradient<T>(a); }                    \
    KERNEL(column_sums_##suffix, ColumnSums) { column_sums<T>(a); }                                \
    LARGE_KERNEL(cross_entropy_##suffix, Loss) { cross_entropy<T>(a); }                            \
    KERNEL(cross_entropy_gradient_##suffix, Loss) { cross_entropy_gradient<T>(a); }                \
    KERNEL(sigmoid_entropy_##suffix, Loss) { sigmoid_entropy<T>(a); }                              \
    KERNEL(sigmoid_entropy_gradient_##suffix, Loss) { sigmoid_entropy_gradient<T>(a); }            \
    KERNEL(squared_error_##suffix, Loss) { squared_error<T>(a); }                                  \
    KERNEL(squared_error_gradient_##suffix, Loss) { squared_error_gradient<T>(a); }
FOR_EACH_TYPE(ENTRY)
