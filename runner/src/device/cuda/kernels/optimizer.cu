// Updates of all parameters in one launch, by PyTorch's formulas; sums of squares for clipping.
//
// A table on the device says where each tensor is; a block takes a chunk of one. Weights are f32; where
// tensors are stored in 16 bits a copy of each is written too. Gradients are zero afterwards.

#define CHUNK 4096 // elements of a block

// What differs from step to step lies on the device, so that a recorded launch can be replayed.
struct Numbers {
    float rate, scale, keep, root_correction, size;
    u32 skip; // a step that changes nothing: gradients are cleared and copies written all the same
};

struct Tensor {
    float *weight, *gradient, *first, *second;
    void *copy;
    u64 count;
    double *local; // LARS's rate of the tensor, or null
};

struct Chunk {
    u32 tensor, index;
};

// W neighbours, loaded and stored at once.
template <class T, int W> struct alignas(sizeof(T) * W) Neighbours {
    T at[W];
};
template <int W> DEVICE Neighbours<float, W> &run_of(float *tensor, u64 run) {
    return ((Neighbours<float, W> *)tensor)[run];
}

// The values of a run that is updated; the gradient's are zero from then on.
template <int W> struct Values {
    Neighbours<float, W> weight, gradient, first, second;
};
template <int W> DEVICE Values<W> take(const Tensor &t, u64 run) {
    Values<W> values = {run_of<W>(t.weight, run), run_of<W>(t.gradient, run), {}, {}};
    if (t.first) values.first = run_of<W>(t.first, run);
    if (t.second) values.second = run_of<W>(t.second, run);
    return values;
}
template <class T, int W> DEVICE void put(const Tensor &t, u64 run, const Values<W> &values, bool skip) {
    run_of<W>(t.gradient, run) = {};
    if (!skip) {
        run_of<W>(t.weight, run) = values.weight;
        if (t.first) run_of<W>(t.first, run) = values.first;
        if (t.second) run_of<W>(t.second, run) = values.second;
    }
    if (!t.copy) return;
    Neighbours<T, W> copy;
#pragma unroll
    for (int w = 0; w < W; w++) copy.at[w] = store<T>(values.weight.at[w]);
    ((Neighbours<T, W> *)t.copy)[run] = copy;
}

template <int W, class Step> DEVICE void each(const Step &step, Values<W> &values, bool skip) {
    if (skip) return;
#pragma unroll
    for (int w = 0; w < W; w++) step(values, w);
}

// Has every run of the block's chunk updated: four elements at once where all tensors lie at multiples of
// theirs, and those that are left one by one. No element knows of another, so that changes no bit.
//
// What is read of the tables is kept in registers: tensors are written between, and might lie anywhere.
template <class T, class Step> DEVICE void over_chunk(const Optimizer &a) {
    const Numbers n = *(const Numbers *)a.numbers;
    const Chunk chunk = ((const Chunk *)a.chunks)[blockIdx.x];
    const Tensor t = ((const Tensor *)a.tensors)[chunk.tensor];
    const Step step(a, n, t);
    u64 begin = (u64)chunk.index * CHUNK, end = min(begin + CHUNK, t.count);
    u64 places = (u64)t.weight | (u64)t.gradient | (u64)t.first | (u64)t.second;
    bool wide = places % 16 == 0 && (u64)t.copy % (4 * sizeof(T)) == 0;
    u64 single = wide ? end - (end - begin) % 4 : begin;
    for (u64 run = begin / 4 + threadIdx.x; run < single / 4; run += 2 * blockDim.x) {
        // Two runs are asked for before one is used.
        u64 next = run + blockDim.x;
        bool both = next < single / 4;
        Values<4> values = take<4>(t, run), others;
        if (both) others = take<4>(t, next);
        each<4>(step, values, n.skip);
        put<T, 4>(t, run, values, n.skip);
        if (!both) break;
        each<4>(step, others, n.skip);
        put<T, 4>(t, next, others, n.skip);
    }
    for (u64 i = single + threadIdx.x; i < end; i += blockDim.x) {
        Values<1> values = take<1>(t, i);
        each<1>(step, values, n.skip);
        put<T, 1>(t, i, values, n.skip);
    }
}

// One element of a run.
struct Momentum {
    float rate, scale, momentum, decay, local;
    bool keeps, nesterov;
    __device__ Momentum(const Optimizer &a, const Numbers &n, const Tensor &t)
        : rate(n.rate), scale(n.scale), momentum(a.momentum), decay(a.decay), local(1), keeps(t.first), nesterov(a.nesterov) {
        if (!t.local) return;
        local = (float)*t.local;
        if (*t.local < 0) local = 1, decay = 0;
    }
    template <int W> __device__ void operator()(Values<W> &values, int w) const {
        float &weight = values.weight.at[w];
        float d = local * (values.gradient.at[w] * scale + decay * weight);
        if (keeps) {
            float &v = values.first.at[w];
            v = momentum * v + d;
            d = nesterov ? d + momentum * v : v;
        }
        weight -= rate * d;
    }
};

struct Adam {
    Numbers n;
    float decay, new_mean, beta2, new_square, eps;
    __device__ Adam(const Optimizer &a, const Numbers &numbers, const Tensor &)
        : n(numbers), decay(a.decay), new_mean(a.new_mean), beta2(a.beta2), new_square(a.new_square), eps(a.eps) {}
    template <int W> __device__ void operator()(Values<W> &values, int w) const {
        float &weight = values.weight.at[w], &m = values.first.at[w], &s = values.second.at[w];
        float kept = weight * n.keep, d = values.gradient.at[w] * n.scale + decay * kept;
        m += (d - m) * new_mean;
        s = s * beta2 + new_square * d * d;
        float root = sqrtf(s) / n.root_correction + eps;
        weight = kept - n.size * (m / root);
    }
};

template <class T> DEVICE void momentum_step(const Optimizer &a) {
    over_chunk<T, Momentum>(a);
}
template <class T> DEVICE void adam_step(const Optimizer &a) {
    over_chunk<T, Adam>(a);
}

// The squares of a chunk's gradients, and of its weights where there are: scratch [chunk, 2], f64. The squares of
// finite numbers have a finite sum in f64, so the sum says whether all are.
KERNEL(chunk_squares, Squares) {
    Chunk chunk = ((const Chunk *)a.chunks)[blockIdx.x];
    const Tensor &t = ((const Tensor *)a.tensors)[chunk.tensor];
    u64 end = min((u64)(chunk.index + 1) * CHUNK, t.count);
    double gradients = 0, weights = 0;
    for (u64 i = (u64)chunk.index * CHUNK + threadIdx.x; i < end; i += blockDim.x) {
        gradients += (double)t.gradient[i] * t.gradient[i];
        if (t.weight) weights += (double)t.weight[i] * t.weight[i];
    }
    gradients = block_sum(gradients);
    weights = block_sum(weights);
    if (threadIdx.x == 0) {
        ((double *)a.scratch)[2 * blockIdx.x] = gradients;
        ((double *)a.scratch)[2 * blockIdx.x + 1] = weights;
    }
}

// The first chunk of a tensor, or of the next one that has some.
DEVICE u64 first_chunk(const Squares &a, u32 tensor) {
    u64 low = 0, high = a.number;
    while (low < high) {
        u64 middle = (low + high) / 2;
        if (((const Chunk *)a.chunks)[middle].tensor < tensor) low = middle + 1;
        else high = middle;
    }
    return low;
}

// The sum of what `chunk_squares` found of a tensor: of gradients 0, of weights 1.
DEVICE double tensor_sum(const Squares &a, u32 tensor, u32 which) {
    double total = 0;
    u64 end = first_chunk(a, tensor + 1);
    for (u64 i = first_chunk(a, tensor) + threadIdx.x; i < end; i += blockDim.x) {
        total += ((const double *)a.scratch)[2 * i + which];
    }
    return block_sum(total);
}

// The sum of each gradient's squares, a block a tensor.
KERNEL(tensor_squares, Squares) {
    double total = tensor_sum(a, blockIdx.x, 0);
    if (threadIdx.x == 0) ((double *)a.totals)[blockIdx.x] = total;
}

// LARS: each tensor's rate from the lengths of weight and gradient, a block a tensor. -1 says that
// there is none: a tensor of one axis takes the plain step without decay.
KERNEL(local_rates, Squares) {
    const Tensor &t = ((const Tensor *)a.tensors)[blockIdx.x];
    if (!t.local) return;
    double gradients = sqrt(tensor_sum(a, blockIdx.x, 0)) * (double)((const Numbers *)a.numbers)->scale;
    double weights = sqrt(tensor_sum(a, blockIdx.x, 1));
    if (threadIdx.x != 0 || *t.local < 0) return;
    bool says = weights > 0 && gradients > 0;
    *t.local = says ? (float)((double)a.trust * weights / (gradients + (double)a.decay * weights)) : 1;
}

#define ENTRY(suffix, T)                                                                           \
    KERNEL(momentum_step_##suffix, Optimizer) { momentum_step<T>(a); }                             \
    KERNEL(adam_step_##suffix, Optimizer) { adam_step<T>(a); }
FOR_EACH_TYPE(ENTRY)
