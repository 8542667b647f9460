// Rows that begin anywhere: sixteen bytes of them are two accesses of whole sixteen, and a shift. Those may
// have bytes beside the row, but they never have none of it, so they are in the same allocation.

// Of eight words those that begin so many bytes behind the first one: a multiple of two.
DEVICE Pack<u32> shifted(const Pack<u32> &low, const Pack<u32> &high, u32 bytes) {
    u32 w[8] = {low.at[0],  low.at[1],  low.at[2],  low.at[3],
                high.at[0], high.at[1], high.at[2], high.at[3]};
    if (bytes & 8) {
#pragma unroll
        for (int i = 0; i < 6; i++) w[i] = w[i + 2];
    }
    if (bytes & 4) {
#pragma unroll
        for (int i = 0; i < 5; i++) w[i] = w[i + 1];
    }
    if (bytes & 2) {
#pragma unroll
        for (int i = 0; i < 4; i++) w[i] = w[i] >> 16 | w[i + 1] << 16;
    }
    return {{w[0], w[1], w[2], w[3]}};
}

// Sixteen bytes from an even address on, without a branch, so that several loads are under way at a time.
DEVICE Pack<u32> load_words(const void *from) {
    u32 beyond = (u32)((u64)from & 15);
    const Pack<u32> *whole = (const Pack<u32> *)((const u8 *)from - beyond);
    // Where nothing is beyond, what comes next may be in no allocation.
    return shifted(whole[0], whole[beyond != 0], beyond);
}

template <class T> DEVICE Pack<T> load_run(const T *from) {
    union {
        Pack<u32> words;
        Pack<T> values;
    } both;
    both.words = load_words(from);
    return both.values;
}

template <class T> DEVICE void store_run(T *to, const Pack<T> &run) {
    if (is_aligned(to)) {
        *(Pack<T> *)to = run;
    } else {
#pragma unroll
        for (int w = 0; w < 16 / (int)sizeof(T); w++) to[w] = run.at[w];
    }
}

// Copies rows to where all of them begin at multiples of sixteen bytes, with zeros between them.
KERNEL(pad_rows, PitchedRows) {
    u64 packs = a.to / 16, whole = a.bytes / 16;
    for (u64 row = blockIdx.y; row < a.rows; row += gridDim.y) {
        const u8 *x = (const u8 *)a.x + row * a.from;
        u8 *out = (u8 *)a.out + row * a.to;
        FOR_EACH_ITEM(i, packs) {
            Pack<u32> pack = {{0, 0, 0, 0}};
            if (i < whole) pack = load_words(x + 16 * i);
            ((Pack<u32> *)out)[i] = pack;
            if (i != whole) continue;
            for (u64 at = 16 * i; at < a.bytes; at += 2) *(u16 *)(out + at) = *(const u16 *)(x + at);
        }
    }
}

// Copies them back, to rows that begin anywhere. Each of sixteen bytes of the result is written by one thread.
KERNEL(unpad_rows, PitchedRows) {
    for (u64 row = blockIdx.y; row < a.rows; row += gridDim.y) {
        const u8 *x = (const u8 *)a.x + row * a.from;
        u8 *out = (u8 *)a.out + row * a.to;
        u64 head = min((16 - ((u64)out & 15)) & 15, a.bytes), packs = (a.bytes - head) / 16;
        FOR_EACH_ITEM(i, packs) {
            u64 at = head + 16 * i;
            *(Pack<u32> *)(out + at) = load_words(x + at);
        }
        // Before them and behind them.
        FOR_EACH_ITEM(i, (a.bytes - 16 * packs) / 2) {
            u64 at = 2 * i < head ? 2 * i : 2 * i + 16 * packs;
            *(u16 *)(out + at) = *(const u16 *)(x + at);
        }
    }
}
