// Convolutions of each channel by itself, of images [samples, channels, rows, columns].

// Convolutions with one input channel a group, directly. `multiplier` outputs follow from a channel.
template <class T> DEVICE void depthwise(const Depthwise &a) {
    u64 outputs = (u64)a.out_size[0] * a.out_size[1], pixels = (u64)a.size[0] * a.size[1];
    u64 out_channels = a.channels * a.multiplier, taps = (u64)a.kernel[0] * a.kernel[1];
    FOR_EACH_ITEM(i, a.samples * out_channels * outputs) {
        u64 channel = i / outputs % out_channels, sample = i / outputs / out_channels;
        u32 r = (u32)(i % outputs / a.out_size[1]), c = (u32)(i % a.out_size[1]);
        const T *x = (const T *)a.x + (sample * a.channels + channel / a.multiplier) * pixels;
        const T *weight = (const T *)a.weight + channel * taps;
        float total = a.bias ? load(((const T *)a.bias)[channel]) : 0;
        for (u32 kr = 0; kr < a.kernel[0]; kr++) {
            i32 row = (i32)(r * a.stride[0] + kr * a.dilation[0]) - (i32)a.padding[0];
            if (row < 0 || row >= (i32)a.size[0]) continue;
            for (u32 kc = 0; kc < a.kernel[1]; kc++) {
                i32 column = (i32)(c * a.stride[1] + kc * a.dilation[1]) - (i32)a.padding[1];
                if (column < 0 || column >= (i32)a.size[1]) continue;
                total += load(x[(u64)row * a.size[1] + column]) * load(weight[kr * a.kernel[1] + kc]);
            }
        }
        ((T *)a.out)[i] = store<T>(total);
    }
}

template <class T> DEVICE void depthwise_gradient(const Depthwise &a) {
    u64 outputs = (u64)a.out_size[0] * a.out_size[1], pixels = (u64)a.size[0] * a.size[1];
    u64 taps = (u64)a.kernel[0] * a.kernel[1];
    FOR_EACH_ITEM(i, a.samples * a.channels * pixels) {
        u64 channel = i / pixels % a.channels, sample = i / pixels / a.channels;
        i32 row = (i32)(i % pixels / a.size[1]), column = (i32)(i % a.size[1]);
        float total = 0;
        for (u32 m = 0; m < a.multiplier; m++) {
            u64 out = channel * a.multiplier + m;
            const T *gy = (const T *)a.gy + (sample * a.channels * a.multiplier + out) * outputs;
            for (u32 kr = 0; kr < a.kernel[0]; kr++) {
                i32 r = row + (i32)a.padding[0] - (i32)(kr * a.dilation[0]);
                if (r < 0 || r % (i32)a.stride[0] != 0 || r / (i32)a.stride[0] >= (i32)a.out_size[0]) continue;
                for (u32 kc = 0; kc < a.kernel[1]; kc++) {
                    i32 c = column + (i32)a.padding[1] - (i32)(kc * a.dilation[1]);
                    if (c < 0 || c % (i32)a.stride[1] != 0 || c / (i32)a.stride[1] >= (i32)a.out_size[1]) continue;
                    u64 at = (u64)(r / (i32)a.stride[0]) * a.out_size[1] + c / (i32)a.stride[1];
                    total += load(gy[at]) * load(((const T *)a.weight)[out * taps + kr * a.kernel[1] + kc]);
                }
            }
        }
        ((T *)a.out)[i] = store<T>(total);
    }
}

// A block for each element of the weight.
template <class T> DEVICE void depthwise_weights(const Depthwise &a) {
    u64 outputs = (u64)a.out_size[0] * a.out_size[1], pixels = (u64)a.size[0] * a.size[1];
    u64 out_channels = a.channels * a.multiplier, taps = (u64)a.kernel[0] * a.kernel[1];
    u64 channel = blockIdx.x / taps;
    u32 kr = (u32)(blockIdx.x % taps / a.kernel[1]), kc = (u32)(blockIdx.x % a.kernel[1]);
    float total = 0;
    for (u64 i = threadIdx.x; i < a.samples * outputs; i += blockDim.x) {
        u64 sample = i / outputs;
        i32 r = (i32)(i % outputs / a.out_size[1] * a.stride[0] + kr * a.dilation[0]) - (i32)a.padding[0];
        i32 c = (i32)(i % a.out_size[1] * a.stride[1] + kc * a.dilation[1]) - (i32)a.padding[1];
        if (r < 0 || c < 0 || r >= (i32)a.size[0] || c >= (i32)a.size[1]) continue;
        u64 x = (sample * a.channels + channel / a.multiplier) * pixels + (u64)r * a.size[1] + c;
        u64 g = (sample * out_channels + channel) * outputs + i % outputs;
        total += load(((const T *)a.x)[x]) * load(((const T *)a.gy)[g]);
    }
    total = block_sum(total);
    if (threadIdx.x == 0) ((float *)a.out)[blockIdx.x] += total;
}

#define ENTRY(suffix, T)                                                                           \
    KERNEL(depthwise_##suffix, Depthwise) { depthwise<T>(a); }                                     \
    KERNEL(depthwise_gradient_##suffix, Depthwise) { depthwise_gradient<T>(a); }                   \
    KERNEL(depthwise_weights_##suffix, Depthwise) { depthwise_weights<T>(a); }
FOR_EACH_TYPE(ENTRY)
