// Mixtures of experts: shares of the largest logits, tokens to rows of their experts, and back. A rank of a tensor group
// has some of the experts; tokens of the others are nothing here. Which row a token has is counted in the order of
// tokens, so no atomics are needed and the bits are always the same.

// Whether element `at` is among the k largest of a row; of equal ones the first are.
template <class T> DEVICE bool is_taken(const T *x, u64 n, u64 at, u64 k) {
    float own = load(x[at]);
    u64 before = 0;
    for (u64 i = 0; i < n; i++) {
        float other = load(x[i]);
        before += other > own || (other == own && i < at);
    }
    return before < k;
}

struct Exponentials {
    float most, total;
};

// Of the row of a block: the largest, and the sum of exponentials less that of all or of those that are taken.
template <class T> DEVICE Exponentials exponentials(const TopK &a, const T *x, bool all) {
    float most = from_bits(0xff800000), total = 0;
    for (u64 i = threadIdx.x; i < a.n; i += blockDim.x) most = Largest::of(most, load(x[i]));
    most = block_max(most);
    for (u64 i = threadIdx.x; i < a.n; i += blockDim.x)
        if (all || is_taken(x, a.n, i, a.k)) total += expf(load(x[i]) - most);
    return {most, block_sum(total)};
}

template <class T> DEVICE void top_k(const TopK &a) {
    for (u64 row = blockIdx.x; row < a.rows; row += gridDim.x) {
        const T *x = (const T *)a.x + row * a.n;
        T *y = (T *)a.out + row * a.n;
        Exponentials sum = exponentials(a, x, !a.normalize);
        float factor = 1 / sum.total;
        for (u64 i = threadIdx.x; i < a.n; i += blockDim.x)
            y[i] = store<T>(is_taken(x, a.n, i, a.k) ? expf(load(x[i]) - sum.most) * factor : 0);
    }
}

// gx = p (gy - mean), where gy counts for those that are taken; p are the shares of all, or of those alone.
template <class T> DEVICE void top_k_gradient(const TopK &a) {
    for (u64 row = blockIdx.x; row < a.rows; row += gridDim.x) {
        const T *x = (const T *)a.x + row * a.n, *y = (const T *)a.y + row * a.n;
        const T *gy = (const T *)a.gy + row * a.n;
        T *gx = (T *)a.out + row * a.n;
        float mean = 0;
        for (u64 i = threadIdx.x; i < a.n; i += blockDim.x) mean += load(y[i]) * load(gy[i]);
        mean = block_sum(mean);
        Exponentials sum = {0, 1};
        if (!a.normalize) sum = exponentials(a, x, true);
        float factor = 1 / sum.total;
        for (u64 i = threadIdx.x; i < a.n; i += blockDim.x) {
            float own = load(y[i]), g = own != 0 ? load(gy[i]) : 0;
            float p = a.normalize ? own : expf(load(x[i]) - sum.most) * factor;
            gx[i] = store<T>(p * (g - mean));
        }
    }
}

constexpr u32 NOWHERE = 0xffffffff;

// A token's share of an expert of this rank.
template <class T> DEVICE float share_of(const Routing &a, u64 token, u64 expert) {
    return load(((const T *)a.shares)[token * a.all + a.first + expert]);
}

// A block an expert of a sample: the row of each token, and the token of each row.
template <class T> DEVICE void place_tokens(const Routing &a) {
    __shared__ u32 counts[8];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (u64 block = blockIdx.x; block < a.samples * a.experts; block += gridDim.x) {
        u64 first = block / a.experts * a.tokens, expert = block % a.experts;
        u32 *sources = (u32 *)a.sources + block * a.capacity;
        u32 base = 0;
        for (u64 from = 0; from < a.tokens; from += blockDim.x) {
            u64 token = from + threadIdx.x;
            bool is_there = token < a.tokens;
            if (is_there) is_there = share_of<T>(a, first + token, expert) != 0;
            u32 vote = __ballot_sync(0xffffffff, is_there);
            __syncthreads(); // whoever still reads the last counts
            if (lane == 0) counts[warp] = __popc(vote);
            __syncthreads();
            u32 row = base + __popc(vote & ((1u << lane) - 1));
            for (u32 w = 0; w < blockDim.x / 32; w++) {
                if (w < warp) row += counts[w];
                base += counts[w];
            }
            bool has_row = is_there && row < a.capacity;
            if (has_row) sources[row] = (u32)token;
            if (token < a.tokens)
                ((u32 *)a.places)[(first + token) * a.experts + expert] = has_row ? row : NOWHERE;
        }
        for (u64 row = base + threadIdx.x; row < a.capacity; row += blockDim.x) sources[row] = NOWHERE;
    }
}

// A block a row: its token's, times the share where that counts; zero where there is none.
template <class T> DEVICE void rows_of_tokens(const Routing &a) {
    for (u64 row = blockIdx.x; row < a.samples * a.experts * a.capacity; row += gridDim.x) {
        u64 block = row / a.capacity, source = ((const u32 *)a.sources)[row];
        u64 token = block / a.experts * a.tokens + source;
        T *out = (T *)a.out + row * a.features;
        if (source == NOWHERE) {
            for (u64 i = threadIdx.x; i < a.features; i += blockDim.x) out[i] = store<T>(0);
            continue;
        }
        const T *from = (const T *)a.x + token * a.features;
        float share = share_of<T>(a, token, block % a.experts);
        for (u64 i = threadIdx.x; i < a.features; i += blockDim.x)
            out[i] = a.weighted ? store<T>(share * load(from[i])) : from[i];
    }
}

// Where the row of an expert begins that a token has.
DEVICE u64 row_of(const Routing &a, u64 token, u64 expert, u32 place) {
    return ((token / a.tokens * a.experts + expert) * a.capacity + place) * a.features;
}

// A block a token: the sum of its rows, times the shares where these count, in the order of experts.
template <class T> DEVICE void tokens_of_rows(const Routing &a) {
    for (u64 token = blockIdx.x; token < a.samples * a.tokens; token += gridDim.x) {
        const u32 *places = (const u32 *)a.places + token * a.experts;
        for (u64 i = threadIdx.x; i < a.features; i += blockDim.x) {
            float total = 0;
            for (u64 expert = 0; expert < a.experts; expert++) {
                if (places[expert] == NOWHERE) continue;
                float value = load(((const T *)a.x)[row_of(a, token, expert, places[expert]) + i]);
                total += a.weighted ? share_of<T>(a, token, expert) * value : value;
            }
            ((T *)a.out)[token * a.features + i] = store<T>(total);
        }
    }
}

// A block a token: what each of its rows and its gradient have in common. 0 for experts of other ranks.
template <class T> DEVICE void share_gradient(const Routing &a) {
    for (u64 token = blockIdx.x; token < a.samples * a.tokens; token += gridDim.x) {
        const u32 *places = (const u32 *)a.places + token * a.experts;
        const T *gy = (const T *)a.gy + token * a.features;
        for (u64 all = 0; all < a.all; all++) {
            u64 expert = all - a.first;
            float total = 0;
            if (expert < a.experts && places[expert] != NOWHERE) {
                const T *row = (const T *)a.x + row_of(a, token, expert, places[expert]);
                for (u64 i = threadIdx.x; i < a.features; i += blockDim.x) total += load(row[i]) * load(gy[i]);
                total = block_sum(total);
            }
            if (threadIdx.x == 0) ((T *)a.out)[token * a.all + all] = store<T>(total);
        }
    }
}

#define ENTRY(suffix, T)                                                                           \
    KERNEL(top_k_##suffix, TopK) { top_k<T>(a); }                                                  \
    KERNEL(top_k_gradient_##suffix, TopK) { top_k_gradient<T>(a); }                                \
    KERNEL(place_tokens_##suffix, Routing) { place_tokens<T>(a); }                                 \
    KERNEL(rows_of_tokens_##suffix, Routing) { rows_of_tokens<T>(a); }                             \
    KERNEL(tokens_of_rows_##suffix, Routing) { tokens_of_rows<T>(a); }                             \
    KERNEL(share_gradient_##suffix, Routing) { share_gradient<T>(a); }
FOR_EACH_TYPE(ENTRY)
