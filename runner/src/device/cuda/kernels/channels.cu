// Images, [samples, channels, rows, columns]: norms of channels, pooling, larger images.

// A block has a part of a channel: the parts of a channel are neighbours, and as many runs long as the
// others, but for the last.
DEVICE u64 channel_of(const NormChannels &a) { return blockIdx.x / a.parts; }
DEVICE u64 runs_before(const NormChannels &a, u64 part) {
    u64 runs = a.samples * a.plane / a.width;
    return min((runs + a.parts - 1) / a.parts * part, runs);
}
DEVICE double part_size(const NormChannels &a, u64 part) {
    return (double)((runs_before(a, part + 1) - runs_before(a, part)) * a.width);
}

// Calls visit(run's index in the tensor) for the block's part, shared by its threads.
template <int W, class F> DEVICE void over_part(const NormChannels &a, F visit) {
    u64 channel = channel_of(a), part = blockIdx.x % a.parts, plane = a.plane / W;
    u64 first = runs_before(a, part) + threadIdx.x, until = runs_before(a, part + 1);
    u64 sample = first / plane, at = first % plane;
    // A step of all threads is so many samples and so many runs; the loop then needs no division.
    u64 samples = blockDim.x / plane, further = blockDim.x % plane;
    for (u64 i = first; i < until; i += blockDim.x) {
        visit((sample * a.channels + channel) * plane + at);
        sample += samples;
        at += further;
        if (at >= plane) at -= plane, sample++;
    }
}

// What a part gives: two numbers, for `channel_norm` and its like to add up in the order of parts.
DEVICE double *part_of(const NormChannels &a, u64 channel, u64 part) {
    return (double *)a.scratch + (channel * a.parts + part) * 2;
}
DEVICE void tell(const NormChannels &a, double first, double second) {
    if (threadIdx.x != 0) return;
    double *own = part_of(a, channel_of(a), blockIdx.x % a.parts);
    own[0] = first;
    own[1] = second;
}

// A part's mean and its sum of squared distances from it. Elements are taken as distances from the
// part's first one, so that squares do not cancel: one pass is enough.
template <class T, int W> DEVICE void channel_statistics(const NormChannels &a) {
    u64 first = runs_before(a, blockIdx.x % a.parts) * W;
    const T *x = (const T *)a.x;
    float near = load(x[(first / a.plane * a.channels + channel_of(a)) * a.plane + first % a.plane]);
    double total = 0, squares = 0, n = part_size(a, blockIdx.x % a.parts);
    over_part<W>(a, [&](u64 i) {
        Run<T, W> run = ((const Run<T, W> *)x)[i];
#pragma unroll
        for (int w = 0; w < W; w++) {
            double distance = (double)load(run.at[w]) - near;
            total += distance;
            squares += distance * distance;
        }
    });
    total = block_sum(total);
    squares = block_sum(squares);
    tell(a, near + total / n, squares - total * total / n);
}

// A channel's mean and variance from its parts (Chan, Golub and LeVeque).
DEVICE void gather(const NormChannels &a, u64 channel, float &mean, float &variance) {
    double count = (double)(a.samples * a.plane), total = 0, squares = 0;
    for (u64 part = 0; part < a.parts; part++) {
        total += part_of(a, channel, part)[0] * part_size(a, part);
    }
    total /= count;
    for (u64 part = 0; part < a.parts; part++) {
        const double *own = part_of(a, channel, part);
        double distance = own[0] - total;
        squares += own[1] + distance * distance * part_size(a, part);
    }
    mean = (float)total;
    variance = (float)(squares / count);
}

// The running statistics as those of this call.
KERNEL(running_statistics, NormChannels) {
    FOR_EACH_ITEM(i, a.channels) {
        ((float *)a.saved)[i] = ((const float *)a.running_mean)[i];
        ((float *)a.saved)[a.channels + i] = 1 / sqrtf(((const float *)a.running_variance)[i] + a.eps);
    }
}

// Of the statistics of the parts or, where there are none, of those that are saved.
template <class T, int W> DEVICE void channel_norm(const NormChannels &a) {
    u64 channel = channel_of(a);
    float *saved = (float *)a.saved, mean, scale;
    if (a.scratch) {
        float variance;
        gather(a, channel, mean, variance);
        scale = 1 / sqrtf(variance + a.eps);
        if (blockIdx.x % a.parts == 0 && threadIdx.x == 0) {
            if (a.update) track(a, channel, mean, variance);
            saved[channel] = mean;
            saved[a.channels + channel] = scale;
        }
    } else {
        mean = saved[channel];
        scale = saved[a.channels + channel];
    }
    scale *= load(((const T *)a.weight)[channel]);
    float shift = load(((const T *)a.bias)[channel]);
    over_part<W>(a, [&](u64 i) {
        Run<T, W> run = ((const Run<T, W> *)a.x)[i];
#pragma unroll
        for (int w = 0; w < W; w++) run.at[w] = store<T>((load(run.at[w]) - mean) * scale + shift);
        ((Run<T, W> *)a.out)[i] = finish<T, W>(a.tail, i, run);
    });
}

// A part's sums of gy and, with x, of gy (x - mean) 1/std.
template <class T, int W> DEVICE void channel_gradient_sums(const NormChannels &a) {
    u64 channel = channel_of(a);
    float mean = a.x ? ((const float *)a.saved)[channel] : 0;
    float scale = a.x ? ((const float *)a.saved)[a.channels + channel] : 0;
    double plain = 0, along = 0;
    over_part<W>(a, [&](u64 i) {
        Run<T, W> gy = incoming<T, W>(a, i, parts_of<T, W>(a, i)), x = gy;
        if (a.x) x = ((const Run<T, W> *)a.x)[i];
#pragma unroll
        for (int w = 0; w < W; w++) {
            float g = load(gy.at[w]);
            plain += g;
            along += (load(x.at[w]) - mean) * g;
        }
    });
    plain = block_sum(plain);
    along = block_sum(along);
    tell(a, plain, along * scale);
}

// The sums over a channel from those of its parts.
DEVICE void gather_sums(const NormChannels &a, u64 channel, double &plain, double &along) {
    plain = 0, along = 0;
    for (u64 part = 0; part < a.parts; part++) {
        plain += part_of(a, channel, part)[0];
        along += part_of(a, channel, part)[1];
    }
}

template <class T, int W> DEVICE void channel_norm_gradient(const NormChannels &a) {
    u64 channel = channel_of(a);
    double plain, along, count = (double)(a.samples * a.plane);
    gather_sums(a, channel, plain, along);
    float mean = ((const float *)a.saved)[channel], scale = ((const float *)a.saved)[a.channels + channel];
    float offset = (float)(plain / count), slope = (float)(along / count) * scale;
    float factor = load(((const T *)a.weight)[channel]) * scale;
    over_part<W>(a, [&](u64 i) {
        Run<T, W> gy = ((const Run<T, W> *)a.gy)[i], x = ((const Run<T, W> *)a.x)[i];
#pragma unroll
        for (int w = 0; w < W; w++) {
            float g = load(gy.at[w]), distance = load(x.at[w]) - mean;
            x.at[w] = store<T>(factor * (g - offset - distance * slope));
        }
        ((Run<T, W> *)a.out)[i] = x;
    });
}

// Adds the sums to the gradients: a norm's scale and shift, or a convolution's bias alone.
KERNEL(channel_weights, NormChannels) {
    FOR_EACH_ITEM(channel, a.channels) {
        double plain, along;
        gather_sums(a, channel, plain, along);
        if (a.weight_gradient) ((float *)a.weight_gradient)[channel] += (float)along;
        ((float *)a.bias_gradient)[channel] += (float)plain;
    }
}

// A group is a run of `together` channels of one sample, a block's.
template <class T> DEVICE float of_channel(const void *parameter, u64 channel, float otherwise) {
    return parameter ? load(((const T *)parameter)[channel]) : otherwise;
}

template <class T> DEVICE void group_norm(const NormGroups &a) {
    u64 n = a.together * a.plane;
    for (u64 group = blockIdx.x; group < a.groups; group += gridDim.x) {
        const T *x = (const T *)a.x + group * n;
        double total = 0, squares = 0;
        for (u64 i = threadIdx.x; i < n; i += blockDim.x) total += load(x[i]);
        float mean = (float)(block_sum(total) / n);
        for (u64 i = threadIdx.x; i < n; i += blockDim.x) {
            float distance = load(x[i]) - mean;
            squares += distance * distance;
        }
        float scale = 1 / sqrtf((float)(block_sum(squares) / n) + a.eps);
        if (threadIdx.x == 0) {
            ((float *)a.saved)[2 * group] = mean;
            ((float *)a.saved)[2 * group + 1] = scale;
        }
        for (u64 i = threadIdx.x; i < n; i += blockDim.x) {
            u64 channel = (group * a.together + i / a.plane) % a.channels;
            float y = (load(x[i]) - mean) * (scale * of_channel<T>(a.weight, channel, 1));
            ((T *)a.out)[group * n + i] = store<T>(y + of_channel<T>(a.bias, channel, 0));
        }
    }
}

template <class T> DEVICE void group_norm_gradient(const NormGroups &a) {
    u64 n = a.together * a.plane;
    for (u64 group = blockIdx.x; group < a.groups; group += gridDim.x) {
        const T *x = (const T *)a.x + group * n, *gy = (const T *)a.gy + group * n;
        float mean = ((const float *)a.saved)[2 * group], scale = ((const float *)a.saved)[2 * group + 1];
        double plain = 0, along = 0;
        for (u64 i = threadIdx.x; i < n; i += blockDim.x) {
            u64 channel = (group * a.together + i / a.plane) % a.channels;
            float g = load(gy[i]) * of_channel<T>(a.weight, channel, 1);
            plain += g;
            along += g * (load(x[i]) - mean);
        }
        float offset = scale * (float)(block_sum(plain) / n);
        float slope = scale * scale * scale * (float)(block_sum(along) / n);
        for (u64 i = threadIdx.x; i < n; i += blockDim.x) {
            u64 channel = (group * a.together + i / a.plane) % a.channels;
            float g = load(gy[i]) * (scale * of_channel<T>(a.weight, channel, 1));
            ((T *)a.out)[group * n + i] = store<T>(g - (load(x[i]) - mean) * slope - offset);
        }
    }
}

// A block a channel, sample after sample.
template <class T> DEVICE void group_norm_weights(const NormGroups &a) {
    u64 channel = blockIdx.x, samples = a.groups * a.together / a.channels;
    double plain = 0, along = 0;
    for (u64 i = threadIdx.x; i < samples * a.plane; i += blockDim.x) {
        u64 row = i / a.plane * a.channels + channel, group = row / a.together;
        u64 at = row * a.plane + i % a.plane;
        float mean = ((const float *)a.saved)[2 * group], scale = ((const float *)a.saved)[2 * group + 1];
        float g = load(((const T *)a.gy)[at]);
        plain += g;
        along += g * (load(((const T *)a.x)[at]) - mean) * scale;
    }
    along = block_sum(along);
    plain = block_sum(plain);
    if (threadIdx.x == 0) {
        ((float *)a.weight_gradient)[channel] += (float)along;
        ((float *)a.bias_gradient)[channel] += (float)plain;
    }
}

// D^-beta; the usual power by square roots.
DEVICE float response(float d, float beta) {
    if (beta == 0.75f) return 1 / (sqrtf(d) * sqrtf(sqrtf(d)));
    return powf(d, -beta);
}

template <class T> DEVICE void local_response(const LocalResponse &a) {
    FOR_EACH_ITEM(i, a.count) {
        i64 channel = (i64)(i / a.plane % a.channels);
        i64 first = max(channel - (i64)(a.size / 2), (i64)0);
        i64 until = min(channel + (i64)((a.size + 1) / 2), (i64)a.channels);
        float d = a.k;
        for (i64 c = first; c < until; c++) {
            float x = load(((const T *)a.x)[i + (c - channel) * (i64)a.plane]);
            d += a.share * x * x;
        }
        ((float *)a.saved)[i] = d;
        ((T *)a.out)[i] = store<T>(load(((const T *)a.x)[i]) * response(d, a.beta));
    }
}

template <class T> DEVICE void local_response_gradient(const LocalResponse &a) {
    FOR_EACH_ITEM(i, a.count) {
        i64 channel = (i64)(i / a.plane % a.channels);
        i64 first = max(channel + 1 - (i64)((a.size + 1) / 2), (i64)0);
        i64 until = min(channel + (i64)(a.size / 2) + 1, (i64)a.channels);
        float total = 0;
        for (i64 c = first; c < until; c++) {
            u64 at = i + (c - channel) * (i64)a.plane;
            float d = ((const float *)a.saved)[at];
            total += load(((const T *)a.gy)[at]) * load(((const T *)a.x)[at]) * response(d, a.beta) / d;
        }
        float direct = load(((const T *)a.gy)[i]) * response(((const float *)a.saved)[i], a.beta);
        float x = load(((const T *)a.x)[i]);
        ((T *)a.out)[i] = store<T>(direct - 2 * a.share * a.beta * x * total);
    }
}

template <class T> DEVICE void max_pool(const Pool &a) {
    u64 outputs = (u64)a.out_size[0] * a.out_size[1], pixels = (u64)a.size[0] * a.size[1];
    FOR_EACH_ITEM(i, a.planes * outputs) {
        u32 r0, r1, c0, c1;
        covered(a, 0, (u32)(i % outputs / a.out_size[1]), r0, r1);
        covered(a, 1, (u32)(i % a.out_size[1]), c0, c1);
        const T *x = (const T *)a.x + i / outputs * pixels;
        float most = from_bits(0xff800000);
        u32 where = r0 * a.size[1] + c0;
        for (u32 r = r0; r < r1; r++) {
            for (u32 c = c0; c < c1; c++) {
                float value = load(x[r * a.size[1] + c]);
                if (value > most || is_nan(value)) most = value, where = r * a.size[1] + c;
            }
        }
        ((T *)a.out)[i] = store<T>(most);
        ((u32 *)a.positions)[i] = where;
    }
}

// Each input gathers from the windows that cover it; windows come in their order.
template <class T, bool MAX> DEVICE void pool_gradient(const Pool &a) {
    u64 outputs = (u64)a.out_size[0] * a.out_size[1], pixels = (u64)a.size[0] * a.size[1];
    FOR_EACH_ITEM(i, a.planes * pixels) {
        u32 at = (u32)(i % pixels), r0, r1, c0, c1;
        reaching(a, 0, at / a.size[1], r0, r1);
        reaching(a, 1, at % a.size[1], c0, c1);
        float total = 0;
        for (u32 r = r0; r < r1; r++) {
            for (u32 c = c0; c < c1; c++) {
                u64 window = i / pixels * outputs + (u64)r * a.out_size[1] + c;
                float g = load(((const T *)a.x)[window]);
                if (MAX) {
                    if (((const u32 *)a.positions)[window] == at) total += g;
                } else {
                    u32 y0, y1, x0, x1, height = covered(a, 0, r, y0, y1), width = covered(a, 1, c, x0, x1);
                    total += g / (a.count_padding ? height * width : (y1 - y0) * (x1 - x0));
                }
            }
        }
        ((T *)a.out)[i] = finish<T>(a.tail, i, store<T>(total));
    }
}

template <class T> DEVICE void average_pool(const Pool &a) {
    u64 outputs = (u64)a.out_size[0] * a.out_size[1], pixels = (u64)a.size[0] * a.size[1];
    FOR_EACH_ITEM(i, a.planes * outputs) {
        u32 r0, r1, c0, c1;
        u32 height = covered(a, 0, (u32)(i % outputs / a.out_size[1]), r0, r1);
        u32 width = covered(a, 1, (u32)(i % a.out_size[1]), c0, c1);
        const T *x = (const T *)a.x + i / outputs * pixels;
        float total = 0;
        for (u32 r = r0; r < r1; r++) {
            for (u32 c = c0; c < c1; c++) total += load(x[r * a.size[1] + c]);
        }
        ((T *)a.out)[i] = store<T>(total / (a.count_padding ? height * width : (r1 - r0) * (c1 - c0)));
    }
}

// The two pixels between which one of the larger image lies, and the weight of the second.
DEVICE float between(const Bilinear &a, int axis, u32 at, u32 &first, u32 &second) {
    u32 last = a.size[axis] - 1;
    float centre = ((float)at + 0.5f) / a.factor - 0.5f, low = centre < 0 ? 0 : centre;
    first = min((u32)low, last);
    second = min(first + 1, last);
    return min(low - first, 1.0f);
}

template <class T> DEVICE void bilinear(const Bilinear &a) {
    u64 wide = (u64)a.size[1] * a.factor, large = wide * a.size[0] * a.factor;
    FOR_EACH_ITEM(i, a.planes * large) {
        u32 above, below, left, right;
        float down = between(a, 0, (u32)(i % large / wide), above, below);
        float across = between(a, 1, (u32)(i % wide), left, right);
        const T *x = (const T *)a.x + i / large * a.size[0] * a.size[1];
        const T *upper = x + (u64)above * a.size[1], *lower = x + (u64)below * a.size[1];
        float u = load(upper[left]) * (1 - across) + load(upper[right]) * across;
        float l = load(lower[left]) * (1 - across) + load(lower[right]) * across;
        ((T *)a.out)[i] = store<T>(u * (1 - down) + l * down);
    }
}

// A pixel's share of one of the larger image.
DEVICE float share(const Bilinear &a, int axis, u32 at, u32 pixel) {
    u32 first, second;
    float weight = between(a, axis, at, first, second);
    return (first == pixel ? 1 - weight : 0) + (second == pixel ? weight : 0);
}

template <class T> DEVICE void bilinear_gradient(const Bilinear &a) {
    u64 wide = (u64)a.size[1] * a.factor, large = wide * a.size[0] * a.factor;
    u64 pixels = (u64)a.size[0] * a.size[1];
    FOR_EACH_ITEM(i, a.planes * pixels) {
        u32 row = (u32)(i % pixels / a.size[1]), column = (u32)(i % a.size[1]), f = a.factor;
        u32 r0 = row == 0 ? 0 : (row - 1) * f, r1 = min((row + 2) * f, a.size[0] * f);
        u32 c0 = column == 0 ? 0 : (column - 1) * f, c1 = min((column + 2) * f, a.size[1] * f);
        float total = 0;
        for (u32 r = r0; r < r1; r++) {
            float down = share(a, 0, r, row);
            for (u32 c = c0; c < c1; c++) {
                total += load(((const T *)a.x)[i / pixels * large + r * wide + c]) * down * share(a, 1, c, column);
            }
        }
        ((T *)a.out)[i] = store<T>(total);
    }
}

#define ENTRY(suffix, T)                                                                           \
    KERNEL(channel_statistics_##suffix, NormChannels) { BY_WIDTH(channel_statistics, T); }         \
    KERNEL(channel_norm_##suffix, NormChannels) { BY_WIDTH(channel_norm, T); }                     \
    KERNEL(channel_gradient_sums_##suffix, NormChannels) { BY_WIDTH(channel_gradient_sums, T); }   \
    KERNEL(channel_norm_gradient_##suffix, NormChannels) { BY_WIDTH(channel_norm_gradient, T); }   \
    KERNEL(group_norm_##suffix, NormGroups) { group_norm<T>(a); }                                  \
    KERNEL(group_norm_gradient_##suffix, NormGroups) { group_norm_gradient<T>(a); }                \
    KERNEL(group_norm_weights_##suffix, NormGroups) { group_norm_weights<T>(a); }                  \
    KERNEL(local_response_##suffix, LocalResponse) { local_response<T>(a); }                       \
    KERNEL(local_response_gradient_##suffix, LocalResponse) { local_response_gradient<T>(a); }     \
    KERNEL(max_pool_##suffix, Pool) { max_pool<T>(a); }                                            \
    KERNEL(max_pool_gradient_##suffix, Pool) { pool_gradient<T, true>(a); }                        \
    KERNEL(average_pool_##suffix, Pool) { average_pool<T>(a); }                                    \
    KERNEL(average_pool_gradient_##suffix, Pool) { pool_gradient<T, false>(a); }                   \
    KERNEL(bilinear_##suffix, Bilinear) { bilinear<T>(a); }                                        \
    KERNEL(bilinear_gradient_##suffix, Bilinear) { bilinear_gradient<T>(a); }
FOR_EACH_TYPE(ENTRY)
