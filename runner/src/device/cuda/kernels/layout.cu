// Along axes: what broadcasts, what moves, what is summed; tables of vectors; unfolded images.
//
// A tensor's place along axes is a sum of index x stride; where it repeats, the stride is 0.

// Splits an index among sizes, the last axis fastest, and gives each tensor's offset.
template <class Index, int N>
DEVICE void place(Index index, u32 from, u32 until, const u32 *sizes, const u64 *const *strides,
                  u64 *offsets) {
    for (u32 axis = until; axis > from;) {
        axis--;
        Index size = sizes[axis], at = index % size;
        index /= size;
#pragma unroll
        for (int n = 0; n < N; n++) offsets[n] += at * strides[n][axis];
    }
}

DEVICE float combine(u32 op, float a, float b, float g) {
    switch (op) {
    case Combine_Sum: return a + b;
    case Combine_Difference: return a - b;
    case Combine_Product: return a * b;
    case Combine_Quotient: return a / b;
    case Combine_Same: return g;
    case Combine_Negative: return -g;
    case Combine_ProductLeft: return g * b;
    case Combine_ProductRight: return g * a;
    case Combine_QuotientLeft: return g / b;
    default: return -g * a / (b * b); // QuotientRight
    }
}

// out = a op b, element by element of the output.
template <class T, class Index> DEVICE void broadcast(const Broadcast &a) {
    const u64 *strides[2] = {a.a_strides, a.b_strides};
    FOR_EACH_ITEM(i, a.count) {
        u64 at[2] = {0, 0};
        place<Index, 2>((Index)i, 0, a.rank, a.sizes, strides, at);
        float value = combine(a.op, load(((const T *)a.a)[at[0]]), load(((const T *)a.b)[at[1]]), 0);
        ((T *)a.out)[i] = store<T>(value);
    }
}

// out[to] = scale x[from]
template <class T, class Index> DEVICE void strided(const Strided &a) {
    const u64 *strides[2] = {a.from, a.to};
    FOR_EACH_ITEM(i, a.count) {
        u64 at[2] = {0, 0};
        place<Index, 2>((Index)i, 0, a.rank, a.sizes, strides, at);
        ((T *)a.out)[at[1]] = store<T>(load(((const T *)a.x)[at[0]]) * a.scale);
    }
}

// As `strided`, sixteen bytes at a time, whatever they are.
template <class Index> DEVICE void strided_words(const Strided &a) {
    const u64 *strides[2] = {a.from, a.to};
    FOR_EACH_ITEM(i, a.count) {
        u64 at[2] = {0, 0};
        place<Index, 2>((Index)i, 0, a.rank, a.sizes, strides, at);
        ((Pack<float> *)a.out)[at[1]] = ((const Pack<float> *)a.x)[at[0]];
    }
}
KERNEL(strided_words, Strided) {
    if (a.count >> 32 == 0) strided_words<u32>(a);
    else strided_words<u64>(a);
}

#define SIDE 32

// A copy between tensors whose neighbours lie along different axes: a block's tile of 32 x 32 goes
// through shared memory, so that both reads and writes are of neighbours. A tile's rows are a
// column longer: threads that read a column of it read different banks.
template <class T> DEVICE void transposed(const Transposed &a) {
    __shared__ T tile[SIDE][SIDE + 1];
    const u64 *strides[2] = {a.from, a.to};
    u32 across = (a.sizes[a.read] + SIDE - 1) / SIDE, down = (a.sizes[a.write] + SIDE - 1) / SIDE;
    u32 lane = threadIdx.x % SIDE, line = threadIdx.x / SIDE, lines = blockDim.x / SIDE;
    for (u64 block = blockIdx.x; block < a.tiles; block += gridDim.x) {
        u64 rest = block / across / down, at[2] = {0, 0};
        // Axes that are not the tile's: theirs is what remains.
        for (u32 axis = a.rank; axis > 0;) {
            axis--;
            if (axis == a.read || axis == a.write) continue;
            u64 index = rest % a.sizes[axis];
            rest /= a.sizes[axis];
            for (int n = 0; n < 2; n++) at[n] += index * strides[n][axis];
        }
        u32 r = (u32)(block % across) * SIDE, w = (u32)(block / across % down) * SIDE;
        const T *x = (const T *)a.x + at[0] + r + w * a.from[a.write];
        T *out = (T *)a.out + at[1] + w + r * a.to[a.read];
        for (u32 i = line; i < SIDE; i += lines) {
            if (r + lane < a.sizes[a.read] && w + i < a.sizes[a.write]) tile[i][lane] = x[i * a.from[a.write] + lane];
        }
        __syncthreads();
        for (u32 i = line; i < SIDE; i += lines) {
            if (w + lane < a.sizes[a.write] && r + i < a.sizes[a.read]) out[i * a.to[a.read] + lane] = tile[lane][i];
        }
        __syncthreads();
    }
}

// Gradients of what repeated, and means: out = scale x sum of op(a, b, g) along the reduced axes.
// LANES threads share an output: one, or a block.
template <class T, bool BLOCK> DEVICE void reduce(const Reduce &a) {
    const u64 *strides[3] = {a.a_strides, a.b_strides, a.g_strides};
    bool binary = a.op != Combine_Same && a.op != Combine_Negative;
    u64 start = BLOCK ? blockIdx.x : first_item(), step = BLOCK ? gridDim.x : item_step();
    for (u64 output = start; output < a.outputs; output += step) {
        u64 base[3] = {0, 0, 0};
        place<u64, 3>(output, 0, a.kept, a.sizes, strides, base);
        float total = 0;
        for (u64 term = BLOCK ? threadIdx.x : 0; term < a.terms; term += BLOCK ? blockDim.x : 1) {
            u64 at[3] = {base[0], base[1], base[2]};
            place<u32, 3>((u32)term, a.kept, a.rank, a.sizes, strides, at);
            float g = load(((const T *)a.g)[at[2]]), x = 0, y = 0;
            if (binary) x = load(((const T *)a.a)[at[0]]), y = load(((const T *)a.b)[at[1]]);
            total += combine(a.op, x, y, g);
        }
        if (BLOCK) total = block_sum(total);
        if (BLOCK && threadIdx.x != 0) continue;
        if (a.accumulate) ((float *)a.out)[output] += total * a.scale;
        else ((T *)a.out)[output] = store<T>(total * a.scale);
    }
}

// A learnt vector per token, plus one per position and one of the kind of token. 0 for a token that another rank has.
template <class T> DEVICE void embedding(const Embedding &a) {
    u64 n = a.features;
    FOR_EACH_ITEM(i, a.rows * n) {
        u64 row = i / n, at = i % n;
        u64 entry = ((const u32 *)a.tokens)[row] - a.first;
        float y = entry < a.entries ? load(((const T *)a.table)[entry * n + at]) : 0;
        if (a.positions) y += load(((const T *)a.positions)[row % a.length * n + at]);
        if (a.kinds) y += load(((const T *)a.kinds)[at]);
        ((T *)a.out)[i] = store<T>(y);
    }
}

// The first position of a token, or of the sample's largest, and its features; 0 where there is none.
template <class T> DEVICE void token_position(const TokenPosition &a) {
    FOR_EACH_ITEM(i, a.samples * a.features) {
        u64 sample = i / a.features, at = i % a.features, place = 0;
        const u32 *tokens = (const u32 *)a.tokens + sample * a.length;
        u32 wanted = a.largest ? tokens[0] : a.token;
        if (a.largest) {
            for (u64 p = 1; p < a.length; p++)
                if (tokens[p] > wanted) wanted = tokens[p], place = p;
        } else {
            while (place < a.length && tokens[place] != wanted) place++;
            if (place == a.length) place = 0;
        }
        u64 whole = (sample * a.length + place) * a.features + at;
        if (a.backward) ((T *)a.out)[whole] = ((const T *)a.from)[i];
        else ((T *)a.out)[i] = ((const T *)a.from)[whole];
    }
}

// A vector's gradient is the sum over the places where it was read, in their order: the block of a
// token's first place adds all of them. No atomics, so the bits are always the same.
template <class T> DEVICE void embedding_gradient(const Embedding &a) {
    __shared__ u32 counts[8], found[256];
    const u32 *tokens = (const u32 *)a.tokens;
    u32 rows = (u32)a.rows, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (u32 place = blockIdx.x; place < rows; place += gridDim.x) {
        u32 token = tokens[place];
        u64 entry = token - a.first;
        if (entry >= a.entries) continue; // another rank's, in all threads
        float *gradient = (float *)a.out + entry * a.features;
        for (u32 from = 0; from < rows; from += blockDim.x) {
            u32 at = from + threadIdx.x, number = 0, before = 0;
            bool is_there = at < rows && tokens[at] == token;
            u32 vote = __ballot_sync(0xffffffff, is_there);
            __syncthreads(); // whoever still reads what was found
            if (lane == 0) counts[warp] = __popc(vote);
            __syncthreads();
            for (u32 w = 0; w < blockDim.x / 32; w++) {
                if (w < warp) before += counts[w];
                number += counts[w];
            }
            if (is_there) found[before + __popc(vote & ((1u << lane) - 1))] = at;
            __syncthreads();
            if (number == 0) continue;
            if (found[0] < place) break; // another block's, in all threads
            for (u32 f = threadIdx.x; f < a.features; f += blockDim.x) {
                const T *gy = (const T *)a.table + f;
                float total = gradient[f];
#pragma unroll 4
                for (u32 i = 0; i < number; i++) total += load(gy[found[i] * a.features]);
                gradient[f] = total;
            }
        }
    }
}

// Cosines and sines of all positions: the first half of a row and the second. Frequencies are scaled as core has it.
KERNEL(rope_table, Rope) {
    u64 half = a.width / 2;
    FOR_EACH_ITEM(i, a.length * half) {
        u64 position = i / half, at = i % half;
        double frequency = pow((double)a.base, -2.0 * (double)at / (double)a.width);
        double times = (double)a.original * frequency / 6.283185307179586476925286766559;
        if (times < (double)a.low) {
            frequency /= (double)a.factor;
        } else if (times <= (double)a.high) {
            double smooth = a.high > a.low ? (times - (double)a.low) / ((double)a.high - (double)a.low) : 0.0;
            frequency = (1.0 - smooth) * frequency / (double)a.factor + smooth * frequency;
        }
        double angle = (double)position * frequency;
        float *row = (float *)a.table + position * a.width;
        row[at] = (float)cos(angle);
        row[half + at] = (float)sin(angle);
    }
}

// Turns elements i and i + half of a vector by its position's angle.
template <class T> DEVICE void rope(const Rope &a) {
    u64 half = a.width / 2;
    FOR_EACH_ITEM(i, a.vectors * half) {
        u64 vector = i / half, at = i % half;
        const T *x = (const T *)a.x + vector * a.width;
        T *y = (T *)a.out + vector * a.width;
        const float *row = (const float *)a.table + vector % a.length * a.width;
        float x1 = load(x[at]), x2 = load(x[half + at]);
        float c = row[at], s = a.sign * row[half + at];
        y[at] = store<T>(x1 * c - x2 * s);
        y[half + at] = store<T>(x2 * c + x1 * s);
    }
}

DEVICE u64 unfolded(const Unfold &a) {
    return a.samples * a.channels * a.kernel[0] * a.kernel[1] * a.out_size[0] * a.out_size[1];
}

// One group's images as columns: [channels x kernel, positions] for each sample.
template <class T, class Index> DEVICE void unfold(const Unfold &a) {
    Index positions = (Index)a.out_size[0] * a.out_size[1];
    Index rows = (Index)a.channels * a.kernel[0] * a.kernel[1];
    FOR_EACH_ITEM(i, a.samples * rows * positions) {
        u32 position = (u32)((Index)i % positions), row = (u32)((Index)i / positions % rows);
        u64 sample = (Index)i / positions / rows;
        u32 kc = row % a.kernel[1], kr = row / a.kernel[1] % a.kernel[0];
        u32 channel = row / a.kernel[1] / a.kernel[0];
        i32 r = (i32)(position / a.out_size[1] * a.stride[0] + kr * a.dilation[0]) - (i32)a.padding[0];
        i32 c = (i32)(position % a.out_size[1] * a.stride[1] + kc * a.dilation[1]) - (i32)a.padding[1];
        bool in = r >= 0 && c >= 0 && r < (i32)a.size[0] && c < (i32)a.size[1];
        u64 at = sample * a.sample_stride + ((u64)channel * a.size[0] + r) * a.size[1] + c;
        ((T *)a.out)[sample * a.sample + row * a.row + position] = in ? ((const T *)a.x)[at] : store<T>(0);
    }
}

// The window along an axis whose element k is at `at`; false if there is none.
DEVICE bool window_at(const Unfold &a, int axis, u32 at, u32 k, u32 &window) {
    i32 first = (i32)at + (i32)a.padding[axis] - (i32)(k * a.dilation[axis]);
    if (first < 0 || first % (i32)a.stride[axis] != 0) return false;
    window = (u32)first / a.stride[axis];
    return window < a.out_size[axis];
}

// Back again: every pixel is the sum of its places in the columns.
template <class T, class Index> DEVICE void fold(const Unfold &a) {
    Index pixels = (Index)a.size[0] * a.size[1];
    FOR_EACH_ITEM(i, a.samples * a.channels * pixels) {
        u32 c = (u32)((Index)i % a.size[1]), r = (u32)((Index)i / a.size[1] % a.size[0]), wr, wc;
        u64 channel = (Index)i / pixels % a.channels, sample = (Index)i / pixels / a.channels;
        float total = 0;
        for (u32 kr = 0; kr < a.kernel[0]; kr++) {
            if (!window_at(a, 0, r, kr, wr)) continue;
            for (u32 kc = 0; kc < a.kernel[1]; kc++) {
                if (!window_at(a, 1, c, kc, wc)) continue;
                u64 row = (channel * a.kernel[0] + kr) * a.kernel[1] + kc;
                u64 at = sample * a.sample + row * a.row + (u64)wr * a.out_size[1] + wc;
                total += load(((const T *)a.x)[at]);
            }
        }
        u64 at = sample * a.sample_stride + channel * pixels + (u64)r * a.size[1] + c;
        ((T *)a.out)[at] = store<T>(total);
    }
}

#define ENTRY(suffix, T)                                                                           \
    KERNEL(broadcast_##suffix, Broadcast) {                                                        \
        if (a.count >> 32 == 0) broadcast<T, u32>(a);                                              \
        else broadcast<T, u64>(a);                                                                 \
    }                                                                                              \
    KERNEL(strided_##suffix, Strided) {                                                            \
        if (a.count >> 32 == 0) strided<T, u32>(a);                                                \
        else strided<T, u64>(a);                                                                   \
    }                                                                                              \
    KERNEL(reduce_##suffix, Reduce) { reduce<T, false>(a); }                                       \
    KERNEL(reduce_block_##suffix, Reduce) { reduce<T, true>(a); }                                  \
    KERNEL(embedding_##suffix, Embedding) { embedding<T>(a); }                                     \
    KERNEL(embedding_gradient_##suffix, Embedding) { embedding_gradient<T>(a); }                   \
    KERNEL(token_position_##suffix, TokenPosition) { token_position<T>(a); }                       \
    KERNEL(rope_##suffix, Rope) { rope<T>(a); }                                                    \
    KERNEL(transposed_##suffix, Transposed) { transposed<T>(a); }                                  \
    KERNEL(unfold_##suffix, Unfold) {                                                              \
        if (unfolded(a) >> 32 == 0) unfold<T, u32>(a);                                             \
        else unfold<T, u64>(a);                                                                    \
    }                                                                                              \
    KERNEL(fold_##suffix, Unfold) {                                                                \
        if (a.samples * a.channels * a.size[0] * a.size[1] >> 32 == 0) fold<T, u32>(a);            \
        else fold<T, u64>(a);                                                                      \
    }
FOR_EACH_TYPE(ENTRY)
