// Images with channels innermost, [samples, rows, columns, channels]: norms of channels, pooling, biases.
//
// Of all positions of all samples, the lines of the tensor, a block has a part, and of the channels a strip of
// up to 32 runs. Threads side by side have the runs of a line, and go from line to line.

#define LANES 32u

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

DEVICE u64 lines_of(const NormChannels &a, u64 part) {
    u64 all = a.samples * a.plane, each = (all + a.parts - 1) / a.parts;
    return min((part + 1) * each, all) - min(part * each, all);
}

// Calls visit(the run's index in the tensor) for each line of a thread.
template <int W, class F> DEVICE void over_lines(const Strip<W> &s, F visit) {
    if (!s.busy) return;
    for (u64 line = s.first + s.line; line < s.until; line += s.lines) visit(line * s.runs + s.run);
}

// Lines whose terms are added in single precision, before their sum is added in double.
#define TOGETHER 4

// A thread's sums over its lines of what visit(index, first, second) adds to two numbers of each channel.
template <int W, class F>
DEVICE void line_sums(const Strip<W> &s, double *first, double *second, F visit) {
#pragma unroll
    for (int w = 0; w < W; w++) first[w] = second[w] = 0;
    if (!s.busy) return;
    for (u64 line = s.first + s.line; line < s.until; line += (u64)TOGETHER * s.lines) {
        float one[W], other[W];
#pragma unroll
        for (int w = 0; w < W; w++) one[w] = other[w] = 0;
#pragma unroll
        for (int t = 0; t < TOGETHER; t++) {
            u64 at = line + (u64)t * s.lines;
            if (at < s.until) visit(at * s.runs + s.run, one, other);
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
DEVICE double *numbers_of(const NormChannels &a, u64 part, u64 channel) {
    return (double *)a.scratch + (part * a.channels + channel) * 2;
}

// A part's means and its sums of squared distances from them. Elements are taken as distances from the part's
// first line, so that squares do not cancel: one pass is enough.
template <class T, int W> DEVICE void last_channel_statistics(const NormChannels &a) {
    Strip<W> s = strip_of<W>(a);
    const Run<T, W> *x = (const Run<T, W> *)a.x;
    double first[W], second[W];
    Run<T, W> near;
    if (s.busy) near = x[s.first * s.runs + s.run];
    line_sums<W>(s, first, second, [&](u64 i, float *total, float *squares) {
        Run<T, W> run = x[i];
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
    double *own = numbers_of(a, s.part, channel);
    own[0] = load(((const T *)a.x)[s.first * a.channels + channel]) + total / n;
    own[1] = squares - total * total / n;
}

// A warp a channel: calls visit(channel) with all lanes.
template <class F> DEVICE void each_channel(const NormChannels &a, F visit) {
    u64 warps = (u64)gridDim.x * (blockDim.x / 32);
    for (u64 channel = first_item() / 32; channel < a.channels; channel += warps) visit(channel);
}

// Means and variances from those of parts (Chan, Golub and LeVeque).
KERNEL(last_statistics, NormChannels) {
    each_channel(a, [&](u64 channel) {
        u32 lane = threadIdx.x % 32;
        double count = (double)(a.samples * a.plane), total = 0, squares = 0;
#pragma unroll 4
        for (u64 part = lane; part < a.parts; part += 32) {
            total += numbers_of(a, part, channel)[0] * (double)lines_of(a, part);
        }
        total = over_warp<Sum<double>>(total) / count;
#pragma unroll 4
        for (u64 part = lane; part < a.parts; part += 32) {
            const double *own = numbers_of(a, part, channel);
            double distance = own[0] - total;
            squares += own[1] + distance * distance * (double)lines_of(a, part);
        }
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
#pragma unroll 4
        for (u64 part = lane; part < a.parts; part += 32) {
            const double *own = numbers_of(a, part, channel);
            plain += own[0], along += own[1];
        }
        plain = over_warp<Sum<double>>(plain);
        along = over_warp<Sum<double>>(along);
        if (lane != 0) return;
        double *all = numbers_of(a, a.parts, channel);
        all[0] = plain;
        all[1] = along;
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
    over_lines<W>(s, [&](u64 i) {
        Run<T, W> run = ((const Run<T, W> *)a.x)[i];
#pragma unroll
        for (int w = 0; w < W; w++) run.at[w] = store<T>((load(run.at[w]) - mean[w]) * scale[w] + shift[w]);
        ((Run<T, W> *)a.out)[i] = finish<T, W>(a.tail, i, run);
    });
}

// A part's sums of gy and, with x, of gy (x - mean) 1/std.
template <class T, int W> DEVICE void last_channel_gradient_sums(const NormChannels &a) {
    Strip<W> s = strip_of<W>(a);
    float mean[W];
#pragma unroll
    for (int w = 0; w < W; w++) mean[w] = a.x && s.busy ? ((const float *)a.saved)[(u64)s.run * W + w] : 0;
    double plain[W], along[W];
    line_sums<W>(s, plain, along, [&](u64 i, float *of_plain, float *of_along) {
        Run<T, W> gy = incoming<T, W>(a, i), x = gy;
        if (a.x) x = ((const Run<T, W> *)a.x)[i];
#pragma unroll
        for (int w = 0; w < W; w++) {
            float g = load(gy.at[w]);
            of_plain[w] += g;
            of_along[w] += (load(x.at[w]) - mean[w]) * g;
        }
    });
    double total = over_block_lines<W>(s, plain), turned = over_block_lines<W>(s, along);
    u64 channel;
    if (!sums_of<W>(a, s, channel)) return;
    double *own = numbers_of(a, s.part, channel);
    own[0] = total;
    own[1] = a.x ? turned * ((const float *)a.saved)[a.channels + channel] : 0;
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
    over_lines<W>(s, [&](u64 i) {
        Run<T, W> gy = ((const Run<T, W> *)a.gy)[i], x = ((const Run<T, W> *)a.x)[i];
#pragma unroll
        for (int w = 0; w < W; w++) {
            float g = load(gy.at[w]), distance = load(x.at[w]) - mean[w];
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
    over_lines<W>(s, [&](u64 i) {
        Run<T, W> run = ((const Run<T, W> *)a.out)[i];
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
