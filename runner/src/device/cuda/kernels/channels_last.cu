// Images with channels innermost, [samples, rows, columns, channels]: norms of channels, pooling, biases.
//
// Of all positions of all samples, the lines of the tensor, a block has a part, and of the channels a strip of
// up to 32 runs. Threads side by side have the runs of a line, and go from line to line.

#define LANES 32u

// Lines that a thread asks for before it uses one, where a line's run is a whole access: memory is far away, and
// registers are what limits.
template <class T, int W, int LINES> struct Ahead { static constexpr int OF = W * sizeof(T) == 16 ? LINES : 1; };

// What a thread has of its block's part.
template <int W> struct Strip {
    u32 lanes, lines, lane, line; // of the block, and the thread's
    u32 runs, run;                // of a line, and the thread's
    u64 part, first, until;       // lines
    bool busy;                    // whether there is a run for the thread
};

template <int W> DEVICE Strip<W> strip_of(const NormChannels &a) {
    Strip<W> s;
    s.runs = (u32)(a.channels / W);
    s.lanes = min(s.runs, LANES);
    s.lines = blockDim.x / s.lanes;
    s.lane = threadIdx.x % s.lanes;
    s.line = threadIdx.x / s.lanes;
    u32 strips = (s.runs + s.lanes - 1) / s.lanes;
    s.run = blockIdx.x % strips * s.lanes + s.lane;
    s.part = blockIdx.x / strips;
    u64 all = a.samples * a.plane, each = (all + a.parts - 1) / a.parts;
    s.first = min(s.part * each, all);
    s.until = min(s.first + each, all);
    s.busy = s.line < s.lines && s.run < s.runs;
    return s;
}

// Calls use(index of a run, what `fetch` found of it) for each line of a thread. Several lines are asked for before
// one is used: memory is far away.
template <int AHEAD, int W, class Fetch, class Use>
DEVICE void over_lines(const Strip<W> &s, Fetch fetch, Use use) {
    if (!s.busy) return;
    u64 line = s.first + s.line, step = s.lines;
    for (; line + (AHEAD - 1) * step < s.until; line += AHEAD * step) {
        decltype(fetch(line)) found[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) found[k] = fetch((line + k * step) * s.runs + s.run);
#pragma unroll
        for (int k = 0; k < AHEAD; k++) use((line + k * step) * s.runs + s.run, found[k]);
    }
    for (; line < s.until; line += step) {
        u64 i = line * s.runs + s.run;
        use(i, fetch(i));
    }
}

// Lines whose terms are added in single precision, before their sum is added in double.
#define TOGETHER 4

// A thread's sums over its lines of what use(index, what `fetch` found, first, second) adds to two numbers of each
// channel. AHEAD lines are asked for before one is used.
template <int AHEAD, int W, class Fetch, class Use>
DEVICE void line_sums(const Strip<W> &s, double *first, double *second, Fetch fetch, Use use) {
#pragma unroll
    for (int w = 0; w < W; w++) first[w] = second[w] = 0;
    if (!s.busy) return;
    for (u64 line = s.first + s.line; line < s.until; line += (u64)TOGETHER * s.lines) {
        float one[W], other[W];
#pragma unroll
        for (int w = 0; w < W; w++) one[w] = other[w] = 0;
#pragma unroll
        for (int t = 0; t < TOGETHER; t += AHEAD) {
            decltype(fetch(line)) found[AHEAD];
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                u64 at = line + (u64)(t + k) * s.lines;
                if (at < s.until) found[k] = fetch(at * s.runs + s.run);
            }
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                u64 at = line + (u64)(t + k) * s.lines;
                if (at < s.until) use(at * s.runs + s.run, found[k], one, other);
            }
        }
#pragma unroll
        for (int w = 0; w < W; w++) first[w] += one[w], second[w] += other[w];
    }
}

// Sums over the block's lines, in their order: thread i < lanes x W has channel i of the strip's.
DEVICE double *of_threads() {
    __shared__ double all[256 * 8]; // one for all widths
    return all;
}
template <int W> DEVICE double over_block_lines(const Strip<W> &s, const double *values) {
    double *all = of_threads();
    __syncthreads(); // whoever still reads the last sums
#pragma unroll
    for (int w = 0; w < W; w++) all[threadIdx.x * W + w] = values[w];
    __syncthreads();
    double total = 0;
    if (threadIdx.x < s.lanes * W) {
        for (u32 line = 0; line < s.lines; line++) total += all[line * s.lanes * W + threadIdx.x];
    }
    return total;
}

// The channel of a thread that has sums; false for the others.
template <int W> DEVICE bool sums_of(const NormChannels &a, const Strip<W> &s, u64 &channel) {
    channel = (u64)(s.run - s.lane) * W + threadIdx.x;
    return threadIdx.x < s.lanes * W && channel < a.channels;
}

// Two numbers of each channel of each part, and behind them those of all parts.
struct alignas(16) Two {
    double at[2];
};
DEVICE Two &numbers_of(const NormChannels &a, u64 part, u64 channel) {
    return ((Two *)a.scratch)[part * a.channels + channel];
}

// A part's means and its sums of squared distances from them. Elements are taken as distances from the part's
// first line, so that squares do not cancel: one pass is enough.
template <class T, int W> DEVICE void last_channel_statistics(const NormChannels &a) {
    Strip<W> s = strip_of<W>(a);
    const Run<T, W> *x = (const Run<T, W> *)a.x;
    double first[W], second[W];
    Run<T, W> near;
    if (s.busy) near = x[s.first * s.runs + s.run];
    line_sums<Ahead<T, W, 4>::OF, W>(
        s, first, second, [&](u64 i) { return x[i]; },
        [&](u64, const Run<T, W> &run, float *total, float *squares) {
#pragma unroll
            for (int w = 0; w < W; w++) {
                float distance = load(run.at[w]) - load(near.at[w]);
                total[w] += distance;
                squares[w] += distance * distance;
            }
        });
    double total = over_block_lines<W>(s, first), squares = over_block_lines<W>(s, second);
    u64 channel;
    if (!sums_of<W>(a, s, channel)) return;
    double n = (double)(s.until - s.first);
    float near_by = load(((const T *)a.x)[s.first * a.channels + channel]);
    numbers_of(a, s.part, channel) = {near_by + total / n, squares - total * total / n};
}

// A warp a channel: calls visit(channel) with all lanes.
template <class F> DEVICE void each_channel(const NormChannels &a, F visit) {
    u64 warps = (u64)gridDim.x * (blockDim.x / 32);
    for (u64 channel = first_item() / 32; channel < a.channels; channel += warps) visit(channel);
}

// Calls use(part, its numbers) for the parts of a lane: several are asked for before one is used.
template <class F> DEVICE void each_part(const NormChannels &a, u64 channel, F use) {
    constexpr u32 PARTS = 8;
    for (u64 first = threadIdx.x % 32; first < a.parts; first += 32 * PARTS) {
        Two found[PARTS];
#pragma unroll
        for (u32 k = 0; k < PARTS; k++) {
            if (first + 32 * k < a.parts) found[k] = numbers_of(a, first + 32 * k, channel);
        }
#pragma unroll
        for (u32 k = 0; k < PARTS; k++) {
            if (first + 32 * k < a.parts) use(first + 32 * k, found[k]);
        }
    }
}

// Means and variances from those of parts (Chan, Golub and LeVeque).
KERNEL(last_statistics, NormChannels) {
    each_channel(a, [&](u64 channel) {
        u32 lane = threadIdx.x % 32;
        u64 all = a.samples * a.plane, each = (all + a.parts - 1) / a.parts;
        double count = (double)all, total = 0, squares = 0;
        auto lines = [&](u64 part) { return (double)(min((part + 1) * each, all) - min(part * each, all)); };
        each_part(a, channel, [&](u64 part, const Two &own) { total += own.at[0] * lines(part); });
        total = over_warp<Sum<double>>(total) / count;
        each_part(a, channel, [&](u64 part, const Two &own) {
            double distance = own.at[0] - total;
            squares += own.at[1] + distance * distance * lines(part);
        });
        squares = over_warp<Sum<double>>(squares);
        if (lane != 0) return;
        float mean = (float)total, variance = (float)(squares / count);
        if (a.update) track(a, channel, mean, variance);
        ((float *)a.saved)[channel] = mean;
        ((float *)a.saved)[a.channels + channel] = 1 / sqrtf(variance + a.eps);
    });
}

// Sums over channels from those of parts, which are added to the gradients of weights, where there are such.
KERNEL(last_sums, NormChannels) {
    each_channel(a, [&](u64 channel) {
        u32 lane = threadIdx.x % 32;
        double plain = 0, along = 0;
        each_part(a, channel, [&](u64, const Two &own) { plain += own.at[0], along += own.at[1]; });
        plain = over_warp<Sum<double>>(plain);
        along = over_warp<Sum<double>>(along);
        if (lane != 0) return;
        numbers_of(a, a.parts, channel) = {plain, along};
        if (a.weight_gradient) ((float *)a.weight_gradient)[channel] += (float)along;
        if (a.bias_gradient) ((float *)a.bias_gradient)[channel] += (float)plain;
    });
}

// Of statistics that are saved.
template <class T, int W> DEVICE void last_channel_norm(const NormChannels &a) {
    Strip<W> s = strip_of<W>(a);
    if (!s.busy) return;
    float mean[W], scale[W], shift[W];
#pragma unroll
    for (int w = 0; w < W; w++) {
        u64 channel = (u64)s.run * W + w;
        mean[w] = ((const float *)a.saved)[channel];
        scale[w] = ((const float *)a.saved)[a.channels + channel] * load(((const T *)a.weight)[channel]);
        shift[w] = load(((const T *)a.bias)[channel]);
    }
    struct Read {
        Run<T, W> x, other;
    };
    over_lines<Ahead<T, W, 2>::OF, W>(
        s, [&](u64 i) -> Read { return {((const Run<T, W> *)a.x)[i], other_of<T, W>(a.tail, i)}; },
        [&](u64 i, Read read) {
            Run<T, W> &run = read.x;
#pragma unroll
            for (int w = 0; w < W; w++) run.at[w] = store<T>((load(run.at[w]) - mean[w]) * scale[w] + shift[w]);
            ((Run<T, W> *)a.out)[i] = finish<T, W>(a.tail, i, run, read.other);
        });
}

// A part's sums of gy and, with x, of gy (x - mean) 1/std.
template <class T, int W> DEVICE void last_channel_gradient_sums(const NormChannels &a) {
    Strip<W> s = strip_of<W>(a);
    float mean[W];
#pragma unroll
    for (int w = 0; w < W; w++) mean[w] = a.x && s.busy ? ((const float *)a.saved)[(u64)s.run * W + w] : 0;
    double plain[W], along[W];
    struct Read {
        Parts<T, W> parts;
        Run<T, W> x;
    };
    line_sums<Ahead<T, W, 1>::OF, W>(
        s, plain, along,
        [&](u64 i) {
            Read read;
            read.parts = parts_of<T, W>(a, i);
            read.x = a.x ? ((const Run<T, W> *)a.x)[i] : read.parts.first;
            return read;
        },
        [&](u64 i, const Read &read, float *of_plain, float *of_along) {
            Run<T, W> gy = incoming<T, W>(a, i, read.parts);
#pragma unroll
            for (int w = 0; w < W; w++) {
                float g = load(gy.at[w]);
                of_plain[w] += g;
                of_along[w] += (load(read.x.at[w]) - mean[w]) * g;
            }
        });
    double total = over_block_lines<W>(s, plain), turned = over_block_lines<W>(s, along);
    u64 channel;
    if (!sums_of<W>(a, s, channel)) return;
    double of_x = a.x ? turned * ((const float *)a.saved)[a.channels + channel] : 0;
    numbers_of(a, s.part, channel) = {total, of_x};
}

// Scratch is where the sums of all parts are.
template <class T, int W> DEVICE void last_channel_norm_gradient(const NormChannels &a) {
    Strip<W> s = strip_of<W>(a);
    if (!s.busy) return;
    double count = (double)(a.samples * a.plane);
    float mean[W], offset[W], slope[W], factor[W];
#pragma unroll
    for (int w = 0; w < W; w++) {
        u64 channel = (u64)s.run * W + w;
        const double *sums = (const double *)a.scratch + channel * 2;
        float scale = ((const float *)a.saved)[a.channels + channel];
        mean[w] = ((const float *)a.saved)[channel];
        offset[w] = (float)(sums[0] / count);
        slope[w] = (float)(sums[1] / count) * scale;
        factor[w] = load(((const T *)a.weight)[channel]) * scale;
    }
    struct Read {
        Run<T, W> gy, x;
    };
    over_lines<Ahead<T, W, 4>::OF, W>(
        s, [&](u64 i) -> Read { return {((const Run<T, W> *)a.gy)[i], ((const Run<T, W> *)a.x)[i]}; },
        [&](u64 i, Read read) {
            Run<T, W> &x = read.x;
#pragma unroll
            for (int w = 0; w < W; w++) {
                float g = load(read.gy.at[w]), distance = load(x.at[w]) - mean[w];
                x.at[w] = store<T>(factor[w] * (g - offset[w] - distance * slope[w]));
            }
            ((Run<T, W> *)a.out)[i] = x;
        });
}

// Adds a bias to each channel of an image.
template <class T, int W> DEVICE void last_bias(const NormChannels &a) {
    Strip<W> s = strip_of<W>(a);
    if (!s.busy) return;
    Run<T, W> bias = ((const Run<T, W> *)a.bias)[s.run];
    over_lines<Ahead<T, W, 2>::OF, W>(
        s, [&](u64 i) { return ((const Run<T, W> *)a.out)[i]; },
        [&](u64 i, Run<T, W> run) {
#pragma unroll
            for (int w = 0; w < W; w++) run.at[w] = store<T>(load(run.at[w]) + load(bias.at[w]));
            ((Run<T, W> *)a.out)[i] = run;
        });
}

// Places of maxima in their planes, sixteen bytes at a time.
template <int W> struct alignas(W < 4 ? 4 * W : 16) Positions {
    u32 at[W];
};

// A run's place among the positions of its plane, and where its sample begins, in runs of another image of
// `other` positions. Numbers below 2^32 are divided as such, which takes a fraction of the time; all threads of
// a warp go one way but for once in 2^32 runs, and the kernels stand once.
template <int W> DEVICE u32 position_of(const Pool &a, u64 i, u32 own, u32 other, u64 &sample) {
    u32 runs = (u32)(a.channels / W), in_line, at;
    u64 number; // the sample's
    if (i >> 32 == 0) {
        u32 line = (u32)i / runs;
        in_line = (u32)i % runs, at = line % own, number = line / own;
    } else {
        u64 line = i / runs;
        in_line = (u32)(i % runs), at = (u32)(line % own), number = line / own;
    }
    sample = number * other * runs + in_line;
    return at;
}

template <class T, int W> DEVICE void last_max_pool(const Pool &a) {
    u32 outputs = a.out_size[0] * a.out_size[1], pixels = a.size[0] * a.size[1], runs = (u32)(a.channels / W);
    FOR_EACH_ITEM(i, a.planes / W * outputs) {
        u64 sample;
        u32 at = position_of<W>(a, i, outputs, pixels, sample), r0, r1, c0, c1;
        covered(a, 0, at / a.out_size[1], r0, r1);
        covered(a, 1, at % a.out_size[1], c0, c1);
        const Run<T, W> *x = (const Run<T, W> *)a.x + sample;
        float most[W];
        Positions<W> where;
#pragma unroll
        for (int w = 0; w < W; w++) most[w] = from_bits(0xff800000), where.at[w] = r0 * a.size[1] + c0;
        for (u32 r = r0; r < r1; r++) {
            for (u32 c = c0; c < c1; c++) {
                u32 pixel = r * a.size[1] + c;
                Run<T, W> run = x[(u64)pixel * runs];
#pragma unroll
                for (int w = 0; w < W; w++) {
                    float value = load(run.at[w]);
                    if (value > most[w] || is_nan(value)) most[w] = value, where.at[w] = pixel;
                }
            }
        }
        Run<T, W> out;
#pragma unroll
        for (int w = 0; w < W; w++) out.at[w] = store<T>(most[w]);
        ((Run<T, W> *)a.out)[i] = out;
        ((Positions<W> *)a.positions)[i] = where;
    }
}

template <class T, int W> DEVICE void last_average_pool(const Pool &a) {
    u32 outputs = a.out_size[0] * a.out_size[1], pixels = a.size[0] * a.size[1], runs = (u32)(a.channels / W);
    FOR_EACH_ITEM(i, a.planes / W * outputs) {
        u64 sample;
        u32 at = position_of<W>(a, i, outputs, pixels, sample), r0, r1, c0, c1;
        u32 height = covered(a, 0, at / a.out_size[1], r0, r1);
        u32 width = covered(a, 1, at % a.out_size[1], c0, c1);
        const Run<T, W> *x = (const Run<T, W> *)a.x + sample;
        float total[W];
#pragma unroll
        for (int w = 0; w < W; w++) total[w] = 0;
        for (u32 r = r0; r < r1; r++) {
            for (u32 c = c0; c < c1; c++) {
                Run<T, W> run = x[(u64)(r * a.size[1] + c) * runs];
#pragma unroll
                for (int w = 0; w < W; w++) total[w] += load(run.at[w]);
            }
        }
        u32 divisor = a.count_padding ? height * width : (r1 - r0) * (c1 - c0);
        Run<T, W> out;
#pragma unroll
        for (int w = 0; w < W; w++) out.at[w] = store<T>(total[w] / divisor);
        ((Run<T, W> *)a.out)[i] = out;
    }
}

// Each input gathers from the windows that cover it; windows come in their order.
template <class T, int W, bool MAX> DEVICE void last_pool_gradient(const Pool &a) {
    u32 outputs = a.out_size[0] * a.out_size[1], pixels = a.size[0] * a.size[1], runs = (u32)(a.channels / W);
    FOR_EACH_ITEM(i, a.planes / W * pixels) {
        u64 sample;
        u32 at = position_of<W>(a, i, pixels, outputs, sample), r0, r1, c0, c1;
        reaching(a, 0, at / a.size[1], r0, r1);
        reaching(a, 1, at % a.size[1], c0, c1);
        float total[W];
#pragma unroll
        for (int w = 0; w < W; w++) total[w] = 0;
        for (u32 r = r0; r < r1; r++) {
            for (u32 c = c0; c < c1; c++) {
                u64 window = sample + (u64)(r * a.out_size[1] + c) * runs;
                Run<T, W> g = ((const Run<T, W> *)a.x)[window];
                if (MAX) {
                    Positions<W> where = ((const Positions<W> *)a.positions)[window];
#pragma unroll
                    for (int w = 0; w < W; w++) {
                        if (where.at[w] == at) total[w] += load(g.at[w]);
                    }
                } else {
                    u32 y0, y1, x0, x1, height = covered(a, 0, r, y0, y1), width = covered(a, 1, c, x0, x1);
                    u32 divisor = a.count_padding ? height * width : (y1 - y0) * (x1 - x0);
#pragma unroll
                    for (int w = 0; w < W; w++) total[w] += load(g.at[w]) / divisor;
                }
            }
        }
        Run<T, W> out;
#pragma unroll
        for (int w = 0; w < W; w++) out.at[w] = store<T>(total[w]);
        ((Run<T, W> *)a.out)[i] = finish<T, W>(a.tail, i, out);
    }
}

template <class T, int W> DEVICE void last_max_pool_gradient(const Pool &a) {
    last_pool_gradient<T, W, true>(a);
}
template <class T, int W> DEVICE void last_average_pool_gradient(const Pool &a) {
    last_pool_gradient<T, W, false>(a);
}

// Samples, f32 plane by plane, as images with channels innermost: a thread a position, for few channels.
template <class T> DEVICE void last_samples(const Relayout &a) {
    FOR_EACH_ITEM(i, a.samples * a.plane) {
        const float *x = (const float *)a.x + i / a.plane * a.channels * a.plane + i % a.plane;
        T *out = (T *)a.out + i * a.channels;
        for (u64 c = 0; c < a.channels; c++) out[c] = store<T>(x[c * a.plane]);
    }
}

#define ENTRY(suffix, T)                                                                           \
    KERNEL(last_channel_statistics_##suffix, NormChannels) { BY_WIDTH(last_channel_statistics, T); } \
    KERNEL(last_channel_norm_##suffix, NormChannels) { BY_WIDTH(last_channel_norm, T); }           \
    KERNEL(last_channel_gradient_sums_##suffix, NormChannels) { BY_WIDTH(last_channel_gradient_sums, T); } \
    KERNEL(last_channel_norm_gradient_##suffix, NormChannels) { BY_WIDTH(last_channel_norm_gradient, T); } \
    KERNEL(last_bias_##suffix, NormChannels) { BY_WIDTH(last_bias, T); }                           \
    KERNEL(last_max_pool_##suffix, Pool) { BY_WIDTH(last_max_pool, T); }                           \
    KERNEL(last_max_pool_gradient_##suffix, Pool) { BY_WIDTH(last_max_pool_gradient, T); }         \
    KERNEL(last_average_pool_##suffix, Pool) { BY_WIDTH(last_average_pool, T); }                   \
    KERNEL(last_average_pool_gradient_##suffix, Pool) { BY_WIDTH(last_average_pool_gradient, T); } \
    KERNEL(last_samples_##suffix, Relayout) { last_samples<T>(a); }
FOR_EACH_TYPE(ENTRY)
