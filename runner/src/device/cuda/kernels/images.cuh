// What kernels of images share, whichever of their axes is innermost.

DEVICE void blend(float *running, float value, float momentum) {
    *running = (1 - momentum) * *running + momentum * value;
}

// Moves the running statistics: by those of the micro-batch, or once a step by those of all
// micro-batches of the step, which are gathered by Chan's update.
DEVICE void track(const NormChannels &a, u64 channel, float mean, float variance) {
    float *running_mean = (float *)a.running_mean + channel;
    float *running_variance = (float *)a.running_variance + channel;
    double count = (double)(a.samples * a.plane);
    if (!a.all_mean) {
        blend(running_mean, mean, a.momentum);
        blend(running_variance, (float)(count / max(count - 1, 1.0)) * variance, a.momentum);
        return;
    }
    float *all_mean = (float *)a.all_mean + channel, *all_variance = (float *)a.all_variance + channel;
    float before = (float)a.turn, after = before + 1, difference = mean - *all_mean;
    *all_mean += difference / after;
    *all_variance += (variance - *all_variance + difference * difference * before / after) / after;
    if (a.turn + 1 == a.turns) {
        count *= a.turns;
        blend(running_mean, *all_mean, a.momentum);
        blend(running_variance, (float)(count / max(count - 1, 1.0)) * *all_variance, a.momentum);
        *all_mean = 0;
        *all_variance = 0;
    }
}

// What a run of gy is made of, all of it asked for before any is used: gy as it lies, or the first terms of its
// sum and what else the tail reads.
template <class T, int W> struct Parts {
    Run<T, W> first, second, other;
};
template <class T, int W> DEVICE Parts<T, W> parts_of(const NormChannels &a, u64 i) {
    Parts<T, W> parts;
    parts.first = ((const Run<T, W> *)(a.number == 0 ? a.gy : a.terms[0]))[i];
    if (a.number > 1) parts.second = ((const Run<T, W> *)a.terms[1])[i];
    parts.other = other_of<T, W>(a.tail, i);
    return parts;
}

// A run of gy: as it lies, or made of the terms and left there.
template <class T, int W> DEVICE Run<T, W> incoming(const NormChannels &a, u64 i, const Parts<T, W> &parts) {
    if (a.number == 0) return parts.first;
    Run<T, W> gy = parts.first;
    for (u32 t = 1; t < a.number; t++) {
        Run<T, W> term = t == 1 ? parts.second : ((const Run<T, W> *)a.terms[t])[i];
#pragma unroll
        for (int w = 0; w < W; w++) gy.at[w] = store<T>(load(gy.at[w]) + load(term.at[w]));
    }
    gy = finish<T, W>(a.tail, i, gy, parts.other);
    ((Run<T, W> *)a.gy)[i] = gy;
    return gy;
}

// The inputs from `first` to `until` along an axis that a window covers, and how many elements with
// padding: a window of ceil mode ends with the padding.
DEVICE u32 covered(const Pool &a, int axis, u32 window, u32 &first, u32 &until) {
    u32 padding = a.padding[axis], size = a.size[axis], start = window * a.stride[axis];
    u32 end = min(start + a.kernel[axis], size + 2 * padding);
    first = min(start > padding ? start - padding : 0, size);
    until = min(max(end > padding ? end - padding : 0, first), size);
    return end - start;
}

// The windows from `first` to `until` along an axis that may cover an input.
DEVICE void reaching(const Pool &a, int axis, u32 at, u32 &first, u32 &until) {
    u32 place = at + a.padding[axis], kernel = a.kernel[axis];
    first = place < kernel ? 0 : (place - kernel) / a.stride[axis] + 1;
    until = min(place / a.stride[axis] + 1, a.out_size[axis]);
}

// The host says of how many elements runs are: of sixteen bytes, of eight, or of one.
#define BY_WIDTH(kernel, T)                                                                        \
    if (a.width * sizeof(T) == 16) kernel<T, 16 / sizeof(T)>(a);                                   \
    else if (a.width * sizeof(T) == 8) kernel<T, 8 / sizeof(T)>(a);                                \
    else kernel<T, 1>(a)
