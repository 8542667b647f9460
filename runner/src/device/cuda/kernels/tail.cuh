// What is done at once with a kernel's value, which would else be written and read again: see `fused.rs`.
// It is rounded after every part, as it would be stored.

// W neighbours, loaded and stored at once.
template <class T, int W> struct alignas(sizeof(T) * W) Run {
    T at[W];
};

DEVICE bool does(const Tail &tail, u32 what) { return tail.does >> what & 1; }

// What else is read for run `i`: nothing that was set where nothing is.
template <class T, int W> DEVICE Run<T, W> other_of(const Tail &tail, u64 i) {
    Run<T, W> other;
    if (tail.other) other = ((const Run<T, W> *)tail.other)[i];
    return other;
}

// The value of run `i`, when everything is done with it.
template <class T, int W> DEVICE Run<T, W> finish(const Tail &tail, u64 i, Run<T, W> value, const Run<T, W> &other) {
    if (tail.own) ((Run<T, W> *)tail.own)[i] = value;
    if (!tail.does) return value;
    if (does(tail, Then_Sum)) {
#pragma unroll
        for (int w = 0; w < W; w++) value.at[w] = store<T>(load(value.at[w]) + load(other.at[w]));
        if (tail.between) ((Run<T, W> *)tail.between)[i] = value;
    }
    if (does(tail, Then_Relu)) {
#pragma unroll
        for (int w = 0; w < W; w++) {
            float x = load(value.at[w]);
            value.at[w] = store<T>(x < 0 ? 0 : x);
        }
    }
    if (does(tail, Then_Mask)) {
#pragma unroll
        for (int w = 0; w < W; w++) {
            value.at[w] = store<T>(load(other.at[w]) > 0 ? load(value.at[w]) : 0);
        }
    }
    return value;
}

template <class T, int W> DEVICE Run<T, W> finish(const Tail &tail, u64 i, Run<T, W> value) {
    return finish<T, W>(tail, i, value, other_of<T, W>(tail, i));
}

// The same of one number.
template <class T> DEVICE T finish(const Tail &tail, u64 i, T value) {
    Run<T, 1> one = {{value}};
    return finish<T, 1>(tail, i, one).at[0];
}
