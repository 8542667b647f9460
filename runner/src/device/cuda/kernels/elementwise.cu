// Element-wise operations: one pass over memory, sixteen bytes a thread.

// Runs out[i] = f(x[i], y[i], z[i]) with the first N of the three read.
template <int N, class T, class F> DEVICE void each(const Elementwise &a, F f) {
    constexpr int W = 16 / sizeof(T);
    const T *x = (const T *)a.x, *y = (const T *)a.y, *z = (const T *)a.z;
    T *out = (T *)a.out;
    bool wide = is_aligned(out) && is_aligned(x) && (N < 2 || is_aligned(y)) && (N < 3 || is_aligned(z));
    u64 packs = wide ? a.count / W : 0;
    FOR_EACH_ITEM(i, packs) {
        Pack<T> px = ((const Pack<T> *)x)[i], py = px, pz = px, result;
        if (N > 1) py = ((const Pack<T> *)y)[i];
        if (N > 2) pz = ((const Pack<T> *)z)[i];
#pragma unroll
        for (int w = 0; w < W; w++) {
            result.at[w] = store<T>(f(load(px.at[w]), load(py.at[w]), load(pz.at[w])));
        }
        ((Pack<T> *)out)[i] = result;
    }
    for (u64 i = packs * W + first_item(); i < a.count; i += item_step()) {
        float vx = load(x[i]);
        out[i] = store<T>(f(vx, N > 1 ? load(y[i]) : 0, N > 2 ? load(z[i]) : 0));
    }
}

DEVICE float sigmoid(float x) { return 1 / (1 + expf(-x)); }
DEVICE float silu_slope(float x) {
    float s = sigmoid(x);
    return s + x * s * (1 - s);
}
// Comparisons this way round leave what is not a number as it is.
DEVICE float clip(float x, float least, float most) {
    x = x < least ? least : x;
    return x > most ? most : x;
}

template <class T> DEVICE void map(const Elementwise &a) {
    float p = a.p, q = a.q;
    switch (a.op) {
    case Map_Copy: return each<1, T>(a, [=](float x, float, float) { return x; });
    case Map_Relu: return each<1, T>(a, [=](float x, float, float) { return x < 0 ? 0 : x; });
    case Map_ReluGradient: // of y and gy
        return each<2, T>(a, [=](float y, float g, float) { return y > 0 ? g : 0; });
    case Map_Affine: return each<1, T>(a, [=](float x, float, float) { return p * x + q; });
    case Map_Clip: return each<1, T>(a, [=](float x, float, float) { return clip(x, p, q); });
    case Map_ClipGradient: // of x and gy
        return each<2, T>(a, [=](float x, float g, float) { return x >= p && x <= q ? g : 0; });
    case Map_SwiGlu: // of gate and up
        return each<2, T>(a, [=](float x, float u, float) { return x * sigmoid(x) * u; });
    case Map_SwiGluGate: // of gate, up and gy
        return each<3, T>(a, [=](float x, float u, float g) { return g * u * silu_slope(x); });
    }
}

#define SQRT_1_2 0.70710678f
#define TWO_BY_SQRT_PI 1.12837917f
#define NORMAL 0.39894228f // 1 / sqrt(2 pi)

DEVICE float inner(float x) { return SQRT_1_2 * TWO_BY_SQRT_PI * (x + 0.044715f * x * x * x); }
DEVICE float gelu_tanh_slope(float x) {
    float t = tanhf(inner(x)), steep = SQRT_1_2 * TWO_BY_SQRT_PI * (1 + 3 * 0.044715f * x * x);
    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * steep;
}
DEVICE float inside(float x, float value) { return x > -3 && x < 3 ? value : 0; }

// Functions, and their slopes: of the output where it says them, else of the input.
#define FUNCTIONS(curve)                                                                           \
    curve(Gelu, 0.5f * x * (1 + erff(x * SQRT_1_2)),                                               \
          0.5f * (1 + erff(x * SQRT_1_2)) + x * NORMAL * expf(-0.5f * x * x))                      \
    curve(Silu, x * sigmoid(x), silu_slope(x))                                                     \
    curve(Tanh, tanhf(x), 1 - x * x)                                                               \
    curve(LeakyRelu, x > 0 ? x : 0.01f * x, x > 0 ? 1.0f : 0.01f)                                  \
    curve(GeluTanh, 0.5f * x * (1 + tanhf(inner(x))), gelu_tanh_slope(x))                          \
    curve(Sigmoid, sigmoid(x), x * (1 - x))                                                        \
    curve(Exp, expf(x), x)                                                                         \
    curve(Log, logf(x), 1 / x)                                                                     \
    curve(HardSwish, x * clip(x + 3, 0, 6) / 6, x >= 3 ? 1.0f : inside(x, x / 3 + 0.5f))           \
    curve(HardSigmoid, clip(x / 6 + 0.5f, 0, 1), inside(x, 1.0f / 6))                              \
    curve(Erf, erff(x), TWO_BY_SQRT_PI * expf(-x * x))                                             \
    curve(Square, x * x, 2 * x)                                                                    \
    curve(Sqrt, sqrtf(x), 0.5f / x)                                                                \
    curve(Reciprocal, 1 / x, -x * x)

template <class T> DEVICE void activation(const Elementwise &a) {
    switch (a.op) {
#define CURVE(name, value, slope)                                                                  \
    case Curve_##name: return each<1, T>(a, [=](float x, float, float) { return value; });
        FUNCTIONS(CURVE)
#undef CURVE
    }
}

template <class T> DEVICE void activation_gradient(const Elementwise &a) {
    switch (a.op) {
#define CURVE(name, value, slope)                                                                  \
    case Curve_##name: return each<2, T>(a, [=](float x, float g, float) { return (slope) * g; });
        FUNCTIONS(CURVE)
#undef CURVE
    }
}

// ((first + second) + third) + .., rounded to the storage type after every term, so that it does not
// matter which of them came from another device; then its tail.
template <class T> DEVICE void sum_terms(const SumTerms &a) {
    constexpr int W = 16 / sizeof(T);
    T *out = (T *)a.out;
    bool wide = is_aligned(out);
    for (u32 t = 0; t < a.number; t++) wide = wide && is_aligned(a.terms[t]);
    wide = wide && is_aligned(a.tail.own) && is_aligned(a.tail.other);
    u64 packs = wide ? a.count / W : 0;
    FOR_EACH_ITEM(i, packs) {
        Run<T, W> total = ((const Run<T, W> *)a.terms[0])[i];
        for (u32 t = 1; t < a.number; t++) {
            Run<T, W> term = ((const Run<T, W> *)a.terms[t])[i];
#pragma unroll
            for (int w = 0; w < W; w++) {
                total.at[w] = store<T>(load(total.at[w]) + load(term.at[w]));
            }
        }
        ((Run<T, W> *)out)[i] = finish<T, W>(a.tail, i, total);
    }
    for (u64 i = packs * W + first_item(); i < a.count; i += item_step()) {
        T total = ((const T *)a.terms[0])[i];
        for (u32 t = 1; t < a.number; t++) {
            total = store<T>(load(total) + load(((const T *)a.terms[t])[i]));
        }
        out[i] = finish<T>(a.tail, i, total);
    }
}

template <class From, class To> DEVICE void convert(const Elementwise &a) {
    const From *x = (const From *)a.x;
    To *out = (To *)a.out;
    // Four at once: of the two types one has sixteen bytes of them.
    u64 fours = is_aligned(x) && is_aligned(out) ? a.count / 4 : 0;
    FOR_EACH_ITEM(i, fours) {
        Run<From, 4> run = ((const Run<From, 4> *)x)[i];
        Run<To, 4> result;
#pragma unroll
        for (int w = 0; w < 4; w++) result.at[w] = store<To>(load(run.at[w]));
        ((Run<To, 4> *)out)[i] = result;
    }
    for (u64 i = 4 * fours + first_item(); i < a.count; i += item_step()) out[i] = store<To>(load(x[i]));
}

template <class T> DEVICE void fill(const Elementwise &a) {
    T value = store<T>(a.p);
    FOR_EACH_ITEM(i, a.count) { ((T *)a.out)[i] = value; }
}

DEVICE void philox_round(u32 *counter, u32 k0, u32 k1) {
    u32 even = 0xD2511F53u * counter[0], even_high = __umulhi(0xD2511F53u, counter[0]);
    u32 odd = 0xCD9E8D57u * counter[2], odd_high = __umulhi(0xCD9E8D57u, counter[2]);
    counter[0] = odd_high ^ counter[1] ^ k0;
    counter[2] = even_high ^ counter[3] ^ k1;
    counter[1] = odd;
    counter[3] = even;
}

// Dropout with random numbers from Philox4x32-10 (Salmon et al. 2011), the same as on the processor:
// a group of 256 elements of a sample has 32 counters; word w of counter l decides on elements
// 32 w + l (by its lower half) and 128 + 32 w + l (by its upper one). A thread takes a counter.
template <class T> DEVICE void dropout(const Dropout &a) {
    u64 first = a.first / 256, groups = (a.first + a.elements + 255) / 256 - first;
    u64 step = *(const u64 *)a.step;
    FOR_EACH_ITEM(i, a.samples * groups * 32) {
        u32 lane = (u32)(i % 32);
        u64 group = first + i / 32 % groups, sample = i / 32 / groups;
        u32 words[4] = {(u32)group * 32 + lane, a.first_sample + (u32)sample, (u32)step,
                        (u32)(step >> 32)};
        u32 k0 = a.key[0], k1 = a.key[1];
        for (int round = 0; round < 10; round++) {
            philox_round(words, k0, k1);
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
#pragma unroll
        for (int part = 0; part < 8; part++) {
            // Before the first of a slice it wraps round, and is none of it either.
            u64 element = group * 256 + part * 32 + lane - a.first;
            if (element >= a.elements) continue;
            u32 chance = words[part % 4] >> (part / 4 * 16) & 0xffff;
            u64 at = sample * a.elements + element;
            float x = load(((const T *)a.x)[at]);
            ((T *)a.out)[at] = store<T>(chance < a.limit ? 0 : x * a.scale);
        }
    }
}

#define ENTRY(suffix, T)                                                                           \
    KERNEL(map_##suffix, Elementwise) { map<T>(a); }                                               \
    KERNEL(activation_##suffix, Elementwise) { activation<T>(a); }                                 \
    KERNEL(activation_gradient_##suffix, Elementwise) { activation_gradient<T>(a); }               \
    KERNEL(sum_terms_##suffix, SumTerms) { sum_terms<T>(a); }                                      \
    KERNEL(fill_##suffix, Elementwise) { fill<T>(a); }                                             \
    KERNEL(narrow_##suffix, Elementwise) { convert<float, T>(a); }                                 \
    KERNEL(widen_##suffix, Elementwise) { convert<T, float>(a); }                                  \
    KERNEL(dropout_##suffix, Dropout) { dropout<T>(a); }
FOR_EACH_TYPE(ENTRY)
