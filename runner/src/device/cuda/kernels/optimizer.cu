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

template <class T> DEVICE void write_copy(void *copy, u64 i, float weight) {
    if (copy) ((T *)copy)[i] = store<T>(weight);
}

template <class T> DEVICE void momentum_step(const Optimizer &a) {
    const Numbers &n = *(const Numbers *)a.numbers;
    Chunk chunk = ((const Chunk *)a.chunks)[blockIdx.x];
    const Tensor &t = ((const Tensor *)a.tensors)[chunk.tensor];
    float local = t.local ? (float)*t.local : 1, decay = t.local && *t.local < 0 ? 0 : a.decay;
    if (local < 0) local = 1;
    u64 end = min((u64)(chunk.index + 1) * CHUNK, t.count);
    for (u64 i = (u64)chunk.index * CHUNK + threadIdx.x; i < end; i += blockDim.x) {
        float w = t.weight[i], d = local * (t.gradient[i] * n.scale + decay * w);
        t.gradient[i] = 0;
        if (!n.skip) {
            if (t.first) {
                float v = a.momentum * t.first[i] + d;
                t.first[i] = v;
                d = a.nesterov ? d + a.momentum * v : v;
            }
            w -= n.rate * d;
            t.weight[i] = w;
        }
        write_copy<T>(t.copy, i, w);
    }
}

template <class T> DEVICE void adam_step(const Optimizer &a) {
    const Numbers &n = *(const Numbers *)a.numbers;
    Chunk chunk = ((const Chunk *)a.chunks)[blockIdx.x];
    const Tensor &t = ((const Tensor *)a.tensors)[chunk.tensor];
    u64 end = min((u64)(chunk.index + 1) * CHUNK, t.count);
    for (u64 i = (u64)chunk.index * CHUNK + threadIdx.x; i < end; i += blockDim.x) {
        float w = t.weight[i], kept = w * n.keep, d = t.gradient[i] * n.scale + a.decay * kept;
        t.gradient[i] = 0;
        if (!n.skip) {
            float m = t.first[i], s = t.second[i];
            m += (d - m) * a.new_mean;
            s = s * a.beta2 + a.new_square * d * d;
            float root = sqrtf(s) / n.root_correction + a.eps;
            w = kept - n.size * (m / root);
            t.first[i] = m;
            t.second[i] = s;
            t.weight[i] = w;
        }
        write_copy<T>(t.copy, i, w);
    }
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
