// Rows, one a block: softmax, layer and RMS norm, losses. And sums over rows, column by column.

#define FOR_EACH_ROW(row, rows) for (u64 row = blockIdx.x; row < (rows); row += gridDim.x)
#define FOR_EACH_COLUMN(i, n) for (u64 i = threadIdx.x; i < (n); i += blockDim.x)

template <class T> DEVICE float row_max(const T *x, u64 n) {
    float most = from_bits(0xff800000);
    FOR_EACH_COLUMN(i, n) most = Largest::of(most, load(x[i]));
    return block_max(most);
}

template <class T> DEVICE float row_exp_sum(const T *x, u64 n, float most) {
    float total = 0;
    FOR_EACH_COLUMN(i, n) total += expf(load(x[i]) - most);
    return block_sum(total);
}

// y = exp(x - max) / sum, or x - max - log sum
template <class T> DEVICE void softmax(const Rows &a) {
    FOR_EACH_ROW(row, a.rows) {
        const T *x = (const T *)a.x + row * a.n;
        T *y = (T *)a.out + row * a.n;
        float most = row_max(x, a.n), total = row_exp_sum(x, a.n, most);
        if (a.logarithm) {
            float shift = most + logf(total);
            FOR_EACH_COLUMN(i, a.n) y[i] = store<T>(load(x[i]) - shift);
        } else {
            float factor = 1 / total;
            FOR_EACH_COLUMN(i, a.n) y[i] = store<T>(expf(load(x[i]) - most) * factor);
        }
    }
}

// Of y and gy: gx = y (gy - sum y gy), or gy - exp(y) sum gy
template <class T> DEVICE void softmax_gradient(const Rows &a) {
    FOR_EACH_ROW(row, a.rows) {
        const T *y = (const T *)a.x + row * a.n, *gy = (const T *)a.gy + row * a.n;
        T *gx = (T *)a.out + row * a.n;
        float total = 0;
        FOR_EACH_COLUMN(i, a.n) total += a.logarithm ? load(gy[i]) : load(y[i]) * load(gy[i]);
        total = block_sum(total);
        FOR_EACH_COLUMN(i, a.n) {
            float v = load(y[i]), g = load(gy[i]);
            gx[i] = store<T>(a.logarithm ? g - expf(v) * total : v * (g - total));
        }
    }
}

// Mean (0 if rows are not centred) and 1 / standard deviation of a row, from what was saved.
DEVICE void row_statistics(const NormRows &a, u64 row, float &mean, float &scale) {
    const float *saved = (const float *)a.saved + row * (a.centred ? 2 : 1);
    mean = a.centred ? saved[0] : 0;
    scale = saved[a.centred ? 1 : 0];
}

template <class T> DEVICE void norm_rows(const NormRows &a) {
    FOR_EACH_ROW(row, a.rows) {
        T *x = (T *)a.x + row * a.n;
        T *y = (T *)a.out + row * a.n;
        float total = 0, mean = 0;
        // A thread comes back to the same columns.
        if (a.terms[0]) {
            const T *first = (const T *)a.terms[0] + row * a.n, *second = (const T *)a.terms[1] + row * a.n;
            FOR_EACH_COLUMN(i, a.n) x[i] = store<T>(load(first[i]) + load(second[i]));
        }
        if (a.centred) {
            FOR_EACH_COLUMN(i, a.n) total += load(x[i]);
            mean = block_sum(total) / a.n;
        }
        float squares = 0;
        FOR_EACH_COLUMN(i, a.n) squares += (load(x[i]) - mean) * (load(x[i]) - mean);
        float scale = 1 / sqrtf(block_sum(squares) / a.n + a.eps);
        if (threadIdx.x == 0) {
            float *saved = (float *)a.saved + row * (a.centred ? 2 : 1);
            saved[0] = mean;
            saved[a.centred ? 1 : 0] = scale;
        }
        FOR_EACH_COLUMN(i, a.n) {
            float value = (load(x[i]) - mean) * scale * load(((const T *)a.weight)[i]);
            if (a.bias) value += load(((const T *)a.bias)[i]);
            y[i] = store<T>(value);
        }
    }
}

template <class T> DEVICE void norm_rows_gradient(const NormRows &a) {
    FOR_EACH_ROW(row, a.rows) {
        const T *x = (const T *)a.x + row * a.n, *gy = (const T *)a.gy + row * a.n;
        const T *weight = (const T *)a.weight;
        T *gx = (T *)a.out + row * a.n;
        float mean, scale, along = 0, plain = 0;
        row_statistics(a, row, mean, scale);
        FOR_EACH_COLUMN(i, a.n) {
            float g = load(gy[i]) * load(weight[i]);
            along += g * (load(x[i]) - mean);
            plain += g;
        }
        along = block_sum(along) * scale / a.n;
        plain = a.centred ? block_sum(plain) / a.n : 0;
        FOR_EACH_COLUMN(i, a.n) {
            float g = load(gy[i]) * load(weight[i]);
            T value = store<T>(scale * (g - plain - (load(x[i]) - mean) * scale * along));
            gx[i] = finish<T>(a.tail, row * a.n + i, value);
        }
    }
}

// Sums over rows of gy and, with x, of gy x^: those of a part of the rows, for 32 columns a block.
// A lone part is added to the gradients, several go to scratch: [part, which, column].
template <class T> DEVICE void column_sums(const ColumnSums &a) {
    __shared__ float sums[2][8][32];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u64 column = (u64)blockIdx.x * 32 + lane;
    u64 each = (a.rows + a.parts - 1) / a.parts, from = each * blockIdx.y;
    u64 until = min(from + each, a.rows);
    float along = 0, plain = 0;
    for (u64 row = from + warp; row < until && column < a.n; row += 8) {
        float g = load(((const T *)a.gy)[row * a.n + column]);
        plain += g;
        if (a.x) {
            const float *saved = (const float *)a.saved + row * (a.centred ? 2 : 1);
            float mean = a.centred ? saved[0] : 0, scale = saved[a.centred ? 1 : 0];
            along += g * ((load(((const T *)a.x)[row * a.n + column]) - mean) * scale);
        }
    }
    sums[0][warp][lane] = plain;
    sums[1][warp][lane] = along;
    __syncthreads();
    if (warp < 2 && column < a.n) {
        float total = 0;
        for (u32 w = 0; w < 8; w++) total += sums[warp][w][lane];
        float *gradient = (float *)(warp == 0 ? a.plain : a.along);
        if (a.parts > 1) ((float *)a.scratch)[(blockIdx.y * 2 + warp) * a.n + column] = total;
        else if (gradient) gradient[column] += total;
    }
}

KERNEL(column_parts, ColumnSums) {
    FOR_EACH_ITEM(i, 2 * a.n) {
        u64 which = i / a.n, column = i % a.n;
        float *gradient = (float *)(which == 0 ? a.plain : a.along);
        if (!gradient) continue;
        float total = 0;
        for (u64 part = 0; part < a.parts; part++) {
            total += ((const float *)a.scratch)[(part * 2 + which) * a.n + column];
        }
        gradient[column] += total;
    }
}

#define PADDING 0xffffffffu

// Softmax cross entropy: probabilities (f32), and each row's loss and whether its prediction was right.
template <class T> DEVICE void cross_entropy(const Loss &a) {
    __shared__ u32 prediction;
    FOR_EACH_ROW(row, a.rows) {
        const T *x = (const T *)a.x + row * a.n;
        float *p = (float *)a.out + row * a.n;
        float most = row_max(x, a.n), total = row_exp_sum(x, a.n, most), factor = 1 / total;
        // The first of the largest; 0 if there is none, as among what is not a number.
        u32 first = 0xffffffff;
        double all = 0;
        FOR_EACH_COLUMN(i, a.n) {
            float v = load(x[i]);
            if (v == most && (u32)i < first) first = (u32)i;
            if (a.smoothing > 0) all += v - most;
            p[i] = expf(v - most) * factor;
        }
        for (int lanes = 16; lanes > 0; lanes /= 2) {
            first = min(first, __shfl_xor_sync(0xffffffff, first, lanes));
        }
        u32 before = first;
        // Warps one after another: blocks have few.
        for (u32 warp = 0; warp < blockDim.x / 32; warp++) {
            __syncthreads();
            if (threadIdx.x == warp * 32) prediction = warp == 0 ? before : min(prediction, before);
        }
        if (a.smoothing > 0) all = block_sum(all);
        __syncthreads();
        if (threadIdx.x == 0) {
            u32 target = ((const u32 *)a.target)[row];
            Tally tally = {0, 0};
            if (target != PADDING) {
                double expected = load(x[target]) - most, smoothing = a.smoothing;
                if (smoothing > 0) {
                    expected = (1 - smoothing) * expected + smoothing * all / (double)a.n;
                }
                tally.loss = log((double)total) - expected;
                tally.correct = (prediction == 0xffffffff ? 0 : prediction) == target;
            }
            ((Tally *)a.scratch)[row] = tally;
        }
    }
}

template <class T> DEVICE void cross_entropy_gradient(const Loss &a) {
    float spread = a.smoothing / a.n, on_target = 1 - a.smoothing;
    FOR_EACH_ROW(row, a.rows) {
        const float *p = (const float *)a.x + row * a.n;
        T *g = (T *)a.out + row * a.n;
        u32 target = ((const u32 *)a.target)[row];
        FOR_EACH_COLUMN(i, a.n) {
            float value = p[i] - (i == target ? on_target : 0) - spread;
            g[i] = store<T>(target == PADDING ? 0 : value * a.scale);
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
            float v = load(x[i]), small = expf(-fabsf(v));
            ((float *)a.out)[row * a.n + i] = (v < 0 ? small : 1) / (1 + small);
            if (targets[i] == PADDING) continue;
            loss += (v < 0 ? 0 : v) - (targets[i] == 1 ? v : 0) + log1pf(small);
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
        float value = (((const float *)a.x)[i] - (target == 1 ? 1 : 0)) * a.scale;
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
    KERNEL(cross_entropy_##suffix, Loss) { cross_entropy<T>(a); }                                  \
    KERNEL(cross_entropy_gradient_##suffix, Loss) { cross_entropy_gradient<T>(a); }                \
    KERNEL(sigmoid_entropy_##suffix, Loss) { sigmoid_entropy<T>(a); }                              \
    KERNEL(sigmoid_entropy_gradient_##suffix, Loss) { sigmoid_entropy_gradient<T>(a); }            \
    KERNEL(squared_error_##suffix, Loss) { squared_error<T>(a); }                                  \
    KERNEL(squared_error_gradient_##suffix, Loss) { squared_error_gradient<T>(a); }
FOR_EACH_TYPE(ENTRY)
